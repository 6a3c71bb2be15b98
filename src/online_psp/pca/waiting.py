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

_MOST = 512  # rows
_BYTES = 1 << 21  # of all of them

# A call of a kernel costs by the number of its arguments, so all numbers are in one array, at these places, and all rows in another.
_COUNT, _ROOM, _WEIGHT, _DECAY, _MOVES, _LIMIT, _DRIFT = range(7)


@exact_kernel
def _copy(x: Array, limit: float, mean: Floats, row: Array, point: Array) -> bool:
    """``row = x`` and ``point = x − mean``; returns whether all values of x are below the limit."""
    beyond = 0
    for j in range(x.shape[0]):
        value = x[j]
        beyond += not abs(value) < limit
        row[j] = value
        point[j] = value - mean[j]
    return beyond == 0


@kernel
def _take(x: Array, numbers: Floats, rows: Array, y: Array) -> int:
    """Copy x to the next row, and give its coordinates, less those of the mean with it.

    The mean itself stays where it was when the first of the rows came; how far it has moved since is followed along the components only.

    Parameters
    ----------
    x : (D,)
    numbers : (6 + K + D,)
        Rows that wait, and how many may; the weight of all rows up to now, and what is left of it when a row comes; 1 if rows move the
        mean, else 0; how large values may be; how far the mean has moved, along the components; and the mean.
    rows : (most + 1 + K, D)
        The rows that wait; one for what is computed here; and the components.
    y : (K,), filled

    Returns
    -------
    int
        How many rows wait now; 0, and nothing has changed, if x is of another length, or has a value that is not below the limit, or there
        is no room for it.
    """
    n, K = int(numbers[_COUNT]), y.shape[0]
    own = rows.shape[0] - K - 1
    if n >= numbers[_ROOM] or x.shape[0] != rows.shape[1]:
        return 0
    if not _copy(x, numbers[_LIMIT], numbers[_DRIFT + K :], rows[n], rows[own]):
        return 0
    row_products(rows[own + 1 :], K, rows[own], y)
    numbers[_COUNT] += 1.0
    numbers[_WEIGHT] = numbers[_DECAY] * numbers[_WEIGHT] + 1.0
    share = numbers[_MOVES] / numbers[_WEIGHT]
    for k in range(K):
        numbers[_DRIFT + k] += share * (y[k] - numbers[_DRIFT + k])
        y[k] -= numbers[_DRIFT + k]
    return n + 1


class Waiting:
    """A few dense rows, and where the mean of the stream will be when they are learned, as far as that is seen along the components.

    Parameters
    ----------
    D : int
    dtype : float64 or float32
    """

    def __init__(self, D: int, dtype: np.dtype[Any]) -> None:
        self._D, self._dtype = D, dtype
        self.most = max(1, min(_MOST, _BYTES // max(1, D * dtype.itemsize)))
        self._rows: Array = np.zeros((0, D), dtype)
        self._times: Floats = np.zeros(self.most + 1)
        self._timed = False
        self._numbers: Floats = np.zeros(_DRIFT + D)
        self._components: Array = np.zeros((0, D), dtype)
        self._blank: Array = np.zeros(0, dtype)  # coordinates to be filled
        self._room = 0
        self.is_full = False
        """Whether the rows have to be learned now."""

    def __len__(self) -> int:
        return int(self._numbers[_COUNT])

    @property
    def last_time(self) -> float | None:
        """Time of the last row that waits."""
        return float(self._times[len(self) - 1]) if self._timed and len(self) else None

    def prepare(
        self, moments: Moments, weight: float, decay: float, moves: bool, room: int, unit: float, limit: float, components: Array
    ) -> None:
        """Get ready for rows that follow on those learned.

        Parameters
        ----------
        moments : Moments
            Of the rows learned.
        weight, decay : float
            Weight of the same rows, and what is left of it when a row comes that has no time of its own.
        moves : bool
            Whether rows move the mean at once.
        room : int
            Most rows that may wait.
        unit, limit : float
            What rows are multiplied by before they are learned, and how large their values may be before that.
        components : (K, D)
            Axes along which coordinates of the rows are given.
        """
        K = len(components)
        if len(self._rows) != self.most + 1 + K:
            self._rows = np.zeros((self.most + 1 + K, self._D), self._dtype)
            self._numbers = np.zeros(_DRIFT + K + self._D)
        if self._components is not components:
            self._components, self._blank = components, np.zeros(K, self._dtype)
            self._rows[self.most + 1 :] = components
        self._room, self.is_full = max(1, min(self.most, room)), False
        self._numbers[:_DRIFT] = 0.0, self._room, weight, decay, moves, limit
        self._numbers[_DRIFT : _DRIFT + K] = 0.0
        self._numbers[_DRIFT + K :] = moments.mean / unit

    def take(self, x: Array) -> Array | None:
        """Let a row, (D,), wait; returns its coordinates, (K,).

        None, with nothing changed, if it is of another length, has a value beyond the limit, or has no room, as where nothing is
        prepared.
        """
        y = self._blank.copy()  # quicker than a new array
        n = _take(x, self._numbers, self._rows, y)
        if not n:
            return None
        if n >= self._room:
            self.is_full = True
        return y

    def take_at(self, x: Array, decay: float, time: float) -> Array | None:
        """As `take`, for a row that has a time, and the share of all earlier weight that is left by then."""
        self._times[len(self)], self._timed, self._numbers[_DECAY] = time, True, decay
        return self.take(x)

    def empty(self) -> tuple[Array, Floats | None]:
        """The rows that wait, (n, D), and their times, (n,), where they have some; afterwards none do."""
        n = len(self)
        found = self._rows[:n], self._times[:n].copy() if self._timed else None
        self.close()
        return found

    def close(self) -> None:
        """Let no row wait until `prepare` is called again; those that do are gone."""
        self._numbers[_COUNT] = self._numbers[_ROOM] = 0.0
        self._room, self._timed, self.is_full = 0, False, False
