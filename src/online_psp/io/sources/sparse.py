"""Sparse rows: SciPy's ``.npz``, 10x and AnnData HDF5, and matrices in memory. None of them is ever made dense.

A matrix that is stored row after row (CSR; in 10x files, cell after cell) is read in pieces of its three arrays, in the memory of a few
blocks. Any other (CSC, coordinates) is read as a whole and converted to CSR, which takes the memory of its non-zero entries twice.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from typing import IO, Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from online_psp.engine.types import Array
from online_psp.io.sources.arrays import as_table, npy_header
from online_psp.io.sources.options import Options
from online_psp.io.sources.places import Place, in_zip
from online_psp.io.sources.source import (
    BLOCK_ENTRIES,
    FEWEST_ROWS,
    MOST_ROWS,
    Chunk,
    Mark,
    Source,
    SourceError,
    working_dtype,
)

_PARTS = ("data", "indices", "indptr")


class Parts(NamedTuple):
    """The arrays of a CSR matrix, or objects that give their values by slices."""

    data: Any
    indices: Any
    indptr: Any


Opened = Callable[[], AbstractContextManager[Parts]]
"""Opens the arrays for one pass over them."""


def sparse_source(opened: Opened, shape: Any, options: Options, name: str, files: tuple[Place, ...] = ()) -> Source:
    """A source of rows stored one after the other: row i has ``data[indptr[i]:indptr[i+1]]`` in the columns ``indices[…]``."""
    total, features = as_table(whole_numbers(shape, name), name)[0]
    with opened() as parts:
        working = working_dtype(parts.data.dtype, options.dtype, name)
        block = _check(parts, total, name)

    def read(begin: Mark) -> Iterator[Chunk]:
        with opened() as parts:
            for at in range(begin.row, total, block):
                yield _chunk(parts, (at, min(at + block, total)), features, working, name, options)

    return Source(name, features, working, read, total, block=block, kind="sparse", files=files, **options.common())


def open_sparse(matrix: Any, options: Options, name: str) -> Source:
    """Open a matrix in memory, in any of SciPy's formats."""
    if hasattr(matrix, "check_format"):
        matrix.check_format(full_check=True)  # before anything follows its indices
        if (np.diff(matrix.indptr) < 0).any():  # which is not looked at where there are no entries
            raise damaged(name, "its indptr goes down")
    rows = matrix.tocsr()
    found = sparse_source(lambda: nullcontext(Parts(rows.data, rows.indices, rows.indptr)), rows.shape, options, name)
    return replace(found, foreign=True)  # it is in memory: there is nothing to read ahead


def is_sparse_npz(names: list[str]) -> bool:
    """Whether `scipy.sparse.save_npz` has written an archive with these arrays, even if some are missing now."""
    return {"format", "data"} <= set(names) or {"indices", "indptr"} <= set(names)


def open_sparse_npz(place: Place, names: list[str], options: Options) -> Source:
    """Open a sparse ``.npz`` file: CSR is decompressed as it is read, other formats are read as a whole."""
    missing = [each for each in ("format", "shape", "data") if each not in names]
    if not missing:
        with place.open() as file, zipfile.ZipFile(file) as archive:
            kind, shape = (np.lib.format.read_array(archive.open(f"{part}.npy"), allow_pickle=False) for part in ("format", "shape"))
            unpacked = sum(archive.getinfo(f"{part}.npy").file_size for part in names)
        layout = kind.item().decode("ascii", "replace") if kind.dtype.kind == "S" and kind.ndim == 0 else str(kind)
        missing = [each for each in _PARTS if each not in names] if layout in ("csr", "csc", "bsr") else []
    if missing:
        raise _without(missing, place.name)
    if layout != "csr":
        from scipy.sparse import load_npz

        options.check(3 * unpacked + 8 * sum(whole_numbers(shape, place.name)), "the matrix, which is read as a whole,", place.name)
        with place.open() as file:
            matrix = load_npz(file)
        return replace(open_sparse(matrix, options, place.name), files=(place,))

    @contextmanager
    def opened() -> Iterator[Parts]:
        with (
            ExitStack() as files
        ):  # one each: Python 3.12 mixes up the places of uncompressed members of one archive (python/cpython#127847)
            members = [files.enter_context(in_zip(place, f"{part}.npy").open()) for part in _PARTS]
            yield Parts(*(_Packed(member, f"{place.name}::{part}") for member, part in zip(members, _PARTS, strict=True)))

    return sparse_source(opened, shape, options, place.name, (place,))


class _Packed:
    """An array inside an archive, read by slices: forward it reads on, backward it starts again."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self.file, self.name = file, name
        self.shape, self.dtype, self.first, _ = npy_header(file, name)

    def __getitem__(self, part: slice) -> Array:
        wanted = (part.stop - part.start) * self.dtype.itemsize
        self.file.seek(self.first + part.start * self.dtype.itemsize)
        data = self.file.read(wanted)
        if len(data) < wanted:
            raise SourceError(f"{self.name} ends early: the archive is truncated; write or download it again.")
        return np.frombuffer(data, self.dtype)


def is_sparse_group(group: Any) -> bool:
    """Whether a group of an HDF5 file is a sparse matrix, even if one of its arrays is missing."""
    return sum(part in group for part in _PARTS) >= 2


def open_sparse_group(group: Any, options: Options, name: str) -> Source:
    """Open AnnData's csr_matrix or csc_matrix, where rows are samples, or a 10x matrix (features × cells, CSC), where cells are."""
    missing = [part for part in _PARTS if part not in group]
    if missing:
        raise _without(missing, name)
    parts = Parts(*(group[part] for part in _PARTS))
    if any(not hasattr(part, "shape") for part in parts):
        raise SourceError(f"{name} must have its data, indices and indptr as arrays; some of them are groups.")
    layout, shape = _layout(group, name)
    if layout == "csr":
        return sparse_source(lambda: nullcontext(parts), shape, options, name)
    from scipy.sparse import csc_array

    rows, columns = whole_numbers(shape, name)
    held = sum(int(np.prod(part.shape)) * np.dtype(part.dtype).itemsize for part in parts)
    options.check(3 * held + 8 * (rows + columns), "the matrix, which lies by columns and is read as a whole,", name)
    _check(parts, columns, name)
    matrix = csc_array(tuple(part[:] for part in parts), shape=(rows, columns))
    return open_sparse(matrix, options, name)


