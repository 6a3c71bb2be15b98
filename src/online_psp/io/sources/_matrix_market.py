"""Matrix Market text, plain or compressed. Its rows are the samples, except in the files of Cell Ranger, which are genes × cells.

The entries come in any order, so all of them are read before the first row is known. This takes a few times their size in memory, but never
a dense table. It is done here and not with `scipy.io.mmread`, which is faster for real numbers but ends the process with a segmentation
fault if a number is cut off or has more than 21 digits (SciPy 1.12 to 1.17, scipy/scipy#19949).
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import coo_array

from online_psp.engine.types import Array
from online_psp.io.sources._bytes import clear_file
from online_psp.io.sources._columns import picked
from online_psp.io.sources._names import labelled, numbered
from online_psp.io.sources._numpy import table_source
from online_psp.io.sources._options import Options
from online_psp.io.sources._places import Place
from online_psp.io.sources._source import Source, SourceError, check_shape, sliced
from online_psp.io.sources._sparse import damaged, open_sparse, reading

_LONG = re.compile(rb"[+-]?\d{19,}")
_PIECE = 1 << 24  # bytes of text to read at a time
_MOST_NAMES = 1 << 28  # bytes; if names are cut off here, they no longer fit the matrix, which is an error
_KIND = "Matrix Market file"
_LAYOUTS, _FIELDS = ("coordinate", "array"), ("real", "double", "integer", "unsigned-integer", "pattern")
_SYMMETRIES = ("general", "symmetric", "skew-symmetric")


class Header(NamedTuple):
    """What the first lines say."""

    layout: str
    field: str
    symmetry: str
    sizes: list[int]
    """Numbers of rows, of columns and, for coordinates, of entries."""
    line: int
    """The number of the line with the sizes."""


def open_matrix_market(place: Place, options: Options) -> Source:
    """Open a file: coordinates give sparse rows, a dense array gives dense rows."""
    name = place.name
    beside = None if place.path is None else _beside(place.path)
    with reading(name, _KIND), clear_file(place.open(), name) as file:
        header = _header(file, name)
        _check_size(header, options, name)
        if header.layout == "array":
            array = _dense(file, header, name)
            check_shape(array.shape, name)
            found = table_source(array, None, sliced(array, len(array)), name, "mtx", options)
            return picked(replace(found, prints=(place.print(),)), options.wanted)
        matrix = _coordinates(file, header, name)
    if beside is None:
        found = open_sparse(matrix, options, name)
        return picked(replace(found, kind="mtx", prints=(place.print(),)), options.wanted)
    if matrix.shape not in (beside.shape, beside.shape[::-1]):
        raise SourceError(
            f"{name} is {matrix.shape[0]} × {matrix.shape[1]}, and the tables beside it name {len(beside.genes)} genes and "
            f"{len(beside.cells)} cells: they do not belong together."
        )
    turned = matrix.shape == beside.shape
    found = open_sparse(matrix.T if turned else matrix, options, name)
    note = f"genes are its {'rows' if turned else 'columns'}, by the tables beside it: cells are samples, and genes have their names"
    found = replace(found, kind="mtx", prints=(place.print(),), feature_names=numbered(beside.genes), notes=[*found.notes, note])
    return labelled(found, {"barcodes": np.array(beside.cells, dtype=object)}, options)


class _Beside(NamedTuple):
    """The tables that Cell Ranger writes beside a matrix."""

    genes: list[str]
    cells: list[str]

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the matrix, as Cell Ranger writes it."""
        return len(self.genes), len(self.cells)


def _beside(path: Path) -> _Beside | None:
    """Names in ``features.tsv.gz`` and ``barcodes.tsv.gz`` beside ``matrix.mtx.gz`` or ``GSM123_matrix.mtx.gz``; None if there are none."""
    prefix, found, _ = path.name.partition("matrix.mtx")
    if not found:
        return None
    genes = _table(path.parent, prefix, ("features", "genes"), 1)
    cells = _table(path.parent, prefix, ("barcodes",), 0)
    if genes is None and cells is None:
        return None
    if genes is None or cells is None:
        have, lacks = ("barcodes", "features") if genes is None else ("features", "barcodes")
        raise SourceError(
            f"{path} has {prefix}{have}.tsv beside it, but no {prefix}{lacks}.tsv: which of its rows and columns are cells is not known."
        )
    return _Beside(genes, cells)


def _table(folder: Path, prefix: str, stems: tuple[str, ...], column: int) -> list[str] | None:
    for stem in stems:
        for ending in (".tsv.gz", ".tsv"):
            path = folder / f"{prefix}{stem}{ending}"
            if path.is_file():
                with clear_file(path.open("rb"), str(path)) as file:
                    text = file.read(_MOST_NAMES)
                cells = [line.split("\t") for line in text.decode("utf-8", "replace").splitlines() if line]
                return [row[min(column, len(row) - 1)] for row in cells]
    return None


def is_ten_x_folder(folder: Path) -> Path | None:
    """The matrix in a folder that Cell Ranger wrote; None for other folders."""
    for name in ("matrix.mtx.gz", "matrix.mtx"):
        if (folder / name).is_file() and _table(folder, "", ("barcodes",), 0) is not None:
            return folder / name
    return None


