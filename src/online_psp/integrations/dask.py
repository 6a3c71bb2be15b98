"""OnlinePCA on many machines with Dask: rows are distributed over workers.

A model is fitted to each partition, or to a few neighbouring ones, and the models are merged in a tree. A task is a pure function of its
model and partition: if a worker dies, Dask computes its tasks again, and every row still counts once.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import clone

from online_psp.engine.types import Array
from online_psp.pca import OnlinePCA

__all__ = ["fit", "fit_lazily", "transform"]

_FAN_IN = 4  # models merged by one task
_PER_MODEL, _MODELS = 8, 16  # most partitions per model, as long as there are at least so many models


def _dask() -> Any:
    try:
        import dask
    except ImportError as error:
        raise ImportError("online_psp.integrations.dask needs Dask: pip install 'online-psp[dask]'.") from error
    return dask


def partitions(collection: Any) -> list[Any]:
    """The rows of a dask array, a dask dataframe or a list of delayed blocks, as delayed blocks: one for each row of chunks."""
    _dask()
    if isinstance(collection, Sequence):
        parts = list(collection)
    elif hasattr(collection, "to_delayed"):
        if hasattr(collection, "rechunk"):
            if collection.ndim != 2:
                raise ValueError(f"A dask array must have two dimensions, with samples as rows; got {collection.ndim}.")
            collection = collection if collection.numblocks[1] == 1 else collection.rechunk({1: -1})
        parts = list(np.ravel(collection.to_delayed()))
    else:
        raise TypeError(f"Rows must be a dask array, a dask dataframe or a list of delayed blocks; got {type(collection).__name__}.")
    if not parts:
        raise ValueError("There are no partitions to learn from.")
    return parts


def _fit_part(template: OnlinePCA, model: OnlinePCA | None, part: Any) -> OnlinePCA | None:
    """A copy of a model that has learned one more partition; None while there are no rows."""
    if not part.shape[0]:
        return model
    return clone(template).fit(part) if model is None else copy.deepcopy(model).partial_fit(part)


def _merge(models: list[OnlinePCA | None]) -> OnlinePCA | None:
    """Merge models into a new one; they must not change, because Dask may use them again."""
    fitted = [model for model in models if model is not None]
    if len(fitted) < 2:
        return fitted[0] if fitted else None
    merged = copy.deepcopy(fitted[0])
    for model in fitted[1:]:
        merged.merge(model)
    return merged


def _transform_part(model: OnlinePCA, part: Any) -> Array:
    if not part.shape[0]:
        return np.empty((0, model.n_components_), dtype=model.components_.dtype)
    return np.asarray(model.transform(part))


def fit_lazily(model: OnlinePCA, collection: Any, per_model: int | None = None) -> Any:
    """The fit as one delayed object, for graphs of your own; see :func:`fit`. Its value is None if there are no rows at all."""
    delayed = _dask().delayed
    template, parts = delayed(clone(model)), partitions(collection)
    if per_model is None:
        per_model = max(1, min(_PER_MODEL, len(parts) // _MODELS))
    level = []
    for start in range(0, len(parts), per_model):
        fitted = None
        for part in parts[start : start + per_model]:
            fitted = delayed(_fit_part, pure=True)(template, fitted, part)
        level.append(fitted)
    while len(level) > 1:
        level = [delayed(_merge, pure=True)(level[i : i + _FAN_IN]) for i in range(0, len(level), _FAN_IN)]
    return level[0]


def fit(model: OnlinePCA, collection: Any, *, per_model: int | None = None, progress: bool = False) -> OnlinePCA:
    """Learn from rows spread over partitions, wherever Dask runs: threads, or the workers of the current `distributed.Client`.

    Parameters
    ----------
    model : OnlinePCA
        Its parameters are used; the model itself does not change.
    collection : dask array (n, D), dask dataframe, or list of delayed blocks
        Blocks may be sparse. Each thread of a worker holds one block and one model at a time, so the whole may be larger than any memory.
    per_model : int, optional
        Number of neighbouring partitions that one model learns from, one after the other, before it is merged. More are more accurate;
        fewer are more parallel. By default up to 8, as long as that leaves 16 models.
    progress : bool
        Whether to show Dask's progress bar.

    Returns
    -------
    OnlinePCA
        Fitted. Means, counts and total variance are exact; for the components, see `OnlinePCA.merge`. Partitions should have several
        times as many rows as the model keeps directions.
    """
    fitted = _compute(fit_lazily(model, collection, per_model), progress)
    if fitted is None:
        raise ValueError("All partitions are empty: there is nothing to learn from.")
    result: OnlinePCA = fitted
    return result


def _compute(lazy: Any, progress: bool) -> Any:
    if not progress:
        return lazy.compute()
    try:
        from distributed import get_client
        from distributed import progress as show

        future = get_client().compute(lazy)
    except (ImportError, ValueError):  # no client: Dask's local scheduler
        from dask.diagnostics import ProgressBar

        with ProgressBar():
            return lazy.compute()
    show(future, notebook=False)
    return future.result()


def transform(model: OnlinePCA, collection: Any) -> Any:
    """Coordinates of the rows along the components of a fitted model.

    Parameters
    ----------
    model : OnlinePCA
    collection : dask array (n, D), dask dataframe, or list of delayed blocks

    Returns
    -------
    dask array (n, n_components_)
        Lazy. The number of rows is unknown (NaN) if the collection does not know its own.
    """
    delayed = _dask().delayed
    from dask import array

    parts = partitions(collection)
    rows = collection.chunks[0] if hasattr(collection, "chunks") else (np.nan,) * len(parts)
    K, dtype = model.n_components_, model.components_.dtype
    shared = delayed(model)
    blocks = [
        array.from_delayed(delayed(_transform_part, pure=True)(shared, part), shape=(n, K), dtype=dtype, meta=np.empty((0, K), dtype=dtype))
        for n, part in zip(rows, parts, strict=True)
    ]
    return array.concatenate(blocks, allow_unknown_chunksizes=True)
