"""GHA, the generalized Hebbian algorithm (Sanger 1989).

For sample ``x_t``, with LT[·] the lower triangle of a matrix, the diagonal included::

    y = U x_t
    U ← U + α_t (y x_tᵀ − LT[y yᵀ] U)

==  =====  ================================================================
U   (K,D)  rows that become the principal components, in order of variance
y   (K,)   output: coordinates in the rows before the step
==  =====  ================================================================

Start: the thin QR basis of the first K samples. Step sizes ``α_t = scale/(t v_t)``: see `_gradient.py`.

T. D. Sanger, "Optimal unsupervised learning in a single-layer linear feedforward neural network", Neural Networks 2, 1989.

Departure: the published update keeps U near orthonormal only while steps are small, and diverges where they are not. So the step is at most
``1/max(‖x‖², ‖y‖²)``: no more than takes the sample in whole. Steps of that size occur among the first samples, and at gross rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from online_psp.algorithms._gradient import GradientAlgorithm, Pace, outputs_and_step
from online_psp.engine.compiler import kernel
from online_psp.engine.types import Floats


class GHAState(NamedTuple):
    """The iterate, and what sets its steps."""

    U: Floats
    pace: Pace


def reference_start(Q: Floats) -> GHAState:
    """The start from an orthonormal Q, (D, K)."""
    return GHAState(Q.T, Pace(5.0))


def reference_step(state: GHAState, x: Floats, share: float) -> tuple[GHAState, Floats]:
    """One sample; the state that comes in is left alone."""
    U = state.U
    y = U @ x
    alpha, pace = state.pace.step(x, y, share)
    largest = max(float(x @ x), float(y @ y))
    if alpha * largest > 1.0:
        alpha = 1.0 / largest
    return GHAState(U + alpha * (np.outer(y, x) - np.tril(np.outer(y, y)) @ U), pace), y


def reference_basis(state: GHAState) -> Floats:
    """(D, K), orthonormal."""
    return np.linalg.qr(state.U.T)[0]


@kernel
def recur(H: Floats, shares: Floats, first: int, last: int, pace: Floats, Z: Floats, Y: Floats) -> None:
    """Samples `first` … `last`−1 of a block, on small arrays only; see `outputs_and_step` for them."""
    K = Z.shape[0]
    known = np.empty(Z.shape[1])  # Σ_{i≤k} y_i u_i: what the rows up to k make of the sample
    for s in range(first, last):
        y, m = Y[s], K + s
        alpha, square = outputs_and_step(H, Z, s, shares[s], pace, y)
        largest = max(H[s, m], square)
        if alpha * largest > 1.0:
            alpha = 1.0 / largest
        if square == 0.0 or alpha == 0.0:
            continue
        for i in range(m):
            known[i] = 0.0
        for k in range(K):
            row = Z[k]
            for i in range(m):
                known[i] += y[k] * row[i]
            for i in range(m):
                row[i] -= alpha * y[k] * known[i]
            row[m] = alpha * y[k]


class GHA(GradientAlgorithm):
    """Sanger's rule, the generalized Hebbian algorithm: finds the principal components themselves, in order.

    Parameters
    ----------
    K, D, U0, scale, variance, learning_rate, block_size, dtype
        As in `Oja`.
    """

    _recur = staticmethod(recur)

    def _straighten(self) -> None:
        """Nothing: the rule itself pulls the rows back to orthonormality."""

    def _covariance_within(self, R: Floats) -> Floats:
        back = np.linalg.pinv(R)
        return np.asarray(back.T @ self._M @ back)
