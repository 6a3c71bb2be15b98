"""AdaOja (Henriksen and Ward 2019): Oja's method, with a step size for each column that adapts to its gradients, as in AdaGrad.

For block ``X_t`` of B rows::

    G_t    = X_tᵀ (X_t Q_{t−1}) / B
    b_t,k  = sqrt(b_{t−1,k}² + ‖G_t,k‖²)        for every column k
    Q_t    = qr(Q_{t−1} + G_t diag(1/b_t))

====  =====  =================================================================
Q     (D,K)  orthonormal columns; kept as rows, U (K,D)
b     (K,)   inverse step sizes
====  =====  =================================================================

A. Henriksen, R. Ward, "AdaOja: Adaptive Learning Rates for Streaming PCA", arXiv:1905.12115, 2019. B = 10 as there. The columns come out
in order of variance, as in any orthogonal iteration.

The iterates are exact: Q stays a linear combination of its old value and the rows, so several blocks are compressed at once, into their
inner products with Q and with each other. The blocks then update these small arrays one by one. The QR decomposition uses the Cholesky
factor of ``RᵀR = I + …``, which is well conditioned because a step is never longer than one. If a factor is not, its blocks are taken at
full length.

Departures: the start is the thin QR basis of the first K samples, not that of a Gaussian matrix. ``b_0 = 0``, not 1e-5, so that results do
not depend on units. If rows have shares in an average other than ``1/t``, ``b² = ⟨‖G‖²⟩/(share of the block)``, which for ``1/t`` is the
published sum; a block that a read cuts short counts as a fraction of a block.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple, Self

import numpy as np
from numpy.typing import DTypeLike
from scipy.linalg import lapack, solve_triangular

from online_psp.algorithms._blockwise import BlockwiseAlgorithm, orthonormal_rows
from online_psp.algorithms._provided import BlockSize
from online_psp.engine.blas import add_product, full_gram, matmul
from online_psp.engine.checks import check_number
from online_psp.engine.moments import weights_left
from online_psp.engine.types import Array, Floats, Rate

ROWS = 10
_TOGETHER = 64  # rows whose blocks are compressed at once, unless K is larger
_LEAST_PIVOT = 1e-4
_BETWEEN_CHECKS = 16  # compressions between two checks that the basis is still orthonormal


class AdaOjaState(NamedTuple):
    """The iterate, and the rows of the block that is not full yet."""

    Q: Floats
    """(D, K)"""
    squares: Floats
    """(K,): b²"""
    rows: Floats
    """(n, D)"""


def reference_start(Q: Floats) -> AdaOjaState:
    """The start from an orthonormal Q, (D, K)."""
    return AdaOjaState(Q, np.zeros(Q.shape[1]), np.zeros((0, len(Q))))


def reference_step(state: AdaOjaState, x: Floats, share: float) -> tuple[AdaOjaState, Floats]:
    """One more row; the basis moves when a block is full. All rows weigh the same: `share` is not used."""
    y = state.Q.T @ x
    state = state._replace(rows=np.vstack([state.rows, x]))
    return (reference_block(*state) if len(state.rows) == ROWS else state), y


def reference_block(Q: Floats, squares: Floats, rows: Floats) -> AdaOjaState:
    """The published update."""
    G = rows.T @ (rows @ Q) / len(rows)
    squares = squares + np.sum(G**2, axis=0)
    step = np.divide(1.0, np.sqrt(squares), out=np.zeros(len(squares)), where=squares > 0)
    Q, R = np.linalg.qr(Q + G * step)
    return AdaOjaState(Q * np.where(np.diag(R) < 0, -1.0, 1.0), squares, rows[:0])


def reference_basis(state: AdaOjaState) -> Floats:
    """(D, K), orthonormal, with the open rows, which count as a fraction of a block."""
    Q, squares, rows = state
    return reference_block(Q, squares * ROWS / len(rows), rows).Q if len(rows) else Q


class AdaOjaRunning(NamedTuple):
    """The state after the start."""

    U: Annotated[Array, "K", "D"]
    gradients: Annotated[Floats, "K"]
    M: Annotated[Floats, "K", "K"]
    since: int
    rows: Annotated[Array, "n", "D"]
    shares: Annotated[Floats, "n"]


class AdaOja(BlockwiseAlgorithm):
    """AdaOja: Oja's method whose steps need no tuning.

    Parameters
    ----------
    K, D, dtype
        As in `FSM`.
    b0 : float
        b at the start, in the units of a variance; the paper takes 1e-5, for rows of about unit length.
    learning_rate : callable, optional
        ``t → share`` in [0, 1], t from 1: the share of sample t in the average of all up to it; ``1/t`` by default. A constant makes it
        forget.
    block_size : int or "auto"
        B, rows of a block: 10 by default.
    """

    Running = AdaOjaRunning
    option_names = ("b0",)

    def __init__(
        self,
        K: int,
        D: int | None = None,
        *,
        b0: float = 0.0,
        learning_rate: Rate | None = None,
        block_size: BlockSize = "auto",
        dtype: DTypeLike = np.float64,
    ) -> None:
        super().__init__(K, D, learning_rate, block_size, dtype)
        self.b0 = check_number(b0, "b0")
        if not 0.0 <= self.b0 < float("inf"):
            raise ValueError(f"b0 must be finite and not negative; got {b0!r}.")

    @classmethod
    def from_directions(cls, components: Array, variances: Floats, *, block_size: BlockSize, dtype: Any) -> Self:
        model = cls(*components.shape, block_size=block_size, dtype=dtype)
        model._begin(np.array(components, dtype=model.dtype, order="C"))
        model._gradients, model._M, model._started = np.array(variances), np.diag(variances), True
        return model

    @property
    def block_rows(self) -> int:
        return ROWS if self.block_size == "auto" else self.block_size

    def _at_once(self, n: int) -> int:
        B = self.block_rows
        return B * min(n // B, max(1, max(_TOGETHER, self.K) // B))

    def _begin(self, basis: Array) -> None:
        super()._begin(basis)
        self._gradients: Floats = np.zeros(self.K)  # sqrt(⟨‖G_k‖²⟩)
        self._M: Floats = np.zeros((self.K, self.K))  # covariance of the outputs
        self._since = 0

    def _take_whole(self, rows: Array, shares: Floats) -> Array:
        return self._learn_blocks(rows, shares)

    def _advance(self, rows: Array, shares: Floats) -> None:
        self._learn_blocks(rows, shares)

    def _fade(self, keep: float) -> None:
        self._gradients *= np.sqrt(keep)
        self._M *= keep

    def _learn_blocks(self, X: Array, shares: Floats) -> Array:
        """Learn from whole blocks, or one that was cut short; returns their outputs, (n, K)."""
        before = self._gradients.copy(), self._M.copy()
        try:
            Y, Z = self._recur(matmul(X, self._U.T).astype(np.float64), full_gram(X).astype(np.float64), shares)
        except np.linalg.LinAlgError:
            self._gradients, self._M = before
            return self._learn_at_full_length(X, shares)
        K = self.K
        new = matmul(np.ascontiguousarray(Z[:, :K], dtype=self.dtype), self._U)
        add_product(new, 1.0, np.ascontiguousarray(Z[:, K:]), np.ascontiguousarray(X))
        self._U = new
        self._since += 1
        if self._since >= _BETWEEN_CHECKS:
            self._since = 0
            self._U = orthonormal_rows(new)[0]
        return Y

    def _recur(self, P: Floats, G: Floats, shares: Floats) -> tuple[Floats, Floats]:
        """Outputs, (n, K), and coefficients of the basis over ``[U; X]``, (K, K + n), from inner products alone."""
        (n, K), B = P.shape, self.block_rows
        H, Z, Y = np.hstack([P, G]), np.eye(K, K + n), np.empty((n, K))
        for start in range(0, n, B):
            part = slice(start, min(start + B, n))
            y = Y[part] = matmul(H[part, : K + start], np.ascontiguousarray(Z[:, : K + start]).T)
            own = np.ascontiguousarray(G[part, part])
            E = self._step(y, own, shares[part])
            if E is None:
                continue
            cross = matmul(E.T, y)
            L, failed = lapack.dpotrf(np.eye(K) + cross + cross.T + matmul(E.T, matmul(own, E)), lower=1)
            if failed or np.diag(L).min() ** 2 < _LEAST_PIVOT:
                raise np.linalg.LinAlgError
            stop = K + part.stop
            Z[:, K + start : stop] = E.T
            Z[:, :stop] = solve_triangular(L, Z[:, :stop], lower=True, check_finite=False)
        return Y, Z

    def _step(self, y: Floats, G: Floats, shares: Floats) -> Floats | None:
        """Coefficients, (B, K), with which the rows of a block are added to the basis; None for zero.

        The rows have outputs y (B, K) and inner products G (B, B).
        """
        left, keep = weights_left(shares)
        weight = float(left.sum())
        size = float(np.abs(y).max())
        self._M = keep * self._M + matmul((y * left[:, np.newaxis]).T, y)
        if weight == 0.0 or size == 0.0:
            self._gradients *= np.sqrt(keep)
            return None
        T = y * (left / weight)[:, np.newaxis]
        scaled = T / size
        lengths = size * np.sqrt(np.maximum(np.einsum("bk,bk->k", scaled, matmul(G, scaled)), 0.0))
        self._gradients = np.hypot(np.sqrt(keep) * self._gradients, np.sqrt(weight) * lengths)
        b = np.hypot(self.b0, self._gradients / np.sqrt(weight))
        return np.asarray(np.divide(T, b, out=np.zeros_like(T), where=lengths > 0))

    def _learn_at_full_length(self, X: Array, shares: Floats) -> Array:
        Y, B = np.empty((len(X), self.K)), self.block_rows
        for start in range(0, len(X), B):
            part = slice(start, start + B)
            rows = np.ascontiguousarray(X[part])
            y = Y[part] = matmul(rows, self._U.T)
            E = self._step(y, full_gram(rows).astype(np.float64), shares[part])
            if E is not None:
                moved = self._U.copy()
                add_product(moved, 1.0, np.ascontiguousarray(E.T), rows)
                self._U = orthonormal_rows(moved)[0]
        return Y

    def _covariance_within(self, R: Floats) -> Floats:
        return matmul(matmul(R, self._M), R.T)

    def _running_state(self) -> AdaOjaRunning:
        return AdaOjaRunning(self._U.copy(), self._gradients.copy(), self._M.copy(), self._since, *self._open_rows())

    def _restore(self, running: AdaOjaRunning) -> None:
        self._begin(np.array(running.U))
        self._gradients, self._M, self._since = running.gradients.copy(), running.M.copy(), running.since
        self._hold_again(running.rows, running.shares)
