"""What a text file is like: encoding, delimiter, decimal sign, comments, lines before the table, names, row numbers.

All of it is told from the first lines, may be overruled by an option, and is announced in `Source.notes`.
"""

from __future__ import annotations

import codecs
import csv
import itertools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from online_psp.io.sources._source import EmptySourceError, SourceError, UnknownSourceError

NA = frozenset(
    ["", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "-nan", "-NaN", "NULL", "null", "None", "1.#QNAN", "-1.#IND"]
)  # fmt: skip
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"), (codecs.BOM_UTF16_LE, "utf-16"),
         (codecs.BOM_UTF16_BE, "utf-16"))  # fmt: skip
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(inf|infinity|nan)", re.IGNORECASE | re.ASCII)
_COMMA_NUMBER = re.compile(r"[+-]?(\d+,\d+|,\d+|\d+,?)([eE][+-]?\d+)?", re.ASCII)
_ONE_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?", re.ASCII)
_WORDS = {"true": "1", "false": "0"}
_SHOWN = {"\t": "tab", " ": "whitespace"}
WHITESPACE = " "
MOST_LEAD = 50
_SURE_ROWS = 20  # so many rows that none of them counts up is no accident
_PREFIX, _CELLS = 20_000, 1000  # of a line, for finding out what its delimiter is


class TextOptions(NamedTuple):
    """What the user says about text; None is for finding out."""

    header: bool | None = None
    delimiter: str | None = None
    decimal: str | None = None
    na_values: Sequence[str] | None = None
    comment: str | None = None
    skip_rows: int | None = None
    encoding: str | None = None
    keep_index: bool | None = None


@dataclass(frozen=True)
class Dialect:
    """How a text file is read."""

    delimiter: str
    decimal: str = "."
    comment: str | None = None
    encoding: str = "utf-8"
    lead: int = 0
    """Lines before the first row, the one with the names included."""
    width: int = 1
    """Cells in a line."""
    names: list[str] | None = None
    """Of all the cells of a line."""
    header: bool = False
    left_out: tuple[int, ...] = ()
    """Columns that are not data: row numbers, labels, an empty last one."""
    text: tuple[int, ...] = ()
    """Columns that are not numbers in any of the first rows."""
    na: frozenset[str] = NA
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def is_number(cell: str, decimal: str = ".") -> bool:
    """Whether a cell has a number in it, or one of the words true and false."""
    if decimal == ",":
        return bool(_COMMA_NUMBER.fullmatch(cell)) or cell.lower() in _WORDS
    return bool(_NUMBER.fullmatch(cell)) or cell.lower() in _WORDS


def number(cell: str, decimal: str = ".") -> float:
    """The number in a cell for which `is_number` holds."""
    cell = _WORDS.get(cell.lower(), cell)
    return float(cell.replace(",", ".") if decimal == "," else cell)


def split(line: str, delimiter: str) -> list[str]:
    """The cells of a line."""
    if delimiter == WHITESPACE:
        return next(csv.reader([" ".join(line.split())], delimiter=" ")) if '"' in line else line.split()
    if '"' not in line:
        return [cell.strip() for cell in line.split(delimiter)]
    return [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter, skipinitialspace=True))]


def encoding_of(head: bytes, wanted: str | None, name: str, whole: bool) -> tuple[str, str | None]:
    """The encoding that the first bytes are in, and a note where it is not UTF-8."""
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
        raise SourceError(f"{name} has zero bytes in it: it is not text, or of an encoding that must be named (--encoding utf-16-le, …).")
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head, whole)
    except UnicodeDecodeError:
        return "cp1252", "encoding cp1252 (Windows), since it is not UTF-8"
    return "utf-8", None


