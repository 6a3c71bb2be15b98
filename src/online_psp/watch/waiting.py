"""Scores that wait to be handed over. Two arrays hold them, so that rows that come one by one cost no more than rows in blocks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from online_psp.monitoring import Update
from online_psp.watch.frames import Scored

_FIRST = 1024


class WaitingScores:
    """Keeps the newest scores and limits until they are taken.

    Parameters
    ----------
    capacity : int
        Largest number of rows to keep; when there are more, the older half is dropped.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.dropped = 0
        """Number of rows that were dropped before they were taken."""
        self._count = 0
        self._numbers = np.zeros(min(_FIRST, capacity), np.int64)
        self._values = np.zeros((len(self._numbers), 4))  # T², SPE, their limits

    def __len__(self) -> int:
        return self._count

    def add_one(self, number: int, found: Update) -> None:
        """Add what a monitor said about one row; each field is a plain value, or an array of one."""
        if self._count == len(self._numbers):
            self._make_room(1)
        self._numbers[self._count] = number
        self._values[self._count] = [field[0] for field in found[:4]] if isinstance(found.t2, np.ndarray) else found[:4]
        self._count += 1

    def add(self, numbers: NDArray[np.int64], found: Update) -> None:
        """Add what a monitor said about rows."""
        n = min(len(numbers), self.capacity)
        self.dropped += len(numbers) - n
        if self._count + n > len(self._numbers):
            self._make_room(n)
        here = slice(self._count, self._count + n)
        self._numbers[here] = numbers[-n:]
        for column, field in enumerate(found[:4]):
            self._values[here, column] = field[-n:]
        self._count += n

    def take(self) -> list[Scored]:
        """Take everything that waits. Alarms are handed over separately: ``drift`` is empty."""
        if not self._count:
            return []
        numbers, (t2, spe, t2_limit, spe_limit) = self._numbers[: self._count].copy(), self._values[: self._count].T.copy()
        self._count = 0
        return [Scored(numbers, Update(t2, spe, t2_limit, spe_limit, (t2 > t2_limit) | (spe > spe_limit), np.full(len(t2), "")))]

    def _make_room(self, n: int) -> None:
        """Double the arrays or, if they have their largest size, drop the older half."""
        size = min(self.capacity, max(2 * len(self._numbers), self._count + n))
        kept = self._count if self._count + n <= size else min(self._count // 2, size - n)
        self.dropped += self._count - kept
        here = slice(self._count - kept, self._count)
        numbers, values = self._numbers[here], self._values[here]
        self._numbers, self._values = np.zeros(size, np.int64), np.zeros((size, 4))
        self._numbers[:kept], self._values[:kept] = numbers, values
        self._count = kept
