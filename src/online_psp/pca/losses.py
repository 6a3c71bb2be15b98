"""What weighing rows has cost, so that it can be said: what a tail has lost, and what the first rows have brought in.

**Tails.** Gross rows lie far beyond the limit, with a gap between them and the others. Rows of a heavy tail follow on the others without
a gap, and lose weight although they are data: variances become too small. So what is taken from rows *just* beyond the limit is added up,
unless several come in a row, as in a clump of gross rows or a new regime. Rows farther out are not counted: a tail has lost at least that.

**First rows.** Where half of the first rows are gross, these are what is taken for ordinary. It shows when many others have come: the
first rows then have a larger part in the variance than their part in the weight.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from online_psp.engine.moments import Moments
from online_psp.engine.types import Floats

_NEAR = 1.0  # in log δ²: rows that are no farther beyond the limit, or than a width if that is more, may belong to a tail
_CLUMP = 3  # rows beyond the limit in a row, from which on they are a clump of gross rows, or a new regime
_TINY = float(np.finfo(np.float64).tiny)


class Tail(NamedTuple):
    """What rows just beyond the limit have lost, faded where the stream forgets."""

    weight: float = 0.0
    """Weight of these rows, before any was taken."""
    lost: float = 0.0
    """Sum of the squares of their distances from the mean, times the weight taken."""

    def after(self, squares: Floats, weights: Floats, influence: Floats, width: float, left: float) -> Tail:
        """Move past a block of rows.

        Parameters
        ----------
        squares : (n,)
            Of their distances from the mean.
        weights : (n,)
            After the last of them.
        influence : (n,)
        width : float
            Width of log δ².
        left : float
            What is left of all before.
        """
        near = (influence < 1.0) & (_run_lengths(influence < 1.0) < _CLUMP) & (influence >= np.exp(-2.0 * max(width, _NEAR)))
        lost = float((weights * (1.0 - influence) * squares)[near].sum())
        return Tail(left * self.weight + float(weights[near].sum()), left * self.lost + lost)

    def plus(self, other: Tail, factor: float) -> Tail:
        """Both; distances of the other are multiplied by a factor."""
        return Tail(self.weight + other.weight, self.lost + factor**2 * other.lost)

    def share_of(self, kept: float) -> float:
        """Share of the sum of squares that was lost, given what was kept."""
        return self.lost / max(kept + self.lost, _TINY)


class Start(NamedTuple):
    """The first rows, as they count."""

    weight: float
    mean: Annotated[Floats, "D"]
    variance: Annotated[Floats, "D"]

    def part_in(self, weight: float, mean: Floats, variance: Floats) -> Floats:
        """Part of the first rows in the variance of each feature, (D,), given the weight, the mean and the variance of all rows.

        What the difference between their mean and that of the rows after them adds to the variance is counted as theirs.
        """
        after = weight - self.weight
        if not after > 0.0:
            return np.ones(len(mean))
        own = self.weight * (self.variance + weight / after * (self.mean - mean) ** 2)
        return np.asarray(np.clip(own / np.maximum(weight * variance, _TINY), 0.0, 1.0))

    def faded(self, left: float) -> Start:
        return self._replace(weight=left * self.weight)

    def plus(self, other: Start, factor: float) -> Start:
        """The first rows of two streams; values of the other are multiplied by a factor."""
        weight = self.weight + other.weight
        share = other.weight / max(weight, _TINY)
        difference = factor * other.mean - self.mean
        variance = (1.0 - share) * self.variance + share * factor**2 * other.variance + share * (1.0 - share) * difference**2
        return Start(weight, self.mean + share * difference, variance)


class Losses(NamedTuple):
    """What weighing rows has cost so far."""

    given: float = 0.0
    """Weight of all rows before gross ones lost theirs, faded where the stream forgets."""
    tail: Tail = Tail()
    start: Start | None = None

    def gross_share(self, moments: Moments) -> float:
        """Share of the weight of all rows that was taken from gross ones, given the moments of the rows as they count."""
        return float(1.0 - min(moments.weight / self.given, 1.0)) if self.given > 0.0 and moments.weight > 0.0 else 0.0

    def tail_shares(self, moments: Moments, total: float) -> tuple[float, float]:
        """Share of the rows just beyond the limit in the weight of all rows, and share of the variance, of this total, that they lost."""
        return self.tail.weight / max(self.given, _TINY), self.tail.share_of(moments.weight * total)

    def start_shares(self, moments: Moments, standardize: bool) -> tuple[float, float]:
        """Share of the first rows in the weight of all rows, and in their variance."""
        if self.start is None or not moments.weight > 0.0:
            return 0.0, 0.0
        parts = self.start.part_in(moments.weight, moments.mean, moments.variance)
        sizes = (moments.variance > 0).astype(np.float64) if standardize else moments.variance
        return self.start.weight / moments.weight, float(parts @ sizes) / max(float(sizes.sum()), _TINY)

    def merged(self, other: Losses, given: float, factor: float, standardize: bool) -> Losses:
        """Those of two streams, with this weight given to their rows; values of the other are multiplied by a factor."""
        start = self.start.plus(other.start, factor) if self.start is not None and other.start is not None else self.start or other.start
        return Losses(given, self.tail.plus(other.tail, 1.0 if standardize else factor), start)


def _run_lengths(marked: NDArray[np.bool_]) -> NDArray[np.intp]:
    """For each of n values, how many of its kind come in a row with it, (n,)."""
    run = np.cumsum(np.diff(marked, prepend=marked[:1]))
    return np.asarray(np.bincount(run)[run]) if len(run) else run
