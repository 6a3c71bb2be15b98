"""Numbers as text."""

from __future__ import annotations

import re
from typing import NamedTuple

NA = frozenset(
    ["", "NA", "na", "N/A", "n/a", "#N/A", "#NA", "#N/A N/A", "<NA>", "NaN", "nan", "-nan", "-NaN", "NULL", "null", "None", "\\N",
     "1.#QNAN", "-1.#QNAN", "1.#IND", "-1.#IND"]
)  # fmt: skip
THOUSANDS = ",.' \u00a0\u202f\u2009\u2019"
_MINUS = str.maketrans("\u2212\u2013", "--", "\ufeff")  # Unicode's minus, the dash of word processors, and marks of joined files
_NUMBER = re.compile(
    r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(\d+\.\d*|\.\d+)[dD][+-]\d+|[+-]?(inf|infinity|nan)", re.IGNORECASE | re.ASCII
)  # 1.5D+02 is how Fortran writes double precision
_WORDS = {"true": 1.0, "false": 0.0}


class Signs(NamedTuple):
    """How numbers are written."""

    decimal: str = "."
    thousands: str | None = None

    def number(self, cell: str) -> float | None:
        """The number in a cell; None if it is something else. ``true`` and ``false`` are 1 and 0."""
        cell = cell if cell.isascii() else cell.translate(_MINUS)
        if self.thousands is not None and self.thousands in cell:
            whole, point, fraction = cell.partition(self.decimal)
            if not re.fullmatch(r"[+-]?\d{1,3}(S\d{2,3})*S\d{3}".replace("S", re.escape(self.thousands)), whole, re.ASCII):
                return None  # two digits between signs are how India writes them
            cell = whole.replace(self.thousands, "") + point + fraction
        if self.decimal == ",":
            cell = "." if "." in cell else cell.replace(",", ".")
        if _NUMBER.fullmatch(cell):
            return float(cell.replace("d", "e").replace("D", "e"))
        return _WORDS.get(cell.lower())

    def is_text(self, cell: str, na: frozenset[str] = NA) -> bool:
        """Whether a cell is neither a number nor a missing value."""
        return cell not in na and self.number(cell) is None


POINT, COMMA = Signs("."), Signs(",")


def may_be_number(cell: str) -> bool:
    """Whether a cell is a number with a decimal point or a decimal comma."""
    return POINT.number(cell) is not None or COMMA.number(cell) is not None
