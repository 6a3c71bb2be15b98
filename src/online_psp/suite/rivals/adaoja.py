"""AdaOja (Henriksen and Ward 2019): Oja's method, with a step size for each column that adapts to its gradients, as in AdaGrad.

For block ``X_t`` of B rows::

    G     = X_tᵀ (X_t Q) / B
    b_k²  ← b_k² + ‖G_k‖²        for every column k
    Q     ← qr(Q + G diag(1/b))

A. Henriksen, R. Ward, "AdaOja: Adaptive Learning Rates for Streaming PCA", arXiv:1905.12115, 2019. B = 10 as there.

Departures: ``b = 0`` at the start, not 1e-5, so that results do not depend on units. The start is the thin QR basis of the first K samples,
not that of a Gaussian matrix.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from online_psp.engine.types import Floats
from online_psp.suite.rivals.rival import Rival, first_basis, orthonormal


class AdaOjaState(NamedTuple):
    Q: Floats
    """(D, K), orthonormal columns"""
    squares: Floats
    """(K,): b²"""


def start(X0: Floats, K: int) -> AdaOjaState:
    return AdaOjaState(first_basis(X0, K), np.zeros(K))


def step(state: AdaOjaState, X: Floats) -> AdaOjaState:
    Q, squares = state
    G = X.T @ (X @ Q) / len(X)
    squares = squares + np.sum(G**2, axis=0)
    rate = np.divide(1.0, np.sqrt(squares), out=np.zeros_like(squares), where=squares > 0.0)
    return AdaOjaState(orthonormal(Q + G * rate), squares)


def basis(state: AdaOjaState) -> Floats:
    return state.Q


RIVAL = Rival("AdaOja", start, step, basis, block=lambda K: 10)
