"""Metrics of a basis: how far it is from another, and how much of the data it explains. Pure functions of arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import eigh, svdvals

from online_psp.engine.types import Array, Floats


def orthonormal(U: ArrayLike, name: str = "U") -> Floats:
    """An orthonormal basis, (D, K), of the span of the columns of U, which must be independent."""
    Q, rank = _factored(U, name)
    if rank < Q.shape[1]:
        raise ValueError(f"The {Q.shape[1]} columns of {name} span only {rank} dimensions: they are no basis.")
    return Q


def spanned(U: ArrayLike, name: str = "U") -> Floats:
    """An orthonormal basis, (D, r), of the span of the columns of U, whatever its dimension r."""
    Q, rank = _factored(U, name)
    if rank == Q.shape[1]:
        return Q
    columns = _columns(U, name)
    sizes = np.linalg.norm(columns, axis=0)
    return np.asarray(np.linalg.svd(columns / np.where(sizes > 0, sizes, 1.0), full_matrices=False)[0][:, :rank])


def _factored(U: ArrayLike, name: str = "U") -> tuple[Floats, int]:
    """The orthonormal factor of U, (D, K), and how many of its columns are independent up to rounding, whatever their lengths."""
    columns = _columns(U, name)
    Q, R = np.linalg.qr(columns)
    sizes = np.linalg.norm(R, axis=0)
    values = svdvals(R / np.where(sizes > 0, sizes, 1.0)) if R.size else np.zeros(0)
    return Q, int(np.sum(values > len(columns) * np.finfo(np.float64).eps))


def _columns(U: ArrayLike, name: str) -> Floats:
    basis = np.asarray(U)
    if basis.dtype.kind not in "fiub":
        raise ValueError(f"{name} must be real numbers; got {basis.dtype}.")
    if basis.ndim != 2 or basis.shape[0] < basis.shape[1]:
        raise ValueError(f"{name} must be a basis as columns, shape (D, K) with K ≤ D; got shape {basis.shape}.")
    if not np.isfinite(basis).all():
        raise ValueError(f"{name} must be finite.")
    return _without_units(basis.astype(np.float64, copy=False))


def _without_units(columns: Floats) -> Floats:
    """The columns, (D, K), those whose squares would overflow or vanish multiplied by a power of two: what they span stays the same."""
    largest = np.abs(columns).max(axis=0, initial=0.0)
    extreme = (largest > 0) & ((largest > 1e100) | (largest < 1e-100))
    return np.ldexp(columns, np.where(extreme, -np.frexp(largest)[1], 0)) if extreme.any() else columns


def _orthonormal_pair(U: ArrayLike, V: ArrayLike) -> tuple[Floats, Floats]:
    one, two = orthonormal(U), orthonormal(V, "V")
    if len(one) != len(two):
        raise ValueError(f"U and V must have the same number of features; got {len(one)} and {len(two)}.")
    return one, two


def subspace_error(U: ArrayLike, V: ArrayLike) -> float:
    """``‖P_U − P_V‖_F / ‖P_V‖_F`` for the projections on two subspaces of equal dimension.

    Parameters
    ----------
    U, V : (D, K)
        Bases as columns; they need not be orthonormal.

    Returns
    -------
    float
        0 for equal subspaces, ``sqrt(2)`` for orthogonal ones.

    Notes
    -----
    Computed as ``sqrt(2/K) ‖U − V Vᵀ U‖_F``, which is accurate down to 1e-15. The equivalent ``sqrt(2 − 2‖UᵀV‖²/K)`` is not: it bottoms
    out at 1e-8.
    """
    one, two = _orthonormal_pair(U, V)
    if one.shape != two.shape:
        raise ValueError(f"U and V must have the same dimension; got {one.shape[1]} and {two.shape[1]}.")
    return orthonormal_error(one, two)


def orthonormal_error(U: Floats, V: Floats) -> float:
    """``‖P_U − P_V‖_F / ‖P_V‖_F`` for orthonormal bases, (D, r) and (D, K); nothing is checked."""
    outside = float(np.linalg.norm(U - V @ (V.T @ U)))
    if U.shape == V.shape:
        return float(np.sqrt(2.0 / U.shape[1])) * outside
    missed = float(np.linalg.norm(V - U @ (U.T @ V)))
    return float(np.hypot(outside, missed) / np.sqrt(V.shape[1]))


def principal_angles(U: ArrayLike, V: ArrayLike) -> Floats:
    """Angles between two subspaces in radians, smallest first; accurate for small angles too.

    Parameters
    ----------
    U, V : (D, K), (D, L)

    Returns
    -------
    (min(K, L),)
    """
    one, two = _orthonormal_pair(U, V)
    if one.shape[1] > two.shape[1]:
        one, two = two, one
    sines = np.sort(svdvals(one - two @ (two.T @ one)))
    cosines = -np.sort(-svdvals(two.T @ one))
    angles: Floats = np.where(sines < np.sqrt(0.5), np.arcsin(np.minimum(sines, 1.0)), np.arccos(np.minimum(cosines, 1.0)))
    return angles


def explained_variance_fraction(U: ArrayLike, X: ArrayLike, center: bool = True) -> float:
    """The share of the variance of the rows of X that lies in the span of U.

    Parameters
    ----------
    U : (D, K)
    X : (n, D)
    center : bool
        Whether to subtract the mean of the rows first.
    """
    basis, rows = orthonormal(U), np.asarray(X, dtype=np.float64)
    if center:
        rows = rows - rows.mean(axis=0)
    total = float(np.sum(rows * rows))
    return float(np.sum((rows @ basis) ** 2)) / total if total > 0 else 1.0


def gram_matrix(X: ArrayLike) -> Floats:
    """The smaller of ``Xᵀ X`` and ``X Xᵀ``."""
    rows = np.asarray(X, dtype=np.float64)
    n, D = rows.shape
    return rows @ rows.T if n < D else rows.T @ rows


def batch_components(X: ArrayLike, K: int, gram: Floats | None = None) -> Floats:
    """The top-K eigenvectors of ``Xᵀ X``, (D, K), largest first: the batch solution to compare an online algorithm with.

    X is not centred. The smaller of its two Gram matrices is decomposed; pass it as `gram` if it is known.
    """
    rows = np.asarray(X, dtype=np.float64)
    n, D = rows.shape
    if gram is None:
        gram = gram_matrix(rows)
    top = eigh(gram, subset_by_index=(max(0, len(gram) - K), len(gram) - 1))[1][:, ::-1]
    if n >= D:
        return np.asarray(top)
    Q, R = np.linalg.qr(rows.T @ top)
    return np.asarray(Q * np.where(np.diag(R) < 0, -1.0, 1.0))


def check_directions(X: Array, V: Floats) -> None:
    """Raise a ValueError if the rows, (n, D), do not vary along all columns of V, (D, K)."""
    along = np.linalg.norm(X @ V, axis=0)
    K, found = V.shape[1], int(np.sum(along > 1e-12 * max(float(along.max()), 1e-300))) if along.max() > 0 else 0
    if found < K:
        directions = "direction" if found == 1 else "directions"
        raise ValueError(f"The data has {found} {directions}, fewer than K={K}, so the best K are not determined.")


def standardize(X: ArrayLike) -> Array:
    """The paper's preparation of the data: subtract the mean, divide by the mean norm of a centred sample."""
    rows: Any = np.array(X, dtype=np.float64)
    rows -= rows.mean(axis=0)
    norm = float(np.mean(np.linalg.norm(rows, axis=1)))
    if norm > 0:
        rows /= norm
    return np.asarray(rows)
