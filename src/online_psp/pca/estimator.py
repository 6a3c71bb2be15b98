"""OnlinePCA: a scikit-learn transformer that is settings, the last model, and a buffer of the rows since.

Rows are gathered until a block is full; :func:`online_psp.pca.learn.learn` takes the model and the block to the next model. Blocks end at
fixed places of the stream, so the model does not depend on how it is cut into calls. Reading learns the open rows into a model of its own
and changes nothing; an error in the middle of a call leaves everything as it was.
"""

from __future__ import annotations

import copy
import numbers
import os
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import NotFittedError

from online_psp.engine.checks import unmasked
from online_psp.engine.libraries import Library
from online_psp.engine.locks import model_lock
from online_psp.engine.rows import AnyRows, DenseRows, SparseRows, first_hole
from online_psp.engine.sizes import CENTRE_BYTES
from online_psp.engine.threads import suited_threads
from online_psp.engine.types import Array, Floats
from online_psp.pca.axes import check_reference
from online_psp.pca.buffer import block_of
from online_psp.pca.checks import check_coordinates, check_rows, check_scores, check_values, check_weights
from online_psp.pca.coordinates import coordinates, rows_at
from online_psp.pca.features import check_names, widened
from online_psp.pca.filling import filled, filled_rows, partial_likelihoods, put_back
from online_psp.pca.forgetting import check_times, decays_of
from online_psp.pca.learn import unit_of
from online_psp.pca.likelihood import covariance, log_likelihoods, precision
from online_psp.pca.model import Model, empty_model
from online_psp.pca.next import Next
from online_psp.pca.notices import Notices, gross_notice, unpredicted_notice, warn_never_observed
from online_psp.pca.robust import far_out
from online_psp.pca.settings import check_kept, check_settings
from online_psp.pca.state import State, opened
from online_psp.pca.uncertainty import alike, subspace_error, variance_errors
from online_psp.pca.units import unit_for
from online_psp.pca.view import View, view_of
from online_psp.pca.window import learn, whole


class OnlinePCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Principal component analysis of a stream, in one pass and O(DK) memory.

    A drop-in for `sklearn.decomposition.IncrementalPCA`: the same calls and attributes, about ten times faster and more accurate. With few
    features (up to six times the directions kept), and for the first rows of any data, the result is exactly that of batch PCA.

    One thread may learn at a time; others can read meanwhile, and see the model between two calls.

    Parameters
    ----------
    n_components : int, float, "auto", "filter" or None
        Number of components. A float in (0, 1) asks for as many as explain that share of the variance; None for as many as the data has
        directions. "auto" is the number of directions beyond what noise of equal variance in all features would show, "filter" of those
        that are worth keeping to remove noise from rows; at least 1. Both follow the stream; a direction comes at a higher variance than
        that at which it goes, so that the number does not flicker.
    oversample : int, optional
        Directions kept beyond `n_components`; as many again and 32 more by default, within the number of features. More
        directions make the result more accurate, at a proportional cost.
    max_rank : int, optional
        Most directions to keep if `n_components` is a share of the variance (512 by default) or a rule (128).
    center : bool
        Whether to subtract the mean, which is learned exactly along the way.
    standardize : bool
        Whether to divide every feature by its standard deviation, which is learned exactly along the way: PCA of the correlation matrix.
        The components are then those of standardised features, as after `StandardScaler`. Constant features are not changed.
    whiten : bool or "zca"
        Whether to scale the output of `transform` to unit variances. "zca" turns it back to the features: rows of unit covariance, (n, D),
        that are as near as possible to the data (divided by its deviations, with `standardize`). It is the inverse root of the covariance
        of `get_covariance`; directions without variance give zero. `fit_next` returns whitened coordinates along the components.
    half_life : float, str or timedelta, optional
        Number of rows, or time (``"10min"``, with `times`), after which a row counts half; by default nothing is forgotten. Other names
        for the same: with f the share of a new row and h the half-life in rows, ``f = 1 − 2^(−1/h)``; pandas' ``alpha = f``,
        ``com = 1/f − 1``, ``span = 2/f − 1``; R's onlinePCA calls it f; river's fading factor is ``1 − f``; proSVD's decay after a block of
        b rows is ``(1 − f)^(b/2)``, because it decays singular values.
    window : int, optional
        Number of rows that count, the newest ones, in place of `half_life`: rows before them are forgotten altogether. The weights of the
        window sum to this number. Its edge is sharp each time another sixteenth of it has come; in between, the oldest rows, up to a
        sixteenth more, share what is left. The model takes 18 times the memory.
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
        Rows learned at a time; five for each direction kept by default. Longer blocks are a little more accurate.
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
    explained_variance_error_ : (n_components_,)
        Standard errors of the variances, for Gaussian rows.
    subspace_error_ : float
        Expected distance of the subspace from that of the population, for Gaussian rows: 0 is equal, sqrt(2) orthogonal. What was left
        out while learning is not counted: it is about 0.003. With heavy tails the error is larger.
    component_errors_ : (n_components_,)
        Expected sine of the angle of each component to the population's; of stable axes, to the population's subspace.
    not_told_apart_ : list of (first, last)
        Runs of components, counted from 0, whose variances differ by no more than equal ones would. Their axes may be any of their span.
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
    _told = 0
    """Rows of the buffer that the onlooker has been told of."""
    _next: Next | None = None
    _state: State

    def __init__(
        self,
        n_components: int | float | str | None = None,
        *,
        oversample: int | None = None,
        max_rank: int | None = None,
        center: bool = True,
        standardize: bool = False,
        whiten: bool | str = False,
        half_life: Any = None,
        window: int | None = None,
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
        self.oversample: Any = oversample
        self.max_rank: Any = max_rank
        self.center = center
        self.standardize = standardize
        self.whiten = whiten
        self.half_life: Any = half_life
        self.window: Any = window
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
        with self._lock:
            self._begin(X, sample_weight, times)
        if self.missing == "impute" or self.robust:
            view = self._view()
            if view.known is not None:
                warn_never_observed(view.known)
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
        with self._lock:
            if not self.__sklearn_is_fitted__():
                self._begin(X, sample_weight, times)
            else:
                state = self._checked_state()
                rows = check_rows(self, X, state.settings.dtype, reset=False)
                check_values(rows, state.model.unit, state.settings.missing == "impute")
                self._learn(state, rows, sample_weight, times)
        return self

    def _begin(self, X: ArrayLike, sample_weight: ArrayLike | None, times: ArrayLike | None) -> None:
        """Start anew; if an error is raised, the estimator has not changed."""
        settings = check_settings(self)
        kept: dict[str, Any] = {name: self.__dict__[name] for name in ("n_features_in_", "feature_names_in_") if name in self.__dict__}
        try:
            rows = check_rows(self, X, settings.dtype, reset=True)
            wanted: Any = self.n_components
            if isinstance(wanted, numbers.Integral) and int(wanted) > rows.D:
                raise ValueError(f"n_components must not be larger than the number of features, {rows.D}; got {wanted}.")
            check_values(rows, 0.0, settings.missing == "impute")
            settings = settings.begun(wanted, rows.D, rows.dtype)
            model = empty_model(rows.D, settings.few, settings.working)
            if self.reference is not None:
                model = model._replace(axes=check_reference(self.reference, wanted, rows.D))
            self._said_before = Notices()
            self._learn(opened(settings, model), rows, sample_weight, times)
        except BaseException:
            for name in ("n_features_in_", "feature_names_in_"):
                self.__dict__.pop(name, None)
            self.__dict__.update(kept)
            raise

    def _learn(self, state: State, rows: AnyRows, sample_weight: ArrayLike | None, times: ArrayLike | None) -> None:
        """Move on from a state by checked rows; if an error is raised, nothing has changed."""
        settings, model, buffer, last = state
        weights = check_weights(sample_weight, len(rows))
        seconds = check_times(times, len(rows), settings.half_life, last)
        if not weights.all():
            used = np.flatnonzero(weights)
            rows, weights, seconds = rows.take(used), weights[used], None if seconds is None else seconds[used]
        decays = np.broadcast_to(decays_of(settings.half_life, seconds, last), weights.shape)
        open_before, start = buffer.n, 0
        try:
            with suited_threads(settings.rank * settings.D):
                if not model.unit and (size := unit_of(rows)):
                    model = model._replace(unit=unit_for(size, settings.working))
                while start < len(rows):
                    stop = min(len(rows), start + buffer.room - buffer.n)
                    part = rows[start:stop], weights[start:stop], decays[start:stop]
                    block = block_of(*part)
                    if buffer.n or len(block.rows) < buffer.room:
                        buffer.add(*part)
                        block = buffer.block()
                    if len(block.rows) == buffer.room:
                        model = learn(model, block, settings)
                        buffer = opened(settings, model).buffer
                    start = stop
            self._state = State(settings, model, buffer, last if seconds is None or not len(seconds) else float(seconds[-1]))
        except BaseException:
            state.buffer.cut(open_before)
            raise
        self._next = None
        self._tell(rows)
        self._say_gross(model)

    def fit_next(self, x: Array, time: Any = None) -> Array:
        """Learn from one sample, with little overhead: only its shape and finiteness are checked.

        Parameters
        ----------
        x : (D,)
        time : float or datetime64, optional
            Time of the sample, if `half_life` is a time.

        Returns
        -------
        y : (n_components,)
            Its coordinates along the components as of the last block.
        """
        with self._lock:
            ready = self._next
            if ready is not None and time is None:
                y = ready.take(x)
                if y is not None:
                    if ready.is_due:
                        self._after_next(ready)
                    return y
            return self._fit_next(x, time)

    def _after_next(self, ready: Next) -> None:
        """Close the block if it is full, and look whether the axes are to be read out anew."""
        settings, buffer = self._state.settings, self._state.buffer
        if buffer.n == buffer.room:
            self._tell_open()
            try:
                with suited_threads(settings.rank * settings.D):
                    self._state, self._told = self._state.closed(), 0
                self._say_gross(self._state.model)
            except BaseException:
                buffer.cut(buffer.n - 1)
                raise
        elif self._onlooker is not None:
            self._tell_open()
        self._next = self._prepared()

    def _fit_next(self, x: Array, time: Any) -> Array:
        """As `fit_next`, for any sample."""
        row = np.asarray(unmasked(x))
        if row.dtype.kind not in "fiubO":
            raise TypeError(f"fit_next takes real numbers; got dtype {row.dtype}.")
        D = self._state.settings.D if self.__sklearn_is_fitted__() else row.size
        if row.shape != (D,):
            raise ValueError(f"fit_next takes one sample of shape ({D},); got shape {row.shape}.")
        times = None if time is None else np.asarray([time])
        if not self.__sklearn_is_fitted__():
            self._begin(row[np.newaxis], None, times)
        else:
            state = self._checked_state()
            rows = DenseRows(np.require(row, state.settings.working, ["C"])[np.newaxis])
            check_values(rows, state.model.unit, state.settings.missing == "impute")
            ready = self._next
            self._learn(state, rows, None, times)
            if ready is not None and ready.buffer is self._state.buffer and not ready.is_due:
                self._next = ready
        self._next = self._next or self._prepared()
        return self._next.project(row)

    def _prepared(self) -> Next:
        """What `fit_next` needs for the next sample: the axes, as of the last block, or as of some of the first rows."""
        settings, model, buffer, _ = self._state
        with suited_threads(settings.rank * settings.D):
            seen = whole(model, settings)
            if not model.seen:
                rows = _reading(buffer.n)[0]
                seen = learn(model, block_of(buffer.rows(rows), buffer.weights[:rows], buffer.decays[:rows]), settings)
            view = view_of(seen, settings, False, self.n_components)
            components = view.components
        if self.whiten:  # directions without variance give zero
            scale = np.where(view.explained_variance > 0, 1.0 / view.deviations_along(settings.working), 0.0).astype(np.float64)
            components = scale[:, np.newaxis] * components
        components = components if view.deviations is None else components / view.deviations
        mean = view.mean if settings.center else np.zeros_like(view.mean)
        due = buffer.room if model.seen else min(buffer.room, _reading(buffer.n)[1])
        due = due if self._onlooker is None else min(due, buffer.n + _TOLD_EVERY)
        timed = settings.half_life is not None and settings.half_life.in_time
        return Next(buffer, np.asarray(components), mean, due, 0.0 if timed else model.unit, view)

    def add_features(self, names: Sequence[str] | int) -> Self:
        """Continue with more features, which come after those so far: new words of a vocabulary, new sensors.

        Rows so far have been zero in them; or, with ``missing="impute"``, these values are missing. Components are longer from now on, and
        all later rows have the new features.

        Parameters
        ----------
        names : list of str, or int
            Names of the new features, if the others have names; else their number.
        """
        with self._lock:
            state = self._checked_state()
            known = getattr(self, "feature_names_in_", None)
            count = check_names(names, known)
            if not count:
                return self
            self._tell_open()
            wanted: Any = state.settings.share
            if wanted is None and self.n_components is not None:
                wanted = state.settings.shown
            self._state = widened(state, count, wanted)
            self._next, self._told = None, self._state.buffer.n
            self.n_features_in_ = self._state.settings.D
            if known is not None:
                self.feature_names_in_ = np.append(known, np.asarray(names, dtype=object))
        return self

    def merge(self, other: OnlinePCA) -> Self:
        """Add what another model has learned from other rows, as if this one had seen them too.

        Means, counts and variances of the features are exact, and so is everything if both models are exact. Otherwise the components are
        those of the two truncated models together: the error is that of keeping K' directions of each. A feature that only one of them has
        observed is taken to vary with the others as it does there.

        Parameters
        ----------
        other : OnlinePCA
            A fitted model with the same features; it does not change.
        """
        for model in (self, other):
            model._fitted()
        if self.n_features_in_ != other.n_features_in_:
            raise ValueError(f"Models must have the same number of features; got {self.n_features_in_} and {other.n_features_in_}.")
        names = [getattr(model, "feature_names_in_", None) for model in (self, other)]
        if names[0] is not None and names[1] is not None and not np.array_equal(names[0], names[1]):
            at = int(np.argmin(np.asarray(names[0]) == np.asarray(names[1])))
            raise ValueError(
                f"Models must have the same features in the same order; feature {at} is {names[0][at]!r} and {names[1][at]!r}."
            )
        theirs = other.snapshot()._state
        with self._lock, suited_threads(self._state.settings.rank * self._state.settings.D):
            self._state = self._state.merged(theirs)
            self._next, self._told = None, 0
        return self

    def snapshot(self) -> Self:
        """A fitted model that reads as this one does now, and does not change when this one learns."""
        with self._lock:
            self._fitted()
            self._tell_open()
            return copy.copy(self)

    # Reading

    @property
    def components_(self) -> Array:
        return self._view().components

    @property
    def explained_variance_(self) -> Floats:
        return self._view().explained_variance

    @property
    def explained_variance_ratio_(self) -> Floats:
        view = self._view()
        return view.along / view.total_variance if view.total_variance > 0 else np.zeros(view.K)

    @property
    def explained_variance_error_(self) -> Floats:
        view = self._view()
        return variance_errors(view.explained_variance, view.spectrum)

    @property
    def singular_values_(self) -> Floats:
        view = self._view()
        return np.sqrt(view.along * view.weight)

    @property
    def scores_covariance_(self) -> Floats:
        view = self._view()
        return view.covariance * view.degrees

    @property
    def component_errors_(self) -> Floats:
        return self._view().component_errors

    @property
    def subspace_error_(self) -> float:
        view = self._view()
        return subspace_error(view.spectrum, view.K)

    @property
    def not_told_apart_(self) -> list[tuple[int, int]]:
        view = self._view()
        return alike(view.spectrum, view.K)

    @property
    def noise_variance_(self) -> float:
        return self._view().noise

    @property
    def mean_(self) -> Array:
        return self._view().mean.astype(self._state.settings.working)

    @property
    def var_(self) -> Floats:
        return self._view().var

    @property
    def scale_(self) -> Floats | None:
        return self._view().deviations

    @property
    def n_components_(self) -> int:
        return self._view().K

    @property
    def n_samples_seen_(self) -> int:
        return self._fitted().seen

    @property
    def effective_samples_(self) -> float:
        return self._view().weight

    @property
    def kish_samples_(self) -> float:
        view = self._view()
        return view.weight**2 / view.squares if view.squares > 0 else 0.0

    @property
    def exact_(self) -> bool:
        return self._view().exact

    # Use

    def transform(self, X: ArrayLike) -> Any:
        """Coordinates of rows along the components, (n, n_components_); or, with ``whiten="zca"``, whitened rows, (n, D).

        For a row with missing values (with ``missing="impute"``), the coordinates that the model expects given the observed values.
        """
        view = self._view()
        rows = self._rows_to_use(X, view.settings.missing == "impute")
        with np.errstate(over="ignore", invalid="ignore"):  # said below
            scores = coordinates(view, filled_rows(view, rows), self.whiten)
        check_coordinates(scores)
        return scores

    def inverse_transform(self, X: ArrayLike) -> Any:
        """Rows with the given coordinates, those of `transform`, (n, D)."""
        view = self._view()
        scores, xp = check_scores(X, self._n_features_out)
        rows = rows_at(view, scores, self.whiten)
        return rows if xp is None else Library(xp, X, rows.dtype).of(rows)

    def impute(self, X: ArrayLike) -> Any:
        """Fill in missing values with what the model expects, given the observed values of each row.

        Parameters
        ----------
        X : (n, D)
            An array, a pandas or polars frame, or a sparse matrix. In a sparse matrix only explicit NaN are missing.

        Returns
        -------
        (n, D)
            X with its missing values filled in, of the same type and dtype and with the same labels. Observed values do not change. (A
            column of whole numbers with missing values becomes floating-point.) Features that were never observed are filled with zero.
        """
        view = self._view()
        if view.known is not None and not (view.known > 0).all():
            warn_never_observed(view.known)
        rows = self._rows_to_use(X, holes=True)
        if isinstance(rows, SparseRows) and not np.isnan(rows.data).any():
            return X
        found = rows.dense(rows.dtype)
        if view.trust is not None:
            unpredicted = unpredicted_notice(view.trust.explained, np.asarray(np.isnan(found).any(axis=0)))
            self._said.give("unpredicted", unpredicted, UserWarning, 3)
        return put_back(X, found, filled(view, found))

    def score_samples(self, X: ArrayLike) -> Floats:
        """Log-likelihood of each row under the probabilistic PCA model, (n,); of its observed values, if some are missing."""
        view = self._view()
        holes = view.settings.missing == "impute"
        rows = self._rows_to_use(X, holes)
        found = log_likelihoods(view, rows)
        if holes and first_hole(rows) < len(rows):
            at, values = partial_likelihoods(view, rows.dense(np.dtype(np.float64)))
            found[at] = values
        return found

    def score(self, X: ArrayLike, y: None = None) -> float:
        """Mean log-likelihood of the rows; see `score_samples`."""
        return float(np.mean(self.score_samples(X)))

    def sample_influence(self, X: ArrayLike) -> Floats:
        """The weight that each row would have if it came now, (n,), from 0 to 1: below 1 if it is far from all others.

        Without ``robust=True`` every row has weight 1.
        """
        settings, model = self._fitted().settings, self._now()
        rows = self._rows_to_use(X, settings.missing == "impute")
        if model.robust is None:
            return np.ones(len(rows))
        step, found = max(1, CENTRE_BYTES // (8 * rows.D)), [np.zeros(0)]
        for start in range(0, len(rows), step):
            part = (model.unit or 1.0) * rows[start : start + step].dense(np.dtype(np.float64))
            far = far_out(model, np.nan_to_num(part), ~np.isnan(part), settings)
            found.append(model.robust.guard.weights(far))
        return np.concatenate(found)

    def get_covariance(self) -> Floats:
        """The covariance of the probabilistic PCA model, (D, D)."""
        view = self._view()
        found = covariance(*view.gaussian)
        return found if view.deviations is None else found * view.deviations * view.deviations[:, np.newaxis]

    def get_precision(self) -> Floats:
        """The inverse of the covariance of the probabilistic PCA model, (D, D)."""
        view = self._view()
        found = precision(*view.gaussian)
        return found if view.deviations is None else found / view.deviations / view.deviations[:, np.newaxis]

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

    @property
    def _n_features_out(self) -> int:
        view = self._view()
        return len(view.mean) if self.whiten == "zca" else view.K

    def _rows_to_use(self, X: ArrayLike, holes: bool) -> AnyRows:
        rows = check_rows(self, X, self._state.settings.dtype, reset=False)
        check_values(rows, 1.0, holes)
        return rows

    @property
    def _said(self) -> Notices:
        """The warnings that were given."""
        return self.__dict__.setdefault("_said_before", Notices())  # type: ignore[no-any-return]

    @property
    def _lock(self) -> Any:
        found = self.__dict__.get("_own_lock")
        return found if found is not None else self.__dict__.setdefault("_own_lock", model_lock())  # in one step: one for all threads

    def _say_gross(self, model: Model) -> None:
        """Warn if gross rows have lost more weight than may pass without a word; again if it has been less meanwhile."""
        if model.robust is not None and model.window is None:  # a piece of a window is no judge
            self._said.give_while("gross", gross_notice(model.robust.losses.gross_share(model.weight)))

    def _fitted(self) -> State:
        if "_state" not in self.__dict__:
            raise NotFittedError(f"This {type(self).__name__} has seen no data yet; call fit or partial_fit first.")
        return self._state

    def _now(self) -> Model:
        """The model with the rows of the open block."""
        state = self._fitted()
        with suited_threads(state.settings.rank * state.settings.D):
            return state.now()

    def _view(self) -> View:
        """What the model shows, cached until more is learned."""
        with self._lock:
            settings, model, buffer, _ = self._fitted()
            if buffer.read[0] != buffer.n:
                with suited_threads(settings.rank * settings.D):
                    now = self._now()
                    view = view_of(now, settings, settings.few or not model.seen, self.n_components)
                buffer.read = buffer.n, view
                self._said.on_reading(now, view)
            return buffer.read[1]  # type: ignore[no-any-return]

    def _checked_state(self) -> State:
        """The state; raises a ValueError if a parameter that learning depends on has changed. Those of reading hold from now on."""
        state = self._fitted()
        if not self.__dict__.get("_parameters_seen"):
            changed = state.settings.differs(check_settings(self))
            if changed:
                raise ValueError(changed)
            check_kept(self.n_components, state.settings)
            self._parameters_seen = True
        return state

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if not name.startswith("_"):
            self.__dict__["_parameters_seen"], self.__dict__["_next"] = False, None
            if self.__sklearn_is_fitted__():
                self._state.buffer.read = -1, None

    def _be_watched(self, onlooker: Callable[[AnyRows], None] | None) -> None:
        """Have an onlooker told of all rows when they have been learned, under the lock of the model; None ends that."""
        with self._lock:
            if self.__sklearn_is_fitted__():
                self._told = self._state.buffer.n
            self._onlooker, self._next = onlooker, None

    def _tell(self, rows: AnyRows) -> None:
        self._told = self._state.buffer.n
        if self._onlooker is not None:
            self._onlooker(rows)

    def _tell_open(self) -> None:
        """Tell the onlooker of the rows that `fit_next` has taken since it was last told."""
        buffer = self._state.buffer
        if self._onlooker is not None and buffer.n > self._told:
            self._onlooker(buffer.rows(buffer.n)[self._told :])
            self._told = buffer.n

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            kept = {name: value for name, value in super().__getstate__().items() if name not in _NOT_KEPT}
            if "_state" in kept:
                kept["_state"] = kept["_state"]._replace(buffer=kept["_state"].buffer.copy())
            return kept

    def __sklearn_is_fitted__(self) -> bool:
        return "_state" in self.__dict__

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self.missing == "impute"
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


_TOLD_EVERY = 32  # rows of `fit_next`, after which an onlooker is told of them
_NOT_KEPT = ("_own_lock", "_onlooker", "_next", "_told", "_parameters_seen")


def _reading(n: int) -> tuple[int, int]:
    """The last number of first rows, not above n, at which `fit_next` reads out its axes, and the next: 1, 2, 3, 4, 6, 8, 12, 16, …"""
    power: int = 1 << (n.bit_length() - 1)
    half = power + power // 2
    return (power, half if power > 1 else 2) if n < half or power == 1 else (half, 2 * power)
