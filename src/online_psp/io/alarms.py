"""The table of scores and alarms that a monitored run writes beside its model file.

The table grows with the run, and a checkpoint stores its length in bytes and a digest of these bytes. Anything after them was written by a
run that was killed before its next checkpoint: a resumed run cuts it off, and learns and writes those rows again, so that each row is there
once. A table that does not begin with the bytes of the checkpoint is refused.
"""

from __future__ import annotations

import hashlib
import os
from typing import Any, BinaryIO, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from online_psp.io.model_file import Fields, ModelFileError
from online_psp.io.pacing import unbroken

COLUMNS = ("row", "t2", "spe", "t2_limit", "spe_limit", "outlier", "drift")


class AlarmFileError(ValueError):
    """A table of alarms does not belong to the run."""


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

    @classmethod
    def of(cls, header: Fields) -> Self | None:
        """Read from the header of a model file; None if there was no table."""
        if header.optional("written", dict) is None:
            return None
        fields = header.under("written")
        digest = fields.value("digest", str)
        if len(digest) != 64 or set(digest) - set("0123456789abcdef"):
            raise ModelFileError("the digest of its table of alarms is none")
        return cls(fields.count("size"), digest, *(fields.count(name) for name in ("rows", "outliers", "drifts")))


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

    Raises
    ------
    AlarmFileError
        If the file does not begin with what was written.
    """

    def __init__(self, path: str | os.PathLike[str], after: Written | None = None, *, again: bool = False) -> None:
        self.path = os.fspath(path)
        self._again = again
        self.written = after or Written()
        self._digest = hashlib.sha256()
        self._pending: list[bytes] = []
        self._ahead = self.written
        """As `written`, including pending rows, without size and digest."""
        if after is not None and after.size:
            self._check(after)
        else:
            self._pending.append((",".join(COLUMNS) + "\n").encode())

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

    def add(self, start: int, good: NDArray[np.bool_], found: Any) -> None:
        """Add what a monitor says about a block of rows, to be written later.

        Parameters
        ----------
        start : int
            Number of rows of the source before the block.
        good : (n,) bool
            Which rows of the block have been scored; the lines of the others have only their number.
        found : monitoring.Update, or None where no row is good
        """
        lines, scored = [], iter(() if found is None else zip(*(each.tolist() for each in found), strict=True))
        for row, known in enumerate(good.tolist(), start + 1):
            if not known:
                lines.append(f"{row},,,,,,\n")
                continue
            *numbers, outlier, drift = next(scored)
            cells = ",".join("" if value != value else repr(value) for value in numbers)  # noqa: PLR0124
            lines.append(f"{row},{cells},{outlier:d},{drift}\n")
        self._pending.append("".join(lines).encode())
        ahead = self._ahead
        self._ahead = ahead._replace(
            rows=ahead.rows + len(good),
            outliers=ahead.outliers + (0 if found is None else int(found.outlier.sum())),
            drifts=ahead.drifts + (0 if found is None else int((found.drift != "").sum())),
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
