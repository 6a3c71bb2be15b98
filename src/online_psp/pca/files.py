"""Saving an OnlinePCA to model files and MAT files, and loading it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from online_psp.engine.rows import DenseRows, SparseRows
from online_psp.engine.types import Array
from online_psp.io import mat_file, model_file
from online_psp.io.model_file import Contents, ModelFileError
from online_psp.io.states import arrays_of, flatten, rows_of, under, unflatten
from online_psp.pca.estimator import OnlinePCA
from online_psp.pca.forgetting import check_half_life
from online_psp.pca.model import Covariance, Model, empty_model
from online_psp.pca.settings import check_settings
from online_psp.pca.state import opened

_KEPT_OUT = ("dtype", "random_state", "reference")  # stored by its name; may be of any type, and have no effect


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
    with model_file.refusing(path):
        if found.kind != "OnlinePCA":
            what = f"the {found.state['algorithm']} algorithm by itself" if found.kind == "algorithm" else f"a {found.kind}"
            way = ": read it with Monitor.load, which has the OnlinePCA as its model" if found.kind == "Monitor" else ""
            raise ModelFileError(f"it holds {what}, not an OnlinePCA{way}")
        return pca_from_state(found.arrays, found.state, cls), found.run


def pca_state(model: OnlinePCA) -> tuple[dict[str, Array], dict[str, Any]]:
    """The arrays and the JSON values of a model, which does not change."""
    parameters = {name: _plain(value, name) for name, value in model.get_params().items() if name not in _KEPT_OUT}
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
    stored = arrays_of(rows if isinstance(rows, SparseRows) else DenseRows(rows.dense(settings.working)))
    arrays |= {f"buffer.{name}": array for name, array in stored.items()}
    values |= {
        "D": settings.D,
        "dtype": settings.working.name,
        "share": settings.share,
        "rank": settings.rank,
        "shown": settings.shown,
        "feature_names": None if names is None else [str(name) for name in names],
        "model": inner,
        "last_time": last_time,
    }
    return arrays, values


def _plain(value: Any, name: str) -> Any:
    """The JSON form of a parameter."""
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":  # a timedelta64 is no number of rows
        value = value.item()
    if value is None or isinstance(value, bool | str | int | float):
        return value
    if name == "half_life":
        return f"{check_half_life(value)[0]}s"  # type: ignore[index]
    raise TypeError(f"A model whose {name} is {value!r} cannot be saved: it is neither a number nor text.")


def pca_from_state(arrays: Mapping[str, Array], values: Mapping[str, Any], cls: type[OnlinePCA]) -> OnlinePCA:
    """Rebuild a model from what `pca_state` returned."""
    model = cls(**values["parameters"])
    settings = check_settings(model)
    if not values["fitted"]:
        return model
    known = {name: values[name] for name in ("D", "share", "rank", "shown")}
    settings = replace(settings, working=np.dtype(values["dtype"]), **known)
    learned = unflatten(Model, under(arrays, "model"), values["model"], {"D": settings.D})
    if values["feature_names"] is not None:
        model.feature_names_in_ = np.array(values["feature_names"], dtype=object)
    model.n_features_in_ = settings.D
    state, stored = opened(settings, learned, values["last_time"]), under(arrays, "buffer")
    rows = rows_of(stored, settings.D)
    if rows is not None and len(rows):
        state.buffer.add(rows, stored["weights"], stored["decays"])
    model._state = state
    return model


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
    model._state = opened(settings, learned)
    return model
