"""GHA, the generalized Hebbian algorithm (Sanger 1989).

For sample ``x_t``, with UT[·] the upper triangle of a matrix, the diagonal included::

    y = Uᵀ x_t
    U ← U + α_t (x_t yᵀ − U UT[y yᵀ])

The columns become the principal components, in order of variance.

T. D. Sanger, "Optimal unsupervised learning in a single-layer linear feedforward neural network", Neural Networks 2, 1989.

Departures: the paper leaves α_t to the user. Here every column has its own, ``scale/(t v_k)``, v_k the average of ``y_k²``. The published
update keeps U near orthonormal only while steps are small, and diverges if they are not, so they are at most ``1/max(‖x‖², ‖y‖²)`` (see
`sga.gains`). The start is the thin QR basis of the first K samples.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from online_psp.engine.types import Floats
from online_psp.suite.rivals.rival import Rival, first_basis, orthonormal
from online_psp.suite.rivals.sga import gains


class GHAState(NamedTuple):
    U: Floats
    """(D, K)"""
    t: int
    v: Floats
    """(K,): averages of ``y_k²``"""


def start(X0: Floats, K: int) -> GHAState:
    return GHAState(first_basis(X0, K), 0, np.zeros(K))


def step(state: GHAState, X: Floats, *, scale: float = 3.0) -> GHAState:
    U, t, v = state
    for x in X:
        t += 1
        y = U.T @ x
        v = v + (y**2 - v) / t
        U = U + gains(scale / t, v, x, y) * (np.outer(x, y) - U @ np.triu(np.outer(y, y)))
    return GHAState(U, t, v)


def basis(state: GHAState) -> Floats:
    return orthonormal(state.U)


RIVAL = Rival("GHA", start, step, basis)
