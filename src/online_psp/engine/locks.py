"""One lock a model, which is free again in a process that was forked; and calls that Ctrl-C does not cut in two.

A lock that another thread holds when the process is forked stays held in the child, where that thread does not exist: whoever uses the
model there waits for ever, and the model is as the thread left it, in the middle of a step. So a fork waits until no model is in use.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
import time
import warnings
import weakref
from types import FrameType
from typing import Any, Self

_PATIENCE = 60.0  # seconds that a fork waits for threads in the middle of a call

_ALL: dict[int, weakref.ref[Any]] = {}
_NUMBERS = itertools.count()
_HELD: list[Any] = []
_SIGNALS: Any = sys.modules.get("_signal", signal)  # what `signal` calls, without a conversion that takes longer than learning a row


def model_lock() -> Any:
    """A lock for one model: reentrant, and taken by `os.fork` for as long as that lasts."""
    lock, number = threading.RLock(), next(_NUMBERS)
    _ALL[number] = weakref.ref(lock, lambda _: _ALL.pop(number, None))
    return lock


def _hold_all() -> None:
    """Take every lock, and never wait for one while another is held: other threads take several in an order of their own."""
    locks = [lock for lock in (found() for found in list(_ALL.values())) if lock is not None]
    end, first = time.monotonic() + _PATIENCE, 0
    while locks:
        locks = locks[first:] + locks[:first]
        if not locks[0].acquire(timeout=max(end - time.monotonic(), 0.0)):
            break
        held = 1 + sum(1 for _ in itertools.takewhile(lambda lock: lock.acquire(blocking=False), locks[1:]))
        if held == len(locks):
            _HELD.extend(locks)
            return
        for lock in locks[:held]:
            lock.release()
        first = held
    if locks:
        warnings.warn("The process is forked while a thread uses a model: do not use that model in the child process.", stacklevel=2)


def _release_all() -> None:
    while _HELD:
        _HELD.pop().release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold_all, after_in_parent=_release_all, after_in_child=_release_all)


class InterruptsWait:
    """Within it, Ctrl-C (SIGINT) waits for the end, so that a model is not left in the middle of a step; a second Ctrl-C does not wait.

    Outside the main thread, where no interrupts come, and where SIGINT is ignored or ends the process, this does nothing.
    """

    __slots__ = ("_before", "_came")

    def __init__(self) -> None:
        self._before: Any = None
        self._came = False

    def __enter__(self) -> Self:
        before = _SIGNALS.getsignal(signal.SIGINT)
        if callable(before) and threading.current_thread() is threading.main_thread():
            self._before = before
            _SIGNALS.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            _SIGNALS.signal(signal.SIGINT, self._before)
            if self._came:
                signal.raise_signal(signal.SIGINT)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._came:
            raise KeyboardInterrupt
        self._came = True
