"""Models as MAT files, for the MATLAB and Octave package; the variables are those of ``matlab/README.md``.

What is written here has one more, `digest`, a SHA-256 of the others, which finds damage. Files of MATLAB and Octave have none.
"""

from __future__ import annotations

import hashlib
import io
import os
from typing import Any, NamedTuple

import numpy as np
from scipy.io import savemat

from online_psp.engine.types import Array, Floats
from online_psp.io.files import replacing
from online_psp.io.mat5 import MatError, list_variables, read_variable
from online_psp.io.model_file import ModelFileError

_TITLE = b"MATLAB 5.0 MAT-file, written by online-psp"
_FORMAT = "online-psp-model"
_NAMES = ("format", "version", "components", "explained_variance", "mean", "n_samples_seen", "noise_variance", "whiten", "digest")


class MatModel(NamedTuple):
    """The variables of a file."""

    components: Floats
    """(K, D), orthonormal rows."""
    explained_variance: Floats
    """(K,), largest first."""
    mean: Floats
    """(D,)"""
    n_samples_seen: int
    noise_variance: float = 0.0
    whiten: bool = False


def write(path: str | os.PathLike[str], model: MatModel) -> None:
    """Write a MAT file of version 5."""
    numbers = {name: np.atleast_2d(np.asarray(value, dtype=np.float64)) for name, value in model._asdict().items()}
    variables: dict[str, Array | str] = {"format": _FORMAT, "version": np.ones((1, 1)), **numbers}
    data = io.BytesIO()
    savemat(data, {"digest": _digest(variables), **variables})  # first, so that a file that ends early still has it
    with replacing(path) as file:
        file.write(_TITLE.ljust(116) + data.getvalue()[116:])  # in place of one with the time


def read(path: str | os.PathLike[str]) -> MatModel:
    """Read a MAT file that this library, or ``save_model.m``, has written."""
    with open(path, "rb") as file:
        data = file.read()
    try:
        held = list_variables(data)
        found = {name: read_variable(data, held[name], (1 << 28) + 20 * len(data)) for name in _NAMES if name in held}
        sparse = [name for name, value in found.items() if not isinstance(value, str | np.ndarray)]
        if sparse:
            raise ModelFileError(f"its variable {sparse[0]!r} is a sparse matrix; save it as a full one")
        model = _checked(found)
        if "digest" in found and not _is_text(found["digest"], _digest(found)):
            raise ModelFileError(
                "its contents do not match its checksum, so it is damaged or was edited (if so on purpose, remove the variable 'digest')"
            )
        return model
    except (ModelFileError, MatError) as error:
        raise ModelFileError(f"{os.fspath(path)} cannot be used as a model: {error}.") from None


def _is_text(value: Any, expected: str) -> bool:
    """Whether a variable is this text; arrays are compared value by value, and are no text."""
    return isinstance(value, str) and value == expected


def _digest(variables: dict[str, Any]) -> str:
    """SHA-256 of names, shapes and values."""
    digest = hashlib.sha256()
    for name in sorted(set(variables) & set(_NAMES) - {"digest"}):
        value = variables[name]
        digest.update(f"{name} {'text' if isinstance(value, str) else value.shape}\n".encode())
        digest.update(value.encode("utf-8", "replace") if isinstance(value, str) else np.asarray(value, dtype="<f8").tobytes())
    return digest.hexdigest()


def _checked(found: dict[str, Any]) -> MatModel:
    def numbers(name: str, size: int | None = None) -> Floats:
        value = found.get(name)
        if value is None or isinstance(value, str) or not np.isfinite(value).all():
            raise ModelFileError(f"its variable {name!r} is missing or not finite numbers")
        if size is not None and value.size != size:
            raise ModelFileError(f"its variable {name!r} has {value.size} values, and must have {size}")
        return np.array(value, dtype=np.float64)

    if not _is_text(found.get("format"), _FORMAT):
        raise ModelFileError(f"its variable 'format' is not {_FORMAT!r}")
    if numbers("version", 1).item() != 1:
        raise ModelFileError("it has a version of the format other than 1")
    components = numbers("components")
    if components.ndim != 2 or not 1 <= components.shape[0] <= components.shape[1]:
        raise ModelFileError("its components are not rows of one for each feature")
    K, D = components.shape
    with np.errstate(over="ignore", invalid="ignore"):
        orthonormal = np.abs(components @ components.T - np.eye(K)).max() <= 1e-6
    if not orthonormal:
        raise ModelFileError("its components are not orthonormal rows")
    variance, seen = numbers("explained_variance", K).ravel(), numbers("n_samples_seen", 1).item()
    noise = numbers("noise_variance", 1).item() if "noise_variance" in found else 0.0
    if (variance < 0).any() or noise < 0 or not 1 <= seen < 2.0**53 or seen != int(seen):
        raise ModelFileError("its variances are negative, or its number of samples is not a whole one")
    if max(variance.max(), noise) * seen * max(K, D) > np.finfo(np.float64).max / 4:
        raise ModelFileError("its variances are so large that their sums overflow")
    order = np.argsort(-variance, kind="stable")
    whiten = "whiten" in found and bool(numbers("whiten", 1).item())
    return MatModel(np.ascontiguousarray(components[order]), variance[order], numbers("mean", D).ravel(), int(seen), noise, whiten)
