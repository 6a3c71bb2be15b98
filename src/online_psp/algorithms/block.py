"""Block Rayleigh–Ritz: PCA of a stream, a block of rows at a time. OnlinePCA's own learner.

The model is a rank-K covariance ``Bᵀ M B``. A block X of b rows, which come with their shares in the weighted average of all rows, takes it
to the best rank-K approximation of ``keep Bᵀ M B + X̂ᵀ X̂``, with X̂ the rows times the roots of what they count:

==  =====  ====================================================================
B   (k,D)  orthonormal rows, k ≤ K: fewer while the data has fewer directions
M   (k,k)  covariance in the coordinates of B, not diagonal
==  =====  ====================================================================

`reference_step` finds it by a singular value decomposition of the stacked rows: that is IncrementalPCA (Ross et al. 2008) with batches of b
rows. The class finds the same in one of four ways, the cheapest that is safe:

*image*
    Nyström's approximation from B's image (`online_psp.algorithms._ritz_image`): no inner products of rows, one subspace iteration where
    rows have next to nothing outside of B (``‖R‖ ≤ 0.15 λ``, see below), and two up to ``0.9 λ``.
*fast*
    With ``P = X̂ Bᵀ`` and ``R = X̂ X̂ᵀ − P Pᵀ``, a subspace near that of B is the row space of ``B + Tᵀ (X̂ − P B)``, and one subspace
    iteration is ``Y = P + R T``, ``T ← Y (M + Pᵀ Y)⁻¹``, from ``T = 0``. It is contracted by at least ``‖R‖/λ``, λ the smallest eigenvalue
    of ``M + Pᵀ P``, because what is left out cannot be larger than ‖R‖, and what is kept not smaller than λ (Cauchy's interlacing). So it
    is taken only where ``‖R‖ ≤ 0.7 λ``: then no direction of the block, seen before or not, belongs among the K that are kept. It does
    for directions of sizes too far apart for the first way.
*exact*
    Eigenvectors of the Gram matrix of ``[S B; X̂]``, ``Sᵀ S = M``, where the variances kept are within a range of 1e8.
*careful*
    Residuals projected out twice in double precision, and a singular value decomposition that squares nothing: for any range.

D-sized work is three matrix products a block in all but the last. M is kept *graded*: scaled to a unit diagonal it is well conditioned, so
that directions may differ by 1e10 in size and lose nothing.

What is left out is not nothing: rows have, on the average, some variance σ² along every direction outside of B. Where a model forgets, new
directions come in all the time, and one that is given no share of the past is too small beside those that are known (by 3 % of its variance
500 rows after a switch, at a half-life of 500). `follow_total` keeps the total variance, and the exact steps then start from
``Bᵀ M B + σ² (I − Bᵀ B)``. The fast step needs no such thing, because no direction comes in by it.

Blocks have 5K rows, and end at fixed places of the stream, so the model does not depend on how the rows are cut into calls; a block is
closed only when K more rows have come after it. A read in between gives the model of all rows so far, including the open ones, and changes
nothing.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple, Self

import numpy as np
from numpy.typing import DTypeLike
from scipy.linalg import qr

from online_psp.algorithms._base import StreamingAlgorithm
from online_psp.algorithms._provided import BlockSize
from online_psp.algorithms._ritz import Model, advance, leading, principal, rounding
from online_psp.algorithms._sparse_state import SparseRunning, check, described, rows_again, running_sum
from online_psp.engine.blas import matmul
from online_psp.engine.checks import check_rate, checked_step, evaluate_rate, not_finite, sum_of_squares
from online_psp.engine.finite import worded
from online_psp.engine.moments import Sums, following, weights_left
from online_psp.engine.row_products import centred, joined
from online_psp.engine.rows import AnyRows, ArrayRows, DenseRows, SparseRows
from online_psp.engine.sizes import FixedCost
from online_psp.engine.sparse_store import SparseStore
from online_psp.engine.types import Array, Floats, Rate

BLOCK = 5
"""Rows of a block, in multiples of K."""


_LONGEST = 1e6  # entry of a direction in a file, of which the true ones are at most about 1
_LEAST_LEFT = 1e-150  # of weights, within the sparse rows of a block: beyond that they are made dense


class BlockState(NamedTuple):
    """The iterate of the reference, and the rows of the open block."""

    B: Floats
    """(k, D), orthonormal rows."""
    variances: Floats
    """(k,)"""
    rows: Floats
    """(n, D)"""
    shares: Floats
    """(n,)"""


def reference_start(Q: Floats) -> BlockState:
    """The start from an orthonormal Q, (D, K): directions without variance."""
    D, K = Q.shape
    return BlockState(np.asarray(Q.T), np.zeros(K), np.zeros((0, D)), np.zeros(0))


def reference_step(state: BlockState, x: Floats, share: float) -> tuple[BlockState, Floats]:
    """One more row; the model moves when a block is full, to the leading singular vectors of everything stacked."""
    B, variances, rows, shares = state
    y = B @ x
    rows, shares = np.vstack([rows, x]), np.append(shares, share)
    size = BLOCK * len(B)
    if len(rows) == size + len(B):
        B, variances = _stacked(B, variances, rows[:size], shares[:size])
        rows, shares = rows[size:], shares[size:]
    return BlockState(B, variances, rows, shares), y


def reference_basis(state: BlockState) -> Floats:
    """(D, K), orthonormal, with the open rows."""
    return _stacked(*state)[0].T


def _stacked(B: Floats, variances: Floats, rows: Floats, shares: Floats) -> tuple[Floats, Floats]:
    left, keep = weights_left(shares)
    stacked = np.vstack([np.sqrt(keep * variances)[:, np.newaxis] * B, np.sqrt(left)[:, np.newaxis] * rows])
    if len(stacked) < len(B):
        stacked = np.vstack([stacked, np.zeros((len(B) - len(stacked), B.shape[1]))])
    _, values, directions = np.linalg.svd(stacked, full_matrices=False)
    return directions[: len(B)], values[: len(B)] ** 2


class BlockRunning(NamedTuple):
    """The state after the start: the model, and the rows of the open block, dense (and centred if they were) or sparse."""

    B: Annotated[Array, "k", "D"]
    """Where there is a store for sparse rows, its V, transposed."""
    M: Annotated[Floats, "k", "k"]
    drift: float
    rows: Annotated[Array, "n", "D"]
    shares: Annotated[Floats, "n"]
    total: float | None = None
    sparse: SparseRunning | None = None


class BlockPCA(StreamingAlgorithm):
    """Block Rayleigh–Ritz: the best rank-K model of each block together with the model of the past.

    Parameters
    ----------
    K, D, dtype
        As in `FSM`.
    learning_rate : callable, optional
        ``t → α_t`` in [0, 1], t from 1: the share of sample t in the average of all up to it; ``1/t`` by default.
    block_size : int or "auto"
        Rows of a block; 5 K by default. Unlike in the published algorithms it changes results: longer blocks are a little more accurate.
    """

    _cost = FixedCost(call=300e-6, passes=4.0)
    Running = BlockRunning
    most_step = 1.0
    takes_arrays = True
    block_changes_results = True
    allows_careful = True

    def __init__(
        self,
        K: int,
        D: int | None = None,
        *,
        learning_rate: Rate | None = None,
        block_size: BlockSize = "auto",
        dtype: DTypeLike = np.float64,
    ) -> None:
        super().__init__(K, D, block_size, dtype)
        self.learning_rate = check_rate(learning_rate, "learning_rate")
        self._model: Model
        self._pending: list[AnyRows] = []  # rows held, where they are not dense
        self._shares: Floats = np.zeros(0)
        self._buffer: Array | None = None  # dense rows are gathered here, without another copy
        self._n = 0
        self._full = self._capacity  # rows at which a block is closed

    @property
    def block_rows(self) -> int:
        """Rows of a block."""
        return BLOCK * self.K if self.block_size == "auto" else self.block_size

    @property
    def open_capacity(self) -> int:
        return self._capacity

    @property
    def _capacity(self) -> int:
        """Rows held before a block is closed."""
        return self.block_rows + min(self.K, self.block_rows)

    @classmethod
    def from_directions(cls, components: Array, variances: Floats, *, block_size: BlockSize, dtype: Any) -> Self:
        K, D = components.shape
        model = cls(K, D, block_size=block_size, dtype=dtype)
        known = variances > rounding(variances, model.dtype)  # the others are rounding, of data of few directions
        model._model = Model(np.ascontiguousarray(components[known], dtype=model.dtype), np.diag(variances[known]), 0.0)
        model._started = True
        return model

    def follow_total(self, total: float) -> None:
        self._model = self._model._replace(total=total)

    def _begin(self, basis: Array) -> None:
        self._model = Model(basis, np.zeros((self.K, self.K)), 0.0)

    def _feed_first(self, kept: Array, rates: tuple[Floats, ...]) -> Floats:
        for row, rate in zip(kept, rates[0], strict=False):  # there may be more of them than a short block takes
            self._gather(DenseRows(row[np.newaxis]), np.array([rate]))
        return np.asarray(self._outputs(kept[-1:])[0])

    def _rates(self, t: int, n: int) -> tuple[Floats, ...]:
        if self.learning_rate is None:
            return (1.0 / np.arange(t + 1.0, t + n + 1.0),)
        return (evaluate_rate(self.learning_rate, t, n, "learning_rate", self.most_step),)

    # Rows in

    def _take_open(self, row: Array, step: float | None) -> Array:
        if step is None:
            t, rate = self.t + 1, self.learning_rate
            step = 1.0 / t if rate is None else checked_step(rate(t), f"learning_rate(t={t})", self.most_step)
        if not np.isfinite(sum_of_squares(row)):
            raise not_finite(row, 0, self.dtype)
        y = self._outputs(row[np.newaxis])[0]
        self._gather(DenseRows(row[np.newaxis]), np.array([step]))
        self.t += 1
        return np.asarray(y)

    def _learn(self, rows: AnyRows, rates: tuple[Floats, ...], grams: list[Array]) -> Any:
        n, done = len(rows), 0
        Y = np.zeros((n, self.K), dtype=self.dtype)
        if not self._started and n:
            done = min(n, self.K - self.t)
            Y[:done] = self._start_with(rows[:done].dense(self.dtype), self._rates(0, self.K))
        self._library = rows.library if isinstance(rows, ArrayRows) else None
        while done < n:
            stop = min(n, done + self._full - self._n)
            part = rows[done:stop]
            Y[done:stop] = self._outputs(centred(part, self.dtype))
            self._gather(part, rates[0][done:stop])
            self.t += stop - done
            done = stop
        return Y if self._library is None else self._library.of(Y)

    @worded
    def feed(self, rows: AnyRows, shares: Floats) -> None:
        with self._lock:
            done = 0
            while done < len(rows):
                stop = min(len(rows), done + self._full - self._n)
                self._gather(rows[done:stop], shares[done:stop])
                done = stop
            self.t += len(rows)

    @property
    def cheap_to_read(self) -> bool:
        """Just after a block has been closed, with few rows open."""
        return self._n <= self._full - self.block_rows

    def room(self) -> int:
        """Rows until the next block is closed."""
        return self._full - self._n

    def _outputs(self, rows: Array) -> Array:
        """Coordinates of rows, (n, D), in the basis of the last block, (n, K)."""
        B = self._model.basis()
        Y = np.zeros((len(rows), self.K), dtype=self.dtype)
        if len(B):
            Y[:, : len(B)] = matmul(rows, B.T)
        return Y

    def _gather(self, rows: AnyRows, shares: Floats) -> None:
        """Hold rows, no more than there is room for, and close a block when so many are held."""
        stop = self._n + len(rows)
        if stop > len(self._shares):
            grown = np.zeros(min(self._full, max(stop, 64, 2 * len(self._shares))))
            grown[: self._n], self._shares = self._shares[: self._n], grown
        self._shares[self._n : stop] = shares
        faded = not isinstance(rows, DenseRows) and np.prod(1.0 - self._shares[:stop]) < _LEAST_LEFT
        if faded or isinstance(rows, DenseRows) or not self._alike(rows):
            self._gather_dense(self._made_dense(rows, np.asarray(shares)))
        else:
            self._pending.append(rows)
            self._n += len(rows)
        if self._n == self._full:
            self._close_block(self.block_rows)

    def _alike(self, rows: AnyRows) -> bool:
        """Whether rows are of the same kind as those held."""
        if self._n and not self._pending:
            return False
        held = self._pending[0] if self._pending else rows
        sums = getattr(held, "sums", None), getattr(rows, "sums", None)
        return type(rows) is type(held) and sums[0] is sums[1]

    def _made_dense(self, rows: AnyRows, shares: Floats) -> Array:
        """Rows as a dense array, (n, D); sparse rows are added to their running sum."""
        if isinstance(rows, SparseRows) and rows.sums is not None:
            self._model = self._model._replace(B=self._model.basis())  # which may be kept as a part that follows the sum
            rows.weights = following(rows.sums.total, shares)
            made = centred(rows, self.dtype)
            rows.sums.take(rows)
            return made
        return centred(rows, self.dtype)

    def _gather_dense(self, rows: Array) -> None:
        if self._pending:  # what is held is of another kind
            rows, self._n = np.concatenate([self._made_dense(self._held(), self._shares[: self._n]), rows]), 0
        place = self._place(len(rows))
        if place.ctypes.data != rows.ctypes.data:  # they may have been written there: see `space`
            place[:] = rows
        self._n, self._pending = self._n + len(rows), []

    def _place(self, n: int) -> Array:
        """Where the next n rows are held, (n, D)."""
        stop = self._n + n
        if self._buffer is None or stop > len(self._buffer):
            have = 64 if self._buffer is None else 2 * len(self._buffer)
            grown = np.empty((min(self._full, max(stop, have)), self._features()), dtype=self.dtype)
            if self._n and self._buffer is not None:
                grown[: self._n] = self._buffer[: self._n]
            self._buffer = grown
        return self._buffer[self._n : stop]

    def space(self, n: int) -> Array | None:
        return None if self._pending or n > self.room() else self._place(n)

    def _close_block(self, size: int) -> None:
        """Take the first `size` rows held into the model."""
        rows, n = self._held(), self._n
        self._model = self._advanced(self._model, rows[:size], self._shares[:size])
        left = n - size
        self._shares[:left], self._n = self._shares[size:n].copy(), left
        if self._pending:
            self._pending = [rows[size:]] if left else []
        elif left and self._buffer is not None:
            self._buffer[:left] = self._buffer[size : size + left]

    def _held(self) -> AnyRows:
        """All rows held, as one."""
        if not self._pending and self._buffer is not None:
            return DenseRows(self._buffer[: self._n])
        rows = joined(self._pending)
        if isinstance(rows, SparseRows) and rows.sums is not None:  # what they weigh follows on what the running sum weighs now
            shares = self._shares[: len(rows)]
            rows.weights = following(rows.sums.total, shares)
        return rows

    def _advanced(self, model: Model, rows: AnyRows, shares: Floats) -> Model:
        left, keep = weights_left(shares)
        return advance(model, rows, np.sqrt(left), keep, self.K)

    # Reading

    def _open_samples(self) -> int:
        return self._n

    def _settled(self) -> Self:
        if not self._n:
            return self
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)  # only to be read: what is held is shared
        twin._model = self._advanced(*self._model.own(self._held()), self._shares[: self._n])
        twin._pending, twin._n = [], 0
        return twin

    def _close(self) -> None:
        self._close_block(self._n)

    def _flush(self) -> None:
        """Does nothing: blocks end at fixed places."""

    def _raw_basis(self) -> Array:
        return principal(self._model, self.K)[0]

    def _components(self, orthogonalize: bool) -> Array:
        basis = self._raw_basis()
        return np.array(basis.T) if not orthogonalize else np.asarray(qr(basis.T, mode="economic", check_finite=False)[0])

    def _principal(self) -> tuple[Array, Floats]:
        return principal(self._model, self.K)

    def glance(self, count: int) -> tuple[Array, Floats]:
        with self._lock:
            return leading(self._model, count) or self._principal()

    def _covariance_within(self, R: Floats) -> Floats:
        raise NotImplementedError  # `_principal` has no need of it

    def _take_block(self, rows: Any, rates: list[Floats], G: Array | None = None) -> Floats:
        raise NotImplementedError  # `_learn` has no need of it

    def _use_store_for(self, rows: AnyRows) -> None:
        """Does nothing: the basis is a NumPy array, and rows of any kind are compressed as they are."""

    # State

    @property
    def running_sum(self) -> Sums | None:
        held, B = self._pending, self._model.B
        if held:
            return held[0].sums if isinstance(held[0], SparseRows) else None
        return B.sums if isinstance(B, SparseStore) and not self._n else None

    def _running_state(self) -> BlockRunning:
        B, M, drift, total = self._model
        rows, shares = self._held() if self._n else None, self._shares[: self._n]
        store = B if isinstance(B, SparseStore) else None
        none = np.zeros((0, self._features()), self.dtype)
        if isinstance(rows, SparseRows) or (rows is None and store is not None):
            sparse = described(rows, shares, store, self.dtype)
            basis = np.array(self._model.basis()) if store is None or sparse.store is None else np.array(store.V.T, order="C")
            return BlockRunning(basis, M.copy(), drift, none, np.zeros(0), total, sparse)
        dense = none if rows is None else np.array(centred(rows, self.dtype))
        return BlockRunning(np.array(self._model.basis()), M.copy(), drift, dense, shares.copy(), total, None)

    def _restore(self, running: BlockRunning) -> None:
        B: Array | SparseStore = np.array(running.B)
        held: list[tuple[AnyRows, Floats]] = [(DenseRows(running.rows), running.shares)] if len(running.rows) else []
        if running.sparse is not None:
            sums = running_sum(running.sparse)
            if running.sparse.store is not None:
                B = SparseStore.from_state(running.B.T, sums, running.sparse.store)
            rows = rows_again(running.sparse, sums, self._features())
            held = [] if rows is None else [(rows, running.sparse.shares)]
        self._model = Model(B, np.array(running.M), running.drift, running.total)
        for again, shares in held:
            for start in range(0, len(again), self._full):  # all of them at once, unless a block has become shorter since
                part = slice(start, start + self._full)
                self._gather(again[part], shares[part])

    @classmethod
    def checked(cls, running: BlockRunning) -> BlockRunning:
        if len(running.rows) != len(running.shares) or not ((running.shares >= 0) & (running.shares <= 1)).all():
            raise ValueError("its open rows do not have a share each")
        if not (np.diag(running.M) >= 0).all() or running.drift < 0 or (running.total or 0.0) < 0:
            raise ValueError("it has negative variances")
        if running.sparse is not None:
            check(running.sparse, running.B.shape[1])
        if not np.abs(running.B).max(initial=0.0) < _LONGEST:
            raise ValueError("its directions are longer than any")
        return running
