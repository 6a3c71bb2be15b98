"""How many threads BLAS uses while a model learns.

A product of a few hundred rows is over in microseconds, and a thread of BLAS that waits for its core costs milliseconds: on a machine that
does other work too, learning with all threads takes up to thirty times as long as with one. So learning uses one thread per half million
numbers in the basis, and never more than BLAS has (``OPENBLAS_NUM_THREADS``, `threadpoolctl`, ``psp fit --threads``).
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

from threadpoolctl import ThreadpoolController

from online_psp.engine.locks import model_lock

PER_THREAD = 1 << 19
"""Numbers in the basis (K'·D) per thread."""
_LOCK = model_lock()
_BEFORE: list[tuple[Any, int]] = []
"""Each library with its number of threads before the first of the learners that are at work."""
_AT_WORK: list[int] = []
"""Sizes of their bases."""


@functools.cache
def _libraries() -> list[Any]:
    """The BLAS of NumPy and that of SciPy: threads of either keep the other's from the cores."""
    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


@contextlib.contextmanager
def suited_threads(size: int) -> Iterator[None]:
    """Let BLAS use as many threads as suit a basis of `size` numbers, until the last of several learners is done; the first one decides."""
    with _LOCK:
        if not _AT_WORK:
            _BEFORE[:] = [(library, library.get_num_threads()) for library in _libraries()]
            for library, threads in _BEFORE:
                _set(library, min(threads, max(1, size // PER_THREAD)))
        _AT_WORK.append(size)
    try:
        yield
    finally:
        with _LOCK:
            _AT_WORK.pop()
            if not _AT_WORK:
                for library, threads in _BEFORE:
                    _set(library, threads)


def _set(library: Any, threads: int) -> None:
    """Set a number of threads from any Python thread: threadpoolctl 3.8 ignores all but the first one that does."""
    take_over = getattr(library, "clear_controlling_thread", None)
    if take_over is not None:
        take_over(force=True)
    library.set_num_threads(threads)
    if take_over is not None:
        take_over()
