"""Progress on standard error: a bar on a terminal, a line every ten seconds in a log."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any, Self

from online_psp.cli._errors import say

_DRAW_EVERY = 0.1
_LINE_EVERY = 10.0


class Progress:
    """Shows the progress of a run: rows, rows/s, time left, age of the last checkpoint, memory.

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
        self.next_show = self.began + _LINE_EVERY
        self.bar: Any = None
        self.task: Any = None
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
        self.next_show = 0.0
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
        if not self.shown:
            return
        if self.run.monitor is not None:
            self._tell_alarms()
        if now < self.next_show:
            return
        facts = self.facts(now)
        if self.bar is not None:
            self.next_show = now + _DRAW_EVERY
            epoch = f"epoch {self.run.epoch + 1}/{self.run.epochs}" if self.run.epochs > 1 else "fitting"
            self.bar.update(self.task, completed=self.run.done, total=self.total, description=epoch, more=", ".join(facts))
            return
        self.next_show = now + _LINE_EVERY
        if self.total is not None and self.run.passed:
            facts.insert(0, f"{(self.total - self.run.done) * (now - self.began) / self.run.passed:,.0f} s left")
        say(", ".join([f"{self.run.done:,}{f' of {self.total:,}' if self.total is not None else ''} rows", *facts]))

    def _tell_alarms(self) -> None:
        from online_psp.monitoring.results import in_words

        for alarm in self.run.monitor.alarms:
            if alarm.row >= self._told:
                say(f"The stream has drifted: {in_words(alarm, self.run.source.get('feature_names'))}.")
        self._told = self.run.monitor.n_rows

    def facts(self, now: float) -> list[str]:
        """Rate, checkpoint and memory, in words."""
        from online_psp.watch.memory import resident

        saved, memory = self.saving.last, resident()
        found = [f"{self.run.passed / max(now - self.began, 1e-9):,.0f} rows/s"]
        found.append("no checkpoint yet" if saved is None else f"checkpoint {now - saved:,.0f} s ago")
        return [*found, f"{memory / 1e6:,.0f} MB"] if memory else found
