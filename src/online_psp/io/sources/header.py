"""Finds out what the first lines of a text or a sheet are: remarks, names, units, rows; and which columns number the rows."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

Cells = list[str]
IsNumber = Callable[[str], bool]
MOST_LEAD = 50
_SURE_ROWS = 20  # with this many rows, it is no accident that none of them counts up
_SURE_CELLS = 8  # this many cells in a row are not sorted by accident
_WHOLE = re.compile(r"-?\d+")
_YEAR = re.compile(r"(1[89]|20)\d\d")
_RULE = re.compile(r"[-+=|: ]*[-=]{3}[-+=|: ]*")
_UNNAMED = re.compile(r"(Unnamed: \d+(_level_\d+)?(\.\d+)?)?")


class Top(NamedTuple):
    """The lines before the first row."""

    names: int | None
    """Which of these lines has the names; None if none has."""
    rows: int
    """Number of these lines."""


class Kinds(NamedTuple):
    """How numbers, missing values and text are told apart."""

    is_number: IsNumber
    na: frozenset[str]

    def is_text(self, cell: str) -> bool:
        """Whether a cell is neither a number nor a missing value."""
        return cell not in self.na and not self.is_number(cell)


def modal_width(table: Sequence[Cells]) -> int:
    """The most frequent number of cells in a line."""
    return Counter(map(len, table)).most_common(1)[0][0]


def find_top(table: Sequence[Cells], kinds: Kinds, header: bool | None, first_line: bool, notes: list[str]) -> Top:
    """Find the names and the first row.

    Parameters
    ----------
    header : bool, optional
        The user's option.
    first_line : bool
        Whether the names can only be in the first line, because the user said how many lines to skip.
    """
    if header is False:
        return Top(None, 0)
    width = modal_width(table[1:] or table)
    numeric = _numeric_columns([row for row in table[1:] if len(row) == width], kinds)
    words = list(itertools.takewhile(lambda row: _is_words(row, numeric, width, kinds), table[:MOST_LEAD]))
    if header or (numeric and words):
        words = words or [table[0]]
        most = max(_filled(row) for row in words)
        at = 0 if header or first_line else next(i for i, row in enumerate(words) if 2 * _filled(row) > most)
        if not header and not first_line:
            at += sum(1 for _ in itertools.takewhile(lambda i: _groups(words[i], words[i + 1], width), range(at, len(words) - 1)))
        units = list(itertools.takewhile(lambda row: not any(kinds.is_number(row[i]) for i in numeric if i < len(row)), words[at + 1 :]))
        if at:
            notes.append(f"{_lines(at)} before the table skipped (--set skip_rows=…)")
        if units:
            shown = ", ".join(cell[:20] for cell in units[0][:4] if cell)
            notes.append(f"{_lines(len(units))} of words below the names ({shown}, …) left out")
        return Top(at, at + 1 + len(units))
    if numeric:
        columns = sorted(numeric)
        first = [table[0][i] if i < len(table[0]) else "" for i in columns]
        below = [[row[i] for i in columns] for row in table[1:] if len(row) == width]
        return Top(0, 1) if len(table[0]) == width and _counts(first, below, table[0][0] == "", notes) else Top(None, 0)
    return Top(0, 1) if any(kinds.is_text(cell) for cell in table[0]) and _all_words(table, kinds) else Top(None, 0)


def _groups(row: Cells, below: Cells, width: int) -> bool:
    """Whether a line of words names groups of columns, with gaps or repeats, and the line below it names the columns."""
    names = below if below[:1] != [""] else below[1:]  # the first column may be an index without a name
    gaps = "" in row[1:] or len(set(row[-len(names) :])) < len(names)
    return gaps and len(below) == width and all(names) and len(set(names)) == len(names)


def _lines(count: int) -> str:
    return f"{count} line{'s' if count != 1 else ''}"


def _filled(row: Cells) -> int:
    return sum(cell != "" for cell in row)


def _numeric_columns(rows: Sequence[Cells], kinds: Kinds) -> frozenset[int]:
    """Columns with more numbers than words in them."""
    width = len(rows[0]) if rows else 0
    found = []
    for at in range(width):
        cells = [row[at] for row in rows]
        numbers = sum(map(kinds.is_number, cells))
        if numbers and (2 * numbers > len(cells) or numbers > sum(map(kinds.is_text, cells))):
            found.append(at)
    return frozenset(found)


def _is_words(row: Cells, numeric: frozenset[int], width: int, kinds: Kinds) -> bool:
    """Whether a line is not a row: it is empty, has words above numbers, or has only words and one cell more or less, as R writes names."""
    if not any(row):
        return True
    if len(row) != width:
        if len(row) == 1 and _RULE.fullmatch(row[0]):  # a line drawn below the names, as databases print it
            return True
        return abs(len(row) - width) == 1 and all(kinds.is_text(cell) or cell == "" for cell in row)
    return any(kinds.is_text(row[at]) for at in numeric)


def _all_words(table: Sequence[Cells], kinds: Kinds) -> bool:
    """Whether the first line may be names, if no column below has numbers."""
    words = [cell for cell in table[0] if kinds.is_text(cell)]
    return len(words) == len(table[0]) or not any(kinds.is_number(cell) for cell in table[0])


def _counts(cells: Cells, rows: Sequence[Cells], unnamed: bool, notes: list[str]) -> bool:
    """Whether numbers are names, such as 2019, 2020, 2021 or 400.5, 401.0, 401.5: they are in order, and the rows below are not."""
    if unnamed and cells and cells[0] == "":
        cells, rows = cells[1:], [row[1:] for row in rows]
    years = len(cells) == 2 and all(map(_YEAR.fullmatch, cells)) and abs(int(cells[0]) - int(cells[1])) == 1
    if not rows or (len(cells) < 3 and not unnamed and not years):
        return False
    if not (_names_by_year(cells, rows, unnamed) or _names_by_scale(cells, rows)):
        return False
    way = "up" if float(cells[0].replace(",", ".")) < float(cells[-1].replace(",", ".")) or len(cells) == 1 else "down"
    notes.append(f"the first line ({', '.join(cells[:3])}, …) counts {way} and was taken as names (--no-header to learn it)")
    return True


def _names_by_year(cells: Cells, rows: Sequence[Cells], unnamed: bool) -> bool:
    """Whether the names are whole numbers that grow, such as years."""
    if not _growing(cells) or any(_growing(row) for row in rows) or cells[0].startswith("-"):
        return False
    steps = {int(two) - int(one) for one, two in itertools.pairwise(cells)}
    return unnamed or steps == {1} or (len(steps) == 1 and _fractions(rows)) or len(rows) >= _SURE_ROWS


def _names_by_scale(cells: Cells, rows: Sequence[Cells]) -> bool:
    """Whether the names are years that fall, or a scale of wavelengths, times or depths: evenly spaced, or very many in order."""
    values = _values(cells)
    below = [found for found in map(_values, rows) if found is not None]
    if values is None or not _monotone(values) or not below or any(map(_monotone, below)):
        return False
    steps = [two - one for one, two in itertools.pairwise(values)]
    even = max(steps) - min(steps) <= 1e-6 * max(map(abs, values))
    if even and (len(cells) > 3 or all(map(_YEAR.fullmatch, cells))) and _fractions(rows):
        return True
    return len(cells) >= _SURE_CELLS and len(rows) >= _SURE_ROWS


def _values(cells: Cells) -> list[float] | None:
    try:
        return [float(cell.replace(",", ".")) for cell in cells]
    except ValueError:
        return None


def _monotone(values: Sequence[float]) -> bool:
    pairs = list(itertools.pairwise(values))
    return bool(pairs) and (all(one < two for one, two in pairs) or all(one > two for one, two in pairs))


def _fractions(rows: Sequence[Cells]) -> bool:
    return any(not _WHOLE.fullmatch(cell) for row in rows for cell in row)


def _growing(cells: Sequence[str]) -> bool:
    if not cells or not all(_WHOLE.fullmatch(cell) for cell in cells):
        return False
    return all(int(one) < int(two) for one, two in itertools.pairwise(cells))


def row_numbers(names: Cells, rows: Sequence[Cells], kinds: Kinds, keep: bool | None, notes: list[str], warnings: list[str]) -> list[int]:
    """The columns without a name, at the beginning, that only number or label the rows, like the index of a data frame."""
    found: list[int] = []
    for at in range(len(names) - 1):
        if not _UNNAMED.fullmatch(names[at]):
            break
        column = [row[at] for row in rows]
        place = f"an unnamed {_ORDINALS[at] if at < len(_ORDINALS) else f'{at + 1}th'} column"
        if all(re.fullmatch(r"\d+", cell) for cell in column):
            what = f"{place} {', '.join(column[:3])}, … was taken as row numbers"
        elif not any(kinds.is_number(cell) for cell in column):
            what = f"{place} of text ({column[0][:20]!r}, …) was taken as row labels"
        else:
            warnings.append(f"{place} of numbers ({column[0][:20]}, …) is learned as a feature (--exclude {at} to leave it out)")
            break
        if keep:
            break
        notes.append(f"{what} and left out (--set keep_index=yes to learn it)")
        found.append(at)
    return found


_ORDINALS = ("first", "second", "third")
