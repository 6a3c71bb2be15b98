"""What algorithms share that learn one row at a time, from those of its values that are observed.

NaN is a missing value; infinity is refused. Every row has its own set of observed features, so a block cannot be compressed: rows are
taken one by one, in double precision. Missing values in the first K rows, from which the algorithm starts, count as zero.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from online_psp.algorithms._base import StreamingAlgorithm
from online_psp.algorithms._provided import BlockSize
from online_psp.engine.checks import check_rate, checked_step, evaluate_rate, not_finite, row_squares
from online_psp.engine.row_products import centred
from online_psp.engine.rows import AnyRows, DenseRows, SparseRows
from online_psp.engine.sizes import CHECK_BYTES, FixedCost
from online_psp.engine.types import Array, Floats, Rate

RCOND = 1e-6
"""Singular values of the observed part of the basis below this, relative to the largest, count as zero."""


def coordinates(U: Floats, x: Floats, seen: NDArray[np.bool_]) -> Floats:
    """The shortest w, (K,), for which U w is nearest to x in the observed features."""
    return np.asarray(np.linalg.lstsq(U[seen], x[seen], rcond=RCOND)[0])


class PartialAlgorithm(StreamingAlgorithm):
    """Base class of algorithms whose basis moves with every row, by its observed values.

    Parameters
    ----------
    K, D, dtype
        As in `FSM`.
    learning_rate : callable, optional
        ``t → share`` in [0, 1], t from 1: the share of sample t in the average of all up to it; ``1/t`` by default. A constant makes it
        forget.
    block_size : int or "auto"
        Accepted as by the other algorithms; it has no effect.
    """

    handles_missing = True
    _cost = FixedCost(call=300e-6, passes=4.0)
    most_step = 1.0
    learns_pca = False

    def __init__(self, K: int, D: int | None, learning_rate: Rate | None, block_size: BlockSize, dtype: DTypeLike) -> None:
        super().__init__(K, D, block_size, dtype)
        self.learning_rate = check_rate(learning_rate, "learning_rate")

    # What an algorithm provides

    @abstractmethod
    def _learn_row(self, x: Floats, seen: NDArray[np.bool_], share: float) -> Floats:
        """Learn from a row, (D,), with an observed value that is not zero; returns its coordinates, (K,)."""

    # Rows in

    def _begin(self, basis: Array) -> None:
        self._U: Floats = np.array(basis.T, dtype=np.float64, order="C")  # (D, K)
        self._M: Floats = np.zeros((self.K, self.K))  # average of y yᵀ

    def _rates(self, t: int, n: int) -> tuple[Floats, ...]:
        if self.learning_rate is None:
            return (1.0 / np.arange(t + 1.0, t + n + 1.0),)
        return (evaluate_rate(self.learning_rate, t, n, "learning_rate", self.most_step),)

    def _check_finite(self, rows: AnyRows, rates: tuple[Floats, ...]) -> list[Array]:
        if isinstance(rows, SparseRows):
            known = rows[:]
            known.data = np.nan_to_num(rows.data, nan=0.0, posinf=np.inf, neginf=-np.inf)
            known.check_finite(self.dtype)
        elif isinstance(rows, DenseRows):
            step = max(1, CHECK_BYTES // (8 * max(1, rows.D)))
            for start in range(0, len(rows), step):
                self._check_part(rows.X[start : start + step], start)
        return []

    def _check_part(self, X: Array, start: int) -> None:
        with np.errstate(over="ignore"):
            known = _without_nan(X.astype(self.dtype, copy=False))
            finite = np.isfinite(row_squares(known))
        if not finite.all():
            at = int(np.argmin(finite))
            raise not_finite(_without_nan(X[at]), start + at, self.dtype)

    def _check_first(self, row: Array) -> None:
        self._check_part(row[np.newaxis], 0)

    def _start_with(self, rows: Array, rates: tuple[Floats, ...]) -> Array:
        return super()._start_with(_without_nan(rows), rates)

    def _take_open(self, row: Array, step: float | None) -> Array:
        if step is None:
            t, rate = self.t + 1, self.learning_rate
            step = checked_step(1.0 / t if rate is None else rate(t), f"learning_rate(t={t})", self.most_step)
        self._check_first(row)
        y: Array = self._take_block(row[np.newaxis], [np.array([step])])[0].astype(self.dtype)
        self.t += 1
        return y

    def _take_block(self, rows: Any, rates: list[Floats], G: Array | None = None) -> Floats:
        X = self._dense(rows).astype(np.float64)
        observed = ~np.isnan(X)
        Y = np.zeros((len(X), self.K))
        for i, (x, seen, share) in enumerate(zip(X, observed, rates[0], strict=True)):
            if x[seen].any():
                Y[i] = y = self._learn_row(x, seen, float(share))
                self._M = (1.0 - share) * self._M + share * np.outer(y, y)
        return Y

    def _dense(self, rows: Any) -> Array:
        if not isinstance(rows, SparseRows):
            return np.asarray(rows)
        X: Array = centred(rows, self.dtype)
        if rows.sums is not None:
            rows.sums.take(rows)
        return X

    def _open_samples(self) -> int:
        return 0

    def _close(self) -> None:
        """Does nothing: no row is ever open."""

    def _use_store_for(self, rows: AnyRows) -> None:
        """Does nothing: the basis is a NumPy array."""

    # Reading and state

    def _raw_basis(self) -> Array:
        return np.ascontiguousarray(self._U.T, dtype=self.dtype)

    def _covariance_within(self, R: Floats) -> Floats:
        return np.asarray(R @ self._M @ R.T)

    @classmethod
    def checked(cls, running: NamedTuple) -> Any:
        """A state from a file; raises a ValueError if it is impossible."""
        if (np.diag(running.M) < 0).any():  # type: ignore[attr-defined]
            raise ValueError("it has negative variances")
        return running


def _without_nan(X: Array) -> Array:
    """The array with zero in place of NaN; infinity stays."""
    return np.where(np.isnan(X), X.dtype.type(0), X)
