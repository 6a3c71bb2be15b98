"""PETRELS, parallel estimation and tracking by recursive least squares (Chi, Eldar and Calderbank 2013): learns from rows with missing
values.

For sample ``x_t`` with the set Ω of observed features, row m of U written u_m, P_m = R_m⁻¹::

    a = argmin_a ‖U_Ω a − x_Ω‖
    for every feature m:   P_m ← P_m/λ
    and for those in Ω:    v = P_m a,    P_m ← P_m − v vᵀ/(1 + aᵀ v),    u_m ← u_m + (x_m − aᵀ u_m) P_m a

R_m is the sum of ``a aᵀ`` over the samples in which feature m was observed, λ forgets. It takes O(D K²) memory, and as many operations per
sample.

Y. Chi, Y. C. Eldar, R. Calderbank, "PETRELS: Parallel Subspace Estimation and Tracking by Recursive Least Squares From Partial
Observations", IEEE Transactions on Signal Processing 61, 2013, arXiv:1207.6353.

Departures: the paper's ``R_m = δ I`` at the start is ``I/100`` in units of the mean square of the first K samples' coordinates, and no P_m
gets a larger trace than that, however long its feature goes unobserved. U starts from the thin QR basis of the first K samples.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from online_psp.engine.types import Floats
from online_psp.suite.rivals.grouse import RCOND
from online_psp.suite.rivals.rival import Rival, first_basis, orthonormal


class PETRELSState(NamedTuple):
    U: Floats
    """(D, K), a basis"""
    P: Floats
    """(D, K, K)"""
    most: float
    """Largest trace of a P_m: that at the start."""


def start(X0: Floats, K: int) -> PETRELSState:
    first = np.nan_to_num(X0[:K])
    most = 100.0 * K / (float(np.sum(first**2)) / K**2 or 1.0)
    return PETRELSState(first_basis(X0, K), np.tile(most / K * np.eye(K), (X0.shape[1], 1, 1)), most)


def step(state: PETRELSState, X: Floats, *, forgetting: float = 1.0) -> PETRELSState:
    U, P, most = state.U.copy(), state.P.copy(), state.most
    for x in X:
        seen = ~np.isnan(x)
        if not x[seen].any():
            continue
        a = np.linalg.lstsq(U[seen], x[seen], rcond=RCOND)[0]
        if forgetting < 1.0:
            P /= forgetting
            P *= np.minimum(most / np.trace(P, axis1=1, axis2=2), 1.0)[:, np.newaxis, np.newaxis]
        v = P[seen] @ a
        size = (1.0 + v @ a)[:, np.newaxis]
        gain = v / size  # P_m a, with the new P_m
        # Symmetric to the last bit: forgetting would let anything else grow.
        P[seen] -= v[:, :, np.newaxis] * v[:, np.newaxis, :] / size[:, :, np.newaxis]
        U[seen] += (x[seen] - U[seen] @ a)[:, np.newaxis] * gain
    return PETRELSState(U, P, most)


def basis(state: PETRELSState) -> Floats:
    return orthonormal(state.U)


RIVAL = Rival("PETRELS", start, step, basis, handles_missing=True)
