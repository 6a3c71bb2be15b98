"""The exact steps of `online_psp.algorithms.block`: everything is decomposed."""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg import eigh, lapack, qr, svd

from online_psp.algorithms._ritz_model import RANGE, Model, graded_cholesky, orthonormal, root, weighted
from online_psp.engine.blas import full_gram, matmul
from online_psp.engine.row_products import combined, products
from online_psp.engine.rows import AnyRows
from online_psp.engine.types import Floats


def exactly(model: Model, rows: AnyRows, roots: Floats, K: int) -> Model:
    """The same for rows in double precision, by decomposing everything."""
    dtype, eps = model.dtype, float(np.finfo(model.dtype).eps)
    B, M = model.basis().astype(np.float64, copy=False), model.M
    if len(B) and (model.drift > 0 or dtype != np.float64):
        B, M = orthonormal(B, M)
    found = _inside(B, M, rows, roots, eps) if 0 < len(B) < K else None
    diagonal = M.diagonal()
    if found is None and (not len(M) or diagonal.min() >= 0.01 * RANGE * diagonal.max()):
        found = _from_products(B, M, rows, roots, K)
    if found is None:
        found = _carefully(B, M, weighted(rows, roots), K, eps)
    return Model(found[0].astype(dtype, copy=False), found[1], 0.0)


def _inside(B: Floats, M: Floats, rows: AnyRows, roots: Floats, eps: float) -> tuple[Floats, Floats] | None:
    """Data of few directions: where nothing of the rows is outside the span of B but rounding, only M moves; None otherwise."""
    X = weighted(rows, roots)
    P = matmul(X, B.T)
    rest = X - matmul(P, B)
    if not (np.einsum("ij,ij->i", rest, rest) <= (32.0 * eps) ** 2 * np.einsum("ij,ij->i", X, X)).all():
        return None
    same = M + matmul(P.T, P)
    return (B, same) if graded_cholesky(same)[2] > 1e-6 else None


def _from_products(B: Floats, M: Floats, rows: AnyRows, roots: Floats, K: int) -> tuple[Floats, Floats] | None:
    """From the Gram matrix of the stacked rows ``[S B; X]``; None where the range of sizes is too large for it."""
    k, n = len(B), len(B) + len(rows)
    S = root(M)
    P, G = products(rows, B)
    stacked = np.empty((n, n), order="F")
    stacked[:k, :k] = matmul(S, S.T)
    stacked[k:, :k] = matmul(P * roots[:, np.newaxis], S.T) if k else 0.0
    stacked[k:, k:] = G * roots * roots[:, np.newaxis]
    keep = min(K, n)
    values, vectors = eigh(stacked, check_finite=False, overwrite_a=True, driver="evd")  # all of them take half the time of some
    values, vectors = values[::-1][:keep], vectors[:, ::-1][:, :keep]
    if not values[0] > 0 or values[-1] < RANGE * values[0]:
        return None
    vectors = vectors / np.sqrt(values)
    new = combined(rows, B, matmul(vectors[:k].T, S), np.ascontiguousarray(vectors[k:].T) * roots)
    M = np.diag(values)
    return orthonormal(new, M) if values[-1] < 1e-3 * values[0] else (new, M)


def _carefully(B: Floats, M: Floats, X: Floats, K: int, eps: float) -> tuple[Floats, Floats]:
    """For any range of sizes: nothing is squared across rows of different size, and rounding does not become a direction."""
    k, (b, D) = len(B), X.shape
    norms = np.sqrt(np.einsum("ij,ij->i", X, X))
    P, rest = np.zeros((b, k)), X
    if k:
        for _ in range(2):
            more = matmul(rest, B.T)
            rest = rest - matmul(more, B)
            P += more
    lengths = np.sqrt(np.einsum("ij,ij->i", rest, rest))
    floor = max(4.0 * np.finfo(np.float64).eps * math.sqrt(D), 8.0 * eps)
    live = np.flatnonzero(lengths > floor * norms)
    L = np.zeros((b, 0))
    if len(live):
        factor = _triangle(rest[live] / lengths[live, np.newaxis], floor)
        L = np.zeros((b, len(factor)))
        L[live] = lengths[live, np.newaxis] * factor.T
    F = np.zeros((k + b, k + L.shape[1]))
    F[:k, :k], F[k:, :k], F[k:, k:] = root(M), P, L
    if min(F.shape) == 0:
        return B, M
    left, values, right = svd(F, full_matrices=False, check_finite=False)
    kept = int((values[:K] > 1e-14 * math.sqrt(len(F)) * values[0]).sum()) if values[0] > 0 else 0
    T = left[k:, :kept] / values[:kept]
    T[lengths <= floor * norms] = 0.0
    new = matmul(np.ascontiguousarray(T.T), rest)
    if k:
        new += matmul(np.ascontiguousarray(right[:kept, :k]), B)
    return orthonormal(new, np.diag(values[:kept] ** 2))


def _triangle(rows: Floats, floor: float) -> Floats:
    """R of ``rowsᵀ = Q R`` for rows of unit length, without the directions that only rounding has."""
    U, failed = lapack.dpotrf(full_gram(rows), lower=0, clean=1)
    if not failed and U.diagonal().min() >= 1e-4:
        return np.asarray(U)
    R, order = qr(rows.T, mode="r", pivoting=True, check_finite=False)  # nearly dependent rows: nothing squared
    R = R[: min(R.shape)]
    known = int((np.abs(R.diagonal()) > floor * abs(R[0, 0])).sum())
    return np.asarray(R[:known, np.argsort(order)])
