"""Tables of scores as files: NumPy, CSV and Parquet, block by block."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable
from typing import Any, BinaryIO, NamedTuple

_ROOM = 128  # bytes for the header of a .npy file, which is written last


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


# NumPy


def _write_npy(file: BinaryIO, parts: Parts, table: Table) -> None:
    """Write a .npy file; the header comes last, when the number of rows is known, into room left for it."""
    import numpy as np

    file.write(b"\0" * _ROOM)
    rows, kind = 0, np.dtype(np.float64)
    for scores, _ in parts:
        kind = scores.dtype
        file.write(np.ascontiguousarray(scores).data)
        rows += len(scores)
    _npy_header(file, rows, len(table.names), kind)


def _npy_header(file: BinaryIO, rows: int, width: int, kind: Any) -> None:
    text = f"{{'descr': '{kind.str}', 'fortran_order': False, 'shape': ({rows}, {width}), }}"
    file.seek(0)
    file.write(b"\x93NUMPY\x01\x00" + (_ROOM - 10).to_bytes(2, "little") + text.ljust(_ROOM - 11).encode() + b"\n")


# CSV


def _write_csv(file: BinaryIO, parts: Parts, table: Table) -> None:
    file.write(_line([*table.ids, *table.names]))
    cells: list[Callable[[float], str]] = [_whole_cell if name in table.whole else _cell for name in table.names]
    for scores, ids in parts:
        if ids is None:
            file.write("".join(",".join(_cells(cells, row)) + "\n" for row in scores.tolist()).encode())
        else:
            text = io.StringIO()
            writer = csv.writer(text, lineterminator="\n")
            for own, row in zip(ids.tolist(), scores.tolist(), strict=True):
                writer.writerow([*own, *_cells(cells, row)])
            file.write(text.getvalue().encode("utf-8", "replace"))
        file.flush()


def _cell(value: float) -> str:
    return repr(value) if value == value else ""  # missing values are empty  # noqa: PLR0124


def _whole_cell(value: float) -> str:
    return str(int(value)) if value == value else ""  # noqa: PLR0124


def _cells(cells: list[Callable[[float], str]], row: list[float]) -> list[str]:
    return [cell(value) for cell, value in zip(cells, row, strict=True)]


def _line(names: list[str]) -> bytes:
    head = io.StringIO()
    csv.writer(head, lineterminator="\n").writerow(names)
    return head.getvalue().encode("utf-8", "replace")


# Parquet


def _pyarrow() -> tuple[Any, Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    return pa, pq


def _schema(table: Table, kind: str) -> Any:
    pa, _ = _pyarrow()
    kinds = ((name, pa.int64() if name in table.whole else getattr(pa, kind)()) for name in table.names)
    return pa.schema([*((name, pa.string()) for name in table.ids), *kinds])


def _write_parquet(file: BinaryIO, parts: Parts, table: Table) -> None:
    pa, pq = _pyarrow()
    writer: Any = None
    for scores, ids in parts:
        schema = _schema(table, scores.dtype.name)
        columns = [] if ids is None else [pa.array(ids[:, i].tolist(), pa.string()) for i in range(len(table.ids))]
        for name, values in zip(table.names, scores.T, strict=True):
            columns.append(pa.array(values, mask=values != values) if name in table.whole else pa.array(values))  # noqa: PLR0124
        writer = writer or pq.ParquetWriter(file, schema)
        writer.write_table(pa.Table.from_arrays(columns, names=schema.names).cast(schema))
    (writer or pq.ParquetWriter(file, _schema(table, "float64"))).close()


WRITERS: dict[str, Callable[[BinaryIO, Parts, Table], None]] = {"npy": _write_npy, "csv": _write_csv, "parquet": _write_parquet}
"""How to write a file of each format."""
