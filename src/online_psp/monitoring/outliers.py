"""SubspaceOutlierDetector: outliers by their distance from and within the principal subspace, with scikit-learn's interface."""

from __future__ import annotations

import math
import numbers
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, OutlierMixin
from sklearn.utils.validation import check_is_fitted

from online_psp.engine.libraries import to_host
from online_psp.engine.types import Floats
from online_psp.monitoring.limits import check_alpha, limits_of
from online_psp.monitoring.monitor import Monitor
from online_psp.monitoring.scores import Snapshot, score, snapshot
from online_psp.pca import OnlinePCA
from online_psp.pca.checks import check_rows, check_values

_LARGEST = 1e300


class SubspaceOutlierDetector(OutlierMixin, BaseEstimator):
    """Finds rows that are far from the principal subspace, or far out within it; learns from a stream or from all rows at once.

    Parameters
    ----------
    n_components : int, float or None
        As for `OnlinePCA`; by default enough to explain nine tenths of the variance.
    alpha : float
        Share of ordinary Gaussian rows that are called outliers, by either score: each has a limit at the level ``1 − sqrt(1 − alpha)``, or
        at `alpha` if there are as many components as features and the SPE is always zero.
    contamination : "auto" or float
        Share of the rows given to `fit` that are to be called outliers, in (0, 0.5], in place of `alpha`. It needs all rows at once, so
        it cannot be used with `partial_fit`.
    half_life : float, optional
        Number of rows after which a row counts half; by default nothing is forgotten.
    learn_outliers : bool
        Whether to learn from rows that are called outliers when they arrive; as for `Monitor`.

    Attributes
    ----------
    model_ : OnlinePCA
    offset_ : float
        ``decision_function = score_samples − offset_``.
    n_features_in_ : int
    feature_names_in_ : (D,)
        Set if the data had column names.

    Examples
    --------
    >>> import numpy as np
    >>> from online_psp.monitoring import SubspaceOutlierDetector
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((500, 2)) @ rng.standard_normal((2, 20)) + 0.1 * rng.standard_normal((500, 20))
    >>> detector = SubspaceOutlierDetector(2).fit(X)
    >>> detector.predict([X[0], X[0] + 1])
    array([ 1, -1])
    """

    def __init__(
        self,
        n_components: int | float | None = 0.9,
        *,
        alpha: float = 0.05,
        contamination: float | str = "auto",
        half_life: float | None = None,
        learn_outliers: bool = True,
    ) -> None:
        self.n_components: Any = n_components
        self.alpha = alpha
        self.contamination: Any = contamination
        self.half_life = half_life
        self.learn_outliers = learn_outliers

    def fit(self, X: ArrayLike, y: None = None) -> Self:
        """Learn from the rows of X, (n, D); everything learned before is forgotten."""
        contamination = self._contamination()
        monitor = self._begun()
        monitor.update(X)
        self._take(monitor)
        if contamination is not None:
            self.offset_ = float(np.percentile(self.score_samples(X), 100.0 * contamination))
        return self

    def partial_fit(self, X: ArrayLike, y: None = None) -> Self:
        """Learn from more rows, (n, D). The result does not depend on how a stream is cut into calls."""
        if self._contamination() is not None:
            raise ValueError("contamination needs all rows at once: call fit, or leave it 'auto' and give alpha.")
        monitor: Monitor = self.__dict__.get("_monitor") or self._begun()
        wanted = check_alpha(self.alpha), self.half_life, self.learn_outliers
        if (monitor.alpha, monitor.model.half_life, monitor.learn_outliers) != (_each(wanted[0]), *wanted[1:]):
            raise ValueError("alpha, half_life or learn_outliers has changed since learning began; set it back, or start anew with fit.")
        monitor.model.n_components = self.n_components
        monitor.update(X)
        self._take(monitor)
        return self

    def score_samples(self, X: ArrayLike) -> Floats:
        """How ordinary rows are, (n,): minus the larger of T² and SPE, each in units of its limit."""
        check_is_fitted(self)
        rows = check_rows(self, X, None, reset=False)
        check_values(rows, 1.0)
        seen = snapshot(self.model_)
        t2_limit, spe_limit = self._limits(seen)
        found = score(seen, rows)
        with np.errstate(over="ignore"):  # if all rows are the same, the limit is almost zero
            worst = np.maximum(np.asarray(to_host(found.t2)) / t2_limit, np.asarray(to_host(found.spe)) / spe_limit)
        return np.asarray(-np.minimum(worst, _LARGEST), dtype=np.float64)

    def decision_function(self, X: ArrayLike) -> Floats:
        """How far rows are from being outliers, (n,); negative for outliers."""
        return self.score_samples(X) - self.offset_

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """1 for ordinary rows and −1 for outliers, (n,)."""
        return np.where(self.decision_function(X) < 0, -1, 1)

    # Inside

    def _begun(self) -> Monitor:
        if isinstance(self.half_life, str):
            raise ValueError(f"half_life must be a number of rows, or None, because rows have no times here; got {self.half_life!r}.")
        model = OnlinePCA(self.n_components, half_life=self.half_life)
        return Monitor(model, alpha=_each(check_alpha(self.alpha)), learn_outliers=self.learn_outliers, run_length=None)

    def _take(self, monitor: Monitor) -> None:
        self._monitor, self.model_, self.offset_ = monitor, monitor.model, -1.0
        self.n_features_in_ = monitor.model.n_features_in_
        names = getattr(monitor.model, "feature_names_in_", None)
        if names is not None:
            self.feature_names_in_ = names
        else:
            self.__dict__.pop("feature_names_in_", None)

    def _limits(self, seen: Snapshot) -> tuple[float, float]:
        """Limits that are never NaN; rough ones while there are few rows."""
        level = self._monitor.alpha if len(seen.variances) < len(seen.mean) else check_alpha(self.alpha)
        if seen.samples < 2.0:  # one row tells nothing about others
            return math.inf, math.inf
        rough = seen._replace(samples=max(seen.samples, len(seen.variances) + 1.0))
        t2_limit, spe_limit = limits_of(rough, self._monitor.moments, level)
        return (
            1.0 if math.isnan(t2_limit) else t2_limit,  # without any variance T² is zero
            limits_of(seen, None, level)[1] if math.isnan(spe_limit) else spe_limit,
        )

    def _contamination(self) -> float | None:
        given = self.contamination
        if isinstance(given, str) and given == "auto":
            return None
        if isinstance(given, bool) or not isinstance(given, numbers.Real) or not 0.0 < float(given) <= 0.5:
            raise ValueError(f"contamination must be in (0, 0.5], or 'auto'; got {given!r}.")
        return float(given)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_monitor")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _each(alpha: float) -> float:
    """The level of each of two independent limits, such that at least one is exceeded with probability alpha."""
    return 1.0 - math.sqrt(1.0 - alpha)
