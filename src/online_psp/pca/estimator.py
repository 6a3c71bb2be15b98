"""OnlinePCA: a scikit-learn transformer over any of the algorithms.

Three phases, which the user does not see:

*exact* (`exact.py`)
    While nothing needs to be left out: the answer is that of batch PCA. Data with few features, or few directions, stays here for ever.
*streaming*
    The algorithm goes on from those K' directions with their variances.
*read-out*
    When somebody asks, the K' directions are turned into ordered principal components, and the top K given.
"""

from __future__ import annotations

import math
import numbers
import os
import warnings
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from online_psp.engine.arrays import ForeignRows, Kind, to_host
from online_psp.engine.blas import dot, matmul
from online_psp.engine.moments import merge_moments
from online_psp.engine.types import Array, Floats, Rate
from online_psp.pca.exact import ReadOut, merge_scatter
from online_psp.pca.likelihood import covariance, log_likelihood, precision
from online_psp.pca.settings import check_parameters, check_rows, check_weights, foreign_namespace, rank_for
from online_psp.pca.stream import Stream


class OnlinePCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Principal component analysis of a stream, in one pass and O(DK) memory.

    A drop-in for `sklearn.decomposition.IncrementalPCA`: the same calls and attributes, about ten times faster and far more accurate. With
    few features (up to six times the directions kept), or data of few directions, the result is exactly that of batch PCA.

    Parameters
    ----------
    n_components : int, float or None
        How many components. A float in (0, 1) asks for as many as explain that share of the variance; None for as many as the data
        has directions.
    algorithm : {"fsm", "sm", "ipca", "ccipca"}
        What learns.
    oversample : int, optional
        Directions kept beyond `n_components`; as many again and eight more by default, within the number of features. More of them make
        the result more accurate, and cost in proportion. With a float `n_components`: how many are kept in all, 128 by default.
    gamma : float
        Step size ``2/(gamma (t−1) + 2)`` for FSM and SM: 2 weighs all samples alike, less forgets the old ones faster.
    ell : float
        Amnesia of CCIPCA.
    learning_rate : callable, optional
        ``t → α_t`` in (0, 1), with t the weight seen so far; in place of `gamma` and `ell`.
    center : bool
        Subtract the mean, which is learned exactly along the way.
    whiten : bool
        Scale the output of `transform` to unit variances.
    block_size : int or "auto"
        Samples compressed at a time. It changes speed, not results.
    dtype : float32, float64 or None
        Working precision; None keeps float32 data in float32 and takes everything else to float64.
    random_state : None
        Nothing here is random; it is accepted so that code written for other estimators runs.

    Attributes
    ----------
    components_ : (n_components_, D)
        Orthonormal rows, largest variance first; the entry of largest size in each is positive.
    explained_variance_, explained_variance_ratio_, singular_values_ : (n_components_,)
    mean_ : (D,)
    noise_variance_ : float
        Mean variance along the directions left out. The total is tracked exactly.
    n_components_, n_features_in_, n_samples_seen_ : int
    feature_names_in_ : (D,)
        Where the data had column names.

    Examples
    --------
    >>> import numpy as np
    >>> from online_psp import OnlinePCA
    >>> X = np.random.default_rng(0).standard_normal((1000, 50)) * np.linspace(3, 0.1, 50)
    >>> pca = OnlinePCA(n_components=5)
    >>> for block in np.array_split(X, 10):
    ...     pca = pca.partial_fit(block)
    >>> pca.transform(X).shape
    (1000, 5)
    """

    def __init__(
        self,
        n_components: int | float | None = None,
        *,
        algorithm: str = "fsm",
        oversample: int | None = None,
        gamma: float = 2.0,
        ell: float = 2.0,
        learning_rate: Rate | None = None,
        center: bool = True,
        whiten: bool = False,
        block_size: int | str = "auto",
        dtype: DTypeLike | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_components: Any = n_components
        self.algorithm = algorithm
        self.oversample: Any = oversample
        self.gamma = gamma
        self.ell = ell
        self.learning_rate = learning_rate
        self.center = center
        self.whiten = whiten
        self.block_size = block_size
        self.dtype = dtype
        self.random_state = random_state

    # Learning

    def fit(self, X: ArrayLike, y: None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Learn from the rows of X alone, in one pass; the arguments are those of `partial_fit`."""
        return self._fit(X, sample_weight, anew=True)

    def partial_fit(self, X: ArrayLike, y: None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Learn from some more rows, one or many; however a stream is cut into calls, the model is the same.

        Parameters
        ----------
        X : (n, D)
        y : ignored
        sample_weight : (n,), optional
            Weights act as repeated samples.
        """
        return self._fit(X, sample_weight, anew=not hasattr(self, "_stream"))

    def _fit(self, X: ArrayLike, sample_weight: ArrayLike | None, anew: bool) -> Self:
        if anew:
            check_parameters(self)
        rows = check_rows(self, X, reset=anew)
        weights = check_weights(sample_weight, rows)
        if anew:
            D = rows.shape[1]
            self._stream = Stream(rank_for(self.n_components, self.oversample, D), D, rows.dtype)
        self._stream.learn(rows, weights, self)
        return self

    def fit_next(self, x: Array) -> Array:
        """Learn from one sample, with little overhead: shape and finiteness are checked, no more.

        Parameters
        ----------
        x : (D,)

        Returns
        -------
        y : (n_components,)
            Its projection on the components as of their last read-out (refreshed ever more rarely, at least every ``16 K'`` samples).
        """
        stream: Stream | None = self.__dict__.get("_stream")
        if stream is None:
            row = np.asarray(x)
            if row.ndim != 1:
                raise ValueError(f"fit_next takes one sample of shape (D,); got shape {row.shape}.")
            self.partial_fit(row[np.newaxis])
            stream = self._stream
        else:
            row = np.array(x, dtype=stream.dtype)
            if row.shape != (self.n_features_in_,):
                raise ValueError(f"fit_next takes one sample of shape ({self.n_features_in_},); got shape {row.shape}.")
            if not math.isfinite(dot(row, row)):
                raise ValueError("The sample has NaN, infinity or values whose squares overflow; every value must be finite.")
            stream.learn_one(row, self)
        weight = stream.moments.weight
        if weight >= stream.refresh_at:
            stream.refresh_at = weight + min(weight / 4, 16 * stream.rank)
            components = self.components_
            if self.whiten:  # along directions without variance there is nothing to see
                scale, known = np.zeros(len(components)), self.explained_variance_ > 0
                scale[known] = 1.0 / self._deviations(np.dtype(np.float64))[known]
                components = scale[:, np.newaxis] * components
            stream.components = np.ascontiguousarray(components, dtype=stream.dtype)
        point = np.asarray(x, dtype=stream.dtype)
        if self.center:
            point = (point - stream.moments.mean).astype(stream.dtype, copy=False)
        return matmul(stream.components, point)

    def merge(self, other: OnlinePCA) -> Self:
        """Take in what another model has learned from other rows, as if this one had seen them too.

        Means, counts and total variance come out exact. The components are those of the two truncated models together: the error is that of
        keeping K' directions of each, about twice that of one pass at worst.

        Parameters
        ----------
        other : OnlinePCA
            Fitted, with the same number of features; it is left alone.
        """
        for model in (self, other):
            check_is_fitted(model)
        if self.n_features_in_ != other.n_features_in_:
            raise ValueError(f"Models must have the same number of features; got {self.n_features_in_} and {other.n_features_in_}.")
        if self.center != other.center:
            raise ValueError("A model that centres and one that does not cannot be merged.")
        mine, others = self._stream, other._stream
        moments, between = merge_moments(mine.moments, others.moments)
        if not self.center:
            moments, between = moments._replace(scatter=mine.moments.scatter + others.moments.scatter), np.zeros_like(between)
        merged = Stream(mine.rank, self.n_features_in_, mine.dtype)
        merged.moments, merged.n_samples = moments, mine.n_samples + others.n_samples
        merged.exact, rest = merge_scatter([mine.read_out(), others.read_out()], between[np.newaxis], mine.rank, mine.dtype)
        if rest is not None:
            merged.go_on_from(rest, self)
        self._stream = merged
        return self

    # Using

    def transform(self, X: ArrayLike) -> Any:
        """Coordinates of rows along the components, (n, n_components_)."""
        check_is_fitted(self)
        rows = check_rows(self, X, reset=False)
        if isinstance(rows, ForeignRows):
            components = self.components_
            scores: Any = rows.scores(components, self.mean_.astype(np.float64) @ components.T)
            return scores / rows.kind.of(self._deviations(rows.dtype)) if self.whiten else scores
        return self._scores(rows, self.components_)

    def inverse_transform(self, X: ArrayLike) -> Array:
        """Rows that have the given coordinates, (n, D)."""
        check_is_fitted(self)
        xp = foreign_namespace(X)
        scores = np.asarray(X) if xp is None else to_host(X)
        components = self.components_
        if self.whiten:
            components = np.sqrt(self.explained_variance_)[:, np.newaxis].astype(components.dtype) * components
        rows: Array = matmul(scores, components) + self.mean_
        return rows if xp is None else Kind(xp, X, rows.dtype).of(rows)

    def score_samples(self, X: ArrayLike) -> Floats:
        """Log-likelihood of each row under the probabilistic PCA model, (n,)."""
        check_is_fitted(self)
        rows = check_rows(self, X, reset=False)
        return log_likelihood(rows.toarray() if isinstance(rows, ForeignRows) else rows, self.mean_, *self._gaussian())

    def score(self, X: ArrayLike, y: None = None) -> float:
        """Mean log-likelihood of the rows."""
        return float(np.mean(self.score_samples(X)))

    def get_covariance(self) -> Floats:
        """The covariance of the probabilistic PCA model, (D, D)."""
        check_is_fitted(self)
        return covariance(*self._gaussian())

    def get_precision(self) -> Floats:
        """Its inverse, (D, D)."""
        check_is_fitted(self)
        return precision(*self._gaussian())

    def _gaussian(self) -> tuple[Array, Floats, float]:
        return self.components_, self.explained_variance_, self.noise_variance_

    # Files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a file, as it stands; one that is loaded again goes on bit for bit.

        A name that ends in ``.mat`` gives a file for MATLAB and Octave, with what was learned but not the state to go on from.
        """
        from online_psp.pca import snapshot as pca_state

        pca_state.save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, learning_rate: Rate | None = None) -> Self:
        """Read a model that `save`, ``psp fit`` or, for ``.mat``, MATLAB's ``save_model`` has written.

        Parameters
        ----------
        path : path
        learning_rate : callable, optional
            Where the model had one: functions cannot be stored.
        """
        from online_psp.pca import snapshot as pca_state

        model: Any = pca_state.load(path, learning_rate, cls)[0]
        return model  # type: ignore[no-any-return]

    # What was learned

    @property
    def components_(self) -> Array:
        return self._read_out().components[: self.n_components_]

    @property
    def explained_variance_(self) -> Floats:
        return self._read_out().scatter[: self.n_components_] / self._degrees()

    @property
    def explained_variance_ratio_(self) -> Floats:
        total = self._fitted().moments.scatter
        scatter = self._read_out().scatter[: self.n_components_]
        return scatter / total if total > 0 else np.zeros_like(scatter)

    @property
    def singular_values_(self) -> Floats:
        return np.sqrt(self._read_out().scatter[: self.n_components_])

    @property
    def mean_(self) -> Array:
        stream = self._fitted()
        return stream.moments.mean.astype(stream.dtype)

    @property
    def noise_variance_(self) -> float:
        stream = self._fitted()
        left_out: int = min(self.n_features_in_, stream.n_samples) - self.n_components_
        if left_out <= 0:
            return 0.0
        rest = stream.moments.scatter - float(self._read_out().scatter[: self.n_components_].sum())
        return float(max(rest, 0.0) / self._degrees() / left_out)

    @property
    def n_samples_seen_(self) -> int:
        return self._fitted().n_samples

    @property
    def n_components_(self) -> int:
        wanted: Any = self.n_components
        D: int = self.n_features_in_
        if wanted is None:
            scatter = self._read_out().scatter
            return max(1, int(np.sum(scatter > D * np.finfo(self._fitted().dtype).eps * scatter[0])))
        if isinstance(wanted, numbers.Integral):
            return min(int(wanted), D)
        explained = np.cumsum(self._read_out().scatter) / max(self._fitted().moments.scatter, np.finfo(np.float64).tiny)
        enough = explained >= wanted - 1e-12
        if not enough.any() and self._fitted().moments.scatter > 0:
            warnings.warn(
                f"The {len(explained)} directions kept explain {explained[-1]:.3f} of the variance, less than the {wanted} asked for; "
                "pass a larger `oversample` to keep more.",
                UserWarning,
                stacklevel=2,
            )
        return int(np.argmax(enough)) + 1 if enough.any() else len(explained)

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    # Inside

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_stream")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _fitted(self) -> Stream:
        stream: Stream | None = self.__dict__.get("_stream")
        if stream is None:
            raise NotFittedError(f"This {type(self).__name__} has seen no data yet; call fit or partial_fit first.")
        return stream

    def _read_out(self) -> ReadOut:
        return self._fitted().read_out()

    def _degrees(self) -> float:
        """What the scatter is divided by to give variances."""
        weight = self._fitted().moments.weight
        return max(weight - 1.0, 1.0) if self.center else max(weight, 1.0)

    def _scores(self, rows: Array, components: Array) -> Array:
        scores: Array = rows @ components.T if issparse(rows) else matmul(rows, components.T)
        if self.center:
            scores -= (self._stream.moments.mean @ components.T).astype(scores.dtype)
        if self.whiten:
            scores /= self._deviations(scores.dtype)
        return scores

    def _deviations(self, dtype: np.dtype[Any]) -> Array:
        """Standard deviations along the components, kept from zero."""
        scale = np.sqrt(self.explained_variance_)
        smallest = np.finfo(dtype).eps * max(float(scale[0]), float(np.finfo(np.float64).tiny))
        return np.asarray(np.maximum(scale, smallest).astype(dtype))
