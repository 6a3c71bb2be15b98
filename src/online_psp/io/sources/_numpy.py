"""NumPy's own files, raw binary, arrays in memory, and iterables."""

from __future__ import annotations

import contextlib
import mmap
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
from scipy.sparse import csr_array, issparse

from online_psp.engine.types import Array
from online_psp.io.sources._source import (
    Chunk,
    Deadline,
    Source,
    SourceError,
    UnknownSourceError,
    check_shape,
    joined,
    peek,
    recut,
    sliced,
    sparse_block_rows,
    working_dtype,
)  # fmt: skip

_SLAB_BYTES = 1 << 25


def open_npy(path: Path, dtype: Any, name: str | None = None) -> Source:
    """A memory-mapped file, in C or Fortran order."""
    name = name or str(path)
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise SourceError(f"{name} is not a whole .npy file of numbers ({error}).") from None
    total, features = check_shape(array.shape, name)
    return Source(name, features, working_dtype(array.dtype, dtype, name), mapped(array), total)


def mapped(array: Array) -> Any:
    """A reader that lets go of the pages it has read, so that memory does not grow with the file.

    Rows of a Fortran-ordered file are spread over all of it; there, as many are taken at once as fill some megabytes.
    """
    total, features = array.shape
    pages: mmap.mmap | None = getattr(array, "_mmap", None)
    scattered = array.flags.f_contiguous and not array.flags.c_contiguous
    slab = max(1, _SLAB_BYTES // (features * array.itemsize)) if scattered else max(1, (1 << 22) // (features * array.itemsize))

    def pieces(start: int, size: int) -> Iterator[Array]:
        step = max(1, slab // size) * size
        for at in range(start, total, step):
            rows = np.array(array[at : at + step], order="C")
            if pages is not None and hasattr(mmap, "MADV_DONTNEED"):
                pages.madvise(mmap.MADV_DONTNEED)
            yield rows

    def read(start: int, size: int, deadline: Deadline | None = None) -> Iterator[Chunk]:
        return recut(pieces(start, size), size)

    return read


def open_npz(path: Path, dtype: Any, member: str | None) -> Source:
    """One array of an archive, decompressed as it is read."""
    names = npz_names(path)
    try:
        with zipfile.ZipFile(path) as archive:
            chosen = _choose(str(path), names, member, lambda entry: len(npy_header(archive.open(entry + ".npy"), str(path))[0]))
            name = f"{path}::{chosen}"
            with archive.open(f"{chosen}.npy") as file:
                shape, fortran, kind = npy_header(file, name)
    except zipfile.BadZipFile as error:
        raise SourceError(f"{path} is not a whole .npz file ({error}).") from None
    total, features = check_shape(shape, name)
    working = working_dtype(kind, dtype, name)
    if fortran:
        return _unpacked(path, chosen, dtype, name)

    def rows() -> Iterator[Array]:
        step = max(1, (1 << 22) // (features * kind.itemsize))
        with zipfile.ZipFile(path) as archive, archive.open(f"{chosen}.npy") as file:
            npy_header(file, name)
            for at in range(0, total, step):
                wanted = min(step, total - at) * features * kind.itemsize
                try:
                    data = file.read(wanted)
                except (zipfile.BadZipFile, EOFError, OSError) as error:
                    raise SourceError(f"{name}, after row {at}: the archive is damaged ({error}).") from None
                if len(data) < wanted:
                    raise SourceError(f"{name} ends after row {at + len(data) // (features * kind.itemsize)} of {total}.")
                yield np.frombuffer(data, kind).reshape(-1, features)

    return Source(name, features, working, lambda start, size, deadline: recut(rows(), size, start), total)


def npz_names(path: Path) -> list[str]:
    """The arrays in an archive."""
    try:
        with zipfile.ZipFile(path) as archive:
            return [entry.removesuffix(".npy") for entry in archive.namelist() if entry.endswith(".npy")]
    except zipfile.BadZipFile as error:
        raise SourceError(f"{path} is not a whole .npz file ({error}).") from None


def _choose(path: str, names: list[str], member: str | None, dimensions: Any) -> str:
    """The array that was asked for, or the only table that there is."""
    if member is not None:
        if member not in names:
            raise UnknownSourceError(f"{path} has no array {member!r}; it has {', '.join(names) or 'none'}.")
        return member
    tables = [name for name in names if dimensions(name) == 2]
    if len(tables) != 1:
        raise UnknownSourceError(f"{path} has {len(tables)} tables ({', '.join(tables)}); name the one to read: {path}::NAME.")
    return tables[0]


def npy_header(file: IO[bytes], name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether columns come first, and type of an array in ``.npy`` form; the file is then at its data."""
    try:
        version = np.lib.format.read_magic(file)
        reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, kind = reader(file)
    except (ValueError, EOFError) as error:
        raise SourceError(f"{name} is not an array of numbers ({error}).") from None
    return shape, fortran, kind


def _unpacked(path: Path, member: str, dtype: Any, name: str) -> Source:
    """Columns first: rows can only be had from a file that can be searched, so it is unpacked to disk, unnamed."""
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(path) as archive, archive.open(f"{member}.npy") as packed, open(Path(folder) / "columns.npy", "wb") as file:
            shutil.copyfileobj(packed, file, 1 << 20)
        return open_npy(Path(folder) / "columns.npy", dtype, name)  # the mapping outlives the name


def open_raw(file: Path | BinaryIO, dtype: Any, features: int, name: str) -> Source:
    """Rows of numbers, one after the other and nothing else."""
    kind = np.dtype(np.float64 if dtype is None else dtype)
    working = working_dtype(kind, None, name)
    if isinstance(file, Path):
        size, row = os.path.getsize(file), features * kind.itemsize
        if size % row:
            raise SourceError(f"{name}, row {size // row + 1}: the file ends in the middle of a row of {features} {kind} values.")
        if size == 0:
            return Source(name, features, working, lambda start, size, deadline: iter(()), 0)
        array: Any = np.memmap(file, kind, "r", shape=(size // row, features))
        return Source(name, features, working, mapped(array), size // row)
    return Source(name, features, working, lambda start, size, deadline: _raw_rows(file, kind, features, name, start, size), once=True)


def _raw_rows(file: BinaryIO, kind: np.dtype[Any], features: int, name: str, skip: int, size: int) -> Iterator[Chunk]:
    row = features * kind.itemsize
    at = 0
    while True:
        data = read_exactly(file, row * (min(size, skip - at) if at < skip else size))
        if len(data) % row:
            raise SourceError(f"{name}, row {at + len(data) // row + 1}: the data ends in the middle of a row of {features} {kind} values.")
        if not data:
            return
        at += len(data) // row
        if at > skip:
            yield Chunk(len(data) // row, np.frombuffer(data, kind).reshape(-1, features), {})


def read_exactly(file: BinaryIO, size: int) -> bytes:
    """As many bytes as asked for, unless the data ends: pipes give fewer at a time."""
    data = bytearray()
    while len(data) < size:
        part = file.read(size - len(data))
        if not part:
            break
        data += part
    return bytes(data)


def open_array(array: Any, dtype: Any, name: str) -> Source:
    """Anything with a shape of two numbers that can be sliced."""
    names = [str(column) for column in array.columns] if hasattr(array, "columns") else None
    if hasattr(array, "to_numpy"):
        array = array.to_numpy()
    total, features = check_shape(tuple(array.shape), name)
    return Source(name, features, working_dtype(array.dtype, dtype, name), sliced(array, total), total, feature_names=names)


def open_iterable(items: Iterator[Any], dtype: Any, name: str) -> Source:
    """Rows, or blocks of rows, in any sizes; the position in it is the number of rows."""
    first, items = peek(items)
    if first is None:
        raise SourceError(f"{name} is empty, so that not even the number of features is known.")
    shape, sparse = np.shape(first), issparse(first)
    features = shape[-1] if shape else 0
    if len(shape) not in (1, 2) or features < 1:
        raise SourceError(f"{name} must give rows or blocks of rows; its first item has shape {shape}.")

    def arrays() -> Iterator[Any]:
        seen = 0
        gathered: list[Any] = []
        for item in items:
            rows: Any = csr_array(item if issparse(item) else np.atleast_2d(item)) if sparse else np.atleast_2d(np.asarray(item))
            if rows.ndim != 2 or rows.shape[1] != features:
                raise SourceError(f"{name}, row {seen + 1}: rows must have {features} values; this item has shape {np.shape(item)}.")
            seen += rows.shape[0]
            if rows.shape[0] > 16:
                if gathered:
                    yield joined(gathered)
                    gathered = []
                yield rows
                continue
            gathered.append(rows)
            if len(gathered) == 64:
                yield joined(gathered)
                gathered = []
        if gathered:
            yield joined(gathered)

    kind = first.dtype if sparse else np.asarray(first).dtype
    block = sparse_block_rows(shape[0], first.nnz) if sparse else None
    with contextlib.suppress(TypeError):
        working = working_dtype(kind, dtype, name)
        return Source(
            name, features, working, lambda start, size, deadline: recut(arrays(), size, start), once=True, block=block, foreign=True
        )
    raise SourceError(f"{name} must give numbers; its first item has dtype {kind}.")
