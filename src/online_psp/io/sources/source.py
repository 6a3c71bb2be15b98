"""Defines what a source is: column names, the length if it is known, and blocks of rows from a position on.

A reader gives *pieces* of any size, from any place that it has named before. Here they are read ahead in a thread, cut into blocks, and
screened: the only place that does so.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.sparse import issparse, vstack

from online_psp.engine.checks import sum_of_squares
from online_psp.engine.types import Array, Floats

BLOCK_ENTRIES = 1 << 18  # entries of sparse rows in a block: about four megabytes, with their column numbers
MOST_ROWS, FEWEST_ROWS = 8192, 32
PIECE_BYTES = 1 << 22
_DIGESTED_BYTES, _DIGESTED_ROWS = 1 << 16, 64
_WAIT = 0.2  # seconds


class SourceError(ValueError):
    """Data cannot be read, or rows cannot be used; the message names the source, and the row if there is one."""


class MissingExtraError(SourceError):
    """The library for a format is not installed."""


class UnknownSourceError(SourceError):
    """Something is not recognised as a source, or options do not fit it."""


class EmptySourceError(SourceError):
    """The file is empty."""


class DifferentSourceError(SourceError):
    """The source is not the one that the checkpoint was made from."""


class Mark(NamedTuple):
    """A place between two rows of a source."""

    row: int = 0
    """Rows before it."""
    file: int = 0
    """Files before it."""
    inner: int = 0
    """Rows of its file before it."""
    byte: int = 0
    """Bytes of the text before it, unpacked and in UTF-8."""
    line: int = 0
    """Lines of the text before it."""


class BadRow(NamedTuple):
    """A row that cannot be used."""

    row: int
    """Its number in the source, from 1."""
    problem: str
    place: str = ""
    """File or line, if the number of the row does not say it all."""


class Chunk(NamedTuple):
    """What a reader gives: `rows` as they are in the source, and which of the `length` rows could not be parsed."""

    length: int
    rows: Any
    bad: dict[int, str] = {}  # noqa: RUF012
    """Position in the chunk → what is wrong with the row; these rows are not in `rows`."""
    ids: Array | None = None
    times: Array | None = None
    marks: Array | None = None
    """(length, 5): file, inner, byte and line of the `Mark` after each row, and the line in which the row begins."""

    def part(self, start: int, stop: int) -> Chunk:
        """Rows `start` … `stop`−1."""
        if start == 0 and stop >= self.length:
            return self
        first, last = (at - sum(place < at for place in self.bad) for at in (start, stop))
        bad = {at - start: why for at, why in self.bad.items() if start <= at < stop}
        ids, times, marks = (None if each is None else each[start:stop] for each in (self.ids, self.times, self.marks))
        return Chunk(stop - start, self.rows[first:last], bad, ids, times, marks)

    def mark(self, start: int, i: int) -> Mark:
        """The place after row i, if there are `start` rows before the chunk."""
        return Mark(start + i + 1) if self.marks is None else Mark(start + i + 1, *map(int, self.marks[i, :4]))


def together(chunks: Sequence[Chunk]) -> Chunk:
    """Several chunks as one; empty ones, which a pipe gives while it is silent, know no places."""
    chunks = [chunk for chunk in chunks if chunk.length] or chunks[:1]
    if len(chunks) == 1:
        return chunks[0]
    bad, length = {}, 0
    for chunk in chunks:
        if chunk.bad:
            bad.update({length + place: why for place, why in chunk.bad.items()})
        length += chunk.length
    ids, times, marks = (
        None if parts[0] is None else np.concatenate(parts) for parts in zip(*(chunk[3:] for chunk in chunks), strict=True)
    )
    return Chunk(length, joined([chunk.rows for chunk in chunks if chunk.rows.shape[0]] or [chunks[0].rows]), bad, ids, times, marks)


class Position:
    """How far a source has been read, and a digest of the last rows before that, which tells whether it is still the same.

    Parameters
    ----------
    row : int
        Rows before the position.
    start : Mark
        The place from which they are digested, and read on.
    """

    def __init__(self, row: int, start: Mark, digest: str | None = None, rows: Chunk | None = None) -> None:
        self.row, self.start, self._digest, self._rows = row, start, digest, rows

    @property
    def digest(self) -> str:
        """Digest of the rows from `start` on."""
        if self._digest is None:
            self._digest, self._rows = digest_of(self._rows), None
        return self._digest

    @classmethod
    def of_pipe(cls, row: int) -> Self:
        """The position after some rows of a pipe, of which none is digested."""
        return cls(row, Mark(row))

    def to_json(self) -> list[Any]:
        """As it is stored in a checkpoint."""
        return [self.row, list(self.start), self.digest]

    @classmethod
    def of(cls, stored: Any) -> Self:
        """The position that a checkpoint holds."""
        row, start, digest = stored
        return cls(row, Mark(*start), digest)


class Block(NamedTuple):
    """Consecutive rows of a source."""

    start: int
    """Number of rows of the source before it."""
    length: int
    """Number of rows of the source that it covers, including bad ones."""
    rows: Any
    """(n, D): the good rows, float32 or float64; an array, or a CSR array if the source is sparse."""
    bad: list[BadRow]
    ids: Array | None = None
    """(length, number of id columns) strings, including those of bad rows; None if no `ids` were asked for."""
    times: Array | None = None
    """(length,) float64 seconds or datetime64[us], including those of bad rows; None if no `time_column` was asked for."""
    position: Position | None = None
    """The place after the block, from which `Source.blocks` goes on."""


Deadline = Callable[[], bool]
"""Returns whether the caller wants, now, the rows that have arrived."""

Reader = Callable[[Mark], Iterator[Chunk]]
"""Gives the rows after a place, in pieces of any size."""


def default_max_memory() -> int:
    """A quarter of the machine's memory."""
    try:
        return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")) // 4
    except (AttributeError, ValueError, OSError):  # not POSIX
        return 1 << 31


