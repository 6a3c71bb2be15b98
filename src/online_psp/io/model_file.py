"""Model files: named arrays and a JSON header in one safetensors file, written whole or not at all.

This module knows nothing of models. What is in one is a matter of the objects that are saved; here are the container, its checks, and
:class:`Fields`, through which every value of a file is taken under a stated type, shape and range. Nothing is unpickled, and no array is
larger than the bytes that the file holds for it.

The header is one JSON object under the metadata key ``online-psp``: `format`, `version`, `kind`, `fortran` (names of arrays that
are stored transposed), `state`, `run`, and `digest`, a SHA-256 of all the rest and of the arrays. The digest finds damage. It is no
signature: a file made on purpose must still pass the checks.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from online_psp.engine.types import Array

VERSION = 1
_FORMAT = "online-psp-model"
_KEY = "online-psp"
_DTYPES: dict[str, np.dtype[Any]] = {"F64": np.dtype("<f8"), "F32": np.dtype("<f4")}
_CODES = {dtype: code for code, dtype in _DTYPES.items()}
_LARGEST_HEADER = 100_000_000  # as safetensors itself
_LARGEST_COUNT = 1 << 53


class ModelFileError(ValueError):
    """A file that is no model, not a whole one, or not of a known version."""


class Contents(NamedTuple):
    """What a model file holds."""

    kind: str
    """The name of the class."""
    arrays: dict[str, Array]
    state: dict[str, Any]
    run: dict[str, Any]
    """Where a run over a source stands; empty for a model that was saved by itself."""


# Writing


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write that takes the place of `path` when all went well, and leaves nothing behind when it did not.

    The bytes go to ``.NAME.partial`` in the same folder, are forced to disk, and take the name in one step; then the folder is forced to
    disk as well. A process killed half-way leaves at most that one partial file, which the next write replaces.
    """
    target = Path(os.path.realpath(path))
    partial = target.with_name(f".{target.name}.partial")
    try:
        with open(partial, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    if os.name == "posix":
        _sync_folder(target.parent)


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    except OSError as error:  # some network file systems have no such thing
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(folder)


def write(path: str | os.PathLike[str], contents: Contents) -> None:
    """Write a model file; an existing one is replaced in one step."""
    from safetensors.numpy import save

    stored, fortran = {}, []
    for name, array in contents.arrays.items():
        if array.flags.f_contiguous and not array.flags.c_contiguous:
            fortran.append(name)
            array = array.T  # noqa: PLW2901
        stored[name] = np.ascontiguousarray(array)
    header = {
        "format": _FORMAT,
        "version": VERSION,
        "kind": contents.kind,
        "fortran": sorted(fortran),
        "state": contents.state,
        "run": contents.run,
    }
    data = save(stored, {_KEY: _dump({**header, "digest": _digest(header, stored)})})
    with replacing(path) as file:
        file.write(data)


def _dump(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


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
        For whatever is no whole model file of a known version.
    OSError
        Where the file cannot be opened or read at all.
    """
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        try:
            table = _read_table(file, size)
            header = _read_header(table)
            stored = _read_arrays(file, table, size)
            digest = header.pop("digest", None)
            if digest != _digest(header, stored):
                raise ModelFileError("its contents do not match its checksum, so it is damaged or was edited")
            fields = Fields({}, header)
            fortran = fields.value("fortran", list)
            arrays = {name: array.T if name in fortran else array for name, array in stored.items()}
            return Contents(fields.value("kind", str), arrays, fields.value("state", dict), fields.value("run", dict))
        except ModelFileError as error:
            raise ModelFileError(f"{os.fspath(path)} cannot be used as a model: {error}.") from None


def _read_table(file: BinaryIO, size: int) -> dict[str, Any]:
    """The safetensors header: what arrays there are, and where."""
    start = file.read(8)
    length = int.from_bytes(start, "little")
    if len(start) < 8 or not 2 <= length <= min(size - 8, _LARGEST_HEADER):
        raise ModelFileError("it is not a safetensors file, or only the beginning of one")
    table = _parse(file.read(length))
    if not isinstance(table, dict):
        raise ModelFileError("its table of arrays is not one")
    return table


def _parse(text: str | bytes) -> Any:
    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is not allowed")

    try:
        return json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError):
        raise ModelFileError("its header is not valid JSON, so it is damaged or of another kind") from None


def _read_header(table: dict[str, Any]) -> dict[str, Any]:
    metadata = table.pop("__metadata__", None)
    text = metadata.get(_KEY) if isinstance(metadata, dict) else None
    if not isinstance(text, str):
        raise ModelFileError("it holds arrays, but was not written by this library")
    header = _parse(text)
    if not isinstance(header, dict) or header.get("format") != _FORMAT:
        raise ModelFileError("it was not written by this library")
    version = header.get("version")
    if type(version) is not int or version < 1:
        raise ModelFileError("its version is not a number")
    if version > VERSION:
        raise ModelFileError(f"it has version {version} of the format, and this library knows versions up to {VERSION}; upgrade it")
    return header


def _read_arrays(file: BinaryIO, table: dict[str, Any], size: int) -> dict[str, Array]:
    """All arrays, once it is certain that together they fill the rest of the file exactly."""
    begin = file.tell()
    places: list[tuple[int, int, int, str, np.dtype[Any], list[int]]] = []
    for name, entry in table.items():
        fields = Fields({}, entry if isinstance(entry, dict) else {})
        dtype, shape, offsets = (fields.value(key, kind) for key, kind in (("dtype", str), ("shape", list), ("data_offsets", list)))
        if dtype not in _DTYPES:
            raise ModelFileError(f"its array {name!r} has a type that no model has")
        if len(shape) > 2 or len(offsets) != 2 or not all(_is_count(number) for number in [*shape, *offsets]):
            raise ModelFileError(f"its array {name!r} has an impossible shape or place")
        places.append((offsets[0], offsets[1], math.prod(shape) * _DTYPES[dtype].itemsize, name, _DTYPES[dtype], shape))
    arrays, at = {}, 0
    for start, stop, length, *_ in sorted(places, key=lambda place: (place[0], place[1])):
        if start != at or stop - start != length:
            raise ModelFileError("its arrays overlap, leave gaps, or have other lengths than their shapes say")
        at = stop
    if begin + at != size:
        raise ModelFileError("it is longer or shorter than its header says, so it is truncated or damaged")
    for start, _, length, name, dtype, shape in places:
        file.seek(begin + start)
        data = bytearray(file.read(length))
        if len(data) != length:
            raise ModelFileError("it ends too early")
        arrays[name] = np.frombuffer(data, dtype).reshape(shape)
    return arrays


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _LARGEST_COUNT


class Fields:
    """The arrays and the JSON values of a file, each taken under a stated type, shape and range.

    Parameters
    ----------
    arrays : dict of str to array
    values : dict of str to JSON
    """

    def __init__(self, arrays: Mapping[str, Array], values: Mapping[str, Any]) -> None:
        self.arrays, self.values = arrays, values

    def value(self, name: str, kind: type) -> Any:
        """A JSON value of exactly this type."""
        found = self.values.get(name)
        if type(found) is not kind:
            raise ModelFileError(f"its entry {name!r} is missing or not of the right type")
        return found

    def optional(self, name: str, kind: type) -> Any:
        return None if self.values.get(name) is None else self.value(name, kind)

    def count(self, name: str, least: int = 0, most: int = _LARGEST_COUNT) -> int:
        found: int = self.value(name, int)
        if not least <= found <= most:
            raise ModelFileError(f"its entry {name!r} is {found}, and must be between {least} and {most}")
        return found

    def number(self, name: str, least: float = -math.inf, most: float = math.inf) -> float:
        found: Any = self.values.get(name)
        if type(found) not in (int, float) or not math.isfinite(found) or not least <= found <= most:
            raise ModelFileError(f"its entry {name!r} is missing or out of range")
        return float(found)

    def choice(self, name: str, *allowed: Any) -> Any:
        found = self.values.get(name)
        if not any(type(found) is type(each) and found == each for each in allowed):
            raise ModelFileError(f"its entry {name!r} has an unknown value")
        return found

    def array(self, name: str, shape: tuple[int, ...], dtype: Any = np.float64, *, finite: bool = True) -> Array:
        """An array of exactly this shape and type."""
        found = self.arrays.get(name)
        if found is None or found.shape != shape or found.dtype != np.dtype(dtype):
            what = "missing" if found is None else f"{found.dtype} of shape {found.shape}"
            raise ModelFileError(f"its array {name!r} is {what}, and must be {np.dtype(dtype)} of shape {shape}")
        if finite and not np.isfinite(found).all():
            raise ModelFileError(f"its array {name!r} has values that are not finite")
        return found

    def under(self, name: str) -> Fields:
        """The part of it that belongs to one object: the JSON object `name` and the arrays ``name.…``."""
        start = f"{name}."
        arrays = {key.removeprefix(start): array for key, array in self.arrays.items() if key.startswith(start)}
        return Fields(arrays, self.value(name, dict))
