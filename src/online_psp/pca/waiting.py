"""Rows that `fit_next` has taken one by one, and that are learned together a little later.

A row at a time costs mostly calls; a few dozen rows together cost what they do in `partial_fit`. So a row is checked, copied and projected
when it comes, all in one kernel, and waits. Whoever uses the model next, in whatever way, has the waiting rows learned first, so nobody can
tell that they waited.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from online_psp.engine.compiler import exact_kernel, kernel
from online_psp.engine.moments import Moments
from online_psp.engine.types import Array, Floats
from online_psp.engine.vectors import row_products

_MOST = 32  # rows
_BYTES = 1 << 20  # of all of them


@exact_kernel
def _take(x: Array, limit: float, unit: float, moves: bool, decay: float, counts: Floats, mean: Floats, row: Array, point: Array) -> bool:
    """Copy x to `row`, and move the mean past it; returns False, and changes nothing, if it has a value that is not below the limit.

    Parameters
    ----------
    x, row, point : (D,)
        `point` is filled with how far x is from the moved mean, in the units of x.
    counts : (2,)
        Rows that wait, and the weight of all rows up to now.
    mean : (2, D)
        Its origin, and how far it has moved: see `online_psp.engine.moments`.
    """
    beyond = 0
    for j in range(x.shape[0]):
        beyond += not abs(x[j]) < limit
    if beyond:
        return False
    counts[0] += 1.0
    counts[1] = decay * counts[1] + 1.0
    share = 1.0 / counts[1] if moves else 0.0
    factor = (1.0 - share) / unit
    origin, moved = mean[0], mean[1]
    for j in range(x.shape[0]):
        difference = (unit * x[j] - origin[j]) - moved[j]
        moved[j] += share * difference
        point[j] = factor * difference
        row[j] = x[j]
    return True


@kernel
def _take_and_project(
    x: Array,
    limit: float,
    unit: float,
    moves: bool,
    decay: float,
    counts: Floats,
    mean: Floats,
    row: Array,
    point: Array,
    components: Array,
    y: Array,
) -> bool:
    """As `_take`, with the coordinates of the row along components, (K, D)."""
    if not _take(x, limit, unit, moves, decay, counts, mean, row, point):
        return False
    row_products(components, components.shape[0], point, y)
    return True


class Waiting:
    """A few dense rows, and the mean of the stream as it will be when they are learned.

    Parameters
    ----------
    D : int
    dtype : float64 or float32
    """

    def __init__(self, D: int, dtype: np.dtype[Any]) -> None:
        self._D, self._dtype = D, dtype
        self.most = max(1, min(_MOST, _BYTES // max(1, D * dtype.itemsize)))
        self._rows: Array = np.zeros((0, D), dtype)
        self._times: Floats = np.zeros(self.most)
        self._timed = False
        self._counts: Floats = np.zeros(2)
        self._mean: Floats = np.zeros((2, 0))
        self._moves = False
        self._point: Array = np.zeros(0, dtype)
        self._limit = self._unit = 1.0
        self._components: Array = np.zeros((0, D), dtype)
        self.room = 0
        """Rows that may wait together before they have to be learned; 0 where nothing is prepared yet."""

    def __len__(self) -> int:
        return int(self._counts[0])

    @property
    def last_time(self) -> float | None:
        """Time of the last row that waits."""
        return float(self._times[len(self) - 1]) if self._timed and len(self) else None

    @property
    def is_full(self) -> bool:
        """Whether the rows have to be learned now."""
        return bool(self._counts[0] >= self.room)

    def prepare(self, moments: Moments, weight: float, moves: bool, room: int, unit: float, limit: float, components: Array) -> None:
        """Get ready for rows that follow on those learned.

        Parameters
        ----------
        moments : Moments
            Of the rows learned.
        weight : float
            Of the same rows.
        moves : bool
            Whether rows move the mean at once.
        room : int
            Most rows that may wait.
        unit, limit : float
            What rows are multiplied by, and how large their values may be before that.
        components : (K, D)
            Axes along which coordinates of the rows are given.
        """
        if not len(self._rows):
            self._rows, self._point = np.zeros((self.most, self._D), self._dtype), np.zeros(self._D, self._dtype)
        self._mean = np.array(moments.mean_parts())
        self._counts[:] = 0.0, weight
        self._moves, self._unit, self._limit, self._components = moves, unit, limit, components
        self.room = max(1, min(self.most, room))

    def take(self, x: Array, decay: float, time: float | None) -> Array | None:
        """Let a row, (D,), wait; returns its coordinates, (K,), or None, with nothing changed, if it has a value beyond the limit."""
        counts, components = self._counts, self._components
        n = int(counts[0])
        if time is not None:
            self._times[n] = time
        self._timed = time is not None
        y: Array = np.empty(len(components), self._dtype)
        row, point = self._rows[n], self._point
        took = _take_and_project(x, self._limit, self._unit, self._moves, decay, counts, self._mean, row, point, components, y)
        return y if took else None

    def empty(self) -> tuple[Array, Floats | None]:
        """The rows that wait, (n, D), and their times, (n,), where they have some; afterwards none do."""
        n = len(self)
        found = self._rows[:n], self._times[:n].copy() if self._timed else None
        self._counts[0], self.room = 0.0, 0
        return found
