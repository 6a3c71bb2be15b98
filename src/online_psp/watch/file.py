"""Watch a model file that another process rewrites: read it when it has changed, and change nothing."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from online_psp.io.alarms import read_scores
from online_psp.io.model_file import ModelFileError
from online_psp.io.runs import read_stored
from online_psp.monitoring import Monitor, Update
from online_psp.monitoring.scores import contributions_by, snapshot
from online_psp.watch.contents import Contents, Sample, Witness


class ModelFile:
    """Show a model file on a page, each time it is rewritten.

    Parameters
    ----------
    path : Path
    table : Path, optional
        The table of scores and alarms that ``psp fit --monitor`` writes beside the model. Without it, and with a monitor in the file, the
        rows that the monitor keeps are scored.
    image : (height, width) or (height, width, channels), optional

    Attributes
    ----------
    features : int
        Number of features of the model.
    """

    def __init__(self, path: Path, table: Path | None = None, image: tuple[int, ...] | None = None) -> None:
        self.path, self.table, self.image = path, table, image
        self.features = self._row = self._at = self._charted = self._listed = 0
        self._contents: Contents | None = None
        self._mark: tuple[int, ...] = ()
        self._facts: dict[str, Any] = {}
        self._remark = self._note = ""

    def look(self) -> bool:
        """Read the file if it has changed; returns whether there is anything new to publish.

        Raises
        ------
        ModelFileError, OSError
            If the file cannot be read the first time. Later, the page says so and keeps what it has.
        """
        before = self._mark, self._note
        try:
            found = os.stat(self.path)
            mark = found.st_mtime_ns, found.st_size, found.st_ino
            if mark != self._mark:
                self._read(found.st_mtime)
            self._mark, self._note = mark, self._remark
        except (OSError, ValueError) as error:
            if self._contents is None:
                raise
            where = getattr(error, "filename", None) or self.path
            self._note = f"{where}: {error.strerror or error}." if isinstance(error, OSError) else str(error)
        return before != (self._mark, self._note)

    def document(self) -> bytes:
        """The page's data, after a successful `look`."""
        assert self._contents is not None
        facts = {**self._facts, "saved": max(0.0, time.time() - self._facts["saved"]), "note": self._note}
        return self._contents.document(self._row, **facts)

    def _read(self, written: float) -> None:
        model, header, monitor = read_stored(self.path)
        if not hasattr(model, "n_features_in_"):
            raise ModelFileError(f"{self.path} has learned nothing yet.")
        row = model.n_samples_seen_ if monitor is None else monitor.n_rows
        source: Any = header.get("source") if isinstance(header.get("source"), dict) else {}
        self._remark = ""
        if self._contents is None or row < self._row or model.n_features_in_ != self.features:
            if self._contents is not None:
                self._remark = "The file now holds another model, or an earlier one: its history begins here."
            shape = self.image or source.get("image_shape") or header.get("image_shape")
            names = getattr(model, "feature_names_in_", None)
            image = tuple(shape) if isinstance(shape, list | tuple) and len(shape) in (2, 3) else None
            known = None if names is None else [str(name) for name in names]
            self._contents = Contents(str(self.path), image, known, (), None if monitor is None else monitor.alpha)
            self.features, self._row, self._at, self._charted, self._listed = int(model.n_features_in_), 0, 0, 0, 0
        self._facts = {
            "status": "finished" if header.get("finished") is True else "watching",
            "saved": written,
            "total": source.get("total") if header.get("epochs") == 1 else None,
            "afterwards": self.table is None,
        }
        if self.table is not None:
            self._read_table(self._contents, self.table)
        if monitor is not None:
            self._show(self._contents, monitor, row)
            table: Any = header.get("written")
            if self.table is None and isinstance(table, dict):
                self._facts |= {"outliers": table["outliers"], "scored": table["rows"]}
        self._contents.read(model, row)
        self._row = row

    def _show(self, contents: Contents, monitor: Monitor, row: int) -> None:
        """Show the rows that a monitor keeps, as far as they are new, and its alarms."""
        monitor.model.__dict__.pop("feature_names_in_", None)
        recent = monitor._recent.last(row)
        first, seen = row - len(recent), snapshot(monitor.model)
        for alarm in monitor.alarms[self._listed :]:
            witness = None
            if alarm.row >= first:
                one = recent[alarm.row - first : alarm.row - first + 1]
                parts = contributions_by(seen, one)
                witness = Witness(one.dense(np.dtype(np.float64))[0], parts.t2[0], parts.spe[0])
            contents.alarm(alarm, alarm.row + 1.0, witness=witness)
        self._listed = len(monitor.alarms)
        new = recent[max(0, self._row - first) :]
        if len(new):
            rows = new.matrix() if hasattr(new, "matrix") else new.dense(np.dtype(np.float64))
            found, numbers = monitor.score(rows), np.arange(row - len(new) + 1.0, row + 1.0)
            none = np.full(len(new), math.nan)
            if self.table is None:
                contents.judge(numbers, none, found)
            contents.add(Sample(rows, numbers, none, [], found.spe))

    def _read_table(self, contents: Contents, path: Path) -> None:
        """Chart the lines of the table that are new."""
        found, self._at = read_scores(path, min(self._at, os.path.getsize(path)))  # a resumed run has cut it, and writes some lines again
        row, *fields = (np.asarray(each)[found.row > self._charted] for each in found[:6])
        self._charted = max([self._charted, *row])
        none = np.full(len(row), math.nan)
        contents.judge(row, none, Update(fields[0], fields[1], fields[2], fields[3], fields[4] == 1, none))
