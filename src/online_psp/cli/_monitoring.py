"""``--monitor``: scoring of rows before they are learned, for `psp fit` and `psp update`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from online_psp.cli._common import check_not_source, echo, plural
from online_psp.cli._errors import USAGE, fail, usage
from online_psp.cli._options import MONITORING

if TYPE_CHECKING:
    from online_psp.cli.fit import Task

_OPTIONS = [name for name in MONITORING if name != "monitor"]


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


def watch(task: Task, run: Any, *, continued: bool) -> None:
    """Attach the monitor and the table to a run, as the command line asks or as it had before; nothing is written yet.

    Parameters
    ----------
    continued : bool
        Whether the run continues from a checkpoint.
    """
    from online_psp.io.alarms import AlarmFile, AlarmFileError

    path = task.alarms
    if continued and path is None and run.written is not None:
        usage(f"The run in {task.output} writes a table of alarms; name it with --monitor, so that it is continued.")
    if continued and path is not None and run.written is None:
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
    try:
        run.alarms = AlarmFile(path, run.written if continued else None, again=task.mode != "new")
    except AlarmFileError as error:
        raise fail(
            f"{str(error).rstrip('.')}. Without it the run in {task.output} cannot be continued; begin anew with --force.", 1
        ) from None


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
