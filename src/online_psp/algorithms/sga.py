"""SGA: stochastic gradient ascent with Gram–Schmidt (Oja and Karhunen 1985).

For sample ``x_t``, with a diagonal matrix Γ_t of gains::

    y = U x_t
    U ← U + Γ_t y x_tᵀ
    U ← the Gram–Schmidt basis of its rows, in their order

==  =====  ===========================================================================
U   (K,D)  orthonormal rows, which become the principal components in order of variance
y   (K,)   output: coordinates in the rows before the step
==  =====  ===========================================================================

Start: the thin QR basis of the first K samples. The gains are ``scale/(t v_k)``, v_k the average of ``y_k²``, at most ``1/‖x‖²``: see
`_gradient.py`. With ``variance=1`` all rows have the same gain, ``scale/t``; as long as it is below ``1/‖x‖²``, the span is that of `Oja`.

E. Oja and J. Karhunen, "On stochastic approximation of the eigenvectors and eigenvalues of the expectation of a random matrix", J. Math.
Analysis and Applications 106, 1985.

The step is exact: with ``g = Γ y``, ``û = y/‖x‖`` and ``w = û + ‖x‖ g``, the Gram matrix of the rows is ``I + w wᵀ − û ûᵀ``. Its Cholesky
factor is the product of two that have a closed form. For ``I ± u uᵀ``, with ``s_k = 1 ± (u_1² + … + u_k²)``::

    L_kk = sqrt(s_k/s_{k−1}),    L_jk = ± u_j u_k / sqrt(s_k s_{k−1})  for j > k

and Gram–Schmidt solves triangular systems with them, which costs O(K) per column instead of O(K²). Gains of at most ``1/‖x‖²``
keep the second factor away from singular.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from online_psp.algorithms._gradient import GradientAlgorithm, Pace, outputs, own_step_sizes, own_steps
from online_psp.engine.compiler import kernel
from online_psp.engine.types import Floats


class SGAState(NamedTuple):
    """The iterate, and the quantities that set its steps."""

    U: Floats
    v: Floats
    """(K,): averages of ``y_k²``"""
    pace: Pace


def reference_start(Q: Floats) -> SGAState:
    """The start from an orthonormal Q, (D, K)."""
    return SGAState(Q.T, np.zeros(Q.shape[1]), Pace(3.0))


def reference_step(state: SGAState, x: Floats, share: float) -> tuple[SGAState, Floats]:
    """One sample; `state` itself does not change."""
    U, v, pace = state
    y = U @ x
    alpha, v = own_steps(v, pace, x, y, share)
    Q, R = np.linalg.qr((U + np.outer(alpha * y, x)).T)
    return SGAState((Q * np.where(np.diag(R) < 0, -1.0, 1.0)).T, v, pace), y


def reference_basis(state: SGAState) -> Floats:
    """(D, K), orthonormal."""
    return np.asarray(state.U.T)


@kernel
def orthonormalize(Z: Floats, m: int, u: Floats, sign: float, other: Floats, work: Floats) -> None:
    """``Z ← L⁻¹ Z`` in its first m columns, and ``other ← L⁻¹ other``, L the Cholesky factor of ``I + sign u uᵀ``; work has length m."""
    K = Z.shape[0]
    before, done = 1.0, 0.0
    for i in range(m):
        work[i] = 0.0
    for k in range(K):
        row, after = Z[k], before + sign * u[k] * u[k]
        shrink, take = np.sqrt(before / after), sign * u[k] / (np.sqrt(after) * np.sqrt(before))
        for i in range(m):
            row[i] = shrink * (row[i] - u[k] * work[i])
        for i in range(m):
            work[i] += take * row[i]
        other[k] = shrink * (other[k] - u[k] * done)
        done += take * other[k]
        before = after


@kernel
def recur(H: Floats, shares: Floats, first: int, last: int, options: tuple[float, float], v: Floats, Z: Floats, Y: Floats) -> None:
    """Learn from samples `first` … `last`−1 of a block, on small arrays only; see `outputs` for the arrays."""
    K = Z.shape[0]
    alpha, u, w, work = np.empty(K), np.empty(K), np.empty(K), np.empty(Z.shape[1])
    for s in range(first, last):
        y, m = Y[s], K + s
        square = outputs(H, Z, s, y)
        own_step_sizes(options[0], options[1], shares[s], max(H[s, m], square), y, v, alpha)
        if square == 0.0:
            continue
        length = np.sqrt(H[s, m])
        for k in range(K):
            Z[k, m] = alpha[k] * y[k]
            u[k] = y[k] / length
            w[k] = u[k] + length * alpha[k] * y[k]
        orthonormalize(Z, m + 1, w, 1.0, u, work)
        orthonormalize(Z, m + 1, u, -1.0, w, work)


class SGA(GradientAlgorithm):
    """Stochastic gradient ascent with Gram–Schmidt: a form of Oja's rule that finds the principal components themselves, in order.

    Parameters
    ----------
    K, D, U0, scale, variance, learning_rate, block_size, dtype
        As in `Oja`, except that steps are in units of the variance of each row of the basis, and ``scale`` is 3 by default.
    """

    _recur = staticmethod(recur)
    _own_steps = True
    default_scale = 3.0

    def _straighten(self) -> None:
        L = cholesky(self._store.gram(), lower=True)
        self._store.turn(np.asarray(solve_triangular(L, np.eye(self.K), lower=True)))