@dataclass(frozen=True)
class Source:
    """A source of rows, read one block at a time.

    Made by `open_source`. `notes` and `warnings` tell the user how the rows were read.
    """

    name: str
    features: int
    dtype: np.dtype[Any]
    """dtype of the blocks: float32 or float64."""
    read: Reader = field(repr=False)
    total: int | None = None
    """Number of rows, if it is known. Then reading can begin at any row; otherwise at the first, and at places that have been named."""
    once: bool = False
    """Whether it can be read only once."""
    feature_names: list[str] | None = None
    image_shape: tuple[int, ...] | None = None
    place: Callable[[int, Any], str] | None = field(default=None, repr=False)
    """Says where a row is, by its number from 0 and its `Chunk.marks`: a line, a file."""
    block: int | None = None
    """Rows per block for sparse rows, whose size does not follow from the number of features."""
    notes: list[str] = field(default_factory=list)
    """Sentences about how the data was read: header, delimiter, row numbers that were left out, …"""
    warnings: list[str] = field(default_factory=list)
    """Sentences about what may be wrong with the data."""
    missing: str = "error"
    """"error": a row with a missing value is a bad row; "keep": it has NaN in its place."""
    na_numbers: tuple[float, ...] = ()
    """Numbers that stand for missing values."""
    kind: str = "rows"
    files: tuple[Any, ...] = field(default=(), repr=False)
    """Each `Place` that it is read from."""
    schema: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """How it was read: columns, header, delimiter, …"""
    max_memory: int = field(default_factory=default_max_memory, repr=False)
    """Largest number of bytes that one block may take."""
    column_numbers: list[int] | None = field(default=None, repr=False)
    """Column of the file, from 0, for each feature; None if they are the same."""
    foreign: bool = False
    """Whether it is the caller's own object: it is read in the caller's thread, and errors are passed on unchanged."""
    seen: list[Chunk] = field(default_factory=list, repr=False)
    """The first rows, once they have been read."""

    def blocks(self, size: int | None = None, start: int | Position = 0, *, deadline: Deadline | None = None) -> Iterator[Block]:
        """The rows from a row number or a position on, `size` at a time.

        Blocks are cut at multiples of `size` from `start`, and cover good and bad rows alike, so that a reader that stops after a block
        and later starts there again gets the same blocks.

        Parameters
        ----------
        start : int or Position
            At a `Position`, the rows before it must be those that it was made from.
        deadline : callable, optional
            For pipes and other slow sources: a block ends early if this returns True and a row is waiting. While no row arrives, a block
            of length 0 is yielded about every quarter of a second, so that the caller can check its timers and signals.

        Raises
        ------
        DifferentSourceError
            If the rows before a `Position` are not those that were read.
        """
        size = size or self.block_rows()
        self._check_memory(size)
        known = start if isinstance(start, Position) else Position(start, Mark(start))
        begin = known.start if (isinstance(start, Position) or self.total is not None) and not self.once else Mark()
        tail = _Tail(known.start, self._digested())
        at = known.row
        for chunk in cut(self._after(begin.row, self._chunks(begin), known, tail, isinstance(start, Position)), size, deadline):
            tail.add(chunk)
            yield self._screened(at, chunk)._replace(position=tail.position())
            at += chunk.length

    def _after(self, at: int, chunks: Iterator[Chunk], known: Position, tail: _Tail, compare: bool) -> Iterator[Chunk]:
        """Pass over the rows before a position; the last of them must be those that it was made from."""
        unseen = self._digested() - sum(each.length for each in self.seen) if self.once else 0
        for chunk in chunks:
            if unseen > 0:
                self.seen.append(chunk)
                unseen -= chunk.length
            if at < known.row:
                stop = min(known.row - at, chunk.length)
                tail.add(chunk.part(min(max(known.start.row - at, 0), stop), stop))
                at += stop
                chunk = chunk.part(stop, chunk.length)  # noqa: PLW2901
                if compare and at == known.row and tail.position().digest != known.digest:
                    raise DifferentSourceError(
                        f"{self.name} has changed before row {at}, where the run had come to: its rows {known.start.row + 1} to {at} are "
                        "not those that were read."
                    )
            yield chunk
        if compare and at < known.row:
            raise DifferentSourceError(f"{self.name} ended after {at} rows, and the run had come to row {known.row}: these are other data.")

    def _chunks(self, begin: Mark) -> Iterator[Chunk]:
        """The pieces of the reader, read ahead, with every library error turned into one sentence; empty ones while nothing comes."""
        at, empty = begin.row, None
        pieces: Iterator[Chunk | None] = self.read(begin)
        if not self.foreign:
            pieces = ahead(pieces, wait=not self.once)  # type: ignore[arg-type]
        while True:
            try:
                chunk = next(pieces)
            except StopIteration:
                return
            except (SourceError, KeyboardInterrupt):
                raise
            except Exception as error:  # a library may raise anything for a damaged file
                if self.foreign and not isinstance(error, MemoryError):
                    raise
                raise unreadable(self.name, at, error) from None
            if chunk is None:
                empty = empty or Chunk(0, np.zeros((0, self.features), self.dtype))
                yield empty
                continue
            yield chunk._replace(rows=_with_holes(chunk.rows, self.na_numbers)) if self.na_numbers else chunk
            at += chunk.length

    def gather(self) -> Any:
        """All rows at once, (N, D), in the type of the source; raises a SourceError if there is a bad row.

        For data that fits into memory: it may take at most twice as much as a block.
        """
        most, parts, at, taken = 2 * self.max_memory, [], 0, 0
        for chunk in self._chunks(Mark()):
            block = self._screened(at, chunk)
            if block.bad:
                raise SourceError(f"{self.where(block.bad[0])}: it {block.bad[0].problem}.")
            at += chunk.length
            taken += 0 if issparse(chunk.rows) else chunk.rows.nbytes
            if max(taken, 0 if self.block else (self.total or 0) * self.features * chunk.rows.itemsize) > most:
                raise SourceError(f"{self.name}: all of its rows at once would take more than the {megabytes(most)} that are allowed.")
            if chunk.length:
                parts.append(chunk.rows)
        if not parts:
            raise SourceError(f"{self.name} has no rows.")
        rows = joined(parts)
        native = rows.dtype.newbyteorder("=")
        return rows.astype(native, copy=False) if issparse(rows) else np.ascontiguousarray(rows, dtype=native)

    def head(self, rows: int | None = None) -> list[Any] | None:
        """How many first rows are digested, and their digest; None if they have not come yet."""
        rows = self._digested() if rows is None else rows
        found: list[Chunk] = []
        for chunk in self.seen if self.once else self.read(Mark()):
            found.append(chunk)
            if sum(each.length for each in found) >= rows:
                break
        whole = together(found).part(0, rows) if found else None
        return [whole.length, digest_of(whole)] if whole is not None and whole.length else None

    def _digested(self) -> int:
        """Number of rows that are digested at once."""
        return int(np.clip(_DIGESTED_BYTES // (max(1, self.features) * self.dtype.itemsize), 1, _DIGESTED_ROWS))

    def _check_memory(self, size: int) -> None:
        needed = size * self.features * self.dtype.itemsize
        if self.block is None and needed > self.max_memory:
            raise SourceError(
                f"{self.name}: a block of {size} rows of {self.features} values takes {megabytes(needed)}, and "
                f"{megabytes(self.max_memory)} are allowed; read fewer rows at a time (--set block=…) or allow more (--set max_memory=…)."
            )

    def block_rows(self) -> int:
        """Number of rows that make a few megabytes."""
        if self.block is not None:
            return self.block
        row = max(1, self.features) * self.dtype.itemsize
        fewest = max(1, min(FEWEST_ROWS, self.max_memory // (4 * row)))
        return int(np.clip(min(PIECE_BYTES, self.max_memory // 4) // row, fewest, MOST_ROWS))

    def _screened(self, start: int, chunk: Chunk) -> Block:
        """The rows in the working precision, without those that have NaN, infinity or squares that overflow."""
        rows = chunk.rows
        with np.errstate(over="ignore", invalid="ignore"):
            rows = rows.astype(self.dtype, copy=False) if issparse(rows) else np.ascontiguousarray(rows, dtype=self.dtype)
            values: Any = rows.data if issparse(rows) else rows
            good = None if np.isfinite(sum_of_squares(values)) else np.isfinite(_row_squares(rows, self.missing == "keep"))
        if not chunk.bad and good is None:
            return Block(start, chunk.length, rows, [], chunk.ids, chunk.times)
        problems = dict(chunk.bad)
        if good is not None:
            places = [place for place in range(chunk.length) if place not in chunk.bad]
            for i in np.flatnonzero(~good):
                problems[places[i]] = self._problem(*_values(rows, int(i)))
            rows = rows[good]
        bad = [BadRow(start + at + 1, problems[at], self._place(start + at, chunk, at)) for at in sorted(problems)]
        return Block(start, chunk.length, rows, bad, chunk.ids, chunk.times)

    def _place(self, row: int, chunk: Chunk, at: int) -> str:
        return "" if self.place is None else self.place(row, None if chunk.marks is None else chunk.marks[at])

    def _problem(self, row: Array, columns: Array) -> str:
        bad = np.isinf(row) if self.missing == "keep" else ~np.isfinite(row)
        if len(row) > 1 and np.isnan(row).all():
            return "has no values: all of them are empty or NaN"
        if not bad.any():
            return f"has values too large for {self.dtype} (their squares overflow)"
        first = int(np.argmax(bad))
        return f"has {'an empty or NaN value' if np.isnan(row[first]) else 'an infinite value'} in {self.column(int(columns[first]))}"

    def column(self, feature: int) -> str:
        """A feature as messages name it: by its column's number from 0, as options do, and its name."""
        number = feature if self.column_numbers is None else self.column_numbers[feature]
        return f"column {number}" if self.feature_names is None else f"column {number} ({self.feature_names[feature]!r})"

    def refused(self, bad: BadRow, fitting: bool = False) -> SourceError:
        """The error for a row that cannot be used, with the options that help."""
        fill = (
            ", a model fitted with --missing impute learns their other values" if fitting and "an empty or NaN value" in bad.problem else ""
        )
        return SourceError(f"{self.where(bad)}: it {bad.problem}; --on-bad-row skip leaves such rows out{fill}.")

    def where(self, bad: BadRow) -> str:
        """Source, number and place of a row, for messages."""
        return f"{self.name}, row {bad.row}{f' ({bad.place})' if bad.place else ''}"


class _Tail:
    """The last rows before a place, for its digest."""

    def __init__(self, start: Mark, most: int) -> None:
        self.start, self.row = start, start.row
        self.most, self.rows = most, Chunk(0, np.zeros((0, 0)))

    def add(self, chunk: Chunk) -> None:
        """Add rows, and forget those that are not among the last any more."""
        if not chunk.length:
            return
        self.row += chunk.length
        whole = together([self.rows, chunk.part(max(0, chunk.length - self.most - 1), chunk.length)])
        extra = whole.length - self.most
        if extra > 0:
            self.start = whole.mark(self.row - whole.length, extra - 1)
            whole = whole.part(extra, whole.length)
        self.rows = whole._replace(rows=whole.rows.copy())

    def position(self) -> Position:
        return Position(self.row, self.start, None, self.rows)


def digest_of(whole: Chunk | None) -> str:
    """A digest of rows, good and bad, however they were cut into chunks."""
    found = hashlib.blake2b(digest_size=16)
    if whole is not None and whole.length:
        rows = whole.rows
        found.update(repr((whole.length, sorted(whole.bad))).encode())
        if issparse(rows):
            found.update(np.diff(rows.indptr).astype(np.int64).tobytes())
            found.update(rows.indices.astype(np.int64).tobytes())
            rows = rows.data
        if rows.dtype.kind == "f":
            rows = np.where(np.isnan(rows), np.nan, rows)  # NaN has many forms
        found.update(np.ascontiguousarray(rows).tobytes())
    return found.hexdigest()


def cut(chunks: Iterator[Chunk], size: int, deadline: Deadline | None = None) -> Iterator[Chunk]:
    """Chunks of exactly `size` rows, but for the last; and for those that end at a deadline."""
    waiting: list[Chunk] = []
    have = 0
    for chunk in chunks:
        at = 0
        while have + chunk.length - at >= size:
            waiting.append(chunk.part(at, at + size - have))
            at += size - have
            yield together(waiting)
            waiting, have = [], 0
        if at < chunk.length:
            waiting.append(chunk.part(at, chunk.length))
            have += chunk.length - at
        if deadline is not None and have and deadline():
            yield together(waiting)
            waiting, have = [], 0
        elif deadline is not None and not chunk.length:
            yield chunk
    if have:
        yield together(waiting)


def ahead(chunks: Iterator[Chunk], wait: bool = True) -> Iterator[Chunk | None]:
    """Read the next pieces in a thread while the last is worked on; gives None while nothing comes.

    Files are read, unpacked and parsed without the interpreter's lock; and whoever waits for a pipe can be interrupted.

    Parameters
    ----------
    wait : bool
        Whether to wait for the thread if the caller stops early; a pipe may never answer.
    """
    line: queue.Queue[Any] = queue.Queue(1)
    stopped = threading.Event()
    end = object()

    def work() -> None:
        try:
            for chunk in itertools.chain(chunks, [end]):
                line.put(chunk)
                if stopped.is_set():
                    break
        except BaseException as error:  # raised where the rows are used
            line.put(error)
        finally:
            chunks.close()  # type: ignore[attr-defined]

    thread = threading.Thread(target=work, name="rows ahead", daemon=True)
    thread.start()
    try:
        while True:
            try:
                item = line.get(timeout=_WAIT)
            except queue.Empty:
                yield None
                continue
            if item is end:
                break
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stopped.set()
        with contextlib.suppress(queue.Empty):  # the thread may wait for room
            line.get_nowait()
        if wait:
            thread.join()


def _with_holes(rows: Any, numbers: tuple[float, ...]) -> Any:
    """Rows with NaN in place of the numbers that stand for missing values."""
    values = rows.data if issparse(rows) else rows
    found = np.isin(values, np.array(numbers, dtype=values.dtype if values.dtype.kind == "f" else np.float64))
    if not found.any():
        return rows
    holed = np.where(found, np.nan, values)
    return type(rows)((holed, rows.indices, rows.indptr), shape=rows.shape) if issparse(rows) else holed


def _row_squares(rows: Any, without_nan: bool = False) -> Floats:
    """``‖x‖²`` of every row, in the precision of the rows."""
    if not issparse(rows):
        rows = np.where(np.isnan(rows), 0, rows) if without_nan else rows
        return np.asarray(np.einsum("ij,ij->i", rows, rows))
    values = np.where(np.isnan(rows.data), 0, rows.data) if without_nan else rows.data
    squares = values.astype(np.float64) ** 2
    return np.bincount(np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr)), squares, rows.shape[0]).astype(rows.dtype)


def _values(rows: Any, i: int) -> tuple[Array, Array]:
    """The values of row i, and their columns."""
    if not issparse(rows):
        return rows[i], np.arange(rows.shape[1])
    entries = slice(rows.indptr[i], rows.indptr[i + 1])
    return rows.data[entries], rows.indices[entries]


def megabytes(count: int) -> str:
    """A number of bytes, formatted for people."""
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.1f} MB"


def reason(error: BaseException) -> str:
    """The message of an error, in one line."""
    text = " ".join((str(error).splitlines() or [""])[0].split()).rstrip(".")
    return text[:300] if text else type(error).__name__


def unreadable(name: str, row: int, error: Exception) -> SourceError:
    """The error for data that a library fails to read on."""
    why = f"the data cannot be read ({reason(error)})"
    if isinstance(error, MemoryError):
        why = "there is not enough memory to read on; try fewer at a time (--set block=…)"
    return SourceError(f"{name}, after row {row}: {why}.")


def sparse_block_rows(rows: int, entries: int) -> int:
    """Rows per block, if `rows` rows have `entries` non-zero entries."""
    return int(np.clip(BLOCK_ENTRIES * rows // max(1, entries), FEWEST_ROWS, MOST_ROWS))


def working_dtype(dtype: Any, wanted: Any, name: str) -> np.dtype[Any]:
    """The working precision: float32 stays, other real numbers become float64, unless `wanted` says otherwise."""
    kind = np.dtype(dtype)
    if kind.kind not in "fiub":
        what = {"c": "complex numbers", "U": "text", "S": "text", "M": "dates", "m": "durations"}.get(kind.kind, "no numbers")
        raise SourceError(f"{name} holds {what} ({kind}), not real numbers: write it as float64, or choose another array.")
    if wanted is None:
        return np.dtype(np.float32) if kind.newbyteorder("=") == np.float32 else np.dtype(np.float64)
    working = dtype_called(wanted)
    if working not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise UnknownSourceError(f"The working precision must be float32 or float64; got {working}.")
    return working


def dtype_called(name: Any) -> np.dtype[Any]:
    """The dtype that the user has named."""
    try:
        found: np.dtype[Any] = np.dtype(name)
    except TypeError:
        raise UnknownSourceError(f"There is no type {name!r}.") from None
    return found


def joined(parts: list[Any]) -> Any:
    """Concatenate rows."""
    if len(parts) == 1:
        return parts[0]
    return vstack(parts, format="csr") if issparse(parts[0]) else np.concatenate(parts)


def sliced(array: Any, total: int, step: int = 0) -> Reader:
    """A reader for anything that gives rows by slicing, about four megabytes at a time."""

    def read(begin: Mark) -> Iterator[Chunk]:
        count = step or max(1, PIECE_BYTES // max(1, int(array.shape[1]) * np.dtype(array.dtype).itemsize))
        for at in range(begin.row, total, count):
            rows = array[at : min(at + count, total)]
            rows = np.asarray(rows.toarray() if hasattr(rows, "toarray") else rows)
            yield Chunk(len(rows), rows)

    return read
