"""Turns a stream that has had no missing values into one that may have some, with all that it has learned."""

from __future__ import annotations

from typing import Any

import numpy as np

from online_psp.engine.moments import Moments, weights_left
from online_psp.engine.partial_moments import PartialMoments
from online_psp.engine.types import Array, Floats
from online_psp.pca.careful import Careful, deviations_of
from online_psp.pca.exact import Exact, ReadOut, Scatter
from online_psp.pca.pairs import Pairs
from online_psp.pca.together import one_group


def turned(careful: Careful, moments: Moments, exact: Exact | None, directions: ReadOut | None, scale: Floats | None) -> Careful:
    """Bring a learner that has seen nothing to the state of a stream.

    Parameters
    ----------
    careful : Careful
    moments : Moments
        Moments of the stream.
    exact : Kept or Scatter, optional
        Its exact phase, if it is still exact.
    directions, scale : ReadOut and (D,), optional
        Otherwise its directions, of features divided by the scale if there is one.
    """
    if isinstance(exact, Scatter) and careful.few:
        careful.moments = PartialMoments.following(moments)
        lower = np.tril(exact.covariance())
        careful.core = Pairs.of_complete(lower + np.tril(lower, -1).T, moments.weight, np.array(moments.mean))
    elif exact is not None and not (isinstance(exact, Scatter) and exact.matrix.any()):
        _give_rows(careful, moments, exact)
    else:
        if exact is not None:
            scale = deviations_of(moments) if careful.settings.standardize else None
            directions = exact.read_out(scale)
        assert directions is not None
        careful.moments, careful.scale, careful.groups = PartialMoments.following(moments), scale, one_group(careful.D)
        careful.go_on_from(directions)
    return careful


def _give_rows(careful: Careful, moments: Moments, exact: Exact) -> None:
    """Feed the rows that were kept, in their original form."""
    n = exact.n
    rows = raw_rows(exact.rows[:n], exact.shares[:n], np.array(moments.mean) if careful.settings.center else None)
    left, _ = weights_left(exact.shares[:n])
    weights = moments.weight * left
    careful.moments.count = moments.count - n  # after a merge, a kept row may stand for several
    careful.moments.squares = moments.squares - float(weights @ weights)
    done = 0
    while done < n:
        stop = min(n, done + careful.room)
        careful.add(rows[done:stop], weights[done:stop], np.ones(stop - done))
        done = stop


def raw_rows(centred: Array, shares: Floats, mean: Floats | None) -> Array:
    """Undo the centring of rows, each by the mean of those before it; without a mean they were not centred.

    Parameters
    ----------
    centred : (n, D)
    shares : (n,)
        Share of each row in the average up to it.
    mean : (D,), optional
        Mean of all of them.
    """
    rows: Any = centred.astype(np.float64)
    if mean is None:
        return np.asarray(rows)
    place = mean.copy()
    for i in range(len(rows) - 1, -1, -1):
        keep = 1.0 - shares[i]
        if keep <= 0.0:  # the first row is the mean
            rows[i] = place
            continue
        difference = rows[i] / np.sqrt(keep)
        place -= shares[i] * difference
        rows[i] = place + difference
    return np.asarray(rows)