def _layout(group: Any, name: str) -> tuple[str, Any]:
    """How a group is compressed, "csr" or "csc", and its shape, samples first."""
    named = group.attrs.get("encoding-type", group.attrs.get("h5sparse_format", ""))
    kind = (named.decode("ascii", "replace") if isinstance(named, bytes) else str(named))[:3]
    shape = group.attrs.get("shape", group.attrs.get("h5sparse_shape"))
    if kind in ("csr", "csc") and shape is not None:
        return kind, shape
    if not hasattr(group.get("shape"), "shape"):
        raise SourceError(f"{name} is a sparse matrix without its shape; write or download the file again.")
    if "barcodes" in group:
        return "csr", np.ravel(group["shape"][()])[::-1]
    raise SourceError(
        f"{name} does not say whether its rows or its columns are samples: it needs the barcodes of a 10x file, "
        "or the attributes encoding-type and shape of AnnData."
    )


def _check(parts: Parts, total: int, name: str) -> int:
    """Check that the arrays fit together; returns the rows per block, a power of two, with which no block has too many entries.

    The pointers are read in pieces, because they alone may be long.
    """
    for part, array in zip(_PARTS, parts, strict=True):
        if len(array.shape) != 1 or (part != "data" and np.dtype(array.dtype).kind not in "iu"):
            what = "numbers" if part == "data" else "whole numbers"
            raise SourceError(f"{name} must have its {part} as a row of {what}; they are {np.dtype(array.dtype)} of shape {array.shape}.")
    if parts.indptr.shape[0] != total + 1:
        raise damaged(name, f"its indptr is for {parts.indptr.shape[0] - 1} rows, and its shape says {total}")
    entries, size, last = parts.data.shape[0], MOST_ROWS, 0
    for at in range(0, total + 1, MOST_ROWS):
        pointers = parts.indptr[at : min(at + MOST_ROWS, total) + 1].astype(np.int64)
        if (at == 0 and pointers[0] != 0) or pointers[0] < last or (np.diff(pointers) < 0).any():
            raise damaged(name, f"its indptr goes down, or does not begin at 0, in rows {at + 1} to {at + len(pointers) - 1}")
        last = int(pointers[-1])
        while size > FEWEST_ROWS and np.diff(np.append(pointers[::size], last)).max() > BLOCK_ENTRIES:
            size //= 2
    if not last == entries == parts.indices.shape[0]:
        raise damaged(name, f"its indptr tells of {last} entries, and it has {entries} values in {parts.indices.shape[0]} places")
    return size


def _chunk(parts: Parts, ends: tuple[int, int], features: int, working: np.dtype[Any], name: str, options: Options) -> Chunk:
    """Rows `start` … `stop`−1 as CSR, with their columns in order and without duplicates."""
    start, stop = ends
    pointers = np.asarray(parts.indptr[start : stop + 1]).astype(np.int64)
    entries = slice(int(pointers[0]), int(pointers[-1]))
    options.check((entries.stop - entries.start) * 24, f"a block of {stop - start} rows", name)
    indices, values = np.asarray(parts.indices[entries]), np.asarray(parts.data[entries])
    if indices.dtype not in (np.int32, np.int64):
        indices = indices.astype(np.int64)
    pointers -= pointers[0]
    outside = (indices < 0) | (indices >= features)
    if outside.any():
        at = int(np.argmax(outside))
        row = start + int(np.searchsorted(pointers, at, side="right"))
        raise damaged(f"{name}, row {row}", f"it has a value in column {indices[at]}, and there are {features}, from 0")
    with np.errstate(over="ignore"):
        rows = csr_array((values.astype(working, copy=False), indices, pointers), shape=(stop - start, features))
    if not rows.has_canonical_format:
        rows = rows.copy()  # the arrays may belong to the caller
        rows.sum_duplicates()
    return Chunk(stop - start, rows, {})


def whole_numbers(shape: Any, name: str) -> tuple[int, int]:
    """A shape from a file, checked to be two whole numbers."""
    values = np.asarray(shape)
    if values.shape != (2,) or values.dtype.kind not in "iu" or (values.astype(np.int64) < 0).any() or (values > 1 << 62).any():
        raise SourceError(f"{name} must be a table of rows and features; its shape is {values.tolist()}.")
    return int(values[0]), int(values[1])


def damaged(name: str, problem: str, kind: str = "sparse matrix") -> SourceError:
    return SourceError(f"{name}: this is not a whole {kind} ({problem}); write or download it again.")


def _without(missing: list[str], name: str) -> SourceError:
    return SourceError(f"{name} is a sparse matrix without its {' and '.join(missing)}; write or download it again.")
