"""Incremental SVD by blocks, with forgetting (Levy and Lindenbaum 2000; Ross, Lim, Lin and Yang 2008).

For a block X of m rows::

    U, Σ ← the leading K right singular vectors, and singular values, of [f Σ Uᵀ; X]

A. Levy, M. Lindenbaum, "Sequential Karhunen–Loeve basis extraction and its application to images", IEEE Transactions on Image Processing 9,
2000; D. A. Ross, J. Lim, R.-S. Lin, M.-H. Yang, "Incremental Learning for Robust Visual Tracking", Int. J. Computer Vision 77, 2008.

Departures: the second paper also updates a mean; rows are centred here, as for all rivals, and then it is the first. Blocks have max(5, K)
rows (the papers take 5 or more), so that the first one fills the basis.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from online_psp.engine.types import Floats
from online_psp.suite.rivals.rival import Rival, first_basis


class IncrementalSVDState(NamedTuple):
    U: Floats
    """(D, K), orthonormal columns"""
    sigma: Floats
    """(K,) singular values"""


def start(X0: Floats, K: int) -> IncrementalSVDState:
    return IncrementalSVDState(first_basis(X0, K), np.zeros(K))


def step(state: IncrementalSVDState, X: Floats, *, forgetting: float = 1.0) -> IncrementalSVDState:
    U, sigma = state
    K = len(sigma)
    _, values, directions = np.linalg.svd(np.vstack([forgetting * sigma[:, np.newaxis] * U.T, X]), full_matrices=False)
    return IncrementalSVDState(directions[:K].T, values[:K])


def basis(state: IncrementalSVDState) -> Floats:
    return state.U


RIVAL = Rival("Incremental SVD", start, step, basis, block=lambda K: max(5, K))
