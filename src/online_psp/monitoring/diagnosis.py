"""Diagnosis of a change from the rows after it: has the mean changed, the spread, or the directions?"""

from __future__ import annotations

import numpy as np

from online_psp.engine.rows import AnyRows
from online_psp.engine.types import Floats
from online_psp.monitoring.limits import SpeMoments
from online_psp.monitoring.recent import gram
from online_psp.monitoring.scores import Snapshot, contributions_by

MEAN, SPREAD, DIRECTION = "mean", "spread", "direction"
_LEADING = 3  # features that an alarm names
_ENOUGH = 20  # fewest rows before the change to compare with
KINDS = (MEAN, SPREAD, DIRECTION)


def diagnose(rows: AnyRows, since: int, seen: Snapshot, moments: SpeMoments) -> str:
    """Find which of three kinds of change explains the rows after it: "mean", "spread" or "direction".

    If rows have moved together, their products ``(x_i − μ)·(x_j − μ)`` are positive on average: the mean over i ≠ j is an unbiased
    estimate of the squared length of the move. If it is more than a third of the excess of these rows over ordinary ones, the *mean* has
    changed. If not, and the part of the rows outside the subspace lies along fewer directions than before (the squared cosines between
    rows are twice as large), the *directions* have changed. Everything else is *spread*. The products are taken within the subspace or
    outside it, wherever the rows differ more from ordinary ones.

    Parameters
    ----------
    rows : rows
        The last rows.
    since : int
        Number of them that come after the change.
    seen : Snapshot
        The model before the change.
    moments : SpeMoments
        Moments of the ordinary SPE.
    """
    K = len(seen.variances)
    products, y = gram(rows, seen)
    outside, inside = products - y @ y.T, (y / seen.variances) @ y[-since:].T
    new = slice(len(rows) - since, None)
    level, deviation = _level(np.diagonal(outside)[: new.start], moments)
    beyond_outside = float(np.diagonal(outside)[new].mean()) - level
    beyond_inside = float(np.diagonal(inside[new]).mean()) - K
    away = abs(beyond_outside) * np.sqrt(2.0 * K) > abs(beyond_inside) * deviation
    moved, excess = (outside[new, new], beyond_outside) if away else (inside[new], beyond_inside)
    if excess <= 0 or since < 2:
        return SPREAD
    if float(_pairs(moved).mean()) > excess / 3:
        return MEAN
    return DIRECTION if away and _alignment(outside[new, new]) > 2.0 * _ordinary(outside[: new.start, : new.start], moments) else SPREAD


def onset(scores: Floats, since: int) -> int:
    """Number of rows since a change, at least 2 and at most `since`: where the last rows differ most from those before, as a step would.

    A detector's sum may have begun to rise before the change, and rows from before it would blur what has changed.

    Parameters
    ----------
    scores : (n,)
        log SPE or log T² of the last rows.
    since : int
        Number of them that may come after the change.
    """
    before = scores[: len(scores) - since]
    if len(before) < _ENOUGH:
        return since
    steps = np.abs(np.cumsum((scores - np.median(before))[::-1][:since])) / np.sqrt(np.arange(1, since + 1))
    return max(2, int(np.argmax(steps)) + 1)


def leading(rows: AnyRows, since: int, seen: Snapshot, score: str) -> tuple[tuple[int, float], ...]:
    """The features that have changed most, and the share of each: of what rows since the change have more of a score than those before.

    Parameters
    ----------
    rows : rows
        The last rows.
    since : int
        Number of them that come after the change.
    seen : Snapshot
        The model before the change.
    score : {"spe", "t2"}
    """
    before = len(rows) - since
    sums = np.zeros((2, rows.D))
    for i in range(len(rows)):  # sparse rows may be wide
        sums[int(i >= before)] += getattr(contributions_by(seen, rows[i : i + 1]), score)[0]
    more = np.maximum(sums[1] / since - (sums[0] / before if before else 0.0), 0.0)
    total = float(more.sum())
    if not 0.0 < total < np.inf:
        return ()
    return tuple((int(i), round(float(more[i] / total), 3)) for i in np.argsort(-more, kind="stable")[:_LEADING] if more[i] > 0)


def _level(spe: Floats, moments: SpeMoments) -> tuple[float, float]:
    """Median of the SPE before the change, and a robust deviation; from the moments if there are few rows."""
    if len(spe) < _ENOUGH:
        return moments.mean, moments.deviation
    level = float(np.median(spe))
    return level, 1.4826 * float(np.median(np.abs(spe - level)))


def _pairs(products: Floats) -> Floats:
    """Entries of a square matrix off its diagonal."""
    return np.asarray(products[~np.eye(len(products), dtype=bool)])


def _alignment(products: Floats) -> float:
    """Mean squared cosine between rows, from their products (n, n): 1/d for rows spread equally over d directions."""
    sizes = np.sqrt(np.maximum(np.diagonal(products), np.finfo(np.float64).tiny))
    return float((_pairs(products / sizes / sizes[:, np.newaxis]) ** 2).mean())


def _ordinary(products: Floats, moments: SpeMoments) -> float:
    """Alignment before the change; from the moments of the SPE if there are too few rows."""
    return _alignment(products) if len(products) >= _ENOUGH else 1.0 / moments.degrees
