"""Checks of what users pass: counts, arrays, rows, starts, step sizes."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from online_psp.engine.blas import gram
from online_psp.engine.blocks import row_squares, sum_of_squares
from online_psp.engine.types import Array, Floats, Rate

_PART_BYTES = 1 << 24


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


def check_finite(rows: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> None:
    """Whether rows are finite in the precision that they will have, a bounded part at a time, so that little memory is needed."""
    step = max(1, _PART_BYTES // (max(1, rows.shape[1]) * dtype.itemsize))
    for start in range(0, len(rows), step):
        with np.errstate(over="ignore"):
            part = rows[start : start + step].astype(dtype, copy=False)
        if not math.isfinite(sum_of_squares(part)):
            _check_squares(rows, start, row_squares(part), dtype)


def finite_gram(rows: Array, start: int, stop: int) -> Array:
    """``X Xᵀ`` of some rows, the lower half; its diagonal tells whether all of them are finite."""
    G = gram(rows[start:stop])
    _check_squares(rows, start, G.diagonal(), rows.dtype)
    return G


def _check_squares(rows: np.ndarray[Any, Any], start: int, squares: Array, dtype: np.dtype[Any]) -> None:
    finite = np.isfinite(squares)
    if not finite.all():
        raise not_finite(rows, start + int(np.argmin(finite)), dtype)


def not_finite(rows: np.ndarray[Any, Any], at: int, dtype: np.dtype[Any] | None = None) -> ValueError:
    """What is wrong with row `at`, which is to be of some other type perhaps."""
    bad = ~np.isfinite(rows[at])
    if bad.any():
        what = f"{rows[at][bad][0]} in column {int(np.argmax(bad))}"
    else:
        what = f"values too large for {dtype or rows.dtype} (their squares overflow)"
    return ValueError(f"Row {at} has {what}; every value must be finite.")


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
