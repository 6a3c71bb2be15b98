"""When a run saves, and when it stops: a timer, and signals that wait until a step is complete."""

from __future__ import annotations

import contextlib
import re
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Self

SECONDS = {"s": 1, "m": 60, "h": 3600}
_PUT_OFF = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class Timer:
    """Tells when a checkpoint is due.

    Parameters
    ----------
    every : str or int
        ``"30s"``, ``"5m"`` or ``"1h"`` of time, or a number of samples.
    """

    def __init__(self, every: str | int) -> None:
        found = re.fullmatch(r"(\d{1,15}(?:\.\d{1,15})?)\s*(s|m|h)?", str(every).strip().lower(), re.ASCII)
        if not found or float(found[1]) <= 0 or (found[2] is None and "." in found[1]):
            raise ValueError(f"Checkpoints come every number of samples (50000) or amount of time (30s, 5m, 1h); got {every!r}.")
        self.seconds = None if found[2] is None else float(found[1]) * SECONDS[found[2]]
        self.samples = int(found[1]) if found[2] is None else None
        self.last = time.monotonic()
        self.rows = 0
        """Rows since the last checkpoint."""

    def passed(self, rows: int) -> None:
        """Count rows that have been processed."""
        self.rows += rows

    def ripe(self) -> bool:
        """Whether a checkpoint would be due if one more row came."""
        if self.seconds is not None:
            return time.monotonic() - self.last >= self.seconds
        return self.samples is not None and self.rows >= self.samples

    def due(self) -> bool:
        """Whether there is something to save, and it is time to save it."""
        return self.rows > 0 and self.ripe()

    def reset(self) -> None:
        """Start waiting again, after a checkpoint."""
        self.last, self.rows = time.monotonic(), 0


class Stop:
    """Turns signals into a flag, `asked`, that a loop checks between two steps.

    The first signal is only noted. A second one raises a KeyboardInterrupt at once, in case a source never answers; within `unbroken` it
    waits for the end of that. Outside the main thread no signals come, so the flag is never set.
    """

    def __init__(self, signals: Sequence[int]) -> None:
        self.signals = signals
        self.asked: int | None = None
        """The number of the signal that came."""
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for each in self.signals:
                if signal.getsignal(each) not in (signal.SIG_IGN, None):  # ignored signals stay ignored: nohup, or a shell's background job
                    self._before[each] = signal.signal(each, self._note)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for each, handler in self._before.items():
            signal.signal(each, handler)

    def _note(self, number: int, _: Any) -> None:
        if self.asked is not None:
            raise KeyboardInterrupt
        self.asked = number


@contextlib.contextmanager
def unbroken() -> Iterator[None]:
    """Defer SIGINT, SIGTERM and SIGHUP to the end of the block."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before: dict[int, Any] = {}
    try:
        for each in _PUT_OFF:
            before[each] = signal.signal(each, lambda number, _: came.append(number))
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    for number in came[:1]:
        signal.raise_signal(number)
