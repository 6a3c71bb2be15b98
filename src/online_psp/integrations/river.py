"""OnlinePCA with river's interface. Needs river: ``pip install online-psp[river]``.

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
from online_psp.pca import estimator as _pca

try:
    from river import base
except ImportError as error:  # pragma: no cover
    raise ImportError("online_psp.integrations.river needs river; install it with: pip install 'online-psp[river]'") from error

if TYPE_CHECKING:
    import pandas as pd


class OnlinePCA(base.MiniBatchTransformer):
    """Principal components of a stream of dictionaries.

    The features are those of the first sample, in any order. A feature that is missing later counts as its mean so far, so that it says
    nothing; one that turns up later is not used.

    Parameters
    ----------
    n_components
        How many components; outputs are named ``pc0``, ``pc1``, …
    algorithm
        One of fsm, sm, ipca, ccipca.
    oversample
        Directions kept beyond `n_components`; as many again and eight more by default.
    whiten
        Scale the outputs to unit variances.

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
        algorithm: str = "fsm",
        oversample: int | None = None,
        whiten: bool = False,
    ) -> None:
        self.n_components = n_components
        self.algorithm = algorithm
        self.oversample = oversample
        self.whiten = whiten
        self._features: list[Any] = []
        self._model: _pca.OnlinePCA | None = None

    def learn_one(self, x: dict[Any, float]) -> None:
        """Learn from one sample."""
        self._start(list(x))
        if self._model is not None:
            row = self._row(x)
            if self._model.__sklearn_is_fitted__():
                self._model.fit_next(row)
            else:
                self._model.partial_fit(row[np.newaxis])

    def transform_one(self, x: dict[Any, float]) -> dict[str, float]:
        """Coordinates along the components; zero before anything was learned."""
        scores = np.zeros(self.n_components)
        if self._model is not None:
            found = self._model.transform(self._row(x)[np.newaxis])[0]
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
            self._features = sorted(features, key=str)
            self._model = _pca.OnlinePCA(
                min(self.n_components, len(features)),
                algorithm=self.algorithm,
                oversample=self.oversample,
                whiten=self.whiten,
            )

    def _mean(self) -> Array:
        assert self._model is not None
        return self._model.mean_ if self._model.__sklearn_is_fitted__() else np.zeros(len(self._features))

    def _row(self, x: dict[Any, float]) -> Array:
        if any(feature not in x for feature in self._features):
            mean = self._mean()
            return np.array([x.get(feature, mean[i]) for i, feature in enumerate(self._features)], dtype=np.float64)
        return np.array([x[feature] for feature in self._features], dtype=np.float64)

    def _rows(self, X: pd.DataFrame) -> Array:
        missing = [feature for feature in self._features if feature not in X.columns]
        if missing:
            X = X.assign(**{str(feature): self._mean()[self._features.index(feature)] for feature in missing})
        return np.asarray(X[self._features].to_numpy(dtype=np.float64))
