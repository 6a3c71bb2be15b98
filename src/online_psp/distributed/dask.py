"""Dask arrays, frames, bags and lists of delayed blocks. A task is a function of its partition: if a worker dies, it runs again."""

from __future__ import annotations

from typing import Any

import numpy as np
from dask import array, delayed
from scipy.sparse import issparse, vstack

from online_psp.distributed.parts import Block, Columns, learn, merge, pack, reduce
from online_psp.engine.types import Array
from online_psp.pca import OnlinePCA

_Rows = tuple[Any, Columns]
"""A partition, and the columns of a frame, or the weights and times of these rows themselves."""


def fit(collection: Any, model: OnlinePCA, columns: Columns) -> bytes:
    """The packed model of all partitions."""
    template = delayed(model)
    parts = [delayed(_learn)(template, rows, part) for part, rows in enumerate(_rows(collection, columns))]
    found: bytes = reduce(parts, delayed(merge)).compute()
    return found


def apply(collection: Any, model: OnlinePCA, method: str, columns: Columns, column: str) -> Any:
    """A lazy array of what a method of the model returns for every row; it has no column to name."""
    parts, shared = _rows(collection, columns), delayed(model)
    counts = collection.chunks[0] if hasattr(collection, "chunks") else (np.nan,) * len(parts)
    shape, dtype = ((model._n_features_out,), model.components_.dtype) if method == "transform" else ((), np.dtype(np.float64))
    lazy = [
        array.from_delayed(delayed(_applied)(shared, method, rows, shape, dtype), (n, *shape), meta=np.empty((0, *shape), dtype))
        for n, rows in zip(counts, parts, strict=True)
    ]
    return array.concatenate(lazy, allow_unknown_chunksizes=True)


def _learn(template: OnlinePCA, rows: _Rows, part: int) -> bytes:
    return pack(learn(template, map(_block, [rows])), part)


def _applied(model: OnlinePCA, method: str, rows: _Rows, shape: tuple[int, ...], dtype: Any) -> Array:
    X = _block(rows)[0]
    return np.asarray(getattr(model, method)(X), dtype) if X.shape[0] else np.empty((0, *shape), dtype)


def _block(rows: _Rows) -> Block:
    part, (features, weights, times) = rows
    if features is not None:  # names of columns
        return part[features], *(None if name is None else part[name].to_numpy() for name in (weights, times))
    if not hasattr(part, "shape"):  # rows of a bag
        several = list(part)
        part = vstack(several, "csr") if several and issparse(several[0]) else np.array(several, ndmin=2)[: len(several)]
    return part, weights, times


def _rows(collection: Any, columns: Columns) -> list[_Rows]:
    """Delayed partitions, each with where its features, weights and times are."""
    if hasattr(collection, "columns"):
        columns = columns.of(list(collection.columns))
        return [(part, columns) for part in collection.to_delayed()]
    if columns.features is not None or isinstance(columns.weights, str) or isinstance(columns.times, str):
        raise ValueError(f"A {type(collection).__name__} has no columns: features= must be left out, weights= and times= arrays.")
    parts = _parts(collection)
    beside = [[None] * len(parts) if values is None else _beside(values, collection) for values in columns[1:]]
    if any(len(values) != len(parts) for values in beside):
        raise ValueError(f"weights= and times= must have as many partitions as the rows, {len(parts)}.")
    return [(part, Columns(None, *others)) for part, *others in zip(parts, *beside, strict=True)]


def _parts(collection: Any) -> list[Any]:
    """Delayed partitions, one for each row of chunks."""
    if isinstance(collection, list):
        return collection
    if hasattr(collection, "rechunk"):
        if collection.ndim != 2:
            raise ValueError(f"A Dask array must have two dimensions, with samples as rows; got {collection.ndim}.")
        collection = collection if collection.numblocks[1] == 1 else collection.rechunk({1: -1})
    return list(np.ravel(collection.to_delayed()))


def _beside(values: Any, collection: Any) -> list[Any]:
    """Delayed weights or times, in partitions as the rows."""
    if isinstance(values, list):
        return values
    if hasattr(collection, "chunks") and not np.isnan(collection.chunks[0]).any():
        values = array.asarray(values).rechunk(collection.chunks[:1])
    return list(values.to_delayed())
