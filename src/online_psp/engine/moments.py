"""Mean and variances of a stream: exact, in one pass, weighted, and mergeable.

A row of weight w has the share ``s = w/W`` in the weighted average of all rows up to it. W is the sum of the weights so far, in which old
ones have faded if the stream forgets. With μ and V the mean and the covariance before the row, the centred row is
``x̃ = sqrt(1−s) (x − μ)``, and::

    μ ← μ + s (x − μ)
    V ← (1−s) V + s x̃ x̃ᵀ

exactly. An algorithm that learns from x̃ with these shares learns from centred data, without knowing the mean in advance.

The mean is kept as a sum of two parts, ``origin + moved``. The origin is the mean as of row 1, 2, 4, 8, …, and `moved` is how far the mean
has moved since. As one number, a mean that is 1e12 times the deviation (a clock, an identifier) would stop moving, because its steps are
smaller than its rounding error.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from online_psp.engine.compiler import exact_kernel, kernel
from online_psp.engine.csr import column_moments, scatter_sums
from online_psp.engine.libraries import to_host
from online_psp.engine.types import Array, Floats

_LEAST_KEPT = 2.0**-60  # smallest share of all earlier weight that still makes a difference


@kernel
def weigh(weights: Floats, decays: Floats, weight: float, squares: float, shares: Floats) -> tuple[float, float]:
    """Shares of rows in the weighted average up to each of them.

    Parameters
    ----------
    weights : (n,), positive
    decays : (n,) or (1,)
        Factors by which all earlier weights are multiplied when a row arrives.
    weight, squares : float
        Sum of the weights so far, and of their squares.
    shares : (n,), filled

    Returns
    -------
    weight, squares : float
        The same sums, with these rows.
    """
    many = decays.shape[0] > 1
    for i in range(weights.shape[0]):
        decay = decays[i] if many else decays[0]
        weight = decay * weight + weights[i]
        squares = decay * decay * squares + weights[i] * weights[i]
        shares[i] = weights[i] / weight
    return weight, squares


@exact_kernel
def settle(origin: Floats, moved: Floats) -> None:
    """Move the origin to the present mean; the sum of both parts stays the same, to the last bit."""
    for j in range(origin.shape[0]):
        total = origin[j] + moved[j]
        part = total - origin[j]
        moved[j] = (origin[j] - (total - part)) + (moved[j] - part)
        origin[j] = total


@exact_kernel
def _differences(x: Array, unit: float, origin: Floats, moved: Floats, point: Array) -> None:
    """``point = x − mean/unit``. The origin is subtracted first: far from zero, rounding would otherwise destroy a small difference."""
    for j in range(x.shape[0]):
        point[j] = ((unit * x[j] - origin[j]) - moved[j]) / unit


@kernel
def project_one(components: Array, x: Array, origin: Floats, moved: Floats, unit: float, out: Array) -> None:
    """``components (x − mean/unit)``, (K,)."""
    K, D = components.shape
    point = np.empty(D, dtype=components.dtype)
    _differences(x, unit, origin, moved, point)
    for k in range(K):
        total = components.dtype.type(0)
        row = components[k]
        for j in range(D):
            total += row[j] * point[j]
        out[k] = total


def weights_left(shares: Floats) -> tuple[Floats, float]:
    """Weight of each of n rows after the last of them, (n,), and the share that is left of everything before the first."""
    keep = np.cumprod((1.0 - shares)[::-1])[::-1]
    return shares * np.append(keep[1:], 1.0), float(keep[0]) if len(keep) else 1.0


def following(total: float, shares: Floats) -> Floats:
    """Weights, (n,), of rows that follow a total weight, from their shares in the average; finite even if all earlier weight has faded."""
    return np.asarray(total * shares / np.cumprod(np.maximum(1.0 - shares, _LEAST_KEPT)))


@exact_kernel
def center_rows(
    rows: Array, shares: Floats, unit: float, count: int, origin: Floats, moved: Floats, variance: Floats, centred: Array
) -> None:
    """Centre rows, and update the mean and the variance of each feature.

    Parameters
    ----------
    rows : (n, D)
    shares : (n,)
    unit : float
        Factor by which rows are multiplied first.
    count : int
        Number of earlier rows.
    origin, moved, variance : (D,), changed in place
    centred : (n, D), filled
    """
    for i in range(rows.shape[0]):
        row, out, share = rows[i], centred[i], shares[i]
        keep = 1.0 - share
        scale = np.sqrt(keep)
        for j in range(row.shape[0]):
            difference = (unit * row[j] - origin[j]) - moved[j]
            step = share * difference
            moved[j] += step
            variance[j] = keep * (variance[j] + step * difference)
            out[j] = scale * difference
        if (count + i + 1) & (count + i) == 0:
            settle(origin, moved)


@exact_kernel
def scale_rows(rows: Array, shares: Floats, unit: float, variance: Floats, scaled: Array) -> None:
    """Do the same without centring: multiply rows by the unit, and update the mean squares of the features."""
    for i in range(rows.shape[0]):
        row, out, share = rows[i], scaled[i], shares[i]
        keep = 1.0 - share
        for j in range(row.shape[0]):
            value = unit * row[j]
            out[j] = value
            variance[j] = keep * variance[j] + share * (value * value)


class Sums:
    """The running sum of sparse rows, which changes only where rows have entries.

    Attributes
    ----------
    vector : (D,)
        Sum of the rows, each times its weight.
    total : float
        Sum of the weights.
    """

    def __init__(self, mean: Floats, total: float) -> None:
        self.vector: Floats = mean * total if total > 0 else np.zeros_like(mean)
        self.total = total

    @property
    def mean(self) -> Floats:
        return self.vector / self.total if self.total > 0 else np.zeros_like(self.vector)

    def take(self, rows: Any) -> None:
        """Add sparse rows."""
        scatter_sums(rows.indptr, rows.indices, rows.data, rows.weights, self.vector)
        self.total += float(rows.weights.sum())

    def copy(self) -> Sums:
        new = Sums(np.zeros(0), 0.0)
        new.vector, new.total = self.vector.copy(), self.total
        return new

    def fade(self, left: float) -> None:
        """Multiply all weights by `left`; the mean stays the same."""
        self.vector *= left
        self.total *= left


class MeanParts(NamedTuple):
    """A mean in the form in which `Moments` keeps it: a sum of two parts while rows are dense, a running sum while they are sparse."""

    origin: Annotated[Floats, "D"] | None = None
    moved: Annotated[Floats, "D"] | None = None
    sum: Annotated[Floats, "D"] | None = None
    weight: float | None = None


class Moments:
    """Count, weight, mean and variances of the rows seen so far: the only owner of the mean.

    Attributes
    ----------
    count : int
        Number of rows.
    weight, squares : float
        Sum of their weights, which fade if the stream forgets, and sum of the squared weights.
    variance : (D,)
        Weighted mean square of each feature about its mean, or about zero if rows are not centred.
    """

    def __init__(self, D: int) -> None:
        self.count = 0
        self.weight = self.squares = 0.0
        self.variance: Floats = np.zeros(D)
        self.origin: Floats = np.zeros(D)
        self.moved: Floats = np.zeros(D)
        self._sums: Sums | None = None  # in place of the mean, while rows are sparse

    @property
    def mean(self) -> Floats:
        """The mean, (D,), as a new array."""
        return self.origin + self.moved if self._sums is None else self._sums.mean

    @mean.setter
    def mean(self, mean: Floats) -> None:
        self.origin, self.moved, self._sums = mean, np.zeros_like(mean), None

    def parts(self) -> MeanParts:
        """The mean in the form in which it is kept, as copies."""
        if self._sums is None:
            return MeanParts(self.origin.copy(), self.moved.copy())
        return MeanParts(None, None, self._sums.vector.copy(), self._sums.total)

    def mean_parts(self) -> tuple[Floats, Floats]:
        """Its origin and how far it has moved, (D,) each, whose sum is the mean."""
        return (self.origin, self.moved) if self._sums is None else (self._sums.mean, np.zeros_like(self.moved))

    def take_parts(self, parts: MeanParts) -> None:
        """Restore a mean that `parts` has returned."""
        if parts.sum is not None:
            self._sums = Sums(np.zeros(0), 0.0)
            self._sums.vector, self._sums.total = parts.sum.copy(), parts.weight or 0.0
        elif parts.origin is not None and parts.moved is not None:
            self.origin, self.moved, self._sums = parts.origin.copy(), parts.moved.copy(), None

    @property
    def total_variance(self) -> float:
        return float(self.variance.sum())

    def shares(self, weights: Floats, decays: Floats) -> Floats:
        """Count rows; returns the share of each, (n,), in the weighted average up to it."""
        shares = np.empty(len(weights))
        self.weight, self.squares = weigh(weights, decays, self.weight, self.squares, shares)
        self.count += len(weights)
        return shares

    def take_dense(self, rows: Array, shares: Floats, unit: float, center: bool, out: Array | None = None) -> Array:
        """Update mean and variances with rows, (n, D), which `shares` must have counted before; returns them centred, in `out` if given."""
        rows = np.require(rows, requirements=["C", "A", "W"])  # kernels are compiled for such arrays only
        centred: Array = np.empty_like(rows) if out is None else out
        if center:
            self._leave_sums()
            center_rows(rows, shares, unit, self.count - len(rows), self.origin, self.moved, self.variance, centred)
        else:
            scale_rows(rows, shares, unit, self.variance, centred)
        return centred

    def project(self, components: Array, x: Array, unit: float) -> Array:
        """Coordinates, (K,), of a row less the mean, in the units of the row."""
        out: Array = np.empty(len(components), components.dtype)
        project_one(components, x, *self.mean_parts(), unit, out)
        return out

    def _leave_sums(self) -> None:
        """Go back from the running sum to the mean itself, once rows are dense."""
        if self._sums is not None:
            self.mean = self.mean

    def sums(self, total: float) -> Sums:
        """The running sum of the rows so far, of weight `total`, for sparse rows; the algorithm adds them to it, by `Sums.take`."""
        if self._sums is None:
            self._sums = Sums(self.mean, total)
        return self._sums

    def take_sparse(self, matrix: Any, weights: Floats, before: float, center: bool) -> None:
        """Update the variances, but not the mean, with CSR rows; `before` is the total weight of all earlier rows."""
        D = len(self.variance)
        added, means, spread = float(weights.sum()), np.zeros(D), np.zeros(D)
        column_moments(matrix.indptr, matrix.indices, matrix.data, weights, added, center, means, spread)
        total = before + added
        if center:
            spread += before * added / total * (means - self.mean) ** 2
        self.variance = (before * self.variance + spread) / total

    def take_array(self, rows: Any, weights: Floats, before: float, unit: float, center: bool) -> Any:
        """Centre rows of another array library, and update mean and variances; `before` is the total weight of all earlier rows.

        All rows are centred at once, each by the mean of the rows before it. These means come from cumulative sums, computed on the device
        that holds the rows. The sums are taken about the mean of these rows, so that an old mean that has faded costs no digits.
        """
        xp, of = rows.library.xp, rows.library.of
        X = rows.X * unit if unit != 1.0 else rows.X
        after = before + np.cumsum(weights)
        total, added = float(after[-1]), float(weights.sum())
        shares = of((weights / added)[:, np.newaxis])
        if not center:
            squares = to_host(xp.sum(shares * X * X, axis=0)).astype(np.float64)
            self.variance = (before * self.variance + added * squares) / total
            return type(rows)(X, rows.library.dtype)
        place = xp.sum(shares * X, axis=0)
        apart, old = X - place, self.mean - to_host(place).astype(np.float64)
        weighted = shares * apart
        sums = xp.cumulative_sum(weighted, axis=0)
        earlier = np.concatenate([[before], after[:-1]])
        shift = xp.concat([xp.zeros_like(sums[:1, :]), sums[:-1, :]], axis=0)
        part = np.divide(added, earlier, out=np.zeros(len(earlier)), where=np.arange(len(earlier)) > 0)  # no row came before the first
        left = np.divide(before, earlier, out=np.zeros(len(earlier)), where=earlier > 0)
        centred = apart - shift * of(part[:, np.newaxis]) - of(left[:, np.newaxis]) * of(old)
        own = to_host(sums[-1, :]).astype(np.float64)  # zero but for rounding
        spread = to_host(xp.sum(weighted * apart, axis=0)).astype(np.float64) - own**2
        self.variance = (before * self.variance + added * np.maximum(spread, 0.0)) / total + before * added / total**2 * (own - old) ** 2
        self.mean = self.mean + added / total * (own - old)
        return type(rows)(centred * of(np.sqrt(earlier / after)[:, np.newaxis]), rows.library.dtype)

    def copy(self) -> Moments:
        new = Moments(len(self.variance))
        new.count, new.weight, new.squares = self.count, self.weight, self.squares
        new.variance, new.origin, new.moved = self.variance.copy(), self.origin.copy(), self.moved.copy()
        new._sums = None if self._sums is None else self._sums.copy()
        return new


class Merged(NamedTuple):
    """The moments of two streams together, exactly."""

    moments: Moments
    parts: tuple[float, float]
    """The share of each stream in the average."""
    between: Floats
    """(D,): the difference of the means adds ``between betweenᵀ`` to the covariance."""


def merge_moments(one: Moments, two: Moments, center: bool) -> Merged:
    """Merge the moments of two streams, exactly."""
    merged = Moments(len(one.variance))
    merged.count, merged.weight, merged.squares = one.count + two.count, one.weight + two.weight, one.squares + two.squares
    share = two.weight / merged.weight if merged.weight else 0.0
    difference = two.mean - one.mean
    between: Floats = np.sqrt(share * (1.0 - share)) * difference if center else np.zeros_like(difference)
    merged.mean = one.mean + share * difference
    merged.variance = (1.0 - share) * one.variance + share * two.variance + between**2
    return Merged(merged, (1.0 - share, share), between)
