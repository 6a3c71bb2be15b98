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
from dataclasses import dataclass, field

import numpy as np

from online_psp.engine.types import Array
from online_psp.io.sources.numerals import COMMA, NA, POINT, THOUSANDS, Signs, may_be_number
from online_psp.io.sources.options import TextOptions
from online_psp.io.sources.source import EmptySourceError, SourceError, UnknownSourceError

_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"), (codecs.BOM_UTF16_LE, "utf-16"),
         (codecs.BOM_UTF16_BE, "utf-16"))  # fmt: skip
WHITESPACE = " "
_SHOWN = {"\t": "tab", WHITESPACE: "whitespace"}
_DELIMITERS = {"\\t": "\t", "tab": "\t", "whitespace": WHITESPACE}
MOST_LEAD = 50
_PREFIX, _CELLS = 20_000, 1000  # characters, and cells, of a line to look at to find its delimiter
_SURE_CELLS, _SURE_ROWS = 8, 20  # so many numbers in order above so many rows that are not are no accident
_EITHER = re.compile(r"[+-]?[1-9]\d{0,2}[.,]\d{3}", re.ASCII)  # 1,234 is 1234 or 1.234
_GROUPED = re.compile(rf"[+-]?\d[\d{re.escape(THOUSANDS)}]*", re.ASCII)  # perhaps a number with signs between thousands
_UNNAMED = re.compile(r"(Unnamed: \d+(_level_\d+)?(\.\d+)?)?")
Cells = list[str]


@dataclass
class Dialect:
    """How a text file is read."""

    delimiter: str
    signs: Signs
    comment: str | None
    na: frozenset[str]
    lead: int = 0
    """Number of lines before the first row, including the one with the names."""
    width: int = 1
    """Number of cells in a line."""
    names: Cells | None = None
    """Names of all columns."""
    header: bool = False
    """Whether the names are in a line of their own, not in a comment."""
    left_out: list[int] = field(default_factory=list)
    """Columns that are not data: row numbers, labels, an empty last one."""
    rows: list[Cells] = field(default_factory=list)
    """The first rows."""
    notes: list[str] = field(default_factory=list)

    def column(self, at: int) -> str:
        """A column as messages name it: by its number from 0, as options do, and its name."""
        return f"column {at}" + (f" ({self.names[at]!r})" if self.names and at < len(self.names) and self.names[at] else "")

    def is_text(self, cell: str) -> bool:
        """Whether a cell is neither a number nor a missing value."""
        return self.signs.is_text(cell, self.na)

    def text(self) -> dict[int, str]:
        """Columns that have no number in any of the first rows, with an example of each."""
        usable = [at for at in range(self.width if self.rows else 0) if at not in self.left_out]
        return {at: self.rows[0][at] for at in usable if all(self.is_text(row[at]) for row in self.rows)}


def row_ends(text: bytes, delimiter: bytes | None) -> Array:
    """Positions of the line ends at which rows end: not those inside quoted cells, if quotation marks mean something.

    A quotation mark opens a cell at its beginning only; in the middle, as in 5", it is an ordinary character. A cell that is never closed
    goes on to the end of the text.
    """
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == 10)
    if delimiter is None or b'"' not in text:
        return ends
    quoted = re.compile(rb'(?:\A|[\n%s]) *"[^"]*+(?:""[^"]*+)*+(?:"|\Z)' % re.escape(delimiter))
    keep = np.ones(len(ends), dtype=bool)
    for found in quoted.finditer(text):
        if text.find(b"\n", found.start() + 1, found.end()) >= 0:
            first, last = np.searchsorted(ends, (found.start() + 1, found.end()))
            keep[first:last] = False
    return ends[keep]


def split(line: str, delimiter: str) -> Cells:
    """The cells of a line."""
    if delimiter == WHITESPACE:
        return next(csv.reader([" ".join(line.split())], delimiter=" ")) if '"' in line else line.split()
    if '"' not in line:
        return [cell.strip() for cell in line.split(delimiter)]
    reader = csv.reader(io.StringIO(line, newline=""), delimiter=delimiter, skipinitialspace=True)
    return [cell.strip() for cell in next(reader, [""])]


def logical_lines(text: bytes) -> list[str]:
    """Lines of the beginning of a text; those of a quoted cell count as one, and what may be cut off comes last."""
    starts = [0, *(int(end) + 1 for end in row_ends(text, b",;\t|"))]
    found = [text[start:end] for start, end in itertools.pairwise([*starts, len(text)])]
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
        line = head.count(b"\n", 0, head.index(b"\0")) + 1
        raise SourceError(
            f"{name} has zero bytes in it, from line {line} on: it is not text, it was damaged, as by a crash while it was written, or its "
            "encoding must be named (--set encoding=utf-16-le, …)."
        )
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head, whole)
    except UnicodeDecodeError:
        return "cp1252", "encoding cp1252 (Windows), since it is not UTF-8"
    return "utf-8", None


