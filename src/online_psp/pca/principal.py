"""The directions of a model, in order, whatever form it keeps them in."""

from __future__ import annotations

import numpy as np

from online_psp.engine.types import Array, Floats
from online_psp.pca import few
from online_psp.pca.compressed import dense_basis
from online_psp.pca.directions import leading_of_rows
from online_psp.pca.model import Model
from online_psp.pca.settings import Settings
from online_psp.pca.signals import Noise, count_signals
from online_psp.pca.uncertainty import effective_rows


def basis_of(model: Model) -> Array:
    """The basis of a model of many features, (k, D)."""
    if model.turned is not None:
        mean = model.full_mean
        return dense_basis(model.turned, mean if model.scale is None else mean / model.scale)
    assert model.basis is not None
    return model.basis


def directions_for(model: Model, scale: Floats | None) -> tuple[Array, Floats]:
    """The basis and the variances of features divided by `scale`, (D,); orthonormal, whatever rounding did to those of sparse rows."""
    basis = basis_of(model)
    if not len(basis) or (scale is model.scale and model.turned is None):
        return basis, model.variances
    rows = np.sqrt(model.variances)[:, np.newaxis] * basis.astype(np.float64, copy=False)
    if scale is not None and model.scale is not None:
        rows = rows * (model.scale / scale)
    directions, variances = leading_of_rows(rows, len(rows))
    return directions.astype(basis.dtype, copy=False), variances


def principal(model: Model, settings: Settings, rank: int) -> tuple[Array, Floats]:
    """At most `rank` leading directions and variances, of features divided by their present deviations where they are standardised."""
    scale = deviations(model) if settings.standardize else None
    if model.covariance is not None:
        directions, variances = few.principal(model.covariance, min(rank, len(model.mean)), scale)
        return directions.astype(settings.working, copy=False), variances
    directions, variances = directions_for(model, scale)
    return directions[:rank], variances[:rank]


def deviations(model: Model) -> Floats:
    """Standard deviations of the features, (D,); 1 for those that are constant."""
    return np.sqrt(np.where(model.variance > 0, model.variance, 1.0))


def total_variance(model: Model, settings: Settings) -> float:
    """Sum of the variances of the features, as the directions see them."""
    return float((model.variance > 0).sum()) if settings.standardize else float(model.variance.sum())


def with_signals(model: Model, settings: Settings) -> Model:
    """The model with its signals counted, where these determine the number of components."""
    if settings.rule is None or not model.weight:
        return model
    variances = model.variances
    if model.covariance is not None:
        variances = few.leading_variances(model.covariance, settings.rank, deviations(model) if settings.standardize else None)
    rows = effective_rows(model.weight, model.squares, model.known, settings.center)
    noise = Noise(int((model.variance > 0).sum()), rows, settings.half_life is not None)
    return model._replace(signals=count_signals(variances, total_variance(model, settings), noise, settings.rule, model.signals))


def flip_signs(components: Array) -> Array:
    """The one rule for signs: the entry of largest size in each component is positive."""
    largest = components[np.arange(len(components)), np.argmax(np.abs(components), axis=1)]
    flipped: Array = components * np.where(largest < 0, -1.0, 1.0)[:, np.newaxis].astype(components.dtype)
    return flipped
