"""Candid covariance-free incremental PCA (Weng, Zhang, Hwang 2003, as in Giovannucci et al. 2018).

For sample ``x_t`` and k = 1 … K in turn::

    v    = (1 − α_t) σ_k² u_k + α_t x xᵀu_k
    σ_k² = ‖v‖
    u_k  = v / ‖v‖
    x    ← x − u_k u_kᵀ x

===  =====  =============================================================
u_k  (D,)   unit components, orthogonal only in the limit
σ²   (K,)   variances along them
y    (K,)   output: ``y_k = u_kᵀ x`` at the moment that x is deflated by it
===  =====  =============================================================

Start: ``U = Q``, the thin QR basis of the first K samples, and ``σ_k² = 1e-8``. Step sizes ``α_t = min(1 + ℓ, t)/(t + 1)`` with amnesia
ℓ = 2: the paper's ``(1 + ℓ)/t`` kept inside (0, 1), one step on.

This start amplifies rounding, and from K = 64 on rounding decides the result: two correct implementations diverge completely soon after
sample K. So we claim to give the published iterates up to K ≈ 32 only. ``sigma2_0="data"`` starts from variances of the data, and does not
amplify rounding.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from online_psp.algorithms.base import BlockSize
from online_psp.algorithms.coordinates import FrameAlgorithm
from online_psp.engine.blas import matmul
from online_psp.engine.checks import check_count, check_number, check_variances
from online_psp.engine.compiler import kernel
from online_psp.engine.types import Array, Floats, Rate

_FROM_DATA = -1.0  # stands in place of a variance that is taken from the first samples


class CCIPCAState(NamedTuple):
    """The iterate, in the paper's letters."""

    U: Floats
    sigma2: Floats


def reference_start(Q: Floats) -> CCIPCAState:
    """The published start from an orthonormal Q, (D, K)."""
    return CCIPCAState(U=np.asfortranarray(Q), sigma2=np.full(Q.shape[1], 1e-8))


def reference_step(state: CCIPCAState, x: Floats, alpha: float) -> tuple[CCIPCAState, Floats]:
    """One sample, as published; `state` itself does not change."""
    U, sigma2 = state.U.copy(order="K"), state.sigma2.copy()
    x = x.copy()
    y = np.empty(len(sigma2))
    for k in range(len(sigma2)):
        v = (1.0 - alpha) * sigma2[k] * U[:, k] + alpha * (x @ U[:, k]) * x
        sigma2[k] = np.linalg.norm(v)
        U[:, k] = v / sigma2[k]
        y[k] = U[:, k] @ x
        x -= y[k] * U[:, k]
    return CCIPCAState(U, sigma2), y


def reference_basis(state: CCIPCAState) -> Floats:
    """(D, K), orthonormal."""
    return np.linalg.qr(state.U)[0]


@kernel
def recur(rows: Floats, steps: Floats, first: int, last: int, Z: Floats, sigma2: Floats, Y: Floats) -> None:
    """Samples `first` … `last`−1 of a block, in orthonormal coordinates.

    As u is a unit vector, ``‖v‖`` and ``u_kᵀ x`` after the update follow from ``uᵀx`` and ``xᵀx`` before it: one reduction per component.

    Parameters
    ----------
    rows : (≥ last, m)
        Coordinates of the samples; sample s has none beyond K + s + 1.
    steps : (1, ≥ last)
    Z : (K, m), changed in place
        Coordinates of the components.
    sigma2 : (K,), changed in place
    Y : (≥ last, K)
        Outputs.
    """
    K = Z.shape[0]
    for s in range(first, last):
        alpha, width = steps[0, s], K + s + 1
        x, square = rows[s, :width].copy(), 0.0
        for c in range(width):
            square += x[c] * x[c]
        for k in range(K):
            u, dot = Z[k], 0.0
            for c in range(width):
                dot += u[c] * x[c]
            # v = (1 − α) σ² u + α x xᵀu
            old, new = (1.0 - alpha) * sigma2[k], alpha * dot
            # σ² = ‖v‖,  u = v/‖v‖
            norm = np.sqrt(old * old + 2.0 * old * new * dot + new * new * square)
            if norm > 0.0:
                sigma2[k] = norm
                old /= norm
                new /= norm
                Y[s, k] = old * dot + new * square
            else:  # no variance and nothing to learn: the component stays
                sigma2[k] = 0.0
                old, new, Y[s, k] = 1.0, 0.0, dot
            # x ← x − u uᵀx
            square = 0.0
            for c in range(width):
                u[c] = old * u[c] + new * x[c]
                x[c] -= Y[s, k] * u[c]
                square += x[c] * x[c]


