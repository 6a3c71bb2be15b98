"""Text: cut into pieces at line ends here, which gives exact positions, and parsed by pyarrow with fixed types.

A position is a number of bytes of the unpacked text in UTF-8. In a plain file that is a place to seek; otherwise the bytes before it are
read and dropped, and not parsed.
"""

from __future__ import annotations

import codecs
import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from online_psp.engine.types import Array
from online_psp.io.sources.columnar import dense
from online_psp.io.sources.columns import Choice, choose, listing, text_columns, times_of, unique
from online_psp.io.sources.dialect import MOST_LEAD, WHITESPACE, Dialect, encoding_of, logical_lines, row_ends, sniff, split
from online_psp.io.sources.numerals import THOUSANDS, Signs, may_be_number
from online_psp.io.sources.options import Options
from online_psp.io.sources.places import HEAD, PIECE, Place, some
from online_psp.io.sources.source import Chunk, Mark, Source, SourceError, megabytes, working_dtype

_SAMPLE_LINES = 200
_SURELY_COUNTED = 10  # rows
_LONGEST_QUOTED = 1 << 20
_FIRST_PIECE, _LARGEST_PIECE = 1 << 18, 1 << 24
_ENOUGH_ROWS = 512  # rows of a piece from which the cost of a call of the parser does not count


class Rows(NamedTuple):
    """Whole rows of text."""

    text: bytes
    ends: Array
    """(n,): where each row ends: the position of its line end."""
    lines: Array
    """(n,): line in which each row begins, from 1."""

    def split(self) -> list[bytes]:
        """The text of each row, without its line end."""
        return [self.text[start:end] for start, end in itertools.pairwise([0, *(self.ends + 1).tolist()])]


