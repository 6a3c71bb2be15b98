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

from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike
from scipy.linalg import lapack

from online_psp.algorithms._provided import BlockSize
from online_psp.algorithms._similarity import Kernels, Schedule, SimilarityMatching
from online_psp.algorithms._similarity_blocks import (
    Ends,
    Learned,
    Scale,
    Watch,
    Work,
    compress_block,
    expand_block,
    fade,
    hand_out,
    is_due,
    open_input,
)
from online_psp.engine.checks import check_start
from online_psp.engine.compiler import kernel
from online_psp.engine.symmetric import largest_of
from online_psp.engine.types import Array, Floats, Rate


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
def recur(P: Floats, G: Floats, alphas: Floats, betas: Floats, a: float, w: Floats, Y: Floats, R: Floats) -> float:
    """The samples of a block; as `fsm.recur`, but with ``M = Rᵀ R``, R upper triangular, in place of Minv."""
    K = P.shape[1]
    v = np.empty(K)
    for s in range(len(alphas)):
        y = Y[s]
        for k in range(K):
            y[k] = a * P[s, k]
        for j in range(s):
            c = w[j] * G[s, j]
            for k in range(K):
                y[k] += c * Y[j, k]
        _solve_and_update(y, betas[s], R, v)
        a = fade(s, alphas[s], a, w)
    return a


@kernel
def learn(
    X: Array, ends: Ends, alphas: Floats, betas: Floats, B: Array, scale: Scale, M: Floats, R: Floats, watch: Watch, work: Work, Y: Array
) -> Learned:
    """Learn from several blocks, until the guard has to act; as `fsm.learn`."""
    s = scale.s
    first, keep, level, trace = 0, 1.0, 0.0, 0.0
    for last in ends:
        compress_block(X, first, last, B, work)
        s = recur(work.P, work.G, alphas[first:last], betas[first:last], s, work.w, work.Y, R)
        trace, kept, s = expand_block(betas[first:last], B, Scale(s, scale.least), M, work)
        hand_out(work.Y, first, last, Y)
        first, keep, level = last, keep * kept, max(level, trace)
        if is_due(watch, first, keep, level, trace, trace / np.diag(R).min() ** 2, len(M)):
            break
    return first, s, keep, level, trace


@kernel
def recur_open(
    stack: Array, row: Array, n: int, s: float, a: float, w: Floats, alphas: Floats, betas: Floats, Y: Floats, R: Floats, out: Array
) -> float:
    """Learn from sample n of an open block; as `fsm.recur_open`."""
    K = out.shape[0]
    v = np.empty(K)
    if not open_input(stack, row, n, s, a, w, Y, v):
        return -1.0
    y = Y[n]
    for k in range(K):
        y[k] = v[k]
    _solve_and_update(y, betas[n], R, v)
    for k in range(K):
        out[k] = y[k]
    return fade(n, alphas[n], a, w)


class SM(SimilarityMatching):
    """Similarity Matching: the top-K principal subspace of a stream, with a solve against the lateral weights M per sample.

    Parameters
    ----------
    K, D, W0, gamma, learning_rate, beta, block_size, dtype
        As in `FSM`.
    M0 : (K, K), optional
        Start for the lateral weights, symmetric and positive definite; ``I/100`` by default.
    """

    _kernels = Kernels(recur, recur_open, learn)

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
        if W0 is not None and D is None:
            D = np.shape(W0)[-1] if np.ndim(W0) else None
        super().__init__(K, D, block_size, dtype)
        lateral = None if M0 is None else check_start(M0, "M0", (self.K, self.K))
        self._set_up(Schedule(gamma, learning_rate, beta), W0, lateral)

    @classmethod
    def from_directions(cls, components: Array, variances: Floats, *, block_size: BlockSize, dtype: Any) -> Self:
        variances = cls.positive(variances, dtype)
        W, M = cls._fixed_point(components, variances)
        return cls(*components.shape, W0=W, M0=M, block_size=block_size, dtype=dtype)

    @property
    def M(self) -> Floats:
        """(K, K) lateral weights."""
        with self._lock:
            return self._settled()._M.copy()

    def _restore_solver(self) -> None:
        factor, failed = lapack.dpotrf(self._M)
        if failed:
            self._lift_unexcited()
            factor = lapack.dpotrf(self._M)[0]
        self._solver = np.ascontiguousarray(np.triu(factor))
        self._since_restore, self._kept_since_restore = 0, 1.0

    def _condition(self, trace: float, closer: bool) -> float:
        return (largest_of(self._M) if closer else trace) / float(np.diag(self._solver).min()) ** 2
