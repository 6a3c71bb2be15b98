"""The table of scores and alarms that a monitored run writes beside its model file. Updates continue it: rows are numbered from its first.

The table grows with the run, and a checkpoint stores its length in bytes and a digest of these bytes. Anything after them was written by a
run that was killed before its next checkpoint: a resumed run cuts it off, and learns and writes those rows again, so that each row is there
once. A table that does not begin with the bytes of the checkpoint is refused.
"""

from __future__ import annotations

import csv
import hashlib
import io
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from online_psp.engine.types import Floats

SCORES = ("t2", "spe", "t2_limit", "spe_limit", "missing", "outlier", "drift", "moved", "features")
"""Columns after the number of the row, its source, its time and its IDs."""
KINDS = ("mean", "spread", "direction")
"""What may have changed."""
_READ = ("row", "t2", "spe", "t2_limit", "spe_limit", "outlier")


class AlarmFileError(ValueError):
    """A table of alarms does not belong to the run, or is none."""


class Scores(NamedTuple):
    """Columns of a table of scores, each (n,); NaN for empty cells."""

    row: Floats
    t2: Floats
    spe: Floats
    t2_limit: Floats
    spe_limit: Floats
    outlier: Floats
    drift: list[tuple[int, str]]
    """Positions of rows that raised an alarm, and what had changed."""


def read_scores(path: str | os.PathLike[str], start: int = 0) -> tuple[Scores, int]:
    """Read a table that `psp score` or `psp fit --monitor` has written, from a byte on; a last line that is still being written is left.

    Returns
    -------
    Scores
    int
        The byte after the last line that was read, from which to read on.

    Raises
    ------
    AlarmFileError
        If it is no such table.
    """
    import pyarrow as pa
    from pyarrow import csv as arrow

    with open(path, "rb") as file:
        first = file.readline()
        head = next(csv.reader([first.decode("utf-8", "replace")]), [])
        missing = [name for name in _READ if head.count(name) != 1]
        if missing:
            raise AlarmFileError(f"{path} is no table of psp score or psp fit --monitor: it has no single column {missing[0]}.")
        start = max(start, file.tell())
        file.seek(start)
        data = file.read()
    end = data.rfind(b"\n") + 1
    kinds = {**dict.fromkeys(_READ, pa.float64()), "drift": pa.string()}
    try:
        found = arrow.read_csv(
            io.BytesIO(first + data[:end]),
            arrow.ReadOptions(use_threads=False),  # whose errors name no row
            arrow.ParseOptions(newlines_in_values=True),
            arrow.ConvertOptions(column_types=kinds, include_columns=list(kinds), include_missing_columns=True),
        )
    except pa.ArrowInvalid as error:
        raise AlarmFileError(f"{path} cannot be read from byte {start} on: {error}.") from None
    drift = [(place, kind) for place, kind in enumerate(found["drift"].to_pylist()) if kind]
    row, t2, spe, t2_limit, spe_limit, outlier = (found[name].to_numpy() for name in _READ)
    return Scores(row, t2, spe, t2_limit, spe_limit, outlier, drift), start + end


class Written(NamedTuple):
    """What has been written of a table of alarms."""

    size: int = 0
    """Length in bytes."""
    digest: str = hashlib.sha256().hexdigest()
    """SHA-256 of these bytes."""
    rows: int = 0
    outliers: int = 0
    drifts: int = 0
    """Rows that have raised an alarm."""


