"""Progress on standard error: rows, rate, time left, and the share of variance that the components explain so far."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any, Self

_LOOK_EVERY = 1.0  # seconds between read-outs of the variance at least; never more than a twentieth of the time
_DRAW_EVERY = 0.1


class Progress:
    """A bar while a run goes on.

    Parameters
    ----------
    run : streams.Run
    shown : bool
        False shows nothing.
    """

    def __init__(self, run: Any, shown: bool) -> None:
        self.run = run
        self.bar: Any = None
        self.task: Any = None
        self.next_look = time.monotonic() + _LOOK_EVERY
        self.began, self.first = time.monotonic(), run.done
        self.next_draw = 0.0
        self.explained = "…"
        if shown:
            self._open()

    def _open(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        total = self.run.source.get("total")
        self.bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(bar_width=10),
            TextColumn("{task.completed:,.0f}" + ("/{task.total:,.0f}" if total is not None else " rows")),
            TextColumn("{task.fields[rate]}/s"),
            TimeRemainingColumn() if total is not None else TimeElapsedColumn(),
            TextColumn("explains {task.fields[explained]}"),
            console=Console(stderr=True),
            transient=True,
        )
        self.task = self.bar.add_task(
            "fitting", total=None if total is None else total * self.run.epochs, completed=self.run.done, rate="…", explained="…"
        )

    def __enter__(self) -> Self:
        if self.bar is not None:
            self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.bar is not None:
            self.bar.stop()

    def update(self) -> None:
        if self.bar is None:
            return
        now = time.monotonic()
        if now < self.next_draw:
            return
        self.next_draw = now + _DRAW_EVERY
        if now >= self.next_look:
            self.explained = f"{100 * float(self.run.model.explained_variance_ratio_.sum()):.2f} %"
            took = time.monotonic() - now
            self.next_look = now + max(_LOOK_EVERY, 20 * took)
        rate = (self.run.done - self.first) / max(now - self.began, 1e-9)
        epoch = f"epoch {self.run.epoch + 1}/{self.run.epochs}" if self.run.epochs > 1 else "fitting"
        self.bar.update(self.task, completed=self.run.done, rate=f"{rate:,.0f}", explained=self.explained, description=epoch)
