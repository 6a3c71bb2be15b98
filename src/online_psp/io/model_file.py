"""Model files: named arrays and a JSON header in one safetensors file, written whole or not at all.

This module knows nothing about models: the objects that are saved decide what is in a file. It provides the container, its checks, and
:class:`Fields`, which reads every value of a file with a stated type, shape and range. Nothing is unpickled, and no array is larger than
the bytes that the file holds for it.

The header is one JSON object under the metadata key ``online-psp``: `format`, `version`, `kind`, `fortran` (names of arrays that
are stored transposed), `state`, `run`, and `digest`, a SHA-256 of all the rest and of the arrays. The digest finds damage. It is no
signature: a forged file must still pass the checks.

A header is small: at most a megabyte, or a kilobyte per array if there are more than a thousand. Long lists of text, such as the names of
all features, are stored outside of it, as bytes in arrays called ``text.0``, ``text.1``, …; reading takes time in proportion to the file.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from online_psp.engine.types import Array
from online_psp.io.files import replacing

VERSION = 3
_FORMAT = "online-psp-model"
_KEY = "online-psp"
_DTYPES: dict[str, np.dtype[Any]] = {"F64": np.dtype("<f8"), "F32": np.dtype("<f4"), "U8": np.dtype("u1")}
_CODES = {dtype: code for code, dtype in _DTYPES.items()}
_LARGEST_HEADER, _AN_ARRAY = 1_000_000, 1_000
_LARGEST_COUNT = 1 << 53
_LONGEST_INTEGER = 19  # characters
_TEXT = "text."
_FEW_TEXTS = 16  # a longer list of text is stored outside of the header


class ModelFileError(ValueError):
    """Not a model file, not a whole one, or not of a known version."""


class Contents(NamedTuple):
    """The contents of a model file."""

    kind: str
    """The name of the class."""
    arrays: dict[str, Array]
    state: dict[str, Any]
    run: dict[str, Any]
    """The state of a run over a source; empty for a model that was saved by itself."""


# Writing


def write(path: str | os.PathLike[str], contents: Contents) -> None:
    """Write a model file; an existing one is replaced in one step."""
    from safetensors.numpy import save

    stored, fortran = {}, []
    for name, array in contents.arrays.items():
        if array.flags.f_contiguous and not array.flags.c_contiguous:
            fortran.append(name)
            array = array.T  # noqa: PLW2901
        stored[name] = np.ascontiguousarray(array)
    texts: dict[bytes, str] = {}
    header = {
        "format": _FORMAT,
        "version": VERSION,
        "kind": contents.kind,
        "fortran": sorted(fortran),
        "state": _pack(contents.state, texts),
        "run": _pack(contents.run, texts),
    }
    stored |= {name: np.frombuffer(data, np.uint8) for data, name in texts.items()}
    header = _parse(_dump(header))  # so that nothing is written that cannot be read again
    text = _dump({**header, "digest": _digest(header, stored)})
    if 2 * len(text) > max(_LARGEST_HEADER, _AN_ARRAY * len(stored)):
        raise ValueError(f"The model cannot be saved: its header would take {len(text)} characters, too many for a model file.")
    data = save(stored, {_KEY: text})
    with replacing(path) as file:
        file.write(data)


def _pack(value: Any, texts: dict[bytes, str]) -> Any:
    """JSON with long lists of text replaced by the names of the arrays that they are stored in."""
    if isinstance(value, Mapping):
        return {key: _pack(inside, texts) for key, inside in value.items()}
    if isinstance(value, list | tuple):
        if len(value) > _FEW_TEXTS and all(type(text) is str for text in value):
            return {_TEXT: texts.setdefault(_dump(list(value)).encode(), f"{_TEXT}{len(texts)}")}
        return [_pack(inside, texts) for inside in value]
    return value


def _unpack(value: Any, texts: Mapping[str, Array]) -> Any:
    """Undo `_pack`."""
    if isinstance(value, list):
        return [_unpack(inside, texts) for inside in value]
    if not isinstance(value, dict):
        return value
    if value.keys() != {_TEXT}:
        return {key: _unpack(inside, texts) for key, inside in value.items()}
    found = texts.get(value[_TEXT]) if isinstance(value[_TEXT], str) else None
    listed = None if found is None else _parse(found.tobytes())
    if not isinstance(listed, list) or not all(type(text) is str for text in listed):
        raise ModelFileError("one of its lists of text is missing or is none")
    return listed


def _dump(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    if "\\ud" in text:  # lone surrogates, as in file names that are not text
        whole = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")
        text = json.dumps(json.loads(whole), sort_keys=True, separators=(",", ":"))
    return text


def _digest(header: Mapping[str, Any], arrays: Mapping[str, Array]) -> str:
    digest = hashlib.sha256(_dump(header).encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(_dump([name, _CODES[array.dtype], list(array.shape)]).encode())
        digest.update(array.reshape(-1).data.cast("B"))
    return digest.hexdigest()


# Reading


def read(path: str | os.PathLike[str]) -> Contents:
    """Read a model file.

    Raises
    ------
    ModelFileError
        If the file is not a whole model file of a known version.
    OSError
        If the file cannot be opened or read at all.
    """
    from safetensors import SafetensorError, deserialize

    with open(path, "rb") as file:
        data = file.read()
    try:
        try:
            found = deserialize(data)  # type: ignore[no-untyped-call]
        except SafetensorError as error:
            raise ModelFileError(f"it is truncated, damaged or no safetensors file ({error})") from None
        header = _header(data[8 : 8 + int.from_bytes(data[:8], "little")])
        stored = {}
        for name, entry in found:
            if entry["dtype"] not in _DTYPES or len(entry["shape"]) > 2:
                raise ModelFileError(f"its array {_short(name)} has a type or a shape that no model has")
            stored[name] = np.frombuffer(entry["data"], _DTYPES[entry["dtype"]]).reshape(entry["shape"])
        digest = header.pop("digest", None)
        if digest != _digest(header, stored):
            raise ModelFileError("its contents do not match its checksum, so it is damaged or was edited")
        fields = Fields({}, header)
        fortran = set(fields.texts("fortran") or [])
        texts = {name: array for name, array in stored.items() if array.dtype == np.uint8}
        arrays = {name: array.T if name in fortran else array for name, array in stored.items() if name not in texts}
        state, run = (_unpack(fields.value(name, dict), texts) for name in ("state", "run"))
        return Contents(fields.value("kind", str), arrays, state, run)
    except ModelFileError as error:
        raise ModelFileError(f"{os.fspath(path)} cannot be used as a model: {error}.") from None


def kind_of(path: str | os.PathLike[str]) -> str:
    """The kind of model that a file states; unlike `read`, this does not read its arrays or check its contents."""
    try:
        return str(Fields({}, _beginning(path)).value("kind", str))
    except ModelFileError as error:
        raise ModelFileError(f"{os.fspath(path)} cannot be used as a model: {error}.") from None


def digest_of(path: str | os.PathLike[str]) -> str | None:
    """The digest in a model file, unchecked; None if there is no model file."""
    try:
        found = _beginning(path).get("digest")
    except (OSError, ModelFileError):
        return None
    return found if isinstance(found, str) else None


def _beginning(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Our header, without the arrays."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= os.fstat(file.fileno()).st_size - 8:
            raise ModelFileError("it is truncated, damaged or no safetensors file")
        return _header(file.read(length))


def _parse(text: str | bytes) -> Any:
    """Parse JSON; refuses numbers that no model has, and invalid text."""

    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is not allowed")

    def integer(digits: str) -> int:
        return int(digits) if len(digits) <= _LONGEST_INTEGER else refuse(digits)

    def number(digits: str) -> float:
        value = float(digits)
        return value if math.isfinite(value) else refuse(digits)

    try:
        text = text if isinstance(text, str) else text.decode()
        found = json.loads(text, parse_constant=refuse, parse_int=integer, parse_float=number)
        if "\\ud" in text or "\\uD" in text:
            json.dumps(found, ensure_ascii=False).encode()  # lone surrogates cannot be encoded
        return found
    except (ValueError, RecursionError):
        raise ModelFileError("its header is not valid JSON, so it is damaged or of another kind") from None


def _header(data: bytes) -> dict[str, Any]:
    """Our header, from the table of arrays."""
    table = _parse(data)
    metadata = table.get("__metadata__") if isinstance(table, dict) else None
    text = metadata.get(_KEY) if isinstance(metadata, dict) else None
    if not isinstance(text, str):
        raise ModelFileError("it holds arrays, but was not written by this library")
    header = _parse(text)
    if not isinstance(header, dict) or header.get("format") != _FORMAT:
        raise ModelFileError("it was not written by this library")
    version = header.get("version")
    if type(version) is not int or version < 1:
        raise ModelFileError("its version is not a number")
    if version < VERSION:
        raise ModelFileError(f"it has version {version} of the format, of before release 0.3, which is no longer read; fit the model anew")
    if version > VERSION:
        raise ModelFileError(f"it has version {version} of the format, and this library knows versions up to {VERSION}; upgrade it")
    return header


def _short(name: str) -> str:
    """A name from a file, for messages: in quotes, and never longer than a line."""
    return repr(name if len(name) <= 60 else f"{name[:60]}…")


class Fields:
    """The arrays and JSON values of a file, each read with a stated type, shape and range.

    Parameters
    ----------
    arrays : dict of str to array
    values : dict of str to JSON
    """

    def __init__(self, arrays: Mapping[str, Array], values: Mapping[str, Any]) -> None:
        self.arrays, self.values = arrays, values
        self._taken: set[str] = set()
        self._parts: list[tuple[str, Fields]] = []

    def value(self, name: str, kind: type) -> Any:
        """A JSON value of exactly this type."""
        found = self.values.get(name)
        if type(found) is not kind:
            raise ModelFileError(f"its entry {name!r} is missing or not of the right type")
        return found

    def optional(self, name: str, kind: type) -> Any:
        """As `value`, or None if there is none."""
        return None if self.values.get(name) is None else self.value(name, kind)

    def count(self, name: str, least: int = 0, most: int = _LARGEST_COUNT) -> int:
        """A whole number within bounds."""
        found: int = self.value(name, int)
        if not least <= found <= most:
            raise ModelFileError(f"its entry {name!r} is out of range: it must be between {least} and {most}")
        return found

    def number(self, name: str, least: float = -math.inf, most: float = math.inf, *, above: float = -math.inf) -> float:
        """A finite number from `least` to `most`, and larger than `above`."""
        found: Any = self.values.get(name)
        if type(found) is int and abs(found) <= _LARGEST_COUNT:
            found = float(found)
        if type(found) is not float or not math.isfinite(found) or not least <= found <= most or found <= above:
            raise ModelFileError(f"its entry {name!r} is missing or out of range")
        return float(found)

    def choice(self, name: str, *allowed: Any) -> Any:
        """One of some values."""
        found = self.values.get(name)
        if not any(type(found) is type(each) and found == each for each in allowed):
            raise ModelFileError(f"its entry {name!r} has an unknown value")
        return found

    def texts(self, name: str, length: int | None = None) -> list[str] | None:
        """A list of text, with `length` entries if that is given; None if there is none."""
        found: list[str] | None = self.optional(name, list)
        if found is not None and (not all(type(text) is str for text in found) or length not in (None, len(found))):
            raise ModelFileError(f"its entry {name!r} is not a list of {'text' if length is None else f'{length} texts'}")
        return found

    def array(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: Any = np.float64,
        *,
        finite: bool = True,
        least: float = -math.inf,
        most: float = math.inf,
    ) -> Array:
        """An array of exactly this shape and type, its values from `least` to `most`."""
        found = self.arrays.get(name)
        if found is None or found.shape != shape or found.dtype != np.dtype(dtype):
            what = "missing" if found is None else f"{found.dtype} of shape {found.shape}"
            raise ModelFileError(f"its array {name!r} is {what}, and must be {np.dtype(dtype)} of shape {shape}")
        if finite and not np.isfinite(found).all():
            raise ModelFileError(f"its array {name!r} has values that are not finite")
        if found.size and ((least > -math.inf and not found.min() >= least) or (most < math.inf and not found.max() <= most)):
            raise ModelFileError(f"its array {name!r} has values that are out of range")
        self._taken.add(name)
        return found

    def orthonormal(self, name: str, shape: tuple[int, int], dtype: Any = np.float64, tolerance: float = 1e-3) -> Array:
        """An array with orthonormal rows."""
        found = self.array(name, shape, dtype)
        if np.abs(found @ found.T - np.eye(len(found))).max(initial=0.0) > tolerance:
            raise ModelFileError(f"the rows of its array {name!r} are not orthonormal")
        return found

    def covariance(self, name: str, size: int, dtype: Any = np.float64, tolerance: float = 1e-6) -> Array:
        """A symmetric array without negative eigenvalues, up to rounding."""
        found = self.array(name, (size, size), dtype)
        largest = float(np.abs(found).max(initial=0.0))
        if largest > 0.0:
            whole = found.astype(np.float64) / largest
            if np.abs(whole - whole.T).max() > tolerance or np.linalg.eigvalsh(whole)[0] < -tolerance * size:
                raise ModelFileError(f"its array {name!r} is no covariance: not symmetric, or with negative eigenvalues")
        return found

    def under(self, name: str) -> Fields:
        """The fields of one object: the JSON object `name` and the arrays ``name.…``."""
        start = f"{name}."
        arrays = {key.removeprefix(start): array for key, array in self.arrays.items() if key.startswith(start)}
        part = Fields(arrays, self.value(name, dict))
        self._parts.append((start, part))
        return part

    def nothing_left(self) -> None:
        """Raise a ModelFileError if some arrays were not read: a model has no others."""
        left = self._left()
        if left:
            raise ModelFileError(f"it has an array {_short(min(left))} that no such model has")

    def _left(self) -> set[str]:
        left = set(self.arrays) - self._taken
        for start, part in self._parts:
            own = {start + name for name in part.arrays}
            left = (left - own) | {start + name for name in part._left()}
        return left
