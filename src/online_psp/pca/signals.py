"""How many directions there are beyond what noise alone would show.

The largest variance of a sample of noise σ² is near the edge ``σ² (1 + sqrt(D/n))²`` (Marchenko & Pastur 1967; Johnstone 2001).
Where rows fade by exponential weights, the edge is further out (Potters, Bouchaud & Laloux 2005).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from online_psp.engine.types import Floats

RULES = ("auto", "filter")
"""Directions beyond noise; those that are worth keeping to remove noise from rows."""
_RARE = 3.27  # 99.9 % of largest variances of noise are below the edge and this many times their spread (Tracy & Widom 1996)
_ROUNDING = float(np.finfo(np.float64).eps)


class Noise(NamedTuple):
    """What decides how large the variances of noise would be."""

    D: int
    """Features that vary."""
    rows: float
    """Effective number of rows, less one if they are centred."""
    fading: bool
    """Whether rows are weighted by their age."""

    @property
    def edge(self) -> float:
        ratio = self.D / self.rows
        if not self.fading:
            return float((1.0 + ratio**0.5) ** 2)
        c = np.linspace(0.0, 1.0, 2001)[1:-1]  # the largest weight is 2/rows, where the mean age is rows/2
        return float(np.min((2.0 * ratio - np.log1p(-c)) / c))

    @property
    def spread(self) -> float:
        """Of the largest variance, relative to the edge."""
        return float((self.rows**-0.5 + self.D**-0.5) ** (1 / 3) / (self.rows**0.5 + self.D**0.5))

    @property
    def filtering(self) -> float:
        """Variance above which a direction holds more of the signal than of the noise (Gavish & Donoho 2014)."""
        b = self.D / self.rows
        return max(2.0 * (b + 1.0) + 8.0 * b / (b + 1.0 + float(np.sqrt(b * b + 14.0 * b + 1.0))), self.edge)


def count_signals(variances: Floats, total: float, noise: Noise, rule: str, before: int) -> int:
    """The number of signals among the leading variances, (k,), of a sample.

    Parameters
    ----------
    variances : (k,)
        Largest first.
    total : float
        Sum of all variances, D of them.
    noise : Noise
    rule : {"auto", "filter"}
    before : int
        Signals so far: they stay while they are above the edge; new ones have to be beyond what noise reaches once in a thousand times.
    """
    if noise.rows <= 1.0 or not len(variances) or not variances[0] > 0:
        return 0
    least = noise.edge if rule == "auto" else noise.filtering
    known = np.arange(len(variances)) < before
    factor = least * np.where(known, 1.0, 1.0 + _RARE * noise.spread)
    found, last = 0, -1
    while found > last:  # more signals leave less to the noise
        last = found
        left = max(total - float(variances[:found].sum()), 0.0) / max(noise.D - found, 1) / max(1.0 - found / noise.rows, 0.1)
        above = variances > np.maximum(left * factor, _ROUNDING * noise.D * variances[0])
        found = max(found, len(above) if above.all() else int(np.argmin(above)))
    return found
