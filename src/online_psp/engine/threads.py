"""How many threads BLAS uses while a model learns.

A product of a few hundred rows is over in microseconds, and a thread of BLAS that waits for its core costs milliseconds: on a machine that
does other work too, learning with all threads takes up to thirty times as long as with one. So learning uses one thread per half million
numbers in the basis, and never more than BLAS has (``OPENBLAS_NUM_THREADS``, `threadpoolctl`, ``psp fit --threads``).
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from typing import Any

from threadpoolctl import ThreadpoolController

PER_THREAD = 1 << 19
"""Numbers in the basis (K'·D) per thread."""
_LIMITED = threading.Lock()


@functools.cache
def _libraries() -> list[Any]:
    """The BLAS of NumPy and that of SciPy: threads of either keep the other's from the cores."""
    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


@contextlib.contextmanager
def suited_threads(size: int) -> Iterator[None]:
    """Let BLAS use as many threads as suit a basis of `size` numbers; inside of another such block this does nothing."""
    if not _LIMITED.acquire(blocking=False):
        yield
        return
    try:
        before = [(library, library.get_num_threads()) for library in _libraries()]
        most = max(1, size // PER_THREAD)
        for library, threads in before:
            library.set_num_threads(min(threads, most))
        try:
            yield
        finally:
            for library, threads in before:
                library.set_num_threads(threads)
    finally:
        _LIMITED.release()
