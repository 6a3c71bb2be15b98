"""Frames: copies of data that a learner sends, through a pipe, to the process that serves its page.

They are pickled, which is safe here: both ends are ours, and the pipe between them has no name, so nobody else can write to it.
"""

from __future__ import annotations

import pickle
import struct
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from online_psp.engine.types import Array, Floats
from online_psp.monitoring import Alarm, Update

_HEAD = struct.Struct(">Q")


class Piece(NamedTuple):
    """Some of the rows that were learned."""

    numbers: NDArray[np.int64]
    """(n,): numbers of the rows in their stream, from 1."""
    rows: Any
    """(n, D): an array, or a CSR array."""
    ids: list[list[str]] | None = None
    """The texts of the ID columns, row by row."""

    def of(self, chosen: NDArray[np.bool_]) -> Piece:
        """Some of these rows."""
        if chosen.all():
            return self
        ids = None if self.ids is None else [row for row, kept in zip(self.ids, chosen, strict=True) if kept]
        return Piece(self.numbers[chosen], self.rows[chosen], ids)


class Scored(NamedTuple):
    """What a monitor said about rows, before it learned them."""

    numbers: NDArray[np.int64]
    found: Update


class Witness(NamedTuple):
    """An alarm, the row that raised it, and what each feature added to its scores."""

    alarm: Alarm
    number: int
    """Number of the row in its stream, from 1."""
    row: Floats
    t2: Floats
    spe: Floats
    t2_limit: float
    spe_limit: float


class Facts(NamedTuple):
    """How a run is going, apart from what its model knows."""

    memory: int | None = None
    """Bytes that the learner's process holds."""
    saved: float | None = None
    """Seconds since the last checkpoint."""
    total: int | None = None
    """Number of rows of the whole source, if it is known."""
    samples: int | None = None
    """Number of rows that the model has learned; the model itself is not in every frame."""
    every: float | None = None
    """Seconds between the last two copies of the model."""
    monitored: bool = False
    """Whether a monitor scores every row."""
    outliers: int | None = None
    """Number of rows above a limit so far, if it is known."""
    alarms: int | None = None
    """Number of drift alarms so far, if there may be more than were handed over."""
    uncharted: int = 0
    """Number of scored rows that were left out of the charts, because the page did not keep up."""
    afterwards: bool = False
    """Whether rows are scored by a model that has already learned them."""
    status: str = "running"
    """"running", "finished", "stopped" or "failed"; "watching" if a file is followed."""
    note: str = ""
    """One sentence on what is wrong."""


class Frame(NamedTuple):
    """One hand-over."""

    time: float
    """Time on the learner's monotonic clock, in seconds."""
    row: int
    """Number of the newest row."""
    facts: Facts
    arrays: dict[str, Array]
    """With `state`, the model in the form in which files hold it."""
    state: dict[str, Any] | None
    pieces: list[Piece]
    scores: list[Scored]
    witnesses: list[Witness]
    told: dict[str, Any] | None = None
    """Settings that became known after the page was started: feature names, shape of pictures."""


def packed(value: Any) -> list[Any]:
    """An object as pieces of memory, for `write`. Its arrays are not copied, so they must not change until they are written."""
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return [head, *(each.raw() for each in buffers)]


def write(file: BinaryIO, value: Any) -> None:
    """Write an object: first the lengths of its pieces, then the pieces."""
    pieces = packed(value)
    file.write(b"".join(_HEAD.pack(length) for length in (len(pieces), *map(len, pieces))))
    for piece in pieces:
        file.write(piece)
    file.flush()


def read(file: BinaryIO) -> Any:
    """The next object, or None at the end."""
    head = _exactly(file, _HEAD.size)
    lengths = None if head is None else _exactly(file, _HEAD.size * _HEAD.unpack(head)[0])
    if lengths is None:
        return None
    pieces = []
    for (length,) in _HEAD.iter_unpack(lengths):
        piece = _exactly(file, length)
        if piece is None:
            return None
        pieces.append(piece)
    return pickle.loads(pieces[0], buffers=pieces[1:])


def _exactly(file: BinaryIO, size: int) -> bytearray | None:
    """Read exactly this many bytes; None if the other end has closed the pipe."""
    found = bytearray(size)
    view = memoryview(found)
    while view:
        count = file.readinto(view)  # type: ignore[attr-defined]
        if not count:
            return None
        view = view[count:]
    return found
