"""Takes weight from rows that are far from all others, and notes what that has cost.

The distance of a row under the model is ``δ² = T² + SPE/σ²``, along the directions *shown*: one that is kept in reserve may be that of
gross rows, which would then seem near. If values are missing, δ² is multiplied by D over the number of values. It is also multiplied by
the D-th root of the determinant of the covariance, so that only the shape of the model matters, and not its size.

**The limit.** Where log δ² of ordinary rows lies is not known beforehand. Its middle and its width are followed, by the median of each
block and the median deviation from it. A row counts fully up to ``log δ² = middle + 3 widths``. Beyond that, its weight falls as the
inverse square of how many times δ² exceeds the limit.

**Clumps and new regimes.** No block moves the middle or the width by much, so that a clump of gross rows does not pass for ordinary. But if
more than half of what the stream remembers is beyond the limit, that is the stream now: the limit is taken from the present block.

**Repeated rows**, as of an idle sensor, say nothing about how rows vary. So of all rows at the same distance only one counts for the middle
and the width, and where too few rows differ none is judged. But rows that make up half of the weight are never beyond the limit, and a new
regime is one that has more than half of the rows, or of the rows that differ.

**The first rows** are not believed either. Each is weighed by how far out it is along the directions through all of them, in robust widths
(Stahel 1981, Donoho 1982), and then by PCA of those within the limit.

**What it costs.** Rows of a heavy tail follow on the others without a gap, and lose weight although they are data; what rows *just* beyond
the limit have lost is added up, unless several come in a row. And where half of the first rows are gross, these are taken for ordinary: it
shows when they have a larger part in the variance than in the weight of all rows.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from online_psp.engine.blas import matmul
from online_psp.engine.types import Floats
from online_psp.pca.directions import leading_of_rows
from online_psp.pca.fill import Mask, expect, gaussian, typical_share

WIDTHS = 3.0
"""Widths between the middle and the limit."""
LEAST_FIRST = 400
"""Rows to hold at first: enough for a hundred gross ones to be a minority."""
LEAST_ROWS = 64
"""Rows of a block: enough for a median and a median deviation."""
_SIGMA = 1.4826  # standard deviation of a Gaussian, over its median deviation
_ALIKE = 1e-9  # largest difference of log δ² between rows at the same distance
_ENOUGH = 12  # different rows that a median and a median deviation need
_NARROWEST = 0.05  # least width of log δ²
_MOST_MOVED = 1.0  # largest step of the middle in a block
_ROUNDING = 1e-12  # relative to the largest value: smaller differences are rounding
_ROUNDS = 3  # rounds of PCA of the first rows within the limit
_NEAR = 1.0  # in log δ²: rows no farther beyond the limit, or than a width if that is more, may belong to a tail
_CLUMP = 3  # rows beyond the limit in a row, from which on they are no tail
_TINY = float(np.finfo(np.float64).tiny)


class Guard(NamedTuple):
    """Where log δ² of ordinary rows lies. Weights fade where the stream forgets."""

    middle: float
    width: float
    blocks: float
    """Number of blocks averaged over."""
    strange: float
    """Weight of the rows beyond the limit."""
    total: float
    """Weight of all rows."""
    strange_kinds: float
    """As `strange`, but of rows at the same distance only one counts."""

    @property
    def limit(self) -> float:
        """The largest log δ² at which a row counts fully."""
        return self.middle + WIDTHS * self.width

    def weights(self, distances: Floats) -> Floats:
        """Weights of rows at these δ², (n,), from 0 to 1."""
        beyond = np.maximum(np.log(np.maximum(distances, _TINY)) - self.limit, 0.0)
        return np.asarray(np.exp(-2.0 * np.minimum(beyond, 300.0)))

    def after(self, distances: Floats, weights: Floats, keep: float) -> Guard:
        """The guard after a block of rows.

        Parameters
        ----------
        distances, weights : (n,)
            δ² and weights of the rows.
        keep : float
            Share that is left of everything before.
        """
        if not len(distances):
            return self
        logs = np.log(np.maximum(distances, _TINY))
        to, wide, kinds, number = _spread(logs, weights, self.width)
        middle, width, blocks = self.middle, self.width, keep * self.blocks
        if number >= _ENOUGH:
            blocks += 1.0
            middle += float(np.clip(to - middle, -_MOST_MOVED, _MOST_MOVED)) / blocks
            width += float(np.clip(wide - width, -0.5 * width, width)) / blocks
        beyond = logs > middle + WIDTHS * width
        found = Guard(
            middle,
            width,
            blocks,
            keep * self.strange + float(weights[beyond].sum()),
            keep * self.total + float(weights.sum()),
            keep * self.strange_kinds + float(kinds[beyond].sum()),
        )
        if max(found.strange, found.strange_kinds) <= 0.5 * found.total:
            return found
        return guard_of(distances, weights, width)  # most of what is remembered is beyond the limit: so is the stream


def guard_of(distances: Floats, weights: Floats, width: float = 0.0) -> Guard:
    """The guard of rows at these δ², (n,): at least half of their weight is within the limit, whose width may be given if few differ."""
    logs = np.log(np.maximum(distances, _TINY))
    middle, width, kinds, _ = _spread(logs, weights, width)
    beyond = logs > middle + WIDTHS * width
    return Guard(middle, width, 1.0, float(weights[beyond].sum()), float(weights.sum()), float(kinds[beyond].sum()))


def _spread(logs: Floats, weights: Floats, width: float) -> tuple[float, float, Floats, int]:
    """Middle and width of log δ² of rows at different distances.

    Half of the weight of all rows is within the limit. The width is the one given if too few rows differ.

    Returns
    -------
    middle, width : float
    kinds : (n,)
        Weights that sum to the same, with which each different distance counts alike.
    number : int
        Of different distances.
    """
    order = np.argsort(logs)
    in_order = logs[order]
    first = np.concatenate([[True], np.diff(in_order) > _ALIKE])
    which, number = np.cumsum(first) - 1, int(first.sum())
    kinds = np.empty(len(logs))
    kinds[order] = float(weights.sum()) / number / np.bincount(which)[which]
    middle = float(np.median(in_order[first]))
    if number >= _ENOUGH:
        width = max(_SIGMA * float(np.median(np.abs(in_order[first] - middle))), _NARROWEST)
    sums = np.cumsum(weights[order])
    half = float(in_order[int(np.searchsorted(sums, 0.5 * sums[-1]))])
    return middle, max(width, (half - middle) / WIDTHS * (1.0 + _ALIKE)), kinds, number


def distances(directions: Floats, variances: Floats, variance: Floats, rows: Floats, observed: Mask) -> Floats:
    """δ² of centred rows, (n,).

    Parameters
    ----------
    directions : (K, D)
        Those shown, orthonormal.
    variances : (K,)
    variance : (D,)
        Of each feature. Features that have not varied are not counted.
    rows : (n, D)
        0 where nothing is observed.
    observed : (n, D)
    """
    if not len(variances):
        return np.ones(len(rows))
    D = rows.shape[1]
    model = gaussian(directions, variances, float(variance.sum()), typical_share(observed))
    found = expect(model, rows, observed)
    d = variances[: len(model.directions)]
    size = (np.log(np.maximum(d, model.noise)).sum() + (D - len(d)) * np.log(model.noise)) / D
    return np.asarray(np.exp(size) * found.distances * (D / np.maximum(observed.sum(axis=1), 1)))


class Weighed(NamedTuple):
    """Weights of the first rows."""

    weights: Floats
    """(n,), from 0 to 1"""
    judged: bool
    """Whether further rows can be judged: not if rows do not vary, or too few differ."""


def first_weights(rows: Floats, observed: Mask, weights: Floats, shown: int, center: bool = True) -> Weighed:
    """Weigh the first rows, no two of them the same, without believing any of them.

    Parameters
    ----------
    rows : (n, D)
        As they came; what is not observed is not read.
    observed : (n, D)
    weights : (n,)
        Given by the user; rows of weight 0 are left out.
    shown : int
        Directions shown.
    center : bool
        Whether rows vary around their median, or around zero.
    """
    nothing, used = Weighed(np.ones(len(rows)), False), weights > 0
    if used.sum() < _ENOUGH:
        return nothing
    values, weights = np.where(observed, rows, np.nan)[used], weights[used]
    place = np.zeros(rows.shape[1])
    if center:
        seen = observed[used].any(axis=0)
        place[seen] = np.nanmedian(values[:, seen], axis=0)
    apart = np.nan_to_num(values - place)
    if not np.abs(apart).max(initial=0.0) > _ROUNDING * np.abs(np.nan_to_num(values)).max(initial=0.0):
        return nothing
    more = rows.shape[1] / np.maximum(observed[used].sum(axis=1), 1.0)
    found = _outlyingness(apart)
    for _ in range(_ROUNDS):
        counted = weights * (np.log(np.maximum(found, _TINY)) <= guard_of(found, weights).limit)
        counted /= counted.sum()
        if center:
            place = place + counted @ apart
            apart = np.nan_to_num(values - place)
        directions, variances = leading_of_rows(apart * np.sqrt(counted)[:, np.newaxis], min(shown, max(1, len(apart) // 4)))
        found = more * _first_distances(apart, directions, variances)
    judged = np.ones(len(rows))
    judged[used] = guard_of(found, weights).weights(found)
    return Weighed(judged, True)


def _outlyingness(apart: Floats) -> Floats:
    """How far out each row, (n, D), is along the direction in which it is farthest out, squared, (n,).

    The unit is the robust width of all rows along that direction. The directions tried are those through the rows themselves: a gross row
    is far out along its own.
    """
    lengths = np.sqrt(np.einsum("ij,ij->i", apart, apart))
    along = matmul(apart, (apart / np.maximum(lengths, _TINY)[:, np.newaxis]).T)
    along -= np.median(along, axis=0)
    widths = _SIGMA * np.median(np.abs(along), axis=0)
    least = 0.1 * float(np.median(lengths[lengths > 0])) / np.sqrt(apart.shape[1])  # along some directions most rows may not vary at all
    return np.asarray((np.abs(along) / np.maximum(widths, max(least, 1e20 * _TINY))).max(axis=1) ** 2)


def _first_distances(apart: Floats, directions: Floats, variances: Floats) -> Floats:
    """δ² of rows, (n,), with the noise that the median row has."""
    scores = matmul(apart, directions.T)
    rest = np.maximum(np.einsum("ij,ij->i", apart, apart) - np.einsum("ij,ij->i", scores, scores), 0.0)
    left = max(apart.shape[1] - len(directions), 1)
    noise = max(float(np.median(rest)) / left, 1e-10 * float(variances.max(initial=0.0)), 1e20 * _TINY)
    return np.asarray(np.einsum("ij,ij->i", scores / np.maximum(variances, noise), scores) + rest / noise)


class Losses(NamedTuple):
    """What weighing rows has cost. Weights fade where the stream forgets."""

    given: float
    """Weight of all rows before any was taken."""
    tail: float
    """Weight of the rows just beyond the limit, before any was taken."""
    lost: float
    """What these have lost: the squares of their distances from the mean, times the weight taken."""
    start: float
    """Weight of the first rows, as they count."""
    mean: Annotated[Floats, "D"]
    """Of the first rows, and their variance:"""
    variance: Annotated[Floats, "D"]

    def after(self, squares: Floats, weights: Floats, influence: Floats, width: float, keep: float) -> Losses:
        """Move past a block of rows.

        Parameters
        ----------
        squares : (n,)
            Of their distances from the mean.
        weights, influence : (n,)
            Given by the user, and by the guard.
        width : float
            Width of log δ².
        keep : float
            Share that is left of everything before.
        """
        beyond = influence < 1.0
        near = beyond & (_run_lengths(beyond) < _CLUMP) & (influence >= np.exp(-2.0 * max(width, _NEAR)))
        lost = float((weights * (1.0 - influence) * squares)[near].sum())
        return self._replace(
            given=keep * self.given + float(weights.sum()),
            tail=keep * self.tail + float(weights[near].sum()),
            lost=keep * self.lost + lost,
            start=keep * self.start,
        )

    def gross_share(self, weight: float) -> float:
        """Share of the weight of all rows that was taken, given the weight left."""
        return 1.0 - min(weight / self.given, 1.0) if self.given > 0.0 else 0.0

    def tail_shares(self, weight: float, total: float) -> tuple[float, float]:
        """Share of the rows just beyond the limit in the weight of all rows, and share of the variance, of this total, that they lost."""
        return self.tail / max(self.given, _TINY), self.lost / max(weight * total + self.lost, _TINY)

    def start_shares(self, weight: float, mean: Floats, variance: Floats, standardize: bool) -> tuple[float, float]:
        """Share of the first rows in the weight of all rows, and in their variance, given the moments of all.

        What the difference between their mean and that of the rows after them adds to the variance is counted as theirs.
        """
        after = weight - self.start
        if not after > 0.0:
            return 1.0, 1.0
        own = self.start * (self.variance + weight / after * (self.mean - mean) ** 2)
        parts = np.clip(own / np.maximum(weight * variance, _TINY), 0.0, 1.0)
        sizes = (variance > 0).astype(np.float64) if standardize else variance
        return self.start / weight, float(parts @ sizes) / max(float(sizes.sum()), _TINY)

    def plus(self, other: Losses) -> Losses:
        """Those of two streams."""
        start = self.start + other.start
        share = other.start / max(start, _TINY)
        apart = other.mean - self.mean
        variance = (1.0 - share) * self.variance + share * other.variance + share * (1.0 - share) * apart**2
        given, tail, lost = self.given + other.given, self.tail + other.tail, self.lost + other.lost
        return Losses(given, tail, lost, start, self.mean + share * apart, variance)


def _run_lengths(marked: NDArray[np.bool_]) -> NDArray[np.intp]:
    """For each of n values, how many of its kind come in a row with it, (n,)."""
    run = np.cumsum(np.diff(marked, prepend=marked[:1]))
    return np.asarray(np.bincount(run)[run]) if len(run) else run
