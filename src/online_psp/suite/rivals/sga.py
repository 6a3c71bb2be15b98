"""SGA: stochastic gradient ascent with Gram–Schmidt (Oja and Karhunen 1985).

For sample ``x_t``, with a diagonal matrix Γ_t of gains::

    y = Uᵀ x_t
    U ← U + x_t yᵀ Γ_t
    U ← the Gram–Schmidt basis of its columns, in their order

The columns become the principal components, in order of variance.

E. Oja and J. Karhunen, "On stochastic approximation of the eigenvectors and eigenvalues of the expectation of a random matrix", J. Math.
Analysis and Applications 106, 1985.

Departures: the paper leaves the gains, of order 1/t, to the user. Here they are ``scale/(t v_k)``, v_k the average of ``y_k²``, and at most
``1/‖x‖²`` (see `gains`). The start is the thin QR basis of the first K samples.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from online_psp.engine.types import Floats
from online_psp.suite.rivals.rival import Rival, first_basis, orthonormal


class SGAState(NamedTuple):
    U: Floats
    """(D, K), orthonormal columns"""
    t: int
    v: Floats
    """(K,): averages of ``y_k²``"""


def start(X0: Floats, K: int) -> SGAState:
    return SGAState(first_basis(X0, K), 0, np.zeros(K))


def step(state: SGAState, X: Floats, *, scale: float = 3.0) -> SGAState:
    U, t, v = state
    for x in X:
        t += 1
        y = U.T @ x
        v = v + (y**2 - v) / t
        U = orthonormal(U + np.outer(x, y * gains(scale / t, v, x, y)))
    return SGAState(U, t, v)


def gains(share: float, v: Floats, x: Floats, y: Floats) -> Floats:
    """(K,): ``share/v_k``, so that weak components learn as quickly as strong ones; at most a step that fits the sample fully."""
    largest = max(x @ x, y @ y)
    return np.minimum(np.divide(share, v, out=np.zeros_like(v), where=v > 0.0), 1.0 / largest if largest > 0.0 else 0.0)


def basis(state: SGAState) -> Floats:
    return state.U


RIVAL = Rival("SGA", start, step, basis)
