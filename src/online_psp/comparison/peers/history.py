"""History PCA (P. Yang, C.-J. Hsieh, J.-L. Wang, "History PCA: A New Algorithm for Streaming PCA", arXiv:1802.05447, 2018).

Power iterations on each new block together with what is remembered of all blocks before it. For block ``X_t`` of B rows::

    A_t = (t−1)/t Q_{t−1} Λ_{t−1} Q_{t−1}ᵀ + 1/t X_tᵀ X_t / B
    m times:  G = A_t Q;  Q ← qr(G)
    Q_t = Q,  Λ_t = diag(‖G_k‖)

====  =====  =====================================================
Q     (D,K)  orthonormal; a Gaussian's QR at first
Λ     (K,)   the sizes that the last power iteration gave the columns
====  =====  =====================================================

A_t is never formed. Where the last block is a shorter one the weights (t−1)/t and 1/t are those of the rows seen, which is the same for
equal blocks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from online_psp.engine.types import Array, Floats


class HistoryState(NamedTuple):
    """The iterate, with the number of rows behind it."""

    Q: Floats
    variances: Floats
    seen: int


def start(D: int, K: int, seed: int = 0) -> HistoryState:
    """No history yet, and a random basis."""
    gaussian = np.random.default_rng(seed).standard_normal((D, K))
    return HistoryState(np.linalg.qr(gaussian)[0], np.zeros(K), 0)


def step(state: HistoryState, X: Array, iterations: int) -> HistoryState:
    """Learn from a block of rows, (B, D), by m power iterations."""
    old, variances, seen = state
    total = seen + len(X)
    kept = old * (seen / total * variances)
    Q, G = old, old
    for _ in range(iterations):
        G = kept @ (old.T @ Q) + X.T @ (X @ Q) / total
        Q = np.linalg.qr(G)[0]
    return HistoryState(Q, np.sqrt(np.einsum("dk,dk->k", G, G)), total)


def history_pca(X: Array, K: int, block: int = 10, iterations: int = 1, seed: int = 0) -> Floats:
    """One pass over centred rows.

    Parameters
    ----------
    X : (N, D)
    K : int
    block : int
        B; the paper takes about 10.
    iterations : int
        m, power iterations on each block.

    Returns
    -------
    (D, K), orthonormal, in order of variance
    """
    state = start(X.shape[1], K, seed)
    for first in range(0, len(X), block):
        state = step(state, X[first : first + block], iterations)
    return state.Q
