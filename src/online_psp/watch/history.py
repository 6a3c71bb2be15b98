"""Histories of fixed size for streams of any length; no large value is lost."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from online_psp.engine.types import Floats
from online_psp.monitoring import Update


class Trace:
    """Values over row numbers, thinned evenly: when the trace is full, every second point is dropped.

    Parameters
    ----------
    capacity : int
        Largest number of points to keep.
    width : int
        Number of values per point.
    """

    def __init__(self, capacity: int, width: int) -> None:
        self.capacity, self.width = capacity, width
        self._points: list[Floats] = []
        self._last: Floats | None = None
        self._stride, self._count = 1, 0

    def add(self, row: int, values: Floats) -> None:
        """Add a point; missing values are filled with NaN, and values beyond `width` are dropped."""
        point = np.full(1 + self.width, math.nan)
        point[0] = row
        point[1 : 1 + min(self.width, len(values))] = values[: self.width]
        if self._last is not None and self._last[0] == row:
            if self._points and self._points[-1] is self._last:
                self._points[-1] = point
            self._last = point
            return
        self._last = point
        if self._count % self._stride == 0:
            self._points.append(point)
            if len(self._points) >= self.capacity:
                self._points = self._points[::2]
                self._stride *= 2
        self._count += 1

    def table(self) -> Floats:
        """(n, 1 + width): row numbers and values, the newest always last."""
        points = self._points if self._last is None or (self._points and self._points[-1] is self._last) else [*self._points, self._last]
        return np.array(points) if points else np.zeros((0, 1 + self.width))

    def before(self, row: float) -> Floats | None:
        """The last point at or before a row; None if there is none."""
        return next((point for point in reversed(self._points) if point[0] <= row), None)


class ScoreTable(NamedTuple):
    """Scores over stretches of rows, or row by row; each (n,)."""

    row: Floats
    """The last row of the stretch."""
    t2: Floats
    """Geometric mean over the stretch."""
    t2_most: Floats
    spe: Floats
    spe_most: Floats
    t2_limit: Floats
    spe_limit: Floats
    t2_over: Floats
    """Largest T² above its limit, or NaN."""
    spe_over: Floats


class Stretches:
    """Scores of a whole run, summarised over stretches of equal numbers of rows; when there are too many, neighbours are merged in pairs.

    Parameters
    ----------
    capacity : int
        Largest number of stretches to keep; an even number.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity, self.width = capacity, 1
        self.count = 0
        self._row = np.zeros(capacity)
        self._n = np.zeros(capacity)
        self._logs = np.zeros((2, capacity))
        self._most = np.full((2, capacity), -math.inf)
        self._limits = np.full((2, capacity), math.nan)
        self._over = np.full((2, capacity), -math.inf)

    def add(self, numbers: NDArray[np.int64], found: Update) -> None:
        """Add the scores of rows, in their order; rows without scores are skipped."""
        known = np.isfinite(found.t2) | np.isfinite(found.spe)
        if not known.any():
            return
        values = np.stack([found.t2[known], found.spe[known]])
        limits = np.stack([found.t2_limit[known], found.spe_limit[known]])
        n = values.shape[1]
        while (self.count + n - 1) // self.width >= self.capacity:
            self._halve()
        at = np.arange(self.count, self.count + n) // self.width
        shown = np.nan_to_num(values, nan=0.0, posinf=_LARGEST)
        np.add.at(self._n, at, 1.0)
        self._row[at] = numbers[known]
        for i in range(2):
            np.add.at(self._logs[i], at, np.log(np.maximum(shown[i], _SMALLEST)))
            np.maximum.at(self._most[i], at, shown[i])
            self._limits[i, at] = limits[i]
            np.maximum.at(self._over[i], at, np.where(values[i] > limits[i], shown[i], -math.inf))
        self.count += n

    def _halve(self) -> None:
        half = self.capacity // 2
        self._row = _filled(np.maximum(self._row[::2], self._row[1::2]), half, 0.0)
        self._n = _filled(self._n[::2] + self._n[1::2], half, 0.0)
        self._logs = _filled(self._logs[:, ::2] + self._logs[:, 1::2], half, 0.0)
        self._most = _filled(np.maximum(self._most[:, ::2], self._most[:, 1::2]), half, -math.inf)
        self._over = _filled(np.maximum(self._over[:, ::2], self._over[:, 1::2]), half, -math.inf)
        later = np.isfinite(self._limits[:, 1::2])
        self._limits = _filled(np.where(later, self._limits[:, 1::2], self._limits[:, ::2]), half, math.nan)
        self.width *= 2

    def table(self) -> ScoreTable:
        """The scores to draw."""
        n = -(-self.count // self.width)
        means = np.exp(self._logs[:, :n] / np.maximum(self._n[:n], 1.0))
        over = np.where(np.isfinite(self._over[:, :n]), self._over[:, :n], math.nan)
        return ScoreTable(
            self._row[:n],
            means[0],
            self._most[0, :n],
            means[1],
            self._most[1, :n],
            self._limits[0, :n],
            self._limits[1, :n],
            over[0],
            over[1],
        )


class Newest:
    """Scores of the newest rows, one by one.

    Parameters
    ----------
    capacity : int
        Number of rows to keep.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._table = np.zeros((5, 0))  # number, t2, spe, t2_limit, spe_limit

    def add(self, numbers: NDArray[np.int64], found: Update) -> None:
        """Add the scores of rows, in their order."""
        part = np.stack([numbers.astype(np.float64), found.t2, found.spe, found.t2_limit, found.spe_limit])[:, -self.capacity :]
        self._table = np.concatenate([self._table, part], axis=1)[:, -self.capacity :]

    def last(self) -> dict[str, float | None]:
        """Scores and limits of the newest row that has scores; empty if there is none."""
        at = np.flatnonzero(np.isfinite(self._table[1]) | np.isfinite(self._table[2]))
        if not len(at):
            return {}
        names = ("row", "t2", "spe", "t2_limit", "spe_limit")
        return {name: float(value) if math.isfinite(value) else None for name, value in zip(names, self._table[:, at[-1]], strict=True)}

    def table(self) -> ScoreTable:
        """The scores to draw."""
        row, t2, spe, t2_limit, spe_limit = self._table
        t2, spe = (np.nan_to_num(each, nan=math.nan, posinf=_LARGEST) for each in (t2, spe))
        over = [np.where(value > limit, value, math.nan) for value, limit in ((t2, t2_limit), (spe, spe_limit))]
        return ScoreTable(row, t2, t2, spe, spe, t2_limit, spe_limit, *over)


_SMALLEST, _LARGEST = 1e-300, 1e300


def _filled(values: Floats, more: int, value: float) -> Floats:
    return np.concatenate([values, np.full((*values.shape[:-1], more), value)], axis=-1)
