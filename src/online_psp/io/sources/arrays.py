"""Rows of numbers as they lie in a file: NumPy's .npy and .npz, IDX (the format of MNIST), and raw binary."""

from __future__ import annotations

import io
import struct
import weakref
import zipfile
from collections.abc import Iterator, Mapping
from typing import IO, Any, NamedTuple

import numpy as np

from online_psp.io.sources.options import Options
from online_psp.io.sources.places import Place, compression, exactly, in_zip
from online_psp.io.sources.source import (
    PIECE_BYTES,
    Chunk,
    Mark,
    Reader,
    Source,
    SourceError,
    UnknownSourceError,
    dtype_called,
    working_dtype,
)

_SLAB_BYTES = 1 << 25
_USUAL_NAMES = ("X", "fea", "data")
_IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


class Header(NamedTuple):
    """What comes before the numbers."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    size: int
    """Bytes before the first number."""
    fortran: bool = False


def open_npy(place: Place, options: Options) -> Source:
    """Open rows (N, D), or pictures (N, height, width), in C or Fortran order."""
    with place.clear() as file:
        header = npy_header(file, place.name)
    return source_of_numbers(place, header, "npy", options)


def open_npz(place: Place, options: Options) -> Source:
    """Open one array of an archive, decompressed as it is read; or a sparse matrix."""
    from online_psp.io.sources.sparse import is_sparse_npz, open_sparse_npz

    with place.open() as file, zipfile.ZipFile(file) as archive:
        names = [entry.removesuffix(".npy") for entry in archive.namelist() if entry.endswith(".npy")]
        if options.member is None and is_sparse_npz(names):
            return open_sparse_npz(place, names, options)
        if not names:
            raise SourceError(f"{place.name} is empty: it has no array.")
        shapes = {}
        for name in names if options.member is None else ():
            with archive.open(f"{name}.npy") as entry:
                shapes[name] = npy_header(entry, f"{place.name}::{name}").shape
    chosen = choose_table(place.name, shapes or dict.fromkeys(names, ()), options.member, "array")
    inside = in_zip(place, f"{chosen}.npy")
    inside.name = f"{place.name}::{chosen}"
    with inside.open() as file:
        header = npy_header(file, inside.name)
    return source_of_numbers(inside, header, "npy", options)


def choose_table(path: str, shapes: Mapping[str, tuple[int, ...]], member: str | None, what: str) -> str:
    """The array that was asked for, one with a usual name, or the only table."""
    if member is not None:
        if member not in shapes:
            raise UnknownSourceError(f"{path} has no {what} {member!r}; it has {', '.join(list(shapes)[:12]) or 'none'}.")
        return member
    tables = [name for name, shape in shapes.items() if len(shape) in (2, 3)]
    usual = [name for name in _USUAL_NAMES if name in tables]
    if usual or len(tables) == 1:
        return (usual or tables)[0]
    if not tables:
        held = f" ({', '.join(_shaped(shapes)[:8])})" if shapes else ""
        raise UnknownSourceError(f"{path} has no table: none of its {what}s{held} has two dimensions, or three as pictures have.")
    listed = ", ".join(_shaped({name: shapes[name] for name in tables})[:12])
    raise UnknownSourceError(f"{path} has {len(tables)} tables ({listed}); name the one to read: {path}::NAME.")


def _shaped(shapes: Mapping[str, tuple[int, ...]]) -> list[str]:
    """Names of arrays with their shapes."""
    return [f"{name} ({'×'.join(map(str, shape)) or 'one number'})" for name, shape in shapes.items()]


def npy_header(file: IO[bytes], name: str) -> Header:
    """Read the header of an ``.npy`` file. The file is then at its data."""
    version = np.lib.format.read_magic(file)
    reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, kind = reader(file)
    if any(size < 0 for size in shape):
        raise SourceError(f"{name} is not an array of numbers (its shape is {shape}).")
    if kind.hasobject:
        raise SourceError(f"{name} holds Python objects, not numbers; save it again with numpy.save, as numbers.")
    if kind.names is not None:
        fields = ", ".join(kind.names[:6]) + (", …" if len(kind.names) > 6 else "")
        raise SourceError(
            f"{name} holds records ({fields}), not a table; save numpy.lib.recfunctions.structured_to_unstructured(records) in its place."
        )
    return Header(shape, kind, file.tell(), fortran)


def looks_like_idx(head: bytes) -> bool:
    """Whether decompressed bytes begin as an IDX file does."""
    return len(head) >= 4 and head[:2] == b"\0\0" and head[2] in _IDX_TYPES and 1 <= head[3] <= 8


def open_idx(place: Place, options: Options) -> Source:
    """Open an IDX file: a magic number, the sizes, and the numbers; it may be compressed."""
    head = place.head()
    if not looks_like_idx(head):
        raise SourceError(
            f"{place.name} is not an IDX file: it begins with the magic number {head[:4].hex(' ') or '(nothing)'}, "
            "where images begin with 00 00 08 03."
        )
    size = 4 + 4 * head[3]
    if len(head) < size:
        raise SourceError(f"{place.name} is truncated: its header of {size} bytes ends after {len(head)}; get it again.")
    return source_of_numbers(
        place, Header(struct.unpack(f">{head[3]}I", head[4:size]), np.dtype(_IDX_TYPES[head[2]]), size), "idx", options
    )


def open_raw(place: Place, options: Options) -> Source:
    """Open a file that holds rows of numbers, one after the other, and nothing else."""
    if options.features is None:
        raise UnknownSourceError(
            f"{place.name} is raw binary: say how many features a row has, and their type (--set features=…, dtype=…)."
        )
    kind = dtype_called(options.dtype or np.float64)
    row, size = options.features * kind.itemsize, place.size or 0
    with place.open() as file:
        if compression(file.read(6)):
            raise SourceError(f"{place.name} is compressed, and raw rows are read as they are: decompress it first.")
    if size % row:
        raise SourceError(f"{place.name}, row {size // row + 1}: the file ends in the middle of a row of {options.features} {kind} values.")
    working_dtype(kind, None, place.name)
    return source_of_numbers(place, Header((size // row, options.features), kind, 0), "raw", options, None)


def as_table(shape: tuple[int, ...], name: str, time_axis: int | None = None) -> tuple[tuple[int, int], tuple[int, ...] | None]:
    """The shape of an array as rows, and that of a picture if the rows are pictures: along the first axis, or the one of time."""
    if time_axis is not None and (len(shape) != 3 or time_axis not in (0, 2)):
        raise UnknownSourceError(f"time_axis is the first or the last axis (0 or 2) of an array of pictures; {name} has shape {shape}.")
    if len(shape) == 3 and 0 not in shape:
        total, *picture = shape if time_axis != 2 else (shape[2], *shape[:2])
        return (total, picture[0] * picture[1]), tuple(picture)
    if len(shape) != 2 or shape[1] < 1:
        raise SourceError(f"{name} must be a table of rows and features, or pictures (N, height, width); its shape is {shape}: reshape it.")
    return (shape[0], shape[1]), None


def axis_doubt(shape: tuple[int, ...], name: str, time_axis: int | None) -> list[str]:
    """A warning where the last axis is so long that it may be time."""
    if time_axis is not None or len(shape) != 3 or shape[2] <= 4 * max(shape[:2]):
        return []
    first, height, width = shape
    return [f"{name} was read as {first} pictures of {height}×{width}; if its last axis is time, add --set time_axis=2 (time_axis=2)"]


def source_of_numbers(place: Place, header: Header, kind: str, options: Options, wanted: Any = ...) -> Source:
    """A source of the numbers after a header."""
    name, dtype = place.name, header.dtype
    working = working_dtype(dtype, options.dtype if wanted is ... else wanted, name)
    shape = tuple(int(size) for size in header.shape)
    (total, features), picture = as_table(shape, name, options.time_axis)
    row = features * dtype.itemsize
    warnings = axis_doubt(shape, name, options.time_axis)
    places = None  # of the features, where pictures lie by columns
    if header.fortran and picture is not None:
        places = np.arange(features).reshape(picture[::-1]).T.ravel()
    by_columns = header.fortran != (options.time_axis == 2)
    if place.path is not None and place.packed is None:
        more = (place.size or 0) - header.size - total * row
        if more < 0:
            raise SourceError(f"{name} is not a whole .{kind} file: {total} rows of {features} values need {-more} bytes more.")
        if more and kind == "idx":
            raise SourceError(f"{name} has {more} bytes left over after its {total} rows; get it again.")
        if more:
            warnings += [f"{name} goes on for {more} bytes after its array, which were not read"]
    read: Reader = _rows(place, header.size, dtype, total, features, options, places)
    if by_columns and min(total, features) > 1:
        read = _columns(place, header, total, features, options, places)
    else:
        options.check(row, "one row", name)
    return Source(
        name, features, working, read, total, image_shape=picture, warnings=warnings, kind=kind, files=(place,),
        **options.common(stored=dtype.str),
    )  # fmt: skip


def _rows(place: Place, start: int, dtype: np.dtype[Any], total: int, features: int, options: Options, places: Any) -> Reader:
    name = place.name
    row = features * dtype.itemsize
    step = max(1, min(PIECE_BYTES, options.max_memory // 4) // max(1, row))

    def read(begin: Mark) -> Iterator[Chunk]:
        with place.clear(start + begin.row * row) as file:
            for at in range(begin.row, total, step):
                wanted = min(step, total - at) * row
                data = exactly(file, wanted)
                if len(data) < wanted:
                    raise SourceError(f"{name} ends after row {at + len(data) // row} of {total}: it is truncated; get it again.")
                rows = np.frombuffer(data, dtype).reshape(-1, features)
                yield Chunk(wanted // row, rows if places is None else rows[:, places])
            if begin.row < total and place.packed and file.read(1):
                raise SourceError(f"{name} has bytes left over after its {total} rows; get it again.")

    return read


def _columns(place: Place, header: Header, total: int, features: int, options: Options, places: Any) -> Reader:
    """A reader for an array in Fortran order, whose rows are spread over all of it: a stretch of every column is read, and transposed.

    What cannot seek is unpacked first, as a whole.
    """
    dtype = header.dtype
    size = header.size + total * features * dtype.itemsize
    if place.path is not None and place.packed is None:
        file: Any = place.path.open("rb", buffering=0)
    else:
        options.check(size, "the array, which lies by columns and must be unpacked,", place.name)
        with place.clear() as packed:
            file = io.BytesIO(packed.read(size))
        if len(file.getbuffer()) < size:
            raise SourceError(f"{place.name} is not a whole array: it ends after {len(file.getbuffer())} bytes of {size}.")
    slab = max(1, min(_SLAB_BYTES, options.max_memory // 4) // (features * dtype.itemsize))

    def read(begin: Mark) -> Iterator[Chunk]:
        for at in range(begin.row, total, slab):
            count = min(slab, total - at)
            columns = np.empty((features, count), dtype)
            for i, column in enumerate(range(features) if places is None else places.tolist()):
                file.seek(header.size + (column * total + at) * dtype.itemsize)
                data = exactly(file, count * dtype.itemsize)
                if len(data) < count * dtype.itemsize:
                    raise SourceError(f"{place.name} ends in its column {column}: it is truncated.")
                columns[i] = np.frombuffer(data, dtype)
            yield Chunk(count, np.ascontiguousarray(columns.T))

    weakref.finalize(read, file.close)
    return read
