"""The baselines of "times faster": the published updates, one sample at a time, in place.

Each class is what a good engineer writes from the paper without blocking: one state, changed in place, rank-one updates by BLAS (``dger``,
``dsyr``), and matrix-vector products into preallocated arrays. No array of size D is allocated after the start. A loop over
`reference_step`, which allocates D×K temporaries for every sample, takes several times as long and would flatter any comparison.

`BASELINES` maps the name of an algorithm to its baseline. A baseline starts from the fields of the algorithm's state, and has them again
after every step: the tests compare it with `reference_step` after every sample.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

import numpy as np
from scipy.linalg import blas, lapack

from online_psp.engine.types import Floats

_NO_RESIDUAL = 1e-7


class Baseline(Protocol):
    """The published update of one algorithm, in place, started from the fields of the algorithm's state."""

    def __init__(self, *state: Floats) -> None: ...

    def step(self, x: Floats, *rates: float) -> Floats:
        """Learn from one sample, (D,), which does not change; returns its output, (K,), in an array that the next step overwrites."""

    @property
    def state(self) -> tuple[Floats, ...]:
        """The fields of the algorithm's state, in their order."""

    @staticmethod
    def rates(t: int, gamma: float) -> tuple[float, ...]:
        """The published step sizes of sample t, t from 1; algorithms without a γ ignore `gamma`."""

    @staticmethod
    def steady(Q: Floats, variances: Floats) -> dict[str, Floats]:
        """The state of an algorithm that has converged to the directions Q, (D, K), with these variances, (K,), as its arguments."""


def _by_columns(A: Floats) -> Floats:
    """A copy in the column order of BLAS, so that BLAS changes it in place."""
    return np.array(A, dtype=np.float64, order="F")


class _SimilarityBaseline:
    """Keeps W as its transpose: BLAS works on columns, and updates them in place."""

    def __init__(self, W: Floats, lateral: Floats) -> None:
        self._Wt = _by_columns(W.T)
        self._Wt_flat = self._Wt.reshape(-1, order="F")
        self._lateral = _by_columns(lateral)
        self._lateral_flat = self._lateral.reshape(-1, order="F")
        self._y = np.zeros(len(lateral))

    def _feed_forward(self, x: Floats, alpha: float) -> None:
        """``W ← (1 − α) W + α y xᵀ``."""
        blas.dscal(1.0 - alpha, self._Wt_flat)
        blas.dger(alpha, x, self._y, a=self._Wt, overwrite_a=1)

    def _symmetric(self) -> Floats:
        """The lateral matrix, of which BLAS keeps the lower triangle."""
        lower = np.tril(self._lateral)
        return np.asarray(lower + np.tril(lower, -1).T)

    @property
    def state(self) -> tuple[Floats, ...]:
        """W, (K, D), and the lateral matrix, (K, K)."""
        return self._Wt.T, self._symmetric()

    @staticmethod
    def rates(t: int, gamma: float) -> tuple[float, ...]:
        """``2/(γ t + 5)`` for W and for the lateral matrix."""
        rate = 2.0 / (gamma * t + 5.0)
        return rate, rate


class InPlaceFSM(_SimilarityBaseline):
    """Fast Similarity Matching from W, (K, D), and Minv, (K, K)."""

    def __init__(self, W: Floats, Minv: Floats) -> None:
        super().__init__(W, Minv)
        self._h, self._z = np.zeros(len(Minv)), np.zeros(len(Minv))

    def step(self, x: Floats, *rates: float) -> Floats:
        """``y = Minv W x``, then W and Minv."""
        alpha, beta = rates
        Minv, h, y, z = self._lateral, self._h, self._y, self._z
        blas.dgemv(1.0, self._Wt, x, 0.0, h, trans=1, overwrite_y=1)
        blas.dsymv(1.0, Minv, h, 0.0, y, lower=1, overwrite_y=1)
        self._feed_forward(x, alpha)
        blas.dsymv(1.0 / (1.0 - beta), Minv, y, 0.0, z, lower=1, overwrite_y=1)
        blas.dscal(1.0 / (1.0 - beta), self._lateral_flat)
        blas.dsyr(-beta / (1.0 + beta * blas.ddot(z, y)), z, lower=1, a=Minv, overwrite_a=1)
        return y

    @staticmethod
    def steady(Q: Floats, variances: Floats) -> dict[str, Floats]:
        """W and Minv at the fixed point, where the covariance of the output is diag(variances)."""
        return {"W0": (Q * variances).T, "Minv0": np.diag(1.0 / variances)}


class InPlaceSM(_SimilarityBaseline):
    """Similarity Matching from W, (K, D), and M, (K, K); M is factored by Cholesky anew for every sample."""

    def __init__(self, W: Floats, M: Floats) -> None:
        super().__init__(W, M)
        self._factor = np.empty_like(self._lateral)
        self._column = self._y.reshape(-1, 1, order="F")

    def step(self, x: Floats, *rates: float) -> Floats:
        """``y = M⁻¹ W x``, then W and M."""
        alpha, beta = rates
        y = self._y
        blas.dgemv(1.0, self._Wt, x, 0.0, y, trans=1, overwrite_y=1)
        np.copyto(self._factor, self._lateral)
        lapack.dpotrf(self._factor, lower=1, clean=0, overwrite_a=1)
        lapack.dpotrs(self._factor, self._column, lower=1, overwrite_b=1)
        self._feed_forward(x, alpha)
        blas.dscal(1.0 - beta, self._lateral_flat)
        blas.dsyr(beta, y, lower=1, a=self._lateral, overwrite_a=1)
        return y

    @staticmethod
    def steady(Q: Floats, variances: Floats) -> dict[str, Floats]:
        """W and M at the fixed point, where the covariance of the output is diag(variances)."""
        return {"W0": (Q * variances).T, "M0": np.diag(variances)}


