"""The whole state of an OnlinePCA as arrays and JSON, and back; and model files of it."""

from __future__ import annotations

import numbers
import os
from typing import Any

import numpy as np

from online_psp.algorithms._snapshot import algorithm_from_state, algorithm_state, used
from online_psp.engine.moments import Moments
from online_psp.engine.types import Array, Rate
from online_psp.io import mat_file, model_file
from online_psp.io.model_file import Contents, Fields, ModelFileError
from online_psp.pca import OnlinePCA
from online_psp.pca.exact import Kept, ReadOut, Scatter, merge_scatter
from online_psp.pca.settings import check_parameters
from online_psp.pca.stream import Stream, flip_signs

_PLAIN = ("algorithm", "gamma", "ell", "center", "whiten")


def save(model: OnlinePCA, path: str | os.PathLike[str], run: dict[str, Any] | None = None) -> None:
    """Write a model, and where its run over a source stands; as a MAT file where the name ends so."""
    if os.fspath(path).endswith(".mat"):
        mat_file.write(path, _mat_contents(model))
        return
    arrays, state = pca_state(model)
    model_file.write(path, Contents("OnlinePCA", arrays, state, run or {}))


def load(
    path: str | os.PathLike[str], learning_rate: Rate | None = None, cls: type[OnlinePCA] = OnlinePCA
) -> tuple[OnlinePCA, dict[str, Any]]:
    """Read a model and its run."""
    if os.fspath(path).endswith(".mat"):
        return _from_mat(mat_file.read(path), cls), {}
    found = model_file.read(path)
    try:
        if found.kind != "OnlinePCA":
            raise ModelFileError(f"it holds the {found.state.get('algorithm')} algorithm by itself, not an OnlinePCA")
        return pca_from_state(Fields(found.arrays, found.state), learning_rate, cls), found.run
    except ModelFileError as error:
        raise ModelFileError(f"{os.fspath(path)} cannot be used as a model: {error}.") from None


def pca_state(model: OnlinePCA) -> tuple[dict[str, Array], dict[str, Any]]:
    """Arrays and JSON; the model is left as it is."""
    parameters: dict[str, Any] = {name: _plain(getattr(model, name), name) for name in _PLAIN}
    parameters["n_components"] = _plain(model.n_components, "n_components")
    parameters["oversample"] = _plain(model.oversample, "oversample")
    parameters["block_size"] = _plain(model.block_size, "block_size")
    parameters["dtype"] = None if model.dtype is None else np.dtype(model.dtype).name
    parameters["learning_rate"] = model.learning_rate is not None
    state: dict[str, Any] = {"parameters": parameters, "fitted": hasattr(model, "_stream")}
    if not state["fitted"]:
        return {}, state
    stream = model._stream
    names = getattr(model, "feature_names_in_", None)
    state |= {
        "D": int(model.n_features_in_),
        "feature_names": None if names is None else [str(name) for name in names],
        "rank": stream.rank,
        "dtype": stream.dtype.name,
        "weight": float(stream.moments.weight),
        "scatter": float(stream.moments.scatter),
        "n_samples": int(stream.n_samples),
        "refresh_at": float(stream.refresh_at),
        "shown": len(stream.components),
    }
    arrays: dict[str, Array] = {"mean": stream.moments.mean}
    if len(stream.components):
        arrays["components"] = stream.components
    if stream.exact is None:
        inner, state["model"] = algorithm_state(stream.model)
        state["phase"] = "streaming"
        arrays |= {f"model.{name}": array for name, array in inner.items()}
    else:
        state["phase"], state["n"] = ("scatter" if isinstance(stream.exact, Scatter) else "kept"), stream.exact.n
        arrays["rows"] = used(stream.exact.rows, stream.exact.n)
        if isinstance(stream.exact, Scatter):
            arrays["matrix"] = stream.exact.matrix
    return arrays, state