def _check_size(header: Header, options: Options, name: str) -> None:
    """Check the memory that the sizes in the header ask for, before it is allocated."""
    if header.layout == "array":
        options.check(16 * header.sizes[0] * header.sizes[1], "the table, which is read as a whole,", name)
        return
    rows, _, entries = header.sizes
    copies = 2 if header.symmetry != "general" else 1
    options.check(8 * rows + 48 * copies * entries, "the matrix, which is read as a whole,", name)


def _header(file: Any, name: str) -> Header:
    banner = file.readline(1000).decode("ascii", "replace").lower().split()
    if len(banner) != 5 or banner[:2] != ["%%matrixmarket", "matrix"]:
        raise damaged(name, "its first line is not that of one", _KIND)
    layout, field, symmetry = banner[2:]
    if field == "complex":
        raise SourceError(f"{name} holds complex numbers, not real ones; write their real parts, or their sizes, to a file.")
    if layout not in _LAYOUTS or field not in _FIELDS or symmetry not in _SYMMETRIES or (layout == "array" and symmetry != "general"):
        raise SourceError(f"{name} is a Matrix Market file of a kind that is not read here, {layout} {field} {symmetry}.")
    line, text = 2, file.readline(_PIECE)
    while text.startswith(b"%") or text.isspace():
        line, text = line + 1, file.readline(_PIECE)
    sizes = text.decode("ascii", "replace").split()
    if len(sizes) != (3 if layout == "coordinate" else 2) or not all(size.isdecimal() for size in sizes):
        raise damaged(name, f"line {line} should have its sizes", _KIND)
    return Header(layout, field, symmetry, [int(size) for size in sizes], line)


def _pieces(file: Any, header: Header, width: int, name: str) -> Iterator[Array]:
    """The numbers after the header, (n, width), a piece of the text at a time."""
    line = header.line + 1
    dtype = np.float64 if header.field in ("real", "double") else np.int64
    while text := file.read(_PIECE) + file.readline(_PIECE):
        if dtype is np.int64:
            _check_range(text, line, name)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # older NumPy only warns if it stops at something that is not a number
                values = np.fromstring(text, dtype, sep=" ")
            table: Array = values.reshape(-1, width)
        except (ValueError, DeprecationWarning):
            raise damaged(name, _first_problem(text, line, width, dtype), _KIND) from None
        yield table
        line += text.count(b"\n")


def _check_range(text: bytes, line: int, name: str) -> None:
    """Refuse whole numbers beyond 64 bits, which NumPy would silently replace by the largest one."""
    found = _LONG.search(text)
    while found:
        if not -(1 << 63) <= int(found[0]) < 1 << 63:
            number = line + text.count(b"\n", 0, found.start())
            raise damaged(name, f"line {number} has {found[0].decode()[:40]}, a whole number beyond 64 bits; write it as real", _KIND)
        found = _LONG.search(text, found.end())


def _first_problem(text: bytes, line: int, width: int, dtype: Any) -> str:
    for number, each in enumerate(text.decode("ascii", "replace").splitlines(), line):
        cells = each.split()
        if cells and len(cells) != width:
            return f"line {number} has {len(cells)} number{'s' if len(cells) != 1 else ''} where {width} are expected"
        for cell in cells:
            try:
                dtype(cell)
            except ValueError:
                return f"line {number} has {cell[:40]!r} in place of a number"
    return f"the numbers after line {line} are not {width} a line"


def _coordinates(file: Any, header: Header, name: str) -> Any:
    """Read all entries, as a matrix of coordinates."""
    *shape, entries = header.sizes
    index = np.dtype(np.int32 if max(shape) <= np.iinfo(np.int32).max else np.int64)
    parts: list[tuple[Array, Array, Array]] = []
    have = 0
    for table in _pieces(file, header, 2 if header.field == "pattern" else 3, name):
        for axis, size in enumerate(shape):
            wrong = ~((table[:, axis] >= 1) & (table[:, axis] <= size) & (np.floor(table[:, axis]) == table[:, axis]))
            if wrong.any():
                at = int(np.argmax(wrong))
                what = f"entry {have + at + 1} is in {('row', 'column')[axis]} {table[at, axis]:g}, and there are {size}"
                raise damaged(name, what, _KIND)
        rows, columns = ((table[:, axis] - 1).astype(index) for axis in range(2))
        parts.append((rows, columns, table[:, 2].copy() if table.shape[1] == 3 else np.ones(len(table))))
        have += len(table)
    if have != entries:
        raise damaged(name, f"it has {have} entries, and should have {entries}", _KIND)
    if not parts:
        return coo_array(tuple(shape), dtype=np.float64)
    rows, columns, values = (np.concatenate(part) for part in zip(*parts, strict=True))
    if header.symmetry != "general":
        if shape[0] != shape[1]:
            raise damaged(name, f"it is {header.symmetry}, with {shape[0]} rows and {shape[1]} columns", _KIND)
        off = rows != columns
        mirrored = values[off] if header.symmetry == "symmetric" else -values[off]
        rows, columns, values = (np.concatenate(both) for both in ((rows, columns[off]), (columns, rows[off]), (values, mirrored)))
    return coo_array((values, (rows, columns)), shape=tuple(shape))


def _dense(file: Any, header: Header, name: str) -> Array:
    """Read all values, which come column after column."""
    values = np.concatenate([np.zeros((0, 1)), *_pieces(file, header, 1, name)])
    rows, columns = header.sizes
    if len(values) != rows * columns:
        raise damaged(name, f"it has {len(values)} values, and should have {rows * columns}", _KIND)
    return values.reshape((rows, columns), order="F")
