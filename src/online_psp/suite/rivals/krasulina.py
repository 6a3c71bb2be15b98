"""Krasulina's rule (Krasulina 1969), for several components (Tang 2019).

For sample ``x_t``::

    y = Uᵀ x_t
    r = x_t − U (Uᵀ U)⁻¹ y
    U ← U + α_t r yᵀ

T. P. Krasulina, "The method of stochastic approximation for the determination of the least eigenvalue of a symmetrical matrix", USSR
Computational Mathematics and Mathematical Physics 9, 1969; C. Tang, "Exponentially convergent stochastic k-PCA without variance reduction",
NeurIPS 2019.

Departures: ``α_t = scale/(t v)``, v the average of ``‖x‖ ‖y‖/K``, so that steps do not depend on units. The columns are made orthonormal
after every sample: as ``U ← (I + α r xᵀ) U``, that changes no span. The start is the thin QR basis of the first K samples.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from online_psp.engine.types import Floats
from online_psp.suite.rivals.rival import Rival, first_basis, orthonormal


class KrasulinaState(NamedTuple):
    U: Floats
    """(D, K), orthonormal columns"""
    t: int
    v: float
    """Average size of a gradient."""


def start(X0: Floats, K: int) -> KrasulinaState:
    return KrasulinaState(first_basis(X0, K), 0, 0.0)


def step(state: KrasulinaState, X: Floats, *, scale: float = 5.0) -> KrasulinaState:
    U, t, v = state
    for x in X:
        t += 1
        y = U.T @ x
        r = x - U @ y
        gradient = float(np.linalg.norm(x) * np.linalg.norm(y)) / len(y)
        v += (gradient - v) / t
        if gradient > 0.0:
            U = orthonormal(U + scale / (t * v) * np.outer(r, y))
    return KrasulinaState(U, t, v)


def basis(state: KrasulinaState) -> Floats:
    return state.U


RIVAL = Rival("Krasulina", start, step, basis)
