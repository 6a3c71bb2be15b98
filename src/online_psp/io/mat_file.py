"""Models as MAT files, for the MATLAB and Octave package; the variables are those of ``matlab/README.md``."""

from __future__ import annotations

import io
import os
from typing import Any, NamedTuple

import numpy as np

from online_psp.engine.types import Array, Floats
from online_psp.io.files import replacing
from online_psp.io.model_file import ModelFileError

_FORMAT = "online-psp-model"
_NUMERIC = ("double", "single", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "logical")
_MOST_DEFLATED = 1100  # deflate never shrinks more than this
_NAMES = ("format", "version", "components", "explained_variance", "mean", "n_samples_seen", "noise_variance", "whiten")


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
    from scipy.io import savemat

    variables = {"format": _FORMAT, "version": 1.0, **model._asdict()}
    variables["n_samples_seen"], variables["whiten"] = float(model.n_samples_seen), float(model.whiten)
    data = io.BytesIO()
    savemat(data, variables, oned_as="row")
    with replacing(path) as file:
        file.write(data.getbuffer())


def read(path: str | os.PathLike[str]) -> MatModel:
    """Read a MAT file that this library, or ``save_model.m``, has written."""
    with open(path, "rb"):  # a file that is missing is no ModelFileError
        pass
    try:
        return _checked(_variables(path))
    except ModelFileError as error:
        raise ModelFileError(f"{os.fspath(path)} cannot be used as a model: {error}.") from None


def _variables(path: str | os.PathLike[str]) -> dict[str, Array]:
    from scipy.io import loadmat, whosmat

    try:
        listed = {name: (shape, kind) for name, shape, kind in whosmat(os.fspath(path)) if name in _NAMES}
        most = _MOST_DEFLATED * os.path.getsize(path)
        for name, (shape, kind) in listed.items():
            if kind != "char" and kind not in _NUMERIC:
                raise ModelFileError(f"its variable {name!r} is a {kind}, not numbers")
            if 8 * int(np.prod([int(length) for length in shape], dtype=object)) > most:
                raise ModelFileError(f"its variable {name!r} says that it is larger than the file can hold")
        return dict(loadmat(os.fspath(path), variable_names=list(listed)))
    except ModelFileError:
        raise
    except Exception as error:  # scipy's reader raises many things on damaged files
        raise ModelFileError(f"it is not a MAT file of version 5 or 7 ({type(error).__name__})") from None


def _checked(found: dict[str, Any]) -> MatModel:
    def numbers(name: str, size: int | None = None) -> Floats:
        value = found.get(name)
        if value is None or value.dtype.kind not in "fiub" or not np.isfinite(value).all():
            raise ModelFileError(f"its variable {name!r} is missing or not finite numbers")
        if size is not None and value.size != size:
            raise ModelFileError(f"its variable {name!r} has {value.size} values, and must have {size}")
        return np.array(value, dtype=np.float64)

    if "format" not in found or found["format"].dtype.kind != "U" or "".join(found["format"].ravel()) != _FORMAT:
        raise ModelFileError(f"its variable 'format' is not {_FORMAT!r}")
    if numbers("version", 1).item() != 1:
        raise ModelFileError("it has a version of the format other than 1")
    components = numbers("components")
    if components.ndim != 2 or not 1 <= components.shape[0] <= components.shape[1]:
        raise ModelFileError("its components are not rows of one for each feature")
    K, D = components.shape
    if np.abs(components @ components.T - np.eye(K)).max() > 1e-6:
        raise ModelFileError("its components are not orthonormal rows")
    variance, seen = numbers("explained_variance", K).ravel(), numbers("n_samples_seen", 1).item()
    noise = numbers("noise_variance", 1).item() if "noise_variance" in found else 0.0
    if (variance < 0).any() or noise < 0 or not 1 <= seen < 2.0**53 or seen != int(seen):
        raise ModelFileError("its variances are negative, or its number of samples is not a whole one")
    order = np.argsort(-variance, kind="stable")
    whiten = "whiten" in found and bool(numbers("whiten", 1).item())
    return MatModel(np.ascontiguousarray(components[order]), variance[order], numbers("mean", D).ravel(), int(seen), noise, whiten)
