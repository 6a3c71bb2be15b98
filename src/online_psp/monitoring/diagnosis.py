"""What has changed, told from the rows since the change: the mean, the spread, or the directions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from online_psp.engine.rows import AnyRows
from online_psp.engine.types import Floats
from online_psp.monitoring.limits import SpeMoments
from online_psp.monitoring.recent import gram
from online_psp.monitoring.scores import Snapshot

MEAN, SPREAD, DIRECTION = "mean", "spread", "direction"
KINDS = (MEAN, SPREAD, DIRECTION)


def diagnose(rows: AnyRows, seen: Snapshot, moments: SpeMoments) -> str:
    """Which of the three kinds of change explains the rows since it.

    Rows that have moved together have products ``(x_i − μ)·(x_j − μ)`` that are positive in the mean: their mean over i ≠ j is the squared
    length of the move, without bias. If that is more than a third of what the rows have beyond the ordinary, it is the *mean*. If not, and
    the rows lie along few directions beside the ordinary (their squared products are large beside those of the noise), it is the
    *directions*. All else is *spread*: more or less of the same. The products are taken within the subspace or away from it, wherever the
    rows are further from the ordinary.

    Parameters
    ----------
    rows : rows
        Those since the change.
    seen : Snapshot
        The model before it.
    moments : SpeMoments
        Ordinary SPE.
    """
    n, K = len(rows), len(seen.variances)
    if n < 2:
        return SPREAD
    products, y = gram(rows, seen)
    outside, inside = products - y @ y.T, (y / seen.variances) @ y.T
    beyond_outside, beyond_inside = float(np.trace(outside)) / n - moments.mean, float(np.trace(inside)) / n - K
    away = abs(beyond_outside) * np.sqrt(2.0 * K) > abs(beyond_inside) * moments.deviation
    products, excess = (outside, beyond_outside) if away else (inside, beyond_inside)
    if excess <= 0:
        return SPREAD
    apart = ~np.eye(n, dtype=bool)
    if float(products[apart].mean()) > excess / 3:
        return MEAN
    return DIRECTION if away and _participation(products, apart) * moments.degrees > 2.0 else SPREAD


def _participation(products: Floats, apart: NDArray[np.bool_]) -> float:
    """One over the number of directions of equal variance that the rows would lie along, from their products (n, n)."""
    products = products / np.diagonal(products).max()  # their squares may be out of range
    sizes = np.diagonal(products)
    return float((products[apart] ** 2).mean() / np.outer(sizes, sizes)[apart].mean())
