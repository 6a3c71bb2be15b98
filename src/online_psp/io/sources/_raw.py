"""Raw binary numbers, in a file or from a pipe, and IDX files, the format of MNIST."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

from online_psp.engine.types import Array
from online_psp.io.sources._bytes import COMPRESSED, clear_file, pieces_of
from online_psp.io.sources._chunks import ahead
from online_psp.io.sources._identity import HeadPrint
from online_psp.io.sources._numpy import STEP_BYTES, as_table, exactly, mapped, pass_over, table_source
from online_psp.io.sources._options import Options
from online_psp.io.sources._places import Place
from online_psp.io.sources._source import Chunk, Deadline, Source, SourceError, UnknownSourceError, reason, recut, working_dtype

_PACKED = re.compile(  # more of it than the first bytes, which numbers may have too
    rb"\x1f\x8b\x08[\0-\x1f].{4}[\0\2\4][\0-\x0d\xff]|BZh[1-9]1AY&SY|\xfd7zXZ\0|\x28\xb5\x2f\xfd", re.DOTALL
)
_PACKED_BYTES = 10
_IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def open_raw(place: Place, options: Options) -> Source:
    """Open a file that holds rows of numbers, one after the other, and nothing else."""
    if options.features is None:
        raise UnknownSourceError(
            f"{place.name} is raw binary: say how many features a row has, and their type (--set features=…, dtype=…)."
        )
    if place.short.lower().endswith(COMPRESSED):
        return open_raw_stream(clear_file(place.open(), place.name), place.name, options)
    if place.path is None:
        return open_raw_stream(place.open(), place.name, options)
    with place.open() as file:
        _refuse_packed(file.read(_PACKED_BYTES), place.name)
    features, kind = options.features, _raw_kind(options.dtype, place.name)
    size, row = place.path.stat().st_size, features * kind.itemsize
    if size % row:
        raise SourceError(f"{place.name}, row {size // row + 1}: the file ends in the middle of a row of {features} {kind} values.")
    working = working_dtype(kind, None, place.name)
    array: Any = np.memmap(place.path, kind, "r", shape=(size // row, features)) if size else np.zeros((0, features), kind)
    read = mapped(array, options)
    schema = {**options.schema(), "stored": kind.str}
    return Source(place.name, features, working, read, size // row, kind="raw", prints=(place.print(),), schema=schema, **options.common())


def _refuse_packed(head: bytes, name: str) -> None:
    """Refuse compressed data, whose bytes would be taken as numbers."""
    if _PACKED.match(head):
        raise SourceError(f"{name} is compressed, and raw rows are read as they are: decompress it first.")


def _raw_kind(dtype: Any, name: str) -> np.dtype[Any]:
    try:
        kind = np.dtype(np.float64 if dtype is None else dtype)
    except TypeError as error:
        raise UnknownSourceError(f"{name}: there is no type {dtype!r} ({reason(error)}).") from None
    working_dtype(kind, None, name)
    return kind


def open_raw_stream(file: BinaryIO, name: str, options: Options) -> Source:
    """Open a pipe that gives rows of numbers, and nothing else."""
    features, kind = options.features or 1, _raw_kind(options.dtype, name)
    known, row = HeadPrint(name), features * kind.itemsize
    options.check(row, "one row", name)
    pieces = pieces_of(file, patient=False)

    def read(start: int, size: int, deadline: Deadline | None = None) -> Iterator[Chunk]:
        data, skip, at = bytearray(), start * row, start
        for piece in pieces:
            if piece is None:
                if deadline is None:
                    continue
                if len(data) < row or not deadline():
                    yield Chunk(0, np.zeros((0, features), kind), {})
                    continue
            else:
                if not known.head:
                    _refuse_packed(piece[:_PACKED_BYTES], name)
                known.saw(piece)
                passed = min(skip, len(piece))
                skip -= passed
                data += memoryview(piece)[passed:]
            due = deadline is not None and len(data) >= row and deadline()
            while len(data) >= size * row or (due and len(data) >= row):
                count = min(size, len(data) // row)
                yield Chunk(count, _rows(data, count * row, kind, features), {})
                del data[: count * row]
                at, due = at + count, False
        if len(data) % row:
            raise SourceError(f"{name}, row {at + len(data) // row + 1}: the data ends in the middle of a row of {features} {kind} values.")
        if data:
            yield Chunk(len(data) // row, _rows(data, len(data), kind, features), {})

    schema = {**options.schema(), "stored": kind.str}
    working = working_dtype(kind, None, name)
    return Source(name, features, working, read, once=True, kind="raw", prints=(known,), schema=schema, **options.common())


def _rows(data: bytearray, size: int, kind: np.dtype[Any], features: int) -> Array:
    return np.frombuffer(bytes(memoryview(data)[:size]), kind).reshape(-1, features)


def looks_like_idx(head: bytes) -> bool:
    """Whether decompressed bytes begin as an IDX file does."""
    return len(head) >= 4 and head[:2] == b"\0\0" and head[2] in _IDX_TYPES and 1 <= head[3] <= 8


def open_idx(place: Place, options: Options) -> Source:
    """Open an IDX file: a magic number, the sizes, and the numbers; it may be compressed."""

    def opened() -> BinaryIO:
        return clear_file(place.open(), place.name)

    with opened() as file:
        start = exactly(file, 4, place.name)
        if not looks_like_idx(start):
            raise SourceError(
                f"{place.name} is not an IDX file: it begins with the magic number {start.hex(' ') or '(nothing)'}, "
                "where images begin with 00 00 08 03."
            )
        kind, sizes = np.dtype(_IDX_TYPES[start[2]]), exactly(file, 4 * start[3], place.name)
    header = 4 + 4 * start[3]
    if len(sizes) < header - 4:
        raise SourceError(f"{place.name} is truncated: its header of {header} bytes ends after {4 + len(sizes)}; get it again.")
    shape = struct.unpack(f">{start[3]}I", sizes)
    table, picture = as_table(np.lib.stride_tricks.as_strided(np.empty((), kind), shape, [0] * len(shape)), place.name)
    total, features = table.shape
    row = features * kind.itemsize
    options.check(row, "one row", place.name)

    def pieces(begin: int) -> Iterator[Array]:
        step = max(1, min(STEP_BYTES, options.max_memory // 4) // row)
        with opened() as file:
            pass_over(file, header + begin * row)
            have = header + begin * row
            for at in range(begin, total, step):
                wanted = min(step, total - at) * row
                data = exactly(file, wanted, f"{place.name}, after row {at}")
                have += len(data)
                if len(data) < wanted:
                    raise _idx_size(place.name, "is truncated", shape, header + total * row, have)
                yield np.frombuffer(data, kind).reshape(-1, features)
            if file.read(1):
                raise _idx_size(place.name, "has bytes left over", shape, header + total * row, have + 1)

    def read(begin: int, size: int, deadline: Deadline | None = None) -> Iterator[Chunk]:
        return ahead(recut(pieces(begin), size), options.max_memory)

    return table_source(table, picture, read, place.name, "idx", options)


def _idx_size(name: str, what: str, shape: tuple[int, ...], wanted: int, have: int) -> SourceError:
    sizes = "×".join(map(str, shape))
    return SourceError(
        f"{name} {what}: {sizes} numbers need {wanted} bytes and it has {have}{' or more' if have > wanted else ''}; get it again."
    )
