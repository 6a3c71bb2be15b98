"""Monitor: scores each row with an OnlinePCA before the model learns from it, and reports when the stream has changed."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone

from online_psp.engine.checks import check_count
from online_psp.engine.locks import InterruptsWait, model_lock
from online_psp.engine.rows import AnyRows, DenseRows
from online_psp.engine.threads import suited_threads
from online_psp.engine.types import Array
from online_psp.monitoring.charts import SPE, SUBSPACE, T2, Charts, Found
from online_psp.monitoring.diagnosis import DIRECTION, diagnose, leading, onset
from online_psp.monitoring.judge import Judge
from online_psp.monitoring.learning import Given, in_time, learn
from online_psp.monitoring.limits import SpeMoments, check_alpha
from online_psp.monitoring.memory import Memory
from online_psp.monitoring.places import Places
from online_psp.monitoring.recent import Recent, native
from online_psp.monitoring.results import Alarm, Update, unknown
from online_psp.monitoring.scores import Snapshot, chart_values, snapshot
from online_psp.pca import OnlinePCA
from online_psp.pca.checks import check_rows, check_values
from online_psp.pca.forgetting import check_half_life, check_times

if TYPE_CHECKING:
    from online_psp.monitoring.files import MonitorState

OnDrift: TypeAlias = str | Callable[["Monitor", Alarm], Any]


class Monitor:
    """Score each row of a stream before it is learned, flag outliers, and raise an alarm when the stream has changed.

    The model is read at certain *places* of the stream: after the first row, then each time an eighth more rows have come, and at least
    every `refresh` rows (or an eighth of the half-life, if that is less). Scores and limits are those of the model at the last place. So
    they do not depend on how the stream is cut into calls, and no row is scored by a model that has learned it. If the half-life is a time,
    places are at most an eighth of it apart; after a pause so long that too little is remembered, scores are NaN again.

    Drift is looked for on three charts: detectors on log SPE and on log T², and a comparison of the subspace with that of a second model
    that forgets faster (their overlap ``‖C_slow C_fastᵀ‖²/K``). Each alarm says what has changed. After an alarm all charts start anew.

    Until there are enough rows, T², SPE and limits are NaN, and no row is an outlier: T² and SPE need a model of at least 20 rows of equal
    weight, and 5 per component; the limit of the SPE needs 30 such scores more. Drift is looked for after 200 rows, and a `Cusum` first
    learns from 200 more what is ordinary. So there can be no alarm in the first 400 rows, nor in the 400 rows after a reset.

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
    detector : detector, "cusum" or None
        Detector for log SPE and log T²: an object of which each chart takes a copy, such as one of ``river.drift``; a `Cusum` by default.
        With None, no drift is looked for.
    on_drift : "flag", "reset" or callable
        What to do at an alarm, besides reporting it. "reset" starts the model anew from the rows since the change, as far as they are kept.
        A callable is called with the monitor and the `Alarm`, after the row that raised it was learned. If it raises an error, the call
        ends; `n_rows` then says how many rows have been learned, including that one.
    fast_half_life : float, text, "auto" or None
        Half-life of the second model: in rows, or a time such as "2min" if that of the model is a time. "auto" takes 50 rows, or 10 per
        component if that is more, but at most a quarter of the model's own half-life in rows. None does without the second model, which
        halves the time per row.
    refresh : int
        Largest number of rows between two places at which the model is read.
    recent : int
        Number of recent rows to keep, to start anew from.

    Attributes
    ----------
    model : OnlinePCA
    n_rows : int
        Number of rows given so far.
    n_left_out : int
        Number of rows that were not learned, because they exceed a limit.
    alarms : list of Alarm
    overlap : float
        Overlap of the two subspaces at the last place; NaN if there is none.

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
        detector: Any = "cusum",
        on_drift: OnDrift = "flag",
        fast_half_life: Any = "auto",
        refresh: int = 64,
        recent: int = 256,
    ) -> None:
        if not isinstance(model, OnlinePCA):
            raise TypeError(f"Monitor takes an OnlinePCA; got {type(model).__name__}.")
        if not isinstance(learn_outliers, bool | np.bool_):
            raise TypeError(f"learn_outliers must be True or False; got {learn_outliers!r}.")
        self._memory = Memory.of(model)
        self.model, self.learn_outliers, self.on_drift = model, bool(learn_outliers), on_drift
        self.fast_half_life = self._memory.check_fast(fast_half_life)
        self.alarms: list[Alarm] = []
        self.n_rows = self.n_left_out = 0
        self.overlap = math.nan
        self.witness: Callable[[Alarm, AnyRows, Snapshot, tuple[float, float]], None] | None = None
        """Called at an alarm with the row that raised it, the model that judged it, and its limits; not saved."""
        self.onlooker: Callable[[AnyRows, Update], None] | None = None
        """Called with rows and what was found about them, when they have been learned; not saved."""
        self._lock = model_lock()
        self._charts = Charts(detector)
        self._recent = Recent(check_count(recent, "recent"))
        self._fast: OnlinePCA | None = None
        self._judge, self._places = Judge(check_alpha(alpha), self._memory), Places(check_count(refresh, "refresh"), self._memory)
        self._last_time = model._fitted().last_time if model.__sklearn_is_fitted__() else None
        self._places.start(0, last=self._last_time)
        self._judge.read(model)

    @property
    def alpha(self) -> float:
        """Share of ordinary rows that exceed each limit; it may be changed at any time."""
        return self._judge.alpha

    @alpha.setter
    def alpha(self, alpha: float) -> None:
        with self._lock:
            self._judge.set_alpha(check_alpha(alpha))

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
    def refresh(self) -> int:
        """Largest number of rows between two places at which the model is read."""
        return self._places.refresh

    @property
    def detector(self) -> Any:
        """The detector for log SPE and log T², of which each chart has a copy."""
        return self._charts.detector

    @property
    def moments(self) -> SpeMoments:
        """Mean and variance of the SPE of all rows that were learned so far."""
        with self._lock:
            return self._judge.moments

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
            given = Given(X, rows, check_times(times, len(rows), self._memory.half_life, self._last_time), label)
            return self._update(given)

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
                found = self._update(Given(None, rows, check_times(times, 1, self._memory.half_life, self._last_time)))
            return Update(*(field[0].item() for field in found))

    def score(self, X: ArrayLike) -> Update:
        """Score rows (n, D) by the model as of the last place, without learning; `drift` is always ""."""
        with self._lock:
            rows = self._checked(X)
            found, (scores, outlier) = unknown(len(rows)), self._judge.scored(rows)
            found.t2_limit[:], found.spe_limit[:] = self._judge.limits
            return found._replace(t2=scores.t2, spe=scores.spe, outlier=outlier)

    def _checked(self, X: ArrayLike) -> AnyRows:
        """Check rows; raises an error, before anything has changed, if one of them cannot be learned."""
        if check_half_life(self.model.half_life) != self._memory.half_life:
            was = None if self._memory.half_life is None else self._memory.half_life.length
            raise ValueError(f"half_life of the model was {was} and is {self.model.half_life} now; set it back.")
        begun = self.model.__sklearn_is_fitted__()
        rows = check_rows(
            self.model if begun else clone(self.model),
            X,
            None if self.model.dtype is None else np.dtype(self.model.dtype).name,
            reset=not begun,
        )
        self._check_values(rows)
        return rows

    def _check_values(self, rows: AnyRows) -> None:
        """Raise an error if a row is not finite, or too large for one of the models."""
        for model in (self.model, self._fast):
            if model is not None:
                check_values(rows, model._fitted().unit if model.__sklearn_is_fitted__() else 0.0, self.model.missing == "impute")

    def _update(self, given: Given) -> Update:
        """Score and learn rows, piece by piece."""
        found, start = unknown(len(given.rows)), 0
        self._places.begin(given.seconds)
        with suited_threads(given.rows.D * (1 if self._judge.seen is None else len(self._judge.seen.variances))):
            while start < len(given.rows):
                start += self._piece(given, start, found)
        if self.onlooker is not None:
            self.onlooker(given.rows, found)
        return found

    def _piece(self, given: Given, start: int, found: Update) -> int:
        """Take rows up to the next place or an alarm; returns their number."""
        seconds = given.seconds
        stop = min(len(given.rows), start + self._places.ahead(self.n_rows, None if seconds is None else seconds[start:]))
        part, judge = given.rows[start:stop], self._judge
        scores, outlier = judge.scored(part)
        before = self._charts.copied()
        try:
            alarm, n = self._charts.look(*chart_values(judge.seen, scores)) if judge.seen and self._settled else (None, len(part))
            part, outlier, stop = part[:n], outlier[:n], start + n
            kept = np.ones(n, dtype=bool) if self.learn_outliers else ~outlier
            learn(self.model, self._fast_model, given, part, start, kept)
        except BaseException:
            self._charts = before
            raise
        found.t2[start:stop], found.spe[start:stop] = scores.t2[:n], scores.spe[:n]
        found.t2_limit[start:stop], found.spe_limit[start:stop] = judge.limits
        found.outlier[start:stop] = outlier
        self.n_rows += n
        self.n_left_out += n - int(kept.sum())
        if seconds is not None:
            self._last_time = float(seconds[stop - 1])
        judge.add(scores.spe[:n][kept], None if seconds is None else seconds[start:stop][kept])
        if self._charts:
            self._recent.add(part, None if seconds is None else seconds[start:stop])
        if alarm is None and self._places.reached(self.n_rows, self._last_time):
            alarm = self._arrive()
        if alarm is not None:
            found.drift[stop - 1] = self._raise(alarm, "" if given.label is None else given.label(stop - 1))
        return n

    # Places: where the model is read

    @property
    def _settled(self) -> bool:
        """Whether the model has learned enough for its scores to change slowly: 200 rows, or most of what it will ever remember."""
        seen = self._judge.seen
        return seen is not None and self._memory.settled(seen.samples, self._places.elapsed())

    def _arrive(self) -> Found | None:
        """Read the model; returns an alarm if the two models differ more than before."""
        passed = self._places.arrive(self.n_rows, self._last_time)
        self._judge.read(self.model)
        self.overlap = math.nan
        seen, fast = self._judge.seen, self._fast
        if seen is None or fast is None or len(seen.variances) == len(seen.mean) or not self._settled:
            return None
        other = snapshot(fast)
        K = min(len(seen.variances), len(other.variances))
        if not K:
            return None
        self.overlap = float(np.sum((other.components @ seen.components.T) ** 2)) / K
        return self._charts.compare(self.overlap, passed)

    # Drift

    def _raise(self, found: Found, label: str) -> str:
        """Record an alarm, start all charts anew, and do what `on_drift` says."""
        judge = self._judge
        assert judge.seen is not None
        rows, since = self._recent.last(len(self._recent)), min(max(found.since, 2), len(self._recent))
        kind = DIRECTION
        if found.chart != SUBSPACE:
            outside, inside = chart_values(judge.seen, judge.scored(rows)[0])
            since = onset(outside if found.chart == SPE else inside, since)
            kind = diagnose(rows, since, judge.seen, judge.state.moments)
        features = leading(rows, since, judge.seen, T2 if found.chart == T2 else SPE)
        alarm = Alarm(self.n_rows - 1, kind, found.chart, since, features, label)
        self.alarms.append(alarm)
        if self.witness is not None:
            self.witness(alarm, self._recent.last(1), judge.seen, judge.limits)
        self._charts.start()
        if self.on_drift == "reset":
            self.reset(since)
        elif callable(self.on_drift):
            self.on_drift(self, alarm)
        return kind

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
            self._fast = None
            fast = self._fast_model()
            if fast is not None:
                fast.partial_fit(rows, times=seconds if in_time(fast) else None)
            self._charts.start()
            self._judge.start()
            self._places.start(self.n_rows, n, None if seconds is None else float(seconds[0]), self._last_time)
            self._judge.read(self.model)

    def _fast_model(self) -> OnlinePCA | None:
        """The model that forgets faster, created at the first row."""
        if not self._charts or self.fast_half_life is None:
            return None
        if self._fast is None:
            half_life = self._memory.fast(self.fast_half_life, self.model.n_components_)
            self._fast = clone(self.model).set_params(half_life=half_life, axes="principal", reference=None)
        return self._fast

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

    def _state(self) -> MonitorState:
        from online_psp.monitoring.files import MonitorState

        overlap = None if math.isnan(self.overlap) else self.overlap
        return MonitorState(self.n_rows, self.n_left_out, overlap, self._last_time, self._places.state, self._judge.state)

    def _restore(self, state: MonitorState, fast: OnlinePCA | None, alarms: list[Alarm]) -> None:
        """Restore a state."""
        self.n_rows, self.n_left_out, self._last_time = state.n_rows, state.n_left_out, state.last_time
        self.overlap = math.nan if state.overlap is None else state.overlap
        self._places.state, self._fast, self.alarms = state.places, fast, alarms
        self._judge.restore(state.judge)

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            return {name: value for name, value in self.__dict__.items() if name != "_lock"} | {"witness": None, "onlooker": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = model_lock()
