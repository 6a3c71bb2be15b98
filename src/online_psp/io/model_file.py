"""Model files: named arrays and JSON in one safetensors file, written whole or not at all.

This module knows nothing about models: the objects that are saved decide what is in a file. Nothing is unpickled, and no array is larger
than the bytes that the file holds for it.

The JSON is an array of bytes called ``json``, with `state`, `run`, and `fortran` (names of arrays that are stored transposed). The metadata
key ``online-psp`` says what the file is: `format`, `version`, `kind`, and `digest`, a SHA-256 of the rest, which finds damage. What has the
right digest is taken as it is.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from online_psp.engine.types import Array
from online_psp.io.files import replacing

VERSION = 4
_FORMAT = "online-psp-model"
_KEY = "online-psp"
_JSON = "json"


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


@contextlib.contextmanager
def refusing(path: str | os.PathLike[str], use: str = "a model") -> Iterator[None]:
    """Turn errors about the contents of a file into a ModelFileError that names it."""
    try:
        yield
    except ModelFileError as error:
        raise ModelFileError(f"{os.fspath(path)} cannot be used as {use}: {error}.") from None
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        what = f"it is damaged, or of another version of this library ({type(error).__name__}: {error})"
        raise ModelFileError(f"{os.fspath(path)} cannot be used as {use}: {what}.") from None


def write(path: str | os.PathLike[str], contents: Contents) -> None:
    """Write a model file; an existing one is replaced in one step."""
    from safetensors.numpy import save

    transposed = {name for name, array in contents.arrays.items() if array.flags.f_contiguous and not array.flags.c_contiguous}
    stored = {name: np.ascontiguousarray(array.T if name in transposed else array) for name, array in contents.arrays.items()}
    values = {"state": contents.state, "run": contents.run, "fortran": sorted(transposed)}
    stored[_JSON] = np.frombuffer(json.dumps(values, sort_keys=True, allow_nan=False).encode(), np.uint8)
    about = {"format": _FORMAT, "version": VERSION, "kind": contents.kind}
    data = save(stored, {_KEY: json.dumps({**about, "digest": _digest(about, stored)})})
    with replacing(path) as file:
        file.write(data)


def read(path: str | os.PathLike[str]) -> Contents:
    """Read a model file.

    Raises
    ------
    ModelFileError
        If the file is not a whole model file of this version.
    OSError
        If the file cannot be opened or read at all.
    """
    with _opened(path) as file:
        about = _about(file)
        stored = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if about.pop("digest", None) != _digest(about, stored):
            raise ModelFileError("its contents do not match its checksum, so it is damaged or was edited")
    values = json.loads(stored.pop(_JSON).tobytes())
    arrays = {name: array.T if name in values["fortran"] else array for name, array in stored.items()}
    return Contents(about["kind"], arrays, values["state"], values["run"])


def kind_of(path: str | os.PathLike[str]) -> str:
    """The kind of model that a file states; unlike `read`, this does not read its arrays or check its contents."""
    with _opened(path) as file:
        return str(_about(file)["kind"])


@contextlib.contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[Any]:
    from safetensors import SafetensorError, safe_open

    with refusing(path), open(path, "rb"):  # whose errors say more than those of the other library
        try:
            with safe_open(path, "numpy") as file:
                yield file
        except SafetensorError as error:
            raise ModelFileError(f"it is truncated, damaged or no safetensors file ({error})") from None


def _about(file: Any) -> dict[str, Any]:
    """What a safetensors file says about itself."""
    about = json.loads((file.metadata() or {}).get(_KEY, "null"))
    if not isinstance(about, dict) or about.get("format") != _FORMAT:
        raise ModelFileError("it was not written by this library")
    if about["version"] != VERSION:
        way = "upgrade it" if about["version"] > VERSION else "fit the model anew"
        raise ModelFileError(f"it has version {about['version']} of the format, and this library reads version {VERSION}; {way}")
    return about


def _digest(about: Mapping[str, Any], arrays: Mapping[str, Array]) -> str:
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
