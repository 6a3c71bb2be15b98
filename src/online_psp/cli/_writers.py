"""Tables of scores as files: NumPy, CSV and Parquet, block by block."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO, NamedTuple


class Table(NamedTuple):
    """The columns of an output."""

    names: list[str]
    """Names of the columns of scores."""
    ids: list[str]
    """Names of the text columns before them."""
    whole: tuple[str, ...] = ()
    """Scores that are whole numbers, which are written as such if the format allows."""


Parts = Iterable[tuple[Any, Any]]
"""Scores (n, K) and ids (n, number of them) or None."""


def _write_npy(file: BinaryIO, parts: Parts, table: Table) -> None:
    """Write a .npy file; its header, which has room to grow, is written again when the number of rows is known."""
    import numpy as np
    from numpy.lib import format as npy

    rows, about = 0, {"descr": "<f8", "fortran_order": False, "shape": (0, len(table.names))}
    npy.write_array_header_1_0(file, about)
    for scores, _ in parts:
        about["descr"] = scores.dtype.str
        file.write(np.ascontiguousarray(scores).data)
        rows += len(scores)
    file.seek(0)
    npy.write_array_header_1_0(file, about | {"shape": (rows, len(table.names))})


def _batches(parts: Parts, table: Table) -> Iterator[Any]:
    """The parts as batches of Arrow; missing values are null."""
    import numpy as np
    import pyarrow as pa

    for scores, ids in parts:
        texts = [] if ids is None else [pa.array(column.tolist(), pa.string()) for column in ids.T]
        numbers = [pa.array(values, mask=np.isnan(values)) for values in scores.T]
        kinds = (pa.int64() if name in table.whole else values.type for name, values in zip(table.names, numbers, strict=True))
        columns = [*texts, *(values.cast(kind) for values, kind in zip(numbers, kinds, strict=True))]
        yield pa.record_batch(columns, names=[*table.ids, *table.names])


def _write_csv(file: BinaryIO, parts: Parts, table: Table) -> None:
    from pyarrow.csv import WriteOptions, write_csv

    head = io.StringIO()
    csv.writer(head, lineterminator="\n").writerow([*table.ids, *table.names])
    file.write(head.getvalue().encode("utf-8", "replace"))
    options = WriteOptions(include_header=False, quoting_style="needed")  # whose header would be in quotes
    for batch in _batches(parts, table):
        write_csv(batch, file, options)
        file.flush()


def _write_parquet(file: BinaryIO, parts: Parts, table: Table) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = [*((name, pa.string()) for name in table.ids), *((name, pa.float64()) for name in table.names)]
    writer: Any = None
    for batch in _batches(parts, table):
        writer = writer or pq.ParquetWriter(file, batch.schema)
        writer.write_batch(batch)
    (writer or pq.ParquetWriter(file, pa.schema(kinds))).close()


WRITERS: dict[str, Callable[[BinaryIO, Parts, Table], None]] = {"npy": _write_npy, "csv": _write_csv, "parquet": _write_parquet}
"""How to write a file of each format."""
