"""How a run begins: with a new model, or with one that is in the file already."""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from online_psp.algorithms import ALGORITHMS
from online_psp.io.alarms import AlarmFile, AlarmFileError
from online_psp.io.files import claimed
from online_psp.io.runs._checkpoints import reopen
from online_psp.io.runs._driving import Saving
from online_psp.io.runs._run import Learner, Run, anew, start, updating
from online_psp.io.sources import Source
from online_psp.monitoring import Monitor
from online_psp.pca import OnlinePCA

_CHOSEN = ("columns", "exclude", "ids", "time_column")


class RunError(ValueError):
    """Options of a run contradict each other, or the run in its file; nothing has changed."""


@dataclass(frozen=True)
class Task:
    """What is fitted to what, and where it is kept."""

    path: Path
    """The model file."""
    open: Callable[[dict[str, Any]], Source]
    """Opens the source, with options of `open_source`."""
    make: Callable[[Source], Learner | Monitor]
    """Makes what is fitted, unless it is in the file already."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the model that are asked for: a run that is continued must have the same."""
    reading: Mapping[str, Any] = field(default_factory=dict)
    """Options of `open_source`."""
    block: int | None = None
    """Rows read at a time."""
    epochs: int | None = None
    """Passes over the source."""
    monitor: Mapping[str, Any] | None = None
    """Settings of the monitor that are asked for; None if no monitor is."""
    alarms: Path | None = None
    """Table for scores and alarms, a CSV file."""
    image: tuple[int, ...] | None = None
    mode: str = "new"
    """"new", "resume" or "update"."""
    force: bool = False
    """Overwrite the files; with "update", even where an earlier run was not finished."""
    every: str | int = "60s"
    say: Callable[[str], object] = print


class Begun(NamedTuple):
    """A run, and what it needs before the first row is read."""

    run: Run
    source: Source
    saving: Saving


@contextlib.contextmanager
def begin(task: Task) -> Iterator[Begun]:
    """Hold the outputs, open the source, and find or create the run; nothing is written yet.

    Raises
    ------
    RunError
    """
    with contextlib.ExitStack() as held:
        present = held.enter_context(claimed(task.path)).exists()
        try:
            saving = Saving(task.path, task.every)
        except ValueError as error:
            raise RunError(str(error)) from None
        if task.alarms is not None:
            if task.alarms.suffix.lower() != ".csv":
                raise RunError(f"--monitor writes CSV: the name of its file must end in .csv; got {task.alarms}.")
            held.enter_context(claimed(task.alarms))
        if task.mode == "update" and not present:
            raise RunError(f"{task.path} does not exist; there is no model to update.")
        if task.mode == "new" and present and not task.force:
            raise RunError(
                f"{task.path} exists; add --resume to continue the run in it, or --force to overwrite it; psp update {task.path} … "
                "learns a source on top of it."
            )
        earlier = reopen(task.path, update=task.mode == "update") if present and task.mode != "new" else None
        if earlier is not None and earlier.identity:
            saving.place = earlier.epoch, earlier.row
        missing = task.settings.get("missing") if earlier is None else getattr(earlier.model, "missing", None)
        reading = _reading(task, earlier)
        source = task.open({**reading, **holes_for(missing)})
        if task.image is not None:
            check_image(task.image, source.features)
        known = None if earlier is None else earlier.source.get("image_shape")
        source = replace(source, image_shape=task.image or source.image_shape or known)
        run = _new(task, source) if earlier is None else _again(task, source, earlier)
        run.reading = {name: _plain(value) for name, value in reading.items() if name != "max_memory"}  # which is that of this machine
        _attach(task, run, earlier)
        yield Begun(run, source, saving)


def check_image(shape: Sequence[int], features: int) -> None:
    """Refuse a size of pictures that does not fit the rows."""
    if math.prod(shape) != features:
        size = "x".join(map(str, shape))
        raise RunError(f"Pictures of {size} have {math.prod(shape)} values, and rows have {features}.")


# The options of the source


def holes_for(missing: Any) -> dict[str, str]:
    """Options to read rows for a model that takes missing values, or does not."""
    return {"missing": "keep"} if missing == "impute" else {}


