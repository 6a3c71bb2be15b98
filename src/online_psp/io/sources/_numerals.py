"""Numbers as text: what is one, what it is, and which signs a file writes for decimals and thousands."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from online_psp.engine.types import Array
from online_psp.io.sources._source import UnknownSourceError

NA = frozenset(
    ["", "NA", "na", "N/A", "n/a", "#N/A", "#NA", "#N/A N/A", "<NA>", "NaN", "nan", "-nan", "-NaN", "NULL", "null", "None", "\\N",
     "1.#QNAN", "-1.#QNAN", "1.#IND", "-1.#IND"]
)  # fmt: skip
THOUSANDS = ",.' \u00a0\u202f"
_NUMBER = re.compile(
    r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(\d+\.\d*|\.\d+)[dD][+-]\d+|[+-]?(inf|infinity|nan)", re.IGNORECASE | re.ASCII
)  # 1.5D+02 is how Fortran writes double precision
FORTRAN = r"^([+-]?[0-9]*\.[0-9]*)[dD]([+-][0-9]+)$"
_FORTRAN = re.compile(FORTRAN)
_COMMA_NUMBER = re.compile(r"[+-]?(\d+,\d+|,\d+|\d+,?)([eE][+-]?\d+)?", re.ASCII)
_ONE_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?", re.ASCII)
_WORDS = {"true": "1", "false": "0"}
_EITHER = {sign: re.compile(rf"[+-]?[1-9]\d{{0,2}}\{sign}\d{{3}}", re.ASCII) for sign in ",."}  # 1,234 is 1234 or 1.234
_SHORT = re.compile(r"[+-]?\d{1,3}", re.ASCII)
_PLACEHOLDERS = frozenset(sign * (10.0**digits - 1) for sign in (-1, 1) for digits in range(2, 7)) | {-999.25, -9999.25, -9999.9, -999.9}
_WITH_UNIT = re.compile(r"[+-]?[$€£¥]\s*[+-]?\d[\d.,' ]*|[+-]?[\d.,' ]*\d\s*[%‰°$€£¥][CF]?", re.ASCII)
_EVEN_ROWS = 10  # so many rows that go up by the same step are no accident
_MOST_CELLS = 2000  # to look at
_ACCIDENTS = 4  # cells with a space in the middle of a number that are one too many, and no way of writing thousands


class Signs(NamedTuple):
    """How numbers are written."""

    decimal: str = "."
    thousands: str | None = None


USUAL = Signs()


def grouping(signs: Signs) -> str:
    """A pattern of the numbers that have thousands set apart, for engines that know no look-around."""
    sign, decimal = re.escape(signs.thousands or ""), re.escape(signs.decimal)
    return rf"^[+-]?[0-9]{{1,3}}({sign}[0-9]{{3}})+({decimal}[0-9]*)?$"


_GROUPED = {
    Signs(decimal, thousands): re.compile(grouping(Signs(decimal, thousands)))
    for thousands in THOUSANDS
    for decimal in ".,"
    if thousands != decimal
}


def is_number(cell: str, signs: Signs = USUAL) -> bool:
    """Whether a cell has a number in it, or one of the words true and false."""
    pattern = _COMMA_NUMBER if signs.decimal == "," else _NUMBER
    return bool(pattern.fullmatch(cell)) or cell.lower() in _WORDS or (signs in _GROUPED and bool(_GROUPED[signs].match(cell)))


def number(cell: str, signs: Signs = USUAL) -> float:
    """The number in a cell for which `is_number` holds."""
    cell = _WORDS.get(cell.lower(), cell)
    if signs.thousands is not None:
        cell = cell.replace(signs.thousands, "")
    cell = cell.replace(",", ".") if signs.decimal == "," else cell
    return float(cell if "d" not in cell.lower() else _FORTRAN.sub(r"\1e\2", cell))


def may_be_number(cell: str) -> bool:
    """Whether a cell has a number in it by any way of writing numbers."""
    return (
        is_number(cell)
        or bool(_COMMA_NUMBER.fullmatch(cell))
        or (cell[-1:].isdigit() and any(pattern.match(cell) for pattern in _GROUPED.values()))
    )


def is_decimal_comma(cell: str) -> bool:
    """Whether a cell is a number with one comma in it."""
    return bool(_ONE_COMMA.fullmatch(cell))


def has_unit(cell: str) -> bool:
    """Whether a cell is a number with a sign before or after it, such as $5 or 5 %."""
    return bool(_WITH_UNIT.fullmatch(cell))


def counts_evenly(rows: Sequence[list[str]], at: int, signs: Signs) -> bool:
    """Whether a column has numbers that go up by the same step from row to row, as row numbers and times do."""
    if len(rows) < _EVEN_ROWS:
        return False
    for few in (rows[:3], rows):  # most columns are told by three rows
        if not all(is_number(row[at], signs) for row in few):
            return False
        values = [number(row[at], signs) for row in few]
        step = values[1] - values[0]
        if not step > 0 or any(not abs(two - one - step) <= 1e-6 * step for one, two in itertools.pairwise(values)):
            return False
    return True


def signs_of(
    rows: Sequence[list[str]], delimiter: str, decimal: str | None, thousands: str | None, name: str, warnings: list[str]
) -> Signs:
    """The signs by which most cells of the first rows are numbers.

    Parameters
    ----------
    delimiter : str
        Between the cells; empty where there is one column.
    decimal, thousands : str, optional
        What the user said.
    warnings : list of str
        Gets a sentence where numbers might be read in another way.
    """
    if thousands is not None:
        return Signs(decimal or ("," if thousands == "." else "."), thousands)
    cells = [cell for row in rows for cell in row]
    found = _most_read(cells, [Signs(sign) for sign in ".," if decimal in (None, sign)])
    if decimal is None and found.thousands is None and _either(cells, found.decimal, delimiter):
        example = next(cell for cell in cells if _EITHER[found.decimal].fullmatch(cell))
        two = f"{example!r} may be {re.sub(r'[^0-9-]', '', example)} or {example.replace(',', '.')}"
        if found.decimal == "," or _short_and_long(rows):
            raise UnknownSourceError(f"{name}: {two}; say which: --thousands {found.decimal} or --decimal {found.decimal}")
        warnings.append(f"{two}, and was read as the second (--thousands {found.decimal} for the first)")
    return found


def _short_and_long(rows: Sequence[list[str]]) -> bool:
    """Whether a column has both 987 and 1.234, as numbers around a thousand would be written, and those with three decimals never are."""
    for column in itertools.zip_longest(*rows, fillvalue=""):
        if any(map(_SHORT.fullmatch, column)) and any(map(_EITHER["."].fullmatch, column)):
            return True
    return False


def _most_read(cells: Sequence[str], plain: list[Signs]) -> Signs:
    """Of all signs, those by which most cells are numbers; the plain ones, unless others read more."""
    having = [cell for cell in cells if any(map(str.isdigit, cell))]
    odd = [cell for cell in having if not is_number(cell, plain[0]) and may_be_number(cell)]
    if not odd:
        return plain[0]
    looked_at = [*odd[:_MOST_CELLS], *having[:_MOST_CELLS]]
    scores = {signs: sum(is_number(cell, signs) for cell in looked_at) for signs in plain}
    best = max(plain, key=scores.__getitem__)
    for signs in _GROUPED:
        if Signs(signs.decimal) in plain:
            more = sum(is_number(cell, signs) for cell in looked_at) - max(scores.values())
            if more > (0 if signs.thousands in (",", ".") else _ACCIDENTS):
                scores[signs], best = max(scores.values()) + more, signs
    return best


def _either(cells: Sequence[str], sign: str, delimiter: str) -> bool:
    """Whether every number with this sign in it could have it for thousands; semicolons go with decimal commas, and commas with points."""
    if delimiter == ";" if sign == "," else delimiter != ";":
        return False
    having = [cell for cell in cells if sign in cell and may_be_number(cell)]
    return bool(having) and all(_EITHER[sign].fullmatch(cell) for cell in having)


def placeholder(rows: Array) -> tuple[int, float] | None:
    """A column, and the -999 or the like in it that is far from all its other values."""
    for value in {rows.min(), rows.max()} & _PLACEHOLDERS if rows.size else ():
        for at in np.flatnonzero((rows == value).any(axis=0)):
            others = rows[rows[:, at] != value, at]
            if len(others) and np.abs(others - value).min() > 5 * np.ptp(others):
                return int(at), float(value)
    return None
