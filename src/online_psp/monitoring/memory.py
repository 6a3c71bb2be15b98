"""How long a monitored model remembers, in rows or in time; and the places of the stream at which it is read."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Self

import numpy as np

from online_psp.engine.types import Floats
from online_psp.monitoring.limits import rows_needed
from online_psp.pca import OnlinePCA
from online_psp.pca.forgetting import HalfLife, check_half_life, decays_of

_SETTLED_ROWS = 200  # rows of equal weight before drift is looked for
_SETTLED_LIVES = 4.25  # half-lives after which a model has nine tenths of the effective rows that it will ever have


def half_life_of(model: OnlinePCA) -> HalfLife | None:
    """The half-life of a model; with a window, that which has as many effective rows."""
    if model.window is None:
        return check_half_life(model.half_life)
    return check_half_life(0.5 * math.log(2.0) * model.window)


class Memory(NamedTuple):
    """How fast a model forgets."""

    half_life: HalfLife | None

    @classmethod
    def of(cls, model: OnlinePCA) -> Self:
        """The memory of a model; raises a ValueError if it is too short to judge rows by."""
        memory = cls(half_life_of(model))
        wanted: Any = model.n_components
        needed = rows_needed(wanted if isinstance(wanted, int) else 0)
        if memory.remembered <= needed:
            raise ValueError(
                f"{'half_life' if model.window is None else 'window'}={model.half_life or model.window} remembers only as much as "
                f"{memory.remembered:.0f} rows of equal weight; to score rows a monitor needs {needed}; take a longer one."
            )
        return memory

    @property
    def in_time(self) -> bool:
        """Whether the model forgets by time, not by numbers of rows."""
        return self.half_life is not None and self.half_life.in_time

    @property
    def rows(self) -> float:
        """Half-life in rows; infinite if the model forgets nothing, or forgets by time."""
        return math.inf if self.half_life is None or self.half_life.in_time else self.half_life.length

    @property
    def seconds(self) -> float:
        """Half-life in seconds; infinite if the model does not forget by time."""
        return self.half_life.length if self.half_life is not None and self.half_life.in_time else math.inf

    @property
    def remembered(self) -> float:
        """Largest effective number of rows that the model will ever have; infinite if it is not known in advance."""
        decay = 2.0 ** (-1.0 / self.rows)
        return math.inf if decay == 1.0 else (1.0 + decay) / (1.0 - decay)

    def settled(self, samples: float, elapsed: float) -> bool:
        """Whether a model changes slowly enough to look for drift, given its effective rows and the seconds since it began."""
        return samples >= min(_SETTLED_ROWS, 0.9 * self.remembered) or elapsed >= _SETTLED_LIVES * self.seconds

    def decays(self, seconds: Floats | None, last: float | None, n: int) -> Floats:
        """Share of all earlier weight that is left when each of n rows arrives, (n,)."""
        return np.broadcast_to(decays_of(self.half_life, seconds, last), n)


class Places(NamedTuple):
    """When a model is read: after the first row, then each time an eighth more rows have come.

    Places are never further apart than `step` rows, or an eighth of a half-life in time. They do not depend on how a stream is cut.
    """

    known: int = 0
    """Number of rows that the model had learned by the last place, since it began."""
    last: int = 0
    """Number of rows of the stream before the last place."""
    last_time: float | None = None
    """Time of the last place, if the model forgets by time; None before the first row."""
    start_time: float | None = None
    """Time of the first row since the model began."""

    def begun(self, first: float) -> Places:
        """With the time of the first row, if there was none."""
        either = [first if time is None else time for time in (self.last_time, self.start_time)]
        return self._replace(last_time=either[0], start_time=either[1])

    def next(self, step: int) -> int:
        """Number of rows of the stream before the next place."""
        return self.last + min(max(self.known // 8, 1), step)

    def ahead(self, row: int, seconds: Floats | None, step: int, memory: Memory) -> int:
        """Number of rows to take up to the next place, at least one, after `row` rows of the stream."""
        most = max(1, self.next(step) - row)
        if seconds is None or self.last_time is None:
            return most
        late = np.flatnonzero(seconds[:most] - self.last_time >= memory.seconds / 8)
        return int(late[0]) + 1 if len(late) else most

    def reached(self, row: int, time: float | None, step: int, memory: Memory) -> bool:
        """Whether to read the model now."""
        late = time is not None and self.last_time is not None and time - self.last_time >= memory.seconds / 8
        return late or row >= self.next(step)

    def at(self, row: int, time: float | None) -> Places:
        """With this as the last place."""
        return self._replace(known=self.known + row - self.last, last=row, last_time=time)

    @property
    def elapsed(self) -> float:
        """Seconds from the first row of the model to the last place; 0 if it does not forget by time."""
        return 0.0 if self.start_time is None or self.last_time is None else self.last_time - self.start_time
