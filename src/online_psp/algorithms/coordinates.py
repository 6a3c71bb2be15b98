"""A basis and the samples of a block in orthonormal coordinates, for algorithms in which the norms of small residuals matter: IPCA, CCIPCA.

An inner product of two residuals taken from a Gram matrix is only good to ``eps ‖x‖²``; coordinates in an orthonormal frame of the stacked
rows ``[B; X]`` are good to ``eps ‖x‖``. The frame Q itself is never formed: ``stack = L Q`` with L lower triangular, a Cholesky factor of
the Gram matrix of the stack, so coordinates Z over Q are ``Z L⁻¹`` over the stack.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike
from scipy.linalg import lapack, qr, solve_triangular

from online_psp.algorithms.base import BlockSize, StreamingAlgorithm
from online_psp.algorithms.compress import put_and_multiply
from online_psp.engine.blas import dot, full_gram, gram, matmul
from online_psp.engine.checks import check_rate, check_start
from online_psp.engine.compiler import kernel
from online_psp.engine.types import Array, Floats, Rate

BETWEEN_LOOKS = 8.0
"""Blocks whose Gram matrix of the basis is taken from coordinates, before it is computed anew: errors grow from one to the next."""


@kernel
def add_to_frame(stack: Array, at: int, row: Array, L: Floats, x: Floats) -> tuple[float, float]:
    """Store `row` as row `at` of the stack, and fill in its coordinates x in the frame of the rows before it.

    Returns
    -------
    square, pivot : float
        ``‖x‖²``, and the part of it outside that frame.
    """
    products = np.empty(at + 1, dtype=stack.dtype)
    put_and_multiply(stack, at, row, products)
    square = float(products[at])
    pivot = square
    for i in range(at):
        total = float(products[i])
        for j in range(i):
            total -= L[i, j] * x[j]
        x[i] = total / L[i, i]
        pivot -= x[i] * x[i]
    return square, pivot


@dataclass(slots=True)
class FrameState:
    """Components and their variances, with the open block behind them.

    A sample that lies almost in the span of the rows before it is replaced in the stack by its unit residual, found by Gram–Schmidt at full
    length, which loses no digits.
    """

    stack: Annotated[Array, "mD"]
    """The basis B, then the samples of the block."""
    L: Annotated[Floats, "mm"]
    """``stack = L Q`` with orthonormal Q."""
    Z: Annotated[Floats, "Km"]
    """Coordinates of the basis."""
    x: Annotated[Floats, "nm"]
    """Coordinates of the samples; sample s has none beyond K + s + 1."""
    H: Annotated[Floats, "KK"]
    """``B Bᵀ``."""
    sigma2: Annotated[Floats, "K"]
    Y: Annotated[Floats, "nK"]
    steps: Annotated[Floats, "rn"]
    blocks: float = BETWEEN_LOOKS
    """Blocks since the basis was last looked at."""


class FrameAlgorithm(StreamingAlgorithm):
    """Components (K×D) with a variance each, and a recurrence in orthonormal coordinates of ``[B; X]``."""

    State: ClassVar[type] = FrameState
    _state: FrameState

    def __init__(
        self,
        K: int,
        D: int | None,
        start: tuple[ArrayLike | None, Floats],
        learning_rate: Rate | None,
        block_size: BlockSize,
        dtype: DTypeLike,
    ) -> None:
        Uhat0, sigma2 = start
        if Uhat0 is not None and D is None and np.ndim(Uhat0):
            D = np.shape(Uhat0)[0]
        self.learning_rate = check_rate(learning_rate, "learning_rate")
        super().__init__(K, D, block_size, dtype, {"sigma2": sigma2})
        if Uhat0 is not None:
            self._state = self._start(self._unit_rows(check_start(Uhat0, "Uhat0", (self._features(), self.K))))

    @abstractmethod
    def _unit_rows(self, Uhat0: Floats) -> Floats:
        """The user's start as (K, D) rows of unit length."""

    @abstractmethod
    def _moved(self, m: int) -> Floats:
        """(K, m): the basis after the block, in coordinates; unit rows."""

    def _start(self, Q: Array) -> Any:
        K, size = self.K, max(self.block_rows, self.open_rows)
        m = K + size
        stack = np.zeros((m, Q.shape[1]), self.dtype)
        stack[:K] = Q
        frame = np.eye(m), np.zeros((K, m)), np.zeros((size, m)), np.eye(K)
        return FrameState(stack, *frame, self._given["sigma2"].copy(), np.zeros((size, K)), np.zeros((1, size)))

    def _suited_rows(self) -> tuple[int, int]:  # more rows share the product of a K×K matrix with the basis
        return min(self.K + 32, 256), min(max(self.K, 16), 64)

    def _default_step(self, t: Any) -> Any:
        return 1.0 / (t + 1.0)

    # Blocks

    def _open(self) -> None:
        """Begin a block: the frame of the basis alone."""
        K, state = self.K, self._state
        B = state.stack[:K]
        if state.blocks >= BETWEEN_LOOKS:
            state.H, state.blocks = gram(B).astype(np.float64, copy=False), 0.0
        state.Z[:], state.x[:], state.L[:] = 0.0, 0.0, 0.0
        factor, failed = lapack.dpotrf(state.H, lower=1)
        if not failed and np.min(np.diag(factor) ** 2 / np.diag(state.H)) > self._trust:
            state.L[:K, :K] = state.Z[:, :K] = np.tril(factor)
        else:
            Q, R = qr(B.T, mode="economic", check_finite=False)
            signs = np.where(np.diag(R) < 0, -1.0, 1.0)
            B[:] = (Q * signs).T
            state.L[:K, :K], state.Z[:, :K] = np.eye(K), R.T * signs

    def _add(self, row: Array) -> bool:
        if self._n == 0:
            if not math.isfinite(dot(row, row)):
                return False
            self._open()
        return self._place(row, self._n)

    def _place(self, row: Array, n: int) -> bool:
        """Make `row` sample n of the block; returns whether it is finite."""
        state, at = self._state, self.K + n
        x, L = state.x[n], state.L
        square, pivot = add_to_frame(state.stack, at, row, L, x)
        if not math.isfinite(square):
            return False
        if pivot > self._trust * square:
            x[at] = math.sqrt(pivot)
            L[at, : at + 1] = x[: at + 1]
        else:
            self._make_orthogonal(at, x, math.sqrt(square))
            L[at, at] = 1.0
            state.blocks = BETWEEN_LOOKS  # such frames are less exact: look at the basis before the next
        return True

    def _make_orthogonal(self, at: int, x: Floats, norm: float) -> None:
        """Replace the newest row of the stack by its unit residual, with coordinates x to full precision.

        A residual that is rounding has no direction of its own: made a unit vector, it lies in the span of the others again. It is dropped.
        """
        row, stack, L = self._state.stack[at], self._state.stack[:at], self._state.L[:at, :at]

        def project() -> Floats:
            within: Floats = solve_triangular(L, matmul(stack, row).astype(np.float64), lower=True, check_finite=False)
            row[:] -= matmul(solve_triangular(L, within, trans="T", lower=True, check_finite=False).astype(row.dtype), stack)
            return within

        x[:at] = project() + project()
        residual = math.sqrt(dot(row, row))
        if residual > float(np.finfo(self.dtype).eps) * norm:
            row /= row.dtype.type(residual)
            project()
            left = math.sqrt(dot(row, row))
            if left > 0.5:
                row /= row.dtype.type(left)
                x[at] = residual
                return
        row[:] = 0.0

    def _load(self, X: Array) -> None:
        self._open()
        state, K, m = self._state, self.K, self.K + len(X)
        state.stack[K:m] = X
        within = solve_triangular(state.L[:K, :K], matmul(state.stack[:K], X.T).astype(np.float64), lower=True, check_finite=False).T
        G = gram(X).astype(np.float64, copy=False)
        factor, failed = lapack.dpotrf(G - gram(within), lower=1)
        if not failed and np.min(np.diag(factor) ** 2 - self._trust * np.diag(G)) > 0.0:
            state.L[K:m, :K], state.L[K:m, K:m] = within, np.tril(factor)
            state.x[: m - K] = state.L[K:m]
            return
        for s, row in enumerate(X):
            self._place(row, s)

    def _expand(self) -> None:
        Z = self._moved(self.K + self._n)
        self._state.stack[: self.K] = self._rows_at(Z)
        self._state.H = full_gram(Z)
        self._state.blocks += 1

    def _rows_at(self, Z: Floats) -> Array:
        """Rows (k, D) with coordinates Z (k, m)."""
        m = Z.shape[1]
        over_stack = solve_triangular(self._state.L[:m, :m], Z.T, trans="T", lower=True, check_finite=False).T
        return matmul(over_stack.astype(self.dtype), self._state.stack[:m])

    @property
    def _trust(self) -> float:
        """The smallest squared pivot, relative to the row, of which subtraction keeps half the digits."""
        return max(1e-4, 10.0 * math.sqrt(float(np.finfo(self.dtype).eps)))

    # Reading

    def _read(self) -> Array:
        return self._state.stack[: self.K][np.argsort(-self._state.sigma2, kind="stable")]

    def _variances(self) -> Floats:
        return self._state.sigma2

    @property
    def sigma2(self) -> Floats:
        """(K,) variances along the components, largest first."""
        with self._lock:
            return np.sort(self._given["sigma2"] if self._state is None else self._variances())[::-1]
