"""Progress on standard error: a bar on a terminal, a line every ten seconds in a log."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any, Self

from online_psp.cli._errors import say

_LOOK_EVERY = 1.0  # least seconds between reads of the variance, which take at most a twentieth of the time
_DRAW_EVERY = 0.1
_LINE_EVERY = 10.0


class Progress:
    """Shows the progress of a run: rows, rows/s, time left, share of variance explained, age of the last checkpoint, memory.

    Parameters
    ----------
    run : runs.Run
    saving : runs.Saving
    shown : bool
        Whether to show anything.
    """

    def __init__(self, run: Any, saving: Any, shown: bool) -> None:
        from rich.console import Console

        self.run, self.saving, self.shown = run, saving, shown
        self._told = 0 if run.monitor is None else run.monitor.n_rows
        self.console = Console(stderr=True)
        self.began = time.monotonic()
        self.next_look, self.next_draw, self.next_line = self.began + _LOOK_EVERY, 0.0, self.began + _LINE_EVERY
        self.explained: float | None = None
        self.bar: Any = None
        self.task: Any = None
        self.lines = shown and not self.console.is_terminal
        if shown and self.console.is_terminal:
            self._open()

    @property
    def total(self) -> int | None:
        rows = self.run.source.get("total")
        return None if rows is None else int(rows) * int(self.run.epochs)

    def _open(self) -> None:
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        known = self.total is not None
        self.bar = Bar(
            TextColumn("{task.description}"),
            *([BarColumn(bar_width=10)] if known else []),
            TextColumn("{task.completed:,.0f}" + ("/{task.total:,.0f}" if known else " rows")),
            TimeRemainingColumn() if known else TimeElapsedColumn(),
            TextColumn("{task.fields[more]}"),
            console=self.console,
            transient=True,
        )
        self.task = self.bar.add_task("fitting", total=self.total, completed=self.run.done, more="")

    def __enter__(self) -> Self:
        if self.bar is not None:
            self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.bar is not None:
            self.bar.stop()

    def update(self, _: Any = None) -> None:
        """Show new alarms, and the progress if it is time to."""
        now = time.monotonic()
        if self.shown and self.run.monitor is not None:
            self._tell_alarms()
        if self.bar is not None and now >= self.next_draw:
            self.next_draw = now + _DRAW_EVERY
            self._look(now)
            epoch = f"epoch {self.run.epoch + 1}/{self.run.epochs}" if self.run.epochs > 1 else "fitting"
            self.bar.update(self.task, completed=self.run.done, total=self.total, description=epoch, more=", ".join(self.facts(now)))
        elif self.lines and now >= self.next_line:
            self.next_line = now + _LINE_EVERY
            self._look(now)
            say(", ".join([self._place(), *self._left(now), *self.facts(now)]))

    def _tell_alarms(self) -> None:
        from online_psp.monitoring.results import in_words

        for alarm in self.run.monitor.alarms:
            if alarm.row >= self._told:
                say(f"The stream has drifted: {in_words(alarm, self.run.source.get('feature_names'))}.")
        self._told = self.run.monitor.n_rows

    def facts(self, now: float) -> list[str]:
        """Rate, variance, checkpoint and memory, in words."""
        rate = self.run.passed / max(now - self.began, 1e-9)
        saved = self.saving.last
        found = [f"{rate:,.0f} rows/s"]
        if self.explained is not None:
            found.append(f"explains {100 * self.explained:.2f} %")
        found.append("no checkpoint yet" if saved is None else f"checkpoint {now - saved:,.0f} s ago")
        from online_psp.watch.memory import resident

        memory = resident()
        return [*found, f"{memory / 1e6:,.0f} MB"] if memory else found

    def _place(self) -> str:
        of = f" of {self.total:,}" if self.total is not None else ""
        return f"{self.run.done:,}{of} rows"

    def _left(self, now: float) -> list[str]:
        if self.total is None or not self.run.passed:
            return []
        return [f"{(self.total - self.run.done) * (now - self.began) / self.run.passed:,.0f} s left"]

    def _look(self, now: float) -> None:
        """Read the variance, seldom enough that it costs little."""
        if now >= self.next_look and self.run.learned:
            ratios = getattr(self.run.model, "explained_variance_ratio_", None)  # the paper's algorithms have none
            self.explained = None if ratios is None else float(ratios.sum())
            self.next_look = now + max(_LOOK_EVERY, 20 * (time.monotonic() - now))
