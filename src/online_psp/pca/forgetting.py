"""How fast a stream forgets: half-lives in rows or in time, and what is left of the past when a row comes."""

from __future__ import annotations

import datetime
import numbers
import re
from typing import Any, NamedTuple

import numpy as np

from online_psp.engine.types import Floats

_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


class HalfLife(NamedTuple):
    """After how much a row counts half."""

    length: float
    """Rows, or seconds."""
    in_time: bool

    def __str__(self) -> str:
        return f"{self.length:g} {'seconds' if self.in_time else 'rows'}"


def check_half_life(value: Any) -> HalfLife | None:
    """A half-life given by the user: a number of rows, text such as ``"10min"``, or a timedelta."""
    if value is None:
        return None
    said = "half_life must be a number of rows, a time such as '10min', or None"
    if isinstance(value, datetime.timedelta | np.timedelta64):
        seconds = np.timedelta64(value) / np.timedelta64(1, "s")
        found = HalfLife(float(seconds), True)
    elif isinstance(value, str):
        parts = re.fullmatch(r"\s*(\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*([a-zA-Z]+)\s*", value)
        if not parts or parts[2].lower() not in _SECONDS:
            raise ValueError(f"{said}; got {value!r} (units are {', '.join(_SECONDS)}).")
        found = HalfLife(float(parts[1]) * _SECONDS[parts[2].lower()], True)
    elif isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        raise TypeError(f"{said}; got {value!r}.")
    else:
        found = HalfLife(float(value), False)
    if not 0.0 < found.length < np.inf:
        raise ValueError(f"half_life must be positive and finite, or None; got {value!r}.")
    return found


def check_times(times: Any, n: int, half_life: HalfLife | None, last: float | None) -> Floats | None:
    """Times of n rows in seconds, (n,), none before the one before it.

    Parameters
    ----------
    times : (n,), optional
        Numbers (seconds) or datetime64.
    half_life : HalfLife, optional
        Where it is a time, so must be `times`.
    last : float, optional
        Time of the last row seen.
    """
    if half_life is None or not half_life.in_time:
        if times is not None:
            raise ValueError("times were given, and half_life is not a time: say half_life='10min', for example, or leave them out.")
        return None
    if times is None:
        raise ValueError("half_life is a time, so every row needs one: pass times=.")
    array = np.asarray(times)
    if array.shape != (n,):
        raise ValueError(f"times must be one for each of the {n} rows; got shape {array.shape}.")
    if array.dtype.kind == "M":
        bad, seconds = np.isnat(array), (array - np.datetime64(0, "s")) / np.timedelta64(1, "s")
    elif array.dtype.kind in "fiu":
        seconds = array.astype(np.float64)
        bad = ~np.isfinite(seconds)
    else:
        raise TypeError(f"times must be numbers or datetime64; got dtype {array.dtype}.")
    if bad.any():
        raise ValueError(f"The time of row {int(np.argmax(bad))} is missing.")
    before = np.concatenate([[seconds[0] if last is None else last], seconds[:-1]]) if n else seconds
    if (seconds < before).any():
        at = int(np.argmax(seconds < before))
        raise ValueError(f"Times must not go back: that of row {at} is {array[at]}, before the one of the row that came before it.")
    return np.asarray(seconds, dtype=np.float64)


def decays_of(half_life: HalfLife | None, seconds: Floats | None, last: float | None) -> Floats:
    """What is left of everything before when each row comes, (n,); (1,) where that is the same for all."""
    if half_life is None:
        return np.ones(1)
    if not half_life.in_time or seconds is None:
        return np.array([2.0 ** (-1.0 / half_life.length)])
    before = np.concatenate([[seconds[0] if last is None else last], seconds[:-1]]) if len(seconds) else seconds
    return np.asarray(np.maximum(2.0 ** (-(seconds - before) / half_life.length), 1e-300))
