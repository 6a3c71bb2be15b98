"""Checks of what users pass: counts, arrays, starts, step sizes."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from online_psp.types import Floats, Rate


def check_count(value: Any, name: str, *, least: int = 1) -> int:
    """A whole number of at least `least`."""
    try:
        count = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number; got {value!r}.") from None
    if isinstance(value, bool) or count < least:
        raise ValueError(f"{name} must be at least {least}; got {value!r}.")
    return count


def as_real(values: Any, name: str) -> np.ndarray[Any, Any]:
    """An array of real numbers, or a TypeError that says what came instead."""
    try:
        array = np.asarray(values)
    except ValueError as error:  # ragged rows
        raise ValueError(f"{name} must be a rectangular array of numbers; its rows have different lengths.") from error
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must be real numbers; got dtype {array.dtype}.")
    return array


def evaluate_rate(rate: Rate, t: int, n: int, name: str) -> Floats:
    """Step sizes of samples t+1 … t+n, each checked to lie in [0, 1)."""
    return np.array([checked_step(rate, step, name) for step in range(t + 1, t + n + 1)], dtype=np.float64)


def checked_step(rate: Rate, t: int, name: str) -> float:
    """The step size of sample t."""
    step = float(rate(t))
    if not 0.0 <= step < 1.0:
        raise ValueError(f"{name}(t={t}) must be at least 0 and below 1; it gave {step}.")
    return step


def check_start(value: ArrayLike, name: str, shape: tuple[int, ...]) -> Floats:
    """A start array given by the user."""
    array = np.array(as_real(value, name), dtype=np.float64)
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}; got {array.shape}.")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite.")
    return array
