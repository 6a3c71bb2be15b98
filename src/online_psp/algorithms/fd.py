"""Frequent Directions (Liberty 2013; Ghashami, Liberty, Phillips and Woodruff 2016): a sketch of ℓ rows, with a guarantee for any stream.

Rows are written below the sketch B, which has room for 2ℓ. When it is full::

    B = V diag(σ) Bᵥ,   δ = σ_ℓ²
    B ← diag(sqrt(max(σ² − δ, 0))) Bᵥ

which leaves at most ℓ−1 rows. The subspace is spanned by the leading K right singular vectors of B.

==  ======  ==========================================================
B   (2ℓ,D)  sketch: orthogonal rows, then the rows that came since
U   (K,D)   the leading singular vectors as of the last shrinking
==  ======  ==========================================================

For the rows A of *any* stream, in any order: ``0 ≤ ‖A v‖² − ‖B v‖² ≤ ‖A − A_k‖_F²/(ℓ − k)`` for every unit vector v and k < ℓ.

E. Liberty, "Simple and deterministic matrix sketching", KDD 2013; M. Ghashami, E. Liberty, J. M. Phillips, D. P. Woodruff, "Frequent
Directions: simple and deterministic matrix sketching", SIAM J. Computing 45, 2016. This is the variant that shrinks once in ℓ+1 rows.

Singular vectors come from the Gram matrix of the sketch, so that all D-sized work is matrix products; their accuracy is rounding relative
to ``σ_1²``, which adds to the bound. Departure: B is a sketch of the average of ``x xᵀ``, not of the sum, and rows count by their shares,
so that streams can forget. Variances are those of the sketch, which are too small by up to δ, as the guarantee says.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple, Self

import numpy as np
from numpy.typing import DTypeLike
from scipy.linalg import eigh

from online_psp.algorithms._blockwise import BlockwiseAlgorithm, orthonormal_rows
from online_psp.algorithms._provided import BlockSize
from online_psp.engine.blas import add_product, full_gram, matmul
from online_psp.engine.checks import check_whole
from online_psp.engine.moments import weights_left
from online_psp.engine.types import Array, Floats, Rate

_LARGEST_SKETCH = 1 << 24


class FDState(NamedTuple):
    """The sketch as published: of the sum of ``x xᵀ``."""

    B: Floats
    """(r, D), r < 2ℓ: rows that are not zero"""
    U: Floats
    """(K, D)"""


def reference_start(Q: Floats) -> FDState:
    """The start from an orthonormal Q, (D, K): an empty sketch with ℓ = 2K."""
    return FDState(np.zeros((0, len(Q))), Q.T)


def reference_step(state: FDState, x: Floats, share: float) -> tuple[FDState, Floats]:
    """One more row; the sketch is shrunk when it is full. All rows weigh the same: `share` is not used."""
    B, U = state
    y = U @ x
    B, K = np.vstack([B, x]), len(U)
    if len(B) == 4 * K:
        B, U = reference_shrunk(B, 2 * K), _leading(B, K)
    return FDState(B, U), y


def reference_shrunk(B: Floats, size: int) -> Floats:
    """Shrink a full sketch of ℓ = `size`; returns the rows that are not zero."""
    _, sigma, V = np.linalg.svd(B, full_matrices=False)
    delta = sigma[size - 1] ** 2 if len(sigma) >= size else 0.0
    kept = np.sqrt(np.maximum(sigma**2 - delta, 0.0))
    return np.asarray((kept[:, np.newaxis] * V)[kept > 0][: size - 1])


def reference_basis(state: FDState) -> Floats:
    """(D, K), orthonormal, with the rows since the last shrinking."""
    return _leading(state.B, len(state.U)).T


def _leading(B: Floats, K: int) -> Floats:
    rows = np.vstack([B, np.zeros((max(0, K - len(B)), B.shape[1]))])
    return np.linalg.svd(rows, full_matrices=False)[2][:K]


class FDRunning(NamedTuple):
    """The state after the start."""

    U: Annotated[Array, "K", "D"]
    B: Annotated[Array, "r", "D"]
    rows: Annotated[Array, "n", "D"]
    shares: Annotated[Floats, "n"]


class FrequentDirections(BlockwiseAlgorithm):
    """Frequent Directions: a sketch of the stream with a guarantee that holds for rows in any order.

    Parameters
    ----------
    K, D, dtype
        As in `FSM`.
    sketch : int
        ℓ, larger than K; 0 for 2K.
    learning_rate : callable, optional
        ``t → share`` in [0, 1], t from 1: the share of sample t in the average of all up to it; ``1/t`` by default. A constant makes it
        forget.
    block_size : int or "auto"
        Rows that the sketch has room for beyond ℓ before it is shrunk; ℓ by default, as published.
    """

    Running = FDRunning
    option_names = ("sketch",)

    def __init__(
        self,
        K: int,
        D: int | None = None,
        *,
        sketch: float = 0,
        learning_rate: Rate | None = None,
        block_size: BlockSize = "auto",
        dtype: DTypeLike = np.float64,
    ) -> None:
        super().__init__(K, D, learning_rate, block_size, dtype)
        self.sketch = check_whole(sketch, "sketch", least=0)
        if self.sketch > _LARGEST_SKETCH:
            raise ValueError(f"sketch must be at most {_LARGEST_SKETCH}; got {self.sketch}.")
        if 0 < self.sketch <= self.K:
            raise ValueError(f"sketch must be larger than K, or 0 for 2K; got {self.sketch} and K={self.K}.")

    @classmethod
    def from_directions(cls, components: Array, variances: Floats, *, block_size: BlockSize, dtype: Any) -> Self:
        model = cls(*components.shape, block_size=block_size, dtype=dtype)
        model._begin(np.array(components, dtype=model.dtype, order="C"))
        known = variances > 0
        model._put((np.sqrt(variances)[:, np.newaxis] * components).astype(model.dtype)[known])
        model._started = True
        return model

    @property
    def rows_kept(self) -> int:
        """ℓ, one more than the number of rows that shrinking leaves."""
        return self.sketch or 2 * self.K

    @property
    def block_rows(self) -> int:
        return self.rows_kept if self.block_size == "auto" else self.block_size

    def _most_held(self) -> int:
        return self.rows_kept + self.block_rows

    def _block(self) -> int:
        return self._most_held() - self._r

    def _begin(self, basis: Array) -> None:
        super()._begin(basis)
        self._stack = self._held  # the sketch, and the rows held below it
        self._r = 0

    def _put(self, B: Array) -> None:
        """Make these rows the sketch, with no rows held."""
        self._r = len(B)
        if self._r >= len(self._stack):  # a copy that is only read
            self._stack = np.zeros((self._r + 1, B.shape[1]), self.dtype)
        self._stack[: self._r] = B
        self._held = self._stack[self._r :]

    def _advance(self, rows: Array, shares: Floats) -> None:
        left, keep = weights_left(shares)
        B, r, n = self._stack[: self._r], self._r, len(rows)
        roots = np.sqrt(np.append(np.full(r, keep), left))
        G = np.empty((r + n, r + n))
        G[:r, :r], G[r:, :r], G[r:, r:] = full_gram(B), matmul(rows, B.T), full_gram(rows)
        values, vectors = eigh(roots * np.tril(G) * roots[:, np.newaxis], overwrite_a=True, check_finite=False)
        values, vectors = values[::-1], vectors[:, ::-1]
        full = n == self._block()
        delta = max(float(values[self.rows_kept - 1]), 0.0) if full and len(values) >= self.rows_kept else 0.0
        known = values - delta > 4.0 * len(values) * np.finfo(self.dtype).eps * values[0]
        if full:
            known[self.rows_kept - 1 :] = False
        turn = ((vectors * roots[:, np.newaxis])[:, known] * np.sqrt(1.0 - delta / values[known])).T
        new = matmul(np.ascontiguousarray(turn[:, :r], dtype=self.dtype), B)
        if not r:
            new = np.zeros((len(turn), rows.shape[1]), self.dtype)
        add_product(new, 1.0, np.ascontiguousarray(turn[:, r:]), np.ascontiguousarray(rows))
        self._put(new)
        few = len(new) < self.K  # then directions of the old basis complete the new one
        self._U = orthonormal_rows(np.concatenate([new, self._U]) if few else new[: self.K])[0][: self.K]

    def _fade(self, keep: float) -> None:
        self._stack[: self._r] *= self.dtype.type(np.sqrt(keep))

    def _covariance_within(self, R: Floats) -> Floats:
        B = self._stack[: min(self._r, self.K)].astype(np.float64)
        variances = np.zeros(self.K)
        variances[: len(B)] = np.einsum("kd,kd->k", B, B)
        return np.asarray((R * variances) @ R.T)

    def _running_state(self) -> FDRunning:
        return FDRunning(self._U.copy(), self._stack[: self._r].copy(), *self._open_rows())

    def _restore(self, running: FDRunning) -> None:
        if len(running.B) >= self.rows_kept:
            raise ValueError("its sketch has more rows than it has room for")
        self._begin(np.array(running.U))
        self._put(running.B)
        self._hold_again(running.rows, running.shares)
