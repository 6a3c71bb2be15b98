"""The rows of the open block, as they came."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from scipy.sparse import vstack

from online_psp.engine.rows import AnyRows, ArrayRows, DenseRows, SparseRows
from online_psp.engine.types import Array, Floats
from online_psp.pca.model import Block


class Buffer:
    """Rows of an open block, in the precision of the model; only ever appended to, so that what was read of it stays.

    Parameters
    ----------
    room : int
        Rows at which the block is closed.
    D : int
    dtype : float64 or float32
    decay : float
        Share that is left of everything before when a row without a time comes.
    """

    def __init__(self, room: int, D: int, dtype: np.dtype[Any], decay: float = 1.0) -> None:
        self.room, self.n = room, 0
        self.weights: Floats = np.ones(room)
        self.decays: Floats = np.full(room, decay)
        """Share that is left of everything before when each row comes."""
        self.dense: Array = np.empty((0, D), dtype)
        self.parts: list[SparseRows | ArrayRows] = []
        """Rows that are not dense; then there are no others."""
        self.read: tuple[int, Any] = -1, None
        """Number of rows at the last reading, and what was read."""

    def add(self, rows: AnyRows, weights: Floats, decays: Floats) -> None:
        """Append rows, no more than there is room for."""
        stop = self.n + len(rows)
        if isinstance(rows, DenseRows) or (self.n and not self._alike(rows)):
            self._make_dense()
            self._grow(stop)
            self.dense[self.n : stop] = rows.dense(self.dense.dtype)
        else:
            self.parts.append(rows)
        self.weights[self.n : stop] = weights
        self.decays[self.n : stop] = decays
        self.n = stop

    def cut(self, n: int) -> None:
        """Forget all but the first n rows."""
        if self.parts:
            rows = self.rows(n)
            self.parts = [rows] if n and not isinstance(rows, DenseRows) else []
        self.n = n
        self.read = -1, None

    def copy(self) -> Buffer:
        """A buffer with the same rows, which shares no room for more with this one."""
        twin = copy.copy(self)
        twin.dense, twin.parts = self.dense[: self.n], list(self.parts)
        twin.weights, twin.decays = self.weights.copy(), self.decays.copy()
        return twin

    def _alike(self, rows: AnyRows) -> bool:
        return bool(self.parts) and type(rows) is type(self.parts[0])

    def _make_dense(self) -> None:
        if self.parts:
            rows = self.rows(self.n).dense(self.dense.dtype)
            self.parts, self.dense = [], rows

    def _grow(self, rows: int) -> None:
        if rows > len(self.dense):
            grown = np.empty((min(self.room, max(rows, 64, 2 * len(self.dense))), self.dense.shape[1]), self.dense.dtype)
            grown[: self.n] = self.dense[: self.n]
            self.dense = grown

    def room_for_rows(self) -> Array:
        """The rows of the whole block, (room, D), to be filled from row n on by a caller who counts them; none if rows are not dense."""
        if self.parts:
            return self.dense[:0]
        self._grow(self.room)
        return self.dense

    def rows(self, n: int) -> AnyRows:
        """The first n rows."""
        if not self.parts:
            return DenseRows(self.dense[:n])
        if len(self.parts) == 1:
            return self.parts[0][:n]
        first = self.parts[0]
        if isinstance(first, SparseRows):
            return SparseRows(vstack([part.matrix() for part in self.parts if isinstance(part, SparseRows)], format="csr"))[:n]
        there = [part.X for part in self.parts if isinstance(part, ArrayRows)]
        return ArrayRows(first.library.xp.concat(there, axis=0), first.library.dtype)[:n]

    def block(self) -> Block:
        """The rows so far, with what they weigh after the last of them."""
        return block_of(self.rows(self.n), self.weights[: self.n], self.decays[: self.n])


def block_of(rows: AnyRows, weights: Floats, decays: Floats) -> Block:
    """Rows with their weights, and the share of the past that is left when each of them comes."""
    left = np.cumprod(decays[::-1])[::-1]
    return Block(rows, weights * np.append(left[1:], 1.0), float(left[0]))
