"""What a model shows at one moment, in the units of the data."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import qr

from online_psp.engine.finite import check_learned
from online_psp.engine.types import Array, Floats
from online_psp.pca.fill import Trust
from online_psp.pca.model import Model, Robust
from online_psp.pca.principal import deviations, flip_signs, principal, total_variance
from online_psp.pca.settings import Settings

_FAINTEST = float(np.finfo(np.float64).tiny / np.finfo(np.float64).eps)  # total variance in units of the stream, at the least


class View(NamedTuple):
    """What can be read of a model."""

    components: Array
    """(K', D), orthonormal rows, largest variance first; the entry of largest size in each is positive."""
    variances: Floats
    """(K',), divided by the weight."""
    total_variance: float
    feature_variances: Floats
    """(D,)"""
    mean: Floats
    """(D,)"""
    deviations: Floats | None
    """(D,): divisors of standardised features, whose components these then are; None otherwise."""
    seen: int
    weight: float
    squares: float
    axes: Floats | None
    """(K, D): axes to stay near, if they are to be stable."""
    exact: bool
    """Whether nothing has been left out."""
    signals: int
    known: Floats | None = None
    """(D,): weight of the observed values of each feature; None if none was ever missing."""
    trust: Trust | None = None
    """(D,): what predictions of missing values are multiplied by, from 0 to 1."""
    robust: Robust | None = None

    def degrees(self, settings: Settings) -> float:
        """Factor that makes a variance divided by the weight unbiased."""
        if not settings.center:
            return 1.0
        if settings.half_life is None:
            return self.weight / (self.weight - 1.0) if self.weight > 1.0 else 1.0
        left = self.weight**2 - self.squares
        return self.weight**2 / left if left > 0 else 1.0


def view_of(model: Model, settings: Settings, exact: bool) -> View:
    """What a model shows; directions that the data does not have are completed, with no variance."""
    components, variances = principal(model, settings, settings.rank)
    check_learned(components, variances)
    components, variances = _completed(components, variances, min(settings.shown if settings.share is None else 1, settings.D))
    unit, total = model.unit or 1.0, total_variance(model, settings)
    scale = 1.0 if settings.standardize else 1.0 / unit
    if total < _FAINTEST:  # faded so far that sums of its parts are mostly rounding
        variances, total = np.zeros_like(variances), 0.0
    excess = float(variances.sum()) / max(total, np.finfo(np.float64).tiny)
    return View(
        flip_signs(components),
        variances / max(excess, 1.0) * scale * scale,  # rounding must not explain more than all of the variance
        total * scale * scale,
        model.variance / unit**2,
        model.full_mean / unit,
        np.where(model.variance > 0, deviations(model) / unit, 1.0) if settings.standardize else None,
        model.seen,
        model.weight,
        model.squares,
        model.axes,
        exact,
        model.signals,
        model.known,
        model.trust,
        model.robust,
    )


def _completed(components: Array, variances: Floats, least: int) -> tuple[Array, Floats]:
    k, D = components.shape
    if k >= least:
        return components, variances
    more = qr(np.hstack([components.T, np.eye(D, least - k)]), mode="economic", check_finite=False)[0].T[k:]
    return np.concatenate([components, more.astype(components.dtype)]), np.append(variances, np.zeros(least - k))
