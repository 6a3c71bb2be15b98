"""What a source is, and what all of them share: cutting, converting and screening rows."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from online_psp.types import Array


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
    rows: Array
    """(n, D): the good ones, float32 or float64."""
    bad: list[BadRow]


class Chunk(NamedTuple):
    """What an opener reads: `rows` as they are in the source, and the ones among `length` that could not even be parsed."""

    length: int
    rows: Array
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
        return int(np.clip((1 << 22) // (max(1, self.features) * self.dtype.itemsize), 32, 8192))

    def _screened(self, start: int, chunk: Chunk) -> Block:
        """The rows in the working precision, without those that have NaN, infinity or squares that overflow."""
        with np.errstate(over="ignore", invalid="ignore"):
            rows = np.ascontiguousarray(chunk.rows, dtype=self.dtype)
            flat = rows.ravel()
            good = None if np.isfinite(np.dot(flat, flat)) else np.isfinite(np.einsum("ij,ij->i", rows, rows))
        if not chunk.bad and good is None:
            return Block(start, chunk.length, rows, [])
        problems = dict(chunk.bad)
        if good is not None:
            places = [place for place in range(chunk.length) if place not in chunk.bad]
            for i in np.flatnonzero(~good):
                problems[places[i]] = self._problem(rows[i])
            rows = rows[good]
        return Block(start, chunk.length, rows, [BadRow(start + place + 1, problems[place]) for place in sorted(problems)])

    def _problem(self, row: Array) -> str:
        bad = ~np.isfinite(row)
        if not bad.any():
            return f"has values too large for {self.dtype} (their squares overflow)"
        at = int(np.argmax(bad))
        column = f"column {at + 1}" if self.feature_names is None else f"column {self.feature_names[at]!r}"
        return f"has {'an empty or NaN value' if np.isnan(row[at]) else 'an infinite value'} in {column}"

    def where(self, row: int) -> str:
        """The source and the row, for messages; `row` counts from 1."""
        place = self.places(row - 1) if self.places else ""
        return f"{self.name}, row {row}{f' ({place})' if place else ''}"


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


def recut(arrays: Iterable[Array], size: int, skip: int = 0) -> Iterator[Chunk]:
    """Arrays of any number of rows as chunks of `size`, without the first `skip` rows."""
    waiting: list[Array] = []
    have = 0
    for array in arrays:
        if skip >= len(array):
            skip -= len(array)
            continue
        rest, skip = array[skip:], 0
        while have + len(rest) >= size:
            waiting.append(rest[: size - have])
            rest = rest[size - have :]
            yield Chunk(size, np.concatenate(waiting) if len(waiting) > 1 else waiting[0], {})
            waiting, have = [], 0
        if len(rest):
            waiting.append(np.array(rest))  # a copy, so that a large piece is not kept for a small rest of it
            have += len(rest)
    if have:
        yield Chunk(have, np.concatenate(waiting), {})


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
