"""Saving an OnlinePCA to model files and MAT files, and loading it."""

from __future__ import annotations

import math
import numbers
import os
from typing import Any

import numpy as np

from online_psp.algorithms import BlockPCA
from online_psp.algorithms._files import describe, rebuild
from online_psp.algorithms._ritz import Model
from online_psp.engine.types import Array
from online_psp.io import mat_file, model_file
from online_psp.io.model_file import Contents, Fields, ModelFileError
from online_psp.io.states import flatten, unflatten
from online_psp.pca.careful import Careful
from online_psp.pca.checks import MOST_WEIGHT
from online_psp.pca.estimator import OnlinePCA
from online_psp.pca.exact import ReadOut
from online_psp.pca.forgetting import check_half_life
from online_psp.pca.settings import check_settings
from online_psp.pca.states import CarefulState, StreamState
from online_psp.pca.stream import Stream
from online_psp.pca.units import largest_for
from online_psp.pca.view import View, flip_signs

_LONGEST_AXIS = 10.0  # entry of an axis, of which the true ones are at most 1
_LARGEST_WEIGHT, _LARGEST_SUM = 1e30 * MOST_WEIGHT, 1e300
_LEAST_SHARE = np.finfo(
    np.float64
).tiny  # of a row in all weights; smaller ones have fewer digits, and so has what they are multiplied with
_LEAST = 1e-150  # squares of smaller numbers vanish
_KEPT_OUT = ("random_state", "reference")  # may be of any type, and have no effect
_NAMES: dict[Any, tuple[str, ...]] = {}


def save(model: OnlinePCA, path: str | os.PathLike[str], run: dict[str, Any] | None = None) -> None:
    """Write a model, and the state of its run over a source; as a MAT file if the name ends in .mat."""
    if os.fspath(path).endswith(".mat"):
        mat_file.write(path, _mat_contents(model))
        return
    arrays, state = pca_state(model)
    model_file.write(path, Contents("OnlinePCA", arrays, state, run or {}))


def load(path: str | os.PathLike[str], cls: type[OnlinePCA] = OnlinePCA) -> tuple[OnlinePCA, dict[str, Any]]:
    """Read a model and its run."""
    if os.fspath(path).endswith(".mat"):
        return _from_mat(mat_file.read(path), cls), {}
    found = model_file.read(path)
    try:
        if found.kind != "OnlinePCA":
            what = f"the {found.state.get('algorithm')} algorithm by itself" if found.kind == "algorithm" else f"a {found.kind}"
            way = ": read it with Monitor.load, which has the OnlinePCA as its model" if found.kind == "Monitor" else ""
            raise ModelFileError(f"it holds {what}, not an OnlinePCA{way}")
        fields = Fields(found.arrays, found.state)
        model = pca_from_state(fields, cls)
        fields.nothing_left()
        return model, found.run
    except ModelFileError as error:
        raise ModelFileError(f"{os.fspath(path)} cannot be used as a model: {error}.") from None


def pca_state(model: OnlinePCA) -> tuple[dict[str, Array], dict[str, Any]]:
    """The arrays and the JSON values of a model, which does not change."""
    parameters = {name: _plain(getattr(model, name), name) for name in _parameter_names(type(model)) if name != "dtype"}
    parameters["dtype"] = None if model.dtype is None else np.dtype(model.dtype).name
    state: dict[str, Any] = {"parameters": parameters, "fitted": hasattr(model, "_stream")}
    if not state["fitted"]:
        return {}, state
    stream = model._fitted()
    names = getattr(model, "feature_names_in_", None)
    with stream.lock:
        arrays, values = flatten(stream.state())
        arrays = {f"stream.{name}": array for name, array in arrays.items()}
        state |= {
            "D": stream.D,
            "dtype": stream.dtype.name,
            "feature_names": None if names is None else [str(name) for name in names],
            "stream": values,
            "share": stream.share,
            "model": None,
        }
        if stream.model is not None:
            inner, state["model"] = describe(stream.model)
            arrays |= {f"model.{name}": array for name, array in inner.items()}
    return arrays, state


