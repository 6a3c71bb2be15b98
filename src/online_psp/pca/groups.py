"""Which features have been observed together, directly or through others: groups of features that no row connects.

Nothing is known of how features of different groups vary together. Each feature has the number of its group, so that the whole takes D
numbers; rows that connect groups are few, and all others cost one look.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from online_psp.engine.types import Floats


def connect(groups: Floats, observed: NDArray[np.bool_]) -> Floats:
    """Groups after rows of which these values were observed, (n, D). The number of a group is that of its first feature."""
    if not groups.any():
        return groups
    D = len(groups)
    lowest, highest = np.where(observed, groups, D).min(axis=1, initial=D), np.where(observed, groups, -1).max(axis=1, initial=-1)
    for row in np.flatnonzero(lowest < highest):
        these = np.unique(groups[observed[row]])
        if len(these) > 1:
            groups = np.where(np.isin(groups, these), these[0], groups)
    return groups


def common(one: Floats, two: Floats) -> Floats:
    """Groups that either connects."""
    return connect(one, two == np.unique(two)[:, np.newaxis])


def strangers(groups: Floats, known: Floats) -> tuple[int, int] | None:
    """The first two features with a positive weight that are in different groups; None if there are none."""
    seen = np.flatnonzero(known > 0)
    others = seen[groups[seen] != groups[seen[0]]] if len(seen) else seen
    return (int(seen[0]), int(others[0])) if len(others) else None
