"""One lock a model, which is free again in a process that was forked.

A lock that another thread holds when the process is forked stays held in the child, where that thread does not exist: whoever uses the
model there waits for ever, and the model is as the thread left it, in the middle of a step. So a fork waits until no model is in use.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
import warnings
import weakref
from typing import Any

_PATIENCE = 60.0  # seconds that a fork waits for threads in the middle of a call

_ALL: dict[int, weakref.ref[Any]] = {}
_NUMBERS = itertools.count()
_HELD: list[Any] = []


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
