"""Detects the format of text: encoding, delimiter, decimal sign, comments, lines before the table, names, row numbers.

All of it is detected from the first lines, can be overridden by an option, and is reported in `Source.notes`.
"""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from online_psp.engine.types import Array
from online_psp.io.sources.header import MOST_LEAD, Kinds, find_top, modal_width, row_numbers
from online_psp.io.sources.numerals import NA, THOUSANDS, Signs, is_decimal_comma, is_number, may_be_number, number, signs_of
from online_psp.io.sources.options import TextOptions
from online_psp.io.sources.source import EmptySourceError, SourceError, UnknownSourceError
from online_psp.io.sources.suspects import doubts

_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"), (codecs.BOM_UTF16_LE, "utf-16"),
         (codecs.BOM_UTF16_BE, "utf-16"))  # fmt: skip
_SHOWN = {"\t": "tab", " ": "whitespace"}
WHITESPACE = " "
_COMMENTS = ("#", "%")
_PREFIX, _CELLS = 20_000, 1000  # characters, and cells, of a line to look at to find its delimiter
_LONG = 1000  # bytes per line from which it is faster to search for each line end by itself
_Line = tuple[range, list[str]]  # the lines of the file that it spans, and its cells


@dataclass(frozen=True)
class Dialect:
    """How a text file is read."""

    delimiter: str
    signs: Signs = field(default_factory=Signs)
    comment: str | None = None
    lead: int = 0
    """Number of lines before the first row, including the one with the names."""
    width: int = 1
    """Number of cells in a line."""
    names: list[str] | None = None
    """Names of all columns."""
    header: bool = False
    left_out: tuple[int, ...] = ()
    """Columns that are not data: row numbers, labels, an empty last one."""
    text: dict[int, str] = field(default_factory=dict)
    """Columns that have no number in any of the first rows, with an example of each."""
    na: frozenset[str] = NA
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list, repr=False)
    """The first rows."""

    def column(self, at: int) -> str:
        """A column as messages name it: by its number from 0, as options do, and its name."""
        return f"column {at}" + (f" ({self.names[at]!r})" if self.names and at < len(self.names) and self.names[at] else "")

    def doubts(self, features: Sequence[int]) -> list[str]:
        """Warnings about columns that look like row numbers or labels, and about empty ones."""

        def values(at: int) -> Array | None:
            few = all(is_number(row[at], self.signs) for row in self.rows[:3])  # for most columns, three rows are enough
            if not few or not all(is_number(row[at], self.signs) for row in self.rows):
                return None
            return np.array([number(row[at], self.signs) for row in self.rows])

        empty = [at for at in features if len(self.rows) > 1 and all(row[at] in self.na for row in self.rows)]
        return [
            *doubts(((at, self.names[at] if self.names else None) for at in features if at not in empty), values),
            *(f"{self.column(at)} is empty in all of the first {len(self.rows)} rows (--exclude {at} to leave it out)" for at in empty[:3]),
        ]


def newlines(text: bytes) -> Array:
    """Positions of line ends. If lines are long, the search of the C library is used, which is many times faster."""
    if text.count(b"\n", 0, 1 << 16) * _LONG > min(len(text), 1 << 16):
        return np.flatnonzero(np.frombuffer(text, np.uint8) == 10)
    found, at = [], text.find(b"\n")
    while at >= 0:
        found.append(at)
        at = text.find(b"\n", at + 1)
    return np.array(found, dtype=np.int64)


def row_ends(text: bytes, delimiters: bytes) -> Array:
    """Positions of the line ends at which rows end: not those inside quoted cells.

    A quotation mark opens a cell at its beginning only; in the middle, as in 5", it is an ordinary character. A cell that is never closed
    goes on to the end of the text.
    """
    ends = newlines(text)
    if b'"' not in text:
        return ends
    quoted = re.compile(rb'(?:\A|[\n%s]) *"[^"]*+(?:""[^"]*+)*+(?:"|\Z)' % re.escape(delimiters))
    inside = [span for found in quoted.finditer(text) if text.find(b"\n", *(span := (found.start() + 1, found.end()))) >= 0]
    keep = np.ones(len(ends), dtype=bool)
    for start, stop in inside:
        first, last = np.searchsorted(ends, (start, stop))
        keep[first:last] = False
    return ends[keep]


