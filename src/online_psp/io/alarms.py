"""The table of scores and alarms that a monitored run writes beside its model file.

The table grows with the run, and a checkpoint says how far it had come, in bytes, with a digest of them. Whatever lies behind that was
written by a run that was killed before its next checkpoint: a resumed run cuts it off, learns those rows again, and writes them again.
So each row is there once. A table that does not begin with the bytes of the checkpoint is refused.
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
    """A table of alarms that is not the one of the run."""


class Written(NamedTuple):
    """How far a table of alarms has come."""

    size: int = 0
    """In bytes."""
    digest: str = hashlib.sha256().hexdigest()
    """Of these bytes, in SHA-256."""
    rows: int = 0
    outliers: int = 0
    drifts: int = 0
    """Rows that have raised an alarm."""

    @classmethod
    def of(cls, header: Fields) -> Self | None:
        """From what a model file says of its run; None where there was no table."""
        if header.optional("written", dict) is None:
            return None
        fields = header.under("written")
        digest = fields.value("digest", str)
        if len(digest) != 64 or set(digest) - set("0123456789abcdef"):
            raise ModelFileError("the digest of its table of alarms is none")
        return cls(fields.count("size"), digest, *(fields.count(name) for name in ("rows", "outliers", "drifts")))


class AlarmFile:
    """A table of scores and alarms, a line for each row, that can be continued.

    Nothing is changed on disk before the first rows are written.

    Parameters
    ----------
    path : path
        Whoever makes this holds it (`files.claimed`).
    after : Written, optional
        Where to continue. By default the table begins anew.
    again : bool
        A table that begins anew may find the beginning of itself, left by a run that was killed before its first checkpoint. Anything else
        is refused when the first rows are written, and left as it is.

    Raises
    ------
    AlarmFileError
        Where the file does not begin with what was written.
    """

    def __init__(self, path: str | os.PathLike[str], after: Written | None = None, *, again: bool = False) -> None:
        self.path = os.fspath(path)
        self._again = again
        self.written = after or Written()
        self._digest = hashlib.sha256()
        self._pending: list[bytes] = []
        self._ahead = self.written
        """As `written`, with what is pending; without size and digest."""
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
        """Refuse a file that is not the beginning of what is to be written."""
        file.seek(0)
        if not data.startswith(file.read(len(data) + 1)):
            raise AlarmFileError(
                f"{self.path} exists, and is not the table of the run that begins here; remove it, or choose another name."
            )

    def add(self, start: int, good: NDArray[np.bool_], found: Any) -> None:
        """Take what a monitor says of a block of rows, to be written later.

        Parameters
        ----------
        start : int
            Rows of the source before the block.
        good : (n,) bool
            Which rows of the block have been scored; the others have a line with nothing but their number.
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
        """Write what is pending. Where that fails it stays pending, and what was written of it is written over the next time."""
        self._put(sync=False)

    def settle(self) -> Written:
        """Write what is pending, cut off what lies behind it, force it to disk; how far the table has come."""
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
