"""Gives less weight to rows that are far from all others.

The distance of a row under the model is ``δ² = T² + SPE/σ²``. If values are missing, it is multiplied by D over the number of values. It is
also multiplied by the D-th root of the determinant of the covariance, so that only the shape of the model matters, and not its size.

**The limit.** On real data nobody knows beforehand where log δ² of ordinary rows lies. Its middle and its width are followed, by the
median of each block of rows and the median deviation from it (MAD, in units of a standard deviation). A row counts fully up to
``log δ² = middle + 3 widths``. Beyond that, its weight falls as the inverse square of how many times δ² exceeds the limit.

**Clumps and new regimes.** No block moves the middle or the width by much, so that a clump of gross rows does not pass for ordinary. But
if more than half of what the stream remembers is beyond the limit, that is the stream now: the middle and the width of the present block
are taken instead.

**Repeated rows**, as of an idle sensor or of one with few states, say nothing about how rows vary. So of all rows at the same distance only
one counts for the middle and the width, and where too few rows differ none is judged. But rows that make up half of the weight are
never beyond the limit, and a new regime is one that has more than half of the rows, or of the rows that differ.

**The first rows** are not believed either. Each is weighed by how far out it is along the directions through all of them, in robust widths
(Stahel 1981, Donoho 1982), and then by PCA of those within the limit. (Spherical PCA alone takes in rows that are gross along one
direction: at unit length they are like any others, and their direction mixes with those of the data.)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from online_psp.engine.blas import matmul
from online_psp.engine.types import Floats
from online_psp.pca.exact import leading_directions
from online_psp.pca.holes import Mask

WIDTHS = 3.0
"""Widths between the middle and the limit."""
LEAST_FIRST = 400
"""Rows to hold at first: enough for a hundred gross ones to be a minority."""
LEAST_ROWS = 64
"""Rows of a block: enough for a median and a median deviation."""
_SIGMA = 1.4826  # standard deviation of a Gaussian, over its median deviation
_ALIKE = 1e-9  # largest difference of log δ² between rows at the same distance
_ENOUGH = 12  # different rows that a median and a median deviation need
_NARROWEST = 0.05  # least width of log δ²
_MOST_MOVED = 1.0  # largest step of the middle in a block
_ROUNDING = 1e-12  # relative to the largest value: smaller differences are rounding
_ROUNDS = 3  # rounds of PCA of the first rows within the limit
_TINY = float(np.finfo(np.float64).tiny)


class Guard(NamedTuple):
    """Where log δ² of ordinary rows lies."""

    middle: float
    width: float
    blocks: float = 0.0
    """How many blocks were averaged over, faded where the stream forgets."""
    strange: float = 0.0
    """Weight of the rows beyond the limit, faded likewise."""
    total: float = 0.0
    """Weight of all rows, faded likewise."""
    strange_kinds: float = 0.0
    """As `strange`, but of rows at the same distance only one counts."""
    kinds: float = 0.0
    """As `total`, counted in that way."""

    @property
    def limit(self) -> float:
        """The largest log δ² at which a row counts fully."""
        return self.middle + WIDTHS * self.width

    def weights(self, distances: Floats) -> Floats:
        """Weights of rows at these δ², (n,), from 0 to 1."""
        beyond = np.maximum(np.log(np.maximum(distances, _TINY)) - self.limit, 0.0)
        return np.asarray(np.exp(-2.0 * np.minimum(beyond, 300.0)))

    def after(self, distances: Floats, weights: Floats, left: float) -> Guard:
        """The guard after a block of rows.

        Parameters
        ----------
        distances : (n,)
            Their δ².
        weights : (n,)
        left : float
            What is left of everything before the block.
        """
        if not len(distances):
            return self
        logs = np.log(np.maximum(distances, _TINY))
        different, own = _different(logs)
        middle, width = _spread(different)
        enough = len(different) >= _ENOUGH
        blocks = left * self.blocks + enough
        found = self
        if enough:
            moved = float(np.clip(middle - self.middle, -_MOST_MOVED, _MOST_MOVED)) / blocks
            wider = float(np.clip(width - self.width, -0.5 * self.width, self.width)) / blocks
            found = Guard(self.middle + moved, self.width + wider)
        beyond, whole = logs > found.limit, float(weights.sum())
        strange, total = left * self.strange + float(weights[beyond].sum()), left * self.total + whole
        kinds = whole / len(different) * own
        strange_kinds, all_kinds = left * self.strange_kinds + float(kinds[beyond].sum()), left * self.kinds + whole
        if strange > 0.5 * total or strange_kinds > 0.5 * all_kinds:  # most of what is remembered is beyond the limit: so is the stream
            return Guard(middle, _including(middle, width if enough else self.width, logs, weights), 1.0, 0.0, whole, 0.0, whole)
        return Guard(found.middle, found.width, blocks, strange, total, strange_kinds, all_kinds)


def spread_of(distances: Floats, weights: Floats) -> tuple[float, float]:
    """Middle and width of log δ² of rows at different distances, (n,), such that half of the weight is within the limit."""
    logs = np.log(np.maximum(distances, _TINY))
    middle, width = _spread(_different(logs)[0])
    return middle, _including(middle, width, logs, weights)


def _spread(logs: Floats) -> tuple[float, float]:
    middle = float(np.median(logs))
    return middle, max(_SIGMA * float(np.median(np.abs(logs - middle))), _NARROWEST)


def _including(middle: float, width: float, logs: Floats, weights: Floats) -> float:
    """The width, or a larger one if it takes that to have half of the weight within the limit."""
    order = np.argsort(logs)
    sums = np.cumsum(weights[order])
    half = float(logs[order][int(np.searchsorted(sums, 0.5 * sums[-1]))])
    return max(width, (half - middle) / WIDTHS * (1.0 + _ALIKE))


def _different(logs: Floats) -> tuple[Floats, Floats]:
    """The different values, and for each of all values, (n,), one over the number of those equal to it."""
    order = np.argsort(logs)
    first = np.concatenate([[True], np.diff(logs[order]) > _ALIKE])
    which = np.cumsum(first) - 1
    inverse = np.empty(len(logs))
    inverse[order] = 1.0 / np.bincount(which)[which]
    return logs[order][first], inverse


class Weighed(NamedTuple):
    """Weights of the first rows."""

    weights: Floats
    """(n,), from 0 to 1"""
    guard: Guard | None
    """None if rows do not vary, or too few differ, so that further rows cannot be judged."""


def first_weights(rows: Floats, observed: Mask, weights: Floats, rank: int, center: bool) -> Weighed:
    """Weigh the first rows, no two of them the same, without believing any of them.

    Parameters
    ----------
    rows : (n, D)
        Whatever is not observed is not read.
    observed : (n, D)
    weights : (n,)
        Given by the user; rows of weight 0 are left out.
    rank : int
        Directions to find.
    center : bool
        Whether rows vary around their median, or around zero.
    """
    used = weights > 0
    if not used.any():
        return Weighed(np.ones(len(rows)), None)
    values = np.where(observed, rows, np.nan)[used]
    seen = observed[used].any(axis=0)
    place = np.zeros(rows.shape[1])
    if center:
        place[seen] = np.nanmedian(values[:, seen], axis=0)
    apart = np.nan_to_num(values - place)
    if not np.abs(apart).max(initial=0.0) > _ROUNDING * np.abs(np.nan_to_num(values)).max(initial=0.0):
        return Weighed(np.ones(len(rows)), None)
    more = rows.shape[1] / np.maximum(observed[used].sum(axis=1), 1.0)
    rank = min(rank, max(1, len(apart) // 4))
    distances = outlyingness(apart)
    if len(distances) < _ENOUGH:
        return Weighed(np.ones(len(rows)), None)
    for _ in range(_ROUNDS):
        counted = weights[used] * (np.log(np.maximum(distances, _TINY)) <= Guard(*spread_of(distances, weights[used])).limit)
        counted /= counted.sum()
        if center:
            place = place + counted @ apart
            apart = np.nan_to_num(values - place)
        found = leading_directions(apart * np.sqrt(counted)[:, np.newaxis], rank)
        distances = more * _distances(apart, found.components, found.variances)
    guard = Guard(*spread_of(distances, weights[used]))
    found_weights = np.ones(len(rows))
    found_weights[used] = guard.weights(distances)
    return Weighed(found_weights, guard)


def outlyingness(apart: Floats) -> Floats:
    """How far out each row, (n, D), is along the direction in which it is farthest out, squared, (n,).

    The unit is the robust width of all rows along that direction. The directions tried are those through the rows themselves: a gross row
    is far out along its own.
    """
    lengths = np.sqrt(np.einsum("ij,ij->i", apart, apart))
    unit = apart / np.maximum(lengths, _TINY)[:, np.newaxis]
    along = matmul(apart, unit.T)
    along -= np.median(along, axis=0)
    widths = _SIGMA * np.median(np.abs(along), axis=0)
    least = (
        0.1 * float(np.median(lengths[lengths > 0])) / np.sqrt(apart.shape[1]) if lengths.any() else 0.0
    )  # along some directions most rows may not vary at all
    return np.asarray((np.abs(along) / np.maximum(widths, max(least, _TINY * 1e20))).max(axis=1) ** 2)


def _distances(apart: Floats, directions: Floats, variances: Floats) -> Floats:
    """δ² of rows, (n,), with the noise that the median row has."""
    scores = apart @ directions.T
    rest = np.maximum(np.einsum("ij,ij->i", apart, apart) - np.einsum("ij,ij->i", scores, scores), 0.0)
    left = max(apart.shape[1] - len(directions), 1)
    noise = max(float(np.median(rest)) / left, 1e-10 * float(variances.max(initial=0.0)), _TINY * 1e20)
    return np.asarray(np.einsum("ij,ij->i", scores / np.maximum(variances, noise), scores) + rest / noise)


def middle_deviations(rows: Floats, observed: Mask) -> Floats:
    """Deviations of the middle half of each feature, (D,); 1 if that does not vary."""
    found = np.ones(rows.shape[1])
    seen = observed.any(axis=0)
    values = np.where(observed, rows, np.nan)[:, seen]
    found[seen] = 1.4826 * np.nanmedian(np.abs(values - np.nanmedian(values, axis=0)), axis=0)
    return np.where(found > 0, found, 1.0)
