"""The covariance of few features, whole: as a matrix, or as its root where directions differ too much in size for squares.

A matrix of squares can resolve a direction only if its variance is above 1e-16 of the largest one. One row of 1e9, or two columns that are
nearly the same clock, exceed that range. A triangular root resolves directions whose *deviations* are within it, as would a decomposition
of the rows themselves; adding rows to it takes two to three times as long.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import blas, lapack, qr, svd

from online_psp.engine.blas import matmul
from online_psp.engine.eigen import largest
from online_psp.engine.types import Array, Floats
from online_psp.pca.directions import leading_of_rows
from online_psp.pca.model import Covariance

FEW = 6
"""Largest number of features, in multiples of the directions kept, whose covariance is kept whole: it is no larger than a few bases."""
_GROWN = 4.0  # factor by which a covariance may grow before it is checked again
_RANGE = 1e-8  # range of variances within which squares give directions to seven digits
_STRIP = 32  # columns eliminated at a time


def with_rows(past: Covariance, rows: Array, keep: float, wanted: int) -> Covariance:
    """The covariance after the scatter of rows, (n, D), has been added to `keep` times the past.

    Parameters
    ----------
    wanted : int
        Directions that have to be told apart, if there are as many.
    """
    rows = rows.astype(np.float64, copy=False)
    if past.is_root:
        return past._replace(matrix=_root_with_rows(past.matrix, rows, keep))
    matrix = keep * past.matrix
    if len(rows):
        matrix = blas.dsyrk(1.0, rows.T, beta=1.0, c=matrix, lower=1, overwrite_c=1)
    return checked(past, matrix, wanted) or Covariance(_root_with_rows(root_of(past.matrix), rows, keep), True)


def checked(past: Covariance, matrix: Floats, wanted: int) -> Covariance | None:
    """The matrix, of which only the lower half is read, as a covariance; None if squares cannot tell this many directions of it."""
    largest = float(matrix.diagonal().max(initial=0.0))
    if largest <= _GROWN * past.checked:
        return past._replace(matrix=matrix)
    told = int(lapack.dpstrf(matrix, tol=_RANGE * largest, lower=1)[2])
    return Covariance(matrix, False, largest) if told >= wanted else None


def merged(one: Covariance, two: Covariance, shares: tuple[float, float], between: Floats, wanted: int) -> Covariance:
    """The average of two covariances by their shares, plus ``between betweenᵀ``."""
    if not (one.is_root or two.is_root):
        matrix = np.asfortranarray(shares[0] * one.matrix + shares[1] * two.matrix + np.outer(between, between))
        found = checked(Covariance(matrix), matrix, wanted)
        if found is not None:
            return found
    rows = np.vstack([np.sqrt(shares[1]) * whole_root(two), between])
    return Covariance(_root_with_rows(whole_root(one), rows, shares[0]), True)


def whole_root(covariance: Covariance) -> Floats:
    return covariance.matrix if covariance.is_root else root_of(covariance.matrix)


def symmetric(covariance: Covariance) -> Floats:
    """The covariance itself, (D, D), both halves."""
    if covariance.is_root:
        return np.asarray(matmul(covariance.matrix.T, covariance.matrix))
    return np.tril(covariance.matrix) + np.tril(covariance.matrix, -1).T


def principal(covariance: Covariance, rank: int, divisors: Floats | None) -> tuple[Floats, Floats]:
    """The leading directions, (k, D), and their variances, (k,), of features divided by `divisors`, (D,), if these are given."""
    if covariance.is_root:
        root = covariance.matrix if divisors is None else covariance.matrix / divisors
        directions, variances = leading_of_rows(root, rank)
        if len(variances) < rank or variances[-1] < _RANGE**2 * variances[0]:
            directions, variances = _of_root(root, rank)
        return directions, variances
    matrix = covariance.matrix if divisors is None else covariance.matrix / divisors / divisors[:, np.newaxis]
    values, vectors = largest(matrix, rank)
    features = matrix.diagonal()
    if values[0] < _RANGE * values[-1] and features[features > 0].min(initial=np.inf) < _RANGE * features.max():
        return _of_root(root_of(matrix), rank)
    return np.ascontiguousarray(vectors.T[::-1]), np.maximum(values[::-1], 0.0)


def leading_variances(covariance: Covariance, rank: int, divisors: Floats | None) -> Floats:
    """The variances that `principal` finds, (rank,), to the accuracy of squares, without the directions, which take longer."""
    if covariance.is_root:
        return principal(covariance, rank, divisors)[1]
    matrix = covariance.matrix if divisors is None else covariance.matrix / divisors / divisors[:, np.newaxis]
    return np.asarray(np.maximum(np.linalg.eigvalsh(matrix)[::-1][:rank], 0.0))  # the lower half is read


def root_of(matrix: Floats) -> Floats:
    """The upper triangular R, (D, D), with ``Rᵀ R`` equal to the matrix, of which only the lower half is read."""
    D = len(matrix)
    if not matrix.any():
        return np.zeros((D, D), order="F")
    factor, order, rank, _ = lapack.dpstrf(matrix, lower=1)
    root = np.zeros((D, D))
    root[:rank, order - 1] = np.tril(factor)[:, :rank].T
    return np.asfortranarray(qr(root, mode="r", check_finite=False)[0])


def _root_with_rows(root: Floats, rows: Floats, keep: float) -> Floats:
    """The root after rows, (n, D), have been added to `keep` times the covariance."""
    updated = lapack.dtpqrt(0, min(_STRIP, len(root)), np.sqrt(keep) * root, np.asfortranarray(rows))[0]
    return np.asarray(np.triu(updated), order="F")


def _of_root(root: Floats, rank: int) -> tuple[Floats, Floats]:
    """The leading directions, (rank, D), and their variances, (rank,), from a root of the covariance.

    With the largest features first, a triangular root is graded, and small features keep digits that large ones would take from them.
    """
    order = np.argsort(-np.einsum("ij,ij->j", root, root), kind="stable")
    directions: Floats = np.empty_like(root)
    _, found, directions[:, order] = svd(qr(root[:, order], mode="r", check_finite=False)[0], check_finite=False)
    return directions[:rank], found[:rank] ** 2
