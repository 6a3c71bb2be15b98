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
from scipy.linalg import pinvh
from scipy.sparse import issparse
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from online_psp._state import WritableState
from online_psp.algorithms import ALGORITHMS
from online_psp.arrays import ForeignRows, Kind, namespace_of, to_host
from online_psp.exact import Exact, Kept, ReadOut, Scatter, exact_phase, merge_scatter
from online_psp.sparse import Centre, SparseRows, add_to_scatter, centred_squares
from online_psp.standardize import Moments, center_rows, merge_moments
from online_psp.types import Array, Floats, Rate

_BLOCK_BYTES = 1 << 22
_ONE = np.ones(1)
_FLOAT_RANK = 128  # directions kept when the number of components is a fraction of variance


class Stream(WritableState):
    """Everything learned; `fit` replaces it as a whole."""

    def __init__(self, rank: int, D: int, dtype: np.dtype[Any]) -> None:
        self.rank, self.dtype = rank, dtype
        self.exact: Exact | None = exact_phase(rank, D, dtype)
        self.model: Any = None  # the algorithm, once the exact phase is over
        self.centre: Centre | None = None  # the moments, while the rows are sparse
        self.moments = Moments(0.0, np.zeros(D), 0.0)
        self.n_samples = 0
        self.found: ReadOut | None = None
        self.refresh_at = 0.0  # weight at which `fit_next` reads out anew
        self.components: Array = np.zeros((0, D))  # what it projects on until then

    @property
    def moments(self) -> Moments:
        """Weight, mean and scatter of the rows seen."""
        centre = self.centre
        return self._moments if centre is None else Moments(centre.total, centre.mean, centre.scatter)

    @moments.setter
    def moments(self, moments: Moments) -> None:
        self._moments, self.centre = moments, None


