"""What a monitor returns: scores and alarms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np


class Update(NamedTuple):
    """What a monitor says about some rows: each field is an array with one entry per row, or a plain value for one row."""

    t2: Any
    """T² by the model before the row; NaN until there are enough rows."""
    spe: Any
    """SPE by the model before the row; NaN until there are enough rows."""
    t2_limit: Any
    """Limit that an ordinary T² exceeds with probability alpha; NaN until there are enough rows."""
    spe_limit: Any
    """Limit that an ordinary SPE exceeds with probability alpha; NaN until there are enough rows."""
    outlier: Any
    """Whether a limit is exceeded; False while limits are NaN."""
    drift: Any
    """What has changed, if this row has raised an alarm: "mean", "spread" or "direction"; otherwise ""."""


class Alarm(NamedTuple):
    """A change in the stream."""

    row: int
    """Number of the row that raised it, from 0, over all rows that the monitor was given."""
    kind: str
    """"mean", "spread" or "direction"."""
    chart: str
    """Where it was found: "t2" within the subspace, "spe" outside it, "subspace" if the subspace itself turns."""
    since: int
    """Estimated number of rows since the change, up to that row."""
    features: tuple[tuple[int, float], ...] = ()
    """The features that have changed most, largest first: number of each, and its share in the change."""
    label: str = ""
    """What the row is known by, if it was given a label: file and row, time, IDs."""
    moved: tuple[str, int] = ("all", 0)
    """What has moved: ("component", k), ("feature", j), or ("all", 0) for everything on that chart."""
    change: float | None = None
    """By how much: for a mean in deviations, of a feature's in those around the model; for a spread the ratio of the deviations; for a
    component's direction in degrees; None if that cannot be told."""


def shares(alarm: Alarm, names: Sequence[str] | None) -> str:
    """The leading features of an alarm in words: ``temperature 71 %, pressure 20 %``."""
    return ", ".join(f"{_name(i, names)} {100 * share:.0f} %" for i, share in alarm.features)


def moved(alarm: Alarm, names: Sequence[str] | None) -> str:
    """What has moved and by how much: ``component 2 by +1.1 sd``."""
    part, i = alarm.moved
    within = {"t2": "scores", "spe": "residuals", "subspace": "subspace"}[alarm.chart]
    what = within if part == "all" else _name(i, names) if part == "feature" else f"component {i + 1}"
    if alarm.change is None:
        return what
    by = {"mean": f"by {alarm.change:+.2g} sd", "spread": f"sd × {alarm.change:.2g}", "direction": f"by {alarm.change:.0f}°"}
    return f"{what} {by[alarm.kind]}"


def _name(i: int, names: Sequence[str] | None) -> str:
    return f"feature {i}" if names is None else names[i]


def in_words(alarm: Alarm, names: Sequence[str] | None) -> str:
    """An alarm in one line."""
    where = alarm.label or f"row {alarm.row + 1:,}"
    what = f" ({shares(alarm, names)})" if alarm.features else ""
    return f"{alarm.kind} at {where}, {alarm.since:,} rows after the change: {moved(alarm, names)}{what}"


def unknown(n: int) -> Update:
    """The result for n rows about which nothing is known."""
    t2, spe, t2_limit, spe_limit = np.full((4, n), math.nan)
    return Update(t2, spe, t2_limit, spe_limit, np.zeros(n, dtype=bool), np.full(n, "", dtype="<U9"))