class InPlaceIPCA:
    """Incremental PCA from U, (D, K), and Σ², (K,).

    ``[U r/‖r‖] V`` goes into a second D×K array, and the two are swapped. SciPy allocates LAPACK's work space, of size K².
    """

    def __init__(self, U: Floats, sigma2: Floats) -> None:
        D, K = U.shape
        self._U, self._other = _by_columns(U), np.empty((D, K), order="F")
        self._sigma2 = np.array(sigma2, dtype=np.float64)
        self._y, self._r = np.zeros(K), np.zeros(D)
        self._v = np.zeros(K + 1)
        self._small, self._large = np.zeros((K, K), order="F"), np.zeros((K + 1, K + 1), order="F")

    def step(self, x: Floats, *rates: float) -> Floats:
        """The top K eigenpairs of ``(1 − α) diag(Σ², 0) + α v vᵀ`` turn ``[U r/‖r‖]``."""
        (alpha,) = rates
        K, y, r = len(self._y), self._y, self._r
        blas.dgemv(1.0, self._U, x, 0.0, y, trans=1, overwrite_y=1)
        np.copyto(r, x)
        blas.dgemv(-1.0, self._U, y, 1.0, r, overwrite_y=1)
        residual = math.sqrt(blas.ddot(r, r))
        grows = math.sqrt(alpha) * residual > _NO_RESIDUAL * math.sqrt(blas.ddot(x, x))
        C = self._large if grows else self._small
        v = self._v if grows else self._v[:K]
        v[:K] = y
        if grows:
            v[K] = residual
        C.fill(0.0)
        np.einsum("ii->i", C)[:K] = self._sigma2
        np.einsum("ii->i", C)[:K] *= 1.0 - alpha
        blas.dsyr(alpha, v, lower=1, a=C, overwrite_a=1)
        values, V, _ = lapack.dsyevd(C, lower=1, overwrite_a=1)  # ascending
        self._sigma2[:] = values[-K:]
        kept = V[:, 1:] if grows else V
        blas.dgemm(1.0, self._U, kept[:K], 0.0, self._other, overwrite_c=1)
        if grows:
            blas.dger(1.0 / residual, r, np.ascontiguousarray(kept[K]), a=self._other, overwrite_a=1)
        self._U, self._other = self._other, self._U
        return y

    @property
    def state(self) -> tuple[Floats, ...]:
        """U, (D, K), and Σ², (K,), largest first."""
        order = np.argsort(-self._sigma2, kind="stable")  # LAPACK gives the smallest first
        return self._U[:, order], self._sigma2[order]

    @staticmethod
    def rates(t: int, gamma: float) -> tuple[float, ...]:
        """``1/(t + 1)``."""
        return (1.0 / (t + 1.0),)

    @staticmethod
    def steady(Q: Floats, variances: Floats) -> dict[str, Floats]:
        """U and Σ² themselves."""
        return {"Uhat0": Q, "sigma2_0": variances}


class InPlaceCCIPCA:
    """Candid covariance-free incremental PCA from U, (D, K), and σ², (K,), by BLAS's vector operations.

    Components are kept as ``σ_k² u_k``, which saves writing each of them twice.
    """

    def __init__(self, U: Floats, sigma2: Floats) -> None:
        self._sigma2 = np.array(sigma2, dtype=np.float64)
        self._rows = [np.array(u * s) for u, s in zip(U.T, self._sigma2, strict=True)]
        self._x, self._y = np.zeros(len(U)), np.zeros(len(sigma2))

    def step(self, x: Floats, *rates: float) -> Floats:
        """Update one component after the other, each from what the earlier ones leave of the sample."""
        (alpha,) = rates
        left, y, sigma2 = self._x, self._y, self._sigma2
        ddot, dscal, daxpy = blas.ddot, blas.dscal, blas.daxpy
        np.copyto(left, x)
        for k, v in enumerate(self._rows):
            along = ddot(left, v) / sigma2[k]
            dscal(1.0 - alpha, v)
            daxpy(left, v, a=alpha * along)
            size = math.sqrt(ddot(v, v))
            coefficient = ddot(left, v) / size
            daxpy(v, left, a=-coefficient / size)
            sigma2[k], y[k] = size, coefficient
        return y

    @property
    def state(self) -> tuple[Floats, ...]:
        """U, (D, K), and σ², (K,)."""
        return np.column_stack(self._rows) / self._sigma2, self._sigma2

    @staticmethod
    def rates(t: int, gamma: float) -> tuple[float, ...]:
        """``min(3, t)/(t + 1)``."""
        return (min(3.0, t) / (t + 1.0),)

    @staticmethod
    def steady(Q: Floats, variances: Floats) -> dict[str, Floats]:
        """U and σ² themselves."""
        return {"Uhat0": Q, "sigma2_0": variances}


BASELINES: Mapping[str, type[Baseline]] = MappingProxyType(
    {"sm": InPlaceSM, "fsm": InPlaceFSM, "ipca": InPlaceIPCA, "ccipca": InPlaceCCIPCA}
)
"""The in-place baseline of each algorithm that has one, in the order of the paper's figure 1."""
