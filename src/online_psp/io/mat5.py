"""MAT files of version 5: the small part of the format that models need, read and written here.

Only real matrices of numbers and text, plain or compressed, as MATLAB's and Octave's ``save -v6`` and ``-v7`` write them. Every length is
checked against the bytes that are there before anything is taken, and what is compressed may not grow without bound: a damaged file, or one
made on purpose, is a `MatError` and nothing worse.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from online_psp.engine.types import Array

_HEADER = 128
_MATRIX, _COMPRESSED = 14, 15
_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_TEXTS = {1: "latin-1", 2: "latin-1", 4: "utf-16", 16: "utf-8", 17: "utf-16", 18: "utf-32"}
_CLASSES = {1: "cell", 2: "struct", 3: "object", 4: "text", 5: "sparse matrix", 16: "function", 17: "opaque object"}
_CHAR, _FIRST_NUMERIC, _LAST_NUMERIC = 4, 6, 15
_COMPLEX = 0x08
_ENOUGH = 4096  # bytes that hold the tags, the shape and the name of a matrix
_LONGEST_NAME, _LONGEST_TEXT = 63, 1 << 26
_ALWAYS, _GROWTH = 1 << 28, 20  # bytes that a file may unpack to: so many, and so many times its own
_MOST_ELEMENTS = 10_000


class MatError(ValueError):
    """A file that is no MAT file of version 5, not a whole one, or has variables of other kinds."""


class _Element(NamedTuple):
    """A tagged piece of a file."""

    kind: int
    data: memoryview
    end: int
    """Where the next one begins."""


class _Variable(NamedTuple):
    """What a matrix says of itself before its values."""

    name: str
    kind: int
    complex: bool
    shape: tuple[int, int]
    values_at: int


# Reading


def read_variables(data: bytes, wanted: Collection[str]) -> dict[str, Any]:
    """The wanted variables of a file: arrays of two dimensions, and str for text."""
    if len(data) < _HEADER:
        raise MatError("it is shorter than the header of a MAT file")
    order = {b"IM": "<", b"MI": ">"}.get(bytes(data[126:128]))
    version = 0 if order is None else struct.unpack(order + "H", data[124:126])[0]
    if version == 0x0200:
        raise MatError("it is a MAT file of version 7.3; save it with -v7")
    if order is None or version != 0x0100:
        raise MatError("it is not a MAT file of version 5 or 7")
    room = _ALWAYS + _GROWTH * len(data)
    found: dict[str, Any] = {}
    for element in _elements(memoryview(data), _HEADER, order):
        content, size = _unpacked(element, order, wanted, room)
        room -= size
        if content is None:
            continue
        variable = _describe(content, order)
        if variable.name not in wanted:
            continue
        if variable.name in found:
            raise MatError(f"it has the variable {variable.name!r} twice")
        found[variable.name] = _values(content, variable, order)
    return found


def _elements(data: memoryview, at: int, order: str) -> Iterator[_Element]:
    for _ in range(_MOST_ELEMENTS):
        if at == len(data):
            return
        element = _element(data, at, order)
        yield element
        at = element.end
    raise MatError("it has more variables than any model")


def _element(data: memoryview, at: int, order: str) -> _Element:
    """The element that begins at a place, its length checked."""
    if at + 8 > len(data):
        raise MatError("it ends in the middle of a tag")
    first, length = struct.unpack(order + "II", data[at : at + 8])
    if first >> 16:  # up to four bytes, in the tag itself
        kind, length = first & 0xFFFF, first >> 16
        if length > 4:
            raise MatError("it has a tag that is none")
        return _Element(kind, data[at + 4 : at + 4 + length], at + 8)
    start, stop = at + 8, at + 8 + length
    if stop > len(data):
        raise MatError("it ends in the middle of a variable")
    padded = stop if first == _COMPRESSED else min(len(data), stop + -length % 8)
    return _Element(first, data[start:stop], padded)


def _unpacked(element: _Element, order: str, wanted: Collection[str], room: int) -> tuple[memoryview | None, int]:
    """The inside of a matrix, decompressed where it has to be and is wanted; and how many bytes that took."""
    if element.kind == _MATRIX:
        return element.data, 0
    if element.kind != _COMPRESSED:
        raise MatError("it has something that is no variable")
    try:
        start = zlib.decompressobj().decompress(element.data, _ENOUGH)
        if len(start) < 8 or struct.unpack(order + "I", start[:4])[0] != _MATRIX:
            raise MatError("it has something compressed that is no variable")
        length = struct.unpack(order + "I", start[4:8])[0]
        if _describe(memoryview(start)[8:], order).name not in wanted:
            return None, 0
        if length > room:
            raise MatError("it unpacks to more than any model of its size")
        unpacker = zlib.decompressobj()
        whole = unpacker.decompress(element.data, 8 + length + 8)
        if not unpacker.eof or not length <= len(whole) - 8 < length + 8:
            raise MatError("a compressed variable is not as long as it says")
    except zlib.error:
        raise MatError("a compressed variable is damaged") from None
    return memoryview(whole)[8 : 8 + length], length


def _describe(content: memoryview, order: str) -> _Variable:
    """Flags, shape and name: the first three elements of a matrix."""
    flags = _element(content, 0, order)
    if flags.kind != 6 or len(flags.data) != 8:
        raise MatError("a variable has no flags")
    word = struct.unpack(order + "I", flags.data[:4])[0]
    shape = _element(content, flags.end, order)
    if shape.kind != 5 or len(shape.data) % 4 or not 8 <= len(shape.data) <= 128:
        raise MatError("a variable has no shape")
    lengths = struct.unpack(f"{order}{len(shape.data) // 4}i", shape.data)
    name = _element(content, shape.end, order)
    if name.kind not in (1, 2, 16) or len(name.data) > _LONGEST_NAME or any(length < 0 for length in lengths):
        raise MatError("a variable has no name, or an impossible shape")
    text = bytes(name.data).decode("latin-1")
    if any(length != 1 for length in lengths[2:]):
        lengths = (-1, -1)  # of no use here, and said so if anybody wants it
    return _Variable(text, word & 0xFF, bool(word >> 8 & _COMPLEX), (lengths[0], lengths[1]), name.end)


def _values(content: memoryview, variable: _Variable, order: str) -> Any:
    name, kind = variable.name, variable.kind
    if kind != _CHAR and not _FIRST_NUMERIC <= kind <= _LAST_NUMERIC:
        raise MatError(f"its variable {name!r} is a {_CLASSES.get(kind, 'thing of an unknown kind')}, not numbers")
    if variable.complex or min(variable.shape) < 0:
        raise MatError(f"its variable {name!r} is complex, or has more than two dimensions")
    element = _element(content, variable.values_at, order)
    count = math.prod(variable.shape)
    if kind == _CHAR:
        return _text(element, name, count, order)
    code = _NUMBERS.get(element.kind)
    if code is None or len(element.data) != count * np.dtype(code).itemsize:
        raise MatError(f"its variable {name!r} has more or fewer values than its shape says")
    return np.frombuffer(element.data, np.dtype(order + code)).reshape(variable.shape, order="F")


def _text(element: _Element, name: str, count: int, order: str) -> str:
    encoding = _TEXTS.get(element.kind)
    if encoding is None or len(element.data) > _LONGEST_TEXT:
        raise MatError(f"its variable {name!r} is no text")
    ending = {"<": "-le", ">": "-be"}[order] if encoding.startswith("utf-") and encoding != "utf-8" else ""
    try:
        text = bytes(element.data).decode(encoding + ending)
    except UnicodeDecodeError:
        raise MatError(f"its variable {name!r} is no text") from None
    if len(text) > count:
        raise MatError(f"its variable {name!r} is longer than its shape says")
    return text


# Writing


def file_of(variables: Mapping[str, Array | str]) -> bytes:
    """A MAT file, not compressed; the same variables always give the same bytes."""
    head = b"MATLAB 5.0 MAT-file, written by online-psp".ljust(124) + struct.pack("<H", 0x0100) + b"IM"
    return head + b"".join(_matrix(name, value) for name, value in variables.items())


def _matrix(name: str, value: Array | str) -> bytes:
    if isinstance(value, str):
        data = value.encode("utf-16-le", "replace")
        shape, kind, values = (1 if data else 0, len(data) // 2), _CHAR, _tagged(4, data)
    else:
        array = np.asarray(value, dtype="<f8")
        shape, kind, values = (array.shape[0], array.shape[1]), _FIRST_NUMERIC, _tagged(9, array.tobytes(order="F"))
    flags = _tagged(6, struct.pack("<II", kind, 0))
    return _tagged(_MATRIX, flags + _tagged(5, struct.pack("<ii", *shape)) + _tagged(1, name.encode("ascii")) + values)


def _tagged(kind: int, data: bytes) -> bytes:
    return struct.pack("<II", kind, len(data)) + data + bytes(-len(data) % 8)