def _plain(value: Any, name: str) -> Any:
    """A parameter as JSON has it."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    raise TypeError(f"A model whose {name} is {value!r} cannot be saved: it is neither a number nor text.")


def pca_from_state(fields: Fields, learning_rate: Rate | None, cls: type[OnlinePCA]) -> OnlinePCA:
    """The model again; `learning_rate` must be passed exactly where it had one."""
    given = fields.under("parameters")
    parameters: dict[str, Any] = {name: given.values.get(name) for name in (*_PLAIN, "n_components", "oversample", "block_size", "dtype")}
    if given.value("learning_rate", bool) != (learning_rate is not None):
        raise ModelFileError(
            "it was trained without a function as learning_rate; leave it out when loading"
            if learning_rate is not None
            else "it was trained with a function as learning_rate, which no file can hold; pass learning_rate= when loading it"
        )
    given.choice("dtype", None, "float64", "float32")
    for name, kind in (("gamma", float), ("ell", float), ("center", bool), ("whiten", bool)):
        if type(parameters[name]) is not kind and not (kind is float and type(parameters[name]) is int):
            raise ModelFileError(f"its parameter {name!r} is not of the right type")
    if parameters["block_size"] != "auto":
        given.count("block_size", 1)
    model = cls(**parameters, learning_rate=learning_rate)
    try:
        check_parameters(model)
    except (ValueError, TypeError) as error:
        raise ModelFileError(f"its parameters are impossible ({error})") from None
    if fields.value("fitted", bool):
        _set_stream(model, fields)
    return model


def _set_stream(model: OnlinePCA, fields: Fields) -> None:
    D = fields.count("D", 1)
    mean = fields.array("mean", (D,))  # first: whatever is allocated below is no larger than what the file holds
    rank = fields.count("rank", 1, D)
    if isinstance(model.n_components, int) and not model.n_components <= rank:
        raise ModelFileError("it keeps fewer directions than it has components")
    stream = Stream.__new__(Stream)
    stream.rank, stream.dtype = rank, np.dtype(fields.choice("dtype", "float64", "float32"))
    stream.exact, stream.model, stream.found = None, None, None
    stream.moments = Moments(fields.number("weight", 0.0), mean, fields.number("scatter", 0.0))
    stream.n_samples, stream.refresh_at = fields.count("n_samples"), fields.number("refresh_at", 0.0)
    shown = fields.count("shown", 0, rank)
    stream.components = fields.array("components", (shown, D), stream.dtype) if shown else np.zeros((0, D))
    phase = fields.choice("phase", "kept", "scatter", "streaming")
    if phase == "streaming":
        _set_model(model, stream, fields.under("model"))
    else:
        exact: Any = Kept.__new__(Kept) if phase == "kept" else Scatter.__new__(Scatter)
        exact.rank = rank
        room = 2 * rank if phase == "kept" else 256
        exact.rows = fields.array("rows", (room, D), stream.dtype)
        exact.n = fields.count("n", 0, room - 1)
        if phase == "scatter":
            exact.matrix = fields.array("matrix", (D, D))
        stream.exact = exact
    names = fields.optional("feature_names", list)
    if names is not None:
        if len(names) != D or not all(isinstance(name, str) for name in names):
            raise ModelFileError("its feature names are not one for each feature")
        model.feature_names_in_ = np.array(names, dtype=object)
    model.n_features_in_ = D
    model._stream = stream


def _set_model(model: OnlinePCA, stream: Stream, fields: Fields) -> None:
    inner = algorithm_from_state(fields, {})
    expected = (model.algorithm, stream.rank, len(stream.moments.mean), stream.dtype)
    if (fields.values["algorithm"], inner.K, inner.D, inner.dtype) != expected or inner._block is None:
        raise ModelFileError("its algorithm does not fit the rest of it")
    stream.model = inner


# MAT files: what a model has learned, without the state that learning goes on from


def _mat_contents(model: OnlinePCA) -> mat_file.MatModel:
    return mat_file.MatModel(
        np.asarray(model.components_, dtype=np.float64),
        np.asarray(model.explained_variance_),
        np.asarray(model.mean_, dtype=np.float64),
        model.n_samples_seen_,
        model.noise_variance_,
        model.whiten,
    )


def _from_mat(found: mat_file.MatModel, cls: type[OnlinePCA]) -> OnlinePCA:
    """A model that stands where the one in the file stood, as far as its K directions tell."""
    K, D = found.components.shape
    model = cls(n_components=K, whiten=found.whiten)
    rank = min(2 * K + 8, D)
    degrees = max(found.n_samples_seen - 1, 1)
    scatter = found.explained_variance * degrees
    left_out = max(min(D, found.n_samples_seen) - K, 0)
    stream = Stream(rank, D, np.dtype(np.float64))
    stream.moments = Moments(
        float(found.n_samples_seen), found.mean.copy(), float(scatter.sum() + found.noise_variance * left_out * degrees)
    )
    stream.n_samples = found.n_samples_seen
    exact, rest = merge_scatter([ReadOut(found.components, scatter)], np.zeros((0, D)), rank, stream.dtype)
    stream.exact = exact
    model.n_features_in_ = D
    model._stream = stream
    if rest is not None:
        stream.go_on_from(rest, model)
    stream.found = ReadOut(flip_signs(found.components), scatter)
    return model
