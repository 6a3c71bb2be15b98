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

from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike
from scipy.linalg import eigh

from online_psp.algorithms._frame import FrameAlgorithm
from online_psp.algorithms._provided import BlockSize
from online_psp.algorithms._smallest import NOT_MADE, invert_shifted, smallest, turn_inverse
from online_psp.engine.blas import matmul
from online_psp.engine.checks import check_variances
from online_psp.engine.compiler import exact_kernel as kernel
from online_psp.engine.frames import Frame, FrameState, check_frame
from online_psp.engine.sizes import FixedCost
from online_psp.engine.symmetric import symmetric_product
from online_psp.engine.types import Array, Floats, Rate

_NO_RESIDUAL = 1e-7
_FEW_STEPS = 16
_MOST_STEP = 1.0 - 1e-12  # a step of 1 forgets everything; this is close enough to it
_BELOW = 0.997


class IPCARunning(NamedTuple):
    """The state after the start: the iterate as ``B S Bᵀ``, the inverse that steps use, and the open block."""

    frame: FrameState
    S: Annotated[Floats, "K", "K"]
    N: Annotated[Floats, "K", "K"]
    delta: float | None
    spent: int
    since_restore: int
    steps: Annotated[Floats, "n"]
    P: Annotated[Floats, "n", "K"]
    T: Annotated[Floats, "n", "m"]


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
def _project(x: Floats, Z: Floats, plain: bool, P: Floats, T: Floats, s: int, y: Floats, r: Floats) -> None:
    """``y += B x`` and ``r = x − Bᵀ B x`` for the basis ``B = Z − Σ_{j<s} p_j t_jᵀ``, in coordinates; Z stands for [I 0] if `plain`."""
    K, width = P.shape[1], x.shape[0]
    y_new, through = np.zeros(K), np.zeros(s)
    if plain:
        for k in range(K):
            y_new[k] = x[k]
    else:
        for k in range(K):
            total = 0.0
            for c in range(width):
                total += Z[k, c] * x[c]
            y_new[k] = total
    for j in range(s):
        total = 0.0
        for c in range(width):
            total += T[j, c] * x[c]
        for k in range(K):
            y_new[k] -= total * P[j, k]
    for j in range(s):
        total = 0.0
        for k in range(K):
            total += P[j, k] * y_new[k]
        through[j] = total
    for c in range(width):
        r[c] = x[c]
    if plain:
        for k in range(K):
            r[k] -= y_new[k]
    else:
        for k in range(K):
            for c in range(width):
                r[c] -= y_new[k] * Z[k, c]
    for j in range(s):
        for c in range(width):
            r[c] += through[j] * T[j, c]
    for k in range(K):
        y[k] += y_new[k]


