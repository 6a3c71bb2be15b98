"""NumPy's own files: .npy and .npz."""

from __future__ import annotations

import mmap
import shutil
import tempfile
import weakref
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np

from online_psp.engine.types import Array
from online_psp.io.sources._bytes import clear_file
from online_psp.io.sources._chunks import ahead
from online_psp.io.sources._identity import RowsPrint
from online_psp.io.sources._options import Options
from online_psp.io.sources._places import Place, archived
from online_psp.io.sources._source import (
    Chunk,
    Deadline,
    Reader,
    Source,
    SourceError,
    UnknownSourceError,
    reason,
    recut,
    working_dtype,
)

_SLAB_BYTES = 1 << 25
STEP_BYTES = 1 << 22


def open_npy(place: Place, options: Options) -> Source:
    """Open rows (N, D), or pictures (N, height, width), in C or Fortran order; a local file is memory-mapped."""
    if place.path is not None:
        with place.path.open("rb") as file:
            plain = file.read(6) == b"\x93NUMPY"
        if plain:
            return _mapped(place.path, place.name, options)
    return _streamed(lambda: clear_file(place.open(), place.name), place, options)


def _refuse(kind: np.dtype[Any], name: str) -> None:
    """Refuse Python objects and records, which are not a table of numbers."""
    if kind.hasobject:
        raise SourceError(f"{name} holds Python objects, not numbers; save it again with numpy.save, as numbers.")
    if kind.names is not None:
        fields = ", ".join(kind.names[:6]) + (", …" if len(kind.names) > 6 else "")
        raise SourceError(
            f"{name} holds records ({fields}), not a table; save numpy.lib.recfunctions.structured_to_unstructured(records) in its place."
        )


def _mapped(path: Path, name: str, options: Options) -> Source:
    try:
        with path.open("rb") as file:
            _refuse(npy_header(file, name)[2], name)
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except SourceError:
        raise
    except (ValueError, EOFError, OverflowError) as error:
        raise SourceError(f"{name} is not a whole .npy file of numbers ({reason(error)}).") from None
    table, shape = as_table(array, name)
    more = path.stat().st_size - array.offset - array.nbytes
    scattered = table.ndim == array.ndim == 2 and table.flags.f_contiguous and not table.flags.c_contiguous
    read = _by_columns(path, array, options) if scattered else mapped(table, options)
    found = table_source(table, shape, read, name, "npy", options)
    if more > 0:
        found.warnings.append(f"{name} goes on for {more} bytes after its array, which were not read")
    return found


