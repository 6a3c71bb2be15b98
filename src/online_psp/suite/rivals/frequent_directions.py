"""Frequent Directions (Liberty 2013; Ghashami, Liberty, Phillips and Woodruff 2016): a sketch of ℓ rows, with a guarantee for any stream.

Rows are written below the sketch B, which has room for 2ℓ. When it is full, it is shrunk to fewer than ℓ::

    V diag(σ) Uᵀ = B,   δ = σ_ℓ²
    B ← diag(sqrt(max(σ² − δ, 0))) Uᵀ

The subspace is spanned by the leading K right singular vectors of B. For the rows A of *any* stream, in any order:
``0 ≤ ‖A v‖² − ‖B v‖² ≤ ‖A − A_k‖_F²/(ℓ − k)`` for every unit vector v and k < ℓ.

E. Liberty, "Simple and deterministic matrix sketching", KDD 2013; M. Ghashami, E. Liberty, J. M. Phillips, D. P. Woodruff, "Frequent
Directions: simple and deterministic matrix sketching", SIAM J. Computing 45, 2016. ℓ = 2K.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from online_psp.engine.types import Floats
from online_psp.suite.rivals.rival import Rival


class FrequentDirectionsState(NamedTuple):
    B: Floats
    """(< 2ℓ, D)"""
    K: int


def start(X0: Floats, K: int) -> FrequentDirectionsState:
    return FrequentDirectionsState(np.zeros((0, X0.shape[1])), K)


def step(state: FrequentDirectionsState, X: Floats, *, sketch: int | None = None) -> FrequentDirectionsState:
    B, K = state
    size = 2 * K if sketch is None else sketch
    while len(X):
        room = 2 * size - len(B)
        B, X = np.vstack([B, X[:room]]), X[room:]
        if len(B) == 2 * size:
            _, sigma, directions = np.linalg.svd(B, full_matrices=False)
            delta = sigma[size - 1] ** 2 if len(sigma) >= size else 0.0
            kept = np.sqrt(np.maximum(sigma**2 - delta, 0.0))
            B = (kept[:, np.newaxis] * directions)[kept > 0.0][: size - 1]
    return FrequentDirectionsState(B, K)


def basis(state: FrequentDirectionsState) -> Floats:
    B, K = state
    padded = np.vstack([B, np.zeros((max(0, K - len(B)), B.shape[1]))])
    return np.asarray(np.linalg.svd(padded, full_matrices=False)[2][:K].T)


RIVAL = Rival("Frequent Directions", start, step, basis)
