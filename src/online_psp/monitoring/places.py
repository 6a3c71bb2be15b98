"""The places of a stream at which a monitor reads its model: given by the stream alone, however it is cut into calls."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from online_psp.engine.types import Floats
from online_psp.monitoring.memory import Memory


class PlacesState(NamedTuple):
    """Where a monitor stands between two places."""

    known: int = 0
    """Rows that the model had learned at the last place, since it began."""
    last: int = 0
    """Rows of the stream before the last place, and before the next one."""
    next: int = 1
    last_time: float | None = None
    """Time of the last place, where ages are times; None before the first row."""
    start_time: float | None = None
    """Time of the first row since the model began."""


class Places:
    """When a model is read: after the first row, then after an eighth more rows each time.

    Places are never further apart than `refresh` rows, or an eighth of the half-life, in rows or in time.
    """

    def __init__(self, refresh: int, memory: Memory) -> None:
        self.refresh, self.state = refresh, PlacesState()
        self._rows, self._seconds = max(1, int(min(refresh, memory.rows / 8))), memory.seconds / 8

    def start(self, row: int, known: int = 0, first: float | None = None, last: float | None = None) -> None:
        """Begin after so many rows of the stream, with a model of `known` rows that came from time `first` to time `last`."""
        self.state = PlacesState(known, row, row + self._step(known), last, first)

    def begin(self, seconds: Floats | None) -> None:
        """Take note of the first time, where none is known."""
        if seconds is not None and self.state.last_time is None:
            self.state = self.state._replace(last_time=float(seconds[0]))
        if seconds is not None and self.state.start_time is None:
            self.state = self.state._replace(start_time=float(seconds[0]))

    def ahead(self, row: int, seconds: Floats | None) -> int:
        """How many rows to take, after so many rows of the stream, up to the next place; at least one."""
        most = max(1, self.state.next - row)
        if seconds is None or self.state.last_time is None:
            return most
        late = np.flatnonzero(seconds[:most] - self.state.last_time >= self._seconds)
        return int(late[0]) + 1 if len(late) else most

    def reached(self, row: int, time: float | None) -> bool:
        """Whether the model is to be read now."""
        last = self.state.last_time
        return row >= self.state.next or (time is not None and last is not None and time - last >= self._seconds)

    def arrive(self, row: int, time: float | None) -> int:
        """Set the next place; how many rows have passed since the last one."""
        passed = row - self.state.last
        known = self.state.known + passed
        self.state = self.state._replace(known=known, last=row, next=row + self._step(known), last_time=time)
        return passed

    def elapsed(self) -> float:
        """Seconds from the beginning of the model to the last place; 0 where ages are not times."""
        first, last = self.state.start_time, self.state.last_time
        return 0.0 if first is None or last is None else last - first

    def _step(self, known: int) -> int:
        return min(max(known // 8, 1), self._rows)
