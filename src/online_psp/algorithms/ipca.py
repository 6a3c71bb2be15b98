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
y   (K,)   coordinates in the old components
==  =====  ==============================

Start: ``U = Q``, the thin QR basis of the first K samples, and ``Σ² = 0``. Step sizes ``α_t = 1/(t + 1)``.

Departure from the paper: if the residual vanishes, ``sqrt(α_t) ‖r‖ < 1e-7 ‖x‖``, the step stays in the K×K problem, because adding a
zero direction would lose a column of U among the ties.

The published iterate is the rank-K matrix ``U diag(Σ²) Uᵀ``. It is kept as ``B S Bᵀ``, with an orthonormal basis B and a symmetric S that
need not be diagonal. Then a step has to find only the one eigenvector that is dropped, which costs O(K²) instead of O(K³); U and Σ² come
from the eigenpairs of S when somebody reads them. Outputs are coordinates in B, which turns as little as possible from sample to sample:
their lengths, and the points that they describe, are those of the published outputs.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, DTypeLike
from scipy.linalg import eigh

from online_psp.algorithms.base import BlockSize
from online_psp.algorithms.coordinates import BETWEEN_LOOKS, FrameAlgorithm, FrameState
from online_psp.algorithms.smallest import NOT_MADE, Covariance, invert_shifted, smallest, turn_inverse
from online_psp.engine.blas import add_product, matmul
from online_psp.engine.checks import check_count, check_variances
from online_psp.engine.compiler import exact_kernel as kernel
from online_psp.engine.symmetric import symmetric_product
from online_psp.engine.types import Array, Floats, Rate

_NO_RESIDUAL = 1e-7
_FEW_STEPS = 16
_MOST_STEP = 1.0 - 1e-12  # a step of 1 forgets everything; this is close enough to it
_BELOW = 0.997


Change: TypeAlias = tuple[Floats, Floats]
"""P (n, K) and T (n, m): before sample s the basis is ``[I 0] − Σ_{j<s} p_j t_jᵀ``, in coordinates."""


class IPCAState(NamedTuple):
    """The iterate, in the paper's letters."""

    U: Floats
    sigma2: Floats


def reference_start(Q: Floats) -> IPCAState:
    """The published start from an orthonormal Q, (D, K)."""
    return IPCAState(U=Q, sigma2=np.zeros(Q.shape[1]))


def reference_step(state: IPCAState, x: Floats, alpha: float) -> tuple[IPCAState, Floats]:
    """One sample, as published; `state` itself does not change."""
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
def _project(x: Floats, s: int, P: Floats, T: Floats, y: Floats, r: Floats) -> None:
    """``y += U x`` and ``r = x − Uᵀ U x`` for the basis ``U = [I 0] − Σ_{j<s} p_j t_jᵀ``, in coordinates."""
    K, width = P.shape[1], x.shape[0]
    more, through = np.empty(K), np.empty(s)
    for k in range(K):
        more[k] = x[k]
    for j in range(s):
        total = 0.0
        for c in range(width):
            total += T[j, c] * x[c]
        for k in range(K):
            more[k] -= total * P[j, k]
    for j in range(s):
        through[j] = 0.0
        for k in range(K):
            through[j] += P[j, k] * more[k]
    for c in range(width):
        r[c] = x[c]
    for k in range(K):
        r[k] -= more[k]
        y[k] += more[k]
    for j in range(s):
        for c in range(width):
            r[c] += through[j] * T[j, c]


@kernel
def _square(x: Floats) -> float:
    total = 0.0
    for c in range(len(x)):
        total += x[c] * x[c]
    return total


@kernel
def _add_inside(y: Floats, alpha: float, covariance: Covariance, Ny: Floats) -> None:
    """A sample without residual: ``S ← (1 − α) S + α y yᵀ``, and N with it."""
    S, N, shift = covariance
    K, keep = len(y), 1.0 - alpha
    for i in range(K):
        c = alpha * y[i]
        for j in range(i + 1):
            S[i, j] = keep * S[i, j] + c * y[j]
    if shift[0] == NOT_MADE:
        return
    symmetric_product(N, y, Ny)
    beta = 1.0 / alpha + np.dot(y, Ny) / keep
    if not beta > 0.0:
        shift[0] = NOT_MADE
        return
    for i in range(K):
        c = Ny[i] / (keep * keep * beta)
        for j in range(i + 1):
            N[i, j] = N[i, j] / keep - c * Ny[j]
    shift[0] *= keep