class Feed:
    """Text from a place, as bytes in UTF-8; of a pipe, what has been read to find out its format comes again."""

    def __init__(self, place: Place, stream: BinaryIO | None = None) -> None:
        self.place, self.name = place, place.name
        self.stream, self.seen = stream, b""
        self.encoding, self.old_mac = "utf-8", False

    def first_lines(self, options: Options, is_row: Callable[[str], bool]) -> tuple[list[str], str | None]:
        """The lines by which the format is found, and a note on their encoding.

        Of a pipe, these are the lines up to the first row that is not the first line: more may take long to arrive.
        """
        longest, skip = longest_line(options), options.text.skip_rows or 0
        size, whole = HEAD, False
        while True:
            if self.stream is None:
                self.seen = self.place.head(size)
                whole, size = len(self.seen) < size, 2 * size
            lines = logical_lines(self.seen.replace(b"\0", b"").replace(b"\r\n", b"\n").replace(b"\r", b"\n"))[skip:-1]
            content = [at for at, line in enumerate(lines) if line.strip() and not line.lstrip().startswith(("#", "%"))]
            if self.stream is not None:
                content = [at for i, at in enumerate(content) if i > MOST_LEAD or (i and is_row(lines[at]))]
            if whole or len(content) > (2 if self.stream is None else 0) or len(self.seen) > 4 * longest:
                break
            if b"\n" not in self.seen and b"\r" not in self.seen and len(self.seen) > longest:
                raise too_long(self.name, 1, longest)
            if self.stream is not None:
                piece = some(self.stream, PIECE)
                self.seen, whole = self.seen + piece, not piece
        self.encoding, note = encoding_of(self.seen, options.text.encoding, self.name, whole)
        self.old_mac = b"\r" in self.seen and b"\n" not in self.seen.replace(b"\0", b"")
        found = logical_lines(b"".join(self._utf8(iter([self.seen]))))
        if (not whole or not found[-1].strip()) and len(found) > 1:
            found.pop()
        if self.stream is None:
            self.seen = b""
        elif content:
            found = found[: skip + content[0] + 1]
        return found[:_SAMPLE_LINES], note

    def pieces(self, begin: int, size: int) -> Iterator[bytes]:
        """The text from a byte on."""
        if self.stream is not None:
            yield from self._utf8(itertools.chain([self.seen], iter(lambda: some(self.stream, PIECE), b"")))
            return
        plain = _is_plain(self.encoding)
        skip = 0 if plain else begin
        with self.place.clear(begin if plain else 0) as file:
            sizes = (min(size, _FIRST_PIECE << i) for i in itertools.count())
            for piece in self._utf8(iter(lambda: file.read(next(sizes)), b"")):
                passed = min(skip, len(piece))
                skip -= passed
                yield piece[passed:]

    def _utf8(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        if _is_plain(self.encoding):
            yield from (piece.replace(b"\r", b"\n") if self.old_mac else piece for piece in pieces)
            return
        decoder = codecs.getincrementaldecoder(self.encoding)()
        try:
            for piece in itertools.chain(pieces, [b""]):
                yield decoder.decode(piece, not piece).encode("utf-8", "replace")
        except UnicodeError as error:
            raise SourceError(f"{self.name} is not text in {self.encoding} ({error}); name its encoding (--set encoding=…).") from None

    def stamp(self) -> Any:
        """What changes where the file is written to."""
        try:
            found = None if self.place.path is None else self.place.path.stat()
        except OSError:
            return None
        return found and (found.st_size, found.st_mtime_ns)


def _count_up(cells: list[str]) -> bool:
    """Whether cells are 0, 1, 2, … or 1, 2, 3, …, too many of them for an accident."""
    return len(cells) >= _SURELY_COUNTED and cells[0] in ("0", "1") and cells == [str(i + int(cells[0])) for i in range(len(cells))]


def _is_plain(encoding: str) -> bool:
    return encoding.lower().replace("_", "-") in ("utf-8", "utf8", "ascii", "utf-8-sig")


def _has_numbers(line: str) -> bool:
    """Whether a line may be a row, as far as one can tell without knowing its delimiter."""
    cells, words = re.split(r"[,;\t|]", line[:20_000]), line[:20_000].split()
    return any(may_be_number(cell.strip(' "')) for cell in cells) or 2 * sum(map(may_be_number, words)) >= len(words)


def longest_line(options: Options) -> int:
    """Largest number of bytes that a line may have; split into cells, it takes many times as much memory."""
    return max(PIECE, options.max_memory // 64)


def too_long(name: str, line: int, limit: int) -> SourceError:
    """The error for a line that would fill the memory."""
    return SourceError(
        f"{name}, line {line}: the line is longer than {megabytes(limit)}, all that one may be within max_memory; is this the right file?"
    )


class Reader:
    """Cuts text into rows, and has them parsed; `Source.read` of a source.

    Parameters
    ----------
    lead : int
        Number of lines before the first row.
    comment : str, optional
        What comments begin with.
    delimiter : str, optional
        What may stand before a quotation mark that begins a cell; None if quotation marks mean nothing.
    """

    def __init__(
        self,
        feed: Feed,
        parse: Callable[[Rows], Chunk],
        options: Options,
        lead: int = 0,
        comment: str | None = None,
        delimiter: str | None = None,
    ) -> None:
        self.feed, self.parse, self.options, self.lead = feed, parse, options, lead
        self.comment = comment.encode() if comment else None
        self.delimiter = None if delimiter is None else delimiter.encode()
        self.size = PIECE
        self.odd = np.zeros(256, dtype=bool)
        """First bytes of lines that may be blank, or comments."""
        self.odd[[*b"\n\r \t", *(self.comment or b"")[:1]]] = True
        self.warnings: list[str] = []

    def __call__(self, begin: Mark) -> Iterator[Chunk]:
        """The rows after a place."""
        byte, inner, line, stamp = begin.byte, begin.inner, begin.line, self.feed.stamp()
        longest, rest = longest_line(self.options), b""
        size = min(_LARGEST_PIECE, max(self.size, PIECE), max(1 << 16, self.options.max_memory // 32))
        for piece in itertools.chain(self.feed.pieces(byte, size), [b""]):
            data = rest + piece
            if not piece and data.strip() and b"\n" not in data and self._is_whole(stamp):
                data += b"\n"
            ends = row_ends(data, self.delimiter)
            stop = int(ends[-1]) + 1 if len(ends) else 0
            whole, rest = data[:stop], data[stop:]
            if whole:
                rows, marks = self._rows(whole, ends, byte, inner, line)
                byte, line, inner = byte + stop, line + (len(ends) if b'"' not in whole else whole.count(b"\n")), inner + len(rows.ends)
                if len(rows.ends):
                    yield self.parse(rows)._replace(marks=marks)
            if len(rest) > longest:
                raise too_long(self.feed.name, line + 1, longest)
            if b"\n" in rest and (not piece or len(rest) > _LONGEST_QUOTED):
                raise SourceError(f"{self.feed.name}, line {line + 1}: a quotation mark begins a cell there, and nothing closes it.")

    def _is_whole(self, stamp: Any) -> bool:
        """Whether a last line without a line end is a row. It is not if the file has changed while it was read."""
        whole = stamp is None or self.feed.stamp() == stamp
        held = "was taken as whole: if it was cut off, its last value is wrong" if whole else "was held back: it is still being written"
        self.warnings.append(f"the last line of {self.feed.name} has no line end and {held}")
        return whole

    def _rows(self, text: bytes, ends: Array, byte: int, inner: int, line: int) -> tuple[Rows, Array]:
        """The rows of a text, without blank lines, comments and those before the first row; and the places after them."""
        starts = np.concatenate([[0], ends[:-1] + 1])
        first = after = np.arange(line + 1, line + 1 + len(ends))
        if self.delimiter is not None and b'"' in text:
            breaks = row_ends(text, None)
            first, after = (np.searchsorted(breaks, places) + line + 1 for places in (starts, ends))
        keep = first > self.lead
        for i in np.flatnonzero(self.odd[np.frombuffer(text, np.uint8)[starts]]):
            bare = text[starts[i] : ends[i]].strip()
            keep[i] &= bool(bare) and not (self.comment is not None and bare.startswith(self.comment))
        kept_ends = ends
        if not keep.all():
            parts = [text[start : end + 1] for start, end in zip(starts[keep].tolist(), ends[keep].tolist(), strict=True)]
            text = b"".join(parts)
            kept_ends = np.cumsum([len(part) for part in parts], dtype=np.int64) - 1
        count = len(kept_ends)
        marks = np.zeros((count, 5), dtype=np.int64)
        marks[:, 1], marks[:, 2] = inner + 1 + np.arange(count), byte + 1 + ends[keep]
        marks[:, 3], marks[:, 4] = after[keep], first[keep]
        return Rows(text, kept_ends, marks[:, 4]), marks


def source_of_text(reader: Reader, features: int, kind: str, options: Options, schema: dict[str, Any], **others: Any) -> Source:
    """The source that a reader gives."""
    feed = reader.feed
    if feed.place.packed:
        others["notes"].append(f"compressed by {feed.place.packed}")
    return Source(
        feed.name, features, working_dtype(np.float64, options.dtype, feed.name), reader, once=feed.stream is not None,
        place=lambda row, mark: f"line {mark[4]}", kind=kind, files=(feed.place,), warnings=reader.warnings,
        **options.common(**schema), **others,
    )  # fmt: skip


def open_text(feed: Feed, options: Options, usual: str) -> Source:
    """Open text as rows of numbers.

    Parameters
    ----------
    usual : str
        The delimiter that the file's name suggests.
    """
    lines, note = feed.first_lines(options, _has_numbers)
    dialect = sniff(lines, options.text, feed.name, usual)
    notes = dialect.notes + ([note] if note else [])
    names = None
    if dialect.names is not None:
        names, changed = unique([*dialect.names, *[""] * dialect.width][: dialect.width])
        changed = [name for name in changed if names.index(name) not in dialect.left_out]
        if changed:
            notes.append(f"names that come twice were numbered: {', '.join(changed[:5])}")
    usable = [at for at in range(dialect.width) if at not in dialect.left_out]
    choice = choose(options.wanted, names, dialect.width, feed.name, usable)
    text = dialect.text()
    if wrong := {at: text[at] for at in choice.features if at in text}:
        if dialect.width == 1 and options.text.delimiter is None:
            raise SourceError(
                f"{feed.name} has no numbers in its first rows ({text[0][:40]!r}, …), read as one column; name its delimiter if it has "
                "another (--delimiter)."
            )
        hint = _hint(dialect, next(iter(wrong.values())))
        raise SourceError(text_columns(wrong, choice.features, names, feed.name, hint if "thousands" in hint else ""))
    if _count_up(column := [row[choice.features[0]] for row in dialect.rows]):
        said = f"{dialect.column(choice.features[0])} counts the rows ({', '.join(column[:3])}, …) and is learned"
        notes.append(f"{said} (--exclude {choice.features[0]} to leave it out)")
    chosen = [names[at] for at in choice.features] if names else None
    header = "no" if names is None else "yes" if dialect.header else "in a comment"
    notes.insert(0, f"header: {header}, {listing(chosen, len(choice.features))}")
    reader = Reader(feed, Cells(dialect, choice, feed.name), options, dialect.lead, dialect.comment, dialect.delimiter)
    reader.size = _ENOUGH_ROWS * max(map(len, lines[-20:]))
    schema = {
        "header": dialect.header, "delimiter": dialect.delimiter, "decimal": dialect.signs.decimal, "thousands": dialect.signs.thousands,
        "comment": dialect.comment, "lines_before_the_rows": dialect.lead, "encoding": feed.encoding,
        "keep_index": bool(options.text.keep_index),
    }  # fmt: skip
    return source_of_text(
        reader, len(choice.features), "text", options, schema, feature_names=chosen, column_numbers=choice.features, notes=notes
    )


class Cells:
    """Parses rows of cells: all at once by pyarrow; one by one where a cell is no plain number, which also finds what is wrong with it."""

    def __init__(self, dialect: Dialect, choice: Choice, name: str) -> None:
        import pyarrow as pa
        from pyarrow import csv

        self.dialect, self.choice, self.name = dialect, choice, name
        names = [str(at) for at in range(dialect.width)]
        texts = [*choice.ids, *([] if choice.time is None else [choice.time])]
        self.features, self.texts = [names[at] for at in choice.features], [names[at] for at in texts]
        self.reading = csv.ReadOptions(column_names=names, use_threads=False)
        words = [at for at in choice.features if dialect.rows and all(row[at].lower() in ("true", "false") for row in dialect.rows)]
        self.converting = csv.ConvertOptions(
            column_types=dict.fromkeys(self.texts, pa.string())
            | dict.fromkeys(self.features, pa.float64())
            | dict.fromkeys((names[at] for at in words), pa.bool_()),
            include_columns=list(dict.fromkeys([*self.features, *self.texts])),
            null_values=sorted(dialect.na),
            decimal_point=dialect.signs.decimal,
        )

    def __call__(self, rows: Rows) -> Chunk:
        """The rows as numbers."""
        found = self._at_once(rows) if self.dialect.signs.thousands is None else None
        return self._one_by_one(rows) if found is None else found

    def _at_once(self, rows: Rows) -> Chunk | None:
        import pyarrow as pa
        from pyarrow import csv

        text = rows.text
        if self.dialect.delimiter == WHITESPACE:
            text = b"\n".join(b" ".join(line.split()) for line in text.split(b"\n"))
        self.reading.block_size = max(1, len(text))
        parsing = csv.ParseOptions(delimiter=self.dialect.delimiter, newlines_in_values=b'"' in text)
        try:
            table = csv.read_csv(pa.BufferReader(text), self.reading, parsing, self.converting)
        except pa.ArrowException:
            return None
        if table.num_rows != len(rows.ends):
            return None
        texts = {name: [cell.strip() for cell in table.column(name).to_pylist()] for name in self.texts}
        ids = [texts[str(at)] for at in self.choice.ids]
        times = None if self.choice.time is None else times_of(texts[str(self.choice.time)], self.name)
        values = dense(table.select(self.features).combine_chunks().to_batches()[0])
        return Chunk(len(values), values, {}, np.array(ids, dtype=object).T if ids else None, times)

    def _one_by_one(self, rows: Rows) -> Chunk:
        choice, count = self.choice, len(rows.ends)
        good: list[list[float]] = []
        bad: dict[int, str] = {}
        ids = np.full((count, len(choice.ids)), "", dtype=object) if choice.ids else None
        times = [""] * count
        for at, line in enumerate(rows.split()):
            try:
                text = line.decode()
            except UnicodeDecodeError:
                if choice.ids:  # numbers are ASCII, but ids must be right
                    raise SourceError(
                        f"{self.name}, line {rows.lines[at]}: it is not UTF-8; name the encoding (--set encoding=latin-1, cp1252, …)."
                    ) from None
                text = line.decode("utf-8", "replace")
            cells = split(text, self.dialect.delimiter)
            if ids is not None:
                ids[at] = [cells[i] if i < len(cells) else "" for i in choice.ids]
            if choice.time is not None and choice.time < len(cells):
                times[at] = cells[choice.time]
            found = self._row(cells, int(rows.lines[at]))
            if isinstance(found, str):
                bad[at] = found
            else:
                good.append(found)
        values = np.array(good, dtype=np.float64).reshape(len(good), len(choice.features))
        return Chunk(count, values, bad, ids, times_of(times, self.name) if choice.time is not None else None)

    def _row(self, cells: list[str], line: int) -> list[float] | str:
        """The numbers of a row, or what is wrong with it."""
        dialect = self.dialect
        if dialect.header and cells == dialect.names:
            return "has the names of the columns again, as where files were joined"
        if len(cells) != dialect.width:
            hint = f" (--set comment='{cells[0][0]}' if it is a comment)" if cells[0][:1] in ("#", "%") else ""
            hint = hint or (f" ({cells[0][:40]!r})" if len(cells) == 1 else "")
            return f"has {len(cells)} value{'s' if len(cells) != 1 else ''} where {dialect.width} are expected{hint}"
        chosen = [cells[at] for at in self.choice.features]
        values = [np.nan if cell in dialect.na else dialect.signs.number(cell) for cell in chosen]
        text = [i for i, value in enumerate(values) if value is None]
        if not text:
            return values  # type: ignore[return-value]
        said = f"has the text {chosen[text[0]][:40]!r} in {dialect.column(self.choice.features[text[0]])}"
        if dialect.header and line == dialect.lead + 1:
            return f"{said}, right below the names (--set skip_rows={line - 1} if these are the names)"
        if dialect.header and len(text) == len(set(chosen)) >= 3 and all(map(str.isidentifier, chosen)):
            raise SourceError(
                f"{self.name}, line {line}: another line of names comes in the middle ({', '.join(chosen[:3])}, …), and it is not that of "
                f"the first line: files of different columns were joined, or the table begins here (--set skip_rows={line - 1})."
            )
        return said + _hint(dialect, chosen[text[0]])


def _hint(dialect: Dialect, cell: str) -> str:
    """A hint on what to do about a text, if that can be guessed."""
    for sign in THOUSANDS:
        if sign in cell and Signs({".": ",", ",": "."}.get(sign, dialect.signs.decimal), sign).number(cell) is not None:
            return f" (--set thousands='{sign}' if it is a number)"
    if len(cell) <= 20 and cell.isprintable() and "\ufffd" not in cell and not re.search(r"(?<!#DIV/)\d", cell):
        inner = f'"{cell}"' if "," in cell else cell
        mark = '"' if "'" in inner else "'"
        return f" (--na-values {mark}{inner}{mark} if it stands for a missing value)"
    return ""