class AlarmFile:
    """A table of scores and alarms, one line per row, that can be continued.

    Nothing is changed on disk before the first rows are written.

    Parameters
    ----------
    path : path
        The caller must hold it (`files.claimed`).
    after : Written, optional
        Where to continue; by default the table begins anew.
    again : bool
        Whether a new table may overwrite its own beginning, left by a run that was killed before its first checkpoint. Any other file is
        refused when the first rows are written, and does not change.
    source : str
        Name of the source that rows come from.
    columns : sequence of str
        Names of the time column, if there is one, and of the ID columns.

    Raises
    ------
    AlarmFileError
        If the file does not begin with what was written, or has other columns.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        after: Written | None = None,
        *,
        again: bool = False,
        source: str = "",
        columns: Sequence[str] = (),
    ) -> None:
        self.path = os.fspath(path)
        self._again, self._source = again, source
        self.written = after or Written()
        """What has been added, with the size and digest of what is on disk."""
        self._digest = hashlib.sha256()
        self._pending: list[bytes] = []
        head = _line(["row", "source", *columns, *SCORES]).encode()
        if not self.written.size:
            self._pending.append(head)
            return
        self._check()
        with open(self.path, "rb") as file:
            if file.readline() != head:
                raise AlarmFileError(f"{self.path} has other columns than {head.decode().strip()}: --ids or --time-column was different.")

    def _check(self) -> None:
        """Raise an AlarmFileError if the file does not begin with what was written."""
        left, rows = self.written.size, self.written.rows
        try:
            with open(self.path, "rb") as file:
                while left and (part := file.read(min(left, 1 << 20))):
                    self._digest.update(part)
                    left -= len(part)
        except FileNotFoundError:
            raise AlarmFileError(f"{self.path} does not exist, and the run has written {rows} rows to its table of alarms.") from None
        if left or self._digest.hexdigest() != self.written.digest:
            raise AlarmFileError(
                f"{self.path} does not begin with the {rows} rows that the run has written to its table of alarms: "
                "it is another file, or was changed."
            )

    def add(
        self,
        good: NDArray[np.bool_],
        found: Any,
        about: Sequence[Sequence[str]],
        missing: Sequence[int],
        changed: Sequence[tuple[str, str]],
    ) -> None:
        """Add what a monitor says about a block of rows, to be written later.

        Parameters
        ----------
        good : (n,) bool
            Which rows of the block have been scored; the lines of the others have only their number, source, time and IDs.
        found : monitoring.Update, or None where no row is good
        about : (n,) sequences of str
            Time and IDs of each row.
        missing : sequence of int
            Number of missing values of each good row.
        changed : sequence of (str, str)
            What has moved at each alarm that these rows have raised, and its leading features, in order.
        """
        scored = iter(() if found is None else zip(*(each.tolist() for each in found), missing, strict=True))
        of_alarms = iter(changed)
        before = self.written
        for row, (known, own) in enumerate(zip(good.tolist(), about, strict=True), before.rows + 1):
            cells = [""] * len(SCORES)
            if known:
                *numbers, outlier, drift, holes = next(scored)
                texts = ["" if value != value else repr(value) for value in numbers]  # noqa: PLR0124
                cells = [*texts, str(holes), f"{outlier:d}", drift, *(next(of_alarms) if drift else ("", ""))]
            self._pending.append(_line([str(row), self._source, *own, *cells]).encode())
        self.written = before._replace(
            rows=before.rows + len(good),
            outliers=before.outliers + (0 if found is None else int(found.outlier.sum())),
            drifts=before.drifts + len(changed),
        )

    def write(self, sync: bool = False) -> Written:
        """Write pending rows, and cut off anything after them; `sync` forces the file to disk.

        If that fails the rows stay pending, and the next call overwrites what was written of them.
        """
        data, size = b"".join(self._pending), self.written.size
        flags = os.O_RDWR | (0 if size else os.O_CREAT) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
        try:
            with open(os.open(self.path, flags, 0o666), "r+b") as file:
                there = file.seek(0, os.SEEK_END)
                if there < size:
                    raise AlarmFileError(f"{self.path} was cut short while the run was writing it.")
                if self._again and not size:
                    file.seek(0)
                    if not data.startswith(file.read(len(data) + 1)):
                        raise AlarmFileError(
                            f"{self.path} exists, and is not the table of the run that begins here; remove it, or choose another name."
                        )
                file.truncate(size)
                file.seek(size)
                file.write(data)
                file.flush()
                if sync:
                    os.fsync(file.fileno())
        except OSError as error:
            error.filename = error.filename or self.path
            raise
        self._digest.update(data)
        self.written = self.written._replace(size=size + len(data), digest=self._digest.hexdigest())
        self._pending.clear()
        return self.written


def _line(cells: Sequence[str]) -> str:
    """Cells as a line of CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow([" ".join(cell.splitlines()) for cell in cells])
    return text.getvalue()
