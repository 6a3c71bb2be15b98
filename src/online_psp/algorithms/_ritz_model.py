"""Rank-K models ``Bᵀ M B``, and the small dense steps that keep their grading: directions may differ by 1e10 in size and lose nothing."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import eigh, lapack, qr, solve_triangular, svd

from online_psp.engine.blas import full_gram, matmul
from online_psp.engine.row_products import centred
from online_psp.engine.rows import AnyRows, SparseRows
from online_psp.engine.sparse_store import SparseStore
from online_psp.engine.types import Array, Floats

RANGE = 1e-8
"""Of the variances kept, within which eigenvectors of inner products are trusted."""
SMALLEST = float(np.finfo(np.float64).tiny)


class Model(NamedTuple):
    """``Bᵀ M B``: B (k, D) with orthonormal rows, M (k, k); `drift` bounds what rounding has added to ``B Bᵀ − I``.

    While rows are sparse B is in a store of its own kind, which moves in place.
    """

    B: Array | SparseStore
    M: Floats
    drift: float
    total: float | None = None
    """Mean square of the rows, what was left out of them included; None where it is not followed, and no floor is taken."""

    @property
    def k(self) -> int:
        return self.B.K if isinstance(self.B, SparseStore) else len(self.B)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.B.V.dtype if isinstance(self.B, SparseStore) else self.B.dtype

    def basis(self) -> Array:
        """B as an array, (k, D), which is not to be changed."""
        return self.B.read() if isinstance(self.B, SparseStore) else self.B

    def floor(self, D: int) -> float:
        """Variance that rows so far are taken to have along any one direction outside of B: the mean of what was left out."""
        if self.total is None or not self.k < D:
            return 0.0
        lost = self.total - float(self.M.trace())
        return lost / (D - self.k) if lost > math.sqrt(np.finfo(self.dtype).eps) * self.total else 0.0  # or it is rounding

    def own(self, rows: AnyRows) -> tuple[Model, AnyRows]:
        """The same model and the same rows, free to be changed by `advance`."""
        if not isinstance(rows, SparseRows) or rows.sums is None:
            return self._replace(B=self.basis()), rows
        before, after = rows.sums, rows.sums.copy()
        rows = rows[:]
        rows.sums = after
        fits = isinstance(self.B, SparseStore) and self.B.sums is before
        return self._replace(B=self.B.copy(after) if fits and isinstance(self.B, SparseStore) else self.basis()), rows


def rounding(variances: Floats, dtype: np.dtype[Any]) -> float:
    """Variance along any one direction that may be rounding alone, given those of directions found in double precision, largest first.

    Numbers of the given dtype are off by ``eps/√12`` of their size, root mean square, and all of them together by as much of the total; the
    decomposition is off by some roundings of the largest direction, in double precision.
    """
    if not len(variances):
        return 0.0
    decomposed = (64.0 * np.finfo(np.float64).eps) ** 2 * float(variances[0])
    return max(decomposed, float(np.finfo(dtype).eps) ** 2 / 12.0 * float(variances.sum()))


def principal(model: Model, K: int) -> tuple[Array, Floats]:
    """K ordered directions, (K, D), with their variances; beyond those known, an orthonormal completion without variance."""
    B, M = model.basis(), model.M
    k, D = B.shape
    components, found = B, np.zeros(K)
    if k:
        _, values, directions = svd(
            root(M), check_finite=False
        )  # and not the eigenvectors of M, whose errors are those of its largest entries
        components, found[:k] = matmul(directions.astype(B.dtype), B), values**2
    if k < K:
        filled = np.zeros((K, D), dtype=B.dtype)
        filled[:k] = components
        Q, R = qr(filled.T, mode="economic", check_finite=False)
        filled = np.ascontiguousarray((Q * np.where(np.diag(R) < 0, -1.0, 1.0)).T, dtype=B.dtype)
        filled[:k] = components
        components = filled
    return components, found


def leading(model: Model, count: int) -> tuple[Array, Floats] | None:
    """The first `count` directions, (count, D), with their variances, quicker than all of them and to half of the digits.

    None where fewer are known, or their variances differ too much for that.
    """
    B, k = model.basis(), model.k
    if count > k:
        return None
    values, vectors = eigh(model.M, subset_by_index=(k - count, k - 1), check_finite=False)
    if len(values) < count or not values[0] > RANGE * values[-1]:
        return None
    return matmul(np.ascontiguousarray(vectors.T[::-1], dtype=B.dtype), B), values[::-1].copy()


def graded_cholesky(A: Floats) -> tuple[Floats, Floats, float]:
    """Scaling d, the upper Cholesky factor of ``diag(d) A diag(d)``, which has a unit diagonal, and its smallest squared pivot, 0 where
    there is none. Only the upper half of A is read.
    """
    diagonal = A.diagonal()
    if not len(A) or not (diagonal > 0).all():
        return A, A, 0.0
    d: Floats = 1.0 / np.sqrt(diagonal)
    scaled = np.multiply(A, d, order="F")
    scaled *= d[:, np.newaxis]
    U, failed = lapack.dpotrf(scaled, lower=0, clean=1, overwrite_a=1)
    return d, U, 0.0 if failed else float(U.diagonal().min()) ** 2


def root(M: Floats) -> Floats:
    """S with ``Sᵀ S = M``, with the grading of M."""
    if not len(M):
        return np.zeros((0, 0))
    d, U, pivot = graded_cholesky(M)
    if pivot > 1e-8:
        return U / d
    values, vectors = eigh(M)
    return np.asarray(np.sqrt(np.maximum(values, 0.0))[:, np.newaxis] * vectors.T)


def orthonormal(B: Array, M: Floats) -> tuple[Array, Floats]:
    """B made orthonormal anew, in order, so that the first rows move least, and M in the new coordinates."""
    exact: Any = B.astype(np.float64, copy=False)
    for _ in range(2):
        H = full_gram(np.ascontiguousarray(exact))
        off = float(np.abs(H - np.eye(len(H))).max(initial=0.0))
        d, U, pivot = graded_cholesky(H)
        if pivot < 1e-6:  # not met by the steps above; Householder is the last resort
            Q, W = np.linalg.qr(exact.T)
            return np.ascontiguousarray(Q.T, dtype=B.dtype), np.asarray(W @ M @ W.T)
        U = U / d  # H = Uᵀ U, B = Uᵀ Q, so that M in the coordinates of Q is U M Uᵀ
        exact = np.ascontiguousarray(solve_triangular(U, exact, trans=1, check_finite=False))
        M = matmul(matmul(U, M), U.T)
        if off < 1e-6:
            break
    return exact.astype(B.dtype, copy=False), 0.5 * (M + M.T)


def weighted(rows: AnyRows, roots: Floats) -> Floats:
    return np.asarray(centred(rows, np.dtype(np.float64)) * roots[:, np.newaxis])
