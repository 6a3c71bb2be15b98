"""Which features have been observed together, directly or through others: groups of features that no row connects.

Nothing is known of how features of different groups vary together. Each feature has the number of its group, so that the whole takes D
numbers; rows that connect groups are few, and all others cost one look.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from online_psp.pca.holes import Mask

Groups = NDArray[np.intp]


def single_groups(D: int) -> Groups:
    """Groups of one feature each, (D,)."""
    return np.arange(D)


def one_group(D: int) -> Groups:
    """One group of all features, (D,)."""
    return np.zeros(D, dtype=np.intp)


def connect(groups: Groups, observed: Mask) -> Groups:
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


def common(one: Groups, two: Groups) -> Groups:
    """Groups that either connects."""
    return connect(one, two == np.unique(two)[:, np.newaxis])


def strangers_in(groups: Groups, known: NDArray[np.intp]) -> tuple[int, int] | None:
    """The first two of the known features, by number, that are in different groups; None if there are none."""
    others = known[groups[known] != groups[known[0]]] if len(known) else known
    return (int(known[0]), int(others[0])) if len(others) else None
