"""`fit_stream`: what ``psp fit`` and ``psp update`` do, in one call."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from online_psp.io.runs._begin import Task, begin, settings_of, settings_of_monitor
from online_psp.io.runs._driving import drive
from online_psp.io.runs._page import RunPage
from online_psp.io.runs._run import Learner, Run, give_names
from online_psp.io.sources import open_source
from online_psp.monitoring import Monitor
from online_psp.pca import OnlinePCA


def fit_stream(
    source: Any,
    path: str | os.PathLike[str],
    model: Learner | Monitor | None = None,
    *,
    alarms: str | os.PathLike[str] | None = None,
    watch: bool | Callable[[str], object] = False,
    resume: bool = False,
    update: bool = False,
    force: bool = False,
    on_bad_row: str = "stop",
    checkpoint_every: str | int = "60s",
    reading: Mapping[str, Any] | None = None,
    report: Callable[[Run], None] | None = None,
    block: int | None = None,
    epochs: int | None = None,
) -> Any:
    """Fit a model or a monitor to a source, with checkpoints, a table of alarms and a live page: what ``psp fit`` and ``psp update`` do.

    Parameters
    ----------
    source : whatever `open_source` takes
    path : path
        The model file; checkpoints go there too. No other run may be writing it.
    model : OnlinePCA, FSM, SM, IPCA, CCIPCA or Monitor
        What is fitted (the paper's algorithms take rows as they are given: nothing is centred). If a checkpoint is resumed or updated,
        what is in it is fitted instead, and settings given here must be those.
    alarms : path, optional
        CSV file for what a monitor says about each row; resumed and updated runs continue it.
    watch : bool or callable
        Whether to serve a live page during the fit; its address is printed, or given to the callable.
    resume : bool
        Whether to continue from the checkpoint in `path`, if it exists. Rows that were processed before are skipped.
    update : bool
        Whether to learn the source on top of the model in `path`, whatever that was made from.
    force : bool
        With `update`: even where an earlier run over another source was not finished.
    on_bad_row, checkpoint_every
        As the options of ``psp fit``.
    reading : dict, optional
        Options of `open_source`; resumed and updated runs remember them.
    report : callable, optional
        Called with the run after each step.
    block : int, optional
        Rows read at a time.
    epochs : int, optional
        Passes over the source.

    Returns
    -------
    OnlinePCA, FSM, SM, IPCA, CCIPCA or Monitor
        What was fitted.

    Raises
    ------
    DifferentSourceError
        If a resumed source is not the one that the checkpoint was made from.
    RunError
        If settings differ from those of the checkpoint, or do not go together.
    """
    made = OnlinePCA() if model is None else model
    learner = made.model if isinstance(made, Monitor) else made
    task = Task(
        Path(path),
        lambda known: open_source(source, **known),
        lambda _: made,
        {} if model is None else settings_of(learner),
        reading or {},
        block,
        epochs,
        settings_of_monitor(made) if isinstance(made, Monitor) else None,
        None if alarms is None else Path(alarms),
        mode="update" if update else "resume" if resume else "new",
        force=force or not update,
        every=checkpoint_every,
    )
    with begin(task) as begun, contextlib.ExitStack() as shown:
        run = begun.run
        if watch:
            page = shown.enter_context(RunPage(run, begun.saving)).page
            shown.callback(page.close)
            (watch if callable(watch) else print)(page.url)
        try:
            drive(run, begun.source, begun.saving, on_bad_row=on_bad_row, report=report)
        finally:
            give_names(run.model, run.source.get("feature_names"))
    return run.monitor or run.model
