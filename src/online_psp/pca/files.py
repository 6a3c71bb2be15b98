"""Saving an OnlinePCA to model files and MAT files, and loading it."""

from __future__ import annotations

import numbers
import os
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from online_psp.engine.rows import DenseRows, SparseRows
from online_psp.engine.types import Array
from online_psp.io import mat_file, model_file
from online_psp.io.model_file import Contents, Fields, ModelFileError
from online_psp.io.states import flatten, unflatten
from online_psp.pca.buffer import Buffer
from online_psp.pca.estimator import OnlinePCA, State, empty_buffer
from online_psp.pca.forgetting import check_half_life
from online_psp.pca.model import Covariance, Model, empty_model
from online_psp.pca.settings import Settings, check_settings
from online_psp.pca.signals import RULES

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
    values: dict[str, Any] = {"parameters": parameters, "fitted": hasattr(model, "_state")}
    if not values["fitted"]:
        return {}, values
    settings, learned, buffer, last_time = model.snapshot()._state
    names = getattr(model, "feature_names_in_", None)
    arrays, inner = flatten(learned)
    arrays = {f"model.{name}": array for name, array in arrays.items()}
    arrays |= {"buffer.weights": buffer.weights[: buffer.n], "buffer.decays": buffer.decays[: buffer.n]}
    rows = buffer.rows(buffer.n)
    if isinstance(rows, SparseRows):
        matrix = rows.matrix()
        arrays |= {"buffer.data": matrix.data, "buffer.indices": matrix.indices.astype(float), "buffer.indptr": matrix.indptr.astype(float)}
    else:
        arrays["buffer.rows"] = rows.dense(settings.working)
    values |= {
        "D": settings.D,
        "dtype": settings.working.name,
        "share": settings.share,
        "rank": settings.rank,
        "shown": settings.shown,
        "feature_names": None if names is None else [str(name) for name in names],
        "model": inner,
        "buffer": {},
        "last_time": last_time,
    }
    return arrays, values


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
    share: Any = fields.values.get("share")
    if share is not None and share not in RULES:
        share = fields.number("share", 0.0, 1.0)
    elif share is not None:
        share = fields.choice("share", *RULES)
    settings = replace(settings, share=share, rank=fields.count("rank", 1, D), shown=fields.count("shown", 1, D), D=D, working=dtype)
    learned = unflatten(Model, fields.under("model"), {"D": D}, dtype)
    forms = learned.basis, learned.turned, learned.covariance
    if sum(form is not None for form in forms) != 1 or learned.few != settings.few:
        raise ModelFileError("it has no directions, or too many of them")
    last_time = None if fields.values.get("last_time") is None else fields.number("last_time")
    names = fields.optional("feature_names", list)
    if names is not None:
        if len(names) != D or not all(isinstance(name, str) for name in names):
            raise ModelFileError("its feature names are not one for each feature")
        model.feature_names_in_ = np.array(names, dtype=object)
    model.n_features_in_ = D
    model._state = State(settings, learned, _buffer(fields.under("buffer"), settings, learned), last_time)
    return model


def _buffer(fields: Fields, settings: Settings, model: Model) -> Buffer:
    """The open rows of a file."""
    buffer = empty_buffer(settings, model)
    n = len(fields.arrays.get("weights", ()))
    if n >= buffer.room:
        raise ModelFileError("it has kept more rows than it should")
    weights, decays = fields.array("weights", (n,), np.float64), fields.array("decays", (n,), np.float64)
    if "rows" in fields.arrays:
        rows: Any = DenseRows(fields.array("rows", (n, settings.D), settings.working, finite=settings.missing != "impute"))
    else:
        entries = len(fields.arrays.get("data", ()))
        data = fields.array("data", (entries,), settings.working, finite=settings.missing != "impute")
        indices, indptr = fields.array("indices", (entries,), np.float64), fields.array("indptr", (n + 1,), np.float64)
        try:
            matrix = csr_array((data, indices.astype(np.int64), indptr.astype(np.int64)), shape=(n, settings.D))
            matrix.check_format(full_check=True)
        except ValueError as error:
            raise ModelFileError(f"its sparse rows are impossible ({error})") from None
        rows = SparseRows(matrix)
    if n:
        buffer.add(rows, weights, decays)
    return buffer


# MAT files hold what a model has learned, without the state from which learning continues


def _mat_contents(model: OnlinePCA) -> mat_file.MatModel:
    if model.standardize or model.axes != "principal":
        raise ValueError("A MAT file holds principal components only: save a model with standardize=True or axes='stable' as a .psp file.")
    if model.whiten == "zca":
        raise ValueError("A MAT file knows no whiten='zca': save the model as a .psp file.")
    return mat_file.MatModel(
        np.asarray(model.components_, dtype=np.float64),
        np.asarray(model.explained_variance_),
        np.asarray(model.mean_, dtype=np.float64),
        model.n_samples_seen_,
        model.noise_variance_,
        bool(model.whiten),
    )


def _from_mat(found: mat_file.MatModel, cls: type[OnlinePCA]) -> OnlinePCA:
    """A model that continues from the K directions in the file."""
    K, D = found.components.shape
    model = cls(n_components=K, oversample=0, whiten=found.whiten)
    settings = check_settings(model).begun(K, D, np.dtype(np.float64))
    seen = found.n_samples_seen
    biased = max(seen - 1, 1) / seen
    variances = found.explained_variance * biased
    along = (variances[:, np.newaxis] * found.components**2).sum(axis=0)
    left_out = found.noise_variance * max(min(D, seen) - K, 0) * biased
    variance = along + (float(variances.sum()) + left_out - float(along.sum())) / D  # the file does not say how the rest is spread: evenly
    learned = empty_model(D, settings.few, settings.working)._replace(
        unit=1.0, seen=seen, weight=float(seen), squares=float(seen), mean=found.mean.copy(), variance=variance
    )
    if settings.few:
        matrix = (found.components.T * variances) @ found.components
        matrix.flat[:: D + 1] += variance - along
        learned = learned._replace(covariance=Covariance(np.asfortranarray(matrix)))
    else:
        learned = learned._replace(basis=found.components, variances=variances)
    model.n_features_in_ = D
    model._state = State(settings, learned, empty_buffer(settings, learned))
    return model
