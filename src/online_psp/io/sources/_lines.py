"""Cuts bytes that arrive in pieces of any size into batches of a given number of rows of text, with the numbers of their lines.

Lines stay bytes, in UTF-8, so that a batch can be parsed at once. Blank lines and comments are not rows. A quoted cell may contain line
ends.
"""

from __future__ import annotations

import codecs
import itertools
import re
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from online_psp.engine.types import Array
from online_psp.io.sources._bytes import Pieces
from online_psp.io.sources._source import SourceError, megabytes

_LONGEST_QUOTED = 1 << 20
_LONG = 1000  # bytes per line from which it is faster to search for each line end by itself
_LOOKED_AT = 1 << 16  # bytes from which the length of lines is estimated


class Batch(NamedTuple):
    """Rows as text."""

    text: bytes
    """Whole lines, each with its line end."""
    count: int  # type: ignore[assignment]  # number of rows; tuples have a method of that name
    numbers: Array | range
    """Line of the file in which each row begins, from 1."""


class Cut(NamedTuple):
    """How text is cut into rows."""

    limit: int
    """Largest number of bytes that a line may have."""
    lead: int = 0
    """Number of lines before the first row."""
    comment: str | None = None
    """What comments begin with."""
    delimiter: str | None = None


def transcoded(pieces: Pieces, encoding: str, name: str) -> Pieces:
    """Convert text to UTF-8 without byte order marks, and with \\n for every kind of line end."""
    plain = encoding.lower().replace("_", "-") in ("utf-8", "utf8", "ascii", "utf-8-sig")
    decoder = None if plain else codecs.getincrementaldecoder(encoding)()
    held = b""
    for piece in pieces:
        if piece is None:
            yield None
            continue
        if decoder is not None:
            try:
                data = decoder.decode(piece).encode("utf-8", "replace")
            except (UnicodeDecodeError, UnicodeError) as error:
                raise SourceError(f"{name} is not text in {encoding} ({error}); name its encoding (--set encoding=…).") from None
        else:
            data = piece
        data, held = held + data, b""
        if b"\xef" in data:  # byte order marks, also in the middle if files were joined; one byte is found ten times as fast as three
            data = data.replace(codecs.BOM_UTF8, b"")
        if data.endswith(b"\r"):  # the other half of the line end may come with the next piece
            data, held = data[:-1], b"\r"
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if data:
            yield data
    if held:
        yield b"\n"


def too_long(name: str, line: int, limit: int) -> SourceError:
    """The error for a line that would fill the memory."""
    return SourceError(
        f"{name}, line {line}: the line is longer than {megabytes(limit)}, all that one may be within max_memory; is this the right file?"
    )


