"""The cheapest step of `online_psp.algorithms.block`, for streams that have become calm: no inner products of rows are needed.

With ``P = X̂ Bᵀ`` and ``S = M + Pᵀ P``, the covariance C of the model and the block is approximated from its image of B,

    N = S⁻¹ (B C) = S⁻¹ (M B + Pᵀ X̂),    C ≈ Nᵀ S N,

which is the approximation of Nyström: one subspace iteration, and the variances of its result up to ``(‖R‖/λ)²``, R being the inner
products of what the rows have outside of B and λ the smallest eigenvalue of S. With ``N Nᵀ = Vᵀ V``, ``B ← V⁻ᵀ N`` is orthonormal and
``M ← V S Vᵀ``.

Whether ``‖R‖ ≤ c λ`` is found on sums of four rows with random signs. Along any one direction such sums have the energy of the rows (by
Johnson and Lindenstrauss), and they have more of what the rows do not share, so that the norm of their inner products is overestimated
where it is not found. A single row is compared by itself.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.linalg import blas, eigh, lapack

from online_psp.algorithms._ritz_fast import exceeds, frobenius, plan_for, smallest
from online_psp.algorithms._ritz_model import RANGE, Model, graded_cholesky
from online_psp.engine.blas import add_product, full_gram, gram, matmul, minus_gram
from online_psp.engine.rows import AnyRows, DenseRows
from online_psp.engine.symmetric import fill_upper
from online_psp.engine.types import Array, Floats

_CALM = 0.15  # largest ‖R‖, in multiples of the smallest eigenvalue kept (docs/adr/0012)
_SUMMED = 4  # rows of a sum


def try_calm(model: Model, rows: AnyRows, roots: Floats) -> Model | None:
    """The model after all rows, or None where one subspace iteration may not be enough, or these are not dense rows in NumPy."""
    B, M = model.B, model.M
    if not isinstance(rows, DenseRows) or not isinstance(B, np.ndarray) or rows.X.dtype != B.dtype:
        return None
    X, eps = rows.X, float(np.finfo(B.dtype).eps)
    diagonal = M.diagonal()
    if diagonal.min() < RANGE * diagonal.max():
        return None
    P: Floats = matmul(X, B.T).astype(np.float64, copy=False)
    P *= roots[:, np.newaxis]
    plan = plan_for(M, P)
    if plan is None:
        return None
    limit = _CALM * smallest(plan.d, plan.inverse)
    lengths = roots**2 * np.einsum("ij,ij->i", X, X, dtype=np.float64)
    outside = lengths - np.einsum("ij,ij->i", P, P)
    unsure = 16.0 * eps * lengths.sum()  # the differences may be off by rounding
    if outside.max() + unsure > limit or (outside.sum() + unsure > limit and _sums_exceed(X, P, roots, limit - unsure)):
        return None
    N = matmul(blas.dsymm(1.0, plan.inverse, M, side=0).astype(B.dtype, copy=False), B)
    add_product(N, 1.0, (plan.T * roots[:, np.newaxis]).T, X)
    V, failed = lapack.dpotrf(full_gram(N.astype(np.float64, copy=False)), lower=0, clean=1, overwrite_a=1)
    if failed:
        return None
    trsm = blas.dtrsm if B.dtype == np.float64 else blas.strsm
    trsm(1.0, V.astype(B.dtype, copy=False), N.T, side=1, overwrite_b=1)
    fill_upper(plan.S.T)
    M = blas.dtrmm(1.0, V, plan.S)
    M = blas.dtrmm(1.0, V, M, side=1, trans_a=1, overwrite_b=1)
    M = 0.5 * (M + M.T)
    if graded_cholesky(M)[2] < 0.1:  # the coordinates no longer follow the sizes of the directions: turn them
        values, vectors = eigh(M, driver="evd")
        N, M = matmul(vectors[:, ::-1].T.astype(B.dtype, order="C", copy=False), N), np.diag(values[::-1])
    return Model(N, M, 4.0 * eps, calm=True)


def _sums_exceed(X: Array, P: Floats, roots: Floats, limit: float) -> bool:
    """Whether inner products of what sums of rows have outside of B, with coordinates P in it, have an eigenvalue above the limit."""
    n = len(X)
    count, signs = -(-n // _SUMMED), _signs(n)
    sums, inside = np.zeros((count, X.shape[1]), X.dtype), np.zeros((count, P.shape[1]))
    factors = (signs * roots).astype(X.dtype)[:, np.newaxis]
    for start in range(0, n, count):
        part = slice(start, min(n, start + count))
        size = part.stop - start
        sums[:size] += factors[part] * X[part]
        inside[:size] += signs[part, np.newaxis] * P[part]
    R = minus_gram(gram(sums).astype(np.float64, copy=False), inside)
    fill_upper(R)
    return frobenius(R) > limit and exceeds(R, limit)


@lru_cache(maxsize=16)
def _signs(n: int) -> Floats:
    """n signs without a pattern, always the same."""
    bits = np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(1.0 - 2.0 * (bits >> np.uint64(63)).astype(np.float64))
