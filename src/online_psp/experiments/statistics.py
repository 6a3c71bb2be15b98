"""Small statistics of trials: the sign test for orderings, the bootstrap for intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from online_psp.engine.types import Floats

LEVEL = 0.05
"""A panel is decided if one side of the sign test has a p below this."""

_RESAMPLES = 2000

INTERVALS = (
    "Intervals are 95 % bootstrap intervals of the median over the trials. With fewer than six trials, whose whole range covers the median "
    "less often than that, they are no more than a hint; one trial has none."
)
"""Text about the intervals, for reports."""


class SignTest(NamedTuple):
    """Sign test of paired trials of two curves.

    Attributes
    ----------
    below, above, equal : int
        Number of trials in which the first is lower than the second, higher, or equal; equal ones do not enter p.
    p : float
        Probability of so many trials below, or more, if both orders were equally likely; small if the first is below.
    """

    below: int
    above: int
    equal: int
    p: float

    @property
    def trials(self) -> int:
        """Number of trials."""
        return self.below + self.above + self.equal

    @property
    def decided(self) -> int:
        """1 if the first is below, −1 if it is above, 0 if the trials do not decide."""
        if self.p < LEVEL:
            return 1
        return -1 if _tail(self.above, self.below + self.above) < LEVEL else 0


def _tail(hits: int, of: int) -> float:
    return float(sum(math.comb(of, i) for i in range(hits, of + 1)) / 2**of)


def sign_test(one: Mapping[int, float], other: Mapping[int, float]) -> SignTest:
    """Test whether `one` is below `other`, over the trials (by seed) that both have."""
    pairs = [(one[seed], other[seed]) for seed in one if seed in other]
    below, above = sum(a < b for a, b in pairs), sum(a > b for a, b in pairs)
    return SignTest(below, above, len(pairs) - below - above, _tail(below, below + above))


class Interval(NamedTuple):
    """A value with its 95 % bootstrap interval, which is NaN for a single trial."""

    value: float
    low: float
    high: float


def resampled_medians(values: Sequence[float], seed: int = 0) -> Floats:
    """Medians of trials resampled with replacement, (2000,); the draws depend only on the number of trials, so that curves stay paired."""
    found = np.asarray(values, dtype=np.float64)
    draws = found[np.random.default_rng(seed).integers(0, len(found), (_RESAMPLES, len(found)))]
    return np.asarray(np.median(draws, axis=1))


def bootstrap(values: Sequence[float], seed: int = 0) -> Interval:
    """The median of trials, and the range of 95 % of the medians when trials are resampled with replacement."""
    if not len(values):
        return Interval(math.nan, math.nan, math.nan)
    if len(values) == 1:
        return Interval(float(values[0]), math.nan, math.nan)
    low, high = np.quantile(resampled_medians(values, seed), (0.025, 0.975))
    return Interval(float(np.median(np.asarray(values))), float(low), float(high))
