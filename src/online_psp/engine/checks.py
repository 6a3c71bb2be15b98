"""Checks of what users pass: counts, arrays, rows, starts, step sizes."""

from __future__ import annotations

import contextlib
import math
import operator
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from online_psp.engine.blas import dot
from online_psp.engine.sizes import CHECK_BYTES
from online_psp.engine.threads import suited_threads
from online_psp.engine.types import Array, Floats, Rate

_THREADED = 10_000  # numbers from which BLAS computes an inner product with threads


def check_count(value: Any, name: str, *, least: int = 1) -> int:
    """A whole number of at least `least`."""
    try:
        count = operator.index(value)
    except TypeError:
        count = None
    if count is None or isinstance(value, bool):
        raise TypeError(f"{name} must be a whole number; got {value!r}.")
    if count < least:
        raise ValueError(f"{name} must be at least {least}; got {value!r}.")
    return count


def check_number(value: Any, name: str) -> float:
    """A real number: neither a string that looks like one, nor a truth value, nor an array with a shape."""
    if type(value) is float:
        return value
    if isinstance(value, str | bytes | bool | np.bool_) or np.ndim(value):
        raise TypeError(f"{name} must be a number; got {value!r}.")
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number; got {value!r}.") from None


def check_block_size(value: Any) -> int | Literal["auto"]:
    """A number of rows, or "auto"."""
    if isinstance(value, str):
        if value != "auto":
            raise ValueError(f"block_size must be a whole number, 1 or more, or 'auto'; got {value!r}.")
        return "auto"
    return check_count(value, "block_size")


def check_dtype(value: Any) -> np.dtype[Any]:
    """The dtype to compute in: float64 or float32."""
    try:
        dtype: np.dtype[Any] = np.dtype(value)
    except TypeError:
        raise TypeError(f"dtype must be float64 or float32; got {value!r}.") from None
    if dtype not in (np.dtype(np.float64), np.dtype(np.float32)):
        raise ValueError(f"dtype must be float64 or float32; got {dtype}.")
    return dtype


def unmasked(values: Any) -> Any:
    """Put NaN where a masked array is masked; return anything else as it is. (NumPy would drop the mask and use the values under it.)"""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        kind = values.dtype if values.dtype.kind == "f" else np.float64
        return np.where(np.ma.getmaskarray(values), np.nan, values.data).astype(kind)
    return values


def as_real(values: Any, name: str) -> np.ndarray[Any, Any]:
    """An array of real numbers, or a TypeError that says what came instead."""
    try:
        array = np.asarray(unmasked(values))
    except ValueError as error:  # ragged rows
        raise ValueError(f"{name} must be a rectangular array of numbers; its rows have different lengths.") from error
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must be real numbers; got dtype {array.dtype}.")
    return array


def check_finite(rows: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> None:
    """Raise a ValueError unless all rows are finite after conversion to `dtype`; checks a part at a time, to save memory."""
    step = max(1, CHECK_BYTES // (max(1, rows.shape[1]) * dtype.itemsize))
    for start in range(0, len(rows), step):
        with np.errstate(over="ignore"):
            part = rows[start : start + step].astype(dtype, copy=False)
        if not math.isfinite(sum_of_squares(part)):
            _check_squares(rows, start, row_squares(part), dtype)


def _check_squares(rows: np.ndarray[Any, Any], start: int, squares: Array, dtype: np.dtype[Any]) -> None:
    finite = np.isfinite(squares)
    if not finite.all():
        at = start + int(np.argmin(finite))
        raise not_finite(rows[at], at, dtype)


def not_finite(row: np.ndarray[Any, Any], at: int, dtype: np.dtype[Any], columns: Array | None = None) -> ValueError:
    """The error for row number `at`, which says what is wrong with its values.

    `dtype` is the precision that the row will be cast to, `columns` the columns of the values of a sparse row.
    """
    bad = ~np.isfinite(row)
    if bad.any():
        place = int(np.argmax(bad))
        what = f"{row[place]} in column {place if columns is None else columns[place]}"
    else:
        what = f"values too large for {dtype} (their squares overflow)"
    return ValueError(f"Row {at} has {what}; every value must be finite.")


def row_squares(X: np.ndarray[Any, Any]) -> Floats:
    """``‖x‖²`` of every row: finite exactly if the row is finite and its square does not overflow."""
    with np.errstate(over="ignore", invalid="ignore"):
        squares: Floats = np.einsum("ij,ij->i", X, X)
    return squares


def sum_of_squares(X: np.ndarray[Any, Any]) -> float:
    """``‖X‖²`` in one quick pass: if it is finite, so is every value; if not, a value is not finite or the sum overflowed."""
    flat = X.ravel(order="K")
    with suited_threads(0) if flat.size > _THREADED else contextlib.nullcontext():
        return dot(flat, flat)


def check_rate(rate: Any, name: str) -> Rate | None:
    """A schedule of step sizes: a function of t, or None."""
    if rate is not None and not callable(rate):
        raise TypeError(f"{name} must be a function of t, such as lambda t: 1 / (t + 1), or None; got {rate!r}.")
    return rate  # type: ignore[no-any-return]


def evaluate_rate(rate: Rate, t: int, n: int, name: str, most: float) -> Floats:
    """Step sizes of samples t+1 … t+n, each checked."""
    return np.array([checked_step(rate(step), f"{name}(t={step})", most) for step in range(t + 1, t + n + 1)], dtype=np.float64)


def checked_step(value: Any, name: str, most: float) -> float:
    """One step size, checked to be from 0 to `most`."""
    step = check_number(value, name)
    if not 0.0 <= step <= most:
        raise ValueError(f"{name} must be at least 0 and {f'at most {most:g}' if most >= 1.0 else 'below 1'}; got {step}.")
    return step


def check_variances(value: ArrayLike, K: int) -> Floats:
    """Variances to start from, (K,), checked."""
    variances = check_start(value, "sigma2_0", (K,))
    if (variances < 0).any():
        raise ValueError("sigma2_0 must not be negative.")
    return variances


def check_start(value: ArrayLike, name: str, shape: tuple[int, ...]) -> Floats:
    """An array that a user gave as a start, checked and copied."""
    array = np.array(as_real(value, name), dtype=np.float64)
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}; got {array.shape}.")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite.")
    return array
