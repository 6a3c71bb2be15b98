"""Limits of T² and SPE, which ordinary rows exceed with a given probability.

They hold for rows that are roughly Gaussian and independent of those that the model has learned. Rows with heavy tails exceed them more
often; rows that depend on each other exceed them as often, but in bursts.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import chdtri, fdtri

from online_psp.engine.types import Floats
from online_psp.monitoring.scores import Snapshot, snapshot
from online_psp.pca import OnlinePCA

LEAST_VALUES = 30
"""Number of values that the moments of the SPE need before there is a limit."""
_LARGEST = 1e100  # largest value that is counted in full, in units of the moments
_LEAST_ROWS, _ROWS_A_COMPONENT = 20, 5  # rows of equal weight before anything is scored: at least, and per component
_ROUNDING = 1e-12  # relative to the total variance: a smaller SPE is rounding error
_SETTLED = 30  # values after which the spread is known well enough to recognise gross ones
_FEWER = 2.0 ** -np.arange(0.0, 8.0)  # degrees of freedom, from 1 down, at which `_excess` looks as well
_GROSS = 8.0  # values further above the mean than this many deviations are counted as this far above it


class SpeMoments(NamedTuple):
    """Mean and variance of the SPE of the rows so far, with the weights that the model gives to the rows.

    Each SPE is computed before the model learns the row.
    """

    seen: int = 0
    weight: float = 0.0
    squares: float = 0.0
    """Sum of the squared weights."""
    unit: float = 0.0
    """A power of two near the first value, so that squares neither overflow nor vanish; 0 before the first value."""
    level: float = 0.0
    """Mean, in this unit."""
    scatter: float = 0.0
    """Weighted sum of squared differences from the mean, in squares of this unit."""

    def take(self, values: Floats, decay: float | Floats = 1.0) -> SpeMoments:
        """The moments after more values, the newest last. Each value multiplies all earlier weights by its `decay`, a number or (n,)."""
        n = len(values)
        if not n:
            return self
        unit = self.unit
        if not unit and values.any():
            unit = math.ldexp(1.0, math.frexp(values[values > 0][0])[1])
        with np.errstate(over="ignore"):
            values = np.minimum(values / (unit or 1.0), _LARGEST)
        if (
            self.seen >= _SETTLED and self.samples >= _SETTLED / 2
        ):  # one gross row must not make the spread, and with it the limit, meaningless
            values = np.minimum(values, self.level + _GROSS * math.sqrt(self._variance()))
        after = np.cumprod(np.broadcast_to(decay, n)[::-1])[::-1]  # share of what came before each value that is left at the end
        weights, left = np.append(after[1:], 1.0), float(after[0])
        added = float(weights.sum())
        level = float(weights @ values) / added
        total, apart = left * self.weight + added, level - self.level
        return SpeMoments(
            self.seen + n,
            total,
            left * left * self.squares + float(weights @ weights),
            unit,
            self.level + apart * added / total,
            left * self.scatter + float(weights @ (values - level) ** 2) + apart * apart * left * self.weight * added / total,
        )

    @property
    def samples(self) -> float:
        """Effective number of values (Kish): this many of equal weight would tell as much."""
        return self.weight * self.weight / self.squares if self.squares > 0 else 0.0

    @property
    def mean(self) -> float:
        return self.unit * self.level

    @property
    def deviation(self) -> float:
        """Square root of the variance."""
        return self.unit * math.sqrt(self._variance())

    @property
    def variance(self) -> float:
        """Unbiased variance, as in pandas' ``ewm``; NaN for fewer than two values."""
        return self.deviation * self.deviation

    @property
    def degrees(self) -> float:
        """The h of g χ²_h, the effective number of directions in the SPE; NaN if it does not vary."""
        variance = self._variance()
        found = 2.0 * self.level**2 / variance if variance > 0 else math.nan
        return found if found > 0 else math.nan

    def _variance(self) -> float:
        """Variance, in squares of the unit."""
        left = self.weight - self.squares / self.weight if self.weight else 0.0
        return self.scatter / left if left > 0 and self.seen > 1 else math.nan


def check_alpha(alpha: float) -> float:
    """Check that alpha is a probability between 0 and 1; returns it as a float."""
    if isinstance(alpha, bool) or not isinstance(alpha, int | float | np.number):
        raise TypeError(f"alpha must be a probability between 0 and 1; got {alpha!r}.")
    if not 0.0 < 1.0 - float(alpha) < 1.0:  # floating point cannot tell 1 − alpha from 1 below 1e-16, and limits would be infinite
        raise ValueError(f"alpha must be a probability between 0 and 1, such as 0.01; got {alpha!r}.")
    return float(alpha)


def t2_limit(model: OnlinePCA, alpha: float = 0.01) -> float:
    """T² that an ordinary row exceeds with probability alpha.

    With K components learned from n rows (Kish's effective number, if they are weighted), T² of another Gaussian row is
    ``K (n² − 1)/(n (n − K))`` times F with K and n − K degrees of freedom.

    Parameters
    ----------
    model : OnlinePCA
        A fitted model.
    alpha : float

    Returns
    -------
    float
        NaN if there are no more rows than components: then nothing is known about the variances.
    """
    return limits_of(snapshot(model), None, check_alpha(alpha))[0]


def spe_limit(moments: SpeMoments, alpha: float = 0.01) -> float:
    """SPE that an ordinary row exceeds with probability alpha: the quantile of g χ²_h with the mean and variance of `moments`.

    Parameters
    ----------
    moments : SpeMoments
    alpha : float

    Returns
    -------
    float
        NaN before there are 30 values.
    """
    alpha = check_alpha(alpha)
    if moments.seen < LEAST_VALUES:
        return math.nan
    h = moments.degrees
    return moments.mean if math.isnan(h) else moments.mean * _excess(h, alpha)


def _excess(h: float, alpha: float) -> float:
    """The value that χ²_h exceeds with probability alpha, in units of its mean; for h below one, the largest over h and some larger h.

    If h is below one, a few large values from long ago make up the mean and the spread. As h falls further, the value falls to zero, and
    every new row would exceed it.
    """
    degrees = np.maximum(h, np.append(h, _FEWER))
    return float(np.max(chdtri(degrees, alpha) / degrees))


def rows_needed(K: int) -> int:
    """Number of rows of equal weight that a model of K components must have learned before it judges rows."""
    return max(_LEAST_ROWS, _ROWS_A_COMPONENT * K)


def enough(seen: Snapshot) -> bool:
    """Whether a model has learned enough to judge rows."""
    K = len(seen.variances)
    return K > 0 and seen.samples >= rows_needed(K)


def limits_of(seen: Snapshot, moments: SpeMoments | None, alpha: float) -> tuple[float, float]:
    """Limits of T² and of the SPE for rows scored by a snapshot; NaN where too little is known.

    Without `moments`, the noise is taken to be equal along all directions outside the model. No limit of the SPE is below rounding.
    """
    K, n = len(seen.variances), seen.samples
    left = n - K + (0.0 if seen.centred else 1.0)
    t2 = K * (n * n - 1.0 if seen.centred else n * n) / (n * left) * float(fdtri(K, left, 1.0 - alpha)) if K and n > K else math.nan
    least = _ROUNDING * seen.total
    if moments is None:
        outside = max(len(seen.mean) - K, 1)
        return t2, max(seen.noise * float(chdtri(outside, alpha)), least, float(np.finfo(np.float64).tiny))
    known = moments.seen >= LEAST_VALUES and moments.samples >= LEAST_VALUES / 2
    return t2, max(spe_limit(moments, alpha), least) if known else math.nan
