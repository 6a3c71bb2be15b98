"""Saving monitors to model files, and loading them."""

from __future__ import annotations

import os
from typing import Any, NamedTuple, TypeVar

import numpy as np
from scipy.sparse import csr_array

from online_psp.engine.rows import AnyRows, DenseRows, SparseRows
from online_psp.engine.types import Floats
from online_psp.io import model_file
from online_psp.io.model_file import Contents, Fields, ModelFileError
from online_psp.io.states import flatten, unflatten
from online_psp.monitoring.charts import CHARTS
from online_psp.monitoring.detectors import Cusum, CusumParameters, CusumState
from online_psp.monitoring.diagnosis import KINDS
from online_psp.monitoring.judge import JudgeState
from online_psp.monitoring.limits import LARGEST
from online_psp.monitoring.memory import Memory
from online_psp.monitoring.monitor import Monitor, OnDrift
from online_psp.monitoring.places import PlacesState
from online_psp.monitoring.results import Alarm
from online_psp.pca import OnlinePCA
from online_psp.pca.files import pca_from_state, pca_state

M = TypeVar("M", bound=Monitor)

_FUNCTION = "function"
_LARGEST = 1e152  # largest value allowed: its square does not overflow
_LEAST_SCALE = 1e-160  # smallest deviation allowed: squares of smaller ones underflow
_LEAST = 1e-40  # smallest variance allowed, relative to the largest
_ORTHONORMAL = 1e-3  # allowed distance from orthonormal, for directions in single precision


class MonitorState(NamedTuple):
    """Everything that a monitor has learned, except its models, its recent rows and its alarms."""

    n_rows: int
    n_left_out: int
    overlap: float | None
    last_time: float | None
    """Time of the last row, if ages are times."""
    places: PlacesState
    judge: JudgeState


class _Parameters(NamedTuple):
    alpha: float
    learn_outliers: bool
    on_drift: str
    refresh: int
    recent: int


def save(monitor: Monitor, path: str | os.PathLike[str], run: dict[str, Any] | None = None) -> None:
    """Write a monitor, and the state of its run over a source; raises a TypeError if its detector is not a `Cusum`."""
    with monitor._lock:
        detector = monitor.detector
        if detector is not None and type(detector) is not Cusum:
            raise TypeError(f"A monitor whose detector is {type(detector).__name__} cannot be saved in a model file; pickle it.")
        on_drift = monitor.on_drift if isinstance(monitor.on_drift, str) else _FUNCTION
        arrays, learned = flatten(monitor._state())
        state: dict[str, Any] = {
            "parameters": _Parameters(monitor.alpha, monitor.learn_outliers, on_drift, monitor.refresh, monitor._recent.size)._asdict(),
            "fast_half_life": monitor.fast_half_life,
            "detector": None if detector is None else detector.parameters()._asdict(),
            "learned": learned,
            "charts": {name: chart.state._asdict() for name, chart in monitor._charts.on.items()},
            "alarms": [list(alarm) for alarm in monitor.alarms],
        }
        arrays = {f"learned.{name}": array for name, array in arrays.items()}
        arrays |= {f"recent.{name}": array for name, array in monitor._recent.arrays().items()}
        for name, model in (("model", monitor.model), ("fast", monitor._fast)):
            if model is not None:
                inner, state[name] = pca_state(model)
                arrays |= {f"{name}.{key}": array for key, array in inner.items()}
        model_file.write(path, Contents("Monitor", arrays, state, run or {}))


def load(path: str | os.PathLike[str], cls: type[M], on_drift: OnDrift | None) -> M:
    """Read a monitor."""
    return load_run(path, cls, on_drift)[0]


def load_run(path: str | os.PathLike[str], cls: type[M], on_drift: OnDrift | None = None) -> tuple[M, dict[str, Any]]:
    """Read a monitor and its run."""
    found = model_file.read(path)
    try:
        if found.kind != "Monitor":
            raise ModelFileError(f"it holds a model of kind {found.kind}, not a Monitor")
        return _from_state(Fields(found.arrays, found.state), cls, on_drift), found.run
    except ModelFileError as error:
        raise ModelFileError(f"{os.fspath(path)} cannot be used as a monitor: {error}.") from None


def _from_state(fields: Fields, cls: type[M], on_drift: OnDrift | None) -> M:
    given = unflatten(_Parameters, fields.under("parameters"), {}, np.float64)
    if on_drift is None and given.on_drift == _FUNCTION:
        raise ModelFileError("it was saved with a function for on_drift, which a file cannot hold; pass on_drift to load")
    fast_half_life = fields.values.get("fast_half_life")
    model = pca_from_state(fields.under("model"), OnlinePCA)
    try:
        detector = None
        if fields.optional("detector", dict) is not None:
            detector = Cusum(**unflatten(CusumParameters, fields.under("detector"), {}, np.float64)._asdict())
        monitor = cls(
            model,
            alpha=given.alpha,
            learn_outliers=given.learn_outliers,
            detector=detector,
            on_drift=given.on_drift if on_drift is None else on_drift,
            fast_half_life=fast_half_life,
            refresh=given.refresh,
            recent=given.recent,
        )
    except (ValueError, TypeError) as error:
        if isinstance(error, ModelFileError):
            raise
        raise ModelFileError(f"its parameters are impossible ({error})") from None
    if monitor._charts.on.keys() != fields.value("charts", dict).keys():
        raise ModelFileError("it has other charts than its parameters ask for")
    charts = fields.under("charts")
    for name, chart in monitor._charts.on.items():
        chart.state = unflatten(CusumState, charts.under(name), {}, np.float64)
        if chart.state.scatter < 0 or min(chart.state.high, chart.state.low) < 0:
            raise ModelFileError("its detectors have negative sums")
    begun = model.__sklearn_is_fitted__()
    sizes = {"D": model.n_features_in_} if begun else {}
    state = unflatten(MonitorState, fields.under("learned"), sizes, np.float64)
    _check(state, monitor._memory, begun)
    fast = None if fields.values.get("fast") is None else pca_from_state(fields.under("fast"), OnlinePCA)
    if fast is not None and not (begun and fast.__sklearn_is_fitted__()):
        raise ModelFileError("one of its two models has learned nothing")
    if fast is not None and fast.n_features_in_ != model.n_features_in_:
        raise ModelFileError("its two models do not have the same features")
    monitor._restore(state, fast, [_alarm(entry, model.n_features_in_ if begun else 0) for entry in fields.value("alarms", list)])
    rows = _recent(fields, model.n_features_in_, given.recent, model.missing != "impute") if begun else None
    monitor._recent.restore(rows, _recent_times(fields, monitor._memory, 0 if rows is None else len(rows)))
    return monitor


