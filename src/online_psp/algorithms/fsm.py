"""Fast Similarity Matching (Giovannucci, Minden, Pehlevan, Chklovskii 2018).

For sample ``x_t``::

    y    = Minv W x_t
    W    ← (1 − α_t) W + α_t y x_tᵀ
    Minv ← Minv / (1 − β_t)
    z    = Minv y
    Minv ← Minv − β_t / (1 + β_t zᵀy) z zᵀ

====  =====  ==============================================================
W     (K,D)  feed-forward weights
Minv  (K,K)  inverse of the lateral weights M, by the Sherman–Morrison rule
y     (K,)   output; the rows of ``Minv W`` span the subspace
====  =====  ==============================================================

Start: ``Minv = 100 I`` and ``W = Qᵀ/100`` with Q the thin QR basis of the first K samples. Step sizes ``α_t = β_t = 2/(γ t + 5)``.

Departures from the paper, none of which changes an iterate beyond rounding: M is kept beside Minv, and Minv is recomputed from it from time
to time, because the published recursion alone loses accuracy on long streams; directions that no sample excites are kept from vanishing
(`SimilarityMatching._lifted`); and the state after the first K samples, which lie in the span of the start, is computed in closed form and
not by the recursion (`SimilarityMatching._learn_first`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from online_psp.algorithms.base import BlockSize
from online_psp.algorithms.similarity import LITTLE, SimilarityMatching, inverse, inverse_of
from online_psp.engine.checks import check_count, check_start
from online_psp.engine.compiler import kernel
from online_psp.engine.types import Floats, Rate


class FSMState(NamedTuple):
    """The iterate, in the paper's letters."""

    W: Floats
    Minv: Floats


def reference_start(Q: Floats) -> FSMState:
    """The published start from an orthonormal Q, (D, K)."""
    return FSMState(W=Q.T / 100.0, Minv=100.0 * np.eye(Q.shape[1]))


def reference_step(state: FSMState, x: Floats, alpha: float, beta: float) -> tuple[FSMState, Floats]:
    """One sample, as published; `state` itself does not change."""
    W, Minv = state
    y = Minv @ (W @ x)
    W = (1.0 - alpha) * W + alpha * np.outer(y, x)
    Minv = Minv / (1.0 - beta)
    z = Minv @ y
    Minv = Minv - beta / (1.0 + beta * (z @ y)) * np.outer(z, z)
    return FSMState(W, Minv), y


def reference_basis(state: FSMState) -> Floats:
    """(D, K), orthonormal."""
    return np.linalg.qr((state.Minv @ state.W).T)[0]


@kernel
def recur(P: Floats, G: Floats, steps: Floats, first: int, last: int, Minv: Floats, Y: Floats) -> float:
    """Samples `first` … `last`−1 of a block, on small arrays only.

    Before sample s the weights are ``a W + Σ_{j<s} w_j y_j x_jᵀ``, where W are those at the start of the block.

    Parameters
    ----------
    P, G : (last − first, K), (last − first, ≥ last)
        Products of these samples with W, and with the samples of the block before them.
    steps : (2, ≥ last)
        α and β of the samples of the block.
    Minv : (K, K), changed in place
    Y : (≥ last, K)
        Outputs; those of the samples before `first` are there.

    Returns
    -------
    left : float
        The share of the weights at the start of the block, W or M, that is left.
    """
    K = P.shape[1]
    h, z, w, a = np.empty(K), np.empty(K), np.empty(last), 1.0
    left = 1.0
    for s in range(last):
        alpha, beta, y = steps[0, s], steps[1, s], Y[s]
        if s >= first:
            # h = W x
            for k in range(K):
                h[k] = a * P[s - first, k]
            for j in range(s):
                c = w[j] * G[s - first, j]
                for k in range(K):
                    h[k] += c * Y[j, k]
            # y = Minv W x
            for i in range(K):
                total = 0.0
                for k in range(K):
                    total += Minv[i, k] * h[k]
                y[i] = total
            # Minv ← Minv/(1 − β),  z = Minv y,  Minv ← Minv − β/(1 + β zᵀy) z zᵀ
            zy = 0.0
            for i in range(K):
                total = 0.0
                for k in range(K):
                    total += Minv[i, k] * y[k]
                z[i] = total / (1.0 - beta)
                zy += z[i] * y[i]
            for i in range(K):
                c = beta / (1.0 + beta * zy) * z[i]
                for k in range(K):
                    Minv[i, k] = Minv[i, k] / (1.0 - beta) - c * z[k]
        # W ← (1 − α) W + α y xᵀ
        a *= 1.0 - alpha
        left *= 1.0 - max(alpha, beta)
        for j in range(s):
            w[j] *= 1.0 - alpha
        w[s] = alpha
    return left


class FSM(SimilarityMatching):
    """Fast Similarity Matching: the top-K principal subspace of a stream, in O(DK) per sample.

    Parameters
    ----------
    K : int
        Dimension of the subspace.
    D : int, optional
        Number of features; learned from the first sample if left out.
    W0 : (K, D), optional
        Start for the weights. By default the algorithm starts from the first K samples.
    Minv0 : (K, K), optional
        Start for the inverse lateral weights, symmetric and positive definite; ``100 I`` by default.
    gamma : float
        Step size ``2/(gamma t + 5)``. Small values forget faster.
    learning_rate : callable, optional
        ``t → α_t`` in [0, 1), t from 1; in place of `gamma`.
    beta : callable, optional
        ``t → β_t``, step sizes for the lateral weights; those of the weights by default.
    block_size : int or "auto"
        Samples compressed at a time. It changes speed, not results.
    dtype : float64 or float32
        Precision of the weights; the K×K arrays are always float64.

    Examples
    --------
    >>> import numpy as np
    >>> from online_psp import FSM
    >>> X = np.random.default_rng(0).standard_normal((500, 20)) * np.r_[5.0, 4.0, np.full(18, 0.1)]
    >>> fsm = FSM(2, 20)
    >>> for x in X:
    ...     y = fsm.fit_next(x)
    >>> fsm.get_components().shape
    (20, 2)
    """

    def __init__(
        self,
        K: int,
        D: int | None = None,
        *,
        W0: ArrayLike | None = None,
        Minv0: ArrayLike | None = None,
        gamma: float = 2.0,
        learning_rate: Rate | None = None,
        beta: Rate | None = None,
        block_size: BlockSize = "auto",
        dtype: DTypeLike = np.float64,
    ) -> None:
        lateral = None if Minv0 is None else inverse(check_start(Minv0, "Minv0", (check_count(K, "K"), K)))
        super().__init__(K, D, (W0, lateral), gamma, (learning_rate, beta), block_size, dtype)

    def _recur(self, first: int, last: int) -> bool:
        state = self._state
        return recur(self._P, self._G, state.steps, first, last, state.solver, state.Y) < LITTLE

    def _solver_of(self, R: Floats) -> Floats:
        return inverse_of(R)

    @property
    def Minv(self) -> Floats:
        """(K, K) inverse of the lateral weights."""
        with self._lock:
            return inverse(self._given["M"]) if self._state is None else self._settled()._state.solver.copy()
