"""Histories of fixed size for streams of any length; no large value is lost."""

from __future__ import annotations

import math

import numpy as np

from online_psp.engine.types import Floats
from online_psp.monitoring import Update

_SMALLEST, _LARGEST = 1e-300, 1e300


class Trace:
    """Points over rows, thinned evenly: when there are too many, every second one is dropped.

    Parameters
    ----------
    capacity : int
        Largest number of points to keep, even.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._kept: list[Floats] = []
        self._newest: Floats | None = None
        self._stride, self._count = 1, 0

    def add(self, point: Floats) -> None:
        """Add a point, whose first entry is its row number. One at the same row as the newest replaces it."""
        if self._newest is not None and self._newest[0] != point[0]:
            if self._count % self._stride == 0:
                self._kept.append(self._newest)
            self._count += 1
            if len(self._kept) > self.capacity:
                self._kept, self._stride = self._kept[::2], 2 * self._stride
        self._newest = point

    def table(self) -> Floats:
        """(n, width of a point), the newest last."""
        return np.array(self._kept if self._newest is None else [*self._kept, self._newest])


class Stretches:
    """Scores of a whole run, summarised over stretches of equally many rows; when there are too many, neighbours are merged in pairs.

    Parameters
    ----------
    capacity : int
        Largest number of stretches to keep, even.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity, self.width, self.count = capacity, 1, 0
        self._ends = np.full((2, capacity), math.nan)  # number and time of the last row
        self._limits = np.full((2, capacity), math.nan)
        self._sizes = np.zeros(capacity)
        self._logs = np.zeros((2, capacity))
        self._most = np.zeros((2, capacity))

    def add(self, numbers: Floats, times: Floats, found: Update) -> None:
        """Add the scores of rows, in their order; rows without scores are skipped."""
        known = np.isfinite(found.t2) | np.isfinite(found.spe)
        values = np.nan_to_num(np.stack([found.t2, found.spe])[:, known], nan=0.0, posinf=_LARGEST)
        while self.count + values.shape[1] > self.width * self.capacity:
            self._halve()
        at = (self.count + np.arange(values.shape[1])) // self.width
        self._ends[:, at] = numbers[known], times[known]
        self._limits[:, at] = found.t2_limit[known], found.spe_limit[known]
        self._sizes += np.bincount(at, minlength=self.capacity)
        for i, each in enumerate(values):
            np.add.at(self._logs[i], at, np.log(np.maximum(each, _SMALLEST)))
            np.maximum.at(self._most[i], at, each)
        self.count += values.shape[1]

    def _halve(self) -> None:
        def merged(values: Floats, join: np.ufunc, empty: float) -> Floats:
            pairs = join(values[..., ::2], values[..., 1::2])
            return np.concatenate([pairs, np.full_like(pairs, empty)], axis=-1)

        later = np.where(np.isfinite(self._limits[:, 1::2]), self._limits[:, 1::2], self._limits[:, ::2])
        self._limits = np.concatenate([later, np.full_like(later, math.nan)], axis=-1)
        self._ends = merged(self._ends, np.fmax, math.nan)
        self._sizes, self._logs = merged(self._sizes, np.add, 0.0), merged(self._logs, np.add, 0.0)
        self._most = merged(self._most, np.maximum, 0.0)
        self.width *= 2

    def table(self) -> Floats:
        """(8, n): number and time of the last row, geometric mean of T² and of SPE, the largest of each, their limits."""
        n = -(-self.count // self.width)
        means = np.exp(self._logs[:, :n] / np.maximum(self._sizes[:n], 1.0))
        return np.concatenate([self._ends[:, :n], means, self._most[:, :n], self._limits[:, :n]])
