"""Oja's subspace rule (Oja 1982; Oja and Karhunen 1985).

For sample ``x_t``::

    y = Uᵀ x_t
    U ← U + α_t x_t yᵀ
    U ← U (Uᵀ U)^(-1/2)

E. Oja, "A simplified neuron model as a principal component analyzer", J. Math. Biology 15, 1982; E. Oja and J. Karhunen, "On stochastic
approximation of the eigenvectors and eigenvalues of the expectation of a random matrix", J. Math. Analysis and Applications 106, 1985.

Departures: the papers leave ``α_t = c/t`` to the user. Here it is ``scale/(t v)``, v the average of ``‖x‖ ‖y‖/K``, the size of a gradient,
so that steps do not depend on units. The start is the thin QR basis of the first K samples.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from online_psp.engine.types import Floats
from online_psp.suite.rivals.rival import Rival, first_basis


class OjaState(NamedTuple):
    U: Floats
    """(D, K), orthonormal columns"""
    t: int
    v: float
    """Average size of a gradient."""


def start(X0: Floats, K: int) -> OjaState:
    return OjaState(first_basis(X0, K), 0, 0.0)


def step(state: OjaState, X: Floats, *, scale: float = 5.0) -> OjaState:
    U, t, v = state
    for x in X:
        t += 1
        y = U.T @ x
        gradient = float(np.linalg.norm(x) * np.linalg.norm(y)) / len(y)
        v += (gradient - v) / t
        if gradient > 0.0:
            U = U + scale / (t * v) * np.outer(x, y)
            values, vectors = np.linalg.eigh(U.T @ U)
            U = U @ (vectors / np.sqrt(values)) @ vectors.T
    return OjaState(U, t, v)


def basis(state: OjaState) -> Floats:
    return state.U


RIVAL = Rival("Oja", start, step, basis)
