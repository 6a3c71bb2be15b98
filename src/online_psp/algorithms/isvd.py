"""Incremental SVD by blocks, with forgetting and an update of the mean (Ross, Lim, Lin and Yang 2008).

For a block X of m rows after n rows with mean μ and singular value decomposition ``U, Σ``::

    x̄ = mean of X,   X̂ = [X − x̄;  sqrt(n m/(n+m)) (x̄ − μ)]
    U', Σ' = the leading K right singular vectors, and values, of [f Σ U; X̂]
    μ ← (f n μ + m x̄)/(f n + m),   n ← f n + m

=========  ======  =============================================================================
U          (K,D)   orthonormal rows: principal components, in order of variance
variances  (K,)    ``Σ²/n``
mean       (D,)    μ; zero if rows are taken to be centred already
=========  ======  =============================================================================

D. A. Ross, J. Lim, R.-S. Lin, M.-H. Yang, "Incremental Learning for Robust Visual Tracking", Int. J. Computer Vision 77, 2008.

The decomposition is that of the small triangular factor of the stacked rows, found by Householder reflections: it squares nothing, and
is accurate for data of any range and rank. Departures: rows are taken as centred unless ``center=True``, as in all algorithms of this
package. Rows count by their shares in an average, ``1/n`` by default, so Σ² is divided by n throughout. In ``sqrt(n m/(n+m))``, n is what
is left of it after forgetting."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple, Self

import numpy as np
from numpy.typing import DTypeLike
from scipy.linalg import qr, svd

from online_psp.algorithms._blockwise import BlockwiseAlgorithm
from online_psp.algorithms._provided import BlockSize
from online_psp.engine.blas import matmul
from online_psp.engine.checks import check_number
from online_psp.engine.moments import weights_left
from online_psp.engine.types import Array, Floats, Rate

LEAST_ROWS = 5


class ISVDState(NamedTuple):
    """The iterate, and the rows of the block that is not full yet."""

    U: Floats
    """(K, D)"""
    sigma: Floats
    """(K,) singular values of everything stacked, not divided by n"""
    mean: Floats
    """(D,)"""
    n: float
    """Rows that it is made of; those that are being forgotten count in part."""
    rows: Floats
    """(m, D)"""
    f: float
    """Forgetting factor."""
    center: bool


def reference_start(Q: Floats, f: float = 1.0, center: bool = False) -> ISVDState:
    """The start from an orthonormal Q, (D, K): nothing seen yet."""
    D, K = Q.shape
    return ISVDState(Q.T, np.zeros(K), np.zeros(D), 0.0, np.zeros((0, D)), f, center)


def reference_step(state: ISVDState, x: Floats, share: float) -> tuple[ISVDState, Floats]:
    """One more row; the model moves when a block is full. All rows weigh the same: `share` is not used."""
    y = state.U @ (x - state.mean)
    state = state._replace(rows=np.vstack([state.rows, x]))
    return (reference_block(state) if len(state.rows) == max(LEAST_ROWS, len(state.U)) else state), y


def reference_block(state: ISVDState) -> ISVDState:
    """Learn from the rows held."""
    U, sigma, mean, n, rows, f, center = state
    m, K = len(rows), len(U)
    stacked = [f * sigma[:, np.newaxis] * U, rows]
    if center:
        n *= f
        own = rows.mean(axis=0)
        stacked = [stacked[0], rows - own, np.sqrt(n * m / (n + m)) * (own - mean)[np.newaxis]]
        mean = (n * mean + m * own) / (n + m)
        n += m
    directions, values = _leading(np.vstack(stacked), K)
    return ISVDState(directions, values, mean, n, rows[:0], f, center)


def reference_basis(state: ISVDState) -> Floats:
    """(D, K), orthonormal, with the open rows."""
    return (reference_block(state) if len(state.rows) else state).U.T


def _leading(stacked: Floats, K: int) -> tuple[Floats, Floats]:
    missing = max(0, K - len(stacked))
    _, values, directions = np.linalg.svd(np.vstack([stacked, np.zeros((missing, stacked.shape[1]))]), full_matrices=False)
    return directions[:K], values[:K]


class ISVDRunning(NamedTuple):
    """The state after the start."""

    U: Annotated[Array, "K", "D"]
    variances: Annotated[Floats, "K"]
    mean: Annotated[Floats, "D"] | None
    rows: Annotated[Array, "n", "D"]
    shares: Annotated[Floats, "n"]


class IncrementalSVD(BlockwiseAlgorithm):
    """Incremental SVD by blocks: the best rank-K model of each block together with the model of the past.

    Parameters
    ----------
    K, D, dtype
        As in `FSM`.
    forgetting : float
        f in (0, 1]: factor by which singular values are multiplied before each block.
    center : bool
        Whether to subtract the mean of the rows so far, exactly, as it moves; otherwise rows are taken as centred.
    learning_rate : callable, optional
        ``t → share`` in [0, 1], t from 1: the share of sample t in the average of all up to it, in place of `forgetting`.
    block_size : int or "auto"
        m, rows of a block: max(5, K) by default.
    """

    Running = ISVDRunning
    option_names = ("forgetting", "center")

    def __init__(
        self,
        K: int,
        D: int | None = None,
        *,
        forgetting: float = 1.0,
        center: bool = False,
        learning_rate: Rate | None = None,
        block_size: BlockSize = "auto",
        dtype: DTypeLike = np.float64,
    ) -> None:
        super().__init__(K, D, learning_rate, block_size, dtype)
        self.forgetting = check_number(forgetting, "forgetting")
        if not 0.0 < self.forgetting <= 1.0:
            raise ValueError(f"forgetting must be above 0 and at most 1; got {forgetting!r}.")
        given: Any = center
        if not isinstance(given, bool | np.bool_) and not (isinstance(given, float) and given in (0.0, 1.0)):  # files store numbers
            raise TypeError(f"center must be True or False; got {center!r}.")
        self.center = bool(center)

    @classmethod
    def from_directions(cls, components: Array, variances: Floats, *, block_size: BlockSize, dtype: Any) -> Self:
        model = cls(*components.shape, block_size=block_size, dtype=dtype)
        model._begin(np.array(components, dtype=model.dtype, order="C"))
        model._variances, model._started = np.array(variances), True
        return model

    @property
    def block_rows(self) -> int:
        return max(LEAST_ROWS, self.K) if self.block_size == "auto" else self.block_size

    @property
    def mean(self) -> Floats:
        """(D,): the mean of the rows in full blocks; zero unless ``center=True``."""
        with self._lock:
            return np.zeros(self._features()) if not self._started or self._mean is None else self._mean.copy()

    def _begin(self, basis: Array) -> None:
        super()._begin(basis)
        self._variances: Floats = np.zeros(self.K)
        self._mean: Floats | None = np.zeros(self._features()) if self.center else None

    def _default_shares(self, t: int, n: int) -> Floats:
        f, m = self.forgetting, self.block_rows
        if f == 1.0:
            return super()._default_shares(t, n)
        block, place = np.divmod(np.arange(t, t + n), m)
        before = f * m * (1.0 - f**block) / (1.0 - f)
        return 1.0 / (before + place + 1.0)

    def _outputs(self, rows: Array) -> Array:
        return matmul(rows if self._mean is None else (rows - self._mean).astype(self.dtype), self._U.T)

    def _advance(self, rows: Array, shares: Floats) -> None:
        left, keep = weights_left(shares)
        stacked = [np.sqrt(self.forgetting * keep * self._variances)[:, np.newaxis].astype(self.dtype) * self._U]
        if self._mean is None:
            stacked.append(rows * np.sqrt(left)[:, np.newaxis].astype(self.dtype))
        else:
            stacked += self._centred(rows, left, keep)
        factor, R = qr(np.concatenate(stacked).T, mode="economic", overwrite_a=True, check_finite=False)
        turn, values, _ = svd(R.astype(np.float64), full_matrices=False, check_finite=False, overwrite_a=True)
        K = self.K
        self._U, self._variances = matmul(np.ascontiguousarray(turn[:, :K].T.astype(self.dtype)), factor.T), values[:K] ** 2

    def _centred(self, rows: Array, left: Floats, keep: float) -> list[Array]:
        """The rows minus their own mean, and the row that represents the distance between the two means; updates the mean."""
        assert self._mean is not None
        weight = float(left.sum())
        if weight == 0.0:
            return []
        own = matmul(left / weight, rows.astype(np.float64))
        between, self._mean = np.sqrt(keep * weight) * (own - self._mean), self._mean + weight * (own - self._mean)
        about = (rows - own) * np.sqrt(left)[:, np.newaxis]
        return [about.astype(self.dtype), between[np.newaxis].astype(self.dtype)]

    def _says_nothing(self, rows: Array) -> bool:
        return self._mean is None and super()._says_nothing(rows)

    def _fade(self, keep: float) -> None:
        self._variances *= self.forgetting * keep

    def _covariance_within(self, R: Floats) -> Floats:
        return np.asarray((R * self._variances) @ R.T)

    def _running_state(self) -> ISVDRunning:
        mean = None if self._mean is None else self._mean.copy()
        return ISVDRunning(self._U.copy(), self._variances.copy(), mean, *self._open_rows())

    def _restore(self, running: ISVDRunning) -> None:
        if (running.mean is not None) != self.center:
            raise ValueError("it has a mean although it is not centred, or none although it is")
        self._begin(np.array(running.U))
        self._variances = running.variances.copy()
        self._mean = None if running.mean is None else running.mean.copy()
        self._hold_again(running.rows, running.shares)
