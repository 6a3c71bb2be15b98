"""What IPCA and CCIPCA share: a basis of unit vectors with a variance each, and a recurrence in orthonormal coordinates."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from online_psp.algorithms._base import BlockSize, StreamingAlgorithm
from online_psp.algorithms._checks import check_start, checked_step, evaluate_rate, not_finite
from online_psp.engine.blas import matmul
from online_psp.engine.frames import FrameBlock
from online_psp.engine.sizes import FixedCost
from online_psp.engine.sparse import SparseFrameBlock, frame_rows
from online_psp.engine.types import Array, Floats, Rate


class FrameAlgorithm(StreamingAlgorithm[FrameBlock]):
    """Components U (D×K) with variances σ² (K)."""

    _cost = FixedCost(call=150e-6, passes=3.0, turns=0.6, pairs=1.0, most=512)
    _orthonormal: bool

    def __init__(
        self,
        K: int,
        D: int | None,
        Uhat0: ArrayLike | None,
        sigma2_0: ArrayLike | None,
        default_sigma2: float,
        learning_rate: Rate | None,
        block_size: BlockSize,
        dtype: DTypeLike,
    ) -> None:
        if Uhat0 is not None and D is None:
            D = np.shape(Uhat0)[0] if np.ndim(Uhat0) else None
        super().__init__(K, D, block_size, dtype)
        self.learning_rate = learning_rate
        self._sigma2: Floats = np.full(self.K, default_sigma2) if sigma2_0 is None else check_start(sigma2_0, "sigma2_0", (self.K,))
        if np.any(self._sigma2 < 0):
            raise ValueError("sigma2_0 must not be negative.")
        if Uhat0 is not None:
            self._begin(self._unit_rows(check_start(Uhat0, "Uhat0", (self._features(), self.K))).astype(self.dtype))

    @abstractmethod
    def _unit_rows(self, Uhat0: Floats) -> Floats:
        """The user's start as (K, D) rows of unit length."""

    def _begin(self, basis: Array) -> None:
        self._block = FrameBlock(basis, self.open_rows, self._orthonormal)
        self._steps = np.zeros((1, self._held_rows))

    def _use_block_for(self, rows: Any) -> None:
        if not isinstance(self._block, SparseFrameBlock):
            assert self._block is not None
            self._block = SparseFrameBlock(self._block.basis, self.open_rows, self._orthonormal)
            self._steps = np.zeros((1, max(self._held_rows, self._most(self._sparse_rows))))

    @property
    def _sparse_rows(self) -> int:
        return frame_rows(self._features(), self.K) if self.block_size == "auto" else self.block_size

    @abstractmethod
    def _default_rate(self, t: int) -> float:
        """The published step size of sample t."""

    def _rates(self, t: int, n: int) -> tuple[Floats, ...]:
        return (evaluate_rate(self.learning_rate or self._default_rate, t, n, "learning_rate"),)

    def _take_open(self, row: Array, step: float | None) -> Array:
        block, t = self._block, self.t + 1
        assert block is not None
        at = block.n
        self._steps[0, at] = checked_step(self.learning_rate or self._default_rate, t, "learning_rate") if step is None else step
        if not block.add(row):
            raise not_finite(row[np.newaxis], 0)
        y: Array = self._recur(at, at + 1)[0].astype(self.dtype)
        self.t = t
        if block.n == block.pending:
            self._close()
        return y

    @abstractmethod
    def _advance(self, block: FrameBlock, first: int, last: int, alphas: Floats) -> Floats:
        """The compiled recurrence over samples `first` … `last`−1; returns their outputs."""

    def _recur(self, first: int, last: int) -> Floats:
        assert self._block is not None
        return self._advance(self._block, first, last, self._steps[0])

    def _close(self) -> None:
        assert self._block is not None
        self._block.expand()

    def _raw_basis(self) -> Array:
        assert self._block is not None
        return self._block.basis[np.argsort(-self._sigma2, kind="stable")]

    def _covariance_within(self, R: Floats) -> Floats:
        return matmul(R * self.sigma2, R.T)

    @property
    def sigma2(self) -> Floats:
        """(K,) variances along the components, largest first."""
        return np.sort(self._sigma2)[::-1]
