"""GROUSE, Grassmannian rank-one update subspace estimation (Balzano, Nowak and Recht 2010): learns from rows with missing values.

For sample ``x_t`` with the set Ω of observed features, U_Ω the corresponding rows of U::

    w = argmin_a ‖U_Ω a − x_Ω‖,    p = U w,    r = x − p in Ω and 0 elsewhere
    U ← U + [ (cos θ − 1) p/‖p‖ + sin θ r/‖r‖ ] wᵀ/‖w‖,    θ = η_t ‖r‖ ‖p‖

L. Balzano, R. Nowak, B. Recht, "Online Identification and Tracking of Subspaces from Highly Incomplete Information", Allerton 2010,
arXiv:1006.4046.

Departures: the paper leaves η_t to the user: a constant to track a moving subspace, ``C/t`` for a fixed one. Here it is ``scale/(t v)``, v
the average of ``‖p‖²/K``, so that it does not depend on units; `least` is the smallest value that takes the place of 1/t. θ is no more than
``arctan(‖r‖/‖p‖)``, at which the new subspace contains the completed sample p + r. The start is the thin QR basis of the first K samples.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from online_psp.engine.types import Floats
from online_psp.suite.rivals.rival import Rival, first_basis, orthonormal

RCOND = 1e-6
"""Singular values of the observed part of the basis below this, relative to the largest, count as zero."""
_NO_RESIDUAL = 1e-14


class GROUSEState(NamedTuple):
    U: Floats
    """(D, K), orthonormal columns"""
    t: int
    v: float
    """Average of ``‖p‖²/K``."""


def start(X0: Floats, K: int) -> GROUSEState:
    return GROUSEState(first_basis(X0, K), 0, 0.0)


def step(state: GROUSEState, X: Floats, *, scale: float = 5.0, least: float = 0.0) -> GROUSEState:
    U, t, v = state
    for x in X:
        t += 1
        share, seen = max(1.0 / t, least), ~np.isnan(x)
        if not x[seen].any():
            continue
        w = np.linalg.lstsq(U[seen], x[seen], rcond=RCOND)[0]
        p = U @ w
        r = np.where(seen, x - p, 0.0)
        along, off = float(np.linalg.norm(p)), float(np.linalg.norm(r))
        v += share * (along**2 / len(w) - v)
        if along > 0.0 and off > _NO_RESIDUAL * along:
            theta = min(scale * share / v * off * along, math.atan(off / along))
            move = (math.cos(theta) - 1.0) / along * p + math.sin(theta) / off * r
            U = U + np.outer(move, w / np.linalg.norm(w))
    return GROUSEState(U, t, v)


def basis(state: GROUSEState) -> Floats:
    return orthonormal(state.U)


RIVAL = Rival("GROUSE", start, step, basis, handles_missing=True)