def sniff(lines: Sequence[str], options: TextOptions, name: str, usual: str) -> Dialect:
    """What the first lines tell.

    Parameters
    ----------
    lines : sequence of str
        Without their ends; blank ones included.
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
    numbered = [
        (at, line) for at, line in enumerate(lines[skip:], skip) if line.strip() and not (comment and line.lstrip().startswith(comment))
    ]
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
        table, passed = _after_lead(table)
        if passed:
            notes.append(f"{passed} line{'s' if passed != 1 else ''} before the table skipped (--skip-rows)")
    decimal = options.decimal or _decimal([cells for _, cells in table])
    if decimal not in (".", ",") or decimal == delimiter == ",":
        if decimal not in (".", ","):
            raise UnknownSourceError(f"The decimal sign is . or ,; got {decimal!r}.")
        if options.delimiter is not None and options.decimal is not None:
            raise UnknownSourceError("The delimiter and the decimal sign are both a comma.")
    na = NA | frozenset(options.na_values or ())
    comment_names = _names_in_comment(lines, table[0][0], comment, delimiter, len(table[0][1])) if options.header is None else None
    return _described(table, options, Dialect(delimiter, decimal, comment, na=na, notes=notes), comment_names, name)


def _comment(lines: Sequence[str], wanted: str | None) -> str | None:
    if wanted is not None:
        return wanted or None
    first = next((line.lstrip() for line in lines if line.strip()), "")
    return next((sign for sign in ("#", "%") if first.startswith(sign)), None)


def _delimiter(lines: list[str], usual: str) -> str:
    """The one that cuts most lines into equally many cells, most of them numbers; where none cuts them, there is one column."""
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
        numbers = sum(is_number(cell) or (candidate != "," and is_number(cell, ",")) or cell in NA for cell in cells)
        found = (round(numbers / max(1, len(cells)) * times / len(tables), 2), float(candidate != WHITESPACE), candidate == usual)
        if found > score:
            best, score = candidate, found
    return best


def _is_decimal_column(lines: list[str]) -> bool:
    """Numbers such as 1,5 below one name, or among numbers without a comma: a column with decimal commas, and not two columns."""
    bare = [line.strip() for line in lines]
    named = not is_number(bare[0]) and not is_number(bare[0], ",") and "," not in bare[0]
    rows = bare[1:] if named else bare
    commas = sum("," in row for row in rows)
    return 0 < commas and (named or commas < len(rows)) and all(is_number(row) or _ONE_COMMA.fullmatch(row) for row in rows)


def _after_lead(table: list[tuple[int, list[str]]]) -> tuple[list[tuple[int, list[str]]], int]:
    """Without the lines of words that come before the table, and how many those are."""
    count = Counter(len(cells) for _, cells in table[-100:]).most_common(1)[0][0]
    first = next((i for i, (_, cells) in enumerate(table) if len(cells) in (count, count - 1) and count > 1), 0)
    lead = table[:first]
    if not lead or len(lead) > MOST_LEAD or count < 2 or any(is_number(cell) for _, cells in lead for cell in cells[:1] if len(cells) > 1):
        return table, 0
    if any(all(is_number(cell) for cell in cells) for _, cells in lead):
        return table, 0
    return table[first:], len(lead)


def _decimal(rows: list[list[str]]) -> str:
    cells = [cell for row in rows for cell in row]
    commas = sum(bool(_ONE_COMMA.fullmatch(cell)) for cell in cells)
    points = sum("." in cell and is_number(cell) for cell in cells)
    return "," if commas > 0 and points == 0 else "."


def _names_in_comment(lines: Sequence[str], first: int, comment: str | None, delimiter: str, width: int) -> list[str] | None:
    """``# a,b,c`` just before the rows, as `numpy.savetxt` and many instruments write names."""
    if comment is None or first == 0 or not lines[first - 1].lstrip().startswith(comment):
        return None
    cells = split(lines[first - 1].lstrip()[len(comment) :].strip(), delimiter)
    return cells if len(cells) == width and not any(is_number(cell) for cell in cells) and all(cells) else None


