"""Mean and scatter of a stream: exact, in one pass, and mergeable.

With ``T`` the weight seen before a row of weight ``w``, and ``μ`` the mean of it, the centred row is ``x̃ = sqrt(T/(T+w)) (x − μ)``. Then
``Σ w x̃ x̃ᵀ`` is the scatter about the *final* mean, exactly: whatever learns from x̃ learns from centred data, without having known the
mean.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from online_psp.engine.compiler import kernel
from online_psp.engine.types import Array, Floats


@kernel
def center_rows(rows: Array, weights: Floats, mean: Floats, weight: float) -> tuple[float, float]:
    """Turn rows into centred rows in place, and move the mean.

    Parameters
    ----------
    rows : (n, D), changed in place
    weights : (n,), positive
    mean : (D,), changed in place
    weight : float
        Seen so far.

    Returns
    -------
    weight, scatter : float
        Seen now, and what these rows add to the trace of the scatter.
    """
    scatter = 0.0
    for i in range(rows.shape[0]):
        row, w = rows[i], weights[i]
        scale, share = np.sqrt(weight / (weight + w)), w / (weight + w)
        square = 0.0
        for j in range(row.shape[0]):
            difference = row[j] - mean[j]
            mean[j] += share * difference
            centred = scale * difference
            row[j] = centred
            square += centred * centred
        scatter += w * square
        weight += w
    return weight, scatter


class Moments(NamedTuple):
    """What is known of a stream of rows: enough to merge it with another."""

    weight: float
    """Sum of the weights of its rows; their number, where they had none."""
    mean: Floats
    """(D,)"""
    scatter: float
    """Trace of the scatter about the mean."""


def merge_moments(one: Moments, two: Moments) -> tuple[Moments, Floats]:
    """The moments of both streams together, exactly, and the row that the difference of their means adds to the scatter.

    Returns
    -------
    merged : Moments
    between : (D,)
        ``scatter = scatter_1 + scatter_2 + between betweenᵀ``.
    """
    weight = one.weight + two.weight
    difference = two.mean - one.mean
    share = two.weight / weight if weight else 0.0
    between: Floats = np.sqrt(one.weight * share) * difference
    mean = one.mean + share * difference
    return Moments(weight, mean, one.scatter + two.scatter + float(between @ between)), between
