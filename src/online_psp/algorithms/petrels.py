"""PETRELS, parallel estimation and tracking by recursive least squares (Chi, Eldar and Calderbank 2013): learns from rows with missing
values.

For sample ``x_t`` with the set Ω of observed features, row m of U written u_m::

    a = argmin_a ‖U_Ω a − x_Ω‖
    for every feature m:   R_m ← λ R_m,                      and for those in Ω:   R_m ← R_m + a aᵀ
                           u_m ← u_m + (x_m − aᵀ u_m) R_m⁻¹ a

==  =======  =================================================================================
U   (D,K)    a basis, not orthonormal
a   (K,)     output: the coordinates that fit what is observed
R   (D,K,K)  for every feature, the sum of ``a aᵀ`` over the samples in which it was observed
λ            forgetting; 1 remembers everything
==  =======  =================================================================================

Each feature is regressed on the coordinates by recursive least squares, which takes O(D K²) memory, and as many operations per sample.

Y. Chi, Y. C. Eldar, R. Calderbank, "PETRELS: Parallel Subspace Estimation and Tracking by Recursive Least Squares From Partial
Observations", IEEE Transactions on Signal Processing 61, 2013, arXiv:1207.6353.

Departures: step sizes are shares s_t in an average, as in the other algorithms: ``λ_t = (1 − s_t) s_{t−1}/s_t``, which is 1 for ``1/t`` and
``1 − s`` for a constant s, and at least one half. The paper's ``R_m = δ⁻¹ I`` at the start is ``I/100`` in units of the mean square of the
coordinates, and no R_m⁻¹ gets a larger trace than that, however long its feature goes unobserved. U starts from the thin QR basis of the
first K samples.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from online_psp.algorithms._partial import RCOND, PartialAlgorithm, coordinates
from online_psp.algorithms._provided import BlockSize
from online_psp.engine.types import Array, Floats, Rate

_FIRST = 0.01
_LEAST_LEFT = 0.5


class PETRELSState(NamedTuple):
    """The regressions as the sums that they solve."""

    U: Floats
    R: Floats
    """(D, K, K)"""
    S: Floats
    """(D, K): sums of ``x_m a``; ``u_m = R_m⁻¹ s_m``"""
    square: float
    """Average of ``‖a‖²/K``."""
    share: float
    """Share of the sample before."""


def reference_start(Q: Floats) -> PETRELSState:
    """The start from an orthonormal Q, (D, K)."""
    D, K = Q.shape
    return PETRELSState(Q, np.zeros((D, K, K)), np.zeros((D, K)), 0.0, 0.0)


def reference_step(state: PETRELSState, x: Floats, share: float) -> tuple[PETRELSState, Floats]:
    """One sample, NaN where it is missing; `state` itself does not change."""
    U, R, S, square, before = state
    K, seen = U.shape[1], ~np.isnan(x)
    a = np.linalg.pinv(U[seen], rcond=RCOND) @ x[seen]
    if not x[seen].any() or share <= 0.0:
        return state, a
    square = square + share * (a @ a / K - square)
    first = max(_FIRST * square, np.finfo(float).tiny)
    if not before:
        R, S = np.tile(first * np.eye(K), (len(U), 1, 1)), first * U
    left = max((1.0 - share) * before / share, _LEAST_LEFT) if before else 1.0
    R, S = left * R, left * S
    R[seen] += np.outer(a, a)
    S[seen] += np.outer(x[seen], a)
    more = np.maximum(np.trace(np.linalg.inv(R), axis1=1, axis2=2) * first / K, 1.0)
    R, S = R * more[:, np.newaxis, np.newaxis], S * more[:, np.newaxis]
    return PETRELSState(np.linalg.solve(R, S[:, :, np.newaxis])[:, :, 0], R, S, square, share), a


def reference_basis(state: PETRELSState) -> Floats:
    """(D, K), orthonormal."""
    return np.linalg.qr(state.U)[0]


class PETRELSRunning(NamedTuple):
    """The state after the start: P holds the inverses of R, that of feature m flattened in ``P[m]``."""

    U: Annotated[Floats, "D", "K"]
    M: Annotated[Floats, "K", "K"]
    P: Annotated[Floats, "D", "squared"]
    square: float
    share: float


class PETRELS(PartialAlgorithm):
    """PETRELS: a recursive least-squares regression for every feature, from the observed values of each row.

    It needs a K×K matrix for every feature: D K² numbers.

    Parameters
    ----------
    K, D, dtype, learning_rate, block_size
        As in `HistoryPCA`, except that rows are taken one at a time, whatever the block size. A constant share s means λ = 1 − s.
    """

    Running = PETRELSRunning

    def __init__(
        self,
        K: int,
        D: int | None = None,
        *,
        learning_rate: Rate | None = None,
        block_size: BlockSize = "auto",
        dtype: DTypeLike = np.float64,
    ) -> None:
        super().__init__(K, D, learning_rate, block_size, dtype)

    @classmethod
    def from_directions(cls, components: Array, variances: Floats, *, block_size: BlockSize, dtype: Any) -> Self:
        model = cls(*components.shape, block_size=block_size, dtype=dtype)
        model._begin(components)
        variances = cls.positive(variances, np.float64)
        model._M, model._square, model._share, model._started = np.diag(variances), float(np.mean(variances)), 1.0, True
        model._P[:] = np.diag(1.0 / variances)
        return model

    def _begin(self, basis: Array) -> None:
        super()._begin(basis)
        self._P: Floats = np.zeros((self._features(), self.K, self.K))
        self._square, self._share = 0.0, 0.0

    def _learn_row(self, x: Floats, seen: NDArray[np.bool_], share: float) -> Floats:
        U, P, K = self._U, self._P, self.K
        a = coordinates(U, x, seen)
        if share <= 0.0:
            return a
        self._square += share * (float(a @ a) / K - self._square)
        most = K / max(_FIRST * self._square, float(np.finfo(float).tiny))  # trace of P at the start, and at most
        if not self._share:
            P[:] = most / K * np.eye(K)
        elif (left := max((1.0 - share) * self._share / share, _LEAST_LEFT)) != 1.0:
            P /= left
        self._share = share
        v = P[seen] @ a
        ratio = 1.0 / (1.0 + v @ a)
        P[seen] -= (v[:, :, np.newaxis] * v[:, np.newaxis, :]) * ratio[:, np.newaxis, np.newaxis]  # symmetric to the last digit
        U[seen] += ((x[seen] - U[seen] @ a) * ratio)[:, np.newaxis] * v  # the new R_m⁻¹ a is v times the ratio
        traces = np.trace(P, axis1=1, axis2=2)
        if traces.max() > most:
            P *= np.minimum(most / np.maximum(traces, most), 1.0)[:, np.newaxis, np.newaxis]
        return a

    def _running_state(self) -> PETRELSRunning:
        return PETRELSRunning(self._U.copy(), self._M.copy(), self._P.reshape(len(self._U), -1).copy(), self._square, self._share)

    def _restore(self, running: PETRELSRunning) -> None:
        self._U, self._M = running.U.copy(), running.M.copy()
        self._P = running.P.reshape(-1, self.K, self.K).copy()
        self._square, self._share = running.square, running.share

    @classmethod
    def checked(cls, running: Any) -> Any:
        K = len(running.M)
        if running.P.shape[1] != K * K or (running.P[:, :: K + 1] < 0).any() or running.square < 0 or not 0 <= running.share <= 1:
            raise ValueError("its regressions are impossible")
        return super().checked(running)
