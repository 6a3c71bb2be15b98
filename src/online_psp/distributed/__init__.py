"""OnlinePCA on many machines: the engine that holds the rows maps `learn` over its partitions and merges the models in a tree.

>>> import dask.array as da
>>> from online_psp import OnlinePCA, distributed
>>> rows = da.random.default_rng(0).standard_normal((4000, 64), chunks=(1000, 64))
>>> model = distributed.fit(rows, OnlinePCA(4))
>>> distributed.transform(rows, model).compute().shape
(4000, 4)
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from online_psp.distributed.parts import Columns, check_half_life, reduce, unpacked
from online_psp.pca import OnlinePCA

__all__ = ["fit", "reduce", "score", "transform"]

_ADAPTERS = {"dask": "dask", "pyspark": "spark", "ray": "ray"}


def _adapter(collection: Any) -> Any:
    """The module for the engine that a collection belongs to."""
    part = collection[0] if isinstance(collection, list) and collection else collection
    engine = type(part).__module__.partition(".")[0]
    if engine not in _ADAPTERS:
        raise TypeError(
            "Rows must be a Dask array, frame, bag or list of delayed blocks, a Spark DataFrame or a Ray Dataset; "
            f"got {type(part).__module__}.{type(part).__name__}."
        )
    return importlib.import_module(f"{__name__}.{_ADAPTERS[engine]}")


def fit(
    collection: Any, model: OnlinePCA, *, features: str | Sequence[str] | None = None, weights: Any = None, times: Any = None
) -> OnlinePCA:
    """Learn from rows spread over partitions, wherever their engine keeps them.

    Parameters
    ----------
    collection : Dask array (n, D), frame, bag of rows or list of delayed blocks; Spark DataFrame; Ray Dataset
        Blocks of Dask may be sparse. In tables, features are one column each, or one column of arrays (or of Spark's vectors, dense or
        sparse).
    model : OnlinePCA
        Its parameters are used; the model itself does not change.
    features : str or sequence of str, optional
        Columns of a table to learn from; by default all but those of `weights` and `times`.
    weights, times : str, Dask array (n,) or list of delayed blocks, optional
        As `sample_weight` and `times` of `OnlinePCA.partial_fit`: the name of a column of a table; for a Dask array another array;
        for a list of blocks another list. Times must not go back within a partition; partitions may overlap.

    Returns
    -------
    OnlinePCA
        Fitted. Every partition is learned by a model of its own, and neighbours are merged in a tree, in the order of the partitions.
        Means, counts and variances of the features are exact; for the components, see `OnlinePCA.merge`.
    """
    check_half_life(model)
    return unpacked(_adapter(collection).fit(collection, clone(model), Columns(features, weights, times)))


def transform(collection: Any, model: OnlinePCA, *, features: str | Sequence[str] | None = None, column: str = "pca") -> Any:
    """Coordinates of the rows along the components of a fitted model; nothing is computed until the engine is asked to.

    Parameters
    ----------
    collection, features
        As in `fit`; by default the columns that the model knows by name.
    model : OnlinePCA
    column : str
        Name of the new column of a Spark DataFrame or a Ray Dataset.

    Returns
    -------
    Dask array (n, n_components_), or the Spark DataFrame or Ray Dataset with one more column
    """
    return _apply(collection, model, "transform", features, column)


def score(collection: Any, model: OnlinePCA, *, features: str | Sequence[str] | None = None, column: str = "score") -> Any:
    """Log-likelihood of every row, as `OnlinePCA.score_samples`; the arguments are those of `transform`.

    Returns
    -------
    Dask array (n,), or the Spark DataFrame or Ray Dataset with one more column
    """
    return _apply(collection, model, "score_samples", features, column)


def _apply(collection: Any, model: OnlinePCA, method: str, features: str | Sequence[str] | None, column: str) -> Any:
    check_is_fitted(model)
    if features is None and hasattr(collection, "columns"):
        features = getattr(model, "feature_names_in_", None)
    return _adapter(collection).apply(collection, model, method, Columns(features), column)
