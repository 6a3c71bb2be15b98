"""``--monitor``: scoring of rows before they are learned, for `psp fit` and `psp update`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import typer

from online_psp.cli._common import check_not_source, echo, plural
from online_psp.cli._errors import USAGE, fail, usage
from online_psp.cli._options import MONITORING

if TYPE_CHECKING:
    from online_psp.cli.fit import Task

_OPTIONS = [name for name in MONITORING if name not in ("monitor", "fail_on_drift")]
DRIFTED = 3
"""Exit code of --fail-on-drift."""


def check_monitoring(task: Task) -> None:
    """Refuse options that would have no effect, before anything is read."""
    path = task.alarms
    if path is None:
        for name in task.monitoring:
            usage(f"{MONITORING[name].flags[0]} is an option of monitoring: it needs --monitor FILE.")
        return
    if path.suffix.lower() != ".csv":
        usage(f"--monitor writes CSV: the name of its file must end in .csv; got {path}.")
    if os.path.realpath(path) == os.path.realpath(task.output):
        usage(f"{path} is the model file as well as the table of alarms; choose another name.")
    check_not_source(path, task.sources)


def watch(task: Task, run: Any, earlier: Any) -> None:
    """Attach the monitor and the table to a run, as the command line asks or as it had before; nothing is written yet.

    Parameters
    ----------
    earlier : runs.Run or None
        The run in the model file: that is resumed if it is `run`, and otherwise updated.
    """
    from online_psp.io.alarms import AlarmFile, AlarmFileError

    path, continued = task.alarms, run is earlier
    written = None if earlier is None else earlier.written
    if continued and path is None and written is not None:
        usage(f"The run in {task.output} writes a table of alarms; name it with --monitor, so that it is continued.")
    if continued and path is not None and written is None:
        usage(f"The run in {task.output} was begun without --monitor; leave it out, or begin anew with --force.")
    if path is not None:
        _give_monitor(task, run)
    if run.monitor is not None and (run.epochs > 1 or run.shuffle_buffer):
        option = "--epochs" if run.epochs > 1 else "--shuffle-buffer"
        usage(f"A monitored model scores rows in their order before it learns them, and so each of them once: leave {option} out.")
    if path is None:
        return
    if task.mode == "new" and path.exists() and not task.force:
        usage(f"{path} exists, and is not the table of the run that begins here; add --force to overwrite it.")
    if not continued and not path.exists():
        written = None  # an update may begin a table of its own
    time_column = run.reading.get("time_column")
    columns = [*([time_column] if time_column else []), *(run.reading.get("ids") or [])]
    try:
        run.alarms = AlarmFile(path, written, again=task.mode != "new", source=run.source["name"], columns=columns)
    except AlarmFileError as error:
        way = f"Without it the run in {task.output} cannot be continued; begin anew with --force." if continued else "Choose another name."
        raise fail(f"{str(error).rstrip('.')}. {way}", 1) from None


def _give_monitor(task: Task, run: Any) -> None:
    from online_psp.monitoring import Monitor

    given = {name: value for name, value in task.monitoring.items() if name in _OPTIONS}
    if run.monitor is None:
        try:
            run.monitor = Monitor(run.model, **given)
        except ValueError as error:
            raise fail(f"--monitor: {error}", USAGE) from None
    for name, value in given.items():
        known = getattr(run.monitor, name)
        if known != value:
            usage(f"{task.output} is monitored with {name} = {known}, not {value}; leave {MONITORING[name].flags[0]} out.")


def check_drift(task: Task, run: Any, rows: int) -> None:
    """End with an exit code of its own if the stream has drifted after a number of rows, and that was asked for."""
    if task.monitoring.get("fail_on_drift") and any(alarm.row >= rows for alarm in run.monitor.alarms):
        raise typer.Exit(DRIFTED)


def monitored(task: Task, run: Any) -> dict[str, Any]:
    """The results of the monitor, for ``--json``."""
    if run.alarms is None:
        return {}
    found = run.alarms.written
    counts = {"rows": found.rows, "outliers": found.outliers, "left_out": run.monitor.n_left_out, "drift_alarms": found.drifts}
    return {"monitor": {"output": str(task.alarms), **counts}}


def say_monitored(task: Task, run: Any) -> None:
    """Print the results of the monitor."""
    found, left_out = run.alarms.written, run.monitor.n_left_out
    kept = "" if run.monitor.learn_outliers else f" ({left_out:,} not learned)"
    echo(f"{task.alarms}: {plural(found.rows, 'row')}, {plural(found.outliers, 'outlier')}{kept}, {plural(found.drifts, 'drift alarm')}")
