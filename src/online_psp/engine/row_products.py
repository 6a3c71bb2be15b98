"""Products of rows of any kind (dense, sparse, another library's) with a basis in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.sparse import vstack

from online_psp.engine.blas import add_product, matmul, row_products
from online_psp.engine.csr import scatter_add
from online_psp.engine.libraries import to_host
from online_psp.engine.row_sums import squares_and_sums
from online_psp.engine.rows import AnyRows, ArrayRows, DenseRows, SparseRows
from online_psp.engine.sparse_store import Compressed, SparseStore, compress
from online_psp.engine.symmetric import fill_upper
from online_psp.engine.types import Array, Floats


def products(rows: AnyRows, B: Array | SparseStore) -> tuple[Floats, Floats]:
    """``X Bᵀ`` (n, K) and all of ``X Xᵀ`` (n, n), in double precision; sparse rows are centred by their own sums."""
    if isinstance(B, SparseStore):
        assert isinstance(rows, SparseRows)
        return B.compress(rows)
    if isinstance(rows, SparseRows):
        block = _compressed(rows, B)
        S = np.zeros(rows.D) if rows.sums is None else rows.sums.vector
        return block.centred_products(matmul(B.astype(np.float64, copy=False), S)), block.centred_gram(float(S @ S))
    if isinstance(rows, ArrayRows):
        there = rows.library.of(B)
        P, G = (to_host(each).astype(np.float64, copy=False) for each in (rows.X @ there.T, rows.X @ rows.X.T))
        return P, G
    P, G = row_products(rows.dense(B.dtype), B)
    fill_upper(G)
    return P, G


def basis_products(rows: DenseRows | ArrayRows, B: Array) -> Floats:
    """``X Bᵀ``, (n, K), in double precision, an array of its own."""
    if isinstance(rows, ArrayRows):
        return np.array(to_host(rows.X @ rows.library.of(B).T), dtype=np.float64)
    return matmul(rows.dense(B.dtype), B.T).astype(np.float64, copy=False)


def squares_and_sums_of(rows: DenseRows | ArrayRows, factors: Floats, summed: int) -> tuple[Floats, Array]:
    """``‖x‖²`` of n rows, (n,), in double precision, and sums of so many rows each, (⌈n/summed⌉, D), all of them times their factors."""
    n, count = len(rows), -(-len(rows) // summed)
    if isinstance(rows, ArrayRows):
        which = np.zeros((count, n))
        which[np.arange(n) % count, np.arange(n)] = factors
        return squares(rows), np.asarray(to_host(rows.library.of(which) @ rows.X))
    X = np.ascontiguousarray(rows.X)
    lengths, sums = np.empty(n), np.empty((count, X.shape[1]), X.dtype)
    squares_and_sums(X, factors.astype(X.dtype), lengths, sums)
    return lengths, sums


def squares(rows: AnyRows) -> Floats:
    """``‖x‖²`` of every row, (n,), in double precision; sparse rows are centred by their own sums."""
    if isinstance(rows, SparseRows):
        S = np.zeros(rows.D) if rows.sums is None else rows.sums.vector
        return np.asarray(_compressed(rows, np.zeros((0, rows.D))).centred_gram(float(S @ S)).diagonal())
    if isinstance(rows, ArrayRows):
        return np.asarray(to_host(rows.library.xp.sum(rows.X * rows.X, axis=1)), dtype=np.float64)
    return np.asarray(np.einsum("ij,ij->i", rows.X, rows.X, dtype=np.float64))


def combined(rows: AnyRows, B: Array | SparseStore, A: Floats, C: Floats) -> Any:
    """``A B + C X``, (K, D), a new array; sparse rows are centred by their own sums.

    If B is a store, it has the products of these rows, and moves in place.
    """
    if isinstance(B, SparseStore):
        B.move(A, C)
        return B
    if isinstance(rows, ArrayRows):
        of = rows.library.of
        return np.asarray(to_host(of(A) @ of(B) + of(C) @ rows.X), dtype=B.dtype)
    if isinstance(rows, DenseRows):
        X = rows.dense(B.dtype)
        new = matmul(np.ascontiguousarray(A, dtype=B.dtype), B)
        add_product(new, 1.0, C, X)
        return new
    centring = _compressed(rows, B[:0]).centring
    CL, Cl = centring.right(C)
    V = matmul(B.T, np.ascontiguousarray(A.T, dtype=B.dtype))
    if rows.sums is not None:
        V -= np.outer(rows.sums.vector, Cl).astype(B.dtype)
    V = np.ascontiguousarray(V)
    scatter_add(rows.indptr, rows.indices, rows.data, np.ascontiguousarray(CL.T), V)
    return np.ascontiguousarray(V.T)


def centred(rows: AnyRows, dtype: np.dtype[Any]) -> Array:
    """The rows as a dense array, (n, D); sparse rows are centred by their own sums."""
    if isinstance(rows, SparseRows):
        return _compressed(rows, np.zeros((0, rows.D))).centred_rows(dtype)
    return rows.dense(dtype)


def widened(rows: AnyRows) -> AnyRows:
    """The rows in double precision; rows of another library are copied to NumPy."""
    if isinstance(rows, SparseRows):
        wide = rows[:]
        wide.data = rows.data.astype(np.float64, copy=False)
        return wide
    return DenseRows(rows.dense(np.dtype(np.float64)))


def joined(parts: Sequence[AnyRows]) -> AnyRows:
    """Rows of one kind, concatenated; sparse rows keep their weights, and the running sum of the first part."""
    first = parts[0]
    if len(parts) == 1:
        return first
    if isinstance(first, SparseRows):
        weights = np.concatenate([part.weights for part in parts if isinstance(part, SparseRows)])
        return SparseRows(vstack([part.matrix() for part in parts if isinstance(part, SparseRows)], format="csr"), weights, first.sums)
    if isinstance(first, ArrayRows):
        xp = first.library.xp
        return ArrayRows(xp.concat([part.X for part in parts if isinstance(part, ArrayRows)], axis=0), first.library.dtype)
    return DenseRows(np.concatenate([part.X for part in parts if isinstance(part, DenseRows)]))


def _compressed(rows: SparseRows, B: Array) -> Compressed:
    return compress(rows, np.ascontiguousarray(B.T), np.full(rows.D, -1))
