"""Tables of scores as files: NumPy, CSV and Parquet, block by block."""

from __future__ import annotations

import csv
import io
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from online_psp.cli._errors import usage

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


class Format(NamedTuple):
    """How to write a file of one format, and how to append rows to one."""

    write: Callable[[BinaryIO, Parts, Table], None]
    append: Callable[[BinaryIO, Path, Parts, Table], None]


def append_to(target: os.PathLike[str], form: str, parts: Parts, table: Table) -> None:
    """Append rows to a file: a copy with the rows replaces it, so that it is whole at any moment."""
    from online_psp.io.files import replacing

    with replacing(target) as file:
        FORMATS[form].append(file, Path(target), parts, table)


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


def _append_npy(file: BinaryIO, target: Path, parts: Parts, table: Table) -> None:
    import numpy as np

    try:
        old = np.load(target, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        usage(f"{target} is not a whole .npy file, and nothing can be added to it ({error}).")
    if old.ndim != 2 or old.shape[1] != len(table.names) or old.dtype.kind != "f":
        usage(f"{target} has {old.dtype} of shape {old.shape}, and rows of {len(table.names)} scores cannot be added to it.")
    kind = old.dtype.newbyteorder("=")

    def all_parts() -> Iterator[tuple[Any, Any]]:
        for at in range(0, len(old), 8192):
            yield np.array(old[at : at + 8192], dtype=kind), None
        for scores, ids in parts:
            yield scores.astype(kind, copy=False), ids

    _write_npy(file, all_parts(), table)


# CSV


def _write_csv(file: BinaryIO, parts: Parts, table: Table, head: bool = True) -> None:
    if head:
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


def _append_csv(file: BinaryIO, target: Path, parts: Parts, table: Table) -> None:
    wanted = _line([*table.ids, *table.names])
    with open(target, "rb") as old:
        if old.read(len(wanted)) != wanted:
            usage(f"{target} has other columns than {wanted.decode().strip()[:200]}, and rows cannot be added to it.")
        old.seek(0, io.SEEK_END)
        old.seek(old.tell() - 1)
        whole = old.read(1) == b"\n"
        old.seek(0)
        shutil.copyfileobj(old, file, 1 << 20)
    if not whole:
        usage(f"{target} ends in the middle of a line, and rows cannot be added to it.")
    _write_csv(file, parts, table, head=False)


# Parquet


def _pyarrow() -> tuple[Any, Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    return pa, pq


def _schema(table: Table, kind: str) -> Any:
    pa, _ = _pyarrow()
    kinds = ((name, pa.int64() if name in table.whole else getattr(pa, kind)()) for name in table.names)
    return pa.schema([*((name, pa.string()) for name in table.ids), *kinds])


def _write_parquet(file: BinaryIO, parts: Parts, table: Table, old: Any = None) -> None:
    pa, pq = _pyarrow()
    writer: Any = None
    if old is not None:
        writer = pq.ParquetWriter(file, old.schema_arrow)
        for i in range(old.num_row_groups):
            writer.write_table(old.read_row_group(i))
    for scores, ids in parts:
        schema = _schema(table, scores.dtype.name) if old is None else old.schema_arrow
        columns = [] if ids is None else [pa.array(ids[:, i].tolist(), pa.string()) for i in range(len(table.ids))]
        for name, values in zip(table.names, scores.T, strict=True):
            columns.append(pa.array(values, mask=values != values) if name in table.whole else pa.array(values))  # noqa: PLR0124
        writer = writer or pq.ParquetWriter(file, schema)
        writer.write_table(pa.Table.from_arrays(columns, names=schema.names).cast(schema))
    (writer or pq.ParquetWriter(file, _schema(table, "float64"))).close()


def _append_parquet(file: BinaryIO, target: Path, parts: Parts, table: Table) -> None:
    _, pq = _pyarrow()
    try:
        old = pq.ParquetFile(target)
    except (ValueError, OSError) as error:
        usage(f"{target} is not a whole Parquet file, and nothing can be added to it ({error}).")
    if old.schema_arrow.names != [*table.ids, *table.names]:
        usage(f"{target} has other columns, and rows cannot be added to it.")
    _write_parquet(file, parts, table, old)


FORMATS: dict[str, Format] = {
    "npy": Format(_write_npy, _append_npy),
    "csv": Format(_write_csv, _append_csv),
    "parquet": Format(_write_parquet, _append_parquet),
}