def _parameter_names(cls: type[OnlinePCA]) -> tuple[str, ...]:
    """Those that a file has, of a class; scikit-learn finds them in a signature, which takes long, so they are remembered."""
    if cls not in _NAMES:
        _NAMES[cls] = tuple(name for name in cls._get_param_names() if name not in _KEPT_OUT)
    return _NAMES[cls]


def _plain(value: Any, name: str) -> Any:
    """The JSON form of a parameter."""
    if value is None or type(value) in (bool, str, int, float):
        return value
    if isinstance(value, bool | str):
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    if name == "half_life":
        return f"{check_half_life(value)[0]}s"  # type: ignore[index]
    raise TypeError(f"A model whose {name} is {value!r} cannot be saved: it is neither a number nor text.")


def pca_from_state(fields: Fields, cls: type[OnlinePCA]) -> OnlinePCA:
    """Rebuild a model from what `pca_state` returned."""
    given: dict[str, Any] = fields.value("parameters", dict)
    unknown = [name for name in given if name not in _parameter_names(cls)]
    if unknown:
        raise ModelFileError(f"it has a parameter {unknown[0]!r}, which this library does not know")
    model = cls(**given)
    try:
        settings = check_settings(model)
    except (ValueError, TypeError) as error:
        raise ModelFileError(f"its parameters are impossible ({error})") from None
    if not fields.value("fitted", bool):
        return model
    D, dtype = fields.count("D", 1), np.dtype(fields.choice("dtype", "float64", "float32"))
    if settings.dtype not in (None, dtype.name):
        raise ModelFileError("its precision is not the one that it was made for")
    state = unflatten(StreamState, fields.under("stream"), {"D": D}, dtype)
    share = None if fields.values.get("share") is None else fields.number("share", 0.0, 1.0)
    stream = Stream(settings, share or 1, D, dtype)
    stream.components = state.rank if not isinstance(model.n_components, int) else model.n_components
    inner = None if fields.values.get("model") is None else rebuild(fields.under("model"), {})
    _check(model, state, inner, stream)
    stream.restore(state, inner)
    names = fields.optional("feature_names", list)
    if names is not None:
        if len(names) != D or not all(isinstance(name, str) for name in names):
            raise ModelFileError("its feature names are not one for each feature")
        model.feature_names_in_ = np.array(names, dtype=object)
    model.n_features_in_ = D
    model._stream = stream
    return model


def _check(model: OnlinePCA, state: StreamState, inner: Any, stream: Stream) -> None:
    """Raise a ModelFileError if the parts of a file do not fit together."""
    moments, wanted = state.moments, model.n_components
    if sum(part is not None for part in (state.kept, state.scatter, state.careful, inner)) != 1:
        raise ModelFileError("it must be either exact or streaming")
    if state.careful is not None:
        _check_careful(state, state.careful, stream)
    elif stream.settings.robust:
        raise ModelFileError("it is robust, and has no influences")
    if not 1 <= state.rank <= stream.D or (isinstance(wanted, int) and wanted > state.rank):
        raise ModelFileError("it keeps fewer directions than it has components, or more than it has features")
    if moments.weight < 0 or moments.squares < 0 or (moments.variance < 0).any() or state.refresh_at < 0:
        raise ModelFileError("it has negative weights or variances")
    if not max(moments.weight, math.sqrt(moments.squares)) < _LARGEST_WEIGHT:
        raise ModelFileError("its weights are larger than any")
    started = inner is not None or (state.careful is not None and state.careful.ritz is not None)
    scaled = started and stream.settings.standardize
    if (state.scale is not None) != scaled or (state.scale is not None and (state.scale <= 0).any()):
        raise ModelFileError("its scales do not fit the rest of it")
    if state.unit < 0 or (state.unit and np.frexp(state.unit)[0] != 0.5):
        raise ModelFileError("its unit is not a power of two")
    if state.scatter is not None and min(state.scatter.largest or 0.0, state.scatter.left or 0.0) < 0:
        raise ModelFileError("it has negative variances")
    parts = moments.parts
    if parts is not None and ((parts.origin is None) != (parts.moved is None) or (parts.weight or 0.0) < 0):
        raise ModelFileError("its mean lacks a part, or has a negative weight")
    _check_sizes(state, stream)
    for part in (state.kept, state.scatter):
        if part is not None and not ((part.shares >= _LEAST_SHARE) & (part.shares <= 1)).all():
            raise ModelFileError("its rows have shares that are not between 0 and 1")
        if part is not None and len(part.rows) > 5 * state.rank + 256:
            raise ModelFileError("it has kept more rows than it should")
    if inner is not None:
        expected = (BlockPCA, state.rank, stream.D, stream.dtype)
        if (type(inner), inner.K, inner.D, inner.dtype) != expected or inner.state().running is None:
            raise ModelFileError("its algorithm does not fit the rest of it")


