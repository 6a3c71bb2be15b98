"""OnlinePCA, and anomaly detection with it, with river's interface. Needs river: ``pip install online-psp[river]``.

>>> from online_psp.integrations.river import OnlinePCA
>>> pca = OnlinePCA(n_components=1)
>>> for x in ({"a": 1.0, "b": 2.0}, {"a": 2.0, "b": 4.1}, {"a": 3.0, "b": 5.9}):
...     pca.learn_one(x)
>>> sorted(pca.transform_one({"a": 2.0, "b": 4.0}))
['pc0']
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from online_psp.engine.types import Array
from online_psp.monitoring import Monitor
from online_psp.pca import estimator as _pca

try:
    from river import base
except ImportError as error:  # pragma: no cover
    raise ImportError("online_psp.integrations.river needs river; install it with: pip install 'online-psp[river]'") from error

if hasattr(base, "AnomalyDetector"):
    from river.base import AnomalyDetector
else:  # before river 0.24
    from river.anomaly.base import AnomalyDetector

if TYPE_CHECKING:
    import pandas as pd


class OnlinePCA(base.MiniBatchTransformer):
    """Principal components of a stream of dictionaries.

    The features are those of the first sample, in any order. A feature that is absent, None or NaN later is a missing value; a new
    feature is ignored.

    Parameters
    ----------
    n_components
        Number of components; outputs are named ``pc0``, ``pc1``, …
    oversample
        Directions kept beyond `n_components`; as many again and 32 more by default.
    whiten
        Whether to scale the outputs to unit variances.

    Examples
    --------

    >>> from online_psp.integrations.river import OnlinePCA
    >>> pca = OnlinePCA(n_components=1)
    >>> pca.learn_one({"a": 1.0, "b": 0.0})
    >>> pca.learn_one({"a": 3.0, "b": 0.0})
    >>> abs(round(pca.transform_one({"a": 3.0, "b": 0.0})["pc0"], 6))
    1.0

    """

    def __init__(self, n_components: int = 2, oversample: int | None = None, whiten: bool = False) -> None:
        self.n_components = n_components
        self.oversample = oversample
        self.whiten = whiten
        self._features: list[Any] = []
        self._model: _pca.OnlinePCA | None = None

    def learn_one(self, x: dict[Any, Any]) -> None:
        """Learn from one sample."""
        self._start(list(x))
        if self._model is not None:
            row = _row(x, self._features)
            if self._model.__sklearn_is_fitted__():
                self._model.fit_next(row)
            else:
                self._model.partial_fit(row[np.newaxis])

    def transform_one(self, x: dict[Any, Any]) -> dict[str, float]:
        """Coordinates along the components; zero before anything is learned."""
        scores = np.zeros(self.n_components)
        if self._model is not None:
            found = self._model.transform(_row(x, self._features)[np.newaxis])[0]
            scores[: len(found)] = found
        return {f"pc{k}": float(score) for k, score in enumerate(scores)}

    def learn_many(self, X: pd.DataFrame) -> None:
        """Learn from the rows of a data frame."""
        self._start(list(X.columns))
        if self._model is not None and len(X):
            self._model.partial_fit(self._rows(X))

    def transform_many(self, X: pd.DataFrame) -> pd.DataFrame:
        """Coordinates of the rows of a data frame."""
        import pandas as pd

        scores = np.zeros((len(X), self.n_components))
        if self._model is not None and len(X):
            found = self._model.transform(self._rows(X))
            scores[:, : found.shape[1]] = found
        return pd.DataFrame(scores, index=X.index, columns=[f"pc{k}" for k in range(self.n_components)], copy=False)

    def _start(self, features: list[Any]) -> None:
        if self._model is None and features:
            self._features, kept = sorted(features, key=str), min(self.n_components, len(features))
            self._model = _pca.OnlinePCA(kept, oversample=self.oversample, whiten=self.whiten, missing="impute")

    def _rows(self, X: pd.DataFrame) -> Array:
        return np.asarray(X.reindex(columns=self._features).to_numpy(dtype=np.float64, na_value=np.nan))


class SubspaceAnomaly(AnomalyDetector):
    """Anomaly detector: scores samples by their distance from the principal subspace, and by how far out they are within it.

    The score is the larger of Hotelling's T² and the squared prediction error (SPE), each in units of its limit at the level `alpha`:
    ordinary samples rarely exceed 1. It is 0 before there are enough samples to tell, at least twenty.

    The features are those of the first sample, in any order. A feature that is absent, None or NaN later is replaced by what the model
    expects given the others, so it does not affect the score; a new feature is ignored.

    Parameters
    ----------
    n_components
        Largest number of components of the subspace.
    half_life
        Number of samples after which a sample counts half; by default nothing is forgotten.
    alpha
        Share of ordinary samples that exceed each limit.
    learn_outliers
        Whether to learn from samples that exceed a limit.

    Examples
    --------

    >>> import random
    >>> from online_psp.integrations.river import SubspaceAnomaly
    >>> rng = random.Random(0)
    >>> model = SubspaceAnomaly(n_components=1)
    >>> for _ in range(200):
    ...     a = rng.gauss(0, 1)
    ...     model.learn_one({"a": a, "b": 2 * a + rng.gauss(0, 0.1), "c": -a + rng.gauss(0, 0.1)})
    >>> model.score_one({"a": 1.0, "b": 2.0, "c": -1.0}) < 1
    True
    >>> model.score_one({"a": 1.0, "b": 2.0, "c": 1.0}) > 1
    True

    """

    def __init__(self, n_components: int = 2, half_life: float | None = None, alpha: float = 0.01, learn_outliers: bool = True) -> None:
        self.n_components = n_components
        self.half_life = half_life
        self.alpha = alpha
        self.learn_outliers = learn_outliers
        self._features: list[Any] = []
        self._monitor: Monitor | None = None

    def learn_one(self, x: dict[Any, Any]) -> None:
        """Learn from one sample."""
        if self._monitor is None:
            if not x:
                return
            model = _pca.OnlinePCA(min(self.n_components, len(x)), half_life=self.half_life)
            monitor = Monitor(model, alpha=self.alpha, learn_outliers=self.learn_outliers, run_length=None)
            features = sorted(x, key=str)
            monitor.update_one(_row(x, features))
            self._monitor, self._features = monitor, features
        else:
            self._monitor.update_one(self._row(x))

    def score_one(self, x: dict[Any, float]) -> float:
        """The larger of the two scores, each in units of its limit; 0 before there are enough samples."""
        if self._monitor is None:
            return 0.0
        found = self._monitor.score(self._row(x)[np.newaxis])
        shares = (found.t2[0] / found.t2_limit[0], found.spe[0] / found.spe_limit[0])
        return max((float(share) for share in shares if np.isfinite(share)), default=0.0)

    def _row(self, x: dict[Any, Any]) -> Array:
        """A sample as a row, (D,), with missing values replaced by what the model expects."""
        assert self._monitor is not None
        row, model = _row(x, self._features), self._monitor.model
        return np.asarray(model.impute(row[np.newaxis])[0]) if np.isnan(row).any() and model.__sklearn_is_fitted__() else row


def _row(x: dict[Any, Any], features: list[Any]) -> Array:
    """A sample as a row, (D,); NaN where a feature is absent or None."""
    values = [x.get(feature) for feature in features]
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
