"""Numbers as text: recognises and converts them, and finds the signs that a file uses for decimals and thousands."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple

from online_psp.io.sources._source import UnknownSourceError

NA = frozenset(
    ["", "NA", "na", "N/A", "n/a", "#N/A", "#NA", "#N/A N/A", "<NA>", "NaN", "nan", "-nan", "-NaN", "NULL", "null", "None", "\\N",
     "1.#QNAN", "-1.#QNAN", "1.#IND", "-1.#IND"]
)  # fmt: skip
THOUSANDS = ",.' \u00a0\u202f\u2009\u2019"
MINUS = "\u2212\u2013"  # the minus sign of Unicode, and the en dash that word processors write for it
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
_UNIT = r"[%‰°$€£¥][CF]?|[A-Za-zµμΩ]{1,4}([/²³][A-Za-z²³]{0,3})?"
_WITH_UNIT = re.compile(rf"[+-]?(?P<before>[$€£¥])\s*[+-]?\d[\d.,' ]*|[+-]?[\d.,' ]*\d([eE][+-]?\d+)?\s*(?P<after>{_UNIT})", re.ASCII)
_MOST_UNITS = 3  # different units in a column; a column with more is text
_MOST_CELLS = 2000  # cells to look at
_ACCIDENTS = 4  # up to this many numbers with such a sign may be accidents, such as a stray space, and no way of writing thousands


class Signs(NamedTuple):
    """How numbers are written."""

    decimal: str = "."
    thousands: str | None = None


USUAL = Signs()


def grouping(signs: Signs) -> str:
    """A regular expression for numbers with separated thousands, without look-around, which some engines do not know."""
    sign, decimal = re.escape(signs.thousands or ""), re.escape(signs.decimal)
    lakhs = rf"({sign}[0-9]{{2,3}})*{sign}[0-9]{{3}}"  # 12,34,567 in India
    groups = lakhs if signs.thousands == "," else rf"({sign}[0-9]{{3}})+"
    return rf"^[+-]?[0-9]{{1,3}}{groups}({decimal}[0-9]*)?$"


_GROUPED = {
    Signs(decimal, thousands): re.compile(grouping(Signs(decimal, thousands)))
    for thousands in THOUSANDS
    for decimal in ".,"
    if thousands != decimal
}


def is_number(cell: str, signs: Signs = USUAL) -> bool:
    """Whether a cell is a number, or one of the words true and false."""
    cell = cell if cell.isascii() else _ascii_minus(cell)
    pattern = _COMMA_NUMBER if signs.decimal == "," else _NUMBER
    return bool(pattern.fullmatch(cell)) or cell.lower() in _WORDS or (signs in _GROUPED and bool(_GROUPED[signs].match(cell)))


def number(cell: str, signs: Signs = USUAL) -> float:
    """The number in a cell for which `is_number` holds."""
    cell = cell if cell.isascii() else _ascii_minus(cell)
    cell = _WORDS.get(cell.lower(), cell)
    if signs.thousands is not None:
        cell = cell.replace(signs.thousands, "")
    cell = cell.replace(",", ".") if signs.decimal == "," else cell
    return float(cell if "d" not in cell.lower() else _FORTRAN.sub(r"\1e\2", cell))


def _ascii_minus(cell: str) -> str:
    """A cell with - in place of other minus signs."""
    for sign in MINUS:
        cell = cell.replace(sign, "-")
    return cell


def may_be_number(cell: str) -> bool:
    """Whether a cell is a number by any way of writing numbers."""
    return (
        is_number(cell)
        or bool(_COMMA_NUMBER.fullmatch(cell))
        or (cell[-1:].isdigit() and any(pattern.match(cell) for pattern in _GROUPED.values()))
    )


def is_decimal_comma(cell: str) -> bool:
    """Whether a cell is a number with one comma in it."""
    return bool(_ONE_COMMA.fullmatch(cell))


def unit_of(cell: str) -> str | None:
    """The unit of a number that has one before or after it, such as $5, 5 % or 5 kg; None if it has none."""
    found = _WITH_UNIT.fullmatch(cell)
    return None if found is None or _HEX.fullmatch(cell) else found["before"] or found["after"]


def have_units(cells: Sequence[str]) -> bool:
    """Whether all cells are numbers with a unit, and the units are few."""
    units = [unit_of(cell) for cell in cells]
    return bool(units) and None not in units and len(set(units)) <= _MOST_UNITS


_HEX = re.compile(r"[+-]?0[xX][0-9a-fA-F]+|(?=.*\d)[0-9a-fA-F]{3,}")
_ODD = (
    (re.compile(r"[$€£¥]?\s*\(\s*[$€£¥]?\s*\d[\d.,' ]*\)|[$€£¥]?\d[\d.,' ]*-|[+-] +\d[\d.,' ]*"), "write negative numbers as -1.5"),
    (re.compile(r"0[xX][0-9a-fA-F]+"), "write them in decimal digits"),
    (re.compile(r"=?(['\"])[+-]?[\d.,]+\1|'[+-]?[\d.,]+"), "write them without the quotation marks"),
    (re.compile(r"[+-]?\d+(_\d+)+(\.\d+)?"), "write them without the underscores"),
    (re.compile(r"\d+:[+-]?(\d+\.\d*|\.\d+)([eE][+-]?\d+)?"), "they look like svmlight, so write them as a table or as a sparse .npz"),
    (re.compile(r"[+-]?\d+/\d+"), "write fractions as decimal numbers"),
    (re.compile(r"\(?[+-]?[\d.]+[+-][\d.]+[ij]\)?"), "write complex numbers as two columns"),
    (re.compile(r"\[+\s*[+-]?[\d.]+|[+-]?[\d.]+\s*\]+"), "if each line is a list, let the file's name end in .jsonl"),
    (re.compile(r"[<>≤≥~≈]=?\s*[+-]?[\d.,]+"), "write a number in place of the bound, or a text that --na-values names"),
)
_INVISIBLE = re.compile("[\u200b-\u200f\u2060\ufeff\u00ad]")


def advice(cell: str) -> str | None:
    """What to do about a number that is written in a way that cannot be read; None if the cell is other text."""
    if _INVISIBLE.search(cell):
        return "take the invisible characters away" if may_be_number(_INVISIBLE.sub("", cell)) else None
    if not cell.isascii() and any(each.isdecimal() and not each.isascii() for each in cell):
        return "write them with the digits 0 to 9"
    return next((what for pattern, what in _ODD if pattern.fullmatch(cell)), None)


def signs_of(
    rows: Sequence[list[str]], delimiter: str, decimal: str | None, thousands: str | None, name: str, warnings: list[str]
) -> Signs:
    """The signs for decimals and thousands with which most cells of the first rows are numbers.

    Parameters
    ----------
    delimiter : str
        Delimiter of the cells; empty if there is one column.
    decimal, thousands : str, optional
        The user's options.
    warnings : list of str
        Gets a sentence if numbers might be read in another way.
    """
    if thousands is not None:
        return Signs(decimal or ("," if thousands == "." else "."), thousands)
    cells = [cell for row in rows for cell in row]
    found = _most_read(cells, [Signs(sign) for sign in ".," if decimal in (None, sign)])
    if decimal is None and found.thousands is None and _either(cells, found.decimal, delimiter):
        example = next(cell for cell in cells if _EITHER[found.decimal].fullmatch(cell))
        two = f"{example!r} may be {re.sub(r'[^0-9-]', '', example)} or {example.replace(',', '.')}"
        if found.decimal == "," or _short_and_long(rows):
            raise UnknownSourceError(f"{name}: {two}; say which: --set thousands={found.decimal} or --set decimal={found.decimal}")
        warnings.append(f"{two}, and was read as the second (--set thousands={found.decimal} for the first)")
    return found


def _short_and_long(rows: Sequence[list[str]]) -> bool:
    """Whether a column has both 987 and 1.234: numbers around a thousand may look like this, numbers with three decimals never do."""
    for column in itertools.zip_longest(*rows, fillvalue=""):
        if any(map(_SHORT.fullmatch, column)) and any(map(_EITHER["."].fullmatch, column)):
            return True
    return False


def _most_read(cells: Sequence[str], plain: list[Signs]) -> Signs:
    """The signs with which most cells are numbers; plain ones, unless others read more cells."""
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
    """Whether every number with this sign could have it for thousands. Semicolons go with decimal commas, other delimiters with points."""
    if delimiter == ";" if sign == "," else delimiter != ";":
        return False
    having = [cell for cell in cells if sign in cell and may_be_number(cell)]
    return bool(having) and all(_EITHER[sign].fullmatch(cell) for cell in having)