def split(line: str, delimiter: str) -> list[str]:
    """The cells of a line."""
    if delimiter == WHITESPACE:
        return next(csv.reader([" ".join(line.split())], delimiter=" ")) if '"' in line else line.split()
    if '"' not in line:
        return [cell.strip() for cell in line.split(delimiter)]
    reader = csv.reader(io.StringIO(line, newline=""), delimiter=delimiter, skipinitialspace=True)
    return [cell.strip() for cell in next(reader, [""])]


def logical_lines(text: bytes) -> list[str]:
    """Lines of the beginning of a text; those of a quoted cell count as one, and what may be cut off comes last."""
    ends = [int(end) for end in row_ends(text, b",;\t|")]
    found = [text[start:end] for start, end in itertools.pairwise([0, *(end + 1 for end in ends)])]
    found.append(text[ends[-1] + 1 if ends else 0 :])
    return [line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "replace").replace("\ufeff", "") for line in found]


def encoding_of(head: bytes, wanted: str | None, name: str, whole: bool) -> tuple[str, str | None]:
    """The encoding of the first bytes, and a note if it is not UTF-8."""
    if wanted is not None:
        try:
            codecs.lookup(wanted)
        except LookupError:
            raise UnknownSourceError(f"There is no encoding {wanted!r}; say utf-8, latin-1, cp1252, utf-16, …") from None
        return wanted, None
    for bom, encoding in _BOMS:
        if head.startswith(bom):
            return encoding, None if encoding == "utf-8" else f"encoding {encoding}"
    if b"\0" in head:
        wide = _wide_encoding(head)
        if wide is not None:
            return wide, f"encoding {wide}, by its zero bytes"
        line = head.count(b"\n", 0, head.index(b"\0")) + 1
        raise SourceError(
            f"{name} has zero bytes in it, from line {line} on: it is not text, it was damaged, as by a crash while it was written, or its "
            "encoding must be named (--set encoding=…)."
        )
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head, whole)
    except UnicodeDecodeError:
        return "cp1252", "encoding cp1252 (Windows), since it is not UTF-8"
    return "utf-8", None


def _wide_encoding(head: bytes) -> str | None:
    """Recognise UTF-16 without a byte order mark: nearly every second byte is zero, as it is for digits and Latin letters."""
    even, odd = head[::2].count(0), head[1::2].count(0)
    half = len(head) / 2
    if max(even, odd) < 0.8 * half or min(even, odd) > 0.01 * half:
        return None
    return "utf-16-le" if odd > even else "utf-16-be"


def sniff(lines: Sequence[str], options: TextOptions, name: str, usual: str) -> Dialect:
    """Detect the dialect from the first lines.

    Parameters
    ----------
    lines : sequence of str
        Lines without their ends, including blank ones; the lines of a quoted cell count as one.
    usual : str
        The delimiter that the file's name suggests.
    """
    notes: list[str] = []
    skip, delimiter = options.skip_rows or 0, options.delimiter
    if skip >= len(lines) or not any(line.strip() for line in lines[skip:]):
        raise EmptySourceError(f"{name} is empty." if not skip else f"{name} has nothing after the first {skip} lines.")
    if options.skip_rows is None and re.fullmatch(r"sep=.", lines[0].strip(), re.IGNORECASE):
        skip, delimiter = 1, delimiter or lines[0].strip()[4]
    comment = _comment(lines[skip:], options.comment)
    numbered = [(at, line) for at, line in _placed(lines, skip) if line.strip() and not (comment and line.lstrip().startswith(comment))]
    if not numbered:
        raise SourceError(f"{name} has only comments in its first {len(lines)} lines.")
    if delimiter is None:
        delimiter = _delimiter([line for _, line in numbered], usual)
    elif delimiter != WHITESPACE and len(delimiter) != 1:
        delimiter = {"\\t": "\t", "tab": "\t", "whitespace": WHITESPACE}.get(delimiter, delimiter)
        if len(delimiter) != 1:
            raise UnknownSourceError(f"A delimiter is one character, or 'tab' or 'whitespace'; got {delimiter!r}.")
    table = [(at, split(line, delimiter)) for at, line in numbered]
    if options.skip_rows is None:
        table, lead = _after_lead(table)
        passed = len(lead)
        if passed and delimiter == "," and _is_half(lead[-1][1], table[0][1]):
            raise SourceError(
                f"{name} has {len(lead[-1][1])} names above rows of {len(table[0][1])} values: its commas seem to be decimal signs as well "
                "as delimiters, and what belongs together cannot be told; write it with semicolons, or with decimal points."
            )
        if passed:
            notes.append(f"{passed} line{'s' if passed != 1 else ''} before the table skipped (--set skip_rows=…)")
    signs = _signs([cells for _, cells in table], delimiter, options, name)
    before = next((line for at, line in reversed(_placed(lines, 0)) if at.stop == table[0][0].start), "") if options.header is None else ""
    above = _names_in_comment(before, comment, delimiter, len(table[0][1]))
    return _described(table, options, Dialect(delimiter, signs, comment, na=NA | frozenset(options.na_values or ()), notes=notes), above)


