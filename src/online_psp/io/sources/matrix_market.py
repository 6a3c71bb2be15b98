"""Matrix Market text by SciPy. Its rows are the samples, except in the files of Cell Ranger, which are genes × cells.

The entries come in any order, so all of them are read before the first row is known. SciPy's reader ends the process with a segmentation
fault where a number is cut off or has too many digits (SciPy 1.12 to 1.17, scipy/scipy#19949), so what is not made of numbers does not
reach it.
"""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from online_psp.io.sources.arrays import as_table
from online_psp.io.sources.columns import picked
from online_psp.io.sources.genes import labelled, numbered
from online_psp.io.sources.options import Options
from online_psp.io.sources.places import Place, local
from online_psp.io.sources.source import Source, SourceError, sliced, working_dtype
from online_psp.io.sources.sparse import damaged, open_sparse

_INTEGER = rb"[+-]?\d{1,19}"
_REAL = rb"[+-]?(?:\d{1,400}(?:\.\d{0,400})?|\.\d{1,400})(?:e[+-]?\d{1,5})?|[+-]?(?:nan|inf(?:inity)?)"
_VALUES = {"real": _REAL, "double": _REAL, "integer": _INTEGER, "unsigned-integer": _INTEGER, "pattern": None}
_SYMMETRIES = ("general", "symmetric", "skew-symmetric")
_PIECE = 1 << 24
_MOST_NAMES = 1 << 28  # bytes; if names are cut off here, they no longer fit the matrix, which is an error
_KIND = "Matrix Market file"


def open_matrix_market(place: Place, options: Options) -> Source:
    """Open a file: coordinates give sparse rows, a dense array gives dense rows."""
    name = place.name
    beside = None if place.path is None else _beside(place.path)
    matrix = _read(place, options)
    if isinstance(matrix, np.ndarray):
        (total, features), _ = as_table(matrix.shape, name)
        found = Source(
            name, features, working_dtype(matrix.dtype, options.dtype, name), sliced(matrix, total), total, kind="mtx", files=(place,),
            **options.common(),
        )  # fmt: skip
        return picked(found, options.wanted)
    if beside is None:
        return picked(replace(open_sparse(matrix, options, name), kind="mtx", files=(place,)), options.wanted)
    shape = len(beside.genes), len(beside.cells)
    if matrix.shape not in (shape, shape[::-1]):
        raise SourceError(
            f"{name} is {matrix.shape[0]} × {matrix.shape[1]}, and the tables beside it name {len(beside.genes)} genes and "
            f"{len(beside.cells)} cells: they do not belong together."
        )
    turned = matrix.shape == shape
    found = open_sparse(matrix.T if turned else matrix, options, name)
    note = f"genes are its {'rows' if turned else 'columns'}, by the tables beside it: cells are samples, and genes have their names"
    found = replace(found, kind="mtx", files=(place,), feature_names=numbered(beside.genes), notes=[*found.notes, note])
    return labelled(found, {"barcodes": beside.cells.__getitem__}, options)


def _read(place: Place, options: Options) -> Any:
    from scipy.io import mmread

    name = place.name
    with place.clear() as file:
        banner = file.readline(1000)
        words = banner.decode("ascii", "replace").lower().split()
        if len(words) != 5 or words[:2] != ["%%matrixmarket", "matrix"]:
            raise damaged(name, "its first line is not that of one", _KIND)
        layout, field, symmetry = words[2:]
        if field == "complex":
            raise SourceError(f"{name} holds complex numbers, not real ones; write their real parts, or their sizes, to a file.")
        if layout not in ("coordinate", "array") or field not in _VALUES or symmetry not in _SYMMETRIES:
            raise SourceError(f"{name} is a Matrix Market file of a kind that is not read here, {layout} {field} {symmetry}.")
        line, text = 2, file.readline(_PIECE)
        while text.startswith(b"%") or text.isspace():
            line, text = line + 1, file.readline(_PIECE)
        sizes = [int(size) for size in text.split() if size.isdigit()]
        if len(sizes) != len(text.split()) or len(sizes) != (3 if layout == "coordinate" else 2):
            raise damaged(name, f"line {line} should have its sizes", _KIND)
        if symmetry != "general" and sizes[0] != sizes[1]:
            raise damaged(name, f"it is {symmetry}, with {sizes[0]} rows and {sizes[1]} columns", _KIND)
        needed = 8 * sizes[0] + 96 * sizes[2] if layout == "coordinate" else 16 * sizes[0] * sizes[1]
        options.check(needed, f"the {'matrix' if layout == 'coordinate' else 'table'}, which is read as a whole,", name)
        whole = io.BytesIO()
        whole.write(banner + text)
        rows = _rows(layout, _VALUES[field])
        while piece := file.read(_PIECE):
            piece += file.readline(_PIECE)
            piece += b"" if piece.endswith(b"\n") else b"\n"
            stop = found.end() if (found := rows.match(piece)) else 0
            if stop < len(piece):
                wrong = piece[stop : piece.find(b"\n", stop)].strip()[:40].decode("ascii", "replace")
                raise damaged(name, f"line {line + 1 + piece.count(10, 0, stop)} has {wrong!r} in place of an entry", _KIND)
            options.check(whole.tell(), "its text", name)
            whole.write(piece)
            line += piece.count(b"\n")
    whole.seek(0)
    return mmread(whole)


def _rows(layout: str, value: bytes | None) -> re.Pattern[bytes]:
    """Lines of whole entries, which are all that SciPy gets."""
    cells = [rb"\d{1,18}"] * 2 if layout == "coordinate" else []
    cells += [] if value is None else [value]
    row = rb"[ \t]++".join(rb"(?>" + cell + rb")" for cell in cells)
    return re.compile(rb"(?>[ \t]*+(?:" + row + rb")?+[ \t\r]*+\n)*+", re.IGNORECASE)


class _Beside(NamedTuple):
    """The tables that Cell Ranger writes beside a matrix of genes × cells."""

    genes: list[str]
    cells: list[str]


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
    for path in (folder / f"{prefix}{stem}{ending}" for stem in stems for ending in (".tsv.gz", ".tsv")):
        if path.is_file():
            with local(path).clear() as file:
                text = file.read(_MOST_NAMES)
            cells = [line.split("\t") for line in text.decode("utf-8", "replace").splitlines() if line]
            return [row[min(column, len(row) - 1)] for row in cells]
    return None


def is_ten_x_folder(folder: Path) -> Path | None:
    """The matrix in a folder that Cell Ranger wrote; None for other folders."""
    found = [folder / name for name in ("matrix.mtx.gz", "matrix.mtx") if (folder / name).is_file()]
    return found[0] if found and _table(folder, "", ("barcodes",), 0) is not None else None
