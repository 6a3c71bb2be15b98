"""Monitor: scores each row with an OnlinePCA before the model learns from it, and reports when the stream has changed."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils import _safe_indexing

from online_psp.engine.locks import InterruptsWait, model_lock
from online_psp.engine.rows import AnyRows, DenseRows
from online_psp.engine.threads import suited_threads
from online_psp.engine.types import Array, Floats
from online_psp.monitoring import charts
from online_psp.monitoring.charts import ChartState, Found
from online_psp.monitoring.diagnosis import diagnose
from online_psp.monitoring.judge import Judge
from online_psp.monitoring.limits import SpeMoments, check_alpha
from online_psp.monitoring.memory import Memory, Places, half_life_of
from online_psp.monitoring.recent import Recent, native
from online_psp.monitoring.results import Alarm, Update, unknown
from online_psp.monitoring.scores import Snapshot
from online_psp.pca import OnlinePCA
from online_psp.pca.checks import check_rows, check_values
from online_psp.pca.forgetting import check_times

_REFRESH = 64  # most rows between two places at which the model is read
_RECENT = 256  # rows to start anew from

OnDrift: TypeAlias = str | Callable[["Monitor", Alarm], Any]


class Monitor:
    """Score each row of a stream before it is learned, flag outliers, and raise an alarm when the stream has changed.

    The model is read at certain *places* of the stream: after the first row, then each time an eighth more rows have come, and at least
    every 64 rows (or an eighth of the half-life, if that is less). Scores and limits are those of the model at the last place. So
    they do not depend on how the stream is cut into calls, and no row is scored by a model that has learned it. If the half-life is a time,
    places are at most an eighth of it apart; after a pause so long that too little is remembered, scores are NaN again.

    Drift is looked for by control charts of the averages of rows, against the first 5,000 rows since the charts began: see
    `online_psp.monitoring.charts`. Each alarm says what has moved and by how much. After an alarm all charts begin anew.

    Until there are enough rows, T², SPE and limits are NaN, and no row is an outlier: T² and SPE need a model of at least 20 rows of equal
    weight, and 5 per component; the limit of the SPE needs 30 such scores more. The charts begin after 200 rows, and need a reference of
    240 rows more. So there can be no alarm in the first 440 rows, nor in the 440 rows after a reset. The longer the reference, the smaller
    the changes that are found.

    Parameters
    ----------
    model : OnlinePCA
        The model to train; it may have learned before. With ``standardize=True`` features are scored in units of their deviations, and a
        feature that has been constant so far in its own units. With ``missing="impute"`` a row is scored by the values that it has.
    alpha : float
        Share of ordinary rows that exceed each limit.
    learn_outliers : bool
        Whether the model learns from rows that exceed a limit. If not, it never learns a lasting change, so `on_drift` should be "reset";
        and the limits shrink a little, because the largest ordinary rows are left out as well.
    run_length : float or None
        Number of ordinary rows per false alarm of drift. With None, no drift is looked for.
    on_drift : "flag", "reset" or callable
        What to do at an alarm, besides reporting it. "reset" starts the model anew from the rows since the change, as far as they are kept.
        A callable is called with the monitor and the `Alarm`, after the row that raised it was learned. If it raises an error, the call
        ends; `n_rows` then says how many rows have been learned, including that one.

    Attributes
    ----------
    model : OnlinePCA
    n_rows : int
        Number of rows given so far.
    n_left_out : int
        Number of rows that were not learned, because they exceed a limit.
    alarms : list of Alarm

    Examples
    --------
    >>> import numpy as np
    >>> from online_psp import OnlinePCA
    >>> from online_psp.monitoring import Monitor
    >>> rng = np.random.default_rng(0)
    >>> monitor = Monitor(OnlinePCA(2), alpha=0.001)
    >>> _ = monitor.update(rng.standard_normal((500, 10)) * [5, 4, 1, 1, 1, 1, 1, 1, 1, 1])
    >>> found = monitor.update_one(np.full(10, 4.0))
    >>> bool(found.outlier)
    True
    """

    def __init__(
        self,
        model: OnlinePCA,
        *,
        alpha: float = 0.01,
        learn_outliers: bool = True,
        run_length: float | None = 100_000,
        on_drift: OnDrift = "flag",
    ) -> None:
        if not isinstance(model, OnlinePCA):
            raise TypeError(f"Monitor takes an OnlinePCA; got {type(model).__name__}.")
        if not isinstance(learn_outliers, bool | np.bool_):
            raise TypeError(f"learn_outliers must be True or False; got {learn_outliers!r}.")
        if run_length is not None and not 1000 <= float(run_length) < math.inf:
            raise ValueError(f"run_length must be a number of rows, at least 1000, or None; got {run_length!r}.")
        self._memory = Memory.of(model)
        self.model, self.learn_outliers, self.on_drift = model, bool(learn_outliers), on_drift
        self.alarms: list[Alarm] = []
        self.n_rows = self.n_left_out = 0
        self.witness: Callable[[Alarm, AnyRows, Snapshot, tuple[float, float]], None] | None = None
        """Called at an alarm with the row that raised it, the model that judged it, and its limits; not saved."""
        self.onlooker: Callable[[AnyRows, Update], None] | None = None
        """Called with rows and what was found about them, when they have been learned; not saved."""
        self._lock = model_lock()
        self._alpha, self._run_length = check_alpha(alpha), None if run_length is None else float(run_length)
        self._recent = Recent(_RECENT)
        self._charts: ChartState | None = None
        self._last_time = _last_time(model)
        self._places, self._judge = Places(last_time=self._last_time), Judge().read(model, self._memory)
        self._limits = self._judge.limits(self._alpha)

    @property
    def alpha(self) -> float:
        """Share of ordinary rows that exceed each limit; it may be changed at any time."""
        return self._alpha

    @alpha.setter
    def alpha(self, alpha: float) -> None:
        with self._lock:
            self._alpha = check_alpha(alpha)
            self._limits = self._judge.limits(self._alpha)

    @property
    def on_drift(self) -> OnDrift:
        """What to do at an alarm; it may be changed at any time."""
        return self._on_drift

    @on_drift.setter
    def on_drift(self, on_drift: OnDrift) -> None:
        if not callable(on_drift) and on_drift not in ("flag", "reset"):
            raise ValueError(f"on_drift must be 'flag', 'reset' or a function of the monitor and the alarm; got {on_drift!r}.")
        self._on_drift = on_drift

    @property
    def run_length(self) -> float | None:
        """Number of ordinary rows per false alarm of drift; None if no drift is looked for."""
        return self._run_length

    @property
    def moments(self) -> SpeMoments:
        """Mean and variance of the SPE of all rows that were learned so far."""
        with self._lock:
            return self._judge.total()

    # Learning

    def update(self, X: ArrayLike, times: ArrayLike | None = None, label: Callable[[int], str] | None = None) -> Update:
        """Score rows, and learn from them.

        Parameters
        ----------
        X : (n, D)
            Dense, sparse or, with scikit-learn's ``array_api_dispatch``, of another array library; as for `OnlinePCA.partial_fit`.
        times : (n,), optional
            Times of the rows, if the half-life of the model is a time; as for `OnlinePCA.partial_fit`.
        label : callable, optional
            Gives what row i of X is known by, such as its time and place; an alarm keeps it for the row that raised it.

        Returns
        -------
        Update
            Arrays (n,): ``t2, spe, t2_limit, spe_limit, outlier, drift``.
        """
        with self._lock, InterruptsWait():
            rows = self._checked(X)
            return self._update(_Given(X, rows, check_times(times, len(rows), self._memory.half_life, self._last_time), label))

    def update_one(self, x: Array, time: Any = None) -> Update:
        """Score one row (D,), and learn from it, with less overhead than `update`; returns plain values in place of arrays."""
        row = np.asarray(x)
        if row.ndim != 1:
            raise ValueError(f"update_one takes one row of shape (D,); got shape {row.shape}.")
        times = None if time is None else np.asarray([time])
        with self._lock, InterruptsWait():
            if not (self.model.__sklearn_is_fitted__() and row.dtype.kind in "fiu" and len(row) == self.model.n_features_in_):
                found = self.update(row[np.newaxis], times)
            else:
                rows = DenseRows(row[np.newaxis] if row.dtype in (np.float64, np.float32) else row[np.newaxis].astype(np.float64))
                self._check_values(rows)
                found = self._update(_Given(None, rows, check_times(times, 1, self._memory.half_life, self._last_time)))
            return Update(*(field[0].item() for field in found))

    def score(self, X: ArrayLike) -> Update:
        """Score rows (n, D) by the model as of the last place, without learning; `drift` is always ""."""
        with self._lock:
            rows = self._checked(X)
            found, (scores, outlier) = unknown(len(rows)), self._judge.scored(rows, self._limits)
            found.t2_limit[:], found.spe_limit[:] = self._limits
            return found._replace(t2=scores.t2, spe=scores.spe, outlier=outlier)

    def _checked(self, X: ArrayLike) -> AnyRows:
        """Check rows; raises an error, before anything has changed, if one of them cannot be learned."""
        if half_life_of(self.model) != self._memory.half_life:
            raise ValueError("half_life or window of the model has changed since the monitor began: set it back, or make a new Monitor.")
        begun = self.model.__sklearn_is_fitted__()
        rows = check_rows(
            self.model if begun else clone(self.model),
            X,
            None if self.model.dtype is None else np.dtype(self.model.dtype).name,
            reset=not begun,
        )
        if self._judge.seen is not None and len(self._judge.seen.mean) != rows.D:
            raise ValueError("The model has more features than the monitor has charts for: begin a new Monitor after add_features.")
        self._check_values(rows)
        return rows

    def _check_values(self, rows: AnyRows) -> None:
        """Raise an error if a row is not finite, or too large for the model."""
        check_values(rows, _unit(self.model), self.model.missing == "impute")

    def _update(self, given: _Given) -> Update:
        """Score and learn rows, piece by piece."""
        found, start = unknown(len(given.rows)), 0
        if given.seconds is not None:
            self._places = self._places.begun(float(given.seconds[0]))
        with suited_threads(given.rows.D * (1 if self._judge.seen is None else len(self._judge.seen.variances))):
            while start < len(given.rows):
                start += self._piece(given, start, found)
        if self.onlooker is not None:
            self.onlooker(given.rows, found)
        return found

    @property
    def _step(self) -> int:
        """Most rows from one place to the next."""
        return max(1, int(min(_REFRESH, self._memory.rows / 8)))

    def _piece(self, given: _Given, start: int, found: Update) -> int:
        """Take rows up to the next place or an alarm; returns their number."""
        ahead = self._places.ahead(self.n_rows, None if given.seconds is None else given.seconds[start:], self._step, self._memory)
        part = given.rows[start : min(len(given.rows), start + ahead)]
        scores, outlier = self._judge.scored(part, self._limits)
        state, change, n = self._charts, None, len(part)
        if state is not None and self._run_length is not None:
            state, change, n = charts.look(state, state.frame.channels(part), self._run_length)
        part, outlier, stop = part[:n], outlier[:n], start + n
        kept = np.ones(n, dtype=bool) if self.learn_outliers else ~outlier
        self._learn(given, part, start, kept)
        # Nothing has changed before this line if an error came.
        self._charts = state
        found.t2[start:stop], found.spe[start:stop] = scores.t2[:n], scores.spe[:n]
        found.t2_limit[start:stop], found.spe_limit[start:stop] = self._limits
        found.outlier[start:stop] = outlier
        self.n_rows += n
        self.n_left_out += n - int(kept.sum())
        seconds = None if given.seconds is None else given.seconds[start:stop]
        if seconds is not None:
            self._last_time = float(seconds[-1])
        self._judge = self._judge.add(scores.spe[:n][kept], None if seconds is None else seconds[kept], self._memory)
        if self._run_length is not None:
            self._recent.add(part, seconds)
        if change is None and self._places.reached(self.n_rows, self._last_time, self._step, self._memory):
            self._arrive()
        if change is not None:
            found.drift[stop - 1] = self._raise(change, "" if given.label is None else given.label(stop - 1))
        return n

    def _learn(self, given: _Given, part: AnyRows, start: int, kept: NDArray[np.bool_]) -> None:
        """Let the model learn the rows of a part that are kept."""
        numbers = np.flatnonzero(kept)
        times = None if given.seconds is None else given.seconds[start + numbers]
        if not len(numbers):
            return
        if given.X is None:
            self.model.fit_next(native(part)[0], None if times is None else times[0])
        elif hasattr(given.X, "columns"):  # the model checks the names of a data frame
            self.model.partial_fit(_safe_indexing(given.X, start + numbers), times=times)
        else:
            self.model.partial_fit(native(part if kept.all() else part.take(numbers)), times=times)

    def _arrive(self) -> None:
        """Read the model at a place."""
        self._places = self._places.at(self.n_rows, self._last_time)
        self._judge = self._judge.read(self.model, self._memory)
        self._limits = self._judge.limits(self._alpha)
        self._begin_charts()

    # Drift

    def _begin_charts(self) -> None:
        """Begin the charts, if the model has learned enough for its axes to change slowly."""
        seen = self._judge.seen
        if self._charts is not None or seen is None or self._run_length is None:
            return
        if self._memory.settled(seen.samples, self._places.elapsed):
            self._charts = charts.begin(seen, self._judge.moments)

    def _raise(self, found: Found, label: str) -> str:
        """Record an alarm, begin all charts anew, and do what `on_drift` says."""
        assert self._charts is not None
        alarm = diagnose(self._charts, found, self._recent.last(self._recent.size), self.n_rows - 1, label)
        self.alarms.append(alarm)
        if self.witness is not None:
            self.witness(alarm, self._recent.last(1), self._judge.seen or self._charts.frame.seen, self._limits)
        self._charts = None
        if self.on_drift == "reset":
            self.reset(alarm.since)
        else:
            self._begin_charts()
        if callable(self.on_drift):
            self.on_drift(self, alarm)
        return alarm.kind

    def reset(self, n: int) -> None:
        """Start the model anew from the last n rows, as far as they are kept; if none are, from the next row."""
        with self._lock:
            n = min(n, len(self._recent))
            if n < 1:
                raise ValueError("There are no recent rows to start anew from; n must be at least 1, and the monitor must look for drift.")
            rows, seconds = native(self._recent.last(n)), self._recent.times(n)
            names = getattr(self.model, "feature_names_in_", None)
            self.model.fit(rows, times=seconds)
            if names is not None:
                self.model.feature_names_in_ = names
            self._charts = None
            self._places = Places(n, self.n_rows, self._last_time, None if seconds is None else float(seconds[0]))
            self._judge = Judge().read(self.model, self._memory)
            self._limits = self._judge.limits(self._alpha)

    # Files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the monitor and its models to a file; a monitor loaded from it continues bit for bit."""
        from online_psp.monitoring.files import save

        save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], on_drift: OnDrift | None = None) -> Self:
        """Read a monitor that `save` has written.

        Parameters
        ----------
        path : path
        on_drift : "flag", "reset" or callable, optional
            Reaction to alarms, in place of the saved one; required if that was a function, which a file cannot hold.
        """
        from online_psp.monitoring.files import load

        return load(path, cls, on_drift)

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            return {name: value for name, value in self.__dict__.items() if name != "_lock"} | {"witness": None, "onlooker": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = model_lock()


class _Given(NamedTuple):
    """The checked rows of one call."""

    X: Any
    """The rows as they were given; None for a single row."""
    rows: AnyRows
    seconds: Floats | None
    """Times of the rows, (n,), if the model forgets by time."""
    label: Callable[[int], str] | None = None
    """Gives what a row is known by."""


# All that a monitor takes from the inside of a model.


def _last_time(model: OnlinePCA) -> float | None:
    """Time of the last row of a model that forgets by time."""
    return model._fitted().last_time if model.__sklearn_is_fitted__() else None


def _unit(model: OnlinePCA) -> float:
    """The unit that the model has taken from its first row; 0 before that."""
    return model._fitted().model.unit if model.__sklearn_is_fitted__() else 0.0
