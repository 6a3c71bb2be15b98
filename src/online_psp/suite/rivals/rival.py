"""What the suite needs of a rival: three pure functions on one state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from online_psp.engine.types import Floats


class Rival(NamedTuple):
    """An algorithm to compare with."""

    title: str
    start: Callable[[Floats, int], Any]
    """From the first rows, (≥ K, D), and K to a state that has not learned from any row yet."""
    step: Callable[..., Any]
    """From a state and a block of rows, (n, D), to the next state; hyper-parameters are keyword arguments."""
    basis: Callable[[Any], Floats]
    """From a state to its subspace, (D, K), orthonormal columns."""
    block: Callable[[int], int] = lambda K: 1
    """Rows of a block, given K. Where it is 1, blocks of any size give the same iterates."""
    handles_missing: bool = False
    """Whether NaN counts as a missing value."""


def first_basis(X0: Floats, K: int) -> Floats:
    """(D, K): the thin QR basis of the first K rows; missing values count as zero."""
    return np.asarray(np.linalg.qr(np.nan_to_num(X0[:K]).T)[0])


def orthonormal(U: Floats) -> Floats:
    """(D, K): the Gram–Schmidt basis of the columns, in their order."""
    Q, R = np.linalg.qr(U)
    return np.asarray(Q * np.where(np.diag(R) < 0, -1.0, 1.0))


class Held:
    """Rows that do not fill a block yet."""

    def __init__(self) -> None:
        self.rows = np.zeros((0, 0))

    def whole(self, X: Floats, size: int) -> Iterator[Floats]:
        """The blocks of `size` rows that are full with X, (n, D); the other rows are kept."""
        rows = np.concatenate([self.rows, X]) if len(self.rows) else X
        end = len(rows) - len(rows) % size
        self.rows = rows[end:].copy()
        for at in range(0, end, size):
            yield rows[at : at + size]


class RivalModel:
    """A rival that is fed with any number of rows at a time: it holds those that do not fill a block.

    Parameters
    ----------
    rival : Rival
    K : int
    D : int, optional
        Not needed; taken as by the other algorithms.
    block : int, optional
        Rows of a block, in place of the rival's own.
    **options
        Hyper-parameters of its step.
    """

    def __init__(self, rival: Rival, K: int, D: int | None = None, *, block: int | None = None, **options: Any) -> None:
        self.K, self.handles_missing = K, rival.handles_missing
        self._rival, self._options = rival, options
        self._rows = rival.block(K) if block is None else block
        self._held = Held()
        self._state: Any = None

    def fit_block(self, X: ArrayLike) -> None:
        """Learn from n rows, (n, D)."""
        rows = np.asarray(X, dtype=np.float64)
        if self._state is None:
            rows, self._held = np.concatenate([self._held.rows, rows]) if len(self._held.rows) else rows, Held()
            if len(rows) < self.K:
                self._held.rows = rows.copy()
                return
            self._state = self._rival.start(rows, self.K)
        for block in [rows] if self._rows == 1 else self._held.whole(rows, self._rows):
            self._state = self._step(block)

    def fit_next(self, x: ArrayLike) -> None:
        """Learn from one row, (D,)."""
        self.fit_block(np.asarray(x, dtype=np.float64)[np.newaxis])

    def get_components(self) -> Floats:
        """The subspace, (D, K), with the rows that do not fill a block."""
        held = self._held.rows
        if self._state is None:
            if not len(held):
                raise ValueError("There is no basis before the first row.")
            return first_basis(np.pad(held, ((0, self.K - len(held)), (0, 0))), self.K)
        return self._rival.basis(self._step(held) if len(held) else self._state)

    def _step(self, rows: Floats) -> Any:
        return self._rival.step(self._state, rows, **self._options)
