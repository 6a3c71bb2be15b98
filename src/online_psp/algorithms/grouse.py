"""GROUSE, Grassmannian rank-one update subspace estimation (Balzano, Nowak and Recht 2010): learns from rows with missing values.

For sample ``x_t`` with the set Ω of observed features, U_Ω the corresponding rows of U::

    w = argmin_a ‖U_Ω a − x_Ω‖,    p = U w,    r = x − p in Ω and 0 elsewhere
    U ← U + [ (cos θ − 1) p/‖p‖ + sin θ r/‖r‖ ] wᵀ/‖w‖,    θ = η_t ‖r‖ ‖p‖

==  =====  ================================================================
U   (D,K)  orthonormal columns, a step along a geodesic of the Grassmannian
w   (K,)   output: the coordinates that fit what is observed
==  =====  ================================================================

L. Balzano, R. Nowak, B. Recht, "Online Identification and Tracking of Subspaces from Highly Incomplete Information", Allerton 2010,
arXiv:1006.4046.

Departures: the paper leaves η_t to the user: a constant to track a moving subspace, ``C/t`` for a fixed one. Here it is
``scale/(t v)``, v the average of ``‖p‖²/K``, so that it does not depend on the units of the data. θ is no more than
``arctan(‖r‖/‖p‖)``, at which the new subspace contains the completed sample p + r. The start is the thin QR basis of the first K samples.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, NamedTuple, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from online_psp.algorithms._partial import RCOND, PartialAlgorithm, coordinates
from online_psp.algorithms._provided import BlockSize
from online_psp.engine.checks import check_number
from online_psp.engine.types import Array, Floats, Rate

SCALE = 5.0
_NO_RESIDUAL = 1e-14  # relative to the sample: rounding
_ROWS_BETWEEN_CHECKS = 256


class GROUSEState(NamedTuple):
    """The iterate, and the quantities that set its steps."""

    U: Floats
    v: float
    """Average of ``‖p‖²/K``."""


def reference_start(Q: Floats) -> GROUSEState:
    """The start from an orthonormal Q, (D, K)."""
    return GROUSEState(Q, 0.0)


def reference_step(state: GROUSEState, x: Floats, share: float, scale: float = SCALE) -> tuple[GROUSEState, Floats]:
    """One sample, NaN where it is missing; `state` itself does not change."""
    U, v = state
    seen = ~np.isnan(x)
    w = np.linalg.pinv(U[seen], rcond=RCOND) @ x[seen]
    p = U @ w
    r = np.where(seen, np.where(seen, x, 0.0) - p, 0.0)
    long, off = float(np.linalg.norm(p)), float(np.linalg.norm(r))
    if not x[seen].any():
        return state, w
    v = v + share * (long**2 / len(w) - v)
    if v <= 0 or off <= _NO_RESIDUAL * long:
        return GROUSEState(U, v), w
    theta = min(scale * share / v * off * long, math.atan(off / long))
    step = (np.cos(theta) - 1.0) * p / long + np.sin(theta) * r / off
    return GROUSEState(U + np.outer(step, w) / float(np.linalg.norm(w)), v), w


def reference_basis(state: GROUSEState) -> Floats:
    """(D, K), orthonormal."""
    return np.linalg.qr(state.U)[0]


class GROUSERunning(NamedTuple):
    """The state after the start."""

    U: Annotated[Floats, "D", "K"]
    M: Annotated[Floats, "K", "K"]
    v: float


class GROUSE(PartialAlgorithm):
    """GROUSE: gradient steps on the Grassmannian, from the observed values of each row.

    Parameters
    ----------
    K, D, dtype, learning_rate, block_size
        As in `HistoryPCA`, except that rows are taken one at a time, whatever the block size.
    scale : float
        Scale of the steps.
    """

    Running = GROUSERunning
    option_names = ("scale",)

    def __init__(
        self,
        K: int,
        D: int | None = None,
        *,
        scale: float = SCALE,
        learning_rate: Rate | None = None,
        block_size: BlockSize = "auto",
        dtype: DTypeLike = np.float64,
    ) -> None:
        super().__init__(K, D, learning_rate, block_size, dtype)
        self.scale = check_number(scale, "scale")
        if not 0 < self.scale < float("inf"):
            raise ValueError(f"scale must be positive and finite; got {scale!r}.")

    @classmethod
    def from_directions(cls, components: Array, variances: Floats, *, block_size: BlockSize, dtype: Any) -> Self:
        model = cls(*components.shape, block_size=block_size, dtype=dtype)
        model._begin(components)
        model._M, model._v, model._started = np.diag(variances), float(np.mean(variances)), True
        return model

    def _begin(self, basis: Array) -> None:
        super()._begin(basis)
        self._v = 0.0

    def _learn_row(self, x: Floats, seen: NDArray[np.bool_], share: float) -> Floats:
        U = self._U
        whole = bool(seen.all())
        w = x @ U if whole else coordinates(U, x, seen)
        p = U @ w
        r = x - p if whole else np.where(seen, x - p, 0.0)
        long, off = float(np.linalg.norm(p)), float(np.linalg.norm(r))
        self._v += share * (long**2 / self.K - self._v)
        if self._v > 0.0 and long > 0.0 and off > _NO_RESIDUAL * long:
            theta = min(self.scale * share / self._v * off * long, math.atan(off / long))
            step = ((math.cos(theta) - 1.0) / long) * p + (math.sin(theta) / off) * r
            U += np.outer(step, w / np.linalg.norm(w))
        return w

    def _take_block(self, rows: Any, rates: list[Floats], G: Array | None = None) -> Floats:
        Y = super()._take_block(rows, rates, G)
        if self.t // _ROWS_BETWEEN_CHECKS != (self.t + len(Y)) // _ROWS_BETWEEN_CHECKS:
            Q, R = np.linalg.qr(self._U)  # removes rounding errors
            self._U = Q * np.where(np.diag(R) < 0, -1.0, 1.0)
        return Y

    def _running_state(self) -> GROUSERunning:
        return GROUSERunning(self._U.copy(), self._M.copy(), self._v)

    def _restore(self, running: GROUSERunning) -> None:
        self._U, self._M, self._v = running.U.copy(), running.M.copy(), running.v

    @classmethod
    def checked(cls, running: Any) -> Any:
        if running.v < 0:
            raise ValueError("its step sizes are impossible")
        return super().checked(running)
