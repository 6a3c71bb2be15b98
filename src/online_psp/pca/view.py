"""What a model shows at one moment, in the units of the data: components, variances, and how far to trust them."""

from __future__ import annotations

import numbers
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import qr

from online_psp.engine.blas import matmul
from online_psp.engine.finite import check_learned
from online_psp.engine.types import Array, Floats
from online_psp.pca.axes import nearest_turn
from online_psp.pca.fill import Trust
from online_psp.pca.model import Model
from online_psp.pca.principal import deviations, flip_signs, principal, total_variance
from online_psp.pca.settings import Settings, check_components, check_kept
from online_psp.pca.signals import Noise, count_signals
from online_psp.pca.uncertainty import Spectrum, effective_rows, turned_away

_FAINTEST = float(np.finfo(np.float64).tiny / np.finfo(np.float64).eps)  # total variance in units of the stream, at the least
_ROUNDINGS = 64.0  # in a sum of variances


@dataclass(frozen=True, eq=False)
class View:
    """What can be read of a model: K components, and what is known beside them."""

    wanted: Any
    """`n_components`, which may have changed since the stream began."""
    settings: Settings
    directions: Array
    """(K', D): all that are kept, orthonormal, largest variance first; the entry of largest size in each is positive."""
    variances: Floats
    """(K',), divided by the weight."""
    total_variance: float
    feature_variances: Floats
    """(D,)"""
    mean: Floats
    """(D,)"""
    deviations: Floats | None
    """(D,): divisors of standardised features, whose directions these then are; None otherwise."""
    seen: int
    weight: float
    squares: float
    axes: Floats | None
    """(K, D): axes to stay near, if they are to be stable."""
    exact: bool
    """Whether nothing has been left out."""
    signals: int
    known: Floats | None
    """(D,): weight of the observed values of each feature; None if none was ever missing."""
    trust: Trust | None
    """What predictions of missing values are worth; None if none was ever missing."""

    @property
    def K(self) -> int:
        """The number of components."""
        wanted, kept, D = self.wanted, len(self.variances), len(self.mean)
        check_components(wanted)
        if wanted is None:
            eps = np.finfo(self.settings.working).eps
            return max(1, int(np.sum(self.variances > D * eps * self.variances[0])))
        if isinstance(wanted, numbers.Integral):
            check_kept(wanted, self.settings)
            return min(int(wanted), kept)
        if isinstance(wanted, str):
            noise = Noise(int((self.feature_variances > 0).sum()), self.rows, self.settings.half_life is not None)
            found = count_signals(self.variances, self.total_variance, noise, wanted, self.signals)
            if found == self.settings.rank < D:
                warnings.warn(
                    f"All {found} directions kept stand out from noise; pass a larger `max_rank` to keep more.", UserWarning, stacklevel=3
                )
            return max(found, 1)
        explained = np.cumsum(self.variances) / max(self.total_variance, np.finfo(np.float64).tiny)
        enough = explained >= wanted - 1e-12
        if not enough.any() and self.total_variance > 0:
            warnings.warn(
                f"The {kept} directions kept explain {explained[-1]:.3f} of the variance, less than the {wanted} asked for; "
                "pass a larger `max_rank` to keep more.",
                UserWarning,
                stacklevel=3,
            )
        return int(np.argmax(enough)) + 1 if enough.any() else kept

    @property
    def components(self) -> Array:
        """(K, D), orthonormal: the leading directions, turned to the axes to stay near where there are any."""
        components, turn = self.directions[: self.K], self._turn
        return components if turn is None else matmul(turn.astype(components.dtype), components)

    @property
    def _turn(self) -> Floats | None:
        """(K, K): from the leading directions to the components; None where these are the same."""
        K = self.K
        return None if self.axes is None or len(self.axes) != K else nearest_turn(self.directions[:K], self.axes)

    @property
    def covariance(self) -> Floats:
        """Covariance of coordinates along the components, (K, K), divided by the weight."""
        variances, turn = self.variances[: self.K], self._turn
        return np.diag(variances) if turn is None else (turn * variances) @ turn.T

    @property
    def along(self) -> Floats:
        """Variances along the components, (K,), divided by the weight."""
        return np.diag(self.covariance)

    @property
    def degrees(self) -> float:
        """Factor that makes a variance divided by the weight unbiased."""
        if not self.settings.center:
            return 1.0
        if self.settings.half_life is None:
            return self.weight / (self.weight - 1.0) if self.weight > 1.0 else 1.0
        left = self.weight**2 - self.squares
        return self.weight**2 / left if left > 0 else 1.0

    @property
    def explained_variance(self) -> Floats:
        return self.along * self.degrees

    @property
    def var(self) -> Floats:
        """Unbiased variances of the features, (D,)."""
        known = self.known
        if known is None or not self.settings.center or self.settings.half_life is not None:
            return self.feature_variances * self.degrees
        # Every feature was observed in a different number of rows.
        return np.asarray(self.feature_variances * np.where(known > 1.0, known / np.maximum(known - 1.0, 1e-12), 1.0))

    @property
    def rows(self) -> float:
        """Effective number of rows, less one if they are centred."""
        return effective_rows(self.weight, self.squares, self.known, self.settings.center)

    @property
    def spectrum(self) -> Spectrum:
        left_out = self._left_out(len(self.variances))
        return Spectrum(self.variances, self._lost / max(left_out, 1), left_out, len(self.mean), self.rows)

    @property
    def component_errors(self) -> Floats:
        if self._turn is None:
            return np.sqrt(turned_away(self.spectrum, self.K, alone=True))
        turn = matmul(self.components, self.directions[: self.K].T)  # stable axes: how far they leave the subspace
        return np.sqrt(turn.astype(np.float64) ** 2 @ turned_away(self.spectrum, self.K))

    @property
    def noise(self) -> float:
        """Mean variance along the directions that are no components."""
        K = self.K
        left_out, rest = self._left_out(K), self._lost + float(self.variances[K:].sum())
        return float(rest * self.degrees / left_out) if left_out else 0.0

    @property
    def gaussian(self) -> tuple[Array, Floats, float]:
        """The leading directions, (K, D), the variances along them, (K,), and elsewhere."""
        K = self.K
        return self.directions[:K], self.variances[:K] * self.degrees, self.noise

    def deviations_along(self, dtype: np.dtype[Any]) -> Array:
        """Standard deviations along the components, (K,), bounded away from zero; ones if nothing varies."""
        scale = np.sqrt(self.explained_variance)
        largest, least = float(scale.max(initial=0.0)), float(np.finfo(dtype).tiny)
        smallest = max(float(np.finfo(dtype).eps) * largest, least) if largest > least else 1.0
        return np.asarray(np.maximum(scale, smallest).astype(dtype))

    def _left_out(self, kept: int) -> int:
        """Number of directions that rows can have reached beyond so many."""
        return max(min(len(self.mean), self.seen) - kept, 0)

    @property
    def _lost(self) -> float:
        """Variance along all directions that were not kept.

        It is a difference of large numbers: where that is rounding, after a row of 1e9 for example, it is no more than if each of these
        directions had the variance of the last one kept.
        """
        total, kept = self.total_variance, len(self.variances)
        lost = max(total - float(self.variances.sum()), 0.0)
        if lost > _ROUNDINGS * np.finfo(self.settings.working).eps * total or not kept:
            return lost
        return min(lost, self._left_out(kept) * float(self.variances[-1]))


def view_of(model: Model, settings: Settings, exact: bool, wanted: Any) -> View:
    """What a model shows; directions that the data does not have are completed, with no variance."""
    directions, variances = principal(model, settings, settings.rank)
    check_learned(directions, variances)
    directions, variances = _completed(directions, variances, min(settings.shown if settings.share is None else 1, settings.D))
    unit, total = model.unit or 1.0, total_variance(model, settings)
    scale = 1.0 if settings.standardize else 1.0 / unit
    if total < _FAINTEST:  # faded so far that sums of its parts are mostly rounding
        variances, total = np.zeros_like(variances), 0.0
    excess = float(variances.sum()) / max(total, np.finfo(np.float64).tiny)
    return View(
        wanted,
        settings,
        flip_signs(directions),
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
    )


def _completed(directions: Array, variances: Floats, least: int) -> tuple[Array, Floats]:
    k, D = directions.shape
    if k >= least:
        return directions, variances
    more = qr(np.hstack([directions.T, np.eye(D, least - k)]), mode="economic", check_finite=False)[0].T[k:]
    return np.concatenate([directions, more.astype(directions.dtype)]), np.append(variances, np.zeros(least - k))