def _signs(rows: list[list[str]], delimiter: str, options: TextOptions, name: str) -> Signs:
    """How numbers are written, by the options or by the first cells."""
    decimal, thousands = options.decimal, options.thousands
    if decimal not in (None, ".", ","):
        raise UnknownSourceError(f"The decimal sign is . or ,; got {decimal!r}.")
    if thousands is not None and (len(thousands) != 1 or thousands not in THOUSANDS):
        raise UnknownSourceError(f"The sign between thousands is , or . or ' or a space; got {thousands!r}.")
    if decimal is not None and decimal == thousands:
        raise UnknownSourceError(f"The decimal sign and the sign between thousands are both {decimal!r}.")
    if decimal == delimiter == "," and options.delimiter is not None:
        raise UnknownSourceError("The delimiter and the decimal sign are both a comma.")
    return signs_of(rows, delimiter if any(len(cells) > 1 for cells in rows) else "", decimal, thousands, name)


def _placed(lines: Sequence[str], skip: int) -> list[tuple[range, str]]:
    """Lines after the first `skip`, with the lines of the file that each spans, from 0: several, if a quoted cell contains line ends."""
    starts = list(itertools.accumulate((1 + line.count("\n") for line in lines), initial=0))
    return [(range(at, stop), line) for at, stop, line in zip(starts, starts[1:], lines, strict=False) if at >= skip]


def _comment(lines: Sequence[str], wanted: str | None) -> str | None:
    if wanted is not None:
        return wanted or None
    first = next((line.lstrip("\ufeff \t") for line in lines if line.strip()), "")
    return next((sign for sign in _COMMENTS if first.startswith(sign)), None)


def _delimiter(lines: list[str], usual: str) -> str:
    """The delimiter that cuts most lines into equally many cells, most of them numbers."""
    best, score = "," if usual == WHITESPACE else usual, (-1.0, 0.0, False)
    below = lines[1:100] or lines
    if _is_decimal_column(lines):
        return ";"
    for candidate in (",", ";", "\t", "|", WHITESPACE):
        tables = [split(line[:_PREFIX], candidate) for line in below]
        counts = [len(table) if len(line) <= _PREFIX else line.count(candidate) + 1 for table, line in zip(tables, below, strict=True)]
        count, times = Counter(counts).most_common(1)[0]
        if count < 2:
            continue
        cells = [cell for row, found in zip(tables, counts, strict=True) if found == count for cell in row[:_CELLS]]
        numbers = sum(may_be_number(cell) or cell in NA for cell in cells)
        found = (round(numbers / max(1, len(cells)) * times / len(tables), 2), float(candidate != WHITESPACE), candidate == usual)
        if found > score:
            best, score = candidate, found
    return best


def _is_decimal_column(lines: list[str]) -> bool:
    """Whether lines such as 1,5 are one column with decimal commas, not two: they are below one name, or among numbers without a comma."""
    bare = [line.strip() for line in lines]
    named = not may_be_number(bare[0]) and "," not in bare[0]
    rows = bare[1:] if named else bare
    commas = sum("," in row for row in rows)
    return 0 < commas and (named or commas < len(rows)) and all(is_number(row) or is_decimal_comma(row) for row in rows)


def _is_half(names: list[str], row: list[str]) -> bool:
    """Whether there is one name for every two values, as happens if 1,5 is cut into 1 and 5."""
    words = len(names) > 1 and not any(map(may_be_number, names)) and all(names)
    return words and len(row) == 2 * len(names) and all(re.fullmatch(r"[+-]?\d+", cell) for cell in row[::2])


