"""The one kernel decorator.

Every compiled function in the package goes through :func:`kernel`, so that the choice of compiler flags is made once. ``fastmath`` lets the
compiler reorder sums (needed to vectorise a dot product) but not assume that NaN and infinity do not occur: the input checks rely on them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile on first call, and keep the machine code on disk for the next process."""
    compiled: F = numba.njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz", "arcp"})(function)
    return compiled
