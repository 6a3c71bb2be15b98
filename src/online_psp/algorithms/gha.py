"""GHA, the generalized Hebbian algorithm (Sanger 1989).

For sample ``x_t``, with LT[·] the lower triangle of a matrix, the diagonal included::

    y = U x_t
    U ← U + α_t (y x_tᵀ − LT[y yᵀ] U)

==  =====  ================================================================
U   (K,D)  rows that become the principal components, in order of variance
y   (K,)   output: coordinates in the rows before the step
==  =====  ================================================================

Start: the thin QR basis of the first K samples. Step sizes ``α_t,k = scale/(t v_k)``, v_k the average of ``y_k²``: every row has a step
in units of its own variance, so weak components learn as quickly as strong ones, in data of any unit. With ``variance=1`` there is one
step for all of them, ``scale/t``, as published.

T. D. Sanger, "Optimal unsupervised learning in a single-layer linear feedforward neural network", Neural Networks 2, 1989.

Departure: the published update keeps U near orthonormal only while steps are small, and diverges if they are not. So a step is at most
``1/max(‖x‖², ‖y‖²)``, with which the sample is fitted fully. Steps of that size occur among the first samples, and at gross rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from online_psp.algorithms._gradient import GradientAlgorithm, Pace, outputs, own_step_sizes, own_steps
from online_psp.engine.compiler import kernel
from online_psp.engine.types import Floats


class GHAState(NamedTuple):
    """The iterate, and the quantities that set its steps."""

    U: Floats
    v: Floats
    """(K,): averages of ``y_k²``"""
    pace: Pace


def reference_start(Q: Floats) -> GHAState:
    """The start from an orthonormal Q, (D, K)."""
    return GHAState(Q.T, np.zeros(Q.shape[1]), Pace(3.0))


def reference_step(state: GHAState, x: Floats, share: float) -> tuple[GHAState, Floats]:
    """One sample; `state` itself does not change."""
    U, v, pace = state
    y = U @ x
    alpha, v = own_steps(v, pace, x, y, share)
    return GHAState(U + alpha[:, np.newaxis] * (np.outer(y, x) - np.tril(np.outer(y, y)) @ U), v, pace), y


def reference_basis(state: GHAState) -> Floats:
    """(D, K), orthonormal."""
    return np.linalg.qr(state.U.T)[0]


@kernel
def recur(H: Floats, shares: Floats, first: int, last: int, options: tuple[float, float], v: Floats, Z: Floats, Y: Floats) -> None:
    """Learn from samples `first` … `last`−1 of a block, on small arrays only; see `outputs` for the arrays."""
    K = Z.shape[0]
    alpha = np.empty(K)
    known = np.empty(Z.shape[1])  # Σ_{i≤k} y_i u_i: the part of the sample that the rows up to k explain
    for s in range(first, last):
        y, m = Y[s], K + s
        square = outputs(H, Z, s, y)
        own_step_sizes(options[0], options[1], shares[s], max(H[s, m], square), y, v, alpha)
        for i in range(m):
            known[i] = 0.0
        for k in range(K):
            row, step = Z[k], alpha[k] * y[k]
            for i in range(m):
                known[i] += y[k] * row[i]
            for i in range(m):
                row[i] -= step * known[i]
            row[m] = step


class GHA(GradientAlgorithm):
    """Sanger's rule, the generalized Hebbian algorithm: finds the principal components themselves, in order.

    Parameters
    ----------
    K, D, U0, scale, variance, learning_rate, block_size, dtype
        As in `Oja`, except that steps are in units of the variance of each row of the basis, and ``scale`` is 3 by default.
    """

    _recur = staticmethod(recur)
    _own_steps = True
    default_scale = 3.0

    def _straighten(self) -> None:
        """Does nothing: the rule itself pulls the rows back to orthonormality."""

    def _covariance_within(self, R: Floats) -> Floats:
        back = np.linalg.pinv(R)
        return np.asarray(back.T @ self._M @ back)