def _check_sizes(state: StreamState, stream: Stream) -> None:
    """Raise a ModelFileError for numbers so large that no accepted rows lead to them: computing with them would overflow."""
    if state.axes is not None and not np.abs(state.axes).max(initial=0.0) < _LONGEST_AXIS:
        raise ModelFileError("its axes are longer than any")
    largest = 10.0 * largest_for(stream.dtype)
    moments, scatter = state.moments, state.scatter
    parts = moments.parts
    values = [each for each in (moments.mean, *(() if parts is None else (parts.origin, parts.moved))) if each is not None]
    if parts is not None and parts.sum is not None and parts.weight:
        with np.errstate(over="ignore"):
            values.append(parts.sum / parts.weight)
    values += [part.rows for part in (state.kept, scatter, state.careful) if part is not None]
    squares = [moments.variance]
    if scatter is not None:
        values += [] if scatter.root is None else [scatter.root]
        squares += [scatter.matrix, np.array([scatter.largest or 0.0, scatter.left or 0.0])]
    if state.careful is not None and state.careful.ritz is not None:
        squares.append(state.careful.ritz.M)
    for bound, arrays in ((largest, values), (largest**2, squares)):
        for array in arrays:
            if array.size and not np.nanmax(np.abs(array), initial=0.0) <= bound:
                raise ModelFileError("its rows, means or covariances are larger than any that are learned")
    careful = state.careful if state.careful is not None and state.careful.pairs is None and state.careful.ritz is None else None
    for part in (state.kept, state.scatter, careful):
        if part is not None and 0.0 < float(np.nanmax(np.abs(part.rows), initial=0.0)) < _LEAST:
            raise ModelFileError("its rows are smaller than any that are learned")


