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
from online_psp.pca.settings import CAREFUL

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
    algorithm
        Streaming algorithm to use: "block", "fsm", "sm", "ipca" or "ccipca", as in `online_psp.OnlinePCA`.
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

    def __init__(
        self,
        n_components: int = 2,
        algorithm: str = "block",
        oversample: int | None = None,
        whiten: bool = False,
    ) -> None:
        self.n_components = n_components
        self.algorithm = algorithm
        self.oversample = oversample
        self.whiten = whiten
        self._features: list[Any] = []
        self._model: _pca.OnlinePCA | None = None

    def learn_one(self, x: dict[Any, Any]) -> None:
        """Learn from one sample."""
        self._start(list(x))
        if self._model is not None:
            row = self._row(x)
            if self._model.__sklearn_is_fitted__():
                self._model.fit_next(row)
            else:
                self._model.partial_fit(row[np.newaxis])

    def transform_one(self, x: dict[Any, Any]) -> dict[str, float]:
        """Coordinates along the components; zero before anything is learned."""
        scores = np.zeros(self.n_components)
        if self._model is not None:
            found = self._model.transform(self._row(x)[np.newaxis])[0]
            scores[: len(found)] = found
        return {f"pc{k}": float(score) for k, score in enumerate(scores)}

    def learn_many(self, X: pd.DataFrame) -> None:
        """Learn from the rows of a data frame."""
        self._start(list(X.columns))
        if self._model is None or not len(X):
            return
        rows = np.asarray(X.reindex(columns=self._features).to_numpy(dtype=np.float64, na_value=np.nan))
        if self._model.missing == "impute" or not np.isnan(rows).any():
            self._model.partial_fit(rows)
            return
        for row in rows:  # the expected values of a row follow from the rows before it
            self._model.partial_fit(_expected(self._model, row[np.newaxis]))

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
            self._features = sorted(features, key=str)
            self._model = _pca.OnlinePCA(
                min(self.n_components, len(features)),
                algorithm=self.algorithm,
                oversample=self.oversample,
                whiten=self.whiten,
                missing="impute" if self.algorithm in CAREFUL else "error",
            )

    def _row(self, x: dict[Any, Any]) -> Array:
        return np.asarray(self._usable(_row(x, self._features)[np.newaxis])[0])

    def _rows(self, X: pd.DataFrame) -> Array:
        return self._usable(np.asarray(X.reindex(columns=self._features).to_numpy(dtype=np.float64, na_value=np.nan)))

    def _usable(self, rows: Array) -> Array:
        """Rows in the form that the model takes: the published algorithms need missing values filled in."""
        assert self._model is not None
        return rows if self._model.missing == "impute" else _expected(self._model, rows)


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
        assert self._monitor is not None
        return np.asarray(_expected(self._monitor.model, _row(x, self._features)[np.newaxis])[0])


def _row(x: dict[Any, Any], features: list[Any]) -> Array:
    """A sample as a row, (D,); NaN where a feature is absent or None."""
    values = [x.get(feature) for feature in features]
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _expected(model: _pca.OnlinePCA, rows: Array) -> Array:
    """Rows, (n, D), with missing values replaced by what the model expects, for algorithms that take no missing values."""
    if not np.isnan(rows).any() or not model.__sklearn_is_fitted__():
        return rows
    return np.asarray(model.impute(rows))
