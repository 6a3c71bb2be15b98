"""What IPCA and CCIPCA share: a basis of unit vectors with a variance each, and a recurrence in orthonormal coordinates."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from online_psp.algorithms._base import StreamingAlgorithm
from online_psp.algorithms._provided import BlockSize
from online_psp.engine.blas import matmul
from online_psp.engine.checks import check_rate, check_start, checked_step, evaluate_rate, not_finite
from online_psp.engine.frames import Frame
from online_psp.engine.rows import AnyRows, SparseRows
from online_psp.engine.sizes import FixedCost, sparse_frame_rows
from online_psp.engine.sparse_frame import SparseFrame
from online_psp.engine.types import Array, Floats, Rate


class FrameAlgorithm(StreamingAlgorithm):
    """Components U (D×K) with variances σ² (K)."""

    _cost = FixedCost(call=150e-6, passes=3.0, turns=0.6, pairs=1.0, most=512)
    _orthonormal: ClassVar[bool]

    _frame: Frame

    def _set_up(self, learning_rate: Rate | None, Uhat0: ArrayLike | None, sigma2: Floats) -> None:
        """Take the step sizes and the start."""
        self.learning_rate = check_rate(learning_rate, "learning_rate")
        self._sigma2 = sigma2
        if Uhat0 is not None:
            self._begin(self._unit_rows(check_start(Uhat0, "Uhat0", (self._features(), self.K))).astype(self.dtype))
            self._started = True

    @abstractmethod
    def _unit_rows(self, Uhat0: Floats) -> Floats:
        """The user's start as (K, D) rows of unit length."""

    @classmethod
    def from_directions(cls, components: Array, variances: Floats, *, block_size: BlockSize, dtype: Any) -> Self:
        K, D = components.shape
        variances = cls.positive(variances, dtype)
        make: Any = cls
        model: Self = make(K, D, Uhat0=components.T, sigma2_0=variances, block_size=block_size, dtype=dtype)
        return model

    def _begin(self, basis: Array) -> None:
        self._frame = Frame(basis, self.open_capacity, self._orthonormal)
        self._steps = np.zeros(self.open_capacity)

    def _given_start(self) -> Floats | None:
        return self._sigma2[np.newaxis].copy()

    def _take_start(self, start: Floats) -> None:
        if start.shape != (1, self.K):
            raise ValueError("its variances are not one for each component")
        self._sigma2 = start[0]

    def _adopt(self, fresh: Frame) -> None:
        """After restoring a frame whose layout differs from today's: close its open block, and continue in a fresh frame."""
        if self._frame.direct != fresh.direct or self._frame.n >= fresh.capacity:
            self._flush()
            fresh.basis[:] = self._frame.basis
            self._frame = fresh

    def _hold(self, steps: Floats) -> None:
        """Restore the step sizes of an open block."""
        self._steps = np.zeros(max(len(self._steps), len(steps) + 1))
        self._steps[: len(steps)] = steps

    def _use_store_for(self, rows: AnyRows) -> None:
        if isinstance(rows, SparseRows) and not isinstance(self._frame, SparseFrame):
            self._frame = SparseFrame(self._frame.basis, self.open_capacity, self._orthonormal)

    def _rows_for(self, rows: AnyRows) -> int:
        if isinstance(rows, SparseRows) and self.block_size == "auto":
            return sparse_frame_rows(self._features())
        return self.block_rows

    def _open_samples(self) -> int:
        return self._frame.n if self._started else 0

    @abstractmethod
    def _default_rate(self, t: int) -> float:
        """The published step size of sample t."""

    def _rates(self, t: int, n: int) -> tuple[Floats, ...]:
        return (evaluate_rate(self.learning_rate or self._default_rate, t, n, "learning_rate", self.most_step),)

    def _take_open(self, row: Array, step: float | None) -> Array:
        frame, t = self._frame, self.t + 1
        at = frame.n
        if step is None:
            rate = self.learning_rate
            step = self._default_rate(t) if rate is None else checked_step(rate(t), f"learning_rate(t={t})", self.most_step)
        if not frame.add(row):
            raise not_finite(row, 0, self.dtype)
        self._steps[at] = step
        y: Array = self._advance(at, at + 1)[0].astype(self.dtype)
        self.t = t
        if frame.n >= frame.capacity:
            self._close()
        return y

    def _take_block(self, rows: Any, rates: list[Floats], G: Array | None = None) -> Floats:
        self._frame.load(rows, G)
        if len(rows) > len(self._steps):
            self._steps = np.zeros(len(rows))
        self._steps[: len(rows)] = rates[0]
        Y = self._advance(0, len(rows))
        self._close()
        return Y

    @abstractmethod
    def _advance(self, first: int, last: int) -> Floats:
        """The compiled recurrence over samples `first` … `last`−1 in hand; returns their outputs."""

    def _close(self) -> None:
        self._frame.expand()

    def _raw_basis(self) -> Array:
        return self._frame.basis[np.argsort(-self._sigma2, kind="stable")]

    def _covariance_within(self, R: Floats) -> Floats:
        return matmul(R * self.sigma2, R.T)

    @property
    def sigma2(self) -> Floats:
        """(K,) variances along the components, largest first."""
        with self._lock:
            return np.sort(self._sigma2)[::-1]
