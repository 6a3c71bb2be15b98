"""What Oja's rule, Sanger's rule and stochastic gradient ascent share: one gradient step per sample, whose size adapts to the data.

All three learn from a sample x with output ``y = U x`` by ``U ← U + α y xᵀ``, where U (K×D) is the basis, and a term that keeps its rows
from growing. Whatever that term is, over a block the basis stays a linear combination of the rows ``[U; X]``. So a block is compressed into
the inner products ``H = X [U; X]ᵀ``, the published update runs on coefficients Z (K×(K+n)) over the stack, and the basis is expanded at the
end: the iterates are those of one sample at a time.

**Step sizes.** The step is ``α_t = scale η_t / v_t``, with ``η_t = 1/t`` unless another schedule is given, and v the average, with
weights η, of ``‖x‖ ‖y‖ / K``: the size of a gradient. So a step does not depend on the units of the data, and one gross row cannot turn
the basis more than any of the first rows did. The textbook's ``α_t = scale/t`` is what ``variance=1`` gives.

If every row is to become a principal component, each has a step of its own, ``α_t,k = scale η_t / v_k`` with v_k the average of ``y_k²``,
so that weak components learn as quickly as strong ones. It is at most ``1/max(‖x‖², ‖y‖²)``, with which the sample is fitted fully."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from online_psp.algorithms._base import StreamingAlgorithm
from online_psp.algorithms._provided import BlockSize
from online_psp.engine.blas import matmul
from online_psp.engine.checks import check_number, check_rate, check_start, checked_step, evaluate_rate, not_finite
from online_psp.engine.compiler import kernel
from online_psp.engine.moments import weights_left
from online_psp.engine.rows import AnyRows
from online_psp.engine.sizes import FixedCost
from online_psp.engine.store import DenseStore, Store, put_and_multiply
from online_psp.engine.suited_store import suited
from online_psp.engine.types import Array, Floats, Rate

_BLOCKS_BETWEEN_CHECKS = 64
_LARGEST_STEP = 1e100


class Pace(NamedTuple):
    """The quantities that set the size of a step, for the reference updates."""

    scale: float
    v: float = 0.0
    """Running average of ``‖x‖ ‖y‖ / K``."""
    variance: float = 0.0
    """Used in place of v if it is positive."""

    def step(self, x: Floats, y: Floats, share: float) -> tuple[float, Pace]:
        """``α`` for a sample, and the updated pace."""
        if self.variance > 0.0:
            return self.scale * share / self.variance, self
        gradient = float(np.linalg.norm(x) * np.linalg.norm(y)) / len(y)
        v = self.v + share * (gradient - self.v)
        return (self.scale * share / v if gradient > 0.0 and v > 0.0 else 0.0), self._replace(v=v)


def own_steps(v: Floats, pace: Pace, x: Floats, y: Floats, share: float) -> tuple[Floats, Floats]:
    """A step for each row in units of its own variance, (K,), and the averages of ``y_k²`` after the sample; for reference updates."""
    v = v + share * (y**2 - v)
    size = np.full(len(y), pace.variance) if pace.variance > 0 else v
    alpha = np.divide(pace.scale * share, size, out=np.zeros(len(y)), where=(size > 0) & (y != 0))
    largest = max(float(x @ x), float(y @ y))
    return (np.minimum(alpha, 1.0 / largest) if largest > 0 else alpha), v


@kernel
def outputs(H: Floats, Z: Floats, s: int, y: Floats) -> float:
    """Fill in the outputs y, (K,), of sample s; returns ``‖y‖²``.

    Parameters
    ----------
    H : (n, K + n)
        Inner products of the samples with the basis at the start of the block and with each other.
    Z : (K, K + n)
        Coefficients of the basis over ``[U; X]``.
    """
    K = Z.shape[0]
    inner = H[s]
    for k in range(K):
        row, total = Z[k], 0.0
        for i in range(K + s):
            total += row[i] * inner[i]
        y[k] = total
    square = 0.0
    for k in range(K):
        square += y[k] * y[k]
    return square


@kernel
def step_size(scale: float, variance: float, share: float, size: float, v: Floats, k: int) -> float:
    """``α`` for a sample whose gradient has this size; updates the average size, ``v[k]``. See `Pace`."""
    if variance > 0.0:
        return scale * share / variance
    v[k] += share * (size - v[k])
    return scale * share / v[k] if size > 0.0 and v[k] > 0.0 else 0.0


@kernel
def own_step_sizes(scale: float, variance: float, share: float, largest: float, y: Floats, v: Floats, alpha: Floats) -> None:
    """Fill in a step for each row, (K,), at most one over the larger of ``‖x‖²`` and ``‖y‖²``; updates v."""
    for k in range(len(y)):
        step = step_size(scale, variance, share, y[k] * y[k], v, k)
        alpha[k] = 1.0 / largest if step * largest > 1.0 else step


class GradientRunning(NamedTuple):
    """The state after the start: the iterate, the covariance of its outputs, the average size of a gradient, and the open block."""

    U: Annotated[Array, "K", "D"]
    M: Annotated[Floats, "K", "K"]
    v: Annotated[Floats, "g"]
    since: int
    rows: Annotated[Array, "n", "D"]
    H: Annotated[Floats, "n", "m"]
    Z: Annotated[Floats, "K", "m"]
    Y: Annotated[Floats, "n", "K"]
    shares: Annotated[Floats, "n"]


class GradientAlgorithm(StreamingAlgorithm):
    """Base class of algorithms that take one gradient step per sample; see `Oja` for the parameters."""

    _cost = FixedCost(call=60e-6, passes=3.0, turns=1.0, pairs=1.0)
    Running = GradientRunning
    learns_pca = False
    option_names = ("scale", "variance")
    most_step = 1.0
    takes_arrays = True
    #: The published update over samples `first` … `last`−1 of a block: ``recur(H, shares, first, last, options, v, Z, Y)``.
    _recur: ClassVar[Any]
    #: Default scale of the steps.
    default_scale: ClassVar[float] = 5.0
    #: Whether every row of the basis has a step of its own.
    _own_steps: ClassVar[bool] = False

    _store: Store

    def __init__(
        self,
        K: int,
        D: int | None = None,
        *,
        U0: ArrayLike | None = None,
        scale: float | None = None,
        variance: float = 0.0,
        learning_rate: Rate | None = None,
        block_size: BlockSize = "auto",
        dtype: DTypeLike = np.float64,
    ) -> None:
        if U0 is not None and D is None:
            D = np.shape(U0)[-1] if np.ndim(U0) else None
        super().__init__(K, D, block_size, dtype)
        scale = self.default_scale if scale is None else check_number(scale, "scale")
        variance = check_number(variance, "variance")
        if not 0 < scale < float("inf"):
            raise ValueError(f"scale must be positive and finite; got {scale!r}.")
        if not 0 <= variance < float("inf"):
            raise ValueError(f"variance must be positive and finite, or 0 for the running average; got {variance!r}.")
        if scale / (variance or 1.0) > _LARGEST_STEP:
            raise ValueError(f"scale={scale!r} with variance={variance!r} gives steps whose squares overflow; take a smaller scale.")
        self.scale, self.variance, self.learning_rate = scale, variance, check_rate(learning_rate, "learning_rate")
        if U0 is not None:
            Q, R = np.linalg.qr(check_start(U0, "U0", (self.K, self._features())).T)
            self._begin(np.ascontiguousarray((Q * np.where(np.diag(R) < 0, -1.0, 1.0)).T, dtype=self.dtype))
            self._started = True

    @classmethod
    def from_directions(cls, components: Array, variances: Floats, *, block_size: BlockSize, dtype: Any) -> Self:
        variances = cls.positive(variances, dtype)
        model = cls(*components.shape, block_size=block_size, dtype=dtype)
        model._begin(np.ascontiguousarray(components, dtype=model.dtype))
        model._M = np.diag(variances)
        model._v = variances.copy() if cls._own_steps else np.array([np.mean(variances)])
        model._started = True
        return model

    def _begin(self, basis: Array) -> None:
        self._store = DenseStore(basis, self.open_capacity)
        self._M: Floats = np.zeros((self.K, self.K))
        self._v: Floats = np.zeros(self.K if self._own_steps else 1)
        self._since = 0  # blocks since the basis was last straightened
        self._make_work(self.open_capacity)

    def _make_work(self, n: int) -> None:
        K = self.K
        self._H, self._Z, self._Y, self._shares = np.zeros((n, K + n)), np.eye(K, K + n), np.zeros((n, K)), np.zeros(n)

    def _rates(self, t: int, n: int) -> tuple[Floats, ...]:
        if self.learning_rate is None:
            return (1.0 / np.arange(t + 1.0, t + n + 1.0),)
        return (evaluate_rate(self.learning_rate, t, n, "learning_rate", self.most_step),)

    def _take_open(self, row: Array, step: float | None) -> Array:
        if not isinstance(self._store, DenseStore):
            self._store = DenseStore(self._store.read(), self.open_capacity)
        store, t, n, K = self._store, self.t + 1, self._store.n, self.K
        if step is None:
            rate = self.learning_rate
            step = 1.0 / t if rate is None else checked_step(rate(t), f"learning_rate(t={t})", self.most_step)
        products: Array = np.empty(K + n + 1, dtype=self.dtype)
        put_and_multiply(store.stack, K + n, row, products)
        if not np.isfinite(products[K + n]):
            raise not_finite(row, 0, self.dtype)
        self._H[n, : K + n + 1], self._shares[n] = products, step
        self._H[n, :K] *= store.s
        self._advance(n, n + 1)
        self.t, store.n = t, n + 1
        y: Array = self._Y[n].astype(self.dtype)
        if n + 1 >= store.capacity:
            self._close()
        return y

    def _take_block(self, rows: Any, rates: list[Floats], G: Array | None = None) -> Floats:
        n, K = len(rows), self.K
        if n > len(self._shares):
            self._make_work(n)
        P, G = self._store.compress(rows, G)
        self._H[:n, :K], self._H[:n, K : K + n], self._shares[:n] = P, G, rates[0]
        self._advance(0, n)
        Y = self._Y[:n].copy()
        self._finish(n)
        return Y

    def _advance(self, first: int, last: int) -> None:
        options = (float(self.scale), float(self.variance))
        type(self)._recur(self._H, self._shares, first, last, options, self._v, self._Z, self._Y)

    def _close(self) -> None:
        self._finish(self._open_samples())

    def _finish(self, n: int) -> None:
        """Bring the basis and the covariance of the outputs up to date with the n samples in hand."""
        K, Z, Y = self.K, self._Z, self._Y[:n]
        self._store.move(np.ascontiguousarray(Z[:, :K]), np.ascontiguousarray(Z[:, K : K + n]))
        left, keep = weights_left(self._shares[:n])
        self._M = keep * self._M + matmul((Y * left[:, np.newaxis]).T, Y)
        Z[:] = np.eye(K, Z.shape[1])
        self._since += 1
        if self._since >= _BLOCKS_BETWEEN_CHECKS:
            self._since = 0
            self._straighten()

    @abstractmethod
    def _straighten(self) -> None:
        """Remove the rounding errors that the basis gathers over many blocks."""

    def _open_samples(self) -> int:
        store = self._store if self._started else None
        return store.n if isinstance(store, DenseStore) else 0

    def _use_store_for(self, rows: AnyRows) -> None:
        self._store = suited(self._store, rows, self.open_capacity)

    def _raw_basis(self) -> Array:
        return self._store.read()

    def _covariance_within(self, R: Floats) -> Floats:
        return matmul(matmul(R, self._M), R.T)

    def _running_state(self) -> GradientRunning:
        n, K, store = self._open_samples(), self.K, self._store
        rows = store.stack[K : K + n] if isinstance(store, DenseStore) else np.zeros((0, self._features()), self.dtype)
        small = (self._H[:n, : K + n], self._Z[:, : K + n], self._Y[:n], self._shares[:n])
        basis, v = store.read(), self._v.copy()
        return GradientRunning(basis, self._M.copy(), v, self._since, rows.copy(), *(array.copy() for array in small))

    @classmethod
    def checked(cls, running: GradientRunning) -> GradientRunning:
        n, K = len(running.rows), len(running.U)
        if running.Z.shape[1] != K + n or len(running.v) != (K if cls._own_steps else 1):
            raise ValueError("its open block does not fit its basis")
        if (running.v < 0).any() or not ((running.shares >= 0) & (running.shares <= 1)).all():
            raise ValueError("its step sizes are impossible")
        if not max(float(np.abs(running.U).max()), float(np.abs(running.Z).max())) < _LARGEST_STEP:
            raise ValueError("its basis is longer than any")
        return running

    def _restore(self, running: GradientRunning) -> None:
        n, K = len(running.rows), self.K
        self._begin(running.U)
        self._store = store = DenseStore(running.U, max(self.open_capacity, n + 1))
        store.n, self._M, self._since, self._v = n, running.M.copy(), running.since, running.v.copy()
        store.stack[K : K + n] = running.rows
        self._make_work(store.capacity)
        self._H[:n, : K + n], self._Z[:, : K + n] = running.H, running.Z
        self._Y[:n], self._shares[:n] = running.Y, running.shares
