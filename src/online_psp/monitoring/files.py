"""Saving monitors to model files, and loading them."""

from __future__ import annotations

import os
from typing import Any, NamedTuple, TypeVar

from online_psp.engine.types import Array
from online_psp.io import model_file
from online_psp.io.model_file import Contents, ModelFileError
from online_psp.io.states import flatten, rows_of, under, unflatten
from online_psp.monitoring.charts import ChartState
from online_psp.monitoring.judge import Judge
from online_psp.monitoring.memory import Places
from online_psp.monitoring.monitor import Monitor, OnDrift
from online_psp.monitoring.results import Alarm
from online_psp.pca import OnlinePCA
from online_psp.pca.files import pca_from_state, pca_state

M = TypeVar("M", bound=Monitor)

_FUNCTION = "function"


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
        given = {name: getattr(monitor, name) for name in ("alpha", "learn_outliers", "run_length")} | {"on_drift": on_drift}
        learned = _Learned(monitor.n_rows, monitor.n_left_out, monitor._last_time, monitor._places, monitor._judge)
        state: dict[str, Any] = {"parameters": given, "alarms": [list(alarm) for alarm in monitor.alarms]}
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
    with model_file.refusing(path, "a monitor"):
        if found.kind != "Monitor":
            raise ModelFileError(f"it holds a model of kind {found.kind}, not a Monitor")
        return _from_state(found.arrays, found.state, cls, on_drift), found.run


def _from_state(arrays: dict[str, Array], values: dict[str, Any], cls: type[M], on_drift: OnDrift | None) -> M:
    given = dict(values["parameters"])
    if on_drift is None and given["on_drift"] == _FUNCTION:
        raise ModelFileError("it was saved with a function for on_drift, which a file cannot hold; pass on_drift to load")
    if on_drift is not None:
        given["on_drift"] = on_drift
    monitor = cls(pca_from_state(under(arrays, "model"), values["model"], OnlinePCA), **given)
    D = getattr(monitor.model, "n_features_in_", 0)
    monitor.n_rows, monitor.n_left_out, monitor._last_time, monitor._places, monitor._judge = unflatten(
        _Learned, under(arrays, "learned"), values["learned"], {"D": D}
    )
    monitor._limits = monitor._judge.limits(monitor.alpha)
    if "charts" in values:
        monitor._charts = unflatten(ChartState, under(arrays, "charts"), values["charts"], {"D": D})
    monitor.alarms = [_alarm(*entry) for entry in values["alarms"]]
    recent = under(arrays, "recent")
    monitor._recent.restore(rows_of(recent, D), recent.get("times"))
    return monitor


def _alarm(row: int, kind: str, chart: str, since: int, features: Any, label: str, moved: Any, change: float | None) -> Alarm:
    """An alarm whose tuples JSON has made lists."""
    return Alarm(row, kind, chart, since, tuple((i, share) for i, share in features), label, (moved[0], moved[1]), change)