def _described(table: list[tuple[int, list[str]]], options: TextOptions, known: Dialect, above: list[str] | None, name: str) -> Dialect:
    """Names, row numbers and columns of text."""
    first, rows = table[0][1], [cells for _, cells in table[1:]]
    notes, warnings = known.notes, known.warnings
    width = Counter(map(len, rows)).most_common(1)[0][0] if rows else len(first)
    header = options.header
    if header is None and above is None:
        header = _has_names(first, [row for row in rows if len(row) == width], known, notes)
    names = (first if header else above) or None
    if names is not None and not header:
        notes.append("names taken from the comment before the first row (--no-header to leave them)")
    if not header:
        width = Counter(map(len, [first, *rows])).most_common(1)[0][0]
    data = [row for row in (rows if header else [first, *rows]) if len(row) == width]
    left_out: list[int] = []
    if header and len(first) == width - 1 and all(row[-1] == "" for row in data):
        names = [*first, ""]  # rows end in a delimiter
    elif header and len(first) == width - 1:
        names = ["", *first]  # as R's write.table does
    elif header and len(first) == width + 1 and first[-1] == "":
        names = first[:-1]
    elif header and len(first) != width:
        width = len(first)  # the rows that do not fit it are bad rows
        data = [row for row in rows if len(row) == width]
    if names is not None and data and width > 1:
        left_out = _row_numbers(names, data, known, options.keep_index, notes, warnings)
    if width > 1 and data and all(row[-1] == "" for row in data) and (names is None or names[-1] == ""):
        left_out.append(width - 1)
        notes.append("an empty last column, after a delimiter at the end of each line, was left out")
    text = tuple(
        at
        for at in range(width)
        if at not in left_out and data and not any(is_number(row[at], known.decimal) or row[at] in known.na for row in data)
    )
    shown = _SHOWN.get(known.delimiter, known.delimiter)
    decimal = ", decimal ','" if known.decimal == "," else ""
    notes.insert(0, f"delimiter {shown!r}{decimal}")
    if known.comment:
        notes.append(f"lines that begin with {known.comment!r} are comments")
    return Dialect(
        known.delimiter, known.decimal, known.comment, known.encoding, table[0][0] + (1 if header else 0), width,
        names, bool(header), tuple(left_out), text, known.na, notes, warnings,
    )  # fmt: skip


def _has_names(first: list[str], rows: list[list[str]], known: Dialect, notes: list[str]) -> bool:
    """Whether the first line has names: some cell of it is text where the cells below are numbers, or it counts up and they do not."""
    words = [cell for cell in first if not is_number(cell, known.decimal) and cell not in known.na]
    if len(first) > 0 and not words:
        return _counts_up(first, rows, notes)
    if not rows or len(words) == len(first):
        return True
    if len(first) == len(rows[0]) - 1:
        return True
    shared = range(min(len(first), *(len(row) for row in rows)))
    return any(first[at] in words and any(is_number(row[at], known.decimal) for row in rows) for at in shared) or not any(
        is_number(first[at], known.decimal) for at in shared
    )


def _counts_up(first: list[str], rows: list[list[str]], notes: list[str]) -> bool:
    """2019, 2020, 2021 as names: whole numbers that grow, above rows that do not."""
    unnamed = first[:1] == [""]
    cells = first[1:] if unnamed else first
    if not rows or not _growing(cells) or (len(cells) < 3 and not unnamed):
        return False
    below = [row[1:] if unnamed else row for row in rows]
    if any(_growing(row) for row in below) or cells[0].startswith("-"):
        return False
    steps = {int(two) - int(one) for one, two in itertools.pairwise(cells)}
    fractions = any(not re.fullmatch(r"-?\d+", cell) for row in below for cell in row)
    likely = unnamed or steps == {1} or (len(steps) == 1 and fractions)
    if not likely and len(rows) < _SURE_ROWS:
        return False
    notes.append(f"the first line ({', '.join(cells[:3])}, …) counts up and was taken as names (--no-header to learn it)")
    return True


def _growing(cells: Sequence[str]) -> bool:
    if not cells or not all(re.fullmatch(r"-?\d+", cell) for cell in cells):
        return False
    values = [int(cell) for cell in cells]
    return all(one < two for one, two in itertools.pairwise(values))


def _row_numbers(
    names: list[str], rows: list[list[str]], known: Dialect, keep: bool | None, notes: list[str], warnings: list[str]
) -> list[int]:
    """[0] where the first column only numbers or labels the rows."""
    if names[0] != "" and not re.fullmatch(r"Unnamed: 0(\.\d+)?", names[0]):
        return []
    column = [row[0] for row in rows]
    whole = all(re.fullmatch(r"\d+", cell) for cell in column)
    values = [int(cell) for cell in column] if whole else []
    if whole and all(one < two for one, two in itertools.pairwise(values)) and (len(values) > 1 or values[0] in (0, 1)):
        what = f"an unnamed first column {', '.join(column[:3])}, … was taken as row numbers"
    elif not any(is_number(cell, known.decimal) for cell in column):
        what = f"an unnamed first column of text ({column[0][:20]!r}, …) was taken as row labels"
    else:
        warnings.append("the first column has no name and is learned as a feature (--exclude 0 to leave it out)")
        return []
    if keep:
        return []
    notes.append(f"{what} and left out (--keep-index to learn it)")
    return [0]