def sniff(lines: Sequence[str], options: TextOptions, name: str, usual: str) -> Dialect:
    """Detect the dialect from the first lines.

    Parameters
    ----------
    lines : sequence of str
        Lines without their ends, including blank ones; the lines of a quoted cell count as one.
    usual : str
        The delimiter that the file's name suggests.
    """
    skip = options.skip_rows or 0
    if not any(line.strip() for line in lines[skip:]):
        raise EmptySourceError(f"{name} is empty." if not skip else f"{name} has nothing after the first {skip} lines.")
    ends = list(itertools.accumulate(1 + line.count("\n") for line in lines))  # a quoted cell may have line ends in it
    comment = options.comment or None
    if options.comment is None:
        first = next(line.lstrip() for line in lines[skip:] if line.strip())
        comment = first[0] if first[0] in "#%" else None
    numbered = [
        (end, line)
        for end, line in itertools.dropwhile(lambda each: each[0] <= skip, zip(ends, lines, strict=True))
        if line.strip() and not (comment and line.lstrip().startswith(comment))
    ]
    if not numbered:
        raise SourceError(f"{name} has only comments in its first {len(lines)} lines.")
    delimiter = options.delimiter
    if delimiter is None:
        delimiter = _delimiter([line for _, line in numbered], usual)
    delimiter = _DELIMITERS.get(delimiter, delimiter)
    if len(delimiter) != 1:
        raise UnknownSourceError(f"A delimiter is one character, or 'tab' or 'whitespace'; got {delimiter!r}.")
    table = [split(line, delimiter) for _, line in numbered]
    lead = 0 if options.skip_rows is not None else _lead(table)
    signs = _signs(table[lead:], delimiter, options, name)
    found = Dialect(delimiter, signs, comment, NA | frozenset(options.na_values or ()))
    _describe(found, table[lead:], options.header)
    if lead:
        above = table[lead - 1]
        if not found.header and options.header is None and len(above) > 1 and all(map(found.is_text, above)):
            raise SourceError(
                f"{name}, line {numbered[lead - 1][0]}: there are {len(above)} names above rows of {found.width} values; are its commas "
                f"decimal signs as well as delimiters? Otherwise --set skip_rows={numbered[lead - 1][0]}."
            )
        found.notes.append(f"{lead} line{'s' if lead != 1 else ''} before the table skipped (--set skip_rows=…)")
    first_row = lead + found.header
    found.lead = numbered[first_row - 1][0] if first_row else skip
    if comment and not found.header and options.header is None:
        start = numbered[first_row][0] - 1
        _names_from_comment(found, next((line for end, line in zip(ends, lines, strict=True) if end == start), ""))
    _leave_out(found, options.keep_index)
    decimal, thousands = signs
    found.notes.insert(
        0,
        f"delimiter {_SHOWN.get(delimiter, delimiter)!r}"
        + (f", decimal {decimal!r}" if decimal != "." or thousands is not None else "")
        + (f", thousands {thousands!r}" if thousands is not None else ""),
    )
    if comment:
        found.notes.append(f"lines that begin with {comment!r} are comments")
    return found


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
        numbers = sum(may_be_number(cell) or cell in NA or bool(_GROUPED.fullmatch(cell)) for cell in cells)
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
    return 0 < commas and (named or commas < len(rows)) and all(map(may_be_number, rows))


def _lead(table: list[Cells]) -> int:
    """Number of lines of words before the table: with another number of cells, or with most of them empty."""
    width, count = _width(table), 0
    for cells in table[:-1]:
        words = any(not may_be_number(cell) for cell in cells if cell not in NA) or not any(cells)
        if not words or (abs(len(cells) - width) <= 1 and 2 * sum(cell != "" for cell in cells) >= width):
            break
        count += 1
    return count if width > 1 and count <= MOST_LEAD and not any(may_be_number(cells[0]) for cells in table[:count]) else 0


def _width(table: list[Cells]) -> int:
    """The most frequent number of cells in a line."""
    return Counter(map(len, table[-100:])).most_common(1)[0][0]


def _signs(rows: list[Cells], delimiter: str, options: TextOptions, name: str) -> Signs:
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
    if decimal is not None or thousands is not None:
        return Signs(decimal or ("," if thousands == "." else "."), thousands)
    cells = [cell for row in rows for cell in row]
    commas, points = (
        [cell for cell in cells if sign in cell and signs.number(cell) is not None] for sign, signs in ((",", COMMA), (".", POINT))
    )
    found, signed = (COMMA, commas) if len(commas) > len(points) else (POINT, points)
    if signed and (found is COMMA) != (delimiter == ";") and all(map(_EITHER.fullmatch, signed)):  # semicolons go with decimal commas
        columns = itertools.zip_longest(*rows, fillvalue="")
        if found is COMMA or any(
            any(re.fullmatch(r"[+-]?\d{1,3}", cell) for cell in column) and any(map(_EITHER.fullmatch, column)) for column in columns
        ):
            one = signed[0]
            raise UnknownSourceError(
                f"{name}: {one!r} may be {re.sub('[.,]', '', one)} or {one.replace(',', '.')}; "
                f"say which: --set thousands={found.decimal} or --set decimal={found.decimal}"
            )
    return found


