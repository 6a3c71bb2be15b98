"""Incremental PCA (Arora, Cotter, Livescu, Srebro 2012, as in Giovannucci et al. 2018).

For sample ``x_t``::

    y  = Uᵀ x_t
    r  = x_t − U y
    top-K eigenpairs (V, Λ) of (1 − α_t) diag(Σ², 0) + α_t v vᵀ,  v = [y; ‖r‖]
    Σ² ← Λ
    U  ← [U  r/‖r‖] V

==  =====  ==============================
U   (D,K)  orthonormal components
Σ²  (K,)   variances along them
y   (K,)   output, in the old components
==  =====  ==============================

Start: ``U = Q``, the thin QR basis of the first K samples, and ``Σ² = 0``. Step sizes ``α_t = 1/(t + 1)``.

Departure from the paper: where the residual vanishes, ``sqrt(α_t) ‖r‖ < 1e-7 ‖x‖``, the step stays in the K×K problem, because
augmenting with a zero direction loses a column of U among the ties. The small eigenproblem is a diagonal matrix plus a rank-one term, and
is solved as that.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from online_psp._numba import kernel
from online_psp.algorithms._base import BlockSize
from online_psp.algorithms._frame import FrameAlgorithm
from online_psp.algorithms._secular import deflate, secular_eigh
from online_psp.blocks import FrameBlock
from online_psp.types import Array, Floats, Rate

_NO_RESIDUAL = 1e-7


class IPCAState(NamedTuple):
    """The iterate, in the paper's letters."""

    U: Floats
    sigma2: Floats


def reference_start(Q: Floats) -> IPCAState:
    """The published start from an orthonormal Q, (D, K)."""
    return IPCAState(U=Q, sigma2=np.zeros(Q.shape[1]))


def reference_step(state: IPCAState, x: Floats, alpha: float) -> tuple[IPCAState, Floats]:
    """One sample, as published; the state that comes in is left alone."""
    U, sigma2 = state
    K = len(sigma2)
    y = U.T @ x
    r = x - U @ y
    residual = float(np.linalg.norm(r))
    if np.sqrt(alpha) * residual <= _NO_RESIDUAL * np.linalg.norm(x):
        v, basis, kept = y, U, sigma2
    else:
        v, basis, kept = np.append(y, residual), np.column_stack([U, r / residual]), np.append(sigma2, 0.0)
    Lambda, V = np.linalg.eigh((1.0 - alpha) * np.diag(kept) + alpha * np.outer(v, v))
    return IPCAState(U=basis @ V[:, ::-1][:, :K], sigma2=Lambda[::-1][:K]), y


def reference_basis(state: IPCAState) -> Floats:
    """(D, K), orthonormal."""
    return np.linalg.qr(state.U)[0]


@kernel
def recur(rows: Floats, grow: int, alphas: Floats, first: int, last: int, Z: Floats, sigma2: Floats, Y: Floats) -> None:
    """Samples `first` … `last`−1, in orthonormal coordinates of the block.

    Parameters
    ----------
    rows : (n, m)
        Coordinates of the samples; those of sample s end at ``grow + s + 1``.
    alphas : (n,)
    Z, sigma2 : (K, m), (K,)
        Components and variances, ascending; changed in place.
    Y : (last − first, K)
        Outputs.
    """
    K, m = Z.shape
    for s in range(first, last):
        alpha = alphas[s]
        width = min(m, grow + s + 1)
        x = rows[s, :width].copy()
        y = Y[s - first]
        norm2 = 0.0
        for c in range(width):
            norm2 += x[c] * x[c]
        work = np.empty((K + 1, width))
        d, z, active = np.empty(K + 1), np.empty(K + 1), np.empty(K + 1)
        for k in range(K):
            work[k + 1] = Z[k, :width]
        y[:] = np.dot(work[1:], x)
        x -= np.dot(y, work[1:])
        again = np.dot(work[1:], x)  # once more: a small residual must still be orthogonal
        x -= np.dot(again, work[1:])
        y += again
        residual2 = 0.0
        for c in range(width):
            residual2 += x[c] * x[c]
        residual = np.sqrt(residual2)
        lowest = 1
        if np.sqrt(alpha) * residual > _NO_RESIDUAL * np.sqrt(norm2):
            lowest = 0
            d[0], z[0] = 0.0, residual
            for c in range(width):
                work[0, c] = x[c] / residual
        for k in range(K):
            d[k + 1], z[k + 1] = (1.0 - alpha) * sigma2[k], y[k]
        d, z, active, work = d[lowest:], z[lowest:], active[lowest:], work[lowest:]
        count = deflate(d, z, alpha, work, active)
        if count > 0:
            chosen = np.flatnonzero(active)
            values, vectors = secular_eigh(d[chosen], z[chosen], alpha)
            turned = np.dot(vectors, work[chosen])
            for i in range(count):
                d[chosen[i]] = values[i]
                work[chosen[i]] = turned[i]
        order = np.argsort(d)
        for k in range(K):
            at = order[k + 1 - lowest]
            sigma2[k] = max(d[at], 0.0)
            Z[k, :width] = work[at]


class IPCA(FrameAlgorithm):
    """Incremental PCA: components with their variances, the best rank-K model of the past at every sample.

    Parameters
    ----------
    K, D, block_size, dtype
        As in `FSM`.
    Uhat0 : (D, K), optional
        Start for the components; made orthonormal if it is not. By default the algorithm starts from the first K samples.
    sigma2_0 : (K,), optional
        Start for the variances; zero by default.
    learning_rate : callable, optional
        ``t → α_t`` in [0, 1), t from 1; ``1/(t+1)`` by default.
    """

    _orthonormal = True

    def __init__(
        self,
        K: int,
        D: int | None = None,
        *,
        Uhat0: ArrayLike | None = None,
        sigma2_0: ArrayLike | None = None,
        learning_rate: Rate | None = None,
        block_size: BlockSize = "auto",
        dtype: DTypeLike = np.float64,
    ) -> None:
        super().__init__(K, D, Uhat0, sigma2_0, 0.0, learning_rate, block_size, dtype)

    def _unit_rows(self, Uhat0: Floats) -> Floats:
        Q, R = np.linalg.qr(Uhat0)
        return np.asarray((Q * np.where(np.diag(R) < 0, -1.0, 1.0)).T)

    def _begin(self, basis: Array) -> None:
        order = np.argsort(self._sigma2, kind="stable")  # the recurrence keeps them ascending
        self._sigma2 = self._sigma2[order]
        super()._begin(np.ascontiguousarray(basis[order]))

    def _default_rate(self, t: int) -> float:
        return 1.0 / (t + 1.0)

    def _advance(self, block: FrameBlock, first: int, last: int, alphas: Floats) -> Floats:
        Y = np.empty((last - first, self.K))
        recur(block.rows, block.first, alphas, first, last, block.Z, self._sigma2, Y)
        return Y[:, ::-1]
