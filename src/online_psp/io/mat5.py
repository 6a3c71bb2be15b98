"""Reading of MAT files of version 5: the part of the format that models and tables need.

Real matrices of numbers, full or sparse, and text, plain or compressed, as MATLAB's and Octave's ``save -v6`` and ``-v7`` write them. Every
length is checked against the bytes of the file before anything is allocated, and compressed data must not grow without bound: a damaged or
forged file raises a `MatError` and does nothing worse.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csc_array

from online_psp.engine.types import Array

_HEADER = 128
_MATRIX, _COMPRESSED = 14, 15
_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_TEXTS = {1: "latin-1", 2: "latin-1", 4: "utf-16", 16: "utf-8", 17: "utf-16", 18: "utf-32"}
_CLASSES = {1: "a cell array", 2: "a struct", 3: "an object", 16: "a function", 17: "an object"}
_CHAR, _SPARSE, _FIRST_NUMERIC, _LAST_NUMERIC, _OPAQUE = 4, 5, 6, 15, 17
_COMPLEX = 0x08
_ENOUGH = 4096  # bytes that hold the tags, the shape and the name of a matrix
_LONGEST_NAME, _LONGEST_TEXT = 63, 1 << 26
_ALWAYS, _GROWTH = 1 << 28, 20  # bytes that a file may unpack to: so many, and so many times its own
_MOST_ELEMENTS = 10_000


class MatError(ValueError):
    """Not a MAT file of version 5, not a whole one, or with variables of other kinds."""


class KindError(MatError):
    """A variable is of a kind that is not supported; the file itself may be whole."""


class NewerMatError(MatError):
    """A MAT file of version 7.3, which is an HDF5 file."""


class _Element(NamedTuple):
    """A tagged piece of a file."""

    kind: int
    data: memoryview
    end: int
    """Where the next element begins."""


class Variable(NamedTuple):
    """The description of a matrix, which comes before its values."""

    name: str
    kind: int
    complex: bool
    shape: tuple[int, ...]
    """Two numbers or more; none for objects, which do not say."""
    values_at: int

    @property
    def sparse(self) -> bool:
        return self.kind == _SPARSE


def list_variables(data: bytes) -> list[Variable]:
    """All named variables of a file, of any kind, without unpacking their values."""
    order = _byte_order(data)
    found = [_describe(_beginning(element, order), order) for element in _elements(memoryview(data), _HEADER, order)]
    return [variable for variable in found if variable.name]


def read_variables(data: bytes, wanted: Collection[str], room: int | None = None) -> dict[str, Any]:
    """The wanted variables of a file: arrays of two dimensions, `csc_array` for sparse ones, and str for text.

    Parameters
    ----------
    data : bytes
        The whole file.
    wanted : names
    room : int, optional
        Most bytes that compressed variables may unpack to; by default 256 MB plus twenty times the size of the file.
    """
    order = _byte_order(data)
    room = _ALWAYS + _GROWTH * len(data) if room is None else room
    found: dict[str, Any] = {}
    for element in _elements(memoryview(data), _HEADER, order):
        name = _describe(_beginning(element, order), order).name
        if name not in wanted:
            continue
        if name in found:
            raise MatError(f"it has the variable {name!r} twice")
        content = _whole(element, order, room)
        room -= len(content) if element.kind == _COMPRESSED else 0
        found[name] = _values(content, _describe(content, order), order)
    return found


def is_version_4(data: bytes) -> bool:
    """Whether a file may be one of MATLAB 4, which has no header; text, which begins those of version 5, has no zeros."""
    return 0 in data[:4]


def _byte_order(data: bytes) -> str:
    """The byte order of a file of version 5, as `struct` writes it."""
    if len(data) < _HEADER:
        raise MatError("it is shorter than the header of a MAT file")
    order = {b"IM": "<", b"MI": ">"}.get(bytes(data[126:128]))
    version = 0 if order is None else struct.unpack(order + "H", data[124:126])[0]
    if version == 0x0200:
        raise NewerMatError("it is a MAT file of version 7.3; save it with -v7")
    if order is None or version != 0x0100:
        raise MatError("it is not a MAT file of version 5 or 7")
    return order


def _elements(data: memoryview, at: int, order: str) -> Iterator[_Element]:
    for _ in range(_MOST_ELEMENTS):
        if at == len(data):
            return
        element = _element(data, at, order)
        yield element
        at = element.end
    raise MatError(f"it has more than {_MOST_ELEMENTS:,} variables")


def _element(data: memoryview, at: int, order: str) -> _Element:
    """The element at a place, with its length checked."""
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


def _beginning(element: _Element, order: str) -> memoryview:
    """The inside of a matrix, as far as flags, shape and name go at least."""
    if element.kind == _MATRIX:
        return element.data
    if element.kind != _COMPRESSED:
        raise MatError("it has something that is no variable")
    return _packed_length(element, order)[1]


def _packed_length(element: _Element, order: str) -> tuple[int, memoryview]:
    """The length that a compressed matrix states, and its first bytes."""
    try:
        start = zlib.decompressobj().decompress(element.data, _ENOUGH)
    except zlib.error:
        raise MatError("a compressed variable is damaged") from None
    if len(start) < 8 or struct.unpack(order + "I", start[:4])[0] != _MATRIX:
        raise MatError("it has something compressed that is no variable")
    return struct.unpack(order + "I", start[4:8])[0], memoryview(start)[8:]


def _whole(element: _Element, order: str, room: int) -> memoryview:
    """The inside of a matrix, all of it."""
    if element.kind == _MATRIX:
        return element.data
    length, _ = _packed_length(element, order)
    if length > room:
        raise MatError(f"it unpacks to more than is allowed, {length:,} bytes")
    unpacker = zlib.decompressobj()
    try:
        whole = unpacker.decompress(element.data, 8 + length + 8)
    except zlib.error:
        raise MatError("a compressed variable is damaged") from None
    if not unpacker.eof or not length <= len(whole) - 8 < length + 8:
        raise MatError("a compressed variable is not as long as it says")
    return memoryview(whole)[8 : 8 + length]


def _describe(content: memoryview, order: str) -> Variable:
    """Flags, shape and name: the first three elements of a matrix."""
    flags = _element(content, 0, order)
    if flags.kind != 6 or len(flags.data) != 8:
        raise MatError("a variable has no flags")
    word = struct.unpack(order + "I", flags.data[:4])[0]
    kind, at = word & 0xFF, flags.end
    lengths: tuple[int, ...] = ()
    if kind != _OPAQUE:
        shape = _element(content, at, order)
        if shape.kind != 5 or len(shape.data) % 4 or not 8 <= len(shape.data) <= 128:
            raise MatError("a variable has no shape")
        lengths, at = struct.unpack(f"{order}{len(shape.data) // 4}i", shape.data), shape.end
    name = _element(content, at, order)
    if name.kind not in (1, 2, 16) or len(name.data) > _LONGEST_NAME or any(length < 0 for length in lengths):
        raise MatError("a variable has no name, or an impossible shape")
    while len(lengths) > 2 and lengths[-1] == 1:
        lengths = lengths[:-1]
    return Variable(bytes(name.data).decode("latin-1"), kind, bool(word >> 8 & _COMPLEX), lengths, name.end)


def _values(content: memoryview, variable: Variable, order: str) -> Any:
    name, kind = variable.name, variable.kind
    if kind not in (_CHAR, _SPARSE) and not _FIRST_NUMERIC <= kind <= _LAST_NUMERIC:
        raise KindError(f"its variable {name!r} is {_CLASSES.get(kind, 'of an unknown kind')}, not numbers")
    if variable.complex or len(variable.shape) != 2:
        raise KindError(f"its variable {name!r} is complex, or has more than two dimensions")
    if kind == _SPARSE:
        return _sparse(content, variable, order)
    element = _element(content, variable.values_at, order)
    count = math.prod(variable.shape)
    if kind == _CHAR:
        return _text(element, name, count, order)
    values = _numbers(element, name, order)
    if len(values) != count:
        raise MatError(f"its variable {name!r} has more or fewer values than its shape says")
    return values.reshape(variable.shape, order="F")


def _numbers(element: _Element, name: str, order: str) -> Array:
    """The values of an element, as they are stored."""
    code = _NUMBERS.get(element.kind)
    if code is None or len(element.data) % np.dtype(code).itemsize:
        raise MatError(f"its variable {name!r} has values that are no numbers")
    return np.frombuffer(element.data, np.dtype(order + code))


def _sparse(content: memoryview, variable: Variable, order: str) -> Any:
    """Read a sparse matrix: row numbers, column starts and values; there may be more row numbers and values than are used."""
    name, (n_rows, n_columns) = variable.name, variable.shape
    parts, at = [], variable.values_at
    for _ in range(3):
        element = _element(content, at, order)
        parts.append(_numbers(element, name, order))
        at = element.end
    rows, starts, values = parts
    if rows.dtype.kind not in "iu" or starts.dtype.kind not in "iu" or len(starts) != n_columns + 1:
        raise MatError(f"its sparse variable {name!r} is not as its shape says")
    starts = starts.astype(np.int64)
    if starts[0] != 0 or (np.diff(starts) < 0).any() or not starts[-1] <= min(len(rows), len(values)):
        raise MatError(f"its sparse variable {name!r} has columns that begin nowhere")
    rows, values = rows[: starts[-1]].astype(np.int64), values[: starts[-1]]
    if len(rows) and not (0 <= rows.min() and rows.max() < n_rows):
        raise MatError(f"its sparse variable {name!r} has values outside its shape")
    return csc_array((values.astype(values.dtype.newbyteorder("=")), rows, starts), shape=(n_rows, n_columns))


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
