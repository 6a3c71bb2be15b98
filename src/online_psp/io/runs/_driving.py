"""The fit loop behind ``psp fit`` and `fit_stream`: steps, checkpoints when they are due, signals."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any, Unpack

from online_psp.io.files import Output, OutputReplacedError, claimed
from online_psp.io.model_file import digest_of
from online_psp.io.pacing import Stop, Timer, unbroken
from online_psp.io.runs._checkpoints import checkpoint, reopen, reopen_any
from online_psp.io.runs._run import (
    DifferentSourceError,
    Learner,
    Run,
    RunOptions,
    check_features,
    check_same,
    describe,
    give_names,
    start,
    updating,
)
from online_psp.io.runs._steps import steps
from online_psp.io.sources import Source, SourceError, different, open_source
from online_psp.pca import OnlinePCA

_LOOK_UP = 1.0  # seconds after which rows that wait in a pipe are learned


class Stopped(KeyboardInterrupt):
    """A signal asked the run to stop, and it did. It is a KeyboardInterrupt for callers that do not know this class."""


class Saving:
    """Where and when a run is saved.

    Parameters
    ----------
    path : path
        The model file; the caller must hold it (`files.claimed`), and must not have read it yet.
    every : str or int
        See `Timer`.
    """

    def __init__(self, path: str | os.PathLike[str], every: str | int = "60s") -> None:
        self.path, self.timer = path, Timer(every)
        self.last: float | None = None
        """Monotonic time of this run's last checkpoint; None before the first."""
        self._output = Output(path, digest_of)

    def save(self, run: Run) -> None:
        """Write a checkpoint, whatever signals come.

        Raises
        ------
        OutputReplacedError
            If somebody else has written the file during the run; it does not change, and the checkpoint goes to a new name beside it.
        """
        replaced = None
        with unbroken():
            try:
                checkpoint(run, self._output)
            except OutputReplacedError as error:
                replaced = error
                self.path, self._output = error.beside, Output(error.beside, digest_of)
        self.last = time.monotonic()
        self.timer.reset()
        if replaced is not None:
            raise replaced


def drive(
    run: Run,
    source: Source,
    saving: Saving,
    *,
    on_bad_row: str = "stop",
    at_end: bool = False,
    signals: Sequence[int] = (signal.SIGINT,),
    report: Callable[[Run], None] | None = None,
) -> None:
    """Take a run to its end, with checkpoints on the way: the loop behind ``psp fit`` and `fit_stream`.

    If it ends early, for whatever reason, what was learned is saved first.

    Raises
    ------
    Stopped
        After one of `signals` came, within a second or at the end of the block in hand.
    """
    if at_end:
        check_features(run, source)
    elif run.row or run.epoch:
        check_same(run, source)
    run.source = {**describe(source), "feature_names": run.source.get("feature_names") or source.feature_names}
    timer, looked = saving.timer, time.monotonic()
    with Stop(signals) as stop:

        def deadline() -> bool:
            return stop.asked is not None or timer.ripe() or (not run.shuffle_buffer and time.monotonic() - looked > _LOOK_UP)

        try:
            before = run.passed
            for _ in steps(run, source, on_bad_row=on_bad_row, at_end=at_end, deadline=deadline):
                timer.passed(run.passed - before)
                before, looked = run.passed, time.monotonic()
                if run.alarms is not None:
                    run.alarms.write()
                if run.learned and (timer.due() or (run.alarms is not None and run.written is None)):  # no table without a checkpoint
                    _know(run, source, at_end)
                    saving.save(run)
                if report is not None:
                    report(run)
                if stop.asked is not None and not run.finished:
                    raise Stopped
        except DifferentSourceError:
            raise
        except BaseException as error:
            if isinstance(error, SourceError):
                _check_unchanged(run, source, at_end)
            if run.learned and timer.rows and not run.finished:
                _know(run, source, at_end)
                with contextlib.suppress(OSError):  # the first error says that the disk is full
                    saving.save(run)
            raise
        _check_unchanged(run, source, at_end)
        run.identity = run.identity if at_end else source.identity()
        saving.save(run)


def _know(run: Run, source: Source, at_end: bool) -> None:
    """Record the identity of a source: a pipe by what has passed, a file by what it was when the run began."""
    if source.once and not at_end:
        run.identity = source.identity()


def _check_unchanged(run: Run, source: Source, at_end: bool) -> None:
    """Raise a DifferentSourceError if a file has been replaced by another."""
    changed = None if at_end else different(run.identity, source.identity(since=run.identity), run.row)
    if changed is not None:
        raise DifferentSourceError(f"{source.name} was changed while it was read. {changed}")


def fit_stream(
    source: Any,
    path: str | os.PathLike[str],
    model: Learner | None = None,
    *,
    resume: bool = False,
    update: bool = False,
    at_end: bool = False,
    on_bad_row: str = "stop",
    checkpoint_every: str | int = "60s",
    report: Callable[[Run], None] | None = None,
    **options: Unpack[RunOptions],
) -> Any:
    """Fit a model to a source, with checkpoints: what ``psp fit`` does.

    Parameters
    ----------
    source : whatever `open_source` takes
    path : path
        The model file; checkpoints go there too. No other run may be writing it.
    model : OnlinePCA, FSM, SM, IPCA or CCIPCA
        The model to start from (the paper's algorithms take rows as they are given: nothing is centred); if a checkpoint is resumed or
        updated, the model in it is used instead.
    resume : bool
        Whether to continue from the checkpoint in `path`, if it exists. Rows that were processed before are skipped.
    at_end : bool
        With `resume`: whether an iterable or a pipe itself begins where the checkpoint ended, so that nothing is skipped.
    update : bool
        Whether to learn the source on top of the model in `path`, whatever that was made from.
    on_bad_row, checkpoint_every
        As the options of ``psp fit``.
    report : callable, optional
        Called with the run after each step.
    **options
        `block`, `epochs`, `shuffle_buffer`, `seed`: see `RunOptions`.

    Raises
    ------
    DifferentSourceError
        If a resumed source is not the one that the checkpoint was made from.
    """
    with claimed(path):
        saving, rows = Saving(path, checkpoint_every), open_source(source)
        if update:
            run = updating(reopen_any(path), rows, options)
        elif resume and os.path.exists(path):
            run = reopen(path)
        else:
            run, at_end = start(rows, OnlinePCA() if model is None else model, **options), False
        try:
            drive(run, rows, saving, on_bad_row=on_bad_row, at_end=at_end, report=report)
        finally:
            give_names(run.model, run.source.get("feature_names"))
    return run.model
