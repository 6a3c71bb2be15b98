"""A covariance matrix represented by a triangular root, for data whose directions differ too much in size for squares.

A matrix of squares can resolve a direction only if its variance is above 1e-16 of the largest one. One row of 1e9, or two columns that are
nearly the same clock, exceed that range. The root resolves directions whose *deviations* are within it, as would a decomposition of the
rows themselves. Adding rows to it takes two to three times as long.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigh, lapack, qr, svd

from online_psp.engine.types import Floats

_RANGE = 1e-8  # range of variances within which squares give directions to seven digits
_STRIP = 32  # columns eliminated at a time
_JACOBI = 400  # features up to which Jacobi's method is used, which takes ten times as long


def told_by_squares(matrix: Floats, directions: int) -> bool:
    """Whether a covariance matrix, (D, D), has this many directions well above its rounding; only its lower half is read."""
    largest = float(matrix.diagonal().max(initial=0.0))
    if directions < 1 or largest <= 0.0:
        return True
    return int(lapack.dpstrf(matrix, tol=_RANGE * largest, lower=1)[2]) >= directions


def root_of(matrix: Floats) -> Floats:
    """The upper triangular R, (D, D), with ``Rᵀ R`` equal to the matrix, of which only the lower half is read."""
    D = len(matrix)
    if not matrix.any():
        return np.zeros((D, D), order="F")
    factor, order, rank, _ = lapack.dpstrf(matrix, lower=1)
    root = np.zeros((D, D))
    root[:rank, order - 1] = np.tril(factor)[:, :rank].T
    return np.asfortranarray(qr(root, mode="r", check_finite=False)[0])


def with_rows(root: Floats, rows: Floats, keep: float) -> Floats:
    """The root after rows, (n, D), have been added to `keep` times the matrix."""
    updated = lapack.dtpqrt(0, min(_STRIP, len(root)), np.sqrt(keep) * root, np.asfortranarray(rows, dtype=np.float64))[0]
    return np.asarray(np.triu(updated), order="F")


def graded_root(matrix: Floats) -> Floats:
    """A root, (D, D), of a covariance matrix of features in units that differ by many orders of magnitude.

    An entry of the matrix is accurate relative to the sizes of its two features, so these are divided out first.
    """
    sizes = np.sqrt(matrix.diagonal())
    sizes = np.where(sizes > 0, sizes, 1.0)
    values, vectors = eigh(matrix / sizes / sizes[:, np.newaxis], check_finite=False)
    return np.asarray(np.sqrt(np.maximum(values, 0.0))[:, np.newaxis] * vectors.T * sizes)


def directions_of(root: Floats, rank: int) -> tuple[Floats, Floats]:
    """The leading directions, (rank, D), and their variances, (rank,), from a root of the covariance matrix.

    The errors of the usual decomposition are relative to the largest feature, and may exceed a small one. So singular vectors are found by
    Jacobi's method, one pair of columns at a time, whose errors are relative to each column.
    """
    if len(root) <= _JACOBI:
        found, _, turn, work, _, failed = lapack.dgejsv(root, joba=0, jobu=3, jobv=0, jobr=1, jobt=0, jobp=0)
        if not failed:
            return np.ascontiguousarray(turn.T[:rank]), (found[:rank] * (work[0] / work[1])) ** 2
    order = np.argsort(-np.einsum("ij,ij->j", root, root), kind="stable")  # next best: errors relative to the largest deviation
    directions: Floats = np.empty_like(root)
    _, found, directions[:, order] = svd(qr(root[:, order], mode="r", check_finite=False)[0], check_finite=False)
    return directions[:rank], found[:rank] ** 2
