"""The leading directions of ``Bᵀ diag(d) B + σ² (I − Bᵀ B) + Zᵀ Z``: those of a model together with those of a block of rows.

There are two ways. :func:`_image` takes nearly all blocks: Nyström's approximation from the image of the basis, and of a few random
combinations of what the rows Z have outside of it, which bring new directions in. With ``P = Z B₁ᵀ``::

    S = B₁ C B₁ᵀ = [d 0; 0 0] + Pᵀ P          N = B₁ C = [d B; 0] + Pᵀ Z          C ≈ Nᵀ S⁻¹ N

It loses nothing that matters as long as what rows have outside of B₁ is small beside the smallest variance that is *shown*; the directions
kept beyond those are there to be replaced. Where it is not, :func:`_stacked` decomposes the rows ``[sqrt(d) B; Z]`` themselves.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy.linalg import lapack, qr, solve_triangular, svd

from online_psp.engine.blas import full_gram, matmul
from online_psp.engine.eigen import largest
from online_psp.engine.types import Array, Floats

# Constants, chosen on other data than the tests' (docs/adr/0016).
_SKETCHED = 16
"""Random combinations of the residuals."""
_LARGE = 0.5
"""Largest part of a residual, of the smallest variance shown, that may be left to a later block."""
_WEAK = 0.1
"""Smallest part of any sketched direction, of the smallest variance shown, from which on there may be more such directions."""
_CALM = 0.15
"""Sum of the squares of all residuals, of the smallest variance kept, up to which a block brings in nothing new."""
_RANGE = 1e-8
"""Range of variances within which eigenvectors of inner products have at least half of their digits."""


def leading(B: Array, d: Floats, Z: Array, squares: Floats, rank: int, shown: int, noise: float = 0.0) -> tuple[Array, Floats]:
    """Leading directions, (k, D), and variances, (k,), in order, k at most `rank`, and fewer where there are no more.

    Parameters
    ----------
    B : (k, D)
        Orthonormal rows.
    d : (k,)
        Variances along them, in order.
    Z : (n, D)
    squares : (n,)
        ``‖z‖²`` of every row.
    rank, shown : int
        Directions to keep, and how many of them matter.
    noise : float
        Variance of the model along every direction outside of B.
    """
    d = np.maximum(d - noise, 0.0)
    near = reach(B, d, Z, squares, rank, shown)
    found = None if near is None else _image(B, d, Z, near[1], rank)
    directions, variances = _stacked(B, d, Z, rank) if found is None else found
    return directions, variances + noise


@cache
def _signs(count: int, n: int) -> Floats:
    """Random signs, (count, n), the same every time."""
    return np.random.default_rng(11).choice(np.array([-1.0, 1.0]), (count, n))


def reach(B: Array, d: Floats, Z: Array, squares: Floats, rank: int, shown: int) -> tuple[Array, Floats] | None:
    """Directions, (g, D), that the rows have outside of the basis, and products of the rows with both, (n, k + g).

    None where this may overlook a direction. Parameters as of `leading`.
    """
    k, D = B.shape
    if not len(B) or len(B) < min(rank, shown):
        return None
    P = matmul(Z, B.T).astype(np.float64, copy=False)
    weakest_shown = float(d[min(shown, k) - 1])
    outside = np.maximum(squares - np.einsum("ij,ij->i", P, P), 0.0)
    if not outside.max() <= _LARGE * weakest_shown:
        return None
    calm = _CALM * float(d[-1]) if k == rank else 1e-14 * float(d[0])
    if outside.sum() <= calm or k == D:
        return B[:0], P
    Q = _sketch(B, Z, P, min(_SKETCHED, D - k))
    if Q is None:
        return None
    PQ = matmul(Z, Q.T).astype(np.float64, copy=False)
    if np.einsum("ij,ij->j", PQ, PQ).min() > _WEAK * weakest_shown:  # there may be more of them
        return None
    return Q, np.concatenate([P, PQ], axis=1)


def _image(B: Array, d: Floats, Z: Array, P: Floats, rank: int) -> tuple[Array, Floats] | None:
    """Nyström's approximation, given products P with the basis and with new directions; None where rounding does not allow it."""
    k, dtype = len(B), B.dtype
    S = matmul(P.T, P)
    S.flat[: k * (len(S) + 1) : len(S) + 1] += d
    N = matmul(np.ascontiguousarray(P.T, dtype=dtype), Z)
    N[:k] += d[:, np.newaxis].astype(dtype) * B
    factor, failed = lapack.dpotrf(S, lower=1)
    if failed:
        return None
    F = _solved(factor, N)
    directions, variances = _turned(F, rank)
    return None if len(variances) < min(len(F), rank) else (directions, variances)


