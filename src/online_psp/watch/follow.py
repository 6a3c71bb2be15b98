"""Follow a model file that another process rewrites: read it when it has changed, and change nothing."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from online_psp.engine.rows import SparseRows
from online_psp.io.model_file import ModelFileError
from online_psp.io.runs import read_stored
from online_psp.monitoring import Monitor
from online_psp.pca.files import pca_state
from online_psp.watch.feed import witnessed
from online_psp.watch.frames import Facts, Frame, Piece, Scored, Witness
from online_psp.watch.settings import suited_image
from online_psp.watch.story import Story
from online_psp.watch.tables import TableError, TableTail

_EVERY = 0.5


class Follower:
    """Updates a story from a model file, each time the file is rewritten.

    Parameters
    ----------
    path : Path
        Model file.
    story : Story
    table : Path, optional
        The table of scores and alarms that ``psp fit --monitor`` writes beside the model. Without it, and with a monitor in the file, the
        rows that the monitor keeps are scored.
    """

    def __init__(self, path: Path, story: Story, table: Path | None = None) -> None:
        self.path, self.story = path, story
        self._table = table
        self._known: tuple[int, ...] | None = None
        self._note = self._remark = ""
        self._forget()

    def _forget(self) -> None:
        """Forget everything about the file."""
        self._shown = 0
        self._listed: set[int] = set()
        self._tail = None if self._table is None else TableTail(self._table)

    def look(self) -> bool:
        """Read the file if it has changed; returns whether there is anything new to show.

        Raises
        ------
        ModelFileError, OSError
            If the file cannot be read the first time. Later, the page says so and keeps what it has.
        """
        try:
            mark = os.stat(self.path)
            now = mark.st_mtime_ns, mark.st_size, mark.st_ino
            if now == self._known:
                return self._told(self._remark)
            frame = self._frame(mark.st_mtime)
        except (ModelFileError, OSError, TableError) as error:
            if self._known is None:
                raise
            where = getattr(error, "filename", None) or self.path
            return self._told(f"{where}: {error.strerror or error}." if isinstance(error, OSError) else str(error))
        self._known = now
        self.story.take(frame)
        self._note = self._remark = frame.facts.note
        return True

    def run(self, tell: Callable[[], None], stop: threading.Event) -> None:
        """Look at the file again and again, until `stop` is set."""
        while not stop.wait(_EVERY):
            try:
                news = self.look()
            except Exception as error:  # the page must say why it stands still
                news = self._told(f"{self.path} cannot be shown ({type(error).__name__}: {error}).")
            if news:
                tell()

    def _told(self, note: str) -> bool:
        """Show one sentence on what is wrong with the file, or remove it; and draw what was left out the last time."""
        if note == self._note and self.story.late() != 0.0:
            return False
        self._note = note
        self.story.facts = self.story.facts._replace(note=note)
        self.story.refresh()
        return True

    def _frame(self, written: float) -> Frame:
        model, header, monitor = read_stored(self.path)
        if not hasattr(model, "n_features_in_"):
            raise ModelFileError(f"{self.path} has learned nothing yet.")
        source: Any = header.get("source")
        source = source if isinstance(source, dict) else {}
        names = getattr(model, "feature_names_in_", None)
        told: dict[str, Any] = {"feature_names": None if names is None else [str(name) for name in names]}
        image = source.get("image_shape") or header.get("image_shape")
        if self.story.settings.image is None and isinstance(image, list) and all(type(length) is int for length in image):
            told["image"] = suited_image(image, int(model.n_features_in_))
        row = model.n_samples_seen_ if monitor is None else monitor.n_rows
        before, note = self.story.model, ""
        if before is not None and (row < self.story.row or before.n_features_in_ != model.n_features_in_):
            note = "The file now holds another model, or an earlier one: its history begins here."
            self._forget()
            self.story.begin()
        pieces, scores, witnesses = ([], [], []) if monitor is None else self._monitored(monitor)
        if self._tail is not None:
            scores = self._tail.read()
        table: Any = header.get("written")
        facts = Facts(
            saved=max(0.0, time.time() - written),
            total=source.get("total") if isinstance(source.get("total"), int) and header.get("epochs") == 1 else None,
            monitored=monitor is not None or self._tail is not None,
            outliers=table.get("outliers") if isinstance(table, dict) and isinstance(table.get("outliers"), int) else None,
            status="finished" if header.get("finished") is True else "watching",
            afterwards=self._tail is None,
            note=note,
        )
        return Frame(written, row, facts, *pca_state(model), pieces, scores, witnesses, told)

    def _monitored(self, monitor: Monitor) -> tuple[list[Piece], list[Scored], list[Witness]]:
        """The rows that a monitor keeps, their scores, and the alarms whose rows are among them; other alarms are listed at once."""
        pieces, scores, witnesses = [], [], []
        kept = len(monitor._recent)
        first = monitor.n_rows - kept + 1
        for alarm in monitor.alarms:
            if alarm.row in self._listed:
                continue
            self._listed.add(alarm.row)
            place = alarm.row + 1 - first
            if 0 <= place < kept and monitor._judge.seen is not None:
                row = monitor._recent.last(kept)[place : place + 1]
                witnesses.append(witnessed(alarm, alarm.row + 1, row, monitor._judge.seen, monitor._limits))
            else:
                self.story.note_alarm(alarm, alarm.row + 1)
        new = min(kept, monitor.n_rows - self._shown)
        self._shown = monitor.n_rows
        if new > 0:
            rows = monitor._recent.last(new)
            numbers = np.arange(monitor.n_rows - new + 1, monitor.n_rows + 1)
            plain = rows.matrix() if isinstance(rows, SparseRows) else rows.dense(np.dtype(np.float64))
            monitor.model.__dict__.pop("feature_names_in_", None)
            scores.append(Scored(numbers, monitor.score(plain)))
            pieces.append(Piece(numbers, plain))
        return pieces, scores, witnesses
