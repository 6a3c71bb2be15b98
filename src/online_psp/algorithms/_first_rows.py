"""The first rows of a stream, kept as they are until there are K of them and an algorithm can start from their basis."""

from __future__ import annotations

import math
from typing import Annotated, Any, NamedTuple

import numpy as np
from scipy.linalg import qr

from online_psp.engine.blas import matmul
from online_psp.engine.stacked_rows import forward_substitute
from online_psp.engine.types import Array, Floats


class KeptRows(NamedTuple):
    """The first t rows, and the triangular factor of their Gram matrix."""

    rows: Annotated[Array, "t", "D"]
    factor: Annotated[Floats, "t", "K", "infinite"]


class FirstRows:
    """Keeps up to K rows, in memory that grows as they come. The algorithm itself counts how many there are: t."""

    def __init__(self, K: int, D: int, dtype: np.dtype[Any]) -> None:
        self.K, self.rows = K, np.zeros((0, D), dtype)
        self._factor: Floats = np.zeros((0, K))

    @classmethod
    def from_state(cls, state: KeptRows, K: int) -> FirstRows:
        """The rows of a state, copied."""
        t, D = state.rows.shape
        first = cls(K, D, state.rows.dtype)
        first._make_room(t)
        first.rows[:t], first._factor[:t] = state
        return first

    def state(self, t: int) -> KeptRows:
        """The first t rows, copied."""
        return KeptRows(self.rows[:t].copy(), self._factor[:t].copy())

    def add(self, rows: Array, t: int) -> Array:
        """Keep n more rows after the first t.

        Returns
        -------
        Y : (n, K)
            Provisional outputs: the coordinates of each row in the QR basis of the rows up to it.
        """
        n, L = len(rows), self._make_room(t + len(rows))
        self.rows[t : t + n] = rows
        Y = np.zeros((n, self.K), dtype=self.rows.dtype)
        products = matmul(self.rows[t : t + n], self.rows[: t + n].T).astype(np.float64)
        for i, row in enumerate(products):
            square = row[t + i]
            forward_substitute(L, row, t + i)
            left = square - float(row[: t + i] @ row[: t + i])
            new = left > 1e-12 * square  # otherwise the row is a combination of earlier ones
            row[t + i] = math.sqrt(left) if new else 0.0
            L[t + i, : t + i] = row[: t + i]
            L[t + i, t + i] = row[t + i] if new else math.inf
            Y[i, : t + i + 1] = row[: t + i + 1]
        return Y

    def basis(self) -> Array:
        """(K, D) orthonormal rows: the thin QR basis of all K rows."""
        return np.ascontiguousarray(qr(self.rows.T, mode="economic", check_finite=False)[0].T)

    def _make_room(self, t: int) -> Floats:
        """Make room for at least t rows; returns the factor."""
        have = len(self.rows)
        if t > have:
            more = min(self.K, max(t, 2 * have)) - have
            self.rows = np.concatenate([self.rows, np.zeros((more, self.rows.shape[1]), self.rows.dtype)])
            self._factor = np.concatenate([self._factor, np.zeros((more, self.K))])
        return self._factor
