"""AdaOja (A. Henriksen, R. Ward, "AdaOja: Adaptive Learning Rates for Streaming PCA", arXiv:1905.12115, 2019).

Oja's method with a step size for each column that follows the size of its own gradients, as in AdaGrad. For block ``X_t`` of B rows::

    G_t    = X_tᵀ (X_t Q_{t−1}) / B
    b_t,k  = sqrt(b_{t−1,k}² + ‖G_t,k‖²)        for every column k
    Q_t    = qr(Q_{t−1} + G_t diag(1/b_t))

====  =====  ==================================
Q     (D,K)  orthonormal; a Gaussian's QR at first
b     (K,)   inverse step sizes; 1e-5 at first
====  =====  ==================================

The columns come out in order of variance, as they do in any orthogonal iteration, so that more of them can be learned than are wanted.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from online_psp.engine.types import Array, Floats


class AdaOjaState(NamedTuple):
    """The iterate, in the paper's letters."""

    Q: Floats
    b: Floats


def start(D: int, K: int, b0: float = 1e-5, seed: int = 0) -> AdaOjaState:
    """The published start."""
    gaussian = np.random.default_rng(seed).standard_normal((D, K))
    return AdaOjaState(np.linalg.qr(gaussian)[0], np.full(K, b0))


def step(state: AdaOjaState, X: Array) -> AdaOjaState:
    """Learn from a block of rows, (B, D)."""
    Q, b = state
    G = X.T @ (X @ Q) / len(X)
    b = np.sqrt(b * b + np.einsum("dk,dk->k", G, G))
    return AdaOjaState(np.linalg.qr(Q + G / b)[0], b)


def adaoja(X: Array, K: int, block: int = 10, seed: int = 0) -> Floats:
    """One pass over centred rows.

    Parameters
    ----------
    X : (N, D)
    K : int
    block : int
        B; the paper takes 10.

    Returns
    -------
    (D, K), orthonormal
    """
    state = start(X.shape[1], K, seed=seed)
    for first in range(0, len(X), block):
        state = step(state, X[first : first + block])
    return state.Q
