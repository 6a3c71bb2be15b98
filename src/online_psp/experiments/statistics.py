"""Small statistics of trials: the sign test for orderings, the bootstrap for intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from online_psp.engine.types import Floats

LEVEL = 0.05
"""A panel is decided where one side of the sign test has a p below this."""

_RESAMPLES = 2000

INTERVALS = (
    "Intervals are 95 % bootstrap intervals of the median over the trials; of fewer than six trials, whose whole range covers the median "
    "less often than that, they are no more than a hint, and one trial has none."
)
"""What reports say of them."""


class SignTest(NamedTuple):
    """Paired trials of two curves.

    Attributes
    ----------
    below, above, equal : int
        In how many trials the one was lower than the other, higher, or neither; equal ones are left out of p.
    p : float
        How probable so many below, or more, are if either were as likely; small where the one is below.
    """

    below: int
    above: int
    equal: int
    p: float

    @property
    def trials(self) -> int:
        """How many there are."""
        return self.below + self.above + self.equal

    @property
    def decided(self) -> int:
        """1 where the one is below, −1 where it is above, 0 where the trials do not tell."""
        if self.p < LEVEL:
            return 1
        return -1 if _tail(self.above, self.below + self.above) < LEVEL else 0


def _tail(hits: int, of: int) -> float:
    return float(sum(math.comb(of, i) for i in range(hits, of + 1)) / 2**of)


def sign_test(one: Mapping[int, float], other: Mapping[int, float]) -> SignTest:
    """Whether the one is below the other, over the trials (by seed) that both have."""
    pairs = [(one[seed], other[seed]) for seed in one if seed in other]
    below, above = sum(a < b for a, b in pairs), sum(a > b for a, b in pairs)
    return SignTest(below, above, len(pairs) - below - above, _tail(below, below + above))


class Interval(NamedTuple):
    """A value with its 95 % bootstrap interval, not a number where one trial gives none."""

    value: float
    low: float
    high: float


def resampled_medians(values: Sequence[float], seed: int = 0) -> Floats:
    """The medians of trials drawn again with replacement, (2000,); as many trials give the same draws, so that curves stay paired."""
    found = np.asarray(values, dtype=np.float64)
    draws = found[np.random.default_rng(seed).integers(0, len(found), (_RESAMPLES, len(found)))]
    return np.asarray(np.median(draws, axis=1))


def bootstrap(values: Sequence[float], seed: int = 0) -> Interval:
    """The median of trials, and the range in which 95 % of the medians lie when trials are drawn again, with replacement."""
    if not len(values):
        return Interval(math.nan, math.nan, math.nan)
    if len(values) == 1:
        return Interval(float(values[0]), math.nan, math.nan)
    low, high = np.quantile(resampled_medians(values, seed), (0.025, 0.975))
    return Interval(float(np.median(np.asarray(values))), float(low), float(high))