def _describe(found: Dialect, table: list[Cells], header: bool | None) -> None:
    """Find the names and the first rows."""
    width = _width(table[1:] or table)
    rows = [row for row in table[1:] if len(row) == width]
    numeric = [at for at in range(width) if 2 * sum(found.signs.number(row[at]) is not None for row in rows) > len(rows)]
    first = table[0]
    found.header = bool(header)
    if header is None:
        if len(first) != width:  # R has no name for its row names
            found.header = abs(len(first) - width) == 1 and all(found.is_text(cell) or cell == "" for cell in first)
        elif numeric:
            found.header = any(found.is_text(first[at]) for at in numeric) or _counts(found, first, rows, numeric)
        else:
            found.header = all(map(found.is_text, first))
    rows = table[found.header :]
    found.width = _width(rows) if rows else len(first)
    found.rows = [row for row in rows if len(row) == found.width]
    if found.header:
        found.names = first
        if len(first) == found.width - 1:
            empty = all(row[-1] == "" for row in found.rows)  # rows end in a delimiter
            found.names = [*first, ""] if empty else ["", *first]
        elif len(first) == found.width + 1 and first[-1] == "":
            found.names = first[:-1]
        else:
            found.width = len(first)  # the rows that do not fit are bad rows
            found.rows = [row for row in rows if len(row) == found.width]


def _counts(found: Dialect, first: Cells, rows: list[Cells], numeric: list[int]) -> bool:
    """Whether numbers are names, such as 2019, 2020, 2021 or 400.5, 401.0, 401.5: they are in order, and the rows below are not."""
    unnamed = first[0] == ""
    columns = numeric[1:] if unnamed and numeric[0] == 0 else numeric
    values, *below = ([found.signs.number(row[at]) for at in columns] for row in [first, *rows])
    if any(value is None for value in values) or len(values) < (1 if unnamed else 3):
        return False
    scale = np.array(values, dtype=np.float64)
    steps, way = np.diff(scale), 1 if scale[-1] >= scale[0] else -1
    if len(steps) and (not (way * steps > 0).all() or (way * np.diff(np.array(below, dtype=np.float64)) > 0).all(axis=1).any()):
        return False
    even = bool(np.ptp(steps) <= 1e-6 * np.abs(scale).max()) if len(steps) else True
    fractions = any(not re.fullmatch(r"-?\d+", row[at]) for row in rows for at in columns)
    counted = way > 0 and all(first[at].isdecimal() for at in columns) and (unnamed or (steps == 1).all())
    plain = counted or (fractions and len(values) > 3)
    if not (even and plain) and not (len(values) >= _SURE_CELLS and len(rows) >= _SURE_ROWS):
        return False
    shown = ", ".join(first[at] for at in columns[:3])
    found.notes.append(f"the first line ({shown}, …) counts {'up' if way > 0 else 'down'} and was taken as names (--no-header to learn it)")
    return True


def _names_from_comment(found: Dialect, line: str) -> None:
    """Take names from a comment just before the rows, ``# a,b,c``, as `numpy.savetxt` and many instruments write them."""
    bare = line.lstrip()
    if found.comment is None or not bare.startswith(found.comment):
        return
    cells = split(bare.removeprefix(found.comment).strip(), found.delimiter)
    if len(cells) == found.width and all(cells) and all(map(found.is_text, cells)):
        found.names = cells
        found.notes.append("names taken from the comment before the first row (--no-header to leave them)")


def _leave_out(found: Dialect, keep_index: bool | None) -> None:
    """Leave out the first columns without a name that only number or label the rows, and the last ones without name and values."""
    names, rows, width = found.names, found.rows, found.width
    for at in range(width - 1 if names is not None and rows and not keep_index else 0):
        column = [row[at] for row in rows]
        numbers = all(re.fullmatch(r"\d+", cell) for cell in column)
        if not _UNNAMED.fullmatch((names or [])[at]) or not (numbers or all(map(found.is_text, column))):
            break
        found.left_out.append(at)
        what = f"an unnamed {('first', 'second', 'third')[at] if at < 3 else 'further'} column"
        shown = (
            f"{', '.join(column[:3])}, … was taken as row numbers"
            if numbers
            else f"of text ({column[0][:20]!r}, …) was taken as row labels"
        )
        found.notes.append(f"{what} {shown} and left out (--set keep_index=yes to learn it)")
    empty = 0
    while rows and empty < width - 1 and all(row[-1 - empty] == "" for row in rows) and (names is None or names[-1 - empty] == ""):
        empty += 1
    if empty:
        found.left_out.extend(range(width - empty, width))
        found.notes.append("an empty last column was left out" if empty == 1 else f"{empty} empty last columns were left out")
