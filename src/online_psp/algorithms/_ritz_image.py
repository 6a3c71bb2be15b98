"""The cheapest steps of `online_psp.algorithms.block`: from what the block makes of the basis, without inner products of rows.

With ``P = X̂ Bᵀ`` and ``S = M + Pᵀ P``, the covariance C of the model and the block is approximated from its image of B,

    N = S⁻¹ (B C) = S⁻¹ (M B + Pᵀ X̂),    C ≈ Nᵀ S N,

which is the approximation of Nyström: one subspace iteration, and the variances of its result up to ``(‖R‖/λ)²``, R being the inner
products of what the rows have outside of B and λ the smallest eigenvalue of S. Since ``N Bᵀ = I``, a second iteration is the same again,
with ``X̂ Nᵀ`` in place of P. With ``N Nᵀ = Vᵀ V`` at the end, ``B ← V⁻ᵀ N`` is orthonormal and ``M ← V S Vᵀ``.

Where ``‖R‖ < λ``, no direction of the block, seen before or not, belongs among those kept. ‖R‖ is found on sums of four rows with random
signs. Along any one direction such sums have the energy of the rows (by Johnson and Lindenstrauss), and they have more of what the rows do
not share, so that the norm of their inner products is overestimated where it is not found. Sums of two overestimate it less, and are looked
at where that may change what is done. A single row is compared by itself.

Inner products of sparse rows cost little, and their basis is not at hand as an array: there the same is found from R, as
``X̂ Nᵀ = P + R P S⁻¹``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from scipy.linalg import blas, eigh, lapack

from online_psp.algorithms._ritz_fast import Plan, Turn, frobenius, moved, norm, plan_for, smallest
from online_psp.algorithms._ritz_model import RANGE, Model, graded_cholesky
from online_psp.engine.blas import full_gram, gram, matmul, minus_gram
from online_psp.engine.row_products import basis_products, combined, products, squares_and_sums_of
from online_psp.engine.rows import AnyRows, ArrayRows, DenseRows, SparseRows
from online_psp.engine.symmetric import fill_upper, scale_gram
from online_psp.engine.types import Array, Floats

# Constants, chosen on other data than the tests' (docs/adr/0012).
_CALM = 0.15  # largest ‖R‖ for one iteration, in multiples of the smallest eigenvalue kept
_SAFE = 0.9  # and for two
_TIGHTER = 1.7  # times that sums of two rows may overestimate less than those of four


def try_image(model: Model, rows: AnyRows, roots: Floats) -> tuple[Model | None, float]:
    """The model after all rows, or None where two subspace iterations may not be enough, or are not accurate enough.

    Also ‖R‖ in multiples of the smallest eigenvalue kept, up to three times as large as it is; 0 where it was not looked at.
    """
    diagonal = model.M.diagonal()
    if diagonal.min() < RANGE * diagonal.max():
        return None, 0.0
    return _from_inner_products(model, rows, roots) if isinstance(rows, SparseRows) else _from_image(model, rows, roots)


def _from_image(model: Model, rows: DenseRows | ArrayRows, roots: Floats) -> tuple[Model | None, float]:
    B, eps = model.basis(), float(np.finfo(model.dtype).eps)
    plan, P = _planned(model.M, rows, B, roots)
    if plan is None:
        return None, 0.0
    signs = _signs(len(rows))
    lengths, sums = squares_and_sums_of(rows, signs * roots, 4)
    within, inside = squares_and_sums_of(DenseRows(P), signs, 4)

    def of_sums(summed: int) -> Floats:
        if summed == 4:
            return _residual(sums, inside)
        return _residual(squares_and_sums_of(rows, signs * roots, summed)[1], squares_and_sums_of(DenseRows(P), signs, summed)[1])

    lengths *= roots**2
    reach = _reach(lengths - within, 16.0 * eps * float(lengths.sum()), plan, of_sums)
    if reach > _SAFE:
        return None, reach
    N = _image(model, rows, roots, plan)
    if reach > _CALM:
        plan, P = _planned(model.M, rows, N, roots)
        if plan is None:
            return None, 0.0
        N = _image(model, rows, roots, plan)
    V, failed = lapack.dpotrf(full_gram(N.astype(np.float64, copy=False)), lower=0, clean=1, overwrite_a=1)
    if failed:
        return None, 0.0
    trsm = blas.dtrsm if B.dtype == np.float64 else blas.strsm
    N = trsm(1.0, V.astype(B.dtype, copy=False), N.T, side=1, overwrite_b=1).T
    M, turn = _covariance(plan, V)
    return Model(N if turn is None else matmul(turn.astype(B.dtype, copy=False), N), M, 4.0 * eps), reach


def _planned(M: Floats, rows: DenseRows | ArrayRows, B: Array, roots: Floats) -> tuple[Plan | None, Floats]:
    """S and what follows from it, with P, (n, k)."""
    P = basis_products(rows, B)
    P *= roots[:, np.newaxis]
    return plan_for(M, P), P


def _image(model: Model, rows: DenseRows | ArrayRows, roots: Floats, plan: Plan) -> Array:
    """N, (k, D)."""
    image: Array = combined(rows, model.basis(), blas.dsymm(1.0, plan.inverse, model.M), plan.T.T * roots)
    return image


def _reach(outside: Floats, lost: float, plan: Plan, of_sums: Callable[[int], Floats]) -> float:
    """‖R‖ in multiples of the smallest eigenvalue, mostly an overestimate; infinite if a row alone is too large.

    Parameters
    ----------
    outside : (n,)
        Squares of what each row has outside of B.
    lost : float
        What rounding may have taken from R.
    plan : Plan
    of_sums : callable
        R of sums of so many rows.
    """
    least, one = smallest(plan.d, plan.inverse), float(outside.max())
    if one + lost > _SAFE * least:
        return math.inf
    bound = float(outside.sum())
    if bound + lost > _CALM * least:
        R = of_sums(4)
        bound = max(one, frobenius(R))
        if bound + lost > _CALM * least:
            bound = max(one, norm(R))
    reach = (bound + lost) / least
    if _CALM < reach <= _TIGHTER * _CALM or _SAFE < reach <= _TIGHTER * _SAFE:
        reach = (max(one, norm(of_sums(2))) + lost) / least
    return reach


def _residual(sums: Array, inside: Floats) -> Floats:
    """Inner products of what sums of rows have outside of B."""
    R = minus_gram(gram(sums).astype(np.float64, copy=False), inside)
    fill_upper(R)
    return R


def _from_inner_products(model: Model, rows: SparseRows, roots: Floats) -> tuple[Model | None, float]:
    eps = float(np.finfo(model.dtype).eps)
    P, G = products(rows, model.B)
    lengths = roots**2 * np.maximum(G.diagonal(), 0.0)
    R = minus_gram(G, P)
    scale_gram(R, roots)
    P = P * roots[:, np.newaxis]
    plan = plan_for(model.M, P)
    if plan is None:
        return None, 0.0
    reach = _reach(R.diagonal(), 16.0 * eps * float(lengths.sum()), plan, lambda summed: _summed(R, summed))
    if reach > _SAFE:
        return None, reach
    if reach > _CALM:
        plan = plan_for(model.M, P + matmul(R, plan.T))
        if plan is None:
            return None, 0.0
    noise = eps * float(np.sqrt(lengths) @ plan.sizes) ** 2
    A, C = blas.dsymm(1.0, plan.inverse, model.M), plan.T.T
    F = A + matmul(C, P)  # N = F B + C (X − P B)
    V, failed = lapack.dpotrf(matmul(F, F.T) + matmul(C, matmul(R, plan.T)), lower=0, clean=1)
    if failed or noise >= np.sqrt(eps):
        return None, 0.0
    A, C = blas.dtrsm(1.0, V, A, trans_a=1), blas.dtrsm(1.0, V, C, trans_a=1)
    M, turn = _covariance(plan, V)
    if turn is not None:
        A, C = matmul(turn, A), matmul(turn, C)
    return moved(model, rows, roots, Turn(A, C, M, plan.sizes), noise), reach


def _summed(R: Floats, summed: int) -> Floats:
    """Inner products of sums of so many rows, given those of the rows."""
    n, signs = len(R), _signs(len(R))
    count = -(-n // summed)
    padded = np.zeros((summed * count, summed * count))
    padded[:n, :n] = signs[:, np.newaxis] * R * signs
    return np.asarray(padded.reshape(summed, count, summed, count).sum(axis=(0, 2)))


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


@lru_cache(maxsize=16)
def _signs(n: int) -> Floats:
    """n signs without a pattern, always the same."""
    bits = np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(1.0 - 2.0 * (bits >> np.uint64(63)).astype(np.float64))
