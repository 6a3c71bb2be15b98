"""The probabilistic model behind PCA: a Gaussian with the variances found along the components, and equal noise elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import pinvh
from scipy.sparse import diags_array, issparse

from online_psp.engine.rows import AnyRows, SparseRows
from online_psp.engine.types import Array, Floats
from online_psp.pca.compressed import far_from_zero, less
from online_psp.pca.view import View


def log_likelihoods(view: View, rows: AnyRows) -> Floats:
    """Log-likelihood of each row, (n,), of which no value is missing."""
    mean: Floats = view.mean
    data: Any
    if isinstance(rows, SparseRows):
        offset = far_from_zero(mean, view.feature_variances)
        mean, data = mean - offset, less(rows.matrix().astype(np.float64), offset)
    else:
        data = rows.dense(np.dtype(np.float64))
    if view.deviations is None:
        return log_likelihood(data, mean, *view.gaussian)
    scaled = data @ diags_array(1.0 / view.deviations) if isinstance(rows, SparseRows) else data / view.deviations
    return log_likelihood(scaled, mean / view.deviations, *view.gaussian) - float(np.log(view.deviations).sum())


def log_likelihood(rows: Any, mean: Array, components: Array, variances: Floats, noise: float) -> Floats:
    """Log-likelihood of each row, (n,).

    Parameters
    ----------
    rows : (n, D)
        Dense, or CSR.
    mean : (D,)
    components : (K, D)
        Orthonormal rows.
    variances : (K,)
        Variances along the components, noise included.
    noise : float
        Variance along every other direction.
    """
    rows, mean, components = (array.astype(np.float64) for array in (rows, mean, components))
    K, D = components.shape
    if issparse(rows):
        scores, squares = rows @ components.T - mean @ components.T, centred_squares(rows, mean)
    else:
        rows = rows - mean
        scores, squares = rows @ components.T, np.sum(rows**2, axis=1)
    # No variance is known to be less than the rounding of the largest one: coordinates along a direction without any are rounding too.
    least = max(np.finfo(np.float64).eps ** 2 * float(np.max(variances, initial=0.0)), np.finfo(np.float64).tiny)
    variances, noise = np.maximum(variances, least), max(noise, least)
    likelihood = D * np.log(2.0 * np.pi) + np.log(variances).sum() + np.sum(scores**2 / variances, axis=1)
    if K < D:
        residual = np.maximum(squares - np.sum(scores**2, axis=1), 0.0)
        likelihood = likelihood + (D - K) * np.log(noise) + residual / noise
    return np.asarray(-0.5 * likelihood)


def _spiked(components: Array, along: Floats, elsewhere: float) -> Floats:
    """The matrix with eigenvalues `along` + `elsewhere` along the components, and `elsewhere` along all other directions, (D, D)."""
    components = components.astype(np.float64)
    matrix: Floats = (components.T * along) @ components
    matrix.flat[:: len(matrix) + 1] += elsewhere
    return matrix


def covariance(components: Array, variances: Floats, noise: float) -> Floats:
    """The covariance of the model, (D, D); parameters as for `log_likelihood`."""
    return _spiked(components, np.maximum(variances - noise, 0.0), noise)


def precision(components: Array, variances: Floats, noise: float) -> Floats:
    """The inverse of the covariance, (D, D), or its pseudo-inverse if there is no noise."""
    if noise <= 0.0:
        return np.asarray(pinvh(covariance(components, variances, noise)))
    return _spiked(components, 1.0 / np.maximum(variances, noise) - 1.0 / noise, 1.0 / noise)


def centred_squares(matrix: Any, mean: Floats) -> Floats:
    """``‖x − mean‖²`` of CSR rows, (n,)."""
    squares: Floats = SparseRows(matrix).squares() - 2.0 * (matrix @ mean) + float(mean @ mean)
    return np.maximum(squares, 0.0)
