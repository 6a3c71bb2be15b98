"""What a monitor says."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np


class Update(NamedTuple):
    """What a monitor says of some rows, each field an array with one entry a row; of one row, plain values."""

    t2: Any
    """T² by the model before the row; NaN before it has seen enough rows to have one."""
    spe: Any
    """SPE by the model before the row; NaN likewise."""
    t2_limit: Any
    """What T² exceeds with probability alpha; NaN before there are enough rows."""
    spe_limit: Any
    """What the SPE exceeds with probability alpha; NaN before there are enough rows."""
    outlier: Any
    """Whether a limit is exceeded. A limit that is NaN is not."""
    drift: Any
    """"" or, where this row has raised an alarm, what has changed: "mean", "spread" or "direction"."""


class Alarm(NamedTuple):
    """A change in the stream."""

    row: int
    """The row that raised it, counted from 0 over all rows that the monitor was given."""
    kind: str
    """"mean", "spread" or "direction"."""
    chart: str
    """What found it: "spe", "t2" or "subspace"."""
    since: int
    """How many rows, up to that one, are thought to come after the change."""


def unknown(n: int) -> Update:
    """Of n rows of which nothing is known."""
    t2, spe, t2_limit, spe_limit = np.full((4, n), math.nan)
    return Update(t2, spe, t2_limit, spe_limit, np.zeros(n, dtype=bool), np.full(n, "", dtype="<U9"))