@kernel
def recur(
    rows: Floats,
    grow: int,
    alphas: Floats,
    first: int,
    last: int,
    Z: Floats,
    plain: bool,
    P: Floats,
    T: Floats,
    S: Floats,
    N: Floats,
    delta: float,
    spent: int,
    Y: Floats,
) -> tuple[float, int]:
    """Samples `first` … `last`−1, in orthonormal coordinates of the block.

    The subspace has the orthonormal basis ``B = Z − Pᵀ T``, and S is the covariance in it. A sample that is partly outside adds a
    direction, and the eigenvector v = [p; l] of the smallest eigenvalue λ of the problem of size K+1 is dropped. A Householder reflection
    turns v into the last unit vector. With g = 1 + l it changes the basis by ``−p (Bᵀp/g + r/ρ)ᵀ`` and S to ``(1−α) S + α q qᵀ − λ/g² p
    pᵀ``, where q = y − ρ/g p; N changes in the same way. All of it costs O(K²).

    Parameters
    ----------
    rows : (n, m)
        Coordinates of the samples; those of sample s end at ``grow + s + 1``.
    alphas : (n,)
    Z : (K, m)
        The basis at the start of the block; not read if it is `plain`, the first K coordinate vectors.
    P, T : (n, K), (n, m)
        The change of the basis since; zero from sample `first` on.
    S, N, delta : (K, K), (K, K), float
        Lower halves of the covariance and of ``(S + δI)⁻¹``. Both are changed in place; the new δ, or NOT_MADE, is returned.
    spent : int
        Extra steps that eigenvectors have taken since N was computed; the new number is returned.
    Y : (last − first, K)
        Outputs: coordinates in the basis before the sample.
    """
    K, m = P.shape[1], rows.shape[1]
    Ny, v = np.empty(K), np.empty(K + 1)
    for s in range(first, last):
        alpha = min(alphas[s], _MOST_STEP)
        keep = 1.0 - alpha
        width = min(m, grow + s + 1)
        x, y, r = rows[s, :width], Y[s - first], np.empty(width)
        for k in range(K):
            y[k] = 0.0
        _project(x, Z, plain, P, T, s, y, r)
        norm2, rho2 = 0.0, 0.0
        for c in range(width):
            norm2 += x[c] * x[c]
            rho2 += r[c] * r[c]
        if rho2 < 0.25 * norm2:  # project again: a small residual must still be orthogonal
            _project(r.copy(), Z, plain, P, T, s, y, r)
            rho2 = 0.0
            for c in range(width):
                rho2 += r[c] * r[c]
        if alpha == 0.0:
            continue
        rho = np.sqrt(rho2)
        if np.sqrt(alpha) * rho <= _NO_RESIDUAL * np.sqrt(norm2):
            if delta != NOT_MADE:
                symmetric_product(N, y, Ny)
                beta = 1.0 / alpha + np.dot(y, Ny) / keep
                if beta > 0.0:
                    for i in range(K):
                        c = Ny[i] / (keep * keep * beta)
                        for j in range(i + 1):
                            N[i, j] = N[i, j] / keep - c * Ny[j]
                    delta *= keep
                else:
                    delta = NOT_MADE
            for i in range(K):
                c = alpha * y[i]
                for j in range(i + 1):
                    S[i, j] = keep * S[i, j] + c * y[j]
            continue
        value, delta, steps = smallest(S, N, Ny, y, rho, alpha, delta, v)
        value = max(value, 0.0)
        p, g = v[:K], 1.0 + v[K]
        for c in range(width):
            T[s, c] = r[c] / rho
        if plain:
            for k in range(K):
                T[s, k] += p[k] / g
        else:
            for k in range(K):
                for c in range(width):
                    T[s, c] += p[k] / g * Z[k, c]
        for j in range(s):
            total = 0.0
            for k in range(K):
                total += P[j, k] * p[k]
            for c in range(width):
                T[s, c] -= total / g * T[j, c]
        for k in range(K):
            P[s, k] = p[k]
        delta = turn_inverse(N, Ny, y, rho, alpha, delta, value, v) if value > delta else NOT_MADE  # if not, S was singular
        down = value / (g * g)
        for i in range(K):
            up = alpha * (y[i] - rho / g * p[i])
            for j in range(i + 1):
                S[i, j] = keep * S[i, j] + up * (y[j] - rho / g * p[j]) - down * p[i] * p[j]
        spent += max(0, steps - _FEW_STEPS)
        trace = 0.0
        for i in range(K):
            trace += S[i, i]
        if spent > K // 3 and value > 1e-10 * trace:  # as much as a new inverse costs
            delta, spent = -_BELOW * value, 0  # no eigenvalue of S is below the one that was dropped
            invert_shifted(S, delta, N)
    return delta, spent


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

    _cost = FixedCost(call=150e-6, passes=6.0, pairs=6.0)
    _orthonormal = True
    Running = IPCARunning
    most_step = 1.0

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
        if Uhat0 is not None and D is None:
            D = np.shape(Uhat0)[0] if np.ndim(Uhat0) else None
        super().__init__(K, D, block_size, dtype)
        sigma2 = np.zeros(self.K) if sigma2_0 is None else check_variances(sigma2_0, self.K)
        self._set_up(learning_rate, Uhat0, sigma2)

    def _unit_rows(self, Uhat0: Floats) -> Floats:
        Q, R = np.linalg.qr(Uhat0)
        return np.asarray((Q * np.where(np.diag(R) < 0, -1.0, 1.0)).T)

    def _begin(self, basis: Array) -> None:
        super()._begin(basis)
        self._S: Floats = np.diag(self._sigma2)
        self._N: Floats = np.zeros((self.K, self.K))
        self._delta, self._spent, self._since_restore = NOT_MADE, 0, 0
        self._P: Floats = np.zeros((0, self.K))
        self._T: Floats = np.zeros((0, 0))

    def _running_state(self) -> IPCARunning:
        frame = self._frame.state()
        n, m = frame.coordinates.shape
        return IPCARunning(
            frame,
            self._S.copy(),
            self._N.copy(),
            None if self._delta == NOT_MADE else float(self._delta),
            int(self._spent),
            int(self._since_restore),
            self._steps[:n].copy(),
            self._P[:n].copy(),
            self._T[:n, :m].copy() if n else np.zeros((0, m)),
        )

    @classmethod
    def checked(cls, running: IPCARunning) -> IPCARunning:
        check_frame(running.frame, cls._orthonormal)
        return running

    def _restore(self, running: IPCARunning) -> None:
        super()._begin(running.frame.basis)
        fresh, n = self._frame, len(running.steps)
        self._frame = Frame.from_state(running.frame, self.open_capacity, self._orthonormal)
        self._S, self._N = running.S.copy(), running.N.copy()
        self._delta = NOT_MADE if running.delta is None else running.delta
        self._spent, self._since_restore = running.spent, running.since_restore
        self._hold(running.steps)
        self._P, self._T = np.zeros((self._frame.capacity, self.K)), np.zeros_like(self._frame.open_coordinates)
        self._P[:n], self._T[:n, : running.T.shape[1]] = running.P, running.T
        self._adopt(fresh)

    def _default_rate(self, t: int) -> float:
        return 1.0 / (t + 1.0)

    def _advance(self, first: int, last: int) -> Floats:
        frame = self._frame
        if first == 0:
            self._P, self._T = np.zeros((len(frame.rows), self.K)), np.zeros_like(frame.rows)
        Y = np.empty((last - first, self.K))
        P, T, S, N, delta, spent = self._P, self._T, self._S, self._N, self._delta, self._spent
        outcome = recur(frame.rows, frame.first, self._steps, first, last, frame.Z, frame.plain, P, T, S, N, delta, spent, Y)
        self._delta, self._spent = outcome
        self._since_restore += last - first
        return Y

    def _close(self) -> None:
        self._frame.expand_by(self._P, self._T)
        if self._since_restore >= max(256, 4 * self.K):  # so that rounding cannot build up, at an amortised O(K²) per sample
            self._delta, self._spent, self._since_restore = NOT_MADE, 0, 0

    def _components(self, orthogonalize: bool) -> Array:
        return super()._components(True) if orthogonalize else np.array(self._frame.basis.T)  # outputs are coordinates in this basis

    def _raw_basis(self) -> Array:
        vectors = eigh(self._S)[1][:, ::-1]
        return matmul(vectors.T.astype(self.dtype), self._frame.basis)

    @property
    def sigma2(self) -> Floats:
        with self._lock:
            if not self._started:
                return super().sigma2
            return np.asarray(np.maximum(eigh(self._S, eigvals_only=True)[::-1], 0.0))