def _sketch(B: Array, Z: Array, P: Floats, count: int) -> Array | None:
    """Orthonormal combinations, (count, D), of what the rows have outside of B; None if they have less than that."""
    signs = _signs(count, len(Z))
    Y = matmul(signs.astype(B.dtype), Z) - matmul(matmul(signs, P).astype(B.dtype), B)
    Y -= matmul(matmul(Y, B.T), B)
    factor, failed = lapack.dpotrf(full_gram(Y).astype(np.float64), lower=1)
    return None if failed else _solved(factor, Y)


def _solved(factor: Floats, N: Array) -> Array:
    """``L⁻¹ N`` for L lower triangular."""
    return np.ascontiguousarray(solve_triangular(factor.astype(N.dtype, copy=False), N, lower=True, check_finite=False))


def _turned(F: Array, rank: int) -> tuple[Array, Floats]:
    """The leading right singular vectors and squared singular values of F, (m, D), as far as inner products tell them."""
    G = full_gram(F).astype(np.float64, copy=False)
    variances, vectors, _ = lapack.dsyevd(G, lower=1)
    variances, vectors = variances[::-1][:rank], vectors[:, ::-1][:, :rank]
    if not variances[-1] > 1e-10 * variances[0]:
        return F[:0], variances[:0]
    directions = matmul(np.ascontiguousarray((vectors / np.sqrt(variances)).T, dtype=F.dtype), F)
    if variances[-1] < 1e-4 * variances[0] or F.dtype == np.float32:  # remove the rounding errors of small directions
        directions = matmul(1.5 * np.eye(len(directions), dtype=F.dtype) - F.dtype.type(0.5) * full_gram(directions), directions)
    return directions, variances


def _stacked(B: Array, d: Floats, Z: Array, rank: int) -> tuple[Array, Floats]:
    """The leading directions of the rows ``[sqrt(d) B; Z]`` themselves."""
    rows = np.concatenate([np.sqrt(d)[:, np.newaxis] * B.astype(np.float64, copy=False), Z])
    directions, variances = leading_of_rows(rows, rank)
    return directions.astype(B.dtype, copy=False), variances


def leading_of_rows(rows: Floats, rank: int) -> tuple[Floats, Floats]:
    """Leading right singular vectors, (k, D), and squared singular values, (k,), of rows in double precision; k at most `rank`."""
    n, D = rows.shape
    k = min(rank, n, D)
    if not k:
        return np.zeros((0, D)), np.zeros(0)
    values, vectors = largest(full_gram(rows if n <= D else np.ascontiguousarray(rows.T)), k)
    if values[0] > _RANGE * values[-1]:
        values, vectors = values[::-1].copy(), np.ascontiguousarray(vectors[:, ::-1].T)
        if n > D:
            return vectors, values
        directions = matmul(vectors / np.sqrt(values)[:, np.newaxis], rows)
        # Remove the rounding errors from their inner products, without changing the order.
        return _solved(np.linalg.cholesky(full_gram(directions)), directions), values
    if n <= D:
        Q, R = qr(rows.T, mode="economic", check_finite=False)
        left, values, _ = svd(R, full_matrices=False, check_finite=False)
        directions = np.ascontiguousarray(matmul(Q, left[:, :k]).T)
    else:
        _, values, directions = svd(rows, full_matrices=False, check_finite=False)
    known = values[:k] > 1e-14 * values.max(initial=0.0)
    return directions[:k][known], values[:k][known] ** 2
