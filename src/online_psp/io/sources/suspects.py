"""Columns of numbers that are probably not features: row numbers and labels. They are learned all the same, with a warning."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import numpy as np

from online_psp.engine.types import Array

_MOST_SAID = 3  # most warnings about columns of one source
_FEWEST_ROWS = 10  # this many rows that go up by the same step are no accident
_LABEL = re.compile(
    r"(.*[_ .-])?(id|uuid|guid)|index|idx|timestamp|epoch|date|datetime|row_?(nr|num|number)?|zip_?code|post_?code", re.IGNORECASE
)
_CAMEL_LABEL = re.compile(r".*[a-z]I[dD]")


def doubts(columns: Iterable[tuple[int, str | None]], values_of: Callable[[int], Array | None]) -> list[str]:
    """Warnings about some of the columns, given as numbers and names; `values_of` gives the first values of a column of numbers."""
    found: list[str] = []
    for at, name in columns:
        values = values_of(at)
        why = None if values is None or not len(values) else _suspicion(name, values)
        if why is not None:
            named = f"column {at} ({name!r})" if name is not None else f"column {at}"
            found.append(f"{named} {why}, and is taken as a feature (--exclude {at} to leave it out)")
        if len(found) == _MOST_SAID:
            break
    return found


def _suspicion(name: str | None, values: Array) -> str | None:
    steps = np.diff(values)
    example = ", ".join(f"{value:.15g}" for value in values[:3])
    if len(values) >= _FEWEST_ROWS and steps[0] > 0 and (np.abs(steps - steps[0]) <= 1e-6 * steps[0]).all():
        return f"counts evenly ({example}, …), as row numbers and times do"
    label = name is not None and bool(_LABEL.fullmatch(name) or _CAMEL_LABEL.fullmatch(name))
    if label and (values == np.floor(values)).all() and (len(values) < _FEWEST_ROWS or np.ptp(values) > 0):
        return f"has whole numbers ({example}, …) that are labels, by its name"
    return None
