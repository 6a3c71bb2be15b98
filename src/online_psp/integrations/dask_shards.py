"""The worker's side of `dask_columns`: the columns of the weights that one worker holds, and the requests that it answers."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import issparse

from online_psp.engine.rows import SparseRows
from online_psp.engine.sparse_store import SparseStore
from online_psp.engine.store import DenseStore, Store
from online_psp.engine.types import Array, Floats


class Shard:
    """The columns of one worker: a store of its part of the basis, and the number of the last request."""

    def __init__(self, basis: Array) -> None:
        self.store: Store = DenseStore(basis, 0)
        self.dtype = basis.dtype
        self.number = 0
        self.answer: tuple[Floats, Floats] | None = None

    def apply(self, operations: list[tuple[str, tuple[Any, ...]]]) -> None:
        """Call methods of the store, in order."""
        for name, arguments in operations:
            getattr(self.store, name)(*arguments)

    def load(self, rows: Any) -> tuple[Floats, Floats]:
        """Compress a block of rows, dense or sparse."""
        sparse = issparse(rows)
        if sparse != isinstance(self.store, SparseStore):
            basis = self.store.read()
            self.store = SparseStore(basis, None) if sparse else DenseStore(basis, 0)
        own: Any = SparseRows(rows.tocsr().astype(self.dtype)) if sparse else np.ascontiguousarray(rows, dtype=self.dtype)
        return self.store.compress(own)


_SHARDS: dict[str, Shard] = {}


def first_gram(chunk: Any, K: int) -> Floats:
    """Inner products of the first K rows."""
    first = chunk[:K].toarray() if issparse(chunk) else np.asarray(chunk[:K])
    first = first.astype(np.float64)
    return np.asarray(first @ first.T)


def is_finite(chunk: Any) -> bool:
    """Whether all values of a chunk are finite."""
    return bool(np.isfinite(chunk.data if issparse(chunk) else chunk).all())


def begin(name: str, chunk: Any, A: Floats, seed: tuple[int, int], dtype: Any) -> tuple[Floats, Floats]:
    """Start from ``W = A [first rows; random rows]``; the shape of A, (K, K + missing), says how many random rows are needed.

    Returns
    -------
    H, P : (K, K)
        The shard's part of ``W Wᵀ``, and of the first rows' products with W.
    """
    K = len(A)
    first = (chunk[:K].toarray() if issparse(chunk) else np.asarray(chunk[:K])).astype(np.float64)
    random = np.random.default_rng(seed).standard_normal((A.shape[1] - K, first.shape[1]))
    _SHARDS[name] = Shard((A @ np.concatenate([first, random])).astype(dtype))
    return own_gram(name), np.asarray(first @ _held(name).store.read().astype(np.float64).T)


def own_gram(name: str) -> Floats:
    """The shard's part of ``W Wᵀ``, (K, K)."""
    basis = _held(name).store.read().astype(np.float64)
    return np.asarray(basis @ basis.T)


def _held(name: str) -> Shard:
    if name not in _SHARDS:
        raise RuntimeError("This worker no longer holds its columns, because it was restarted; start the fit anew.")
    return _SHARDS[name]


def request(name: str, number: int, operations: list[Any], chunk: Any, start: int, stop: int) -> tuple[Floats, Floats] | None:
    """Update the shard, and compress rows of a chunk, if there is one; a repeated request gets the same answer."""
    shard = _held(name)
    if number == shard.number:
        return shard.answer
    if number != shard.number + 1:
        raise RuntimeError(f"Request {number} came to a worker that had answered request {shard.number}; start the fit anew.")
    shard.apply(operations)
    shard.answer = None if chunk is None else shard.load(chunk[start:stop])
    shard.number = number
    return shard.answer


def read(name: str, A: Floats | None) -> Array:
    """The shard's columns of W, or of ``A W``."""
    store = _held(name).store
    return store.read() if A is None else store.times(A)


def forget(name: str) -> None:
    """Delete the shard."""
    _SHARDS.pop(name, None)