def _after_lead(table: list[_Line]) -> tuple[list[_Line], list[_Line]]:
    """The table, and the lines of words that come before it."""
    count = Counter(len(cells) for _, cells in table[-100:]).most_common(1)[0][0]
    fits = (count, count - 1)
    first = next((i for i, (_, cells) in enumerate(table) if len(_without_empty_end(cells, count)) in fits and count > 1), 0)
    lead = table[:first]
    if not lead or len(lead) > MOST_LEAD or count < 2 or any(is_number(cell) for _, cells in lead for cell in cells[:1] if len(cells) > 1):
        return table, []
    if any(all(is_number(cell) for cell in cells) for _, cells in lead):
        return table, []
    return table[first:], lead


def _without_empty_end(cells: list[str], count: int) -> list[str]:
    """Names without the empty last cell that they have if they end in a delimiter and rows do not."""
    return cells[:-1] if len(cells) == count + 1 and cells[-1] == "" else cells


def _names_in_comment(line: str, comment: str | None, delimiter: str, width: int) -> list[str] | None:
    """Names in a comment just before the rows, ``# a,b,c``, as `numpy.savetxt` and many instruments write them."""
    if comment is None or not line.lstrip().startswith(comment):
        return None
    cells = split(line.lstrip()[len(comment) :].strip(), delimiter)
    return cells if len(cells) == width and not any(is_number(cell) for cell in cells) and all(cells) else None


def _described(table: list[_Line], options: TextOptions, known: Dialect, above: list[str] | None) -> Dialect:
    """Add names, row numbers and columns of text to what is known of a dialect."""
    notes, warnings = known.notes, known.warnings
    kinds = Kinds(lambda cell: is_number(cell, known.signs), known.na)
    top = find_top([cells for _, cells in table], kinds, options.header, options.skip_rows is not None, notes)
    header = top.names is not None
    names = table[top.names][1] if top.names is not None else above
    if above is not None and not header:
        notes.append("names taken from the comment before the first row (--no-header to leave them)")
    rows = [cells for _, cells in table[top.rows :]]
    names, width = _fitted(names, rows, header)
    data = [row for row in rows if len(row) == width]
    left_out = row_numbers(names, data, kinds, options.keep_index, notes, warnings) if names is not None and data and width > 1 else []
    empty = _empty_at_the_end(names, data, width)
    if empty:
        left_out.extend(range(width - empty, width))
        what = "an empty last column, after a delimiter at the end of each line, was" if empty == 1 else f"{empty} empty last columns were"
        notes.append(f"{what} left out")
    usable = [at for at in range(width) if at not in left_out] if data else []
    decimal, thousands = known.signs
    notes.insert(
        0,
        f"delimiter {_SHOWN.get(known.delimiter, known.delimiter)!r}"
        + (f", decimal {decimal!r}" if decimal != "." or thousands is not None else "")
        + (f", thousands {thousands!r}" if thousands is not None else ""),
    )
    if known.comment:
        notes.append(f"lines that begin with {known.comment!r} are comments")
    return replace(
        known,
        lead=table[top.rows - 1][0].stop if top.rows else table[0][0].start,
        width=width,
        names=names,
        header=header,
        left_out=tuple(left_out),
        text={at: data[0][at] for at in usable if all(kinds.is_text(row[at]) for row in data)},
        rows=data,
    )


def _empty_at_the_end(names: list[str] | None, data: list[list[str]], width: int) -> int:
    """Number of columns at the end that have neither a name nor a value; at most one in a table without names."""
    count = 0
    while data and count < width - 1 and all(row[-1 - count] == "" for row in data) and (names is None or names[-1 - count] == ""):
        count += 1
        if names is None:
            break
    return count


def _fitted(names: list[str] | None, rows: list[list[str]], header: bool) -> tuple[list[str] | None, int]:
    """As many names as there are cells in a row, and this number."""
    width = modal_width(rows) if rows else len(names or [])
    if names is None or not header or len(names) == width:
        return names, width
    if len(names) == width - 1 and all(row[-1] == "" for row in rows if len(row) == width):
        return [*names, ""], width  # rows end in a delimiter
    if len(names) == width - 1:
        return ["", *names], width  # as R's write.table does
    if len(names) == width + 1 and names[-1] == "":
        return names[:-1], width
    return names, len(names)  # the rows that do not fit are bad rows
