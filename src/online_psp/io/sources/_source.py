"""Defines what a source is, and what all sources share: cutting, converting and screening rows, dense or sparse."""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse, vstack

from online_psp.engine.checks import sum_of_squares
from online_psp.engine.types import Array, Floats
from online_psp.io.sources._identity import Print, identify

BLOCK_ENTRIES = 1 << 18  # entries of sparse rows in a block: about four megabytes, with their column numbers
MOST_ROWS, FEWEST_ROWS = 8192, 32


class SourceError(ValueError):
    """Data cannot be read, or rows cannot be used; the message names the source, and the row if there is one."""


class MissingExtraError(SourceError):
    """The library for a format is not installed."""


class UnknownSourceError(SourceError):
    """Something is not recognised as a source, or options do not fit it."""


class EmptySourceError(SourceError):
    """The file is empty."""


class BadRow(NamedTuple):
    """A row that cannot be used."""

    row: int
    """Its number in the source, from 1."""
    problem: str


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


Deadline = Callable[[], bool]
"""Returns whether the caller wants, now, the rows that have arrived."""


class Chunk(NamedTuple):
    """What a reader returns: `rows` as they are in the source, and which of the `length` rows could not be parsed."""

    length: int
    rows: Any
    bad: dict[int, str]
    """Position in the chunk → what is wrong with the row; these rows are not in `rows`."""
    ids: Array | None = None
    times: Array | None = None


def default_max_memory() -> int:
    """A quarter of the machine's memory."""
    try:
        return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")) // 4
    except (AttributeError, ValueError, OSError):  # not POSIX
        return 1 << 31


