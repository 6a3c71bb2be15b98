"""How long a monitored model remembers, in rows or in time, and what follows from that."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Self

import numpy as np

from online_psp.engine.types import Floats
from online_psp.pca import OnlinePCA
from online_psp.pca.forgetting import HalfLife, check_half_life, decays_of

_LEAST_ROWS, _ROWS_A_COMPONENT = 20, 5  # rows of equal weight before anything is scored: at least, and per component
_SETTLED_ROWS = 200  # rows of equal weight before drift is looked for
_SETTLED_LIVES = 4.25  # half-lives after which a model has nine tenths of the effective rows that it will ever have


def rows_needed(K: int) -> int:
    """Number of rows of equal weight that a model of K components must have learned before it judges rows."""
    return max(_LEAST_ROWS, _ROWS_A_COMPONENT * K)


class Memory(NamedTuple):
    """How fast a model forgets."""

    half_life: HalfLife | None

    @classmethod
    def of(cls, model: OnlinePCA) -> Self:
        """The memory of a model; raises a ValueError if it is too short to judge rows by."""
        memory = cls(check_half_life(model.half_life))
        wanted: Any = model.n_components
        needed = rows_needed(wanted if isinstance(wanted, int) else 0)
        if memory.remembered <= needed:
            raise ValueError(
                f"half_life={model.half_life} remembers only as much as {memory.remembered:.0f} rows of equal weight; to score rows "
                f"a monitor needs {needed}; take a longer half-life."
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

    def fast(self, wanted: Any, K: int) -> Any:
        """Half-life of the second model; "auto" becomes a number of rows."""
        return min(max(50.0, 10.0 * K), self.rows / 4.0) if wanted == "auto" else wanted

    def check_fast(self, value: Any) -> Any:
        """The half-life that a user gave for the second model, checked: a number of rows, text, or None."""
        if value is None or (isinstance(value, str) and value == "auto"):
            return value
        try:
            found = check_half_life(value)
        except (ValueError, TypeError) as error:
            kind = type(error)
            raise kind(f"fast_half_life must be a number of rows, a time such as '2min', 'auto' or None; got {value!r}.") from None
        assert found is not None
        if found.in_time and not self.in_time:
            raise ValueError(f"fast_half_life={value!r} is a time, but the half_life of the model is not; give a number of rows.")
        return f"{found.length!r}s" if found.in_time else found.length
