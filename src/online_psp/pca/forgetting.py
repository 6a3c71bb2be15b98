"""How fast a stream forgets: half-lives in rows or in time, and the weight that the past keeps when a row comes."""

from __future__ import annotations

import datetime
import numbers
import re
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from online_psp.engine.types import Floats

_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_CALENDAR = ("generic", "Y", "M")  # NumPy's units that are no fixed number of seconds
_LATEST = 1e12  # seconds: more than thirty thousand years
_COARSE = 0.01  # share of a half-life: times must be at least as fine as this
_LEAST_LEFT = 1e-300  # least share of the past that is kept, so that it never vanishes


class HalfLife(NamedTuple):
    """The number of rows, or the time, after which a row counts half."""

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
    if isinstance(value, np.timedelta64):
        if np.datetime_data(value.dtype)[0] in _CALENDAR and not np.isnat(value):
            raise ValueError(f"{said}; got {value!r}, which is no fixed number of seconds.")
        found = HalfLife(float(value / np.timedelta64(1, "s")), True)
    elif isinstance(value, datetime.timedelta):
        found = HalfLife(value.total_seconds(), True)
    elif isinstance(value, str):
        found = HalfLife(_seconds_said(value, said), True)
    elif isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        raise TypeError(f"{said}; got {value!r}.")
    else:
        found = HalfLife(float(value), False)
    if not 0.0 < found.length < np.inf:
        raise ValueError(f"half_life must be positive and finite, or None; got {value!r}.")
    return found


def _seconds_said(text: str, said: str) -> float:
    """The seconds in a text such as ``"10min"``. A capital M is refused: elsewhere it means months."""
    parts = re.fullmatch(r"\s*(\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*([a-zA-Z]+)\s*", text)
    unit = "" if parts is None or parts[2] == "M" else parts[2].lower()
    if parts is None or unit not in _SECONDS:
        raise ValueError(f"{said}; got {text!r} (units are {', '.join(_SECONDS)}).")
    return float(parts[1]) * _SECONDS[unit]


def check_times(times: Any, n: int, half_life: HalfLife | None, last: float | None) -> Floats | None:
    """Times of n rows in seconds, (n,), checked never to go back.

    Parameters
    ----------
    times : (n,), optional
        Numbers (seconds), datetime64, or datetime objects; those without a time zone are taken as UTC.
    half_life : HalfLife, optional
        If it is a time, `times` are required; otherwise they are refused.
    last : float, optional
        Time of the last row seen.
    """
    if half_life is None or not half_life.in_time:
        if times is not None:
            raise ValueError("times were given, but half_life is not a time: pass half_life='10min', for example, or leave times out.")
        return None
    if times is None:
        raise ValueError("half_life is a time, so every row needs a time: pass times=.")
    array = np.asarray(times)
    if array.shape != (n,):
        raise ValueError(f"times must be one for each of the {n} rows; got shape {array.shape}.")
    seconds = _in_seconds(array)
    bad = ~np.isfinite(seconds) | np.broadcast_to(np.ma.getmaskarray(times) if np.ma.isMaskedArray(times) else False, (n,))
    if bad.any():
        raise ValueError(f"The time of row {int(np.argmax(bad))} is missing.")
    _check_fineness(array, seconds, half_life)
    before = np.concatenate([[seconds[0] if last is None else last], seconds[:-1]]) if n else seconds
    if (seconds < before).any():
        at = int(np.argmax(seconds < before))
        raise ValueError(f"Times must not go back: that of row {at} is {array[at]}, earlier than that of the row before it.")
    return seconds


def _in_seconds(times: NDArray[Any]) -> Floats:
    """Times of any kind as seconds, (n,), dates as seconds since 1970; NaN if missing."""
    if times.dtype.kind == "M":
        seconds = (times - np.datetime64(0, "s")) / np.timedelta64(1, "s")
        return np.where(np.isnat(times), np.nan, seconds)
    if times.dtype.kind in "fiu":
        return times.astype(np.float64)
    if times.dtype.kind != "O":
        raise TypeError(f"times must be numbers or datetime64; got dtype {times.dtype}.")
    known = [time for time in times if not _missing(time)]
    other = next((time for time in known if not isinstance(time, datetime.datetime)), None)
    if other is not None:
        raise TypeError(f"times must be numbers, datetime64 or datetime objects; got {other!r}.")
    if len({time.tzinfo is None for time in known}) > 1:
        raise ValueError("Some times have a time zone and some have none, so they cannot be compared.")
    return np.array([np.nan if _missing(time) else _since_1970(time) for time in times], dtype=np.float64)


def _missing(time: Any) -> bool:
    """Whether a time is None or pandas' NaT, which is not equal to itself."""
    return time is None or not bool(time == time)  # noqa: PLR0124


def _since_1970(time: datetime.datetime) -> float:
    return (time if time.tzinfo is not None else time.replace(tzinfo=datetime.UTC)).timestamp()


def _check_fineness(times: NDArray[Any], seconds: Floats, half_life: HalfLife) -> None:
    """Raise a ValueError if times are too large for seconds, or too coarse for the half-life."""
    largest = float(np.abs(seconds).max(initial=0.0))
    if largest >= _LATEST:
        raise ValueError(f"Times are numbers of seconds, and {largest:.3g} is too large for one; pass datetime64, or divide by the unit.")
    step = float(np.spacing(times.dtype.type(largest) if times.dtype.kind == "f" else largest))
    if step > _COARSE * half_life.length:
        raise ValueError(
            f"Times about {largest:.3g} are stored in steps of {step:.1g} seconds, too coarse for a half-life of {half_life}; "
            "pass float64 seconds from a later origin."
        )


def decays_of(half_life: HalfLife | None, seconds: Floats | None, last: float | None) -> Floats:
    """The share that is left of everything before each row, (n,), or (1,) if it is the same for all."""
    if half_life is None:
        return np.ones(1)
    if not half_life.in_time or seconds is None:
        return np.array([max(2.0 ** (-1.0 / half_life.length), _LEAST_LEFT)])
    before = np.concatenate([[seconds[0] if last is None else last], seconds[:-1]]) if len(seconds) else seconds
    with np.errstate(over="ignore"):
        return np.asarray(np.maximum(2.0 ** (-(seconds - before) / half_life.length), _LEAST_LEFT))
