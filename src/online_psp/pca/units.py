"""Units in which neither values nor their squares leave the range of floating point."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def unit_for(largest: float, dtype: np.dtype[Any]) -> float:
    """A power of two that brings values of this size to where neither they nor their squares leave the range of floating point."""
    low, high = (1e-60, 1e60) if dtype == np.float64 else (1e-8, 1e8)
    return 1.0 if low <= largest <= high else math.ldexp(1.0, -math.frexp(largest)[1])


def largest_for(dtype: np.dtype[Any]) -> float:
    """How large a value may be, in units of the stream."""
    return 1e140 if dtype == np.float64 else 1e16
