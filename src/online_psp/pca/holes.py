"""What a probabilistic PCA model says about rows of which only some values are observed.

The model is a Gaussian with the variances λ along k orthonormal directions B (k, D), and the noise σ² along all others. With
ℓ = sqrt(λ − σ²), a centred row x is ``Bᵀ ℓ z`` plus noise, with z standard normal. For a row with the observed set Ω and
``G = B_Ω B_Ωᵀ``::

    A = ℓ G ℓ + σ² I            z = A⁻¹ ℓ B_Ω x_Ω         covariance of z: σ² A⁻¹

and the missing values are expected to be ``Bᵀ ℓ z``. Their *spread* around this, in the coordinates of B, has the covariance
``σ² (H ℓ A⁻¹ ℓ H + H)``, ``H = I − G``. Without it, filled rows would have too little variance.

A costs O(min(|Ω|, D − |Ω|) k²) and its factorisation O(k³), once for all rows that lack the same values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

from online_psp.engine.blas import matmul
from online_psp.engine.checks import sum_of_squares
from online_psp.engine.libraries import to_host
from online_psp.engine.rows import AnyRows, ArrayRows, SparseRows
from online_psp.engine.types import Array, Floats

Mask = NDArray[np.bool_]

_LEAST_NOISE = 1e-10  # relative to the largest variance: less noise cannot be told from rounding when systems are solved


class Gaussian(NamedTuple):
    """A probabilistic PCA model."""

    directions: Floats
    """(k, D), orthonormal rows."""
    variances: Floats
    """(k,), noise included."""
    noise: float

    @property
    def floor(self) -> float:
        """The noise, kept away from zero."""
        return max(self.noise, _LEAST_NOISE * float(self.variances.max(initial=0.0)), float(np.finfo(np.float64).tiny) * 1e20)

    @property
    def lengths(self) -> Floats:
        """ℓ, (k,)"""
        return np.sqrt(np.maximum(self.variances - self.floor, 0.0))


class Group(NamedTuple):
    """Rows with the same values missing, and their small arrays."""

    rows: NDArray[np.intp]
    size: int
    """Number of values observed in each row."""
    inside: Floats
    """(k, k): G"""
    inverse: Floats
    """(k, k), lower triangular R with ``Rᵀ R = A⁻¹``."""


class Expected(NamedTuple):
    """What the model expects of some rows, given their observed values."""

    along: Floats
    """(n, k): coordinates in the directions, ``ℓ z``"""
    rows: Floats
    """(n, D): ``Bᵀ ℓ z``, centred."""
    distances: Floats
    """(n,): δ² of the observed values, zero if there are none."""
    counts: Floats
    """(n,): number of values observed."""
    noise: Floats
    """(n,): squares of the noise that each row is expected to have in its observed values, the spread of z included."""
    log_determinants: Floats
    """(n,): log of the determinant of the covariance of what is observed."""


def patterns(observed: Mask) -> Iterator[NDArray[np.intp]]:
    """Groups of rows, (n, D), that lack the same values, in the order of the first row of each; yields the numbers of their rows."""
    packed = np.packbits(observed, axis=1)
    keys = packed.view(np.dtype((np.void, packed.shape[1]))).ravel()
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(which, kind="stable")
    ends = np.concatenate([[0], np.cumsum(np.bincount(which, minlength=len(first)))])
    for number in np.argsort(first):
        yield order[ends[number] : ends[number + 1]]


def inside_of(directions: Floats, seen: Mask) -> Floats:
    """G, (k, k), for directions, (k, D), and what is observed, (D,)."""
    return _inside(np.ascontiguousarray(directions.T), seen, int(seen.sum()))


def _inside(columns: Floats, seen: Mask, count: int) -> Floats:
    """G from the observed or from the missing features, whichever are fewer."""
    D, k = columns.shape
    if 2 * count <= D:
        return _products(columns[seen])
    inside: Floats = -_products(columns[~seen]) if count < D else np.zeros((k, k))
    inside.flat[:: k + 1] += 1.0
    return inside


def groups(model: Gaussian, observed: Mask) -> Iterator[Group]:
    """Groups of rows by what is observed, (n, D), with the systems to solve; rows without observed values are left out."""
    directions, lengths, noise = model.directions, model.lengths, model.floor
    k = len(directions)
    columns = np.ascontiguousarray(directions.T)
    for at in patterns(observed):
        seen = observed[at[0]]
        count = int(seen.sum())
        if not count:
            continue
        inside = _inside(columns, seen, count)
        A = inside * lengths * lengths[:, np.newaxis]
        A.flat[:: k + 1] += noise
        factor, failed = lapack.dpotrf(A, lower=1, clean=1)
        if failed:  # only rounding can be the reason: the noise is above what rounding adds
            A.flat[:: k + 1] += 1e-8 * float(A.diagonal().max())
            factor, failed = lapack.dpotrf(A, lower=1, clean=1)
        inverse, _ = lapack.dtrtri(factor, lower=1)
        yield Group(at, count, inside, inverse)


def _products(columns: Floats) -> Floats:
    """``columnsᵀ columns``, (k, k), for (number of features, k)."""
    lower = blas.dsyrk(1.0, columns.T, lower=1)
    return np.asarray(np.tril(lower) + np.tril(lower, -1).T)


def expect(model: Gaussian, rows: Floats, observed: Mask, weights: Floats | None = None) -> tuple[Expected, Floats]:
    """What is expected of centred rows, and the spread, (k, k), of what is missing, summed with weights.

    Parameters
    ----------
    model : Gaussian
    rows : (n, D)
        Values that are not observed are not read.
    observed : (n, D)
    weights : (n,), optional
        Weights of the rows in the spread; without them, no spread is computed.
    """
    directions, lengths, noise = model.directions, model.lengths, model.floor
    (k, D), n = directions.shape, len(rows)
    known = np.where(observed, rows, 0.0)
    inner = matmul(known, directions.T) * lengths
    z, trace, counts, determinants = np.zeros((n, k)), np.full(n, k / noise), np.zeros(n), np.zeros(n)
    spread = np.zeros((k, k), order="F")
    for group in groups(model, observed):
        at = group.rows
        z[at] = matmul(matmul(inner[at], group.inverse.T), group.inverse)
        counts[at] = group.size
        trace[at] = float(np.vdot(group.inverse, group.inverse))
        determinants[at] = (group.size - k) * np.log(noise) - 2.0 * float(np.log(group.inverse.diagonal()).sum())
        if weights is not None and group.size < D:
            outside = -group.inside
            outside.flat[:: k + 1] += 1.0
            weight = float(weights[at].sum())
            through = matmul(group.inverse, outside * lengths[:, np.newaxis])
            spread = blas.dsyrk(weight * noise, np.asfortranarray(through), beta=1.0, c=spread, trans=1, lower=1, overwrite_c=1)
            spread += weight * noise * outside
    along = z * lengths
    expected = matmul(along, directions)
    rest = np.where(observed, known - expected, 0.0)
    left = np.einsum("ij,ij->i", rest, rest)
    within = np.einsum("ij,ij->i", z, z)
    distances = np.where(counts > 0, within + left / noise, 0.0)
    spread = np.tril(spread) + np.tril(spread, -1).T
    found = Expected(along, expected, distances, counts, left + noise * (k - noise * trace) * (counts > 0), determinants)
    return found, spread


def log_likelihoods(found: Expected) -> Floats:
    """Log-likelihood of the observed values of each row, (n,); zero if there are none."""
    return np.where(found.counts > 0, -0.5 * (found.counts * np.log(2.0 * np.pi) + found.log_determinants + found.distances), 0.0)


def fill(model: Gaussian, rows: Floats, observed: Mask) -> Floats:
    """Centred rows, (n, D), with missing values replaced by what is expected."""
    return np.where(observed, rows, expect(model, rows, observed)[0].rows)


def first_hole(rows: AnyRows) -> int:
    """Number of rows before the first with a missing value."""
    if isinstance(rows, SparseRows):
        bad = np.isnan(rows.data[rows.indptr[0] : rows.indptr[-1]])
        return int(np.searchsorted(rows.indptr, int(np.argmax(bad)) + rows.indptr[0], side="right")) - 1 if bad.any() else len(rows)
    values = to_host(rows.X) if isinstance(rows, ArrayRows) else rows.X
    if np.isfinite(sum_of_squares(values)):  # one quick pass
        return len(rows)
    missing = np.isnan(values).any(axis=1)
    return int(np.argmax(missing)) if missing.any() else len(rows)


def observed_in(rows: Array) -> Mask:
    """Which values are not NaN, (n, D)."""
    return ~np.isnan(rows)


def fitted_along(shown: Floats, observed: Floats, seen: NDArray[np.bool_]) -> Floats:
    """Coordinates, (K,), of the row that is nearest to the observed values of another, among all rows in the span of `shown`.

    Parameters
    ----------
    shown : (K, D)
        Rows that may be scaled; coordinates of a whole row x are ``shown x``.
    observed : (number of values observed,)
        Observed values of the other row.
    seen : (D,)
        Which values are observed.
    """
    if not seen.any() or not len(shown):
        return np.zeros(len(shown))
    basis = np.linalg.pinv(shown).T  # turns coordinates into rows
    return np.asarray(np.linalg.lstsq(basis[:, seen].T, observed, rcond=1e-6)[0])
