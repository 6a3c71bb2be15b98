"""The learned attributes of an OnlinePCA, those with a trailing underscore, read from its view."""

from __future__ import annotations

import numbers
import warnings
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from online_psp.engine.blas import matmul
from online_psp.engine.types import Array, Floats
from online_psp.pca.axes import nearest_turn
from online_psp.pca.model import Model
from online_psp.pca.notices import Notices
from online_psp.pca.settings import Settings, check_components
from online_psp.pca.signals import Noise, count_signals
from online_psp.pca.uncertainty import Spectrum, alike, effective_rows, subspace_error, turned_away, variance_errors
from online_psp.pca.view import View

_ROUNDINGS = 64.0  # in a sum of variances


class Learned(BaseEstimator):
    """The attributes that are read from a view; the estimator itself does the learning."""

    n_components: Any
    whiten: bool | str

    @property
    def components_(self) -> Array:
        return self._shown(self._view())[0]

    @property
    def scores_covariance_(self) -> Floats:
        return self._shown(self._view())[1] * self._view().degrees(self._settings)

    @property
    def explained_variance_(self) -> Floats:
        return self._variances(self._view())

    @property
    def explained_variance_ratio_(self) -> Floats:
        view = self._view()
        along = np.diag(self._shown(view)[1])
        return along / view.total_variance if view.total_variance > 0 else np.zeros_like(along)

    @property
    def explained_variance_error_(self) -> Floats:
        view = self._view()
        return variance_errors(self._variances(view), self._spectrum(view))

    @property
    def component_errors_(self) -> Floats:
        view = self._view()
        K, spectrum = self._count(view), self._spectrum(view)
        if view.axes is None or len(view.axes) != K:
            return np.sqrt(turned_away(spectrum, K, alone=True))
        turn = matmul(self._shown(view)[0], view.components[:K].T)  # stable axes: how far they leave the subspace
        return np.sqrt(turn.astype(np.float64) ** 2 @ turned_away(spectrum, K))

    @property
    def subspace_error_(self) -> float:
        view = self._view()
        return subspace_error(self._spectrum(view), self._count(view))

    @property
    def not_told_apart_(self) -> list[tuple[int, int]]:
        view = self._view()
        return alike(self._spectrum(view), self._count(view))

    @property
    def singular_values_(self) -> Floats:
        view = self._view()
        return np.sqrt(np.diag(self._shown(view)[1]) * view.weight)

    @property
    def mean_(self) -> Array:
        return self._view().mean.astype(self._settings.working)

    @property
    def var_(self) -> Floats:
        view, settings = self._view(), self._settings
        if view.known is None or not settings.center or settings.half_life is not None:
            return view.feature_variances * view.degrees(settings)
        known = view.known  # every feature was observed in a different number of rows
        return np.asarray(view.feature_variances * np.where(known > 1.0, known / np.maximum(known - 1.0, 1e-12), 1.0))

    @property
    def scale_(self) -> Floats | None:
        return self._view().deviations

    @property
    def noise_variance_(self) -> float:
        return self._noise(self._view())

    @property
    def n_samples_seen_(self) -> int:
        return self._view().seen

    @property
    def effective_samples_(self) -> float:
        return self._view().weight

    @property
    def kish_samples_(self) -> float:
        view = self._view()
        return view.weight**2 / view.squares if view.squares > 0 else 0.0

    @property
    def n_components_(self) -> int:
        return self._count(self._view())

    @property
    def exact_(self) -> bool:
        return self._view().exact

    @property
    def _n_features_out(self) -> int:
        return len(self._view().mean) if self.whiten == "zca" else self.n_components_

    # Inside

    @property
    def _settings(self) -> Settings:
        raise NotImplementedError

    @property
    def _said(self) -> Notices:
        """The warnings that were given."""
        return self.__dict__.setdefault("_said_before", Notices())  # type: ignore[no-any-return]

    def _view(self) -> View:
        raise NotImplementedError

    def _now(self) -> Model:
        raise NotImplementedError

    def _check_number(self, settings: Settings) -> None:
        """Raise a ValueError if `n_components` was changed to more than the model keeps."""
        wanted: Any = self.n_components
        if isinstance(wanted, numbers.Integral) and int(wanted) > settings.rank:
            raise ValueError(
                f"n_components is {wanted} now, but the model keeps only {settings.rank} directions; start anew with fit to have more."
            )

    def _count(self, view: View) -> int:
        """The number of components."""
        wanted: Any = self.n_components
        check_components(wanted)
        if wanted is None:
            eps = np.finfo(self._settings.working).eps
            return max(1, int(np.sum(view.variances > len(view.mean) * eps * view.variances[0])))
        if isinstance(wanted, numbers.Integral):
            self._check_number(self._settings)
            return min(int(wanted), len(view.components))
        if isinstance(wanted, str):
            rows, fading = self._rows(view), self._settings.half_life is not None
            noise = Noise(int((view.feature_variances > 0).sum()), rows, fading)
            found = count_signals(view.variances, view.total_variance, noise, wanted, view.signals)
            if found == self._settings.rank < len(view.mean):
                warnings.warn(
                    f"All {found} directions kept stand out from noise; pass a larger `max_rank` to keep more.", UserWarning, stacklevel=3
                )
            return max(found, 1)
        explained = np.cumsum(view.variances) / max(view.total_variance, np.finfo(np.float64).tiny)
        enough = explained >= wanted - 1e-12
        if not enough.any() and view.total_variance > 0:
            warnings.warn(
                f"The {len(explained)} directions kept explain {explained[-1]:.3f} of the variance, less than the {wanted} asked for; "
                "pass a larger `max_rank` to keep more.",
                UserWarning,
                stacklevel=3,
            )
        return int(np.argmax(enough)) + 1 if enough.any() else len(explained)

    def _shown(self, view: View) -> tuple[Array, Floats]:
        """The components as they are shown, (K, D), and the covariance of coordinates along them, divided by the weight."""
        K = self._count(view)
        components, variances = view.components[:K], view.variances[:K]
        if view.axes is None or len(view.axes) != K:
            return components, np.diag(variances)
        turn = nearest_turn(components, view.axes)
        return matmul(turn.astype(components.dtype), components), (turn * variances) @ turn.T

    def _rows(self, view: View) -> float:
        return effective_rows(view.weight, view.squares, view.known, self._settings.center)

    def _spectrum(self, view: View) -> Spectrum:
        kept = len(view.variances)
        left_out = max(min(len(view.mean), view.seen) - kept, 0)
        return Spectrum(view.variances, self._lost(view) / max(left_out, 1), left_out, len(view.mean), self._rows(view))

    def _variances(self, view: View) -> Floats:
        return np.diag(self._shown(view)[1]) * view.degrees(self._settings)

    def _noise(self, view: View) -> float:
        K = self._count(view)
        left_out: int = min(len(view.mean), view.seen) - K
        if left_out <= 0:
            return 0.0
        rest = self._lost(view) + float(view.variances[K:].sum())
        return float(rest * view.degrees(self._settings) / left_out)

    def _lost(self, view: View) -> float:
        """Variance along all directions that were not kept.

        It is a difference of large numbers: where that is rounding, after a row of 1e9 for example, it is no more than if each of these
        directions had the variance of the last one kept.
        """
        total, kept = view.total_variance, len(view.variances)
        lost = max(total - float(view.variances.sum()), 0.0)
        if lost > _ROUNDINGS * np.finfo(self._settings.working).eps * total or not kept:
            return lost
        return min(lost, max(min(len(view.mean), view.seen) - kept, 0) * float(view.variances[-1]))

    def _gaussian(self, view: View) -> tuple[Array, Floats, float]:
        K = self._count(view)
        return view.components[:K], view.variances[:K] * view.degrees(self._settings), self._noise(view)

    def _scales(self, view: View) -> Floats:
        return np.sqrt(self._variances(view))

    def _deviations(self, dtype: np.dtype[Any], view: View) -> Array:
        """Standard deviations along the components, bounded away from zero; ones if nothing varies."""
        scale = self._scales(view)
        largest, least = float(scale.max(initial=0.0)), float(np.finfo(dtype).tiny)
        smallest = max(float(np.finfo(dtype).eps) * largest, least) if largest > least else 1.0
        return np.asarray(np.maximum(scale, smallest).astype(dtype))