def _check(state: MonitorState, memory: Memory, begun: bool) -> None:
    places, judge = state.places, state.judge
    seen, moments = judge.seen, judge.moments
    if not places.last <= state.n_rows < places.next or state.n_left_out > state.n_rows:
        raise ModelFileError("its counts of rows contradict each other")
    if min(moments.weight, moments.squares, moments.unit, moments.scatter, moments.level) < 0 or (judge.pending < 0).any():
        raise ModelFileError("it has negative weights or squares")
    if moments.level > LARGEST or max(moments.weight, moments.squares, moments.scatter) > 1e80 * LARGEST**2:
        raise ModelFileError("its moments are larger than any")
    if ((judge.fading <= 0) | (judge.fading > 1)).any():
        raise ModelFileError("its scores have decays that are not between 0 and 1")
    if not memory.in_time and {state.last_time, places.last_time, places.start_time, judge.last_time} != {None}:
        raise ModelFileError("its rows have times, and it does not forget by time")
    times = [time for time in (places.last_time, places.start_time, judge.last_time) if time is not None]
    if times and (state.last_time is None or max(times) > state.last_time):
        raise ModelFileError("its times are later than that of its last row")
    if seen is not None and (
        not begun or not len(seen.variances) or (seen.variances <= _LEAST * seen.variances.max()).any() or seen.samples < 1
    ):
        raise ModelFileError("what it scores rows by has variances that are not positive")
    if seen is not None and seen.variances.max() <= _LEAST * seen.total:
        raise ModelFileError("what it scores rows by has variances that are smaller than any")
    if seen is not None and not _orthonormal(seen.components):
        raise ModelFileError("what it scores rows by has directions that are not orthonormal")
    if seen is not None and max(float(np.abs(seen.mean).max()), abs(seen.total) ** 0.5) > _LARGEST:
        raise ModelFileError("what it scores rows by is larger than any rows")
    if seen is not None and (min(seen.noise, seen.total) < 0 or (seen.scale is not None and (seen.scale < _LEAST_SCALE).any())):
        raise ModelFileError("what it scores rows by has negative variances, or deviations that are smaller than any")


def _orthonormal(rows: Floats) -> bool:
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.abs(rows @ rows.T - np.eye(len(rows))).max() < _ORTHONORMAL)


def _alarm(entry: Any, D: int) -> Alarm:
    if not isinstance(entry, list) or [type(part) for part in entry] != [int, str, str, int, list, str]:
        raise ModelFileError("its alarms are not alarms")
    row, kind, chart, since, features, label = entry
    if kind not in KINDS or chart not in CHARTS or min(row, since) < 0:
        raise ModelFileError("its alarms are of an unknown kind")
    for pair in features:
        if not isinstance(pair, list) or [type(part) for part in pair] != [int, float] or not (0 <= pair[0] < D and 0 <= pair[1] <= 1):
            raise ModelFileError("its alarms name features that it does not have")
    return Alarm(row, kind, chart, since, tuple((i, share) for i, share in features), label)


def _recent_times(fields: Fields, memory: Memory, n: int) -> Floats | None:
    if not memory.in_time or not n:
        if "recent.times" in fields.arrays:
            raise ModelFileError("its recent rows have times, and it does not forget by time")
        return None
    times = fields.array("recent.times", (n,))
    if (np.diff(times) < 0).any():
        raise ModelFileError("the times of its recent rows go back")
    return times


def _recent(fields: Fields, D: int, most: int, finite: bool) -> AnyRows | None:
    arrays = {name.removeprefix("recent."): array for name, array in fields.arrays.items() if name.startswith("recent.")}
    arrays.pop("times", None)
    part = Fields(arrays, {})
    if not arrays:
        return None
    if "rows" in arrays:
        rows = part.array("rows", (len(arrays["rows"]), D), arrays["rows"].dtype, finite=finite)
        if not 1 <= len(rows) <= most:
            raise ModelFileError("it has kept more rows than it should")
        return DenseRows(rows)
    if arrays.keys() != {"data", "indices", "indptr"} or any(array.ndim != 1 for array in arrays.values()):
        raise ModelFileError("its recent rows are incomplete")
    data, indices, indptr = (
        part.array(name, arrays[name].shape, finite=finite or name != "data") for name in ("data", "indices", "indptr")
    )
    fits = 2 <= len(indptr) <= most + 1 and indptr[0] == 0 and indptr[-1] == len(data) == len(indices) and (np.diff(indptr) >= 0).all()
    if not fits or (indices < 0).any() or (indices >= D).any() or (indices % 1).any() or (indptr % 1).any():
        raise ModelFileError("its recent rows are no sparse matrix")
    return SparseRows(csr_array((data, indices.astype(np.int64), indptr.astype(np.int64)), shape=(len(indptr) - 1, D)))
