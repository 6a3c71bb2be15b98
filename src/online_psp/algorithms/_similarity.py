"""What SM and FSM share: the weights W, the step sizes, and the guard against rounding along directions that no sample excites."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator
from functools import cache
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import eigh, lapack, solve_triangular

from online_psp.algorithms._base import StreamingAlgorithm
from online_psp.algorithms._blockwise import orthonormal_rows
from online_psp.algorithms._similarity_blocks import FAINT, ILL, Learned, Scale, Watch, expand_open, settle, work_for
from online_psp.engine.blas import matmul
from online_psp.engine.checks import check_number, check_rate, check_start, checked_step, evaluate_rate, not_finite
from online_psp.engine.finite import check_learned
from online_psp.engine.rows import AnyRows, DenseRows
from online_psp.engine.sizes import CENTRE_BYTES, LARGE_STACK, FixedCost, tiled_block_rows, tiled_open_rows
from online_psp.engine.store import DenseStore, Store, least_scale
from online_psp.engine.suited_store import suited
from online_psp.engine.symmetric import fill_upper
from online_psp.engine.tiles import suits
from online_psp.engine.types import Array, Floats, Rate

_FAR = 0.25  # distance of F Fᵀ from the identity beyond which F counts as far from its fixed point
_MOST_FADING = 9.0  # a block leaves at least e^-9 of the weights that it started from, so that the guard can act in time
_LEAST_LEFT = math.exp(-_MOST_FADING)
_MOST_SHARE = 1.0 - 1e-4


class OpenSamples(NamedTuple):
    """An open block: its samples, and the small arrays computed from them."""

    rows: Annotated[Array, "n", "D"]
    Y: Annotated[Floats, "n", "K"]
    w: Annotated[Floats, "n"]
    alphas: Annotated[Floats, "n"]
    betas: Annotated[Floats, "n"]
    a: float


class SimilarityState(NamedTuple):
    """The iterate, and the quantities that keep it from drifting."""

    W: Annotated[Array, "K", "D"]
    """Weights, up to the factor s."""
    s: float
    M: Annotated[Floats, "K", "K"]
    solver: Annotated[Floats, "K", "K"]
    """A representation of the inverse of M: FSM has the inverse itself, SM a Cholesky factor of M."""
    level: float
    since_restore: int
    kept_since_restore: float
    open: OpenSamples


class Schedule(NamedTuple):
    """Step sizes of SM and FSM: ``2/(gamma t + 5)``, unless functions are given."""

    gamma: float = 2.0
    learning_rate: Rate | None = None
    beta: Rate | None = None


class Kernels(NamedTuple):
    """The compiled functions in which SM and FSM differ; `fsm` documents them."""

    recur: Callable[..., float]
    """Learn from the samples of a block."""
    recur_open: Callable[..., float]
    """Learn from one sample of an open block."""
    learn: Callable[..., Learned]
    """Learn from several blocks, with a small basis."""


class SimilarityMatching(StreamingAlgorithm):
    """Weights W (K×D) and lateral connections M (K×K); the subspace is spanned by the rows of ``M⁻¹ W``."""

    _kernels: ClassVar[Kernels]
    _cost = FixedCost(call=35e-6, passes=4.0)
    Running = SimilarityState
    rate_names = ("learning_rate", "beta")
    option_names = ("gamma",)
    takes_arrays = True

    _store: Store
    _solver: Floats

    def _set_up(self, schedule: Schedule, W0: ArrayLike | None, lateral: Floats | None) -> None:
        """Take the step sizes and the start; `lateral` is M."""
        gamma, learning_rate, beta = schedule
        self.learning_rate, self.beta = check_rate(learning_rate, "learning_rate"), check_rate(beta, "beta")
        self.gamma = check_number(gamma, "gamma")
        if not self.gamma > 0:
            raise ValueError(f"gamma must be positive; got {gamma!r}.")
        self._M: Floats = np.eye(self.K) / 100.0 if lateral is None else (lateral + lateral.T) / 2.0
        self._scale = 0.01
        if lateral is not None:
            try:
                np.linalg.cholesky(self._M)
            except np.linalg.LinAlgError:
                raise ValueError("The lateral start (M0 or Minv0) must be symmetric and positive definite.") from None
        if W0 is not None:
            basis = check_start(W0, "W0", (self.K, self._features()))
            self._begin_in(DenseStore(basis.astype(self.dtype), self.open_capacity))
            self._started = True

    def _begin(self, basis: Array) -> None:
        self._begin_in(DenseStore((basis * self._scale).astype(self.dtype), self.open_capacity))

    def _begin_in(self, store: Store) -> None:
        """Start from the weights in a store."""
        self._store = store
        self._make_work(self.open_capacity)
        self._level = float(np.trace(self._M))  # the largest trace of M so far
        self._since_restore, self._kept_since_restore = 0, 1.0
        self._restore_solver()

    def _make_work(self, rows: int) -> None:
        """Allocate the small arrays for blocks of up to `rows` samples."""
        self._a = 1.0
        self._w, self._Y = np.zeros(rows), np.zeros((rows, self.K))
        self._alphas, self._betas = np.zeros(rows), np.zeros(rows)

    def _running_state(self) -> SimilarityState:
        store, n = self._store, self._open_samples()
        dense = isinstance(store, DenseStore)
        rows = store.stack[self.K : self.K + n] if isinstance(store, DenseStore) else np.zeros((0, self._features()), self.dtype)
        alphas, betas = self._alphas[:n].copy(), self._betas[:n].copy()
        opened = OpenSamples(rows.copy(), self._Y[:n].copy(), self._w[:n].copy(), alphas, betas, float(self._a) if dense and n else 1.0)
        return SimilarityState(
            W=store.stack[: self.K].copy() if isinstance(store, DenseStore) else store.read(),
            s=store.s if isinstance(store, DenseStore) else 1.0,
            M=self._M.copy(),
            solver=self._solver.copy(),
            level=self._level,
            since_restore=self._since_restore,
            kept_since_restore=self._kept_since_restore,
            open=opened,
        )

    def _restore(self, running: SimilarityState) -> None:
        opened, n = running.open, len(running.open.rows)
        self._store = store = DenseStore(running.W, max(self.open_capacity, n + 1))
        store.s, store.n = running.s, n
        store.stack[self.K : self.K + n] = opened.rows
        self._make_work(store.capacity)
        self._M, self._solver = running.M.copy(), running.solver.copy()
        self._level, self._since_restore, self._kept_since_restore = running.level, running.since_restore, running.kept_since_restore
        self._Y[:n], self._w[:n], self._alphas[:n], self._betas[:n] = opened.Y, opened.w, opened.alphas, opened.betas
        self._a = opened.a

    def _given_start(self) -> Floats | None:
        return self._M.copy()

    def _take_start(self, start: Floats) -> None:
        if start.shape != (self.K, self.K) or not (np.diag(start) > 0).all():
            raise ValueError("its lateral start is not one")
        self._M = start

    @classmethod
    def checked(cls, running: SimilarityState) -> SimilarityState:
        if not (running.s > 0 and 0 < running.open.a <= 1 and running.level >= 0 and 0 <= running.kept_since_restore <= 1):
            raise ValueError("its weights or their scale are out of range")
        return running

    @classmethod
    def _fixed_point(cls, components: Array, variances: Floats) -> tuple[Floats, Floats]:
        """W and M of a model that has converged to these directions and variances."""
        return variances[:, np.newaxis] * components, np.diag(variances)

    def _open_samples(self) -> int:
        store = self._store if self._started else None
        return store.n if isinstance(store, DenseStore) else 0

    def _use_store_for(self, rows: AnyRows) -> None:
        self._store = suited(self._store, rows, self.open_capacity)

    def _feed_first(self, kept: Array, rates: tuple[Floats, ...]) -> Floats:
        if not self._stays_put(rates):
            return super()._feed_first(kept, rates)
        Y: Floats = matmul(kept, self._store.read().T).astype(np.float64) / self._scale
        self._learn_within(Y, rates[0])
        return np.asarray(Y[-1])

    def _stays_put(self, rates: tuple[Floats, ...]) -> bool:
        """Whether ``F = M⁻¹ W``, whose rows are orthonormal at the published start, does not change while samples lie in their span."""
        return bool(np.array_equal(rates[0], rates[1]) and np.array_equal(self._M, self._scale * np.eye(self.K)))

    def _learn_within(self, Y: Floats, steps: Floats) -> None:
        """Learn from samples that lie in the span of the start, given their coordinates in it, (n, K).

        F does not change, so the outputs are these coordinates, and ``W = M F``. The recurrence gives the same in exact arithmetic. But for
        long rows it gets from ``Minv = 100 I`` to about ``1/‖x‖²`` by subtraction, which loses as many digits as that ratio has, and W
        keeps the loss for as long as it remembers these samples.
        """
        trace, keep = settle(np.ascontiguousarray(Y), steps, self._M)
        check_learned(self._M)
        values, vectors = eigh(self._M)
        floor = self.floor * values[-1]
        if values[0] < floor:  # as `_lift_unexcited`, before there is a W
            self._M = matmul(vectors * np.where(values < floor, 100.0 * floor, values), vectors.T)
        self._store.turn(self._M / self._scale)
        self._restore_solver()
        self._guard(len(Y), trace, keep)

    def _principal(self) -> tuple[Array, Floats]:
        turn = self._polar_turn()
        if turn is None:
            return super()._principal()
        # Far from the fixed point, M is not the covariance of the outputs of the present F, but of the outputs that there were.
        variances, vectors = eigh(self._M)
        rows = matmul(matmul(vectors.T[::-1], turn).astype(self.dtype), self._raw_basis())
        return orthonormal_rows(rows)[0], np.maximum(variances[::-1], 0.0)  # the turn does not restore a direction that F has lost

    @classmethod
    def steps_of(cls, shares: Floats) -> Floats:
        """Steps small enough that W does not vanish in single precision."""
        return np.minimum(shares, _MOST_SHARE)

    def _rates(self, t: int, n: int) -> tuple[Floats, ...]:
        if self.learning_rate is None:
            alphas = 2.0 / (self.gamma * np.arange(t + 1.0, t + n + 1.0) + 5.0)
        else:
            alphas = evaluate_rate(self.learning_rate, t, n, "learning_rate", self.most_step)
        return alphas, (alphas if self.beta is None else evaluate_rate(self.beta, t, n, "beta", self.most_step))

    def _take_open(self, row: Array, step: float | None) -> Array:
        store, t, rate = self._store, self.t + 1, self.learning_rate
        if not isinstance(store, DenseStore):
            self._store = DenseStore(store.read(), self.open_capacity)
            return self._take_open(row, step)
        n = store.n
        if step is not None:
            alpha = beta = step
        else:
            alpha = 2.0 / (self.gamma * t + 5.0) if rate is None else checked_step(rate(t), f"learning_rate(t={t})", self.most_step)
            beta = alpha if self.beta is None else checked_step(self.beta(t), f"beta(t={t})", self.most_step)
        y: Array = np.empty(self.K, self.dtype)
        self._alphas[n], self._betas[n] = alpha, beta
        a = self._a if n else 1.0
        a = self._kernels.recur_open(store.stack, row, n, store.s, a, self._w, self._alphas, self._betas, self._Y, self._solver, y)
        if a < 0.0:
            raise not_finite(row, 0, self.dtype)
        self._a, self.t, store.n = a, t, n + 1
        if n + 1 >= store.capacity or a < _LEAST_LEFT:
            self._close()
        return y

    @property
    def block_rows(self) -> int:
        D = self._features()
        return tiled_block_rows(D, self.K) if self.block_size == "auto" and suits(self.K, D) else super().block_rows

    @property
    def open_capacity(self) -> int:
        D = self._features()
        return tiled_open_rows(D, self.K) if self.block_size == "auto" and self.K * D <= LARGE_STACK else super().open_capacity

    def _can_look_ahead(self, rows: Array) -> bool:
        return not suits(self.K, rows.shape[1]) and super()._can_look_ahead(rows)

    @property
    def W(self) -> Array:
        """(K, D) weights."""
        with self._lock:
            if not self._started:
                raise ValueError(f"W exists once K={self.K} samples have been seen; so far there are {self.t}.")
            return self._settled()._store.read()

    def _cuts(self, first: int, last: int, rates: tuple[Floats, ...], step: int) -> Iterator[tuple[int, int]]:
        """As in the base class, but a block also ends before the old weights fade out of floating-point range."""
        fading = -np.log1p(-np.maximum(*rates))
        if last <= first or self._most(step) * fading[first:last].max() <= _MOST_FADING:
            yield from super()._cuts(first, last, rates, step)
            return
        faded = np.cumsum(fading)
        while first < last:
            before = faded[first - 1] if first else 0.0
            stop = max(int(np.searchsorted(faded, before + _MOST_FADING)), first + 1)
            yield first, min(first + step, stop, last)
            first = min(first + step, stop, last)

    def _take_rows(self, rows: AnyRows, rates: tuple[Floats, ...], grams: list[Array], Y: Array) -> None:
        store = self._store
        if not (isinstance(rows, DenseRows) and isinstance(store, DenseStore) and suits(self.K, rows.D)):
            super()._take_rows(rows, rates, grams, Y)
            return
        step = max(self._most(self.block_rows), CENTRE_BYTES // (rows.D * self.dtype.itemsize))
        for start in range(0, len(rows), step):
            part = slice(start, min(start + step, len(rows)))
            # Kernels are compiled for plain writable arrays only; others would be compiled for again.
            X = np.require(rows[part].dense(self.dtype), None, ["C", "A", "W", "E"])
            self._take_plain(store, X, tuple(rate[part] for rate in rates), Y[part])

    def _take_plain(self, store: DenseStore, X: Array, rates: tuple[Floats, ...], Y: Array) -> None:
        """Learn from rows, block by block, in one compiled loop, which is left only when the guard has to act."""
        cuts = list(self._cuts(0, len(X), rates, self.block_rows))
        ends = np.array([stop for _, stop in cuts], dtype=np.int64)
        work = work_for(max(stop - start for start, stop in cuts), self.K, store.D, self.dtype)
        first = 0
        while first < len(X):
            watch = Watch(self._since_restore, self._kept_since_restore, self._level, self.floor)
            B, scale = store.stack[: self.K], Scale(store.s, least_scale(self.dtype))
            alphas, betas = (rate[first:] for rate in rates)
            n, store.s, keep, level, trace = self._kernels.learn(
                X[first:], ends[ends > first] - first, alphas, betas, B, scale, self._M, self._solver, watch, work, Y[first:]
            )
            first += n
            self.t += n
            self._level = max(self._level, level)
            self._guard(n, trace, keep)

    def _take_block(self, rows: Any, rates: list[Floats], G: Array | None = None) -> Floats:
        n = len(rows)
        if n > len(self._w):
            self._make_work(n)
        P, G = self._store.compress(rows, G)
        self._alphas[:n], self._betas[:n] = rates
        self._a = self._kernels.recur(P, G, self._alphas[:n], self._betas[:n], 1.0, self._w, self._Y, self._solver)
        self._finish(n)
        return self._Y[:n]

    def _close(self) -> None:
        self._finish(self._open_samples())

    def _finish(self, n: int) -> None:
        """Bring W and M up to date with the n samples in hand."""
        store, Y, betas = self._store, self._Y[:n], self._betas[:n]
        if isinstance(store, DenseStore) and store.n and self.K * store.D <= LARGE_STACK:
            scale = Scale(store.s * self._a, least_scale(self.dtype))
            trace, keep, store.s = expand_open(store.stack, scale, self._w[:n], betas, Y, self._M)
            store.n = 0
        else:
            trace, keep = settle(Y, betas, self._M)
            store.add(self._a, np.ascontiguousarray((self._w[:n, np.newaxis] * Y).T))
        self._guard(n, trace, keep)

    @abstractmethod
    def _restore_solver(self) -> None:
        """Compute `_solver`, the representation of the inverse of M, from M."""

    @abstractmethod
    def _condition(self, trace: float, closer: bool) -> float:
        """An estimate of the condition number of M, given its trace: up to K times too large or, if `closer`, better and more expensive."""

    def _guard(self, n: int, trace: float, keep: float) -> None:
        """Recompute the inverse often enough that rounding cannot build up, at an amortised O(K²) per sample.

        M itself is only ever added to, so it does not drift.
        """
        self._since_restore += n
        self._kept_since_restore *= keep
        self._level = max(self._level, trace)
        if trace < self.floor * self._level:
            self._lift_vanishing(trace)
        condition = self._condition(trace, closer=False)
        if not condition * self.floor < 1.0:
            condition = self._condition(trace, closer=True)
        if not condition * self.floor < 1.0:
            self._lift_unexcited()
            self._restore_solver()
        elif self._since_restore >= (self.K if condition > ILL else max(256, 4 * self.K)) or self._kept_since_restore < FAINT:
            self._restore_solver()

    @property
    def floor(self) -> float:
        """Smallest eigenvalue of M, relative to the largest, that can be told from rounding."""
        return _floor_of(self.dtype)

    def _lift_unexcited(self) -> None:
        """Keep M invertible in floating point, without moving the subspace.

        Along a direction that no sample excites, M and W shrink together without end, while their ratio stays. Below a relative
        ``eps^(3/4)``, rounding in W x would be amplified to a signal. Both are then raised together, which leaves ``M⁻¹ W`` unchanged.
        """
        values, vectors = eigh(self._M)
        floor = self.floor * values[-1]
        small = values < floor
        if not small.any():
            return
        values = np.maximum(values, 1e-4 * floor)
        lifted = np.where(small, 100.0 * floor, values)
        self._M = matmul(vectors * lifted, vectors.T)
        self._store.turn(matmul(vectors * (lifted / values), vectors.T))

    def _lift_vanishing(self, trace: float) -> None:
        """Raise M and W as a whole, in the same way: a long run of all-zero samples shrinks them until the next sample would swamp them."""
        factor = 100.0 * self.floor * self._level / trace
        self._M *= factor
        self._store.scale(factor)
        self._restore_solver()

    def _raw_basis(self) -> Array:
        return self._store.times(inverse(self._M))

    def mend(self) -> None:
        """Replace ``F = M⁻¹ W`` by the nearest matrix with orthonormal rows, if it is far from orthonormal; M stays.

        At its fixed point F is orthonormal. After a jump in the data it is not: new directions come in with a gain far below one, and plain
        averaging would take as long to repair that as the whole stream before. The published algorithms do not do this.
        """
        with self._lock:
            self._flush()
            turn = self._polar_turn()
            if turn is not None:
                self._store.turn(matmul(matmul(self._M, turn), inverse(self._M)))

    def _polar_turn(self) -> Floats | None:
        """``(F Fᵀ)^(-1/2)`` if it is far from the identity, otherwise None; only with no open block."""
        Minv = inverse(self._M)
        gains = matmul(matmul(Minv, self._store.gram()), Minv)
        check_learned(gains)
        if np.abs(gains - np.eye(self.K)).max() < _FAR:
            return None
        values, vectors = eigh((gains + gains.T) / 2.0)
        values = np.maximum(values, np.finfo(self.dtype).eps * values[-1])
        return matmul(vectors / np.sqrt(values), vectors.T)

    def _covariance_within(self, R: Floats) -> Floats:
        # y = M⁻¹ W x = Rᵀ Qᵀ x, and at convergence M = cov(y).
        half: Floats = solve_triangular(R, self._M, trans="T", check_finite=False)
        return np.asarray(solve_triangular(R, half.T, trans="T", check_finite=False))


@cache
def _floor_of(dtype: np.dtype[Any]) -> float:
    return float(np.finfo(dtype).eps ** 0.75)


def inverse(M: Floats) -> Floats:
    """``M⁻¹`` for a symmetric M that is positive definite up to rounding, exactly symmetric."""
    factor, failed = lapack.dpotrf(M)
    if failed:
        values, vectors = eigh(M)
        values = np.maximum(values, np.finfo(np.float64).eps * values[-1])
        result: Floats = matmul(vectors / values, vectors.T)
        return (result + result.T) / 2.0
    found: Floats = lapack.dpotri(factor)[0].T  # LAPACK's upper half by columns is the lower half by rows
    fill_upper(found)
    return found
