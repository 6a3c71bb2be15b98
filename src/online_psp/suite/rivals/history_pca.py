"""History PCA (Yang, Hsieh and Wang 2018): power iterations on each block, together with a summary of all blocks before it.

For block ``X_t`` of B rows::

    A = (t−1)/t Q Λ Qᵀ + 1/t X_tᵀ X_t / B
    m times:  G = A Q;  Q ← qr(G)
    Λ = diag(‖G_k‖)

P. Yang, C.-J. Hsieh, J.-L. Wang, "History PCA: A New Algorithm for Streaming PCA", arXiv:1802.05447, 2018.

Departures: blocks have max(10, K) rows, where the paper takes about 10: with fewer than K in the first, rounding would decide some columns
of Q. The weights (t−1)/t and 1/t are counted in rows, so that a shorter last block weighs less. The start is the thin QR basis of the first
K samples, not that of a Gaussian matrix.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from online_psp.engine.types import Floats
from online_psp.suite.rivals.rival import Rival, first_basis, orthonormal


class HistoryPCAState(NamedTuple):
    Q: Floats
    """(D, K), orthonormal columns"""
    variances: Floats
    """(K,): Λ"""
    n: int
    """Rows seen."""


def start(X0: Floats, K: int) -> HistoryPCAState:
    return HistoryPCAState(first_basis(X0, K), np.zeros(K), 0)


def step(state: HistoryPCAState, X: Floats, *, iterations: int = 1) -> HistoryPCAState:
    old, variances, n = state
    total = n + len(X)
    Q = old
    for _ in range(iterations):
        G = n / total * (old * variances) @ (old.T @ Q) + X.T @ (X @ Q) / total
        Q = orthonormal(G)
    return HistoryPCAState(Q, np.linalg.norm(G, axis=0), total)


def basis(state: HistoryPCAState) -> Floats:
    return state.Q


RIVAL = Rival("History PCA", start, step, basis, block=lambda K: max(10, K))
