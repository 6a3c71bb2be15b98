"""Delimited text: plain, compressed, or from a pipe."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from online_psp.engine.types import Array
from online_psp.io.sources._bytes import PIECE, Pieces, compression, decompressed, pieces_of
from online_psp.io.sources._cells import Table, parse
from online_psp.io.sources._chunks import ENOUGH_FOR_THREADS
from online_psp.io.sources._columns import Choice, choose, text_columns, unique
from online_psp.io.sources._contents import refuse_stand_in
from online_psp.io.sources._header import MOST_LEAD
from online_psp.io.sources._identity import HeadPrint, Print
from online_psp.io.sources._lines import Batch, Cut, Lines, too_long, transcoded
from online_psp.io.sources._numerals import may_be_number
from online_psp.io.sources._options import Options
from online_psp.io.sources._places import Place
from online_psp.io.sources._sniff import Dialect, encoding_of, logical_lines, sniff, split
from online_psp.io.sources._source import Chunk, Deadline, Source, SourceError, working_dtype
from online_psp.io.sources._suspects import MOST_SAID, is_total, placeholder, warning

SAMPLE_BYTES = 1 << 17
SAMPLE_LINES = 200
_WORKERS = 2
_PREFIX = 20_000  # characters of a line to look at to find out whether it is a row


@dataclass
class Feed:
    """Where the bytes of a text come from."""

    name: str
    place: Place | None = None
    stream: BinaryIO | None = None
    seen: list[bytes] = field(default_factory=list)
    rest: Pieces | None = None
    print: Print | None = None
    kind: str | None = None
    """How it is compressed."""

    def clear(self) -> Pieces:
        """Decompressed bytes, from the beginning; bytes of a stream that were peeked at come again."""
        if self.place is not None:
            return self._clear_file(self.place)
        if self.rest is None:
            self.rest = self._clear_stream()
        seen, self.seen = self.seen, []
        return itertools.chain(seen, self.rest)

    def _clear_file(self, place: Place) -> Pieces:
        with place.open() as file:
            head = file.read(6)
            self.kind = compression(head)
            yield from decompressed(itertools.chain([head] if head else [], pieces_of(file)), self.kind, self.name)

    def _clear_stream(self) -> Pieces:
        assert self.stream is not None
        known = self.print = HeadPrint(self.name)

        def watched(file: BinaryIO) -> Pieces:
            for piece in pieces_of(file, patient=False):
                if piece:
                    known.saw(piece)
                yield piece

        raw, head = watched(self.stream), b""
        for piece in raw:
            head += piece or b""
            if len(head) >= 6:
                break
        self.kind = compression(head)
        return decompressed(itertools.chain([head] if head else [], raw), self.kind, self.name)


def longest_line(options: Options) -> int:
    """Largest number of bytes that a line may have; split into cells, it takes many times as much memory."""
    return max(PIECE, options.max_memory // 64)


def open_text(feed: Feed, options: Options, usual: str) -> Source:
    """Open text as rows of numbers.

    Parameters
    ----------
    usual : str
        The delimiter that the file's name suggests.
    """
    head, whole = _head(feed, longest_line(options), options.text.skip_rows or 0)
    refuse_stand_in(head, feed.name)
    encoding, note = encoding_of(head, options.text.encoding, feed.name, whole)
    dialect = replace(
        sniff(_sample(head, encoding, feed, whole, options.text.skip_rows or 0), options.text, feed.name, usual), encoding=encoding
    )
    notes = dialect.notes + ([note] if note else [])
    if feed.kind:
        notes.append(f"compressed by {feed.kind}")
    names = _names(dialect, notes)
    choice = _choice(dialect, options, names, feed.name)
    table = Table(dialect, choice, names, feed.name)
    chosen = [names[at] for at in choice.features] if names else None
    notes.insert(0, _header_note(dialect, choice, chosen))
    warnings = [*dialect.warnings, *_doubts(table)]
    reader = _Reader(feed, table, options)
    source = Source(
        feed.name,
        len(choice.features),
        working_dtype(np.float64, options.dtype, feed.name),
        reader.read,
        once=feed.place is None,
        feature_names=chosen,
        places=reader.line_of,
        count=None if feed.place is None else reader.count,
        notes=notes,
        warnings=warnings,
        kind="text",
        prints=(feed.print,) if feed.print is not None else (feed.place.print(),) if feed.place is not None else (),
        schema=_schema(dialect, options),
        column_numbers=choice.features,
        marks=reader.marks,
        **options.common(),
    )
    reader.warnings = source.warnings
    return source


def _head(feed: Feed, limit: int, skip: int) -> tuple[bytes, bool]:
    """The first bytes, and whether they are all. Of a pipe, only as many lines as needed are read: more may take long to arrive."""
    head = bytearray()
    for piece in feed.clear():
        head += piece or b""
        if feed.place is None:
            feed.seen.extend([piece] if piece else [])
            enough = bool(piece) and _enough_lines(_lines_of_content(head, skip)) is not None
        else:
            enough = len(head) >= SAMPLE_BYTES and len(_lines_of_content(head, skip)) >= 4
        if enough or len(head) > 4 * max(limit, SAMPLE_BYTES):
            return bytes(head), False
        if len(head) > limit and b"\n" not in head and b"\r" not in head:
            raise too_long(feed.name, 1, limit)
    return bytes(head), True


def _lines_of_content(head: bytearray, skip: int) -> list[str]:
    """Whole lines that are neither blank nor comments, after the first `skip`."""
    text = head.replace(b"\0", b"").replace(b"\r\n", b"\n").replace(b"\r", b"\n").decode("latin-1")
    rest = text.split("\n", skip)[-1] if text.count("\n") >= skip else ""
    return [line for line in logical_lines(rest)[:-1] if _has_content(line)]


def _enough_lines(lines: list[str]) -> int | None:
    """How many first lines of a pipe are needed to find its format: two, with as many rows as lines of words; None if there are too few."""
    rows = 0
    for count, line in enumerate(lines, 1):
        rows += _has_numbers(line)
        if count >= MOST_LEAD or (count >= 2 and 2 * rows >= count):
            return count
    return None


def _has_numbers(line: str) -> bool:
    """Whether a line is a row, as far as one can tell without knowing its delimiter."""
    for delimiter in ",;\t|":
        if any(map(may_be_number, (cell.strip(' "') for cell in line[:_PREFIX].split(delimiter)))):
            return True
    words = line[:_PREFIX].split()
    return 2 * sum(map(may_be_number, words)) >= len(words)


def _has_content(line: str) -> bool:
    return bool(line.strip("\0 \t")) and not line.lstrip("\0 \t").startswith(("#", "%"))


def _sample(head: bytes, encoding: str, feed: Feed, whole: bool, skip: int) -> list[str]:
    text = b"".join(piece or b"" for piece in transcoded(iter([head]), encoding, feed.name))
    physical = text.decode("utf-8", "replace").split("\n")
    lines = physical[:skip] + (logical_lines("\n".join(physical[skip:])) if physical[skip:] else [])
    if not whole and len(lines) > 1:
        lines.pop()  # it may be cut off
    if feed.place is None:
        content = [at for at, line in enumerate(lines) if at >= skip and _has_content(line)]
        count = _enough_lines([lines[at] for at in content])
        return lines if count is None else lines[: content[count - 1] + 1]
    sizes = list(itertools.accumulate(len(line) for line in lines))
    within = sum(size <= SAMPLE_BYTES for size in sizes)
    return lines[: min(SAMPLE_LINES, max(4, within))]


def _names(dialect: Dialect, notes: list[str]) -> list[str] | None:
    if dialect.names is None:
        return None
    names, changed = unique([*dialect.names, *[""] * (dialect.width - len(dialect.names))][: dialect.width])
    changed = [name for name in changed if names.index(name) not in dialect.left_out]
    if changed:
        notes.append(f"names that come twice were numbered: {', '.join(changed[:5])}")
    return names


def _choice(dialect: Dialect, options: Options, names: list[str] | None, name: str) -> Choice:
    usable = [at for at in range(dialect.width) if at not in dialect.left_out]
    choice = choose(options.wanted, names, dialect.width, name, usable)
    wrong = [at for at in choice.features if at in dialect.text]
    odd = [at for at in wrong if at in dialect.odd or at in dialect.units]
    if odd and odd == wrong:
        named = ", ".join(f"{at} ({names[at]!r})" if names else str(at) for at in wrong[:5]) + (", …" if len(wrong) > 5 else "")
        s, example = "s" if len(wrong) > 1 else "", dialect.text[wrong[0]][:40]
        what, do = f"are written in a way that is not read ({example!r})", dialect.odd.get(wrong[0])
        if do is None:
            what, do = f"have a unit beside them ({example})", "take it away"
        raise SourceError(f"{name}: the numbers in column{s} {named} {what}: {do}, or leave the column{s} out (--exclude).")
    if wrong and dialect.width == 1:
        raise SourceError(
            f"{name} has no numbers in its first rows ({dialect.text[wrong[0]][:40]!r}, …), read as one column; name its delimiter if "
            "it has another (--delimiter)."
        )
    if wrong:
        raise SourceError(text_columns({at: dialect.text[at] for at in wrong}, choice.features, names, name))
    return choice


def _doubts(table: Table) -> list[str]:
    """Warnings about columns that look like row numbers, times or labels, not features, and about empty ones."""
    dialect = table.dialect
    found = [at for at in table.choice.features if at in dialect.suspects]
    empty = [at for at in table.choice.features if at in dialect.empty] if dialect.looked_at > 1 else []
    return [
        *(warning(table.column(at), at, dialect.suspects[at]) for at in found[:MOST_SAID]),
        *(
            f"{table.column(at)} is empty in all of the first {dialect.looked_at} rows (--exclude {at} to leave it out)"
            for at in empty[:MOST_SAID]
        ),
    ]


def _header_note(dialect: Dialect, choice: Choice, names: list[str] | None) -> str:
    count = f"{len(choice.features)} column{'s' if len(choice.features) != 1 else ''}"
    if names is None:
        return f"header: no, {count}"
    shown = ", ".join(names[:6]) + (", …" if len(names) > 6 else "")
    return f"header: {'yes' if dialect.header else 'in a comment'}, {count}: {shown}"


def _schema(dialect: Dialect, options: Options) -> dict[str, Any]:
    return {
        **options.schema(),
        "header": dialect.header,
        "delimiter": dialect.delimiter,
        "decimal": dialect.signs.decimal,
        "thousands": dialect.signs.thousands,
        "comment": dialect.comment,
        "lines_before_the_rows": dialect.lead,
        "encoding": dialect.encoding,
        "keep_index": bool(options.text.keep_index),
    }


class _Reader:
    """Reads rows, and remembers the line numbers of the latest."""

    def __init__(self, feed: Feed, table: Table, options: Options) -> None:
        self.feed, self.table, self.options = feed, table, options
        self.marks: dict[str, Any] = {}
        self.warnings: list[str] = []
        self.recent: deque[tuple[int, Array | range]] = deque(maxlen=3)
        self.stream: Lines | None = None
        self.told = bool(options.text.na_values)

    def line_of(self, row: int) -> str:
        """The line of a row, for messages; `row` counts from 0."""
        for first, numbers in self.recent:
            if 0 <= row - first < len(numbers):
                return f"line {numbers[row - first]}"
        return ""

    def count(self) -> int:
        """Count the rows, without parsing them."""
        return sum(batch.count for batch in self._lines().batches(0, 1 << 16) if batch is not None)

    def read(self, start: int, size: int, deadline: Deadline | None = None) -> Iterator[Chunk]:
        """Chunks of rows; see `Source.read`."""
        lines = self._lines()
        at, last = start, b""
        for batch, chunk in self._parsed(lines, start, size, deadline):
            if batch is not None:
                self.recent.append((at, batch.numbers))
                at, last = at + batch.count, batch.text
            if lines.open_end and self.feed.kind is None and self.feed.place is not None and self.feed.place.path is not None:
                self.marks["open_end"] = self.options.final is not False
            if not self.told and (found := placeholder(chunk.rows)) is not None:
                self.told = True
                at_column, value = self.table.choice.features[found[0]], f"{found[1]:g}"
                self.warnings.append(
                    f"{self.feed.name}: {value} in {self.table.column(at_column)} is far from its other values, and was taken as a number: "
                    f"if it stands for a missing value, say so (--na-values {value})"
                )
            yield chunk
        self._look_for_totals(last)
        if lines.open_end:
            held = "was taken as whole: if it was cut off, its last value is wrong (--set final=no holds it back)"
            if not self._last_line_counts():
                held = "was held back: it may still be being written"
            self.warnings.append(f"the last line of {self.feed.name} has no line end and {held}")

    def _look_for_totals(self, text: bytes) -> None:
        """Warn about a last row whose label, in a column that is not learned, says that it is a line of sums or means."""
        line = text.rstrip(b"\n").rpartition(b"\n")[2].decode("utf-8", "replace")
        cells = split(line, self.table.dialect.delimiter) if line else []
        learned = set(self.table.choice.features)
        found = next((cell for at, cell in enumerate(cells) if at not in learned and is_total(cell)), None)
        if found is not None:
            self.warnings.append(
                f"the last row of {self.feed.name} is called {found[:40]!r} and was taken as a row like the others: "
                "take it away if it sums them up"
            )

    def _lines(self) -> Lines:
        if self.stream is not None:
            return self.stream
        feed, dialect = self.feed, self.table.dialect
        self.stamp = _stamp(feed.place.path) if feed.place is not None and feed.place.path is not None else None
        text = transcoded(feed.clear(), dialect.encoding, feed.name)
        cut = Cut(longest_line(self.options), dialect.lead, dialect.comment, dialect.delimiter)
        lines = Lines(text, cut, feed.name, self._last_line_counts)
        if feed.place is None:
            self.stream = lines
        return lines

    def _last_line_counts(self) -> bool:
        """Whether a last line without a line end is a row. It is not if the file has changed while it was read."""
        if self.options.final is not None:
            return self.options.final
        return self.stamp is None or self.feed.place is None or self.feed.place.path is None or _stamp(self.feed.place.path) == self.stamp

    def _parsed(self, lines: Lines, start: int, size: int, deadline: Deadline | None) -> Iterator[tuple[Batch | None, Chunk]]:
        empty = Chunk(0, np.zeros((0, len(self.table.choice.features))), {})
        if self.feed.place is None:
            for batch in lines.batches(start, size, deadline or _never):
                if batch is not None:
                    yield batch, parse(batch, self.table, lines.quotes)
                elif deadline is not None:
                    yield None, empty
            return
        batches = (batch for batch in lines.batches(start, size) if batch is not None)
        if self.options.max_memory < ENOUGH_FOR_THREADS:
            yield from ((batch, parse(batch, self.table, lines.quotes)) for batch in batches)
        else:
            yield from _ahead(batches, lambda batch: parse(batch, self.table, lines.quotes))


def _ahead(batches: Iterator[Batch], work: Callable[[Batch], Chunk]) -> Iterator[tuple[Batch, Chunk]]:
    """Parse batches in threads, a few ahead; numbers are parsed without the interpreter's lock."""
    waiting: deque[tuple[Batch, Future[Chunk]]] = deque()
    failed: Exception | None = None
    with ThreadPoolExecutor(_WORKERS) as pool:
        try:
            while True:
                try:
                    batch = next(batches, None)
                except Exception as error:  # raised after the batches before it
                    batch, failed = None, error
                if batch is not None:
                    waiting.append((batch, pool.submit(work, batch)))
                if batch is None or len(waiting) > _WORKERS:
                    if not waiting:
                        break
                    done, future = waiting.popleft()
                    yield done, future.result()
        finally:
            for _, future in waiting:
                future.cancel()
    if failed is not None:
        raise failed


def _never() -> bool:
    return False


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns
