"""Rows that come again and again, held once with what they weigh together.

Repeats say nothing of how rows vary. Where a model looks for gross rows among the first ones, it has to have seen enough *different* rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from online_psp.engine.types import Array, Floats

_TINY = float(np.finfo(np.float64).tiny)


class Held(NamedTuple):
    """Rows as they came, n of them."""

    rows: Array
    """(n, D), NaN where a value is missing."""
    weights: Floats
    """(n,)"""
    squares: Floats
    """(n,): of the weights, summed over the rows that one stands for."""
    decays: Floats
    """(n,): what is left of everything before when each row comes."""


def kinds(rows: Array) -> NDArray[np.intp]:
    """A number for each row, (n,), the same where rows are the same, missing values included."""
    values = np.ascontiguousarray(np.where(np.isnan(rows), np.nan, rows + rows.dtype.type(0)))  # one NaN, one zero
    keys = values.view(np.dtype((np.void, values.itemsize * values.shape[1]))).ravel()
    return np.asarray(np.unique(keys, return_inverse=True)[1]).reshape(-1)


def without_repeats(held: Held) -> Held:
    """Each kind of row once, where it came last, with what all of them weigh then; sums over all rows stay what they were."""
    kind = kinds(held.rows)
    n = len(kind)
    last = np.zeros(int(kind.max(initial=-1)) + 1, dtype=np.intp)
    last[kind] = np.arange(n)  # of equal numbers the last one stays
    if len(last) == n:
        return held
    faded = np.cumsum(np.log(held.decays))
    left = np.exp(faded[last[kind]] - faded)
    weights: Floats = np.asarray(np.bincount(kind, held.weights * left), dtype=np.float64)
    squares: Floats = np.asarray(np.bincount(kind, held.squares * left**2), dtype=np.float64)
    at = np.sort(last)
    decays = np.exp(np.diff(faded[at], prepend=0.0))
    which = kind[at]
    return Held(held.rows[at], weights[which], squares[which], np.maximum(decays, _TINY))
