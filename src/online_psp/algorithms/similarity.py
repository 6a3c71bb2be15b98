"""What SM and FSM share: the weights W, blocks of inner products, and the guard against rounding."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike
from scipy.linalg import eigh, lapack

from online_psp.algorithms.base import BlockSize, StreamingAlgorithm
from online_psp.algorithms.compress import put_and_multiply
from online_psp.engine.blas import add_product, gram, matmul
from online_psp.engine.checks import check_count, check_number, check_rate, check_start
from online_psp.engine.compiler import kernel
from online_psp.engine.finite import check_learned
from online_psp.engine.symmetric import fill_upper
from online_psp.engine.types import Array, Floats, Rate

_FAINT = 1e-2  # the inverse of M is computed anew once no more than this share of the old M is left
_FADING = 5.0
LITTLE = math.exp(-_FADING)
"""A block ends when no more than this share is left of the weights that it started from, so that the guard can act in time."""


@kernel
def open_products(stack: Array, row: Array, n: int, s: float, P: Floats, G: Floats) -> bool:
    """Make `row` sample n of an open block; returns whether it is finite.

    Parameters
    ----------
    stack : (K + capacity, D)
        The weights divided by s, then the samples.
    P, G : (1, K), (1, ≥ n), filled
        Its products with the weights and with the samples before it.
    """
    K = P.shape[1]
    products = np.empty(K + n + 1, dtype=stack.dtype)
    put_and_multiply(stack, K + n, row, products)
    for k in range(K):
        P[0, k] = s * products[k]
    for j in range(n):
        G[0, j] = products[K + j]
    return bool(np.isfinite(products[K + n]))


@kernel
def settle(n: int, Y: Floats, steps: Floats, M: Floats, C: Floats) -> tuple[float, float]:
    """What the n outputs Y (≥ n, K) of a block change: ``M ← (1 − β) M + β y yᵀ`` for each in turn, and ``W ← a W + C X``.

    Returns
    -------
    a, keep : float
        The shares of the old W and of the old M that are left. C (K, n) is filled, M changed in place.
    """
    K = Y.shape[1]
    a, keep = 1.0, 1.0
    weights = np.empty(n)
    for s in range(n - 1, -1, -1):
        weights[s] = steps[1, s] * keep
        for k in range(K):
            C[k, s] = steps[0, s] * a * Y[s, k]
        a *= 1.0 - steps[0, s]
        keep *= 1.0 - steps[1, s]
    for i in range(K):
        for k in range(K):
            M[i, k] *= keep
    for s in range(n):
        for i in range(K):
            c = weights[s] * Y[s, i]
            for k in range(K):
                M[i, k] += c * Y[s, k]
    return a, keep


@dataclass(slots=True)
class SimilarityState:
    """W and M, with the open block behind them.

    M is only ever added to, so it does not drift. Its inverse, which the recurrence updates, is computed anew from time to time.
    """

    stack: Annotated[Array, "mD"]
    """The weights W divided by `scale`, so that their fading costs nothing; then the samples of the open block."""
    M: Annotated[Floats, "KK"]
    solver: Annotated[Floats, "KK"]
    """What the recurrence uses in place of ``M⁻¹``."""
    Y: Annotated[Floats, "nK"]
    steps: Annotated[Floats, "rn"]
    scale: float = 1.0
    level: float = 0.0
    """The largest trace of M so far."""
    since: float = 0.0
    """Samples since the solver was computed."""
    left: float = 1.0
    """The share of M that is left from then."""


class SimilarityMatching(StreamingAlgorithm):
    """Weights W (K×D) and lateral connections M (K×K); the subspace is spanned by the rows of ``M⁻¹ W``."""

    State = SimilarityState
    rate_names = ("learning_rate", "beta")
    option_names = ("gamma",)
    _state: SimilarityState

    def __init__(
        self,
        K: int,
        D: int | None,
        start: tuple[ArrayLike | None, Floats | None],
        gamma: float,
        rates: tuple[Rate | None, Rate | None],
        block_size: BlockSize,
        dtype: DTypeLike,
    ) -> None:
        W0, lateral = start
        if W0 is not None and D is None and np.ndim(W0):
            D = np.shape(W0)[-1]
        self.learning_rate, self.beta = check_rate(rates[0], "learning_rate"), check_rate(rates[1], "beta")
        self.gamma = check_number(gamma, "gamma")
        if not self.gamma > 0:
            raise ValueError(f"gamma must be positive; got {gamma!r}.")
        M = np.eye(check_count(K, "K")) / 100.0 if lateral is None else (lateral + lateral.T) / 2.0
        super().__init__(K, D, block_size, dtype, {"M": M})
        self._least = math.cbrt(float(np.finfo(self.dtype).tiny))  # the smallest scale before it is multiplied in
        self._floor = float(np.finfo(self.dtype).eps ** 0.75)
        """Smallest eigenvalue of M, relative to the largest, that can be told from rounding."""
        self._X: Array | None = None  # a block that `fit_block` has in hand
        self._P, self._G = self._open = np.zeros((1, self.K)), np.zeros((1, self.open_rows))
        inverse(M)
        if W0 is not None:
            self._state = self._start_from(check_start(W0, "W0", (self.K, self._features())))

    @abstractmethod
    def _solver_of(self, R: Floats) -> Floats:
        """What the recurrence uses in place of ``M⁻¹``, from the Cholesky factor R of ``M = Rᵀ R``."""

    # The start

    def _start(self, Q: Array) -> SimilarityState:
        return self._start_from(Q / 100.0)

    def _start_from(self, W: Array) -> SimilarityState:
        K, size = self.K, max(self.block_rows, self.open_rows)
        stack = np.zeros((K + self.open_rows, W.shape[1]), self.dtype)
        stack[:K] = W
        state = SimilarityState(stack, self._given["M"].copy(), np.zeros((K, K)), np.zeros((size, K)), np.zeros((2, size)))
        self._renew(state)
        return state

    def _learn_first(self, rows: Array, steps: Floats) -> Array:
        """Learn from the K samples of which the published start is made, in closed form.

        They lie in the span of the start, so ``F = M⁻¹ W``, whose rows are orthonormal, does not change: the outputs are coordinates in
        it, and ``W = M F``. The recurrence gives the same in exact arithmetic, but for long rows it gets from ``M⁻¹ = 100 I`` to about
        ``1/‖x‖²`` by subtraction, which loses as many digits as that ratio has.
        """
        state, K = self._state, self.K
        if not (np.array_equal(steps[0], steps[1]) and np.array_equal(state.M, np.eye(K) / 100.0)):
            return super()._learn_first(rows, steps)
        F = 100.0 * state.stack[:K].astype(np.float64)
        Y = matmul(rows.astype(np.float64), F.T)
        settle(K, Y, steps, state.M, np.empty((K, K)))
        check_learned(state.M)
        state.M = self._lifted(state.M)[0]
        state.stack[:K] = matmul(state.M, F)
        self._renew(state)
        return np.asarray(Y[-1])

    # Blocks

    def _default_step(self, t: Any) -> Any:
        return 2.0 / (self.gamma * t + 5.0)

    def _ends(self, steps: Floats) -> Iterable[int]:
        """As in the base class, but a block also ends before the old weights fade out of floating-point range."""
        n, most = steps.shape[1], self.block_rows
        if 2.0 * most * steps.max(initial=0.0) < _FADING:
            return super()._ends(steps)
        faded, ends = np.cumsum(-np.log1p(-steps.max(axis=0))), [0]
        while ends[-1] < n:
            before = faded[ends[-1] - 1] if ends[-1] else 0.0
            faint = int(np.searchsorted(faded, before + _FADING))
            ends.append(min(max(faint, ends[-1] + 1), ends[-1] + most))
        return ends[1:]

    def _add(self, row: Array) -> bool:
        self._P, self._G = self._open
        return open_products(self._state.stack, row, self._n, self._state.scale, self._P, self._G)

    def _load(self, X: Array) -> None:
        self._X = X
        self._P = matmul(X, self._state.stack[: self.K].T, self._state.scale).astype(np.float64, copy=False)
        self._G = gram(X).astype(np.float64, copy=False)

    def _expand(self) -> None:
        n, state, B = self._n, self._state, self._state.stack[: self.K]
        X, self._X = state.stack[self.K : self.K + n] if self._X is None else self._X, None
        C = np.empty((self.K, n))
        a, keep = settle(n, state.Y, state.steps, state.M, C)
        state.scale *= a
        if state.scale < self._least:
            B *= self.dtype.type(state.scale)
            state.scale = 1.0
        add_product(B, 1.0 / state.scale, C, X)
        state.since += n
        state.left *= keep
        if state.since >= max(128, 2 * self.K) or state.left < _FAINT:
            self._renew(state)

    # The guard

    def _renew(self, state: SimilarityState) -> None:
        """Compute the solver from M, at an amortised O(K²) per sample, and keep M invertible.

        A long run of zero samples shrinks M and W without end, until the next sample would swamp them: both are then raised as a whole.
        """
        trace = float(np.trace(state.M))
        state.level = max(state.level, trace)
        if trace < self._floor * state.level:
            factor = 100.0 * self._floor * state.level / trace
            state.M *= factor
            state.scale *= factor
            trace *= factor
        R, failed = lapack.dpotrf(state.M)
        if failed or not self._floor * trace < float(np.diag(R).min()) ** 2:
            state.M, turn = self._lifted(state.M)
            B = state.stack[: self.K]
            B[:] = matmul(turn.astype(self.dtype), B)
            R = lapack.dpotrf(state.M)[0]
        state.solver = self._solver_of(R)
        state.since, state.left = 0.0, 1.0

    def _lifted(self, M: Floats) -> tuple[Floats, Floats]:
        """M with its smallest eigenvalues raised, and the matrix by which W must be multiplied to leave ``M⁻¹ W`` as it is.

        Along a direction that no sample excites, M and W shrink together without end, while their ratio stays. Below a relative
        ``eps^(3/4)``, rounding in W x would be amplified to a signal.
        """
        values, vectors = eigh(M)
        floor = self._floor * values[-1]
        known = np.maximum(values, 1e-4 * floor)
        lifted = np.where(values < floor, 100.0 * floor, values)
        return matmul(vectors * lifted, vectors.T), matmul(vectors * (lifted / known), vectors.T)

    # Reading

    def _read(self) -> Array:
        return matmul(inverse(self._state.M).astype(self.dtype), self._state.stack[: self.K], self._state.scale)

    @property
    def W(self) -> Array:
        """(K, D) weights."""
        with self._lock:
            if self._state is None:
                raise ValueError(f"W exists once K={self.K} samples have been seen; so far there are {self.t}.")
            state = self._settled()._state
            return np.asarray(state.stack[: self.K] * self.dtype.type(state.scale))


def inverse(M: Floats) -> Floats:
    """``M⁻¹`` of a positive definite M."""
    R, failed = lapack.dpotrf((M + M.T) / 2.0)
    if failed:
        raise ValueError("The lateral weights (M0 or Minv0, at the start) must be symmetric and positive definite.")
    return inverse_of(R)


def inverse_of(R: Floats) -> Floats:
    """``M⁻¹`` from the Cholesky factor R of ``M = Rᵀ R``, exactly symmetric."""
    found: Floats = lapack.dpotri(R)[0].T  # LAPACK's upper half by columns is the lower half by rows
    fill_upper(found)
    return found
