"""Stable axes: the subspace is shown in the basis nearest to the one shown before."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import svd

from online_psp.engine.types import Array, Floats


def nearest_turn(components: Array, axes: Array) -> Floats:
    """The orthogonal R (K, K) for which ``R components`` is nearest to the axes, both (K, D): orthogonal Procrustes."""
    left, _, right = svd(np.asarray(axes, dtype=np.float64) @ np.asarray(components, dtype=np.float64).T)
    return np.asarray(left @ right)


def check_reference(reference: Any, K: Any, D: int) -> Floats:
    """Axes given by the user, (K, D), made orthonormal."""
    array = np.asarray(reference, dtype=np.float64)
    if array.shape != (K, D):
        raise ValueError(f"reference must be the axes to stay near, shape (n_components, features) = ({K}, {D}); got {array.shape}.")
    if not np.isfinite(array).all():
        raise ValueError("reference must be finite.")
    left, values, right = svd(array, full_matrices=False)
    if not values[-1] > 1e-8 * values[0]:
        raise ValueError("reference must have linearly independent rows.")
    return np.asarray(left @ right)
