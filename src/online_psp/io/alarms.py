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
from array import array
from collections.abc import Sequence
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from online_psp.engine.types import Floats
from online_psp.io.pacing import unbroken

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
    with open(path, "rb") as file:
        head = next(csv.reader([file.readline().decode("utf-8", "replace")]), [])
        missing = [name for name in _READ if head.count(name) != 1]
        if missing:
            raise AlarmFileError(f"{path} is no table of psp score or psp fit --monitor: it has no single column {missing[0]}.")
        start = max(start, file.tell())
        file.seek(start)
        data = file.read()
    end = data.rfind(b"\n") + 1
    places, kind = [head.index(name) for name in _READ], head.index("drift") if "drift" in head else None
    columns, drift = [array("d") for _ in _READ], []
    lines = csv.reader(io.StringIO(data[:end].decode("utf-8", "replace")))
    try:
        for number, line in enumerate(lines):
            if len(line) != len(head):
                raise ValueError(f"it has {len(line)} cells, and the first line {len(head)}")
            for column, place in zip(columns, places, strict=True):
                column.append(float(line[place] or "nan"))
            if kind is not None and line[kind]:
                if line[kind] not in KINDS:
                    raise ValueError(f"{line[kind][:40]!r} is no kind of drift")
                drift.append((number, line[kind]))
    except (ValueError, csv.Error) as error:
        raise AlarmFileError(f"{path}, line {lines.line_num + 1}: {error}.") from None
    row, t2, spe, t2_limit, spe_limit, outlier = (np.array(column, dtype=np.float64) for column in columns)
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
        self._digest = hashlib.sha256()
        self._pending: list[bytes] = []
        self._ahead = self.written
        """As `written`, including pending rows, without size and digest."""
        head = _line(["row", "source", *columns, *SCORES]).encode()
        if after is not None and after.size:
            self._check(after)
            with open(self.path, "rb") as file:
                if file.readline() != head:
                    raise AlarmFileError(
                        f"{self.path} has other columns than {head.decode().strip()}: --ids or --time-column was different."
                    )
        else:
            self._pending.append(head)

    def _check(self, after: Written) -> None:
        left = after.size
        try:
            with open(self.path, "rb") as file:
                while left and (part := file.read(min(left, 1 << 20))):
                    self._digest.update(part)
                    left -= len(part)
        except FileNotFoundError:
            raise AlarmFileError(f"{self.path} does not exist, and the run has written {after.rows} rows to its table of alarms.") from None
        if left or self._digest.hexdigest() != after.digest:
            raise AlarmFileError(
                f"{self.path} does not begin with the {after.rows} rows that the run has written to its table of alarms: "
                "it is another file, or was changed."
            )

    def _check_beginning(self, file: BinaryIO, data: bytes) -> None:
        """Raise an AlarmFileError if a file is not the beginning of what is to be written."""
        file.seek(0)
        if not data.startswith(file.read(len(data) + 1)):
            raise AlarmFileError(
                f"{self.path} exists, and is not the table of the run that begins here; remove it, or choose another name."
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
        lines, scored = [], iter(() if found is None else zip(*(each.tolist() for each in found), missing, strict=True))
        of_alarms = iter(changed)
        for row, (known, own) in enumerate(zip(good.tolist(), about, strict=True), self._ahead.rows + 1):
            place = [str(row), self._source, *own]
            if not known:
                lines.append(_line([*place, *[""] * len(SCORES)]))
                continue
            *numbers, outlier, drift, holes = next(scored)
            cells = ["" if value != value else repr(value) for value in numbers]  # noqa: PLR0124
            lines.append(_line([*place, *cells, str(holes), f"{outlier:d}", drift, *(next(of_alarms) if drift else ("", ""))]))
        self._pending.append("".join(lines).encode())
        ahead = self._ahead
        self._ahead = ahead._replace(
            rows=ahead.rows + len(good),
            outliers=ahead.outliers + (0 if found is None else int(found.outlier.sum())),
            drifts=ahead.drifts + len(changed),
        )

    def write(self) -> None:
        """Write pending rows. If that fails they stay pending, and the next call overwrites what was written of them."""
        self._put(sync=False)

    def settle(self) -> Written:
        """Write pending rows, cut off anything after them, and force the file to disk; returns what has been written."""
        self._put(sync=True)
        return self.written

    def _put(self, sync: bool) -> None:
        data = b"".join(self._pending)
        if not data and not sync:
            return
        create = 0 if self.written.size else os.O_CREAT
        flags = os.O_RDWR | create | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
        try:
            with unbroken(), open(os.open(self.path, flags, 0o666), "r+b") as file:
                if file.seek(0, os.SEEK_END) < self.written.size:
                    raise AlarmFileError(f"{self.path} was cut short while the run was writing it.")
                if self._again and not self.written.size:
                    self._check_beginning(file, data)
                file.truncate(self.written.size)
                file.seek(self.written.size)
                file.write(data)
                file.flush()
                if sync:
                    os.fsync(file.fileno())
                self._digest.update(data)
                self.written = self._ahead._replace(size=self.written.size + len(data), digest=self._digest.hexdigest())
                self._pending.clear()
        except OSError as error:
            error.filename = error.filename or self.path
            raise


def _line(cells: Sequence[str]) -> str:
    """Cells as a line of CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow([" ".join(cell.splitlines()) for cell in cells])
    return text.getvalue()
