"""Saving monitors to model files, and loading them."""

from __future__ import annotations

import os
from typing import Any, NamedTuple, TypeVar

import numpy as np
from scipy.sparse import csr_array

from online_psp.engine.rows import AnyRows, DenseRows, SparseRows
from online_psp.io import model_file
from online_psp.io.alarms import KINDS
from online_psp.io.model_file import Contents, Fields, ModelFileError
from online_psp.io.states import flatten, unflatten
from online_psp.monitoring.charts import ChartState
from online_psp.monitoring.judge import Judge
from online_psp.monitoring.memory import Places
from online_psp.monitoring.monitor import Monitor, OnDrift
from online_psp.monitoring.results import Alarm
from online_psp.pca import OnlinePCA
from online_psp.pca.files import pca_from_state, pca_state

M = TypeVar("M", bound=Monitor)

_FUNCTION = "function"
_CHARTS = "t2", "spe", "subspace"
_MOVED = "component", "feature", "all"


class _Parameters(NamedTuple):
    alpha: float
    learn_outliers: bool
    on_drift: str
    run_length: float | None
    refresh: int
    recent: int


class _Learned(NamedTuple):
    """Everything that a monitor has learned, except its model, its charts, its recent rows and its alarms."""

    n_rows: int
    n_left_out: int
    last_time: float | None
    """Time of the last row, if ages are times."""
    places: Places
    judge: Judge


def save(monitor: Monitor, path: str | os.PathLike[str], run: dict[str, Any] | None = None) -> None:
    """Write a monitor, and the state of its run over a source."""
    with monitor._lock:
        on_drift = monitor.on_drift if isinstance(monitor.on_drift, str) else _FUNCTION
        given = _Parameters(monitor.alpha, monitor.learn_outliers, on_drift, monitor.run_length, monitor.refresh, monitor._recent.size)
        learned = _Learned(monitor.n_rows, monitor.n_left_out, monitor._last_time, monitor._places, monitor._judge)
        state: dict[str, Any] = {"parameters": given._asdict(), "charts": None, "alarms": [list(alarm) for alarm in monitor.alarms]}
        arrays = {f"recent.{name}": array for name, array in monitor._recent.arrays().items()}
        parts = [("model", pca_state(monitor.model)), ("learned", flatten(learned))]
        for name, (inner, values) in parts if monitor._charts is None else [*parts, ("charts", flatten(monitor._charts))]:
            state[name] = values
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
    model = pca_from_state(fields.under("model"), OnlinePCA)
    try:
        monitor = cls(model, **given._asdict() | ({} if on_drift is None else {"on_drift": on_drift}))
    except (ValueError, TypeError) as error:
        raise ModelFileError(f"its parameters are impossible ({error})") from None
    begun = model.__sklearn_is_fitted__()
    D = model.n_features_in_ if begun else 0
    learned = unflatten(_Learned, fields.under("learned"), {"D": D} if begun else {}, np.float64)
    if learned.n_left_out > learned.n_rows or learned.places.last > learned.n_rows:
        raise ModelFileError("its counts of rows contradict each other")
    monitor.n_rows, monitor.n_left_out, monitor._last_time, monitor._places, monitor._judge = learned
    monitor._limits = monitor._judge.limits(monitor.alpha)
    if fields.optional("charts", dict) is not None:
        monitor._charts = _charts(fields.under("charts"), D)
    monitor.alarms = [_alarm(entry, D) for entry in fields.value("alarms", list)]
    rows = _recent(fields, D, given.recent, model.missing != "impute") if begun else None
    times = None if rows is None or not monitor._memory.in_time else fields.array("recent.times", (len(rows),))
    monitor._recent.restore(rows, times)
    return monitor


def _charts(fields: Fields, D: int) -> ChartState:
    found = unflatten(ChartState, fields, {"D": D, "five": 5, "rates": 2, "two": 2}, np.float64)
    frame = found.frame
    if frame.nominal.shape[1] != frame.parts["spe"].stop or (frame.around <= 0).any() or (frame.seen.variances <= 0).any():
        raise ModelFileError("its charts do not fit their axes")
    return found


def _alarm(entry: Any, D: int) -> Alarm:
    try:
        row, kind, chart, since, features, label, (part, number), change = entry
        shares = tuple((int(i), float(share)) for i, share in features)
        moved, by = (part, int(number)), None if change is None else float(change)
        found = Alarm(int(row), kind, chart, int(since), shares, str(label), moved, by)
    except (TypeError, ValueError):
        raise ModelFileError("its alarms are not alarms") from None
    if kind not in KINDS or chart not in _CHARTS or part not in _MOVED or not all(0 <= i < D for i, _ in [*shares, (moved[1], 0)]):
        raise ModelFileError("its alarms are of an unknown kind")
    return found


def _recent(fields: Fields, D: int, most: int, finite: bool) -> AnyRows | None:
    arrays = {name.removeprefix("recent."): array for name, array in fields.arrays.items() if name.startswith("recent.")}
    part = Fields(arrays, {})
    if "rows" in arrays:
        rows: AnyRows = DenseRows(part.array("rows", (len(arrays["rows"]), D), arrays["rows"].dtype, finite=finite))
    elif {"data", "indices", "indptr"} <= arrays.keys():
        data, indices, indptr = (
            part.array(name, arrays[name].shape, finite=finite or name != "data") for name in ("data", "indices", "indptr")
        )
        try:
            matrix = csr_array((data, indices.astype(np.int64), indptr.astype(np.int64)), shape=(len(indptr) - 1, D))
            matrix.check_format()
        except ValueError:
            raise ModelFileError("its recent rows are no sparse matrix") from None
        rows = SparseRows(matrix)
    else:
        return None
    if not 1 <= len(rows) <= most:
        raise ModelFileError("it has kept more rows than it should")
    return rows
