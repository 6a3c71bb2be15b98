"""Reads the table of scores that ``psp fit --monitor`` writes, while it grows."""

from __future__ import annotations

import csv
import math
import os
from pathlib import Path

import numpy as np

from online_psp.io.alarms import SCORES
from online_psp.monitoring import Update
from online_psp.watch.frames import Scored

_MOST = 32 << 20  # most bytes to read at a time


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
        self._at = self._last = self._again = self._width = 0

    def read(self) -> list[Scored]:
        """The new scores; an incomplete last line is left for the next call.

        Raises
        ------
        TableError
            If the file is not such a table.
        """
        found: list[Scored] = []
        with open(self.path, "rb") as file:
            if file.seek(0, os.SEEK_END) < self._at:  # a resumed run has shortened it, and will write those lines again
                self._at, self._again = file.tell(), self._last
            while True:
                file.seek(self._at)
                data = file.read(_MOST)
                end = data.rfind(b"\n") + 1
                if not end:
                    return found
                lines = data[:end].decode("utf-8", "replace").splitlines()
                if self._at == 0:
                    head = next(csv.reader(lines[:1]), [])
                    if head[:1] != ["row"] or head[-len(SCORES) :] != list(SCORES):
                        raise TableError(f"{self.path} is no table of psp fit --monitor.")
                    self._width, lines = len(head), lines[1:]
                found += self._new(self._parsed(lines)) if lines else []
                self._at += end

    def _new(self, scored: Scored) -> list[Scored]:
        """Scores without those that were returned before the table was cut."""
        if self._again:
            new = scored.numbers > self._again
            scored = Scored(scored.numbers[new], Update(*(field[new] for field in scored.found)))
        if not len(scored.numbers):
            return []
        self._last, self._again = int(scored.numbers[-1]), 0
        return [scored]

    def _parsed(self, lines: list[str]) -> Scored:
        cells = list(csv.reader(lines))
        if any(len(line) != self._width for line in cells):
            raise TableError(f"{self.path} is no table of psp fit --monitor: it has lines of other lengths.")
        scores = [line[-len(SCORES) :] for line in cells]
        try:
            numbers = np.array([int(line[0]) for line in cells])
            t2, spe, t2_limit, spe_limit = (np.array([float(line[k] or math.nan) for line in scores]) for k in range(4))
        except ValueError as error:
            raise TableError(f"{self.path} is no table of psp fit --monitor: {error}.") from None
        at, kind = SCORES.index("outlier"), SCORES.index("drift")
        outlier, drift = np.array([line[at] == "1" for line in scores]), np.array([line[kind] for line in scores])
        return Scored(numbers, Update(t2, spe, t2_limit, spe_limit, outlier, drift))