def remembered_columns(stored: Any, names: Sequence[str] | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """Options that choose the columns that a model was fitted to, unless other columns are chosen now.

    Parameters
    ----------
    stored : dict
        The reading options in the model file.
    names : names of the features of the model, if they have any
    given : the options now
    """
    known = stored or {}
    if not any(known.get(key) for key in _CHOSEN) or any(key in given for key in ("columns", "exclude")):
        return {}
    return {key: known[key] for key in ("columns", "exclude") if known.get(key)} if names is None else {"columns": list(names)}


def _reading(task: Task, earlier: Run | None) -> dict[str, Any]:
    """Reading options: those of the resumed run, or the columns that the model and its table know, unless other options are given."""
    if earlier is None:
        return dict(task.reading)
    known = earlier.reading
    if task.mode == "resume":
        return {**known, **task.reading}
    kept: dict[str, Any] = {
        name: known[name] for name in ("ids", "time_column") if task.alarms is not None and name in known
    }  # a table keeps its columns
    return {**kept, **remembered_columns(earlier.reading, earlier.source.get("feature_names"), task.reading), **task.reading}


def _plain(value: Any) -> Any:
    """An option as JSON has it."""
    if value is None or isinstance(value, bool | int | str):
        return value
    return [_plain(each) for each in value] if isinstance(value, list | tuple | set) else np.dtype(value).name


# The run


def _new(task: Task, source: Source) -> Run:
    try:
        made = task.make(source)
        run = start(source, made.model if isinstance(made, Monitor) else made, task.block, task.epochs)
    except ValueError as error:
        raise RunError(str(error)) from None
    run.monitor = made if isinstance(made, Monitor) else None
    return run


def _again(task: Task, source: Source, earlier: Run) -> Run:
    """The earlier run, or one over another source with its model."""
    resume = task.mode == "resume"
    known = {name: (_setting(earlier.model, name), value) for name, value in task.settings.items()}
    if resume and task.block is not None:
        known["block"] = earlier.block, task.block
    _check_same_settings(known, f"{task.path} was begun")
    if resume:
        earlier.epochs = max(task.epochs or earlier.epochs, earlier.epoch + 1)
        return earlier
    run = (anew if task.force else updating)(earlier, source, task.block, task.epochs)
    if run is earlier:
        task.say(f"{task.path} has learned {source.name} up to row {run.row}; continuing from there.")
    elif any(entry["name"] == source.name for entry in run.before):
        task.say(f"{task.path} has learned {source.name} before; its rows count once more.")
    if not source.feature_names and run.source.get("feature_names"):
        task.say(f"{source.name} has no column names; its columns are taken in the order of the model.")
    return run


def _setting(model: Learner, name: str) -> Any:
    if name == "algorithm":
        return next((key for key, cls in ALGORITHMS.items() if type(model) is cls), None)
    return getattr(model, name, getattr(model, "K", None) if name == "n_components" else None)


def _check_same_settings(settings: Mapping[str, tuple[Any, Any]], begun: str) -> None:
    for name, (known, given) in settings.items():
        if given != known:
            raise RunError(f"{begun} with {name} = {known}, not {given}; leave it out, or begin anew with --force.")


def settings_of(model: Learner) -> dict[str, Any]:
    """The settings of a model that are not the default ones."""
    if not isinstance(model, OnlinePCA):
        return {"algorithm": _setting(model, "algorithm"), "n_components": model.K}
    usual = OnlinePCA().get_params()
    return {name: value for name, value in model.get_params().items() if value != usual[name] and name != "dtype"}


def settings_of_monitor(monitor: Monitor) -> dict[str, Any]:
    """The settings of a monitor that are not the default ones."""
    usual = {name: each.default for name, each in inspect.signature(Monitor).parameters.items()}
    names = ("alpha", "learn_outliers", "run_length", "on_drift")
    return {name: getattr(monitor, name) for name in names if getattr(monitor, name) != usual[name]}


# The monitor and its table


def _attach(task: Task, run: Run, earlier: Run | None) -> None:
    """Give a run its monitor and its table, as they are asked for or as it had them before."""
    path, continued = task.alarms, run is earlier
    written = None if earlier is None else earlier.written
    if continued and path is None and written is not None:
        raise RunError(f"The run in {task.path} writes a table of alarms; name it with --monitor, so that it is continued.")
    if continued and run.monitor is None and task.monitor is not None:
        raise RunError(f"The run in {task.path} was begun without --monitor; leave it out, or begin anew with --force.")
    if task.monitor is not None:
        if run.monitor is None:
            try:
                run.monitor = Monitor(run.model, **task.monitor)
            except (TypeError, ValueError) as error:
                raise RunError(f"--monitor: {error}") from None
        monitor = run.monitor
        _check_same_settings({name: (getattr(monitor, name), value) for name, value in task.monitor.items()}, f"{task.path} is monitored")
    if run.monitor is not None and run.epochs > 1:
        raise RunError("A monitored model scores rows before it learns them, and so each of them once: leave epochs out.")
    if path is None:
        return
    if run.monitor is None:
        raise RunError("A table of alarms is written by a Monitor; give one as the model.")
    if task.mode == "new" and path.exists() and not task.force:
        raise RunError(f"{path} exists, and is not the table of the run that begins here; add --force to overwrite it.")
    if not continued and not path.exists():
        written = None  # an update may begin a table of its own
    time_column = run.reading.get("time_column")
    columns = [*([str(time_column)] if time_column is not None else []), *(str(each) for each in run.reading.get("ids") or [])]
    try:
        run.alarms = AlarmFile(path, written, again=task.mode != "new", source=run.source["name"], columns=columns)
    except AlarmFileError as error:
        way = f"Without it the run in {task.path} cannot be continued; begin anew with --force." if continued else "Choose another name."
        raise AlarmFileError(f"{str(error).rstrip('.')}. {way}") from None