def flip_signs(components: Array) -> Array:
    """The one rule for signs: the entry of largest size in each component is positive."""
    largest = components[np.arange(len(components)), np.argmax(np.abs(components), axis=1)]
    flipped: Array = components * np.where(largest < 0, -1.0, 1.0)[:, np.newaxis].astype(components.dtype)
    return flipped


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
        """Learn from the rows of X alone, in one pass.

        Parameters
        ----------
        X : (n, D)
        y : ignored
        sample_weight : (n,), optional
            Weights act as repeated samples.
        """
        self._check_parameters()
        rows = self._validate(X, reset=True)
        weights = self._check_weights(sample_weight, rows)
        self._stream = self._new_stream(rows)
        self._learn(rows, weights)
        return self

    def partial_fit(self, X: ArrayLike, y: None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Learn from some more rows, one or many; however a stream is cut into calls, the model is the same.

        Parameters
        ----------
        X : (n, D)
        y : ignored
        sample_weight : (n,), optional
            Weights act as repeated samples.
        """
        first = not hasattr(self, "_stream")
        if first:
            self._check_parameters()
        rows = self._validate(X, reset=first)
        weights = self._check_weights(sample_weight, rows)
        if first:
            self._stream = self._new_stream(rows)
        self._learn(rows, weights)
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
            if not math.isfinite(float(np.dot(row, row))):
                raise ValueError("The sample has NaN, infinity or values whose squares overflow; every value must be finite.")
            before = stream.moments.weight
            centred = self._centred(row[np.newaxis], _ONE)
            if stream.exact is None:
                stream.model.fit_next(centred[0], self._step(before))
            else:
                self._add_exactly(stream, centred)
            stream.n_samples += 1
            self._mend(stream)
        weight, stream.found = stream.moments.weight, None
        if weight >= stream.refresh_at:
            stream.refresh_at = weight + min(weight / 4, 16 * stream.rank)
            stream.components = np.ascontiguousarray(self.components_)
        return np.asarray(self._scores(np.asarray(x, dtype=stream.dtype)[np.newaxis], stream.components)[0])

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
        merged.exact, rest = merge_scatter([self._read_out(), other._read_out()], between[np.newaxis], mine.rank, mine.dtype)
        if rest is not None:
            self._go_on_from(merged, rest)
        self._stream = merged
        return self

    # Using

    def transform(self, X: ArrayLike) -> Any:
        """Coordinates of rows along the components, (n, n_components_)."""
        check_is_fitted(self)
        rows: Any = self._validate(X, reset=False)
        if isinstance(rows, ForeignRows):
            components = self.components_
            scores: Any = rows.scores(components, self.mean_.astype(np.float64) @ components.T)
            return scores / rows.kind.of(self._deviations(rows.dtype)) if self.whiten else scores
        return self._scores(rows, self.components_)

    def inverse_transform(self, X: ArrayLike) -> Array:
        """Rows that have the given coordinates, (n, D)."""
        check_is_fitted(self)
        xp = namespace_of(X) if get_config()["array_api_dispatch"] else None
        scores = np.asarray(X) if xp is None else to_host(X)
        components = self.components_
        if self.whiten:
            components = np.sqrt(self.explained_variance_)[:, np.newaxis].astype(components.dtype) * components
        rows: Array = scores @ components + self.mean_
        return rows if xp is None else Kind(xp, X, rows.dtype).of(rows)

    def score_samples(self, X: ArrayLike) -> Floats:
        """Log-likelihood of each row under the probabilistic PCA model, (n,)."""
        check_is_fitted(self)
        given: Any = self._validate(X, reset=False)
        rows = (given.toarray() if isinstance(given, ForeignRows) else given).astype(np.float64)
        mean = self.mean_.astype(np.float64)
        components, variances, noise = self.components_.astype(np.float64), self.explained_variance_, self.noise_variance_
        D, K = rows.shape[1], len(components)
        if issparse(rows):
            scores, squares = rows @ components.T - mean @ components.T, centred_squares(rows, mean)
        else:
            rows = rows - mean
            scores, squares = rows @ components.T, np.sum(rows**2, axis=1)
        tiny = np.finfo(np.float64).tiny
        variances, noise = np.maximum(variances, tiny), max(noise, tiny)
        likelihood = D * np.log(2.0 * np.pi) + np.log(variances).sum() + np.sum(scores**2 / variances, axis=1)
        if K < D:
            residual = np.maximum(squares - np.sum(scores**2, axis=1), 0.0)
            likelihood = likelihood + (D - K) * np.log(noise) + residual / noise
        return np.asarray(-0.5 * likelihood)

    def score(self, X: ArrayLike, y: None = None) -> float:
        """Mean log-likelihood of the rows."""
        return float(np.mean(self.score_samples(X)))

    def get_covariance(self) -> Floats:
        """The covariance of the probabilistic PCA model, (D, D)."""
        check_is_fitted(self)
        components = self.components_.astype(np.float64)
        surplus = np.maximum(self.explained_variance_ - self.noise_variance_, 0.0)
        covariance: Floats = (components.T * surplus) @ components
        covariance.flat[:: len(covariance) + 1] += self.noise_variance_
        return covariance

    def get_precision(self) -> Floats:
        """Its inverse, (D, D)."""
        check_is_fitted(self)
        noise, variances = self.noise_variance_, self.explained_variance_
        if noise <= 0.0:
            return np.asarray(pinvh(self.get_covariance()))
        components = self.components_.astype(np.float64)
        surplus = 1.0 / np.maximum(variances, noise) - 1.0 / noise
        precision: Floats = (components.T * surplus) @ components
        precision.flat[:: len(precision) + 1] += 1.0 / noise
        return precision

    # Files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a file, as it stands; one that is loaded again goes on bit for bit.

        A name that ends in ``.mat`` gives a file for MATLAB and Octave, with what was learned but not the state to go on from.
        """
        from online_psp import pca_state

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
        from online_psp import pca_state

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

    def _check_parameters(self) -> None:
        wanted: Any = self.n_components
        if isinstance(wanted, bool) or not (wanted is None or isinstance(wanted, numbers.Real)):
            raise TypeError(f"n_components must be a whole number, a fraction or None; got {wanted!r}.")
        if isinstance(wanted, numbers.Integral):
            if wanted < 1:
                raise ValueError(f"n_components must be at least 1; got {wanted}.")
        elif wanted is not None and not 0.0 < float(wanted) < 1.0:
            raise ValueError(f"n_components as a share of variance must be between 0 and 1; got {wanted!r}.")
        if self.algorithm not in ALGORITHMS:
            raise ValueError(f"algorithm must be one of {', '.join(ALGORITHMS)}; got {self.algorithm!r}.")
        if self.oversample is not None and (not isinstance(self.oversample, numbers.Integral) or self.oversample < 0):
            raise ValueError(f"oversample must be a whole number, 0 or more; got {self.oversample!r}.")
        if not self.gamma > 0:
            raise ValueError(f"gamma must be positive; got {self.gamma!r}.")

    def _validate(self, X: ArrayLike, reset: bool) -> Any:
        dtypes = [np.float64, np.float32] if self.dtype is None else [np.dtype(self.dtype)]
        xp = namespace_of(X) if get_config()["array_api_dispatch"] else None
        rows: Any
        if xp is None:
            rows = validate_data(self, X, accept_sparse="csr", reset=reset, dtype=dtypes, order="C")
        else:
            rows = ForeignRows(validate_data(self, X, reset=reset, dtype=[getattr(xp, np.dtype(kind).name) for kind in dtypes]))
        if reset and isinstance(self.n_components, numbers.Integral) and self.n_components > rows.shape[1]:
            raise ValueError(f"n_components must not be larger than the number of features, {rows.shape[1]}; got {self.n_components}.")
        return rows

    def _check_weights(self, sample_weight: ArrayLike | None, rows: Any) -> Floats:
        if sample_weight is None:
            return np.ones(rows.shape[0])
        if isinstance(rows, ForeignRows):  # weights are few, and stay on the host
            sample_weight, rows = to_host(sample_weight), np.zeros((len(rows), 1))
        weights: Floats = _check_sample_weight(sample_weight, rows, dtype=np.float64, ensure_non_negative=True)
        return weights

    def _new_stream(self, rows: Array) -> Stream:
        D = rows.shape[1]
        if isinstance(self.n_components, numbers.Integral):
            K = int(self.n_components)
            rank = 2 * K + 8 if self.oversample is None else K + int(self.oversample)
        elif self.n_components is None:
            rank = D
        else:
            rank = _FLOAT_RANK if self.oversample is None else max(1, int(self.oversample))
        return Stream(min(rank, D), D, rows.dtype)

    def _learn(self, rows: Any, weights: Floats) -> None:
        if not weights.all():
            rows, weights = rows[np.flatnonzero(weights)], weights[weights > 0]
        stream, start = self._stream, 0
        every = self._mend_every()
        while start < rows.shape[0]:
            stop = start + every - stream.n_samples % every
            self._learn_part(stream, rows[start:stop], weights[start:stop])
            self._mend(stream)
            start = stop
        stream.found, stream.refresh_at = None, 0.0

    def _mend_every(self) -> int:
        """How many samples lie between two looks at whether FSM or SM is near its fixed point: seldom enough to cost little."""
        D: int = self.n_features_in_
        return max(8 * self._stream.rank, D // 8)

    def _mend(self, stream: Stream) -> None:
        """After a jump in the data, bring FSM and SM back; at the same samples however the stream is cut into calls."""
        if stream.exact is None and self.algorithm in ("fsm", "sm") and stream.n_samples % self._mend_every() == 0:
            stream.model.orthonormalize()

    def _learn_part(self, stream: Stream, rows: Any, weights: Floats) -> None:
        n = rows.shape[0]
        step = max(1, _BLOCK_BYTES // (rows.shape[1] * rows.dtype.itemsize))
        start = self._learn_sparse(stream, rows, weights) if issparse(rows) else 0
        foreign = isinstance(rows, ForeignRows)
        while start < n:
            stop = start + (step if stream.exact is None else min(step, stream.exact.room))
            part, weight = rows[start:stop], weights[start:stop]
            start, before = stop, stream.moments.weight
            if foreign and stream.exact is None:
                self._learn_foreign(stream, part, weight)
                continue
            centred = self._centred((part.toarray() if foreign else part).astype(stream.dtype), weight)
            if stream.exact is None:
                stream.model.fit_block(centred, self._steps(before, weight))
            else:
                self._add_exactly(stream, centred * np.sqrt(weight)[:, np.newaxis].astype(stream.dtype))
        stream.n_samples += n

    def _learn_foreign(self, stream: Stream, rows: Any, weights: Floats) -> None:
        """Learn from rows of another array library while streaming; the rows and the weights of the model stay there."""
        before, mean, scatter = stream.moments
        rows = ForeignRows(rows.X, stream.dtype)
        rows, mean, added = rows.centred(weights, mean, before) if self.center else (rows, mean, rows.scatter(weights))
        stream.moments = Moments(before + float(weights.sum()), mean, scatter + added)
        stream.model.fit_block(rows, self._steps(before, weights))

    def _learn_sparse(self, stream: Stream, rows: Any, weights: Floats) -> int:
        """Learn from CSR rows; all of them, always."""
        n, start = len(weights), 0
        while isinstance(stream.exact, Kept) and start < n:  # it keeps dense rows, few of them
            stop = start + stream.exact.room
            centred = self._centred(rows[start:stop].toarray().astype(stream.dtype, copy=False), weights[start:stop])
            self._add_exactly(stream, centred * np.sqrt(weights[start:stop])[:, np.newaxis].astype(stream.dtype))
            start = stop
        if start < n:
            rows, weights = rows[start:], weights[start:]
            if self.center and stream.centre is None:
                weight, mean, scatter = stream.moments
                stream.centre = Centre(mean, weight, scatter)
            before = stream._moments.weight if stream.centre is None else stream.centre.total
            part = SparseRows(rows.astype(stream.dtype, copy=False), weights, stream.centre)
            if stream.centre is None:
                weight, mean, scatter = stream.moments
                stream.moments = Moments(weight + float(weights.sum()), mean, scatter + float(weights @ part.row_squares()))
            if isinstance(stream.exact, Scatter):
                add_to_scatter(stream.exact, part)
            else:
                stream.model.fit_block(part, self._steps(before, weights))
        return n

    def _add_exactly(self, stream: Stream, rows: Array) -> None:
        assert stream.exact is not None
        rest = stream.exact.add(rows)
        if rest is not None:
            self._go_on_from(stream, rest)

    def _centred(self, rows: Array, weights: Floats) -> Array:
        """Centre rows in place, online and exactly, and count them."""
        stream = self._stream
        weight, mean, scatter = stream.moments
        if self.center:
            weight, added = center_rows(rows, weights, mean, weight)
        else:
            weight, added = weight + float(weights.sum()), float(np.einsum("i,ij,ij", weights, rows, rows))
        stream.moments = Moments(weight, mean, scatter + added)
        return rows

    def _steps(self, before: float, weights: Floats) -> Floats:
        """Step sizes of samples with these weights; a plain average for gamma = 2 (FSM, SM), and for IPCA."""
        after = before + np.cumsum(weights)
        if self.learning_rate is not None:
            return np.asarray(1.0 - (1.0 - np.array([self.learning_rate(t) for t in after])) ** weights)
        if self.algorithm == "ccipca":
            share = (1.0 + self.ell) * weights
            return np.asarray(share / (after - weights + share))
        gamma = self.gamma if self.algorithm in ("fsm", "sm") else 2.0
        return np.asarray(2.0 * weights / (gamma * (after - weights) + 2.0 * weights))

    def _step(self, before: float) -> float:
        """The same for a single sample of weight one, quickly."""
        if self.learning_rate is not None or self.algorithm == "ccipca":
            return float(self._steps(before, _ONE)[0])
        return 2.0 / ((self.gamma if self.algorithm in ("fsm", "sm") else 2.0) * before + 2.0)

    def _go_on_from(self, stream: Stream, found: ReadOut) -> None:
        """Start the algorithm at its fixed point for these directions, with their variances."""
        rank, D = found.components.shape
        variances = found.scatter / stream.moments.weight
        variances = np.maximum(variances, np.finfo(stream.dtype).eps * variances[0])
        start: dict[str, Any]
        if self.algorithm in ("fsm", "sm"):
            lateral = {"Minv0": np.diag(1.0 / variances)} if self.algorithm == "fsm" else {"M0": np.diag(variances)}
            start = {"W0": variances[:, np.newaxis] * found.components, **lateral}
        else:
            start = {"Uhat0": found.components.T, "sigma2_0": variances}
        stream.model = ALGORITHMS[self.algorithm](rank, D, block_size=self.block_size, dtype=stream.dtype, **start)
        stream.exact = None

    def _read_out(self) -> ReadOut:
        stream = self._fitted()
        if stream.found is None:
            if stream.exact is not None:
                directions, scatter = stream.exact.read_out()
            else:
                directions, variances = stream.model.principal_components()
                directions, scatter = to_host(directions), variances * stream.moments.weight
            stream.found = ReadOut(flip_signs(directions), scatter)
        return stream.found

    def _degrees(self) -> float:
        """What the scatter is divided by to give variances."""
        weight = self._fitted().moments.weight
        return max(weight - 1.0, 1.0) if self.center else max(weight, 1.0)

    def _scores(self, rows: Array, components: Array) -> Array:
        scores: Array = rows @ components.T
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
