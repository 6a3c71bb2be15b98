"""Numbers as text: recognises and converts them, and finds the signs that a file uses for decimals and thousands."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple

from online_psp.io.sources.source import UnknownSourceError

NA = frozenset(
    ["", "NA", "na", "N/A", "n/a", "#N/A", "#NA", "#N/A N/A", "<NA>", "NaN", "nan", "-nan", "-NaN", "NULL", "null", "None", "\\N",
     "1.#QNAN", "-1.#QNAN", "1.#IND", "-1.#IND"]
)  # fmt: skip
THOUSANDS = ",.' \u00a0\u202f\u2009\u2019"
_MINUS = str.maketrans(
    "\u2212\u2013", "--", "\ufeff"
)  # Unicode's minus, the dash that word processors write for it, and marks of joined files
_NUMBER = re.compile(
    r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(\d+\.\d*|\.\d+)[dD][+-]\d+|[+-]?(inf|infinity|nan)", re.IGNORECASE | re.ASCII
)  # 1.5D+02 is how Fortran writes double precision
_COMMA_NUMBER = re.compile(r"[+-]?(\d+,\d+|,\d+|\d+,?)([eE][+-]?\d+)?|[+-]?(inf|infinity|nan)", re.IGNORECASE | re.ASCII)
_ONE_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?", re.ASCII)
_WORDS = {"true": "1", "false": "0"}
_EITHER = {sign: re.compile(rf"[+-]?[1-9]\d{{0,2}}\{sign}\d{{3}}", re.ASCII) for sign in ",."}  # 1,234 is 1234 or 1.234
_SHORT = re.compile(r"[+-]?\d{1,3}", re.ASCII)
_MOST_CELLS = 2000  # cells to look at
_ACCIDENTS = 4  # up to this many numbers with such a sign may be accidents, such as a stray space, and no way of writing thousands


class Signs(NamedTuple):
    """How numbers are written."""

    decimal: str = "."
    thousands: str | None = None


USUAL = Signs()


def _grouping(signs: Signs) -> re.Pattern[str]:
    """Numbers with separated thousands."""
    sign, decimal = re.escape(signs.thousands or ""), re.escape(signs.decimal)
    lakhs = rf"({sign}[0-9]{{2,3}})*{sign}[0-9]{{3}}"  # 12,34,567 in India
    groups = lakhs if signs.thousands == "," else rf"({sign}[0-9]{{3}})+"
    return re.compile(rf"[+-]?[0-9]{{1,3}}{groups}({decimal}[0-9]*)?")


_GROUPED = {
    pair: _grouping(pair) for thousands in THOUSANDS for decimal in ".," if thousands != decimal for pair in [Signs(decimal, thousands)]
}


def is_number(cell: str, signs: Signs = USUAL) -> bool:
    """Whether a cell is a number, or one of the words true and false."""
    cell = cell if cell.isascii() else cell.translate(_MINUS)
    pattern = _COMMA_NUMBER if signs.decimal == "," else _NUMBER
    return bool(pattern.fullmatch(cell)) or cell.lower() in _WORDS or (signs in _GROUPED and bool(_GROUPED[signs].fullmatch(cell)))


def number(cell: str, signs: Signs = USUAL) -> float:
    """The number in a cell for which `is_number` holds."""
    cell = cell if cell.isascii() else cell.translate(_MINUS)
    cell = _WORDS.get(cell.lower(), cell)
    if signs.thousands is not None:
        cell = cell.replace(signs.thousands, "")
    return float(cell.replace(",", ".").replace("d", "e").replace("D", "e"))


def may_be_number(cell: str) -> bool:
    """Whether a cell is a number by any way of writing numbers."""
    return (
        is_number(cell)
        or bool(_COMMA_NUMBER.fullmatch(cell))
        or (cell[-1:].isdigit() and any(pattern.fullmatch(cell) for pattern in _GROUPED.values()))
    )


def is_decimal_comma(cell: str) -> bool:
    """Whether a cell is a number with one comma in it."""
    return bool(_ONE_COMMA.fullmatch(cell))


def signs_of(rows: Sequence[list[str]], delimiter: str, decimal: str | None, thousands: str | None, name: str) -> Signs:
    """The signs for decimals and thousands with which most cells of the first rows are numbers; plain ones, unless others read more.

    Parameters
    ----------
    delimiter : str
        Delimiter of the cells; empty if there is one column.
    decimal, thousands : str, optional
        The user's options.
    """
    if thousands is not None:
        return Signs(decimal or ("," if thousands == "." else "."), thousands)
    plain = [Signs(sign) for sign in ".," if decimal in (None, sign)]
    having = [cell for row in rows for cell in row if any(map(str.isdigit, cell))]
    odd = [cell for cell in having if not is_number(cell, plain[0]) and may_be_number(cell)]
    looked_at = [*odd[:_MOST_CELLS], *having[:_MOST_CELLS]] if odd else []
    scores = {signs: sum(is_number(cell, signs) for cell in looked_at) for signs in plain}
    best = max(plain, key=scores.__getitem__)
    most = scores[best]
    for signs in _GROUPED if odd else ():
        if Signs(signs.decimal) in plain:
            score = sum(is_number(cell, signs) for cell in looked_at)
            if score > most + (0 if signs.thousands in (",", ".") else _ACCIDENTS):
                best, most = signs, score
    sign = best.decimal
    if decimal is None and best.thousands is None and (sign == ",") != (delimiter == ";"):  # semicolons go with decimal commas
        cells = [cell for cell in having if sign in cell and may_be_number(cell)]
        if cells and all(map(_EITHER[sign].fullmatch, cells)) and (sign == "," or _short_and_long(rows)):
            two = f"{cells[0]!r} may be {cells[0].replace(sign, '')} or {cells[0].replace(',', '.')}"
            raise UnknownSourceError(f"{name}: {two}; say which: --set thousands={sign} or --set decimal={sign}")
    return best


def _short_and_long(rows: Sequence[list[str]]) -> bool:
    """Whether a column has both 987 and 1.234: numbers around a thousand may look like this, numbers with three decimals never do."""
    columns = itertools.zip_longest(*rows, fillvalue="")
    return any(any(map(_SHORT.fullmatch, column)) and any(map(_EITHER["."].fullmatch, column)) for column in columns)
