"""Reads the table of scores that ``psp fit --monitor`` writes, while it grows."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from online_psp.io.alarms import AlarmFileError, read_scores
from online_psp.monitoring import Update
from online_psp.watch.frames import Scored


class TableError(ValueError):
    """The file is not a table of scores."""


class TableTail:
    """Reads the lines of a table that are new since the last read.

    Parameters
    ----------
    path : Path
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._at = self._last = self._again = 0

    def read(self) -> list[Scored]:
        """The new scores; an incomplete last line is left for the next call.

        Raises
        ------
        TableError
            If the file is not such a table.
        """
        size = os.path.getsize(self.path)
        if size < self._at:  # a resumed run has shortened it, and will write those lines again
            self._at, self._again = size, self._last
        try:
            table, self._at = read_scores(self.path, self._at)
        except AlarmFileError as error:
            raise TableError(f"{self.path} is no table of psp fit --monitor: {error}") from None
        drift = np.full(len(table.row), "", dtype="<U9")
        for place, kind in table.drift:
            drift[place] = kind
        found = Update(table.t2, table.spe, table.t2_limit, table.spe_limit, table.outlier == 1, drift)
        return self._new(Scored(table.row.astype(np.int64), found))

    def _new(self, scored: Scored) -> list[Scored]:
        """Scores without those that were returned before the table was cut."""
        if self._again:
            new = scored.numbers > self._again
            scored = Scored(scored.numbers[new], Update(*(field[new] for field in scored.found)))
        if not len(scored.numbers):
            return []
        self._last, self._again = int(scored.numbers[-1]), 0
        return [scored]