class CCIPCA(FrameAlgorithm):
    """Candid covariance-free incremental PCA: one component after the other, each from the residual of the earlier ones.

    Parameters
    ----------
    K, D, block_size, dtype
        As in `FSM`.
    Uhat0 : (D, K), optional
        Start for the components; scaled to unit columns. By default the algorithm starts from the first K samples.
    sigma2_0 : (K,) or "data", optional
        Start for the variances; 1e-8 by default, as published. That start amplifies rounding: from K = 64 on, two correct implementations
        diverge completely within the first samples after it. "data" starts from the mean squares of the first K samples along the
        components, continues with the sample after them, and does not amplify rounding.
    ell : float
        Amnesia: samples weigh ``1 + ell`` times more than in a plain average.
    learning_rate : callable, optional
        ``t → α_t`` in [0, 1), t from 1; in place of `ell`.
    """

    option_names = ("ell",)

    def __init__(
        self,
        K: int,
        D: int | None = None,
        *,
        Uhat0: ArrayLike | None = None,
        sigma2_0: ArrayLike | str | None = None,
        ell: float = 2.0,
        learning_rate: Rate | None = None,
        block_size: BlockSize = "auto",
        dtype: DTypeLike = np.float64,
    ) -> None:
        self.ell = check_number(ell, "ell")
        if not self.ell >= 0:
            raise ValueError(f"ell must not be negative; got {ell!r}.")
        K = check_count(K, "K")
        if isinstance(sigma2_0, str):
            if sigma2_0 != "data":
                raise ValueError(f"sigma2_0 must be one variance for each component, or 'data'; got {sigma2_0!r}.")
            sigma2 = np.full(K, _FROM_DATA)
        else:
            sigma2 = np.full(K, 1e-8) if sigma2_0 is None else check_variances(sigma2_0, K)
        super().__init__(K, D, (Uhat0, sigma2), learning_rate, block_size, dtype)

    def _unit_rows(self, Uhat0: Floats) -> Floats:
        norms = np.linalg.norm(Uhat0, axis=0)
        if not norms.all():
            raise ValueError(f"Uhat0 must have no zero column; column {int(np.argmin(norms))} is zero.")
        return np.ascontiguousarray((Uhat0 / norms).T)

    def _default_step(self, t: Any) -> Any:
        return np.minimum(1.0 + self.ell, t) / (t + 1.0)

    def _learn_first(self, rows: Array, steps: Floats) -> Array:
        state = self._state
        if state.sigma2[0] != _FROM_DATA:
            return super()._learn_first(rows, steps)
        Y = matmul(rows, state.stack[: self.K].T).astype(np.float64)
        squares = np.mean(Y**2, axis=0)
        state.sigma2 = np.maximum(squares, max(1e-8 * float(squares.max()), 1e-300))
        return np.asarray(Y[-1])

    def _recur(self, first: int, last: int) -> bool:
        state = self._state
        recur(state.x, state.steps, first, last, state.Z, state.sigma2, state.Y)
        return False

    def _moved(self, m: int) -> Floats:
        Z = self._state.Z[:, :m]
        return np.asarray(Z / np.linalg.norm(Z, axis=1, keepdims=True))
