"""The places of a stream at which a monitor reads its model; they do not depend on how the stream is cut into calls."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from online_psp.engine.types import Floats
from online_psp.monitoring.memory import Memory


class PlacesState(NamedTuple):
    """The state of `Places`."""

    known: int = 0
    """Number of rows that the model had learned by the last place, since it began."""
    last: int = 0
    """Number of rows of the stream before the last place; `next` is that before the next one."""
    next: int = 1
    last_time: float | None = None
    """Time of the last place, if the model forgets by time; None before the first row."""
    start_time: float | None = None
    """Time of the first row since the model began."""


class Places:
    """Decides when a model is read: after the first row, then each time an eighth more rows have come.

    Places are never further apart than `refresh` rows, or an eighth of the half-life, in rows or in time.
    """

    def __init__(self, refresh: int, memory: Memory) -> None:
        self.refresh, self.state = refresh, PlacesState()
        self._rows, self._seconds = max(1, int(min(refresh, memory.rows / 8))), memory.seconds / 8

    def start(self, row: int, known: int = 0, first: float | None = None, last: float | None = None) -> None:
        """Begin after row number `row` of the stream, with a model of `known` rows that came between times `first` and `last`."""
        self.state = PlacesState(known, row, row + self._step(known), last, first)

    def begin(self, seconds: Floats | None) -> None:
        """Record the first time, if none is known."""
        if seconds is not None and self.state.last_time is None:
            self.state = self.state._replace(last_time=float(seconds[0]))
        if seconds is not None and self.state.start_time is None:
            self.state = self.state._replace(start_time=float(seconds[0]))

    def ahead(self, row: int, seconds: Floats | None) -> int:
        """Number of rows to take up to the next place, at least one, after `row` rows of the stream."""
        most = max(1, self.state.next - row)
        if seconds is None or self.state.last_time is None:
            return most
        late = np.flatnonzero(seconds[:most] - self.state.last_time >= self._seconds)
        return int(late[0]) + 1 if len(late) else most

    def reached(self, row: int, time: float | None) -> bool:
        """Whether to read the model now."""
        last = self.state.last_time
        return row >= self.state.next or (time is not None and last is not None and time - last >= self._seconds)

    def arrive(self, row: int, time: float | None) -> int:
        """Set the next place; returns the number of rows since the last one."""
        passed = row - self.state.last
        known = self.state.known + passed
        self.state = self.state._replace(known=known, last=row, next=row + self._step(known), last_time=time)
        return passed

    def elapsed(self) -> float:
        """Seconds from the first row of the model to the last place; 0 if it does not forget by time."""
        first, last = self.state.start_time, self.state.last_time
        return 0.0 if first is None or last is None else last - first

    def _step(self, known: int) -> int:
        return min(max(known // 8, 1), self._rows)
