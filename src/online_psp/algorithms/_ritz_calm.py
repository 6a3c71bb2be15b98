"""The cheapest step of `online_psp.algorithms.block`, for streams that have become calm: no inner products of rows are needed.

With ``P = X̂ Bᵀ`` and ``S = M + Pᵀ P``, the covariance C of the model and the block is approximated from its image of B,

    N = S⁻¹ (B C) = S⁻¹ (M B + Pᵀ X̂),    C ≈ Nᵀ S N,

which is the approximation of Nyström: one subspace iteration, and the variances of its result up to ``(‖R‖/λ)²``, R being the inner
products of what the rows have outside of B and λ the smallest eigenvalue of S. With ``N Nᵀ = Vᵀ V``, ``B ← V⁻ᵀ N`` is orthonormal and
``M ← V S Vᵀ``.

Whether ``‖R‖ ≤ c λ`` is found on sums of four rows with random signs. Along any one direction such sums have the energy of the rows (by
Johnson and Lindenstrauss), and they have more of what the rows do not share, so that the norm of their inner products is overestimated
where it is not found. A single row is compared by itself.

Inner products of sparse rows cost little, and their basis is not at hand as an array: the same step is found from those.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.linalg import blas, eigh, lapack

from online_psp.algorithms._ritz_fast import Plan, Turn, exceeds, frobenius, moved, plan_for, smallest
from online_psp.algorithms._ritz_model import RANGE, Model, graded_cholesky
from online_psp.engine.blas import full_gram, gram, matmul, minus_gram
from online_psp.engine.row_products import basis_products, combined, products, squares_and_sums_of
from online_psp.engine.row_sums import SUMMED
from online_psp.engine.rows import AnyRows, ArrayRows, DenseRows, SparseRows
from online_psp.engine.symmetric import fill_upper, scale_gram
from online_psp.engine.types import Floats

_CALM = 0.15  # largest ‖R‖, in multiples of the smallest eigenvalue kept (docs/adr/0012)


def try_calm(model: Model, rows: AnyRows, roots: Floats) -> Model | None:
    """The model after all rows, or None where one subspace iteration may not be enough."""
    diagonal = model.M.diagonal()
    if diagonal.min() < RANGE * diagonal.max():
        return None
    if isinstance(rows, SparseRows):
        return _from_inner_products(model, rows, roots)
    return _from_image(model, rows, roots)


def _from_image(model: Model, rows: DenseRows | ArrayRows, roots: Floats) -> Model | None:
    B, eps = model.basis(), float(np.finfo(model.dtype).eps)
    P = basis_products(rows, B)
    P *= roots[:, np.newaxis]
    plan = plan_for(model.M, P)
    if plan is None:
        return None
    signs = _signs(len(rows))
    lengths, sums = squares_and_sums_of(rows, signs * roots)
    lengths *= roots**2
    within, inside = squares_and_sums_of(DenseRows(P), signs)
    outside, limit = lengths - within, _limit(plan, lengths, eps)
    if outside.max() > limit:
        return None
    if outside.sum() > limit:
        R = minus_gram(gram(sums).astype(np.float64, copy=False), inside)
        fill_upper(R)
        if frobenius(R) > limit and exceeds(R, limit):
            return None
    N = combined(rows, B, blas.dsymm(1.0, plan.inverse, model.M), plan.T.T * roots)
    V, failed = lapack.dpotrf(full_gram(N.astype(np.float64, copy=False)), lower=0, clean=1, overwrite_a=1)
    if failed:
        return None
    trsm = blas.dtrsm if B.dtype == np.float64 else blas.strsm
    N = trsm(1.0, V.astype(B.dtype, copy=False), N.T, side=1, overwrite_b=1).T
    M, turn = _covariance(plan, V)
    return Model(N if turn is None else matmul(turn.astype(B.dtype, copy=False), N), M, 4.0 * eps, calm=True)


def _from_inner_products(model: Model, rows: SparseRows, roots: Floats) -> Model | None:
    eps = float(np.finfo(model.dtype).eps)
    P, G = products(rows, model.B)
    lengths = roots**2 * np.maximum(G.diagonal(), 0.0)
    R = minus_gram(G, P)
    scale_gram(R, roots)
    P = P * roots[:, np.newaxis]
    plan = plan_for(model.M, P)
    if plan is None:
        return None
    outside, limit = R.diagonal(), _limit(plan, lengths, eps)
    if outside.max() > limit or (outside.sum() > limit and _sums_exceed(R, limit)):
        return None
    noise = eps * float(np.sqrt(lengths) @ plan.sizes) ** 2
    H = np.eye(model.k) + matmul(plan.T.T, matmul(R, plan.T))
    V, failed = lapack.dpotrf(H, lower=0, clean=1)
    if failed or noise >= np.sqrt(eps):
        return None
    A = blas.dtrsm(1.0, V, blas.dsymm(1.0, plan.inverse, model.M), trans_a=1)
    C = blas.dtrsm(1.0, V, plan.T.T, trans_a=1)
    M, turn = _covariance(plan, V)
    if turn is not None:
        A, C = matmul(turn, A), matmul(turn, C)
    return moved(model, rows, roots, Turn(A, C, M, plan.sizes, 0.0), noise)


def _limit(plan: Plan, lengths: Floats, eps: float) -> float:
    """Largest norm of R for the step; squares of lengths, (n,), tell what rounding may have taken from it."""
    return _CALM * smallest(plan.d, plan.inverse) - 16.0 * eps * float(lengths.sum())


def _covariance(plan: Plan, V: Floats) -> tuple[Floats, Floats | None]:
    """``V S Vᵀ``, and a turn of its coordinates, (k, k), where they no longer follow the sizes of the directions."""
    fill_upper(plan.S.T)
    M = blas.dtrmm(1.0, V, plan.S)
    M = blas.dtrmm(1.0, V, M, side=1, trans_a=1, overwrite_b=1)
    M = 0.5 * (M + M.T)
    if graded_cholesky(M)[2] >= 0.1:
        return M, None
    values, vectors = eigh(M, driver="evd")
    return np.diag(values[::-1]), np.ascontiguousarray(vectors[:, ::-1].T)


def _sums_exceed(R: Floats, limit: float) -> bool:
    """Whether sums of rows have inner products with an eigenvalue above the limit, given those of the rows."""
    n, signs = len(R), _signs(len(R))
    count = -(-n // SUMMED)
    padded = np.zeros((SUMMED * count, SUMMED * count))
    padded[:n, :n] = signs[:, np.newaxis] * R * signs
    summed = padded.reshape(SUMMED, count, SUMMED, count).sum(axis=(0, 2))
    return frobenius(summed) > limit and exceeds(summed, limit)


@lru_cache(maxsize=16)
def _signs(n: int) -> Floats:
    """n signs without a pattern, always the same."""
    bits = np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(1.0 - 2.0 * (bits >> np.uint64(63)).astype(np.float64))
