"""Similarity Matching (Pehlevan, Hu, Chklovskii 2015, as in Giovannucci et al. 2018).

For sample ``x_t``::

    y = M⁻¹ W x_t
    W ← (1 − α_t) W + α_t y x_tᵀ
    M ← (1 − β_t) M + β_t y yᵀ

==  =====  ===========================================================
W   (K,D)  feed-forward weights
M   (K,K)  lateral weights; at convergence the covariance of the output
y   (K,)   output; the rows of ``M⁻¹ W`` span the subspace
==  =====  ===========================================================

Start: ``M = I/100`` and ``W = Qᵀ/100`` with Q the thin QR basis of the first K samples. Step sizes ``α_t = β_t = 2/(γ t + 5)``.

Departure from the paper, which changes no iterate: M is not factored anew at every sample; its Cholesky factor is updated, in O(K²).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from online_psp.algorithms.base import BlockSize
from online_psp.algorithms.similarity import LITTLE, SimilarityMatching
from online_psp.engine.checks import check_count, check_start
from online_psp.engine.compiler import kernel
from online_psp.engine.types import Floats, Rate


class SMState(NamedTuple):
    """The iterate, in the paper's letters."""

    W: Floats
    M: Floats


def reference_start(Q: Floats) -> SMState:
    """The published start from an orthonormal Q, (D, K)."""
    return SMState(W=Q.T / 100.0, M=np.eye(Q.shape[1]) / 100.0)


def reference_step(state: SMState, x: Floats, alpha: float, beta: float) -> tuple[SMState, Floats]:
    """One sample, as published; `state` itself does not change."""
    W, M = state
    y = np.asarray(np.linalg.solve(M, W @ x), dtype=np.float64)
    W = (1.0 - alpha) * W + alpha * np.outer(y, x)
    M = (1.0 - beta) * M + beta * np.outer(y, y)
    return SMState(W, M), y


def reference_basis(state: SMState) -> Floats:
    """(D, K), orthonormal."""
    return np.linalg.qr(np.linalg.solve(state.M, state.W).T)[0]


@kernel
def _solve_and_update(y: Floats, beta: float, R: Floats, v: Floats) -> None:
    """``y ← M⁻¹ y`` and ``M ← (1 − β) M + β y yᵀ`` for ``M = Rᵀ R``; v is work space."""
    K = R.shape[0]
    for i in range(K):  # Rᵀ q = W x
        y[i] /= R[i, i]
        c = y[i]
        for k in range(i + 1, K):
            y[k] -= c * R[i, k]
    for i in range(K - 1, -1, -1):  # R y = q
        c = y[i]
        for k in range(i + 1, K):
            c -= R[i, k] * y[k]
        y[i] = c / R[i, i]
    # Rᵀ R ← (1 − β) Rᵀ R + β y yᵀ by plane rotations
    keep, root = np.sqrt(1.0 - beta), np.sqrt(beta)
    for k in range(K):
        v[k] = root * y[k]
    for i in range(K):
        old = keep * R[i, i]
        radius = np.sqrt(old * old + v[i] * v[i])
        cosine, sine = old / radius, v[i] / radius
        R[i, i] = radius
        for k in range(i + 1, K):
            upper = keep * R[i, k]
            R[i, k] = cosine * upper + sine * v[k]
            v[k] = cosine * v[k] - sine * upper


@kernel
def recur(P: Floats, G: Floats, steps: Floats, first: int, last: int, R: Floats, Y: Floats) -> float:
    """Samples `first` … `last`−1 of a block; as `fsm.recur`, but with ``M = Rᵀ R``, R upper triangular, in place of Minv."""
    K = P.shape[1]
    v, w, a = np.empty(K), np.empty(last), 1.0
    left = 1.0
    for s in range(last):
        alpha, y = steps[0, s], Y[s]
        if s >= first:
            # y = W x
            for k in range(K):
                y[k] = a * P[s - first, k]
            for j in range(s):
                c = w[j] * G[s - first, j]
                for k in range(K):
                    y[k] += c * Y[j, k]
            # y ← M⁻¹ y,  M ← (1 − β) M + β y yᵀ
            _solve_and_update(y, steps[1, s], R, v)
        # W ← (1 − α) W + α y xᵀ
        a *= 1.0 - alpha
        left *= 1.0 - max(alpha, steps[1, s])
        for j in range(s):
            w[j] *= 1.0 - alpha
        w[s] = alpha
    return left


class SM(SimilarityMatching):
    """Similarity Matching: the top-K principal subspace of a stream, with a solve against the lateral weights M per sample.

    Parameters
    ----------
    K, D, W0, gamma, learning_rate, beta, block_size, dtype
        As in `FSM`.
    M0 : (K, K), optional
        Start for the lateral weights, symmetric and positive definite; ``I/100`` by default.
    """

    def __init__(
        self,
        K: int,
        D: int | None = None,
        *,
        W0: ArrayLike | None = None,
        M0: ArrayLike | None = None,
        gamma: float = 2.0,
        learning_rate: Rate | None = None,
        beta: Rate | None = None,
        block_size: BlockSize = "auto",
        dtype: DTypeLike = np.float64,
    ) -> None:
        lateral = None if M0 is None else check_start(M0, "M0", (check_count(K, "K"), K))
        super().__init__(K, D, (W0, lateral), gamma, (learning_rate, beta), block_size, dtype)

    def _recur(self, first: int, last: int) -> bool:
        state = self._state
        return recur(self._P, self._G, state.steps, first, last, state.solver, state.Y) < LITTLE

    def _solver_of(self, R: Floats) -> Floats:
        return np.ascontiguousarray(np.triu(R))

    @property
    def M(self) -> Floats:
        """(K, K) lateral weights."""
        with self._lock:
            return (self._given["M"] if self._state is None else self._settled()._state.M).copy()
