"""Oja's subspace rule, with the basis kept orthonormal (Oja 1982; Oja and Karhunen 1985).

For sample ``x_t``::

    y = U x_t
    U ← U + α_t y x_tᵀ
    U ← (U Uᵀ)^(-1/2) U

==  =====  ==========================================================
U   (K,D)  orthonormal rows that span the subspace
y   (K,)   output: coordinates in the rows before the step
==  =====  ==========================================================

Start: the thin QR basis of the first K samples. Step sizes ``α_t = scale/t``. The step adds ``α x xᵀ``, so that it depends on the units of
the data: the scale should be about one over the smallest variance of interest.

Departure from the usual form: the basis is made orthonormal by the polar factor and not by QR, which changes its rows but not their
span. After
one step ``U Uᵀ = I + c y yᵀ`` with ``c = 2α + α² ‖x‖²``, so that the polar factor costs O(DK), and the rows turn as little as they can.
Beside
it the covariance of the outputs is averaged, for the variances of the principal components.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from online_psp.algorithms._base import BlockSize, StreamingAlgorithm
from online_psp.engine.blas import matmul
from online_psp.engine.checks import check_start, checked_step, evaluate_rate, not_finite
from online_psp.engine.compiler import kernel
from online_psp.engine.rows import AnyRows
from online_psp.engine.sizes import FixedCost
from online_psp.engine.store import DenseStore, Store, put_and_multiply
from online_psp.engine.suited_store import suited
from online_psp.engine.types import Array, Floats, Rate


class OjaState(NamedTuple):
    """The iterate."""

    U: Floats


def reference_start(Q: Floats) -> OjaState:
    """The start from an orthonormal Q, (D, K)."""
    return OjaState(Q.T)


def reference_step(state: OjaState, x: Floats, alpha: float) -> tuple[OjaState, Floats]:
    """One sample; the state that comes in is left alone."""
    y = state.U @ x
    U = state.U + alpha * np.outer(y, x)
    values, vectors = np.linalg.eigh(U @ U.T)
    return OjaState((vectors / np.sqrt(values)) @ vectors.T @ U), y


def reference_basis(state: OjaState) -> Floats:
    """(D, K), orthonormal."""
    return np.linalg.qr(state.U.T)[0]


@kernel
def recur(P: Floats, G: Floats, steps: Floats, first: int, last: int, A: Floats, C: Floats, Y: Floats) -> None:
    """Samples `first` … `last`−1 of a block, on small arrays only: before sample s the basis is ``A U + Σ_{j<s} c_j x_jᵀ``.

    Parameters
    ----------
    P : (n, K)
    G : (n, n), lower triangle
    steps : (n,)
    A, C : (K, K), (n, K)
        As far as they have got; changed in place. Row j of C is c_j.
    Y : (n, K), filled
    """
    K = A.shape[0]
    through = np.empty(K)
    for s in range(first, last):
        alpha, y = steps[s], Y[s]
        for k in range(K):
            total = 0.0
            for i in range(K):
                total += A[k, i] * P[s, i]
            y[k] = total
        for j in range(s):
            for k in range(K):
                y[k] += G[s, j] * C[j, k]
        square = 0.0
        for k in range(K):
            square += y[k] * y[k]
        c = (2.0 * alpha + alpha * alpha * G[s, s]) * square
        f = (1.0 / np.sqrt(1.0 + c) - 1.0) / square if square > 0.0 else 0.0
        for i in range(K):
            through[i] = 0.0
        for k in range(K):
            for i in range(K):
                through[i] += y[k] * A[k, i]
        for k in range(K):
            for i in range(K):
                A[k, i] += f * y[k] * through[i]
        for j in range(s):
            along = 0.0
            for k in range(K):
                along += y[k] * C[j, k]
            for k in range(K):
                C[j, k] += f * along * y[k]
        for k in range(K):
            C[s, k] = alpha * (1.0 + f * square) * y[k]


class OjaRunning(NamedTuple):
    """What the class keeps: the iterate, the covariance of its outputs, and the open block."""

    U: Annotated[Array, "K", "D"]
    M: Annotated[Floats, "K", "K"]
    since: int
    rows: Annotated[Array, "n", "D"]
    P: Annotated[Floats, "n", "K"]
    G: Annotated[Floats, "n", "n"]
    A: Annotated[Floats, "K", "K"]
    C: Annotated[Floats, "n", "K"]
    Y: Annotated[Floats, "n", "K"]
    steps: Annotated[Floats, "n"]
    shares: Annotated[Floats, "n"]


class Oja(StreamingAlgorithm):
    """Oja's subspace rule: stochastic gradient ascent on the variance explained, with steps that fall like 1/t.

    Parameters
    ----------
    K, D, block_size, dtype
        As in `FSM`.
    U0 : (K, D), optional
        Start for the basis; made orthonormal if it is not. By default the algorithm starts from the first K samples.
    scale : float
        Step size ``scale/t``, in units of one over the variance of the data.
    learning_rate : callable, optional
        ``t → α_t`` ≥ 0, t from 1; in place of `scale`.
    """

    _cost = FixedCost(call=60e-6, passes=3.0, turns=1.0)
    Running = OjaRunning
    option_names = ("scale",)
    most_step = float("inf")
    takes_arrays = True

    _store: Store

    def __init__(
        self,
        K: int,
        D: int | None = None,
        *,
        U0: ArrayLike | None = None,
        scale: float = 1.0,
        learning_rate: Rate | None = None,
        block_size: BlockSize = "auto",
        dtype: DTypeLike = np.float64,
    ) -> None:
        if U0 is not None and D is None:
            D = np.shape(U0)[-1] if np.ndim(U0) else None
        super().__init__(K, D, block_size, dtype)
        if not 0 < scale < float("inf"):
            raise ValueError(f"scale must be positive and finite; got {scale!r}.")
        self.scale, self.learning_rate = scale, learning_rate
        if U0 is not None:
            Q = np.linalg.qr(check_start(U0, "U0", (self.K, self._features())).T)[0]
            self._begin(np.ascontiguousarray(Q.T, dtype=self.dtype))
            self._started = True

    @classmethod
    def from_directions(cls, components: Array, variances: Floats, *, block_size: BlockSize, dtype: Any) -> Self:
        variances = cls.positive(variances, dtype)
        model = cls(*components.shape, U0=components, scale=1.0 / float(variances[-1]), block_size=block_size, dtype=dtype)
        turn = matmul(np.asarray(components, dtype=np.float64), model._store.read().astype(np.float64).T)
        model._M = matmul(turn.T * variances, turn)
        return model

    def _begin(self, basis: Array) -> None:
        self._store = DenseStore(basis, self.open_capacity)
        self._M: Floats = np.zeros((self.K, self.K))
        self._since = 0  # blocks since the basis was made orthonormal from scratch
        self._make_work(self.open_capacity)

    def _make_work(self, n: int) -> None:
        K = self.K
        self._P, self._G, self._A = np.zeros((n, K)), np.zeros((n, n)), np.eye(K)
        self._C, self._Y, self._steps, self._shares = np.zeros((n, K)), np.zeros((n, K)), np.zeros(n), np.zeros(n)

    def _rates(self, t: int, n: int) -> tuple[Floats, ...]:
        if self.learning_rate is None:
            return (self.scale / np.arange(t + 1.0, t + n + 1.0),)
        return (evaluate_rate(self.learning_rate, t, n, "learning_rate", self.most_step),)

    def feed(self, rows: AnyRows, shares: Floats) -> None:
        with self._lock:
            self._learn(rows, (self.scale * shares,), [])

    def feed_one(self, row: Array, share: float) -> None:
        with self._lock:
            self._take_open(row, self.scale * share)

    def _take_open(self, row: Array, step: float | None) -> Array:
        if not isinstance(self._store, DenseStore):
            self._store = DenseStore(self._store.read(), self.open_capacity)
        store, t, n, K = self._store, self.t + 1, self._store.n, self.K
        if step is None:
            rate = self.learning_rate
            step = self.scale / t if rate is None else checked_step(rate(t), f"learning_rate(t={t})", self.most_step)
        products: Array = np.empty(K + n + 1, dtype=self.dtype)
        put_and_multiply(store.stack, K + n, row, products)
        if not np.isfinite(products[K + n]):
            raise not_finite(row, 0, self.dtype)
        self._P[n], self._G[n, : n + 1] = store.s * products[:K], products[K:]
        self._steps[n], self._shares[n] = step, 1.0 / t
        recur(self._P, self._G, self._steps, n, n + 1, self._A, self._C, self._Y)
        self.t, store.n = t, n + 1
        y: Array = self._Y[n].astype(self.dtype)
        if n + 1 >= store.capacity:
            self._close()
        return y

    def _take_block(self, rows: Any, rates: list[Floats], G: Array | None = None) -> Floats:
        n = len(rows)
        if n > len(self._steps):
            self._make_work(n)
        P, G = self._store.compress(rows, G)
        self._steps[:n], self._shares[:n] = rates[0], 1.0 / np.arange(self.t + 1.0, self.t + n + 1.0)
        recur(P, G, self._steps, 0, n, self._A, self._C, self._Y)
        Y = self._Y[:n].copy()
        self._finish(n)
        return Y

    def _close(self) -> None:
        self._finish(self._open_samples())

    def _finish(self, n: int) -> None:
        """Bring the basis and the covariance up to date with the n samples in hand."""
        self._store.move(self._A, np.ascontiguousarray(self._C[:n].T))
        for share, y in zip(self._shares[:n], self._Y[:n], strict=True):
            self._M += share * (np.outer(y, y) - self._M)
        self._A = np.eye(self.K)
        self._since += 1
        if self._since >= 64:  # so that rounding cannot build up
            values, vectors = np.linalg.eigh(self._store.gram())
            self._store.turn(np.asarray((vectors / np.sqrt(values)) @ vectors.T, dtype=np.float64))
            self._since = 0

    def _open_samples(self) -> int:
        store = self._store if self._started else None
        return store.n if isinstance(store, DenseStore) else 0

    def _use_store_for(self, rows: AnyRows) -> None:
        self._store = suited(self._store, rows, self.open_capacity)

    def _raw_basis(self) -> Array:
        return self._store.read()

    def _covariance_within(self, R: Floats) -> Floats:
        return matmul(matmul(R, self._M), R.T)

    def _running_state(self) -> OjaRunning:
        n, store = self._open_samples(), self._store
        rows = store.stack[self.K : self.K + n] if isinstance(store, DenseStore) else np.zeros((0, self._features()), self.dtype)
        small = (self._P[:n], self._G[:n, :n], self._A, self._C[:n], self._Y[:n], self._steps[:n], self._shares[:n])
        return OjaRunning(store.read(), self._M.copy(), self._since, rows.copy(), *(array.copy() for array in small))

    def _restore(self, running: OjaRunning) -> None:
        n = len(running.rows)
        self._store = store = DenseStore(running.U, max(self.open_capacity, n + 1))
        store.n, self._M, self._since = n, running.M.copy(), running.since
        store.stack[self.K : self.K + n] = running.rows
        self._make_work(store.capacity)
        self._P[:n], self._G[:n, :n], self._A = running.P, running.G, running.A.copy()
        self._C[:n], self._Y[:n], self._steps[:n], self._shares[:n] = running.C, running.Y, running.steps, running.shares
