"""Oja's subspace rule, with the basis kept orthonormal (Oja 1982; Oja and Karhunen 1985).

For sample ``x_t``::

    y = U x_t
    U ← U + α_t y x_tᵀ
    U ← (U Uᵀ)^(-1/2) U

==  =====  ==========================================================
U   (K,D)  orthonormal rows that span the subspace
y   (K,)   output: coordinates in the rows before the step
==  =====  ==========================================================

Start: the thin QR basis of the first K samples. Step sizes ``α_t = scale/(t v_t)``, v the average size of a gradient: see `_gradient.py`.
Oja's analysis asks for ``α_t = c/t`` with c about one over the gap between the K-th variance and the next. The gap is not known:
``scale=5`` has the least error over the sets of `psp bench`; wide spectra need more, data with a clear gap less.

E. Oja, "A simplified neuron model as a principal component analyzer", J. Math. Biology 15, 1982; E. Oja and J. Karhunen, "On stochastic
approximation of the eigenvectors and eigenvalues of the expectation of a random matrix", J. Math. Analysis and Applications 106, 1985.

Departure from the usual form: the basis is made orthonormal by the polar factor and not by QR (that is `SGA`), which changes its rows but
not their span. After one step ``U Uᵀ = I + c y yᵀ`` with ``c = 2α + α² ‖x‖²``, so that the polar factor costs O(DK), and the rows turn as
little as possible. The covariance of the outputs is averaged as well, for the variances of the principal components.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from online_psp.algorithms._gradient import GradientAlgorithm, Pace, outputs, step_size
from online_psp.engine.compiler import kernel
from online_psp.engine.types import Floats


class OjaState(NamedTuple):
    """The iterate, and the quantities that set its steps."""

    U: Floats
    pace: Pace


def reference_start(Q: Floats) -> OjaState:
    """The start from an orthonormal Q, (D, K)."""
    return OjaState(Q.T, Pace(5.0))


def reference_step(state: OjaState, x: Floats, share: float) -> tuple[OjaState, Floats]:
    """One sample; `state` itself does not change."""
    y = state.U @ x
    alpha, pace = state.pace.step(x, y, share)
    U = state.U + alpha * np.outer(y, x)
    values, vectors = np.linalg.eigh(U @ U.T)
    return OjaState((vectors / np.sqrt(values)) @ vectors.T @ U, pace), y


def reference_basis(state: OjaState) -> Floats:
    """(D, K), orthonormal."""
    return np.linalg.qr(state.U.T)[0]


@kernel
def recur(H: Floats, shares: Floats, first: int, last: int, options: tuple[float, float], v: Floats, Z: Floats, Y: Floats) -> None:
    """Learn from samples `first` … `last`−1 of a block, on small arrays only; see `outputs` for the arrays."""
    K = Z.shape[0]
    through = np.empty(Z.shape[1])
    for s in range(first, last):
        y, m = Y[s], K + s
        square = outputs(H, Z, s, y)
        alpha = step_size(options[0], options[1], shares[s], np.sqrt(H[s, m]) * np.sqrt(square) / K, v, 0)
        if square == 0.0 or alpha == 0.0:
            continue
        growth = alpha * (2.0 + alpha * H[s, m]) * square
        f = (1.0 / np.sqrt(1.0 + growth) - 1.0) / square
        for i in range(m):
            through[i] = 0.0
        for k in range(K):
            for i in range(m):
                through[i] += y[k] * Z[k, i]
        for k in range(K):
            for i in range(m):
                Z[k, i] += f * y[k] * through[i]
            Z[k, m] = alpha * (1.0 + f * square) * y[k]


class Oja(GradientAlgorithm):
    """Oja's subspace rule: stochastic gradient ascent on the variance explained, with steps that fall like 1/t.

    Parameters
    ----------
    K, D, block_size, dtype
        As in `FSM`.
    U0 : (K, D), optional
        Start for the basis; made orthonormal if it is not. By default the algorithm starts from the first K samples.
    scale : float, optional
        Steps are ``scale/t`` divided by the average size of a gradient; 5 by default.
    variance : float
        Number to divide by instead: with ``variance=1`` steps are ``scale/t`` itself. 0 means the running average.
    learning_rate : callable, optional
        ``t → η_t`` in [0, 1], t from 1, in place of ``1/t``. With a constant, the basis follows a stream that changes.
    """

    _recur = staticmethod(recur)

    def _straighten(self) -> None:
        values, vectors = np.linalg.eigh(self._store.gram())
        self._store.turn(np.asarray((vectors / np.sqrt(values)) @ vectors.T, dtype=np.float64))
