"""The unit by which the values of a stream are multiplied, so that neither they nor their squares overflow or vanish."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def unit_for(largest: float, dtype: np.dtype[Any]) -> float:
    """The power of two by which to multiply values of this size, so that neither they nor their squares overflow or vanish."""
    low, high = (1e-60, 1e60) if dtype == np.float64 else (1e-8, 1e8)
    return 1.0 if low <= largest <= high else math.ldexp(1.0, -math.frexp(largest)[1])


def largest_for(dtype: np.dtype[Any]) -> float:
    """The largest value allowed, after multiplication by the unit of the stream."""
    return 1e140 if dtype == np.float64 else 1e16
