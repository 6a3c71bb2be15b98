"""Rows to coordinates along the components, and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from online_psp.engine.blas import matmul
from online_psp.engine.rows import AnyRows, ArrayRows, SparseRows
from online_psp.engine.sizes import CENTRE_BYTES
from online_psp.engine.types import Array, Floats
from online_psp.pca.view import View

_LARGE_MEAN = 10.0  # in deviations: a larger mean is subtracted from rows before they are multiplied


def coordinates(view: View, rows: AnyRows, whiten: bool | str) -> Any:
    """Coordinates of rows along the components, (n, K); or, for "zca", whitened rows, (n, D)."""
    dtype = rows.dtype
    if whiten == "zca":
        apart = rows.dense(np.dtype(np.float64))
        apart = apart - view.mean if view.settings.center else apart
        found = _times_root(view, apart if view.deviations is None else apart / view.deviations, -1.0).astype(dtype)
        return rows.library.of(found) if isinstance(rows, ArrayRows) else found
    scores = _scores(view, rows, dtype)
    if not whiten:
        return scores
    deviations = view.deviations_along(dtype)
    return scores / (rows.library.of(deviations) if isinstance(rows, ArrayRows) else deviations)


def rows_at(view: View, scores: Array, whiten: bool | str) -> Array:
    """Rows, (n, D), with the coordinates that `coordinates` returns."""
    dtype = view.settings.working
    if whiten == "zca":
        found = _times_root(view, scores, 1.0)
        return np.asarray(((found if view.deviations is None else found * view.deviations) + view.mean).astype(dtype))
    components = view.components
    if whiten:
        components = np.sqrt(view.explained_variance)[:, np.newaxis].astype(components.dtype) * components
    if view.deviations is not None:
        components = (components * view.deviations).astype(components.dtype)
    return np.asarray(matmul(scores, components) + view.mean.astype(dtype))


def _times_root(view: View, rows: Any, power: float) -> Floats:
    """Rows, (n, D), times the root of the model's covariance, or of its inverse if the power is −1."""
    components, variances, noise = view.gaussian
    U, rows = components.astype(np.float64), np.asarray(rows, dtype=np.float64)
    sizes = np.append(variances, noise)
    rounding = max(len(view.mean) * np.finfo(np.float64).eps, np.finfo(view.settings.working).eps) * sizes.max()
    factors = np.zeros(len(sizes))
    factors[sizes > rounding] = sizes[sizes > rounding] ** (power / 2.0)
    return np.asarray(factors[-1] * rows + matmul(matmul(rows, U.T) * (factors[:-1] - factors[-1]), U))


def _scores(view: View, rows: AnyRows, dtype: np.dtype[Any]) -> Any:
    components = view.components
    if view.deviations is not None:
        components = (components / view.deviations).astype(components.dtype)
    mean = view.mean if view.settings.center else np.zeros(rows.D)
    offset = mean @ components.T.astype(np.float64)
    scaled = mean if view.deviations is None else mean / view.deviations
    first = float(scaled @ scaled) > _LARGE_MEAN**2 * view.total_variance  # a difference of products would be mostly rounding
    if isinstance(rows, ArrayRows):
        if not first:
            return rows.scores(components, offset)
        near = mean.astype(dtype)
        apart = ArrayRows(rows.X - rows.library.of(near), dtype)
        return apart.scores(components, (mean - near) @ components.T.astype(np.float64))
    if isinstance(rows, SparseRows):
        basis = components.T.astype(np.float64) if first else components.T
        return np.asarray(rows.matrix() @ basis - offset, dtype)
    components = components.astype(dtype, copy=False)
    if not first:
        return matmul(rows.X, components.T) - offset.astype(dtype)
    scores = np.empty((len(rows), len(components)), dtype)
    step = max(1, CENTRE_BYTES // (rows.D * dtype.itemsize))
    for start in range(0, len(rows), step):  # a part of the rows is centred at a time
        part = slice(start, start + step)
        scores[part] = matmul(np.subtract(rows.X[part], mean).astype(dtype, copy=False), components.T)
    return scores
