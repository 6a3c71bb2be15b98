"""The fit loop behind ``psp fit`` and `fit_stream`: steps, checkpoints when they are due, signals."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Sequence

from online_psp.io.pacing import Stop, Timer, unbroken
from online_psp.io.runs._checkpoints import checkpoint
from online_psp.io.runs._run import Run, check_same, describe
from online_psp.io.runs._steps import steps
from online_psp.io.sources import DifferentSourceError, Source, SourceError, identity

_LOOK_UP = 1.0  # seconds after which rows that wait in a pipe are learned


class Stopped(KeyboardInterrupt):
    """A signal asked the run to stop, and it did. It is a KeyboardInterrupt for callers that do not know this class."""


class Saving:
    """Where and when a run is saved.

    Parameters
    ----------
    path : path
        The model file; the caller must hold it (`files.claimed`).
    every : str or int
        See `Timer`.
    """

    def __init__(self, path: str | os.PathLike[str], every: str | int = "60s") -> None:
        self.path, self.timer = path, Timer(every)
        self.last: float | None = None
        """Monotonic time of this run's last checkpoint; None before the first."""
        self.place: tuple[int, int] | None = None
        """Epoch and row of the run that the file holds; None if it holds none."""

    def save(self, run: Run) -> None:
        """Write a checkpoint, whatever signals come."""
        with unbroken():
            checkpoint(run, self.path)
        self.last, self.place = time.monotonic(), (run.epoch, run.row)
        self.timer.reset()


def drive(
    run: Run,
    source: Source,
    saving: Saving,
    *,
    on_bad_row: str = "stop",
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
    if run.row or run.epoch:
        check_same(run, source)
    run.source = {**describe(source), "feature_names": run.source.get("feature_names") or source.feature_names}
    timer, looked = saving.timer, time.monotonic()
    changed = f"{source.name} was changed while it was read. "
    with Stop(signals) as stop:

        def deadline() -> bool:
            return stop.asked is not None or timer.ripe() or time.monotonic() - looked > _LOOK_UP

        try:
            before = run.passed
            for _ in steps(run, source, on_bad_row=on_bad_row, deadline=deadline):
                timer.passed(run.passed - before)
                before, looked = run.passed, time.monotonic()
                if run.alarms is not None:
                    run.alarms.write()
                if run.learned and (timer.due() or (run.alarms is not None and run.written is None)):  # no table without a checkpoint
                    _know(run, source)
                    saving.save(run)
                if report is not None:
                    report(run)
                if stop.asked is not None and not run.finished:
                    raise Stopped
        except DifferentSourceError:
            raise
        except BaseException as error:
            if isinstance(error, SourceError):
                check_same(run, source, changed)
            if run.learned and timer.rows and not run.finished:
                _know(run, source)
                with contextlib.suppress(OSError):  # the first error says that the disk is full
                    saving.save(run)
            raise
        check_same(run, source, changed)
        run.identity = identity(source)
        saving.save(run)


def _know(run: Run, source: Source) -> None:
    """Record the identity of a source: a pipe by what has passed, a file by what it was when the run began."""
    if source.once:
        run.identity = identity(source)
