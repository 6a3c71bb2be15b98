"""MAT files of version 5, as MATLAB's and Octave's ``save -v6`` and ``-v7`` write them: tags are checked here, values are read by SciPy.

SciPy's reader ends the process for some damaged files, because it follows tags and takes types as they come. It gets one variable at a
time, unpacked, of which every tag is known to be of a type that there is, and to end within the variable.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from scipy.io import loadmat

_HEADER = 128
_MATRIX, _COMPRESSED = 14, 15
_TYPES = {1, 2, 3, 4, 5, 6, 7, 9, 12, 13, 16, 17, 18}  # of numbers and text
_CLASSES = {1: "a cell array", 2: "a struct", 3: "an object", 16: "a function", 17: "an object"}
_CHAR, _SPARSE, _FIRST_NUMERIC, _LAST_NUMERIC, _OPAQUE = 4, 5, 6, 15, 17
_COMPLEX = 0x08
_LONGEST_NAME = 63
_ENOUGH = 4096  # bytes that hold the tags, the shape and the name of a matrix


class MatError(ValueError):
    """Not a MAT file of version 5, not a whole one, or with variables of other kinds."""


class KindError(MatError):
    """A variable is of a kind that is not supported; the file itself may be whole."""


class _Element(NamedTuple):
    """A tagged piece of a file."""

    kind: int
    data: memoryview


class Variable(NamedTuple):
    """The description of a matrix, which comes before its values."""

    name: str
    kind: int
    complex: bool
    shape: tuple[int, ...]
    """Two numbers or more; none for objects, which do not say."""
    stored: _Element

    @property
    def sparse(self) -> bool:
        return self.kind == _SPARSE


def list_variables(data: bytes) -> dict[str, Variable]:
    """All named variables of a file, of any kind, without unpacking their values."""
    order = _byte_order(data)
    found: dict[str, Variable] = {}
    for element in _elements(memoryview(data)[_HEADER:], order):
        variable = _described(element, order)
        if variable.name in found:
            raise MatError(f"it has the variable {variable.name!r} twice")
        if variable.name:
            found[variable.name] = variable
    return found


def read_variable(data: bytes, variable: Variable, room: int) -> Any:
    """An array of two dimensions, a sparse matrix or str.

    Parameters
    ----------
    data : bytes
        The whole file.
    room : int
        Most bytes that the variable may unpack to.
    """
    name, kind, order = variable.name, variable.kind, _byte_order(data)
    if kind not in (_CHAR, _SPARSE) and not _FIRST_NUMERIC <= kind <= _LAST_NUMERIC:
        raise KindError(f"its variable {name!r} is {_CLASSES.get(kind, 'of an unknown kind')}, not numbers")
    if variable.complex or len(variable.shape) != 2:
        raise KindError(f"its variable {name!r} is complex, or has more than two dimensions")
    content = _unpacked(variable.stored, order, room)
    if not all(part.kind in _TYPES for part in _elements(content, order)):
        raise MatError(f"its variable {name!r} has values of a type that there is not")
    whole = io.BytesIO(b"".join([data[:_HEADER], struct.pack(order + "II", _MATRIX, len(content)), content]))
    del content  # it may be large
    try:
        value = loadmat(whole)[name]
    except Exception as error:  # SciPy raises anything for a damaged variable
        raise MatError(f"its variable {name!r} is damaged ({error})") from None
    if kind == _CHAR:
        return "".join(value.ravel().tolist())
    return value.astype(value.dtype.newbyteorder("="), copy=False)


def is_version_4(data: bytes) -> bool:
    """Whether a file may be one of MATLAB 4, which has no header; text, which begins those of version 5, has no zeros."""
    return 0 in data[:4]


def _byte_order(data: bytes) -> str:
    """The byte order of a file of version 5, as `struct` writes it."""
    order = {b"IM": "<", b"MI": ">"}.get(bytes(data[126:128]))
    version = 0 if order is None else struct.unpack(order + "H", data[124:126])[0]
    if version == 0x0200:
        raise MatError("it is a MAT file of version 7.3; save it with -v7")
    if order is None or version != 0x0100:
        raise MatError("it is not a MAT file of version 5 or 7")
    return order


def _elements(data: memoryview, order: str) -> Iterator[_Element]:
    """The elements one after the other, each within the data."""
    at = 0
    while at < len(data):
        if at + 8 > len(data):
            raise MatError("it ends in the middle of a tag")
        kind, length = struct.unpack(order + "II", data[at : at + 8])
        start, padded = at + 8, kind != _COMPRESSED
        if kind >> 16:  # up to four bytes, in the tag itself
            kind, length, start = kind & 0xFFFF, kind >> 16, at + 4
        stop = start + length
        if stop > len(data) or (start == at + 4 and length > 4):
            raise MatError("it ends in the middle of a variable")
        yield _Element(kind, data[start:stop])
        at = min(len(data), stop + -(stop - at) % 8) if padded else stop


def _unpacked(element: _Element, order: str, room: int | None = None) -> memoryview:
    """The inside of a matrix; of a compressed one the beginning, if there is no `room` for the whole."""
    if element.kind == _MATRIX:
        return element.data
    if element.kind != _COMPRESSED:
        raise MatError("it has something that is no variable")
    try:
        data = zlib.decompressobj().decompress(element.data, _ENOUGH)
        kind, length = struct.unpack(order + "II", data[:8].ljust(8, b"\0"))
        if kind != _MATRIX:
            raise MatError("it has something compressed that is no variable")
        if room is not None:
            if length > room:
                raise MatError(f"it unpacks to more than is allowed, {length:,} bytes")
            unpacker = zlib.decompressobj()
            data = unpacker.decompress(element.data, length + 16)
            if not unpacker.eof or len(data) < length + 8:
                raise MatError("a compressed variable is not as long as it says")
    except zlib.error:
        raise MatError("a compressed variable is damaged") from None
    return memoryview(data)[8 : 8 + length]


def _described(element: _Element, order: str) -> Variable:
    """Read flags, shape and name: the first three elements of a matrix."""
    first = list(islice(_elements(_unpacked(element, order), order), 3))
    if len(first) < 3 or first[0].kind != 6 or len(first[0].data) != 8:
        raise MatError("a variable has no flags, shape or name")
    word = struct.unpack(order + "I", first[0].data[:4])[0]
    kind = word & 0xFF
    lengths: list[int] = []
    if kind != _OPAQUE:
        if first[1].kind != 5 or len(first[1].data) % 4 or len(first[1].data) < 8:
            raise MatError("a variable has no shape")
        lengths = np.frombuffer(first[1].data, order + "i4").tolist()
    name = first[1 if kind == _OPAQUE else 2]
    if name.kind not in (1, 2, 16) or len(name.data) > _LONGEST_NAME or any(length < 0 for length in lengths):
        raise MatError("a variable has no name, or an impossible shape")
    while len(lengths) > 2 and lengths[-1] == 1:
        lengths = lengths[:-1]
    return Variable(bytes(name.data).decode("latin-1"), kind, bool(word >> 8 & _COMPLEX), tuple(lengths), element)
