"""Offsets for features of sparse rows that are always far from zero, such as a clock among counts.

The mean is subtracted from sparse rows implicitly, as a difference of inner products: if the mean of a feature is 1e6 times its deviation,
only rounding is left. Such a feature has an entry in nearly every row, so a number can be subtracted from it before anything is multiplied,
and the rows stay as sparse as they were. Principal components do not depend on that number.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from online_psp.engine.rows import SparseRows
from online_psp.engine.types import Floats

_FAR = 5.0  # in deviations: nearly all entries are there
_TOO_FAR = 100.0


def offset_for(mean: Floats, variance: Floats) -> Floats:
    """The number to subtract from every feature, (D,): the mean if it is far from zero, and zero otherwise."""
    return np.where(mean**2 > _FAR**2 * variance, mean, 0.0)


def needs_another(mean: Floats, variance: Floats, offset: Floats) -> bool:
    """Whether the mean of some feature is too far from its offset."""
    return bool(((mean - offset) ** 2 > _TOO_FAR**2 * variance).any())


def shifted(rows: SparseRows, offset: Floats) -> SparseRows:
    """The rows minus an offset, (D,), with the same weights and no running sum."""
    columns = np.flatnonzero(offset)
    if not len(columns):
        return rows
    n, k = len(rows), len(columns)
    off = csr_array((np.tile(offset[columns], n), np.tile(columns, n), np.arange(0, n * k + 1, k)), shape=(n, rows.D))
    moved = rows.matrix().astype(np.float64, copy=False) - off
    return SparseRows(csr_array(moved.astype(rows.data.dtype, copy=False)), rows.weights)
