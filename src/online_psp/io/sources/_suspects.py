"""Columns of numbers that are probably not features: row numbers, times, dates, labels, and numbers that stand for missing values.

They are learned all the same, with a warning: only the user knows what they are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from online_psp.engine.types import Array

MOST_SAID = 3  # most warnings about columns of one source
_FEWEST_ROWS = 10  # this many rows that go up by the same step are no accident
_LABEL = re.compile(
    r"(.*[_ .-])?(id|uuid|guid)|index|idx|timestamp|epoch|date|datetime|row_?(nr|num|number)?|zip_?code|post_?code", re.IGNORECASE
)
_CAMEL_LABEL = re.compile(r".*[a-z]I[dD]")
_UNIX = ((9e8, 2.2e9), (9e11, 2.2e12), (9e14, 2.2e15), (9e17, 2.2e18))  # seconds to nanoseconds, from 1998 to 2039
_PLACEHOLDERS = frozenset(sign * (10.0**digits - 1) for sign in (-1, 1) for digits in range(2, 7)) | {-999.25, -9999.25, -9999.9, -999.9}
_TOTAL = re.compile(r"(grand |sub)?total|sums?|mean|average|summe|gesamt(summe)?|mittelwert|somme|moyenne|totale|media", re.IGNORECASE)


def suspicion(name: str | None, values: Array, shown: Sequence[str] | None = None) -> str | None:
    """Why a column is probably not a feature, for a warning; None if nothing speaks against it.

    Parameters
    ----------
    values : (n,)
        Its values in the first rows.
    shown : sequence of str, optional
        The first values as the file has them.
    """
    if not len(values) or not np.isfinite(values).all():
        return None
    example = ", ".join(shown or [f"{value:.15g}" for value in values[:3]])
    label = f"has whole numbers ({example}, …) that are labels, by its name" if _is_label(name) else None
    if len(values) < _FEWEST_ROWS:
        return label if (values == np.floor(values)).all() else None
    steps = np.diff(values)
    if steps[0] > 0 and (np.abs(steps - steps[0]) <= 1e-6 * steps[0]).all():
        return f"counts evenly ({example}, …), as row numbers and times do"
    if (values != np.floor(values)).any() or values.min() == values.max():
        return None
    what = None
    if _are_dates(values):
        what = f"has dates ({example}, …)"
    elif (steps > 0).all() and any(low < values[0] and values[-1] < high for low, high in _UNIX):
        what = f"has times ({example}, …)"
    return what or label


def _is_label(name: str | None) -> bool:
    return name is not None and bool(_LABEL.fullmatch(name) or _CAMEL_LABEL.fullmatch(name))


def may_be_suspect(name: str | None, first: Array) -> bool:
    """Whether the first two or three values of a column leave room for suspicion; a quick check, for tables of very many columns."""
    if _is_label(name):
        return True
    steps = np.diff(first)
    return bool((steps > 0).all() or _are_dates(first))


def warning(column: str, number: int, why: str) -> str:
    """The sentence about a column; `column` is how messages name it."""
    return f"{column} {why}, and is taken as a feature (--exclude {number} to leave it out)"


def _are_dates(values: Array) -> bool:
    """Whether all values are dates such as 20260131."""
    if not ((values >= 19000101) & (values <= 21001231)).all():
        return False
    month, day = values // 100 % 100, values % 100
    return bool(((month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)).all())


def placeholder(rows: Array) -> tuple[int, float] | None:
    """A column, and a value in it such as -999 that is far from all its other values; None if there is none."""
    for value in {rows.min(), rows.max()} & _PLACEHOLDERS if rows.size else ():
        for at in np.flatnonzero((rows == value).any(axis=0)):
            others = rows[rows[:, at] != value, at]
            if len(others) and np.abs(others - value).min() > 5 * np.ptp(others):
                return int(at), float(value)
    return None


def is_total(cell: str) -> bool:
    """Whether a label names a line of sums or means, as people write them below a table."""
    return bool(_TOTAL.fullmatch(cell.strip(" :")))
