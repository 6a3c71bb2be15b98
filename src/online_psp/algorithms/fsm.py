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
(`SimilarityMatching._lift_unexcited`); and the state after the first K samples, which lie in the span of the start, is computed in closed
form and not by the recursion (`SimilarityMatching._learn_within`).
"""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from online_psp.algorithms._provided import BlockSize
from online_psp.algorithms._similarity import Kernels, Schedule, SimilarityMatching, inverse
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
from online_psp.engine.symmetric import largest_of, norm_of, symmetric_product
from online_psp.engine.tiles import add_matrix_product, times_symmetric
from online_psp.engine.types import Array, Floats, Rate
from online_psp.engine.vectors import add_combination, row_products

_CHUNK = 32


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
def recur(P: Floats, G: Floats, alphas: Floats, betas: Floats, a: float, w: Floats, Y: Floats, Minv: Floats) -> float:
    """The samples of a block, on small arrays only.

    Before sample s the weights are ``a W + Σ_{j<s} w_j y_j x_jᵀ``, where W are those at the start of the block. So they map x_s to
    ``a P_s + Σ w_j G_sj y_j``.

    Within a chunk Minv is kept as ``f (N − Σ κ_j z_j z_jᵀ)`` with N fixed, so that a sample costs one product with a K×K matrix instead of
    three: N is applied to all inputs of the chunk at once, and the rank-one terms are added to N together when the chunk ends.

    Parameters
    ----------
    P : (≥ n, K)
    G : (≥ n, ≥ n), lower triangle
    alphas, betas : (n,)
    a, w, Y : float, (≥ n,), (≥ n, K)
        `a` before the block; the new one is returned. w and Y are filled.
    Minv : (K, K), changed in place
    """
    K, last = P.shape[1], len(alphas)
    for start in range(0, last, _CHUNK):
        stop = min(start + _CHUNK, last)
        n = stop - start
        inputs, through, Z, NY, kappa = np.empty((n, K)), np.empty((n, K)), np.empty((n, K)), np.empty((n, K)), np.empty(n)
        c = np.empty(n)
        for i in range(n):
            for k in range(K):
                inputs[i, k] = a * P[start + i, k]
        if start > 0:
            shares = np.empty((n, start))
            for i in range(n):
                for j in range(start):
                    shares[i, j] = G[start + i, j] * w[j]
            add_matrix_product(inputs, shares, Y[:start])
        times_symmetric(inputs, Minv, through)
        f, fade = 1.0, 1.0
        for i in range(n):
            s = start + i
            alpha, beta = alphas[s], betas[s]
            h, Nh, y, z = inputs[i], through[i], Y[s], Z[i]
            for k in range(K):
                h[k] *= fade
                Nh[k] *= fade
            for j in range(i):
                c[j] = w[start + j] * G[s, start + j]
            add_combination(c, Y[start:], i, h)
            add_combination(c, NY, i, Nh)
            row_products(Z, i, h, c)
            for j in range(i):
                c[j] *= -kappa[j]
            add_combination(c, Z, i, Nh)
            for k in range(K):
                y[k] = f * Nh[k]
            symmetric_product(Minv, y, NY[i])
            row_products(Z, i, y, c)
            for j in range(i):
                c[j] *= -kappa[j]
            for k in range(K):
                z[k] = NY[i, k]
            add_combination(c, Z, i, z)
            f /= 1.0 - beta
            for k in range(K):
                z[k] *= f
            zy = 0.0
            for k in range(K):
                zy += z[k] * y[k]
            kappa[i] = beta / (1.0 + beta * zy) / f
            fade *= 1.0 - alpha
            for j in range(i):
                w[start + j] *= 1.0 - alpha
            w[s] = alpha
        for j in range(start):
            w[j] *= fade
        a *= fade
        less = np.empty((K, n))
        for i in range(n):
            for k in range(K):
                less[k, i] = -kappa[i] * Z[i, k]
        add_matrix_product(Minv, less, Z)
        for k in range(K):
            for j in range(K):
                Minv[k, j] *= f
    return a


@kernel
def learn(
    X: Array, ends: Ends, alphas: Floats, betas: Floats, B: Array, scale: Scale, M: Floats, Minv: Floats, watch: Watch, work: Work, Y: Array
) -> Learned:
    """Learn from several blocks, until the guard has to act.

    Parameters
    ----------
    X : (N, D)
    ends : (m,)
        Where the blocks end.
    alphas, betas : (N,)
    B, scale : (K, D), changed in place
        The weights are s times B.
    M, Minv : (K, K), changed in place
    work
        Work space for the largest block.
    Y : (N, K), filled
    """
    s = scale.s
    first, keep, level, trace = 0, 1.0, 0.0, 0.0
    for last in ends:
        compress_block(X, first, last, B, work)
        s = recur(work.P, work.G, alphas[first:last], betas[first:last], s, work.w, work.Y, Minv)
        trace, kept, s = expand_block(betas[first:last], B, Scale(s, scale.least), M, work)
        hand_out(work.Y, first, last, Y)
        first, keep, level = last, keep * kept, max(level, trace)
        if is_due(watch, first, keep, level, trace, norm_of(M) * norm_of(Minv), len(M)):
            break
    return first, s, keep, level, trace


@kernel
def recur_open(
    stack: Array, row: Array, n: int, s: float, a: float, w: Floats, alphas: Floats, betas: Floats, Y: Floats, Minv: Floats, out: Array
) -> float:
    """Learn from sample n of an open block: as `recur`, for one sample, computing its inner products as well.

    Parameters
    ----------
    stack : (K + capacity, D)
        The sample becomes row K + n.
    row : (D,)
    s : float
        Factor of the first K rows of the stack.
    a, w, alphas, betas, Y, Minv
        As in `recur`.
    out : (K,), filled
        The output, in the precision of the stack.

    Returns
    -------
    float
        The new `a`, or −1 if the sample is not finite; nothing has changed then.
    """
    K = out.shape[0]
    y, z = Y[n], np.empty(K)
    if not open_input(stack, row, n, s, a, w, Y, z):
        return -1.0
    symmetric_product(Minv, z, y)
    symmetric_product(Minv, y, z)
    keep = 1.0 / (1.0 - betas[n])
    zy = 0.0
    for k in range(K):
        zy += z[k] * y[k]
    kappa = betas[n] / (1.0 + betas[n] * keep * zy) * keep * keep
    for i in range(K):
        c = kappa * z[i]
        for j in range(K):
            Minv[i, j] = keep * Minv[i, j] - c * z[j]
    for k in range(K):
        out[k] = y[k]
    return fade(n, alphas[n], a, w)


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

    _kernels = Kernels(recur, recur_open, learn)

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
        if W0 is not None and D is None:
            D = np.shape(W0)[-1] if np.ndim(W0) else None
        super().__init__(K, D, block_size, dtype)
        lateral = None if Minv0 is None else inverse(check_start(Minv0, "Minv0", (self.K, self.K)))
        self._set_up(Schedule(gamma, learning_rate, beta), W0, lateral)

    @classmethod
    def from_directions(cls, components: Array, variances: Floats, *, block_size: BlockSize, dtype: Any) -> Self:
        variances = cls.positive(variances, dtype)
        W, _ = cls._fixed_point(components, variances)
        return cls(*components.shape, W0=W, Minv0=np.diag(1.0 / variances), block_size=block_size, dtype=dtype)

    @property
    def Minv(self) -> Floats:
        """(K, K) inverse of the lateral weights."""
        with self._lock:
            return self._settled()._solver.copy() if self._started else inverse(self._M)

    def _restore_solver(self) -> None:
        self._solver = inverse(self._M)
        self._since_restore, self._kept_since_restore = 0, 1.0

    def _condition(self, trace: float, closer: bool) -> float:
        size = largest_of if closer else norm_of
        return size(self._M) * size(self._solver)
