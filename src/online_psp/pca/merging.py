"""Merging two streams into one."""

from __future__ import annotations

import numpy as np

from online_psp.engine.finite import worded
from online_psp.engine.moments import Merged, merge_moments
from online_psp.engine.types import Array
from online_psp.pca.exact import Kept, ReadOut, Scatter, leading_directions
from online_psp.pca.merging_careful import merge_careful, to_one_clock
from online_psp.pca.stream import Stream


@worded
def merge(mine: Stream, theirs: Stream) -> Stream:
    """A new stream that has seen the rows of both, with the settings of the first.

    Moments are exact. Two covariance matrices are added, and kept rows are put together if they are few. Otherwise the directions of both
    are stacked as rows, scaled by their deviations, and the merged stream continues from the leading directions of these.
    """
    for stream in (mine, theirs):
        stream.settle()
    if mine.settings.center != theirs.settings.center:
        raise ValueError("A model that centres and one that does not cannot be merged.")
    if mine.settings.standardize != theirs.settings.standardize:
        raise ValueError("A model that standardises and one that does not cannot be merged.")
    if mine.settings.half_life != theirs.settings.half_life:
        raise ValueError("Models with different half-lives cannot be merged.")
    if mine.settings.robust != theirs.settings.robust:
        raise ValueError("A robust model and one that is not cannot be merged.")
    if theirs.careful is not None and theirs.careful.holes and mine.settings.missing != "impute":
        raise ValueError("A model that refuses missing values cannot be merged with one that has learned from rows with some.")
    if mine.careful is not None or theirs.careful is not None:
        return merge_careful(mine, theirs)
    merged = Stream(mine.settings, mine.rank, mine.D, mine.dtype)
    merged.share, merged.rank, merged.unit = mine.share, mine.rank, mine.unit or theirs.unit
    merged.components, merged.axes = mine.components, mine.axes
    scale = merged.unit / theirs.unit if theirs.unit else 1.0
    own, moments = mine.moments.copy(), theirs.moments.copy()
    moments.mean, moments.variance = moments.mean * scale, moments.variance * scale**2
    merged.last_time = to_one_clock(mine, own, theirs, moments)
    sums = merge_moments(own, moments, mine.settings.center)
    merged.moments = sums.moments
    if not _merge_exactly(merged, mine, theirs, sums, scale):
        merged.go_on_from(_stacked(mine, theirs, sums, scale, merged.rank))
    return merged


def _merge_exactly(merged: Stream, mine: Stream, theirs: Stream, sums: Merged, scale: float) -> bool:
    """Merge two exact streams exactly, if the result can be exact; returns whether it could."""
    one, two = mine.exact, theirs.exact
    if isinstance(one, Scatter) and isinstance(two, Scatter):
        merged.exact = Scatter.of_two(one, two, sums.parts, scale, sums.between)
        return True
    if isinstance(one, Kept) and isinstance(two, Kept) and one.n + two.n + 1 < one.capacity:
        merged.exact = _kept(merged, _rows(one.weighted(), two.weighted(), sums, scale))
        return True
    return False


def _kept(merged: Stream, rows: Array) -> Kept:
    """An exact phase that keeps these rows, whose scatter is the covariance, with equal shares."""
    kept, n = Kept(merged.rank, merged.D, merged.dtype), len(rows)
    kept.add((rows * np.sqrt(n)).astype(merged.dtype), 1.0 / np.arange(1.0, n + 1.0))
    return kept


def _rows(one: Array, two: Array, sums: Merged, scale: float) -> Array:
    """Rows whose scatter is the covariance of both streams."""
    parts = np.sqrt(sums.parts)
    return np.concatenate([parts[0] * one, parts[1] * scale * two, sums.between[np.newaxis]]).astype(np.float64)


def _stacked(mine: Stream, theirs: Stream, sums: Merged, scale: float, rank: int) -> ReadOut:
    one, two = (np.sqrt(found.variances)[:, np.newaxis] * found.components for found in (mine.read_out(), theirs.read_out()))
    if mine.settings.standardize:  # back to the units of each stream
        one, two = one * mine.deviations(), two * theirs.deviations()
    rows = _rows(one, two, sums, scale)
    if mine.settings.standardize:
        rows = rows / np.sqrt(np.where(sums.moments.variance > 0, sums.moments.variance, 1.0))
    found = leading_directions(rows, rank)
    return ReadOut(found.components.astype(mine.dtype), found.variances)
