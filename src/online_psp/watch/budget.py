"""Limits how often a task is done for the page, so that it takes no more than a share of the learner's time."""

from __future__ import annotations

import math

_CLOCK_SHARE = 0.0002  # share of elapsed time, if the learner gets little processor time: it waits for rows, or the machine is busy


class Budget:
    """Decides when a task may be done again: once its cost is no more than its share of the learner's processor time since the last time.

    Parameters
    ----------
    share : float
        Share of the learner's processor time.
    every : float
        Shortest time from one time to the next, in seconds.
    """

    def __init__(self, share: float, every: float) -> None:
        self.share, self.every = share, every
        self.interval: float | None = None
        """Seconds between the last two times that the task was done."""
        self.spent = 0.0
        """Processor time that the task has taken so far, in seconds."""
        self._cost = 0.0
        self._last = self._last_work = -math.inf

    def is_due(self, now: float, work: float) -> bool:
        """Whether the task may be done now.

        Parameters
        ----------
        now : float
            Time on the clock, in seconds.
        work : float
            Processor time of the learner, in seconds.
        """
        return self.wait(now, work) <= 0.0

    def wait(self, now: float, work: float) -> float:
        """Seconds until the task can be due at the earliest: if the learner gets all the processor time from now on."""
        passed, paid = now - self._last, work - self._last_work
        return max(self.every - passed, min(self._cost / self.share - paid, self._cost / _CLOCK_SHARE - passed))

    def is_due_in_pause(self, now: float) -> bool:
        """Whether the task may be done while the learner is idle, when elapsed time counts in place of its processor time."""
        passed = now - self._last
        return passed >= self.every and passed * self.share >= self._cost

    def begin(self, now: float, work: float) -> None:
        """Record that the task is done now; `charge` adds later what it has cost."""
        self.interval = now - self._last if math.isfinite(self._last) else None
        self._last, self._last_work, self._cost = now, work, 0.0

    def charge(self, cost: float) -> None:
        """Add processor time, in seconds, to what the task has cost this time."""
        self._cost += cost
        self.spent += cost
