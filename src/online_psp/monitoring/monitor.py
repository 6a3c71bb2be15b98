"""Monitor: an OnlinePCA that says of each row how unusual it is, before it learns from it, and when the stream has changed."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils import _safe_indexing

from online_psp.engine.checks import check_count
from online_psp.engine.libraries import to_host
from online_psp.engine.rows import AnyRows, DenseRows
from online_psp.engine.types import Array
from online_psp.monitoring.charts import SUBSPACE, Charts, Found
from online_psp.monitoring.diagnosis import DIRECTION, diagnose
from online_psp.monitoring.limits import SpeMoments, check_alpha, spe_limit_of, t2_limit_of
from online_psp.monitoring.recent import Recent, native
from online_psp.monitoring.results import Alarm, Update, unknown
from online_psp.monitoring.scores import Scores, Snapshot, chart_values, check_units, score, snapshot
from online_psp.pca import OnlinePCA
from online_psp.pca.checks import check_rows, check_values

if TYPE_CHECKING:
    from online_psp.monitoring.files import MonitorState

_LEAST_ROWS, _ROWS_A_COMPONENT = 20, 5  # of equal weight: so many before anything is scored
_SETTLED_ROWS = 200  # of equal weight: so many before drift is looked for


def rows_needed(K: int) -> int:
    """Rows of equal weight that a model of K components must have learned before rows are judged by it."""
    return max(_LEAST_ROWS, _ROWS_A_COMPONENT * K)


OnDrift: TypeAlias = str | Callable[["Monitor", Alarm], Any]


class Monitor:
    """Score each row of a stream before it is learned, flag outliers, and raise an alarm when the stream has changed.

    Scores and limits are those of the model as it stood at the last of certain *places* of the stream: after the first row, then ever
    more rarely, after an eighth more rows each time, and at least every `refresh` rows (or an eighth of the half-life, if that is less).
    So they do not depend on how the stream is cut into calls, and no row is scored by a model that has learned it.

    Drift is looked for on three charts: detectors on log SPE and on log T², and a comparison of the subspace with that of a second model
    that forgets faster (their overlap ``‖C_slow C_fastᵀ‖²/K``). Each alarm says what has changed. After an alarm all charts begin anew.

    Before there are enough rows T², SPE and limits are NaN, and no row is an outlier: T² and SPE need a model of 20 rows of equal weight,
    and 5 a component; the limit of the SPE needs 30 such scores more. Drift is looked for from 200 rows on, and a `Cusum` first learns from
    200 more what is ordinary: so there can be no alarm in the first 400 rows, nor in the 400 after a reset.

    Parameters
    ----------
    model : OnlinePCA
        It learns, and may have learned before. Its half-life, if any, is a number of rows.
    alpha : float
        Share of ordinary rows that exceed each limit.
    learn_outliers : bool
        Whether the model learns from rows that exceed a limit. If not, a lasting change is never learned, so that `on_drift` should be
        "reset"; and the limits shrink a little, since the largest ordinary rows are left out as well.
    detector : detector, "cusum" or None
        For log SPE and for log T²: an object of which each chart takes a copy, by default a `Cusum`. Any of ``river.drift`` will do. None
        looks for no drift at all.
    on_drift : "flag", "reset" or callable
        What to do at an alarm, apart from saying so. "reset" starts the model anew from the rows since the change, as far as they are kept.
        A callable gets the monitor and the `Alarm`, after the row that raised it was learned.
    fast_half_life : float, "auto" or None
        Of the second model, in rows. "auto" takes 50 rows, or 10 a component if that is more, but at most a quarter of the model's own
        half-life. None does without it, and halves the time a row.
    refresh : int
        Rows between the places at which the model is read, at most.
    recent : int
        Rows kept to start anew from.

    Attributes
    ----------
    model : OnlinePCA
    n_rows : int
        Rows given so far.
    n_left_out : int
        Rows that were not learned since they exceed a limit.
    alarms : list of Alarm
    overlap : float
        Of the two subspaces at the last place; NaN where there is none.

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
        fast_half_life: float | str | None = "auto",
        refresh: int = 64,
        recent: int = 256,
    ) -> None:
        if not isinstance(model, OnlinePCA):
            raise TypeError(f"Monitor takes an OnlinePCA; got {type(model).__name__}.")
        if not callable(on_drift) and on_drift not in ("flag", "reset"):
            raise ValueError(f"on_drift must be 'flag', 'reset' or a function of the monitor and the alarm; got {on_drift!r}.")
        if not isinstance(learn_outliers, bool | np.bool_):
            raise TypeError(f"learn_outliers must be True or False; got {learn_outliers!r}.")
        check_units(model)
        self._half_life = _half_life(model)
        self._decay = 1.0 if self._half_life is None else 2.0 ** (-1.0 / self._half_life)
        self._check_memory(model)
        self.model, self.alpha, self.learn_outliers, self.on_drift = model, check_alpha(alpha), bool(learn_outliers), on_drift
        self.fast_half_life = _check_fast(fast_half_life)
        self.refresh = check_count(refresh, "refresh")
        self.alarms: list[Alarm] = []
        self.n_rows = self.n_left_out = 0
        self.overlap = math.nan
        self.witness: Callable[[Alarm, AnyRows, Snapshot, tuple[float, float]], None] | None = None
        """Called at an alarm with the row that raised it, the model that judged it, and its limits; belongs to this process alone."""
        self._lock = threading.RLock()
        self._charts = Charts(detector)
        self._recent = Recent(check_count(recent, "recent"))
        self._fast: OnlinePCA | None = None
        self._moments, self._pending = SpeMoments(), np.zeros(0)  # of the SPE, up to the last place and since
        self._seen: Snapshot | None = None  # the model as of the last place
        self._limits = math.nan, math.nan
        self._since_start = self._last_place = self._next_place = 0
        self._start()

    @property
    def detector(self) -> Any:
        """What looks for drift on log SPE and log T²: the object of which each chart has a copy."""
        return self._charts.detector

    # Learning

    def update(self, X: ArrayLike) -> Update:
        """Score rows, and learn from them.

        Parameters
        ----------
        X : (n, D)
            Dense, sparse or, with scikit-learn's ``array_api_dispatch``, of another array library; as for `OnlinePCA.partial_fit`.

        Returns
        -------
        Update
            Arrays (n,): ``t2, spe, t2_limit, spe_limit, outlier, drift``.
        """
        with self._lock:
            rows = self._checked(X)
            found, start = unknown(len(rows)), 0
            while start < len(rows):
                start += self._piece(X, rows, start, found)
            return found

    def update_one(self, x: Array) -> Update:
        """Score one row (D,), and learn from it, with less overhead than `update`; plain values in place of arrays."""
        row = np.asarray(x)
        if row.ndim != 1:
            raise ValueError(f"update_one takes one row of shape (D,); got shape {row.shape}.")
        with self._lock:
            if not (self.model.__sklearn_is_fitted__() and row.dtype.kind in "fiu" and len(row) == self.model.n_features_in_):
                found = self.update(row[np.newaxis])
            else:
                rows = DenseRows(row[np.newaxis] if row.dtype in (np.float64, np.float32) else row[np.newaxis].astype(np.float64))
                self._check_values(rows)
                found = unknown(1)
                self._piece(None, rows, 0, found)
            return Update(*(field[0].item() for field in found))

    def score(self, X: ArrayLike) -> Update:
        """Score rows (n, D) by the model as of the last place, and learn nothing; `drift` is "" throughout."""
        with self._lock:
            rows = self._checked(X)
            found, (scores, outlier) = unknown(len(rows)), self._scored(rows)
            found.t2_limit[:], found.spe_limit[:] = self._limits
            return found._replace(t2=scores.t2, spe=scores.spe, outlier=outlier)

    def _checked(self, X: ArrayLike) -> AnyRows:
        """Rows that can be learned, all of them, or an error before anything has changed."""
        if _half_life(self.model) != self._half_life:
            raise ValueError(f"half_life of the model was {self._half_life} and is {self.model.half_life} now; set it back.")
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
        """Raise an error where a row is not finite, or too large for one of the models."""
        for model in (self.model, self._fast):
            if model is not None:
                check_values(rows, model._fitted().unit if model.__sklearn_is_fitted__() else 0.0)

    def _piece(self, X: Any, rows: AnyRows, start: int, found: Update) -> int:
        """Take rows up to the next place, or up to an alarm; how many those are."""
        stop = min(len(rows), start + max(1, self._next_place - self.n_rows))
        part = rows[start:stop]
        scores, outlier = self._scored(part)
        before = self._charts.copied()
        alarm, n = self._charts.look(*chart_values(self._seen, scores)) if self._seen and self._settled else (None, len(part))
        part, outlier = part[:n], outlier[:n]
        stop = start + n
        try:
            learned = self._learn(X, part, start, outlier)
        except BaseException:
            self._charts = before
            raise
        found.t2[start:stop], found.spe[start:stop] = scores.t2[:n], scores.spe[:n]
        found.t2_limit[start:stop], found.spe_limit[start:stop] = self._limits
        found.outlier[start:stop] = outlier
        self.n_rows += n
        self.n_left_out += n - learned
        kept = scores.spe[:n] if self.learn_outliers else scores.spe[:n][~outlier]
        self._pending = np.concatenate([self._pending, kept[np.isfinite(kept)]])
        if self._charts:
            self._recent.add(part)
        if alarm is None and self.n_rows >= self._next_place:
            alarm = self._arrive()
        if alarm is not None:
            found.drift[stop - 1] = self._raise(alarm)
        return n

    def _scored(self, part: AnyRows) -> tuple[Scores, NDArray[np.bool_]]:
        if self._seen is None:
            unknown = np.full(len(part), math.nan)
            return Scores(unknown, unknown), np.zeros(len(part), dtype=bool)
        scores = Scores(*(np.asarray(to_host(each), dtype=np.float64) for each in score(self._seen, part)))
        return scores, (scores.t2 > self._limits[0]) | (scores.spe > self._limits[1])

    def _learn(self, X: Any, part: AnyRows, start: int, outlier: NDArray[np.bool_]) -> int:
        """Let both models learn from a part of the rows of X, or from one row where that is None; how many rows the slow one has taken."""
        kept = np.ones(len(part), dtype=bool) if self.learn_outliers else ~outlier
        numbers = np.flatnonzero(kept)
        fast = self._fast_model() if self.model.__sklearn_is_fitted__() else None
        if X is None:
            row = native(part)[0]
            for model in ([self.model] if len(numbers) else []) + ([] if fast is None else [fast]):
                model.fit_next(row)
            return len(numbers)
        if len(numbers):  # columns of a data frame have names, which the model knows
            taken = _safe_indexing(X, start + numbers) if hasattr(X, "columns") else native(part if kept.all() else part.take(numbers))
            self.model.partial_fit(taken)
        fast = self._fast_model()
        if fast is not None:
            fast.partial_fit(native(part))
        return len(numbers)

    @property
    def moments(self) -> SpeMoments:
        """Mean and variance of the SPE of all rows that were learned so far."""
        with self._lock:
            return self._moments.take(self._pending, self._decay)

    @property
    def _remembered(self) -> float:
        """How many rows of equal weight the model will ever know at a time."""
        return math.inf if self._decay == 1.0 else (1.0 + self._decay) / (1.0 - self._decay)

    @property
    def _settled(self) -> bool:
        """Whether the model has learned enough for its scores to change slowly: 200 rows, or most of what it will ever remember."""
        return self._seen is not None and self._seen.samples >= min(_SETTLED_ROWS, 0.9 * self._remembered)

    def _check_memory(self, model: OnlinePCA) -> None:
        wanted: Any = model.n_components
        needed = rows_needed(wanted if isinstance(wanted, int) else 0)
        if self._remembered <= needed:
            raise ValueError(
                f"half_life={model.half_life} remembers as much as {self._remembered:.0f} rows of equal weight, and to score rows "
                f"a monitor needs {needed}; take a longer half-life."
            )

    # Places: where the model is read

    def _arrive(self) -> Found | None:
        """Read the model; an alarm where the two models differ as they did not before."""
        self._moments, self._pending = self.moments, np.zeros(0)
        passed = self.n_rows - self._last_place
        self._since_start += passed
        self._last_place = self.n_rows
        self._set_next_place()
        self._read()
        return self._compare(passed)

    def _set_next_place(self) -> None:
        most = self.refresh if self._half_life is None else max(1, min(self.refresh, int(self._half_life / 8)))
        self._next_place = self.n_rows + min(max(self._since_start // 8, 1), most)

    def _read(self) -> None:
        if not self.model.__sklearn_is_fitted__():
            return
        seen = snapshot(self.model)
        K = len(seen.variances)
        self._seen = seen if K and (self._seen is not None or seen.samples >= rows_needed(K)) else None
        if self._seen is not None:
            self._limits = t2_limit_of(seen, self.alpha), spe_limit_of(seen, self._moments, self.alpha)

    def _compare(self, passed: int) -> Found | None:
        self.overlap = math.nan
        seen, fast = self._seen, self._fast
        if seen is None or fast is None or len(seen.variances) == len(seen.mean):
            return None
        other = snapshot(fast)
        K = min(len(seen.variances), len(other.variances))
        if not K or not self._settled:
            return None
        self.overlap = float(np.sum((other.components @ seen.components.T) ** 2)) / K
        return self._charts.compare(self.overlap, passed)

    # Drift

    def _raise(self, found: Found) -> str:
        """Record an alarm, begin all charts anew, and do what is to be done."""
        assert self._seen is not None
        since = min(max(found.since, 2), len(self._recent))
        kind = DIRECTION if found.chart == SUBSPACE else diagnose(self._recent.last(len(self._recent)), since, self._seen, self._moments)
        alarm = Alarm(self.n_rows - 1, kind, found.chart, since)
        self.alarms.append(alarm)
        if self.witness is not None:
            self.witness(alarm, self._recent.last(1), self._seen, self._limits)
        self._charts.start()
        if self.on_drift == "reset":
            self.reset(since)
        elif callable(self.on_drift):
            self.on_drift(self, alarm)
        return kind

    def reset(self, n: int) -> None:
        """Start the model anew from the last n rows, as far as they are kept; without any, from the next row."""
        with self._lock:
            n = min(n, len(self._recent))
            if n < 1:
                raise ValueError("There are no recent rows to start anew from; n must be at least 1, and the monitor must look for drift.")
            rows = native(self._recent.last(n))
            names = getattr(self.model, "feature_names_in_", None)
            self.model.fit(rows)
            if names is not None:
                self.model.feature_names_in_ = names
            self._fast = None
            fast = self._fast_model()
            if fast is not None:
                fast.partial_fit(rows)
            self._charts.start()
            self._start(n)

    def _start(self, known: int = 0) -> None:
        """Begin to score by a model that has just begun, with so many rows."""
        self._moments, self._pending = SpeMoments(), np.zeros(0)
        self._seen, self._limits = None, (math.nan, math.nan)
        self._since_start, self._last_place = known, self.n_rows
        self._read()
        self._set_next_place()

    def _fast_model(self) -> OnlinePCA | None:
        """The model that forgets faster, made when the first row comes."""
        if not self._charts or self.fast_half_life is None:
            return None
        if self._fast is None:
            rows = self.fast_half_life
            if rows == "auto":
                rows = min(max(50.0, 10.0 * self.model.n_components_), math.inf if self._half_life is None else self._half_life / 4.0)
            self._fast = clone(self.model).set_params(half_life=rows, axes="principal", reference=None)
        return self._fast

    # Files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the monitor and its models to a file, mid-stream; one that is loaded again goes on bit for bit."""
        from online_psp.monitoring.files import save

        save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], on_drift: OnDrift | None = None) -> Self:
        """Read a monitor that `save` has written.

        Parameters
        ----------
        path : path
        on_drift : "flag", "reset" or callable, optional
            Another reaction to alarms than the one it was saved with; needed where that was a function, which a file cannot hold.
        """
        from online_psp.monitoring.files import load

        return load(path, cls, on_drift)

    def _state(self) -> MonitorState:
        from online_psp.monitoring.files import MonitorState

        return MonitorState(
            self.n_rows,
            self.n_left_out,
            self._since_start,
            self._last_place,
            self._next_place,
            None if math.isnan(self.overlap) else self.overlap,
            self._moments,
            self._pending,
            self._seen,
        )

    def _restore(self, state: MonitorState, fast: OnlinePCA | None, alarms: list[Alarm]) -> None:
        """Take up a state; limits follow from it."""
        self.n_rows, self.n_left_out = state.n_rows, state.n_left_out
        self._since_start, self._last_place, self._next_place = state.since_start, state.last_place, state.next_place
        self.overlap = math.nan if state.overlap is None else state.overlap
        self._moments, self._pending, self._seen, self._fast, self.alarms = state.moments, state.pending, state.seen, fast, alarms
        self._limits = math.nan, math.nan
        if state.seen is not None:
            self._limits = t2_limit_of(state.seen, self.alpha), spe_limit_of(state.seen, self._moments, self.alpha)

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            return {name: value for name, value in self.__dict__.items() if name != "_lock"} | {"witness": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.RLock()


def _half_life(model: OnlinePCA) -> float | None:
    half_life: Any = model.half_life
    if half_life is None or (isinstance(half_life, int | float | np.number) and not isinstance(half_life, bool)):
        return None if half_life is None else float(half_life)
    raise ValueError(f"A monitored model's half_life must be a number of rows, or None; got {half_life!r}.")


def _check_fast(value: Any) -> Any:
    if value is None or value == "auto":
        return value
    if isinstance(value, str | bool) or not isinstance(value, int | float | np.number):
        raise TypeError(f"fast_half_life must be a number of rows, 'auto' or None; got {value!r}.")
    if not 0.0 < float(value) < math.inf:
        raise ValueError(f"fast_half_life must be positive and finite, 'auto' or None; got {value!r}.")
    return float(value)
