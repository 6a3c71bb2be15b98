"""SGA: stochastic gradient ascent with Gram–Schmidt (Oja and Karhunen 1985).

For sample ``x_t``::

    y = U x_t
    U ← U + α_t y x_tᵀ
    U ← the Gram–Schmidt basis of its rows, in their order

==  =====  ===========================================================================
U   (K,D)  orthonormal rows, which become the principal components in order of variance
y   (K,)   output: coordinates in the rows before the step
==  =====  ===========================================================================

Start: the thin QR basis of the first K samples. Step sizes ``α_t = scale/(t v_t)``: see `_gradient.py`.

E. Oja and J. Karhunen, "On stochastic approximation of the eigenvectors and eigenvalues of the expectation of a random matrix", J. Math.
Analysis and Applications 106, 1985. They allow a gain for each row; here all rows have the same one, so that the span is that of `Oja`, and
what Gram–Schmidt adds is that the first rows learn as if the others were not there.

Exact: after a step ``U Uᵀ = I + c y yᵀ``, whose Cholesky factor L has a closed form. With ``s_k = 1 + c (y_1² + … + y_k²)``::

    L_kk = sqrt(s_k/s_{k−1}),    L_jk = c y_j y_k / sqrt(s_k s_{k−1})  for j > k

and Gram–Schmidt is the solution of a triangular system with it, which costs O(K) a column, and not O(K²).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from online_psp.algorithms._gradient import GradientAlgorithm, Pace, outputs, step_size
from online_psp.engine.compiler import kernel
from online_psp.engine.types import Floats


class SGAState(NamedTuple):
    """The iterate, and what sets its steps."""

    U: Floats
    pace: Pace


def reference_start(Q: Floats) -> SGAState:
    """The start from an orthonormal Q, (D, K)."""
    return SGAState(Q.T, Pace(5.0))


def reference_step(state: SGAState, x: Floats, share: float) -> tuple[SGAState, Floats]:
    """One sample; the state that comes in is left alone."""
    y = state.U @ x
    alpha, pace = state.pace.step(x, y, share)
    Q, R = np.linalg.qr((state.U + alpha * np.outer(y, x)).T)
    return SGAState((Q * np.where(np.diag(R) < 0, -1.0, 1.0)).T, pace), y


def reference_basis(state: SGAState) -> Floats:
    """(D, K), orthonormal."""
    return np.asarray(state.U.T)


@kernel
def recur(H: Floats, shares: Floats, first: int, last: int, options: tuple[float, float], v: Floats, Z: Floats, Y: Floats) -> None:
    """Samples `first` … `last`−1 of a block, on small arrays only; see `outputs` for them."""
    K = Z.shape[0]
    done = np.empty(Z.shape[1])  # Σ_{i<k} (what the factor L takes of row i)
    for s in range(first, last):
        y, m = Y[s], K + s
        square = outputs(H, Z, s, y)
        alpha = step_size(options[0], options[1], shares[s], np.sqrt(H[s, m]) * np.sqrt(square) / K, v, 0)
        if square == 0.0 or alpha == 0.0:
            continue
        c = alpha * (2.0 + alpha * H[s, m])
        before = 1.0
        for i in range(m + 1):
            done[i] = 0.0
        for k in range(K):
            row, after = Z[k], before + c * y[k] * y[k]
            row[m] = alpha * y[k]
            shrink = np.sqrt(before / after)
            for i in range(m + 1):
                row[i] = shrink * (row[i] - y[k] * done[i])
            take = c * y[k] / (np.sqrt(after) * np.sqrt(before))
            for i in range(m + 1):
                done[i] += take * row[i]
            before = after


class SGA(GradientAlgorithm):
    """Stochastic gradient ascent with Gram–Schmidt: Oja's rule that finds the principal components themselves, in order.

    Parameters
    ----------
    K, D, U0, scale, variance, learning_rate, block_size, dtype
        As in `Oja`.
    """

    _recur = staticmethod(recur)

    def _straighten(self) -> None:
        L = cholesky(self._store.gram(), lower=True)
        self._store.turn(np.asarray(solve_triangular(L, np.eye(self.K), lower=True)))