def _by_columns(path: Path, array: Any, options: Options) -> Reader:
    """A reader for a file in Fortran order, whose rows are spread over all of it: a stretch of every column is read, and transposed.

    It does not read through the memory map, which would load many times as much as is needed.
    """
    total, features = array.shape
    kind, first = array.dtype, array.offset
    file = path.open("rb", buffering=0)  # kept open: an unpacked file has no name any more
    slab = max(1, min(_SLAB_BYTES, options.max_memory // 4) // (features * kind.itemsize))

    def pieces(start: int) -> Iterator[Array]:
        for at in range(start, total, slab):
            count = min(slab, total - at)
            columns = np.empty((features, count), kind)
            for column in range(features):
                file.seek(first + (column * total + at) * kind.itemsize)
                columns[column] = np.frombuffer(file.read(count * kind.itemsize), kind)
            yield np.ascontiguousarray(columns.T)

    def read(start: int, size: int, deadline: Deadline | None = None) -> Iterator[Chunk]:
        return recut(pieces(start), size)

    weakref.finalize(read, file.close)
    return read


def as_table(array: Any, name: str) -> tuple[Any, tuple[int, ...] | None]:
    """An array as rows, and the shape of a picture if the rows are pictures."""
    shape = tuple(int(size) for size in array.shape)
    if len(shape) == 3 and 0 not in shape[1:]:
        return array.reshape(shape[0], -1), shape[1:]
    if len(shape) != 2 or shape[1] < 1:
        raise SourceError(f"{name} must be a table of rows and features, or pictures (N, height, width); its shape is {shape}: reshape it.")
    return array, None


def table_source(table: Any, shape: tuple[int, ...] | None, read: Reader, name: str, kind: str, options: Options) -> Source:
    """A source of the rows of an array."""
    total, features = (int(size) for size in table.shape)
    return Source(
        name,
        features,
        working_dtype(table.dtype, options.dtype, name),
        read,
        total,
        image_shape=shape,
        kind=kind,
        prints=(RowsPrint(Path(name).name, total, features * table.dtype.itemsize, rows_of(read)),),
        schema=options.schema(),
        **options.common(),
    )


def rows_of(read: Reader) -> Callable[[int, int], Any]:
    """``rows(start, stop)`` from a reader, for digests."""

    def rows(start: int, stop: int) -> Any:
        return next(iter(read(start, stop - start, None))).rows

    return rows


def mapped(array: Array, options: Options) -> Reader:
    """A reader that releases the pages it has read, so that memory does not grow with the file."""
    total, features = array.shape
    pages: mmap.mmap | None = getattr(array, "_mmap", None) or getattr(array.base, "_mmap", None)
    slab = max(1, min(STEP_BYTES, options.max_memory // 4) // max(1, features * array.itemsize))

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


def _streamed(opened: Callable[[], BinaryIO], place: Place, options: Options, name: str | None = None) -> Source:
    """Open an array that can only be read forward: compressed, in an archive, or on another machine."""
    name = name or place.name
    with opened() as file:
        shape, fortran, kind = npy_header(file, name)
    _refuse(kind, name)
    working_dtype(kind, options.dtype, name)
    table, picture = as_table(np.lib.stride_tricks.as_strided(np.empty((), kind), shape, [0] * len(shape)), name)
    total, features = table.shape
    if fortran and min(total, features) > 1:
        return _unpacked(opened, shape, kind, name, options)
    row = features * kind.itemsize
    options.check(row, "one row", name)

    def pieces(start: int) -> Iterator[Array]:
        step = max(1, min(STEP_BYTES, options.max_memory // 4) // row)
        with opened() as file:
            npy_header(file, name)
            pass_over(file, start * row)
            for at in range(start, total, step):
                wanted = min(step, total - at) * row
                data = exactly(file, wanted, f"{name}, after row {at}")
                if len(data) < wanted:
                    raise SourceError(f"{name} ends after row {at + len(data) // row} of {total}.")
                yield np.frombuffer(data, kind).reshape(-1, features)

    def read(start: int, size: int, deadline: Deadline | None = None) -> Iterator[Chunk]:
        return ahead(recut(pieces(start), size), options.max_memory)

    return table_source(table, picture, read, name, "npy", options)


def exactly(file: BinaryIO, size: int, where: str) -> bytes:
    """Read this many bytes, or fewer if the data ends; pipes and archives may give fewer at a time."""
    data = bytearray()
    try:
        while len(data) < size:
            part = file.read(size - len(data))
            if not part:
                break
            data += part
    except (zipfile.BadZipFile, EOFError, OSError) as error:
        raise SourceError(f"{where}: the data is damaged ({reason(error)}).") from None
    return bytes(data)


def pass_over(file: BinaryIO, size: int) -> None:
    """Skip bytes, by reading them if the file cannot seek."""
    if size and file.seekable():
        file.seek(size, 1)
        return
    while size > 0 and (part := file.read(min(size, 1 << 20))):
        size -= len(part)


def open_npz(place: Place, options: Options) -> Source:
    """Open one array of an archive, decompressed as it is read."""
    names = npz_names(place)
    with place.open() as file, zipfile.ZipFile(file) as archive:
        chosen = _choose(place.name, names, options.member, lambda entry: _dimensions(archive, entry, place.name))

    def opened() -> BinaryIO:
        return archived(place.open(), f"{chosen}.npy")

    return _streamed(opened, place, options, f"{place.name}::{chosen}")


def npz_names(place: Place) -> list[str]:
    """The arrays in an archive."""
    try:
        with place.open() as file, zipfile.ZipFile(file) as archive:
            return [entry.removesuffix(".npy") for entry in archive.namelist() if entry.endswith(".npy")]
    except (zipfile.BadZipFile, OSError, NotImplementedError, ValueError) as error:
        raise SourceError(f"{place.name} is not a whole .npz file ({reason(error)}).") from None


def _dimensions(archive: zipfile.ZipFile, entry: str, name: str) -> int:
    with archive.open(entry + ".npy") as file:
        return len(npy_header(file, f"{name}::{entry}")[0])


_USUAL_NAMES = ("X", "fea", "data")


def _choose(path: str, names: list[str], member: str | None, dimensions: Any) -> str:
    """The array that was asked for, the only table, or the one with a usual name."""
    if member is not None:
        if member not in names:
            raise UnknownSourceError(f"{path} has no array {member!r}; it has {', '.join(names) or 'none'}.")
        return member
    if not names:
        raise SourceError(f"{path} is empty: it has no array.")
    tables = [name for name in names if dimensions(name) in (2, 3)]
    usual = [name for name in _USUAL_NAMES if name in tables]
    if len(tables) == 1 or usual:
        return (usual or tables)[0]
    if not tables:
        raise SourceError(
            f"{path} has no table: none of its arrays ({', '.join(names[:8])}) has two dimensions, or three as pictures have."
        )
    raise UnknownSourceError(f"{path} has {len(tables)} tables ({', '.join(tables)}); name the one to read: {path}::NAME.")


def npy_header(file: IO[bytes], name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read the header of an ``.npy`` file: shape, whether in Fortran order, and dtype. The file is then at its data."""
    try:
        version = np.lib.format.read_magic(file)
        reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, kind = reader(file)
    except SourceError:
        raise
    except Exception as error:  # headers are parsed as Python literals, which fail in many ways
        raise SourceError(f"{name} is not a whole .npy file of numbers ({reason(error)}).") from None
    if any(size < 0 for size in shape):
        raise SourceError(f"{name} is not an array of numbers (its shape is {shape}).")
    return shape, fortran, kind


def _unpacked(opened: Callable[[], BinaryIO], shape: tuple[int, ...], kind: np.dtype[Any], name: str, options: Options) -> Source:
    """Open an array in Fortran order: it is unpacked to a file without a name, because reading its rows takes a file that can seek."""
    options.check(int(np.prod(shape, dtype=object)) * kind.itemsize, "the array, which lies by columns and must be unpacked,", name)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "columns.npy"
        with opened() as packed, path.open("wb") as file:
            shutil.copyfileobj(packed, file, 1 << 20)
        return _mapped(path, name, options)  # the mapping outlives the name
