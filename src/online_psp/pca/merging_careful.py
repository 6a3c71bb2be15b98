"""Merging two streams whose rows may have had missing values or been gross."""

from __future__ import annotations

import copy

import numpy as np

from online_psp.engine.moments import Moments
from online_psp.engine.partial_moments import PartialMoments, merge_partial
from online_psp.engine.types import Floats
from online_psp.pca.careful import Careful, deviations_of
from online_psp.pca.exact import ReadOut, leading_directions
from online_psp.pca.pairs import Pairs
from online_psp.pca.robust import Guard
from online_psp.pca.stream import Stream
from online_psp.pca.together import common


def merge_careful(mine: Stream, theirs: Stream) -> Stream:
    """A new stream that has seen the rows of both, with the settings of the first.

    Weights, means and variances of the features are exact, and so are sums of pairs. Otherwise directions are stacked, as in `merge`.
    """
    merged = Stream(mine.settings, mine.rank, mine.D, mine.dtype)
    one, two = _settled(mine), _settled(theirs)
    units = mine.unit * one.factor, theirs.unit * two.factor
    merged.share, merged.rank, merged.unit = mine.share, mine.rank, units[0] or units[1]
    merged.components, merged.axes = mine.components, mine.axes
    factor = merged.unit / units[1] if units[1] else 1.0
    counted = [max(1.0 - part.gross_share, float(np.finfo(np.float64).eps)) for part in (one, two)]
    merged.last_time = to_one_clock(mine, one.moments, theirs, two.moments)
    center = mine.settings.center
    moments, between = merge_partial(one.moments, two.moments.scaled(factor), center)
    careful = Careful(mine.settings, mine.rank, mine.D, mine.dtype, mine.share)
    careful.moments, careful.holes, careful.groups = moments, one.holes or two.holes, common(one.groups, two.groups)
    careful.guard = _merged_guard(one, two, factor)
    given = one.moments.weight / counted[0] + two.moments.weight / counted[1]
    careful.losses = one.losses.merged(two.losses, given, factor, mine.settings.standardize)
    careful.excess, careful.lacking = _merged_excess(one, two)
    if isinstance(one.core, Pairs) and isinstance(two.core, Pairs) and careful.few:
        pairs, others = one.core.copy(), two.core.copy()
        _fade(pairs, one.moments)
        _fade(others, two.moments)
        others.scale(factor)
        pairs.merge(others)
        if center:
            pairs.move(moments.mean)
        careful.core = pairs
    else:
        total = max(moments.weight, float(np.finfo(np.float64).tiny))
        rows = [
            np.sqrt(one.moments.weight / total) * _directions(one),
            np.sqrt(two.moments.weight / total) * factor * _directions(two),
            between[np.newaxis],
        ]
        careful.scale = deviations_of(moments) if mine.settings.standardize else None
        stacked = np.concatenate(rows)
        found = leading_directions(stacked if careful.scale is None else stacked / careful.scale, merged.rank)
        careful.go_on_from(ReadOut(found.components.astype(mine.dtype), found.variances))
    merged.take_careful(careful)
    return merged


def _settled(stream: Stream) -> Careful:
    """A learner of its own that has learned every row of a stream."""
    if stream.careful is None:
        other = copy.copy(stream)
        other.turn_careful()
        stream = other
    assert stream.careful is not None
    careful = copy.copy(stream.careful.settled())
    careful.moments = careful.moments.copy()
    return careful


def _merged_guard(one: Careful, two: Careful, factor: float) -> Guard | None:
    """Where ordinary rows of both lie; those of the second are multiplied by a factor."""
    second = two.guard and two.guard._replace(middle=two.guard.middle + 2.0 * float(np.log(factor)))
    if one.guard is None or second is None:
        return one.guard or second
    parts = np.array([one.moments.weight, two.moments.weight])
    parts = parts / max(float(parts.sum()), float(np.finfo(np.float64).tiny))
    return Guard(*(float(parts @ pair) for pair in zip(one.guard[:2], second[:2], strict=True)), *np.add(one.guard[2:], second[2:]))


def _merged_excess(one: Careful, two: Careful) -> tuple[float, float]:
    """Excess noise of rows with missing values, and their share, in both streams together."""
    weights = np.array([one.moments.weight, two.moments.weight])
    parts = weights * [one.lacking, two.lacking]
    lacking = float(parts.sum())
    excess = float(np.exp(parts @ np.log([one.excess, two.excess]) / lacking)) if lacking > 0.0 else 1.0
    return excess, lacking / max(float(weights.sum()), float(np.finfo(np.float64).tiny))


def _fade(pairs: Pairs, moments: Moments) -> None:
    """Let sums weigh what the moments do, where those have been brought to another time."""
    weights = float(pairs.weights.diagonal().sum())
    known = float(getattr(moments, "known", np.zeros(1)).sum())
    if weights > 0.0:
        pairs.fade(known / weights)


def _directions(careful: Careful) -> Floats:
    """Rows whose scatter is the covariance of the directions, in units of the stream."""
    found = careful.read_out()
    rows = np.sqrt(found.variances)[:, np.newaxis] * found.components.astype(np.float64)
    return rows * careful.deviations() if careful.settings.standardize else rows


def to_one_clock(mine: Stream, own: Moments, theirs: Stream, others: Moments) -> float | None:
    """Let the weights of the model that has stopped earlier fade until the other stops; the time of that."""
    half_life = mine.settings.half_life
    if half_life is None:
        return None
    if not half_life.in_time or mine.last_time is None or theirs.last_time is None:
        raise ValueError(
            "Models that forget by rows cannot be merged: whose rows are older is not known. Give rows times, and half_life as a time."
        )
    latest = max(mine.last_time, theirs.last_time)
    for stream, moments in ((mine, own), (theirs, others)):
        left = 2.0 ** (-(latest - stream.last_time) / half_life.length)  # type: ignore[operator]
        moments.weight, moments.squares = moments.weight * left, moments.squares * left**2
        if isinstance(moments, PartialMoments):
            moments.known = moments.known * left
    return latest
