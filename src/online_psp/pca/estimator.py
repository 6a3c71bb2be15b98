"""OnlinePCA: a scikit-learn transformer over any of the algorithms.

It learns in three phases, which the user does not see:

*exact* (`exact.py`)
    As long as nothing has to be left out, the result is that of batch PCA. Data with few features stays in this phase for ever.
*streaming* (`stream.py`)
    The algorithm continues from the K' directions found, with their variances.
*read-out*
    When an attribute is read, the K' directions are turned into ordered principal components, and the top K are returned.
"""

from __future__ import annotations

import copy
import numbers
import os
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike
from sklearn.utils.validation import check_is_fitted

from online_psp.engine.checks import unmasked
from online_psp.engine.locks import InterruptsWait, model_lock
from online_psp.engine.rows import AnyRows, DenseRows
from online_psp.engine.threads import suited_threads
from online_psp.engine.types import Array, Floats
from online_psp.pca.axes import check_reference
from online_psp.pca.checks import check_rows, check_values, check_weights, rows_dtype
from online_psp.pca.forgetting import check_times
from online_psp.pca.merging import merge
from online_psp.pca.notices import warn_never_observed, warn_of_gross
from online_psp.pca.settings import check_settings
from online_psp.pca.stream import Stream
from online_psp.pca.using import Usable