class Lines:
    """Cuts pieces into batches.

    Parameters
    ----------
    ends : callable
        Asked at the end of the data whether a last line without a line end is a row.
    """

    def __init__(self, pieces: Pieces, cut: Cut, name: str, ends: Callable[[], bool]) -> None:
        self.pieces, self.name, self.ends = pieces, name, ends
        self.lead, self.limit = cut.lead, cut.limit
        self.comment = cut.comment.encode() if cut.comment else None
        delimiter = cut.delimiter
        self.line = 0
        self.quotes = True
        self.beside = [*(delimiter or "").encode()[-1:], *b'\n "']  # what may stand before a quotation mark that begins a cell
        self.waiting: deque[tuple[Batch, Array]] = deque()
        self.have = self.passed = 0
        self.open_end = False

    def batches(self, skip: int, size: int, due: Callable[[], bool] | None = None) -> Iterator[Batch | None]:
        """Batches of `size` rows after the first `skip`; with `due`, also None while nothing arrives."""
        wanted = skip or size
        for segment in self._segments():
            if segment is not None and segment[0].count:
                self.waiting.append(segment)
                self.have += segment[0].count
            while self.have >= wanted:
                batch = self._take(wanted)
                if skip:
                    skip = 0
                else:
                    yield batch
                wanted = size
            if skip:
                self._forget(skip)
                wanted = skip = skip - self._forgotten
                wanted = wanted or size
            if due is not None:
                if self.have and not skip and due():
                    yield self._take(self.have)
                elif segment is None:
                    yield None
        if self.have and not skip:
            yield self._take(self.have)

    def _forget(self, skip: int) -> None:
        """Drop rows that are skipped, so that they do not fill the memory."""
        self._forgotten = min(self.have, skip)
        if self._forgotten:
            self._take(self._forgotten)

    def _take(self, rows: int) -> Batch:
        taken: list[Batch] = []
        missing = rows
        while missing:
            segment, ends = self.waiting[0]
            first = self.passed
            stop = min(first + missing, segment.count)
            cut = slice(int(ends[first - 1]) + 1 if first else 0, int(ends[stop - 1]) + 1)
            taken.append(Batch(segment.text[cut], stop - first, segment.numbers[first:stop]))
            missing -= stop - first
            self.passed = stop
            if stop == segment.count:
                self.waiting.popleft()
                self.passed = 0
        self.have -= rows
        if len(taken) == 1:
            return taken[0]
        return Batch(b"".join(each.text for each in taken), rows, _joined([each.numbers for each in taken]))

    def _segments(self) -> Iterator[tuple[Batch, Array] | None]:
        """Whole lines of each piece, and where their rows end; the rest waits for the next piece."""
        rest = b""
        for piece in self.pieces:
            if piece is None:
                yield None
                continue
            data = rest + piece if rest else piece
            cut = self._whole(data)
            whole, rest = data[:cut], data[cut:]
            if len(rest) > self.limit:
                raise too_long(self.name, self.line + whole.count(10) + 1, self.limit)
            if whole:
                yield self._segment(whole)
        if b"\n" in rest:  # a quotation mark that nothing closes: every line is a row
            self.quotes = False
            cut = rest.rfind(b"\n") + 1
            yield self._segment(rest[:cut])
            rest = rest[cut:]
        if rest.strip():
            self.open_end = True
            if self.ends():
                yield self._segment(rest + b"\n")

    def _whole(self, data: bytes) -> int:
        """Where the last whole line ends."""
        cut = data.rfind(b"\n") + 1
        if not self.quotes or b'"' not in data or data.count(b'"', 0, cut) % 2 == 0:
            return cut
        last = self._row_ends(data)  # this may find that quotation marks mean nothing here
        whole = int(last[-1]) + 1 if len(last) else 0
        if len(data) - whole > _LONGEST_QUOTED:
            self.quotes = False  # a quotation mark that nothing closes: every line is a row
            return cut
        return whole

    def _segment(self, text: bytes) -> tuple[Batch, Array]:
        if self.line < self.lead:
            text = self._without_lead(text)
        newlines = _newlines(text)
        ends = self._row_ends(text, newlines)
        lines, count = len(newlines), len(ends)
        first, self.line = self.line + 1, self.line + lines
        numbers: Array | range = range(first, first + lines) if count == lines else _first_lines(text, ends, first)
        if not self._may_have_other_lines(text, newlines):
            return Batch(text, count, numbers), ends
        starts = np.concatenate([[0], ends + 1])
        kept, at = [], []
        for i in range(count):
            line = text[starts[i] : starts[i + 1]]
            bare = line.strip(b" \n")
            if bare and not (self.comment and bare.startswith(self.comment)):
                kept.append(line)
                at.append(numbers[i])
        text = b"".join(kept)
        return Batch(text, len(kept), np.array(at, dtype=np.int64)), self._row_ends(text)

    def _row_ends(self, text: bytes, newlines: Array | None = None) -> Array:
        """Where rows end: at line ends, except those inside quotation marks.

        A quotation mark in the middle of a cell, as in 5", is an ordinary character. If there is one, every line is taken to be a row.
        """
        ends = _newlines(text) if newlines is None else newlines
        if not self.quotes or b'"' not in text:
            return np.asarray(ends)
        values = np.frombuffer(text, np.uint8)
        quotes = np.flatnonzero(values == 34)
        opening = quotes[::2]
        before = values[opening[opening > 0] - 1]
        if not np.isin(before, self.beside).all():
            self.quotes = False
            return np.asarray(ends)
        return np.asarray(ends[np.searchsorted(quotes, ends) % 2 == 0])

    def _without_lead(self, text: bytes) -> bytes:
        ends = _newlines(text)
        passed = min(self.lead - self.line, len(ends))
        self.line += passed
        return text[int(ends[passed - 1]) + 1 :] if passed else text

    def _may_have_other_lines(self, text: bytes, newlines: Array) -> bool:
        """Whether some line may be blank or a comment; a quick check, as mostly none is."""
        if len(newlines) == 0:
            return False
        before = np.frombuffer(text, np.uint8)[newlines - 1]  # for an empty first line, this is the last byte, which is a line end too
        if ((before == 10) | (before == 32)).any():
            return True
        return self.comment is not None and self.comment in text and bool(re.search(rb"(?m)^ *" + re.escape(self.comment), text))


def _newlines(text: bytes) -> Array:
    """Positions of line ends. If lines are long, the search of the C library is used, which is many times faster."""
    if text.count(b"\n", 0, _LOOKED_AT) * _LONG > min(len(text), _LOOKED_AT):
        return np.flatnonzero(np.frombuffer(text, np.uint8) == 10)
    found: list[int] = []
    at = text.find(b"\n")
    while at >= 0:
        found.append(at)
        at = text.find(b"\n", at + 1)
    return np.array(found, dtype=np.int64)


def _first_lines(text: bytes, ends: Array, first: int) -> Array:
    """The line in which each row begins."""
    lines = _newlines(text)
    return first + np.concatenate([[0], np.searchsorted(lines, ends[:-1]) + 1])


def _joined(parts: list[Array | range]) -> Array | range:
    for one, two in itertools.pairwise(parts):
        if not (isinstance(one, range) and isinstance(two, range) and one.stop == two.start):
            return np.concatenate([np.asarray(part) for part in parts])
    return range(parts[0][0], parts[-1][-1] + 1)
