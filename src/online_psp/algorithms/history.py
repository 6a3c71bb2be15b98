"""History PCA (Yang, Hsieh and Wang 2018): power iterations on each block, together with a summary of all blocks before it.

For block ``X_t`` of B rows::

    A_t = (t−1)/t Q_{t−1} Λ_{t−1} Q_{t−1}ᵀ + 1/t X_tᵀ X_t / B
    m times:  G = A_t Q;  Q ← qr(G)
    Q_t = Q,  Λ_t = diag(‖G_k‖)

====  =====  =======================================================
Q     (D,K)  orthonormal columns; kept as rows, U (K,D)
Λ     (K,)   the sizes that the last power iteration gave the columns
====  =====  =======================================================

P. Yang, C.-J. Hsieh, J.-L. Wang, "History PCA: A New Algorithm for Streaming PCA", arXiv:1802.05447, 2018.

A_t is never formed: a block costs 4m matrix products of the size of the basis, and m QR decompositions. Departures: the start is the thin
QR basis of the first K samples, not that of a Gaussian matrix. Blocks have max(10, K) rows (the paper takes about 10), and the first has at
least K: with fewer, rounding would decide some columns of Q. The weights (t−1)/t and 1/t are computed from the rows seen."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple, Self

import numpy as np
from numpy.typing import DTypeLike

from online_psp.algorithms._blockwise import BlockwiseAlgorithm, orthonormal_rows
from online_psp.algorithms._provided import BlockSize
from online_psp.engine.blas import add_product, matmul
from online_psp.engine.checks import check_whole
from online_psp.engine.moments import weights_left
from online_psp.engine.types import Array, Floats, Rate

LEAST_ROWS = 10

_MOST_ITERATIONS = 1000


class HistoryState(NamedTuple):
    """The iterate, and the rows of the block that is not full yet."""

    Q: Floats
    """(D, K)"""
    variances: Floats
    """(K,)"""
    rows: Floats
    """(n, D)"""
    shares: Floats
    """(n,)"""


def reference_start(Q: Floats) -> HistoryState:
    """The start from an orthonormal Q, (D, K): no history yet."""
    D, K = Q.shape
    return HistoryState(Q, np.zeros(K), np.zeros((0, D)), np.zeros(0))


def reference_step(state: HistoryState, x: Floats, share: float) -> tuple[HistoryState, Floats]:
    """One more row; the basis moves when a block is full."""
    Q, variances, rows, shares = state
    y = Q.T @ x
    rows, shares = np.vstack([rows, x]), np.append(shares, share)
    if len(rows) == max(LEAST_ROWS, Q.shape[1]):
        Q, variances = reference_block(Q, variances, rows, shares)
        rows, shares = rows[:0], shares[:0]
    return HistoryState(Q, variances, rows, shares), y


def reference_block(Q: Floats, variances: Floats, rows: Floats, shares: Floats, iterations: int = 1) -> tuple[Floats, Floats]:
    """Columns and variances after a block, (n, D)."""
    left, keep = weights_left(shares)
    A = keep * (Q * variances) @ Q.T + (rows.T * left) @ rows
    for _ in range(iterations):
        G = A @ Q
        Q = np.linalg.qr(G)[0]
    return Q, np.linalg.norm(G, axis=0)


def reference_basis(state: HistoryState) -> Floats:
    """(D, K), orthonormal, with the open rows."""
    return state.Q if not len(state.rows) else reference_block(*state)[0]


class HistoryRunning(NamedTuple):
    """The state after the start."""

    U: Annotated[Array, "K", "D"]
    variances: Annotated[Floats, "K"]
    fresh: bool
    rows: Annotated[Array, "n", "D"]
    shares: Annotated[Floats, "n"]


class HistoryPCA(BlockwiseAlgorithm):
    """History PCA: power iterations on each block, together with a summary of all blocks before it.

    Parameters
    ----------
    K, D, dtype
        As in `FSM`.
    iterations : int
        m, power iterations on each block.
    learning_rate : callable, optional
        ``t → share`` in [0, 1], t from 1: the share of sample t in the average of all up to it; ``1/t`` by default. A constant makes it
        forget.
    block_size : int or "auto"
        B, rows of a block: max(10, K) by default.
    """

    Running = HistoryRunning
    option_names = ("iterations",)

    def __init__(
        self,
        K: int,
        D: int | None = None,
        *,
        iterations: float = 1,
        learning_rate: Rate | None = None,
        block_size: BlockSize = "auto",
        dtype: DTypeLike = np.float64,
    ) -> None:
        super().__init__(K, D, learning_rate, block_size, dtype)
        self.iterations = check_whole(iterations, "iterations")
        if self.iterations > _MOST_ITERATIONS:
            raise ValueError(f"iterations must be at most {_MOST_ITERATIONS}: a few are enough, and a block would take as many products.")

    @classmethod
    def from_directions(cls, components: Array, variances: Floats, *, block_size: BlockSize, dtype: Any) -> Self:
        model = cls(*components.shape, block_size=block_size, dtype=dtype)
        model._begin(np.array(components, dtype=model.dtype, order="C"))
        model._variances, model._fresh, model._started = np.array(variances), False, True
        return model

    @property
    def block_rows(self) -> int:
        return max(LEAST_ROWS, self.K) if self.block_size == "auto" else self.block_size

    def _most_held(self) -> int:
        return max(self.block_rows, self.K)

    def _block(self) -> int:
        return self._most_held() if self._fresh else self.block_rows

    def _begin(self, basis: Array) -> None:
        super()._begin(basis)
        self._variances: Floats = np.zeros(self.K)
        self._fresh = True  # no block yet

    def _advance(self, rows: Array, shares: Floats) -> None:
        left, keep = weights_left(shares)
        old, U, remembered = self._U, self._U, (keep * self._variances).astype(self.dtype)
        for number in range(self.iterations):
            seen = matmul(U, rows.T) * left.astype(self.dtype)  # (K, n)
            again = np.diag(remembered) if number == 0 else matmul(U, old.T) * remembered
            G = matmul(again, old)
            add_product(G, 1.0, seen, np.ascontiguousarray(rows))
            U, R = orthonormal_rows(G)
        self._U, self._fresh = U, False
        unit = max(float(np.abs(R).max()), float(np.finfo(np.float64).tiny))  # variances may be near the limits of floating point
        self._variances = unit * np.linalg.norm(R.astype(np.float64) / unit, axis=0)

    def _fade(self, keep: float) -> None:
        self._variances *= keep

    def _covariance_within(self, R: Floats) -> Floats:
        return np.asarray((R * self._variances) @ R.T)

    def _running_state(self) -> HistoryRunning:
        return HistoryRunning(self._U.copy(), self._variances.copy(), self._fresh, *self._open_rows())

    def _restore(self, running: HistoryRunning) -> None:
        self._begin(np.array(running.U))
        self._variances, self._fresh = running.variances.copy(), running.fresh
        self._hold_again(running.rows, running.shares)