Reader = Callable[[int, int, Deadline | None], Iterator[Chunk]]
"""``read(start, size, deadline)``: chunks of exactly `size` rows from row `start` on; the last may be shorter, and so may those of a slow
source that end because ``deadline()`` says so. With a deadline, a slow source gives empty chunks while nothing arrives."""


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
    """Number of rows, if it is known."""
    once: bool = False
    """Whether it can be read only once."""
    feature_names: list[str] | None = None
    image_shape: tuple[int, ...] | None = None
    places: Callable[[int], str] | None = field(default=None, repr=False)
    """Describes where row i (from 0) is: a line, a file."""
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
    prints: tuple[Print, ...] = field(default=(), repr=False)
    """Prints of its files or arrays; see `identity`."""
    schema: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """How it was read: columns, header, delimiter, …"""
    max_memory: int = field(default_factory=default_max_memory, repr=False)
    """Largest number of bytes that one block may take."""
    column_numbers: list[int] | None = field(default=None, repr=False)
    """Column of the file, from 0, for each feature; None if they are the same."""
    marks: dict[str, Any] = field(default_factory=dict, repr=False)
    """Facts for `identity` that become known only as the source is read."""
    count: Callable[[], int] | None = field(default=None, repr=False)
    """Counts the rows, faster than reading them, if `total` is not known."""
    foreign: bool = False
    """Whether errors of the reader are the caller's own (an iterable), and are passed on unchanged."""

    def blocks(self, size: int | None = None, start: int = 0, *, deadline: Deadline | None = None) -> Iterator[Block]:
        """The rows from number `start` on, `size` at a time.

        Blocks are cut at multiples of `size` from `start`, and cover good and bad rows alike, so that a reader that stops after a block
        and later starts there again gets the same blocks.

        Parameters
        ----------
        deadline : callable, optional
            For pipes and other slow sources: a block ends early if this returns True and a row is waiting. While no row arrives, a block
            of length 0 is yielded about every quarter of a second, so that the caller can check its timers and signals.
        """
        size = size or self.block_rows()
        self._check_memory(size)
        at = start
        for chunk in self._chunks(start, size, deadline):
            yield self._screened(at, chunk)
            at += chunk.length

    def _chunks(self, start: int, size: int, deadline: Deadline | None) -> Iterator[Chunk]:
        """The chunks of the reader, with every library error turned into one sentence."""
        at = start
        chunks = self.read(start, size, deadline)
        while True:
            try:
                chunk = next(chunks, None)
            except (SourceError, KeyboardInterrupt):
                raise
            except MemoryError:
                raise SourceError(
                    f"{self.name}, after row {at}: there is not enough memory to read on; try fewer at a time (--set block=…)."
                ) from None
            except Exception as error:  # a library may raise anything for a damaged file
                if self.foreign:
                    raise
                raise SourceError(f"{self.name}, after row {at}: the data cannot be read ({reason(error)}).") from None
            if chunk is None:
                return
            if chunk.rows.ndim != 2 or chunk.rows.shape[1] != self.features:
                raise SourceError(f"{self.name}, row {at + 1}: rows must have {self.features} values; these have {chunk.rows.shape[1:]}.")
            yield chunk._replace(rows=with_holes(chunk.rows, self.na_numbers)) if self.na_numbers else chunk
            at += chunk.length

    def gather(self) -> Any:
        """All rows at once, (N, D), in the type of the source; raises a SourceError if there is a bad row.

        For data that fits into memory: it may take at most twice as much as a block.
        """
        if self.total is not None:
            needed = self.total * self.features * self.dtype.itemsize
            if self.block is None and needed > 2 * self.max_memory:
                raise SourceError(
                    f"{self.name}: all of its {self.total} rows at once would take {megabytes(needed)}, "
                    f"and {megabytes(2 * self.max_memory)} are allowed."
                )
        parts, at, taken = [], 0, 0
        for chunk in self._chunks(0, self.block_rows(), None):
            block = self._screened(at, chunk)
            if block.bad:
                raise SourceError(f"{self.where(block.bad[0].row)}: it {block.bad[0].problem}.")
            at += chunk.length
            taken += 0 if issparse(chunk.rows) else chunk.rows.nbytes
            if taken > 2 * self.max_memory:
                raise SourceError(f"{self.name}: all of its rows at once would take more than {megabytes(2 * self.max_memory)}.")
            parts.append(chunk.rows)
        if not parts:
            raise SourceError(f"{self.name} has no rows.")
        rows = joined(parts)
        native = rows.dtype.newbyteorder("=")
        return rows.astype(native, copy=False) if issparse(rows) else np.ascontiguousarray(rows, dtype=native)

    def identity(self, since: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The identity of this source, as JSON; see `different`.

        Parameters
        ----------
        since : identity, optional
            The identity stored when a run was stopped; needed to compare with it, because the parts that it covers are digested again.
        """
        schema = {"features": self.features, "dtype": self.dtype.name, **_names_for_json(self.feature_names), **self.schema}
        schema.update(total=self.total, missing=self.missing, **self.marks)
        return identify(self.kind, self.prints, schema, not self.once, since)

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
        return int(np.clip(min(1 << 22, self.max_memory // 4) // row, fewest, MOST_ROWS))

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
        bad = [BadRow(start + place + 1, problems[place]) for place in sorted(problems)]
        return Block(start, chunk.length, rows, bad, chunk.ids, chunk.times)

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
        return SourceError(f"{self.where(bad.row)}: it {bad.problem}; --on-bad-row skip leaves such rows out{fill}.")

    def where(self, row: int) -> str:
        """The source and the row, for messages; `row` counts from 1."""
        place = self.places(row - 1) if self.places else ""
        return f"{self.name}, row {row}{f' ({place})' if place else ''}"


def with_holes(rows: Any, numbers: tuple[float, ...]) -> Any:
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


def _names_for_json(names: list[str] | None) -> dict[str, Any]:
    """All names if they are few; a digest of them if they are many, so that a header stays small."""
    if names is None or sum(map(len, names)) <= 8192:
        return {"feature_names": names}
    return {"feature_names": None, "names_digest": hashlib.sha256("\0".join(names).encode("utf-8", "surrogatepass")).hexdigest()}


def sparse_block_rows(rows: int, entries: int) -> int:
    """Rows per block, if `rows` rows have `entries` non-zero entries."""
    return int(np.clip(BLOCK_ENTRIES * rows // max(1, entries), FEWEST_ROWS, MOST_ROWS))


def working_dtype(dtype: Any, wanted: Any, name: str) -> np.dtype[Any]:
    """The working precision: float32 stays, other real numbers become float64, unless `wanted` says otherwise."""
    if np.dtype(dtype).kind not in "fiub":
        kind = np.dtype(dtype)
        what = {"c": "complex numbers", "U": "text", "S": "text", "M": "dates", "m": "durations"}.get(kind.kind, "no numbers")
        raise SourceError(f"{name} holds {what} ({kind}), not real numbers: write it as float64, or choose another array.")
    if wanted is None:
        return np.dtype(np.float32) if np.dtype(dtype).newbyteorder("=") == np.float32 else np.dtype(np.float64)
    if np.dtype(wanted) not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise UnknownSourceError(f"The working precision must be float32 or float64; got {np.dtype(wanted)}.")
    working: np.dtype[Any] = np.dtype(wanted)
    return working


def check_shape(shape: tuple[int, ...], name: str) -> tuple[int, int]:
    """Numbers of rows and of features of an array; raises a SourceError if it is not a table."""
    if len(shape) != 2 or shape[1] < 1:
        raise SourceError(f"{name} must be a table of rows and features; its shape is {tuple(shape)}.")
    return int(shape[0]), int(shape[1])


def recut(arrays: Iterable[Any], size: int, skip: int = 0, deadline: Deadline | None = None) -> Iterator[Chunk]:
    """Cut arrays of any number of rows, dense or CSR, into chunks of `size` rows, after the first `skip`; shorter ones at a deadline."""
    waiting: list[Any] = []
    have = 0
    for array in arrays:
        if skip >= array.shape[0]:
            skip -= array.shape[0]
            continue
        rest, skip = array[skip:], 0
        while have + rest.shape[0] >= size:
            waiting.append(rest[: size - have])
            rest = rest[size - have :]
            yield Chunk(size, joined(waiting), {})
            waiting, have = [], 0
        if rest.shape[0]:
            waiting.append(rest.copy())  # so that a small rest does not keep a large piece in memory
            have += rest.shape[0]
        if have and deadline is not None and deadline():
            yield Chunk(have, joined(waiting), {})
            waiting, have = [], 0
    if have:
        yield Chunk(have, joined(waiting), {})


def joined(parts: list[Any]) -> Any:
    """Concatenate rows."""
    if len(parts) == 1:
        return parts[0]
    return vstack(parts, format="csr") if issparse(parts[0]) else np.concatenate(parts)


def sliced(array: Any, total: int) -> Reader:
    """A reader for anything that gives rows by slicing."""

    def read(start: int, size: int, deadline: Deadline | None = None) -> Iterator[Chunk]:
        for at in range(start, total, size):
            rows = array[at : min(at + size, total)]
            rows = np.asarray(rows.toarray() if hasattr(rows, "toarray") else rows)
            yield Chunk(len(rows), rows, {})

    return read


def peek(items: Iterator[Any]) -> tuple[Any, Iterator[Any]]:
    """The first item, or None, and an iterator over all items."""
    first = next(items, None)
    return first, items if first is None else itertools.chain([first], items)