@kernel
def recur(rows: Floats, steps: Floats, first: int, last: int, change: Change, covariance: Covariance, Y: Floats) -> None:
    """Samples `first` … `last`−1 of a block, in orthonormal coordinates.

    The published (K+1)×(K+1) matrix is taken in the basis ``[U; r/‖r‖]`` of the moment, and its eigenvector v = [p; l] of the smallest
    eigenvalue λ is dropped. A Householder reflection turns v into the last unit vector. With g = 1 + l it changes the basis by
    ``−p (Uᵀp/g + r/ρ)ᵀ`` and S to ``(1−α) S + α q qᵀ − λ/g² p pᵀ``, where q = y − ρ/g p; N changes in the same way. All of it costs O(K²).

    Parameters
    ----------
    rows : (≥ last, m)
        Coordinates of the samples; sample s has none beyond K + s + 1.
    steps : (1, ≥ last)
    change, covariance
        The basis and the covariance in it, changed in place.
    Y : (≥ last, K), filled
        Outputs: coordinates in the basis before the sample.
    """
    P, T = change
    S, N, shift = covariance
    K = P.shape[1]
    Ny, v = np.empty(K), np.empty(K + 1)
    for s in range(first, last):
        alpha, width = min(steps[0, s], _MOST_STEP), K + s + 1
        x, y, t, r = rows[s, :width], Y[s], T[s], np.empty(width)
        # y = Uᵀ x,  r = x − U y
        for k in range(K):
            y[k] = 0.0
        _project(x, s, P, T, y, r)
        square, rho2 = _square(x), _square(r)
        if rho2 < 0.25 * square:  # project again: a small residual must still be orthogonal
            _project(r.copy(), s, P, T, y, r)
            rho2 = _square(r)
        rho = np.sqrt(rho2)
        for k in range(K):
            P[s, k] = 0.0
        for c in range(len(t)):
            t[c] = 0.0
        if alpha == 0.0:
            continue
        if np.sqrt(alpha) * rho <= _NO_RESIDUAL * np.sqrt(square):
            _add_inside(y, alpha, covariance, Ny)
            continue
        # all but the smallest of the eigenpairs of (1 − α) diag(S, 0) + α v vᵀ,  v = [y; ‖r‖]
        value, took = smallest(covariance, y, rho, alpha, Ny, v)
        value = max(value, 0.0)
        p, g = v[:K], 1.0 + v[K]
        # U ← [U r/‖r‖] V
        for c in range(width):
            t[c] = r[c] / rho
        for k in range(K):
            t[k] += p[k] / g
            P[s, k] = p[k]
        for j in range(s):
            total = 0.0
            for k in range(K):
                total += P[j, k] * p[k]
            for c in range(width):
                t[c] -= total / g * T[j, c]
        # S ← Vᵀ (…) V
        turn_inverse(covariance, y, rho, alpha, Ny, value, v)
        down = value / (g * g)
        trace = 0.0
        for i in range(K):
            up = alpha * (y[i] - rho / g * p[i])
            for j in range(i + 1):
                S[i, j] = (1.0 - alpha) * S[i, j] + up * (y[j] - rho / g * p[j]) - down * p[i] * p[j]
            trace += S[i, i]
        shift[1] += max(0, took - _FEW_STEPS)
        if shift[1] > K // 3 and value > 1e-10 * trace:  # as much as a new inverse costs
            shift[0], shift[1] = -_BELOW * value, 0.0  # no eigenvalue of S is below the one that was dropped
            invert_shifted(S, shift[0], N)


@dataclass(slots=True, kw_only=True)
class IPCABlock(FrameState):
    """The covariance along the basis, and what the open block changes."""

    S: Annotated[Floats, "KK"]
    N: Annotated[Floats, "KK"]
    shift: Annotated[Floats, "2"]
    """S, N and shift are a `Covariance`."""
    P: Annotated[Floats, "nK"]
    T: Annotated[Floats, "nm"]
    """P and T are a `Change`."""


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
        ``t → α_t`` in [0, 1], t from 1; ``1/(t+1)`` by default.
    """

    State = IPCABlock
    most_step = 1.0
    _state: IPCABlock

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
        K = check_count(K, "K")
        sigma2 = np.zeros(K) if sigma2_0 is None else check_variances(sigma2_0, K)
        super().__init__(K, D, (Uhat0, sigma2), learning_rate, block_size, dtype)

    def _unit_rows(self, Uhat0: Floats) -> Floats:
        Q, R = np.linalg.qr(Uhat0)
        return np.asarray((Q * np.where(np.diag(R) < 0, -1.0, 1.0)).T)

    def _start(self, Q: Array) -> IPCABlock:
        frame, K = super()._start(Q), self.K
        known: dict[str, Any] = {field.name: getattr(frame, field.name) for field in fields(frame)}
        own: dict[str, Any] = {"S": np.diag(frame.sigma2), "N": np.zeros((K, K)), "shift": np.zeros(2)}
        return IPCABlock(**known, **own, P=np.zeros_like(frame.Y), T=np.zeros_like(frame.x))

    def _recur(self, first: int, last: int) -> bool:
        state = self._state
        if first == 0:
            state.shift[:] = NOT_MADE, 0.0  # so that rounding cannot build up, at an amortised O(K²) per sample
        recur(state.x, state.steps, first, last, (state.P, state.T), (state.S, state.N, state.shift), state.Y)
        return False

    def _moved(self, m: int) -> Floats:
        n = self._n
        return np.eye(self.K, m) - matmul(self._state.P[:n].T, self._state.T[:n, :m])

    def _expand(self) -> None:
        state, n, K = self._state, self._n, self.K
        if 2 * n >= K or not 0 < state.blocks < BETWEEN_LOOKS:  # after a look, what rounding has done to the basis is removed
            super()._expand()
            return
        # few samples beside K: their changes cost less than a turn of the basis
        add_product(state.stack[:K], -1.0, state.P[:n].T, self._rows_at(state.T[:n, : K + n]))
        state.blocks += 1

    def _read(self) -> Array:
        return matmul(eigh(self._state.S)[1][:, ::-1].T.astype(self.dtype), self._state.stack[: self.K])

    def _raw(self) -> Array:
        return self._state.stack[: self.K]  # outputs are coordinates in this basis

    def _variances(self) -> Floats:
        return np.asarray(np.maximum(eigh(self._state.S, eigvals_only=True), 0.0))
