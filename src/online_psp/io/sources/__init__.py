"""Rows from anywhere, a block at a time, in a few blocks' memory.

>>> import numpy as np
>>> from online_psp.io.sources import open_source
>>> source = open_source(np.eye(5))
>>> source.features, source.total, [len(block.rows) for block in source.blocks(2)]
(5, 5, [2, 2, 1])
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import DTypeLike
from scipy.sparse import issparse

from online_psp.io.sources._arrow import IPC, PARQUET, open_arrow
from online_psp.io.sources._chunked import open_hdf5, open_zarr
from online_psp.io.sources._identity import FilePrint, different
from online_psp.io.sources._images import SUFFIXES as PICTURES
from online_psp.io.sources._images import open_images
from online_psp.io.sources._matrix_market import open_matrix_market
from online_psp.io.sources._numpy import npz_names, open_array, open_iterable, open_npy, open_npz, open_raw
from online_psp.io.sources._source import BadRow, Block, MissingExtraError, Source, SourceError, UnknownSourceError
from online_psp.io.sources._sparse import is_sparse_npz, open_sparse, open_sparse_npz
from online_psp.io.sources._text import open_text

__all__ = ["FORMATS", "BadRow", "Block", "MissingExtraError", "Source", "SourceError", "UnknownSourceError", "different", "open_source"]


class Options(NamedTuple):
    """What may be said about a source besides its name."""

    dtype: Any = None
    features: int | None = None
    columns: Sequence[str | int] | None = None
    header: bool | None = None
    member: str | None = None


def _text(delimiter: str) -> Callable[[Path, Options], Source]:
    return lambda path, options: open_text(path, options.dtype, str(path), delimiter, options.columns, options.header)


def _npz(path: Path, options: Options) -> Source:
    names = npz_names(path)
    if options.member is None and is_sparse_npz(names):
        return open_sparse_npz(path, names, options.dtype)
    return open_npz(path, options.dtype, options.member)


def _raw(path: Path, options: Options) -> Source:
    if options.features is None:
        raise UnknownSourceError(f"{path} is raw binary: say how many features a row has, and their type (--features, --dtype).")
    return open_raw(path, options.dtype, options.features, str(path))


def _arrow(path: Path, options: Options) -> Source:
    return open_arrow([path], options.dtype, str(path), options.columns)


#: How each kind of file is opened, by the end of its name.
FORMATS: dict[str, Callable[[Path, Options], Source]] = {
    ".npy": lambda path, options: open_npy(path, options.dtype),
    ".npz": _npz,
    **dict.fromkeys((".mtx", ".mtx.gz"), lambda path, options: open_matrix_market(path, options.dtype)),
    ".csv": _text(","),
    ".tsv": _text("\t"),
    ".csv.gz": _text(","),
    ".tsv.gz": _text("\t"),
    **dict.fromkeys((*PARQUET, *IPC), _arrow),
    **dict.fromkeys((".h5", ".hdf5", ".hdf"), lambda path, options: open_hdf5(path, options.dtype, options.member)),
    ".h5ad": lambda path, options: open_hdf5(path, options.dtype, options.member or "/X"),
    ".zarr": lambda path, options: open_zarr(path, options.dtype, options.member),
    **dict.fromkeys((".bin", ".raw", ".dat"), _raw),
}
_WITH_COLUMNS = (".csv", ".tsv", ".csv.gz", ".tsv.gz", *PARQUET, *IPC)


def open_source(
    source: Any,
    *,
    dtype: DTypeLike | None = None,
    features: int | None = None,
    columns: Sequence[str | int] | None = None,
    header: bool | None = None,
) -> Source:
    """Open whatever holds rows.

    Parameters
    ----------
    source : path, "-", array, or iterable
        A file (`FORMATS`; ``file.h5::/dataset`` and ``file.npz::name`` pick an array inside it), a folder of Parquet or Arrow files or of
        pictures, ``-`` for standard input, a two-dimensional array, sparse matrix or data frame, or an iterable of rows or blocks of rows.
        Sparse files (SciPy's ``.npz``, Matrix Market, 10x and AnnData HDF5) and matrices give blocks of CSR rows, and are never made dense.
    dtype : dtype, optional
        Working precision, float32 or float64; float32 data stays so by default, and all else becomes float64. For raw binary: what the
        data is.
    features : int, optional
        How many values a row of raw binary has. With it, standard input is read as raw binary, otherwise as CSV.
    columns : names or places (from 0), optional
        The columns of text, Parquet or Arrow to read.
    header : bool, optional
        Whether the first line of text has names; by default it has if no cell of it is a number.

    Raises
    ------
    SourceError
        For data that is not what it should be; `UnknownSourceError` and `MissingExtraError`, which are SourceErrors, for something that
        cannot be told to be a source, and for a format whose library is not installed.
    """
    if features is not None and features < 1:
        raise UnknownSourceError(f"A row must have at least 1 feature; got {features}.")
    if not isinstance(source, str | os.PathLike):
        return _open_object(source, dtype)
    text = os.fspath(source)
    if text == "-":
        stdin = sys.stdin.buffer
        if features is not None:
            return open_raw(stdin, dtype, features, "standard input")
        return open_text(stdin, dtype, "standard input", ",", columns, header)
    path, _, member = text.partition("::")
    return _open_path(Path(path), Options(dtype, features, columns, header, member or None))


def _open_object(source: Any, dtype: Any) -> Source:
    if isinstance(source, Source):
        return source
    name = f"the {type(source).__name__}"
    if issparse(source) and source.ndim == 2:
        return open_sparse(source, dtype, name)
    if len(getattr(source, "shape", ())) == 2:
        return open_array(source, dtype, name)
    if isinstance(source, Iterable):
        return open_iterable(iter(source), dtype, name)
    raise UnknownSourceError(f"A source is a path, an array or an iterable of rows; got {type(source).__name__}.")


def _open_path(path: Path, options: Options) -> Source:
    if not path.exists():
        raise UnknownSourceError(f"{path} does not exist.")
    suffix = next((suffix for suffix in sorted(FORMATS, key=len, reverse=True) if path.name.lower().endswith(suffix)), None)
    if options.features is not None:
        suffix = ".bin" if path.is_file() else None
    if options.columns is not None and suffix not in _WITH_COLUMNS and not path.is_dir():
        raise UnknownSourceError(f"Columns can be picked from text, Parquet and Arrow files only, not from {path}.")
    if path.is_dir() and suffix != ".zarr":
        return _open_folder(path, options)
    if suffix is None:
        known = ", ".join(FORMATS)
        raise UnknownSourceError(f"{path} has no known ending ({known}); for raw binary give --features and --dtype.")
    try:
        found = FORMATS[suffix](path, options)
        schema = {"columns": None if options.columns is None else list(options.columns), "header": options.header}
        return replace(found, kind=suffix, prints=(FilePrint(path),) if path.is_file() else (), schema=schema)
    except (OSError, MemoryError) as error:
        raise SourceError(f"{path} cannot be read: {error}.") from None


def _open_folder(path: Path, options: Options) -> Source:
    files = sorted(file for file in path.rglob("*") if file.is_file() and not file.name.startswith((".", "_")))
    if (path / "zarr.json").exists() or (path / ".zarray").exists() or (path / ".zgroup").exists():
        return open_zarr(path, options.dtype, options.member)
    kinds = {"Parquet": PARQUET, "Arrow": IPC, "picture": PICTURES}
    found = {kind: [file for file in files if file.suffix.lower() in suffixes] for kind, suffixes in kinds.items()}
    present = [kind for kind in found if found[kind]]
    if len(present) != 1:
        what = "no Parquet, Arrow or picture files" if not present else f"both {' and '.join(present)} files"
        raise UnknownSourceError(f"{path} has {what}; a folder must have files of one of these kinds.")
    chosen = found[present[0]]
    if present[0] == "picture":
        return open_images(chosen, options.dtype, str(path))
    return open_arrow(chosen, options.dtype, str(path), options.columns)
