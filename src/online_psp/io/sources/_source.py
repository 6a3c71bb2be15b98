"""What a source is, and what all of them share: cutting, converting and screening rows, dense or sparse."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse, vstack

from online_psp.engine.types import Array, Floats

BLOCK_ENTRIES = 1 << 18  # of sparse rows: with their places, about four megabytes
MOST_ROWS, FEWEST_ROWS = 8192, 32


class SourceError(ValueError):
    """Data that cannot be read, or rows that cannot be used; the message names the source, and the row where there is one."""


class MissingExtraError(SourceError):
    """A format whose library is not installed."""


class UnknownSourceError(SourceError):
    """Something that cannot be told to be a source at all, or options that do not fit it."""


class BadRow(NamedTuple):
    """A row that cannot be used."""

    row: int
    """Its number in the source, from 1."""
    problem: str


class Block(NamedTuple):
    """Consecutive rows of a source."""

    start: int
    """How many rows of the source come before it."""
    length: int
    """How many rows of the source it covers, bad ones included."""
    rows: Any
    """(n, D): the good ones, float32 or float64; an array, or a CSR array where the source is sparse."""
    bad: list[BadRow]


class Chunk(NamedTuple):
    """What an opener reads: `rows` as they are in the source, and the ones among `length` that could not even be parsed."""

    length: int
    rows: Any
    bad: dict[int, str]
    """Place in the chunk → what is wrong with it; these rows are not in `rows`."""


@dataclass(frozen=True)
class Source:
    """Rows from somewhere, a block at a time."""

    name: str
    features: int
    dtype: np.dtype[Any]
    """float32 or float64: what the blocks have."""
    read: Callable[[int, int], Iterator[Chunk]] = field(repr=False)
    """``read(start, size)``: chunks of exactly `size` rows from row `start` on; only the last may be shorter."""
    total: int | None = None
    """Rows, where that is known."""
    once: bool = False
    """It cannot be read again from the start."""
    feature_names: list[str] | None = None
    image_shape: tuple[int, ...] | None = None
    places: Callable[[int], str] | None = field(default=None, repr=False)
    """More about where row i (from 0) is: a line, a file."""
    block: int | None = None
    """How many rows make a block, where the number of features does not tell: for sparse rows."""

    def blocks(self, size: int | None = None, start: int = 0) -> Iterator[Block]:
        """The rows from number `start` on, `size` at a time.

        Blocks are cut at multiples of `size` counted from `start` and cover good and bad rows alike, so that whoever stops after one of
        them and starts there again gets the same blocks.
        """
        size = size or self.block_rows()
        at = start
        for chunk in self.read(start, size):
            if chunk.rows.ndim != 2 or chunk.rows.shape[1] != self.features:
                raise SourceError(f"{self.name}, row {at + 1}: rows must have {self.features} values; these have {chunk.rows.shape[1:]}.")
            yield self._screened(at, chunk)
            at += chunk.length

    def block_rows(self) -> int:
        """As many rows as make a few megabytes."""
        if self.block is not None:
            return self.block
        return int(np.clip((1 << 22) // (max(1, self.features) * self.dtype.itemsize), FEWEST_ROWS, MOST_ROWS))

    def _screened(self, start: int, chunk: Chunk) -> Block:
        """The rows in the working precision, without those that have NaN, infinity or squares that overflow."""
        rows = chunk.rows
        with np.errstate(over="ignore", invalid="ignore"):
            rows = rows.astype(self.dtype, copy=False) if issparse(rows) else np.ascontiguousarray(rows, dtype=self.dtype)
            flat = rows.data if issparse(rows) else rows.ravel()
            good = None if np.isfinite(np.dot(flat, flat)) else np.isfinite(_row_squares(rows))
        if not chunk.bad and good is None:
            return Block(start, chunk.length, rows, [])
        problems = dict(chunk.bad)
        if good is not None:
            places = [place for place in range(chunk.length) if place not in chunk.bad]
            for i in np.flatnonzero(~good):
                problems[places[i]] = self._problem(*_values(rows, int(i)))
            rows = rows[good]
        return Block(start, chunk.length, rows, [BadRow(start + place + 1, problems[place]) for place in sorted(problems)])

    def _problem(self, row: Array, columns: Array) -> str:
        bad = ~np.isfinite(row)
        if not bad.any():
            return f"has values too large for {self.dtype} (their squares overflow)"
        first = int(np.argmax(bad))
        at = int(columns[first])
        column = f"column {at + 1}" if self.feature_names is None else f"column {self.feature_names[at]!r}"
        return f"has {'an empty or NaN value' if np.isnan(row[first]) else 'an infinite value'} in {column}"

    def where(self, row: int) -> str:
        """The source and the row, for messages; `row` counts from 1."""
        place = self.places(row - 1) if self.places else ""
        return f"{self.name}, row {row}{f' ({place})' if place else ''}"


def _row_squares(rows: Any) -> Floats:
    """``‖x‖²`` of every row, as its own precision has it."""
    if not issparse(rows):
        return np.asarray(np.einsum("ij,ij->i", rows, rows))
    squares = rows.data.astype(np.float64) ** 2
    return np.bincount(np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr)), squares, rows.shape[0]).astype(rows.dtype)


def _values(rows: Any, i: int) -> tuple[Array, Array]:
    """What row i has, and in which columns."""
    if not issparse(rows):
        return rows[i], np.arange(rows.shape[1])
    entries = slice(rows.indptr[i], rows.indptr[i + 1])
    return rows.data[entries], rows.indices[entries]


def sparse_block_rows(rows: int, entries: int) -> int:
    """How many rows make a block where `rows` of them have so many non-zero entries."""
    return int(np.clip(BLOCK_ENTRIES * rows // max(1, entries), FEWEST_ROWS, MOST_ROWS))


def working_dtype(dtype: Any, wanted: Any, name: str) -> np.dtype[Any]:
    """float32 stays, all other real numbers become float64, unless something else is wanted."""
    if np.dtype(dtype).kind not in "fiub":
        raise SourceError(f"{name} holds {np.dtype(dtype)}, not real numbers.")
    if wanted is None:
        return np.dtype(np.float32) if np.dtype(dtype).newbyteorder("=") == np.float32 else np.dtype(np.float64)
    if np.dtype(wanted) not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise UnknownSourceError(f"The working precision must be float32 or float64; got {np.dtype(wanted)}.")
    working: np.dtype[Any] = np.dtype(wanted)
    return working


def check_shape(shape: tuple[int, ...], name: str) -> tuple[int, int]:
    """Rows and features of an array."""
    if len(shape) != 2 or shape[1] < 1:
        raise SourceError(f"{name} must be a table of rows and features; its shape is {tuple(shape)}.")
    return int(shape[0]), int(shape[1])


def recut(arrays: Iterable[Any], size: int, skip: int = 0) -> Iterator[Chunk]:
    """Arrays of any number of rows, dense or CSR, as chunks of `size`, without the first `skip` rows."""
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
            waiting.append(rest.copy())  # so that a large piece is not kept for a small rest of it
            have += rest.shape[0]
    if have:
        yield Chunk(have, joined(waiting), {})


def joined(parts: list[Any]) -> Any:
    """One below the other."""
    if len(parts) == 1:
        return parts[0]
    return vstack(parts, format="csr") if issparse(parts[0]) else np.concatenate(parts)


def sliced(array: Any, total: int) -> Callable[[int, int], Iterator[Chunk]]:
    """A reader for whatever gives rows by slicing."""

    def read(start: int, size: int) -> Iterator[Chunk]:
        for at in range(start, total, size):
            rows = array[at : min(at + size, total)]
            rows = np.asarray(rows.toarray() if hasattr(rows, "toarray") else rows)
            yield Chunk(len(rows), rows, {})

    return read


def peek(items: Iterator[Any]) -> tuple[Any, Iterator[Any]]:
    """The first item, and all of them; None where there is none."""
    first = next(items, None)
    return first, items if first is None else itertools.chain([first], items)
