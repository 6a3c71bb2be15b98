"""One sample at a time: a row is checked, put into the buffer and projected in one kernel."""

from __future__ import annotations

from typing import Any

import numpy as np

from online_psp.engine.compiler import exact_kernel, kernel
from online_psp.engine.types import Array, Floats
from online_psp.engine.vectors import row_products
from online_psp.pca.buffer import Buffer
from online_psp.pca.filling import filled
from online_psp.pca.units import largest_for
from online_psp.pca.view import View


@exact_kernel
def _copy(x: Array, limit: float, mean: Floats, row: Array, point: Array) -> bool:
    """``row = x`` and ``point = x − mean``; returns whether all values of x are below the limit."""
    beyond = 0
    for j in range(x.shape[0]):
        value = x[j]
        beyond += not abs(value) < limit
        row[j] = value
        point[j] = value - mean[j]
    return beyond == 0


@kernel
def _take(x: Array, limit: float, mean: Floats, axes: Array, row: Array, y: Array) -> bool:
    """Copy x to a row, with its coordinates in y; returns False if it has a value beyond the limit, or NaN.

    The last row of `axes`, (K + 1, D), is work space.
    """
    K = y.shape[0]
    if not _copy(x, limit, mean, row, axes[K]):
        return False
    row_products(axes, K, axes[K], y)
    return True


class Next:
    """Everything `fit_next` needs until the axes are read out anew.

    Parameters
    ----------
    buffer : Buffer
    components : (K, D)
    mean : (D,)
    due : int
        Rows of the buffer at which the block is to be closed, the axes are to be read out, or an onlooker is to be told.
    unit : float
        What rows are multiplied by; 0 while that is not known.
    view : View
        What the axes are of.
    """

    def __init__(self, buffer: Buffer, components: Array, mean: Floats, due: int, unit: float, view: View) -> None:
        self.buffer, self._view = buffer, view
        dtype = buffer.dense.dtype
        self._mean, self._due = mean, due
        self._axes = np.concatenate([components, np.zeros((1, len(mean)))]).astype(dtype)
        self._blank = np.zeros(len(components), dtype)
        self._limit = largest_for(dtype) / unit if unit else 0.0
        self._rows = buffer.room_for_rows()

    @property
    def is_due(self) -> bool:
        return self.buffer.n >= self._due

    def take(self, x: Any) -> Array | None:
        """Put a sample, (D,), into the buffer; returns its coordinates, (K,), or None, with nothing changed, if it needs a closer look."""
        n = self.buffer.n
        if type(x) is not np.ndarray or x.dtype != self._rows.dtype or x.shape != self._mean.shape or not x.flags.carray:
            return None
        y = self._blank.copy()  # quicker than a new array
        if n >= len(self._rows) or not _take(x, self._limit, self._mean, self._axes, self._rows[n], y):
            return None
        self.buffer.n = n + 1
        return y

    def project(self, x: Array) -> Array:
        """Coordinates, (K,), of a sample, (D,); of what the model expects where values are missing."""
        if np.isnan(x).any():
            x = filled(self._view, x[np.newaxis])[0]
        return np.asarray(self._axes[:-1] @ (x - self._mean).astype(self._axes.dtype))