def _check_careful(state: StreamState, careful: CarefulState, stream: Stream) -> None:
    """As `_check`, for a model of rows with missing values, or of gross rows."""
    settings = stream.settings
    if settings.missing != "impute" and (careful.holes or not settings.robust):
        raise ModelFileError("it has learned rows with missing values, which its parameters refuse")
    positive = (careful.weights > 0).all() and (careful.squares >= 0).all() and careful.given >= 0
    if not (positive and (careful.decays > 0).all() and (careful.decays <= 1).all()):
        raise ModelFileError("its rows have weights that are not positive, or decays that are not between 0 and 1")
    weights = [careful.known, np.array([careful.given]), np.sqrt(careful.squares)]
    weights += [] if careful.pairs is None else [careful.pairs.weights]
    if max(float(each.max(initial=0.0)) for each in weights) > _LARGEST_WEIGHT or careful.weights.max(initial=0.0) > _LARGEST_WEIGHT:
        raise ModelFileError("its weights are larger than any")
    if (careful.known < 0).any() or np.isinf(careful.rows).any() or (settings.missing != "impute" and np.isnan(careful.rows).any()):
        raise ModelFileError("its rows are not finite, or features have negative weights")
    parts = Careful(settings, state.rank, stream.D, stream.dtype, stream.share)
    if careful.ritz is not None:
        parts.core = Model(careful.ritz.B, careful.ritz.M, careful.ritz.drift)
        if len(careful.ritz.B) > state.rank or (np.diag(careful.ritz.M) < 0).any() or careful.ritz.drift < 0:
            raise ModelFileError("it has negative variances, or more directions than it should")
    begun = careful.ritz is None and (not settings.robust or careful.guard is not None)
    wrong = not parts.few if careful.pairs is not None else parts.few and begun
    if wrong or (careful.guard is not None and not settings.robust):
        raise ModelFileError("it has sums of pairs where it should have none, or none where it should have some")
    if careful.guard is not None and (careful.guard.width <= 0 or min(careful.guard[2:]) < 0):
        raise ModelFileError("its limit for gross rows is impossible")
    tail, start, groups = careful.tail, careful.start, careful.groups
    if (tail is not None and min(tail) < 0) or (start is not None and (start.weight < 0 or (start.variance < 0).any())):
        raise ModelFileError("what gross rows have lost, or what its first rows are, is negative")
    if groups is not None and not ((groups >= 0) & (groups < stream.D) & (groups == np.floor(groups))).all():
        raise ModelFileError("its groups of features are not numbers of features")
    if (careful.excess or 1.0) < 1.0 or (careful.lacking or 0.0) < 0.0:
        raise ModelFileError("its rows with holes have less noise than others, or negative weights")
    if careful.pairs is not None and (careful.pairs.weights < 0).any():
        raise ModelFileError("its pairs have negative weights")
    pairs = careful.pairs
    if pairs is not None and (
        np.abs(pairs.products).max(initial=0.0) > _LARGEST_SUM
        or max(np.abs(each).max(initial=0.0) for each in (pairs.sums, pairs.place)) > np.sqrt(_LARGEST_SUM)
    ):
        raise ModelFileError("its pairs have sums that are larger than any")
    if len(careful.rows) and len(careful.rows) >= parts.room:
        raise ModelFileError("it has kept more rows than it should")


# MAT files hold what a model has learned, without the state from which learning continues


def _mat_contents(model: OnlinePCA) -> mat_file.MatModel:
    if model.standardize or model.axes != "principal":
        raise ValueError("A MAT file holds principal components only: save a model with standardize=True or axes='stable' as a .psp file.")
    return mat_file.MatModel(
        np.asarray(model.components_, dtype=np.float64),
        np.asarray(model.explained_variance_),
        np.asarray(model.mean_, dtype=np.float64),
        model.n_samples_seen_,
        model.noise_variance_,
        model.whiten,
    )


def _from_mat(found: mat_file.MatModel, cls: type[OnlinePCA]) -> OnlinePCA:
    """A model that continues from the K directions in the file."""
    K, D = found.components.shape
    model = cls(n_components=K, whiten=found.whiten)
    stream = Stream(check_settings(model), K, D, np.dtype(np.float64))
    stream.rank, stream.unit = K, 1.0
    seen = found.n_samples_seen
    biased = max(seen - 1, 1) / seen
    left_out = max(min(D, seen) - K, 0)
    variances = found.explained_variance * biased
    total = float(variances.sum() + found.noise_variance * left_out * biased)
    moments = stream.moments
    moments.count, moments.weight, moments.squares, moments.mean = seen, float(seen), float(seen), found.mean.copy()
    along = (variances[:, np.newaxis] * found.components**2).sum(axis=0)
    moments.variance = along + (total - float(along.sum())) / D  # the file does not say how the rest is spread: evenly
    stream.go_on_from(ReadOut(found.components, variances))
    model.n_features_in_ = D
    model._stream = stream
    stream._view = View(flip_signs(found.components), variances, total, moments.variance, found.mean, None, seen, float(seen), float(seen))
    return model