class OnlinePCA(Usable):
    """Principal component analysis of a stream, in one pass and O(DK) memory.

    A drop-in for `sklearn.decomposition.IncrementalPCA`: the same calls and attributes, about ten times faster and more accurate. With few
    features (up to six times the directions kept), and for the first rows of any data, the result is exactly that of batch PCA.

    One thread may learn at a time; others can read meanwhile, and see the model between two calls.

    Parameters
    ----------
    n_components : int, float or None
        Number of components. A float in (0, 1) asks for as many as explain that share of the variance; None for as many as the data has
        directions.
    algorithm : str
        Streaming algorithm to use: "block", "fsm", "sm", "ipca" or "ccipca".
    oversample : int, optional
        Directions kept beyond `n_components`; as many again and 32 more by default, within the number of features. More
        directions make the result more accurate, at a proportional cost.
    max_rank : int, optional
        Most directions to keep if `n_components` is a share of the variance; 512 by default.
    center : bool
        Whether to subtract the mean, which is learned exactly along the way.
    standardize : bool
        Whether to divide every feature by its standard deviation, which is learned exactly along the way: PCA of the correlation matrix.
        The components are then those of standardised features, as after `StandardScaler`. Constant features are not changed.
    whiten : bool
        Whether to scale the output of `transform` to unit variances.
    half_life : float, str or timedelta, optional
        Number of rows, or time (``"10min"``, with `times`), after which a row counts half; by default nothing is forgotten. Other names
        for the same: with f the share of a new row and h the half-life in rows, ``f = 1 − 2^(−1/h)``; pandas' ``alpha = f``,
        ``com = 1/f − 1``, ``span = 2/f − 1``; R's onlinePCA calls it f; river's fading factor is ``1 − f``; proSVD's decay after a block of
        b rows is ``(1 − f)^(b/2)``, because it decays singular values.
    axes : {"principal", "stable"}
        Stable axes span the same subspace, turned to be as near as possible to those shown before, so that coordinates of a point move
        smoothly even when variances cross. Coordinates along them are correlated: see `scores_covariance_`.
    reference : (n_components, D), optional
        Axes that stable axes stay near, in place of the first ones found.
    missing : {"error", "impute"}
        What to do with NaN (and pandas' NA and polars' null): raise an error, or treat it as a missing value. Then the mean and the
        variances are those of the observed values of each feature, and the model is that of probabilistic PCA; see `impute`. Values
        must be missing at random, and not because they are large, say. Without NaN, both give exactly the same model.
    robust : bool
        Whether to give less weight to rows that are far from all others under the model; see `sample_influence`.
    block_size : int or "auto"
        Samples compressed at a time. It changes speed, not results (except for rounding, and with ``algorithm="block"``, whose blocks it
        sets).
    dtype : float32, float64 or None
        Working precision; None keeps float32 data in float32 and converts everything else to float64.
    batch_size, copy, random_state
        Accepted so that code written for `IncrementalPCA` or `PCA` runs. Rows may come in any batches with the same result, input is
        never changed, and nothing here is random.

    Attributes
    ----------
    components_ : (n_components_, D)
        Orthonormal rows, largest variance first; the entry of largest size in each is positive.
    explained_variance_, explained_variance_ratio_, singular_values_ : (n_components_,)
    mean_, var_ : (D,)
        Mean and variance of each feature, exact; of its observed values, if some are missing.
    scale_ : (D,)
        Divisors of the features with `standardize`, 1 for constant ones; None without.
    noise_variance_ : float
        Mean variance along the directions left out. The total is tracked exactly.
    n_components_, n_features_in_, n_samples_seen_ : int
    effective_samples_ : float
        Sum of the weights of the rows, faded if the model forgets.
    kish_samples_ : float
        Kish's effective number of samples: the square of the sum of the weights over the sum of their squares.
    scores_covariance_ : (n_components_, n_components_)
        Covariance of the output of `transform`, before whitening: diagonal unless `axes` are stable.
    exact_ : bool
        Whether nothing has been left out so far, so that all results are those of batch PCA.
    feature_names_in_ : (D,)
        Set if the data had column names.

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

    _onlooker: Callable[[AnyRows], None] | None = None

    def __init__(
        self,
        n_components: int | float | None = None,
        *,
        algorithm: str = "block",
        oversample: int | None = None,
        max_rank: int | None = None,
        center: bool = True,
        standardize: bool = False,
        whiten: bool = False,
        half_life: Any = None,
        axes: str = "principal",
        reference: ArrayLike | None = None,
        missing: str = "error",
        robust: bool = False,
        block_size: int | str = "auto",
        dtype: DTypeLike | None = None,
        batch_size: int | None = None,
        copy: bool = True,
        random_state: Any = None,
    ) -> None:
        self.n_components: Any = n_components
        self.algorithm = algorithm
        self.oversample: Any = oversample
        self.max_rank: Any = max_rank
        self.center = center
        self.standardize = standardize
        self.whiten = whiten
        self.half_life: Any = half_life
        self.axes = axes
        self.reference = reference
        self.missing = missing
        self.robust = robust
        self.block_size = block_size
        self.dtype = dtype
        self.batch_size = batch_size
        self.copy = copy
        self.random_state = random_state

    # Learning

    def fit(self, X: ArrayLike, y: None = None, sample_weight: ArrayLike | None = None, times: ArrayLike | None = None) -> Self:
        """Learn from the rows of X, and nothing else, in one pass; the arguments are those of `partial_fit`."""
        with self._beginning():
            self._begin(X, sample_weight, times)
        known = self._view().known if self.missing == "impute" else None
        if known is not None:
            warn_never_observed(known)
        if self.robust:
            self._fitted().gross_seen = self._view().gross
            warn_of_gross(self._view().gross)
        return self

    def partial_fit(
        self,
        X: ArrayLike,
        y: None = None,
        sample_weight: ArrayLike | None = None,
        check_input: bool = True,
        times: ArrayLike | None = None,
    ) -> Self:
        """Learn from more rows, one or many. The model does not depend on how a stream is cut into calls.

        Parameters
        ----------
        X : (n, D)
        y : ignored
        sample_weight : (n,), optional
            Weights of the rows; a weight of 2 acts as the row twice.
        check_input : bool
            Accepted, as by `IncrementalPCA`; rows are always checked.
        times : (n,), optional
            Times of the rows, if `half_life` is a time: seconds or datetime64, never going back.
        """
        stream: Stream | None = self.__dict__.get("_stream")
        if stream is None:
            with self._beginning():
                stream = self.__dict__.get("_stream")
                if stream is None:
                    self._begin(X, sample_weight, times)
                    _warn_of_more(self._fitted())
                    return self
        with stream.lock, InterruptsWait():
            if self._stream is stream:
                self._check_parameters(stream)
                rows = check_rows(self, X, stream.settings.dtype, reset=False)
                check_values(rows, stream.unit, stream.settings.missing == "impute")
                stream.learn(*_counted(rows, sample_weight, times, stream))
                _warn_of_more(stream)
                return self
        return self.partial_fit(X, y, sample_weight, check_input, times)  # another thread has merged, or begun anew, in the meantime

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        stream: Stream | None = self.__dict__.get("_stream")
        if stream is not None and not name.startswith("_"):
            stream.parameters_seen = False

    def _check_parameters(self, stream: Stream) -> None:
        """Raise a ValueError if a parameter that learning depends on has changed; those of reading hold from now on."""
        changed = stream.settings.differs(check_settings(self))
        if changed:
            raise ValueError(changed)
        self._check_number(stream)
        if not stream.parameters_seen:
            stream.settle()
            stream.waiting.close()
            stream.parameters_seen, stream.refresh_at = True, 0.0

    def _begin(self, X: ArrayLike, sample_weight: ArrayLike | None, times: ArrayLike | None) -> Self:
        """Start anew; if an error is raised, the estimator has not changed."""
        settings = check_settings(self)
        kept: dict[str, Any] = {name: self.__dict__[name] for name in ("n_features_in_", "feature_names_in_") if name in self.__dict__}
        try:
            rows = check_rows(self, X, settings.dtype, reset=True)
            D = rows.D
            wanted: Any = self.n_components
            if isinstance(wanted, numbers.Integral) and int(wanted) > D:
                raise ValueError(f"n_components must not be larger than the number of features, {D}; got {wanted}.")
            check_values(rows, 0.0, settings.missing == "impute")
            stream = Stream(settings, wanted, D, rows_dtype(rows))
            if self.reference is not None:
                stream.axes = check_reference(self.reference, wanted, D)
            stream.learn(*_counted(rows, sample_weight, times, stream))
        except BaseException:
            for name in ("n_features_in_", "feature_names_in_"):
                self.__dict__.pop(name, None)
            self.__dict__.update(kept)
            raise
        with stream.lock:
            stream.onlooker, self._stream = self._onlooker, stream
            if stream.onlooker is not None:
                stream.onlooker(rows)
        return self

    def fit_next(self, x: Array, time: Any = None) -> Array:
        """Learn from one sample, with little overhead: only its shape and finiteness are checked.

        Samples may wait to be learned together, up to 512 of them. Whatever uses the model has them learned first.

        Parameters
        ----------
        x : (D,)
        time : float or datetime64, optional
            Time of the sample, if `half_life` is a time.

        Returns
        -------
        y : (n_components,)
            Its projection on the components as of their last read-out: after half as many samples as the model remembers, at the end
            of a block, at least every ``24 K'`` samples.
        """
        stream: Stream | None = self.__dict__.get("_stream")
        if stream is not None and type(x) is np.ndarray and x.dtype == stream.dtype and x.ndim == 1 and x.flags.carray and time is None:
            with stream.lock:  # the way of nearly all samples, in as few steps as will do
                if self._stream is stream and stream.parameters_seen and not stream.timed:
                    waiting = stream.waiting
                    y = waiting.take(x)
                    if y is not None:
                        return self._settle(stream, x, y) if waiting.is_full else y
        return self._fit_next(stream, x, time)

    def _fit_next(self, stream: Stream | None, x: Array, time: Any) -> Array:
        """As `fit_next`, for any sample."""
        x = unmasked(x)
        if stream is None:
            return self._fit_first(x, time)
        if np.asarray(x).dtype.kind not in "fiubO":
            raise TypeError(f"fit_next takes real numbers; got dtype {np.asarray(x).dtype}.")
        row = np.require(x, stream.dtype, ["C", "A", "W", "E"])  # kernels are compiled for such arrays only
        if row.shape != (stream.D,):
            raise ValueError(f"fit_next takes one sample of shape ({stream.D},); got shape {row.shape}.")
        with stream.lock:
            if self._stream is stream:
                if not stream.parameters_seen:
                    self._check_parameters(stream)
                times = None
                if time is not None or stream.timed:
                    times = check_times(None if time is None else np.asarray([time]), 1, stream.settings.half_life, stream.last_taken)
                y = stream.take(row, None if times is None else float(times[0]))
                if y is None:
                    return self._learn_row(stream, row, times)
                return self._settle(stream, row, y, 6) if stream.waiting.is_full else y
        return self.fit_next(x, time)  # another thread has merged, or begun anew, in the meantime

    def _learn_row(self, stream: Stream, row: Array, times: Floats | None) -> Array:
        """Learn from one row by itself, and get ready for more of them; returns its coordinates."""
        rows = DenseRows(row[np.newaxis])
        check_values(rows, stream.unit, stream.settings.missing == "impute")
        with InterruptsWait():
            due = stream.refresh_at
            stream.learn(rows, np.ones(1), times)
            stream.refresh_at = due
            _warn_of_more(stream, 6)
            self._show(stream)
            stream.prepare()
            return stream.project(row)

    def _settle(self, stream: Stream, row: Array, y: Array, depth: int = 5) -> Array:
        """Learn the rows that wait, and read out anew if it is time; returns the coordinates of the last row along the axes shown."""
        with InterruptsWait():
            stream.settle()
            _warn_of_more(stream, depth)
            shown = self._show(stream)
            stream.prepare()
            return stream.project(row) if shown else y

    def _fit_first(self, x: Array, time: Any) -> Array:
        row = np.asarray(x)
        if row.ndim != 1:
            raise ValueError(f"fit_next takes one sample of shape (D,); got shape {row.shape}.")
        self.partial_fit(row[np.newaxis], times=None if time is None else np.asarray([time]))
        stream = self._fitted()
        with stream.lock:
            point = np.require(x, stream.dtype, ["C", "A", "W", "E"])
            self._show(stream)
            stream.prepare()
            return stream.project(point)

    def _show(self, stream: Stream) -> bool:
        """Read the components out anew for `fit_next`, if it is time; returns whether it was."""
        anew = stream.refresh_at == 0.0  # after anything but single samples
        if stream.seen < stream.refresh_at or not (anew or stream.cheap_to_read):
            return False
        stream.refresh_later()
        wanted: Any = self.n_components
        count = int(wanted) if isinstance(wanted, numbers.Integral) else stream.rank
        view = stream.view() if anew and stream.model is not None else stream.glance(count)
        components = self._shown(view)[0]
        if self.whiten:  # directions without variance give zero
            scale, known = np.zeros(len(components)), self._variances(view) > 0
            scale[known] = 1.0 / self._deviations(stream.dtype, view)[known]
            components = scale[:, np.newaxis] * components
        components = components if view.deviations is None else components / view.deviations
        stream.shown = np.ascontiguousarray(components, dtype=stream.dtype)
        return True

    def merge(self, other: OnlinePCA) -> Self:
        """Add what another model has learned from other rows, as if this one had seen them too.

        Means, counts and variances of the features are exact, and so is everything if both models are exact. Otherwise the components are
        those of the two truncated models together: the error is that of keeping K' directions of each.

        Parameters
        ----------
        other : OnlinePCA
            A fitted model with the same features; it does not change.
        """
        for model in (self, other):
            check_is_fitted(model)
        if self.n_features_in_ != other.n_features_in_:
            raise ValueError(f"Models must have the same number of features; got {self.n_features_in_} and {other.n_features_in_}.")
        names = [getattr(model, "feature_names_in_", None) for model in (self, other)]
        if names[0] is not None and names[1] is not None and not np.array_equal(names[0], names[1]):
            at = int(np.argmin(np.asarray(names[0]) == np.asarray(names[1])))
            raise ValueError(
                f"Models must have the same features in the same order; feature {at} is {names[0][at]!r} and {names[1][at]!r}."
            )
        while True:
            mine, theirs = self._fitted(), other._fitted()
            first, second = sorted((mine, theirs), key=id)
            with first.lock, second.lock, suited_threads(mine.rank * mine.D):
                if self._stream is mine and other._stream is theirs:  # or another thread has merged in the meantime
                    merged = merge(mine, theirs)
                    merged.onlooker, self._stream = self._onlooker, merged
                    return self

    def snapshot(self) -> Self:
        """A fitted model that reads as this one does now, and does not change when this one learns."""
        check_is_fitted(self)
        return copy.deepcopy(self)

    # Files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a file; a model loaded from it continues bit for bit.

        A name that ends in ``.mat`` gives a file for MATLAB and Octave, with the results, but not the state from which learning continues.
        """
        from online_psp.pca.files import save

        save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a model that `save`, ``psp fit`` or, for ``.mat``, MATLAB's ``save_model`` has written."""
        from online_psp.pca.files import load

        model: Any = load(path, cls)[0]
        return model  # type: ignore[no-any-return]

    # Inside

    def _be_watched(self, onlooker: Callable[[AnyRows], None] | None) -> None:
        """Have an onlooker told of all rows when they have been learned, under the lock of the model; None ends that."""
        self._onlooker = onlooker
        if self.__sklearn_is_fitted__():
            stream = self._fitted()
            with stream.lock:
                stream.settle()
                stream.onlooker = onlooker

    def _beginning(self) -> Any:
        """The lock under which this model begins, so that two threads do not both do it; other models begin at the same time."""
        found = self.__dict__.get("_begins")
        return found if found is not None else self.__dict__.setdefault("_begins", model_lock())  # in one step: one lock for all threads

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name not in ("_begins", "_onlooker")}

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_stream")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self.missing == "impute"
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _counted(
    rows: AnyRows, sample_weight: ArrayLike | None, times: ArrayLike | None, stream: Stream
) -> tuple[AnyRows, Floats, Floats | None]:
    """The rows with a positive weight, with their weights and times."""
    weights = check_weights(sample_weight, len(rows))
    seconds = check_times(times, len(rows), stream.settings.half_life, stream.last_time)
    if weights.all():
        return rows, weights, seconds
    return rows.take(np.flatnonzero(weights)), weights[weights > 0], None if seconds is None else seconds[weights > 0]


def _warn_of_more(stream: Stream, depth: int = 4) -> None:
    """Warn if gross rows have lost too much weight since it was last looked at, whichever call has had them learned."""
    before, stream.gross_seen = stream.gross_seen, stream.gross_share
    warn_of_gross(stream.gross_seen, before, depth)
