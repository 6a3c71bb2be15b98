"""Warnings about what a model has learned: where its answer may not be what was asked for, one sentence each.

Functions named `…_notice` look at numbers and return a sentence, or None if there is nothing to say. `Notices` gives each kind of sentence
once in the life of a stream.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from online_psp.engine.types import Floats
from online_psp.pca.few import FEW
from online_psp.pca.groups import strangers
from online_psp.pca.model import Model
from online_psp.pca.principal import total_variance
from online_psp.pca.settings import Settings
from online_psp.pca.view import View

GROSS_SHARE = 1.0 / 16.0
"""Share of the weight of all rows that `robust` may take away without a warning."""
_TAIL_SHARE = 0.03  # of the variance, that a tail may lose without a warning; on data other than the tests', others lost 0.017 or less
_START_EXCESS = 0.3  # by which the part of the first rows in the variance may exceed their part in the weight
_START_TIMES = 4.0  # times the variance of later rows that the first may have without a warning
_UNEVEN = 0.06  # of the measure of `growth_notice`, between few points: errors up to 0.011 had 0.046 at most, others from 0.072 on
_UNPREDICTED = 0.01  # share of the variance of a feature, that predictions may explain by chance
_HIDDEN = {8: 512.0, 4: 16.0}  # in units of rounding, by bytes of a number: how far below the largest feature others are lost
_BLURRED = 0.06  # of the deviation along a direction, that rounding may have: of 120 sets, errors above 0.0035 began at 0.065


class Notices:
    """Gives each kind of warning once in the life of a model, at moments when nothing is lost if it is turned into an error."""

    def __init__(self) -> None:
        self._given: set[str] = set()

    def give(self, kind: str, sentence: str | None, category: type[Warning] = RuntimeWarning, stacklevel: int = 5) -> None:
        if sentence is not None and kind not in self._given:
            self._given.add(kind)
            warnings.warn(sentence, category, stacklevel=stacklevel)

    def give_while(self, kind: str, sentence: str | None) -> None:
        """As `give`, but again where there was nothing to say in the meantime."""
        if sentence is None:
            self._given.discard(kind)
        self.give(kind, sentence, UserWarning)

    def on_reading(self, model: Model, view: View) -> None:
        """Warn where what was found may not be what was asked for."""
        settings, found = view.settings, view.variances
        dtype, K = settings.working, settings.shown if settings.share is None else len(view.variances)
        raw = found if settings.standardize else found * (model.unit or 1.0) ** 2
        if not (view.exact or settings.standardize):
            units = units_notice(model.variance, dtype, K)
            self.give("units", units)
            self.give("rounding", None if units else rounding_notice(raw, dtype, K))  # the same cause, said better
        if model.scale is not None and model.first_scale is not None:
            self.give("growth", growth_notice(model.variance, model.first_scale, raw, K))
        if settings.standardize:
            self.give("underflow", underflow_notice(model.variance, model.low))
        else:
            self.give("sizes", sizes_notice(raw, float(model.variance.sum()), model.faintest, dtype, K, model.seen))
        if model.groups is not None and model.known is not None:
            self.give("strangers", strangers_notice(strangers(model.groups, model.known)), UserWarning)
        self._on_gross(model, settings)

    def _on_gross(self, model: Model, settings: Settings) -> None:
        if model.robust is None:
            return
        losses, weight = model.robust.losses, model.weight
        self.give("tail", tail_notice(*losses.tail_shares(weight, total_variance(model, settings))), UserWarning)
        shares = losses.start_shares(weight, model.full_mean, model.variance, settings.standardize)
        self.give("start", start_notice(*shares), UserWarning)
        self.give_while("gross", gross_notice(losses.gross_share(weight)))


def rounding(variances: Floats, dtype: np.dtype[Any]) -> float:
    """Variance along any one direction that may be rounding alone, given those of directions found in double precision, largest first.

    Numbers of the given dtype are off by ``eps/√12`` of their size, root mean square, and all of them together by as much of the total; the
    decomposition is off by some roundings of the largest direction, in double precision.
    """
    if not len(variances):
        return 0.0
    decomposed = (64.0 * np.finfo(np.float64).eps) ** 2 * float(variances[0])
    return max(decomposed, float(np.finfo(dtype).eps) ** 2 / 12.0 * float(variances.sum()))


def units_notice(variances: Floats, dtype: np.dtype[Any], wanted: int) -> str | None:
    """Whether rounding of the largest feature hides some of the directions wanted, given the variances of the features, (D,)."""
    deviations = np.sqrt(variances)
    largest = int(np.argmax(deviations))
    seen = int((deviations > _HIDDEN[dtype.itemsize] * np.finfo(dtype).eps * deviations[largest]).sum())
    if seen >= min(wanted, int((deviations > 0).sum())):
        return None
    return (
        f"Feature {largest} varies {deviations[largest] / np.median(deviations[deviations > 0]):.0e} times as much as the median "
        f"feature, so that in {dtype} only {seen} of {wanted} directions can be told from rounding: pass "
        "standardize=True, or bring the features to like units."
    )


def rounding_notice(variances: Floats, dtype: np.dtype[Any], wanted: int) -> str | None:
    """Whether rounding along the largest direction blurs some of the others, given the variances of all, (K',), largest first.

    Directions below rounding are not counted: they may be those that data of few directions does not have.
    """
    noise = rounding(variances, dtype)
    blurred = np.flatnonzero((variances[:wanted] > noise) & (_BLURRED**2 * variances[:wanted] < noise))
    if not len(blurred):
        return None
    k = int(blurred[0])
    wider = "pass dtype=np.float64, " if dtype.itemsize < 8 else ""
    times = np.sqrt(variances[0] / variances[k])
    return (
        f"The first direction varies {times:.0e} times as much as direction {k + 1}, which rounding in {dtype} makes inaccurate: "
        f"{wider}bring the features to like units, or leave out rows that are much larger than others."
    )


def sizes_notice(variances: Floats, total: float, faintest: float, dtype: np.dtype[Any], wanted: int, count: int) -> str | None:
    """Whether rounding of the largest rows hides some of the directions wanted.

    Parameters
    ----------
    variances : (K',)
        Variances of the directions.
    total : float
        Variance of all features together.
    faintest : float
        Size of the smallest row looked at that is not zero.
    dtype : float64 or float32
    wanted, count : int
        Directions asked for, and rows seen.
    """
    if not 0.0 < faintest**2 < rounding(np.array([total]), dtype):
        return None
    seen = int((variances > rounding(variances, dtype)).sum())
    if seen >= min(wanted, count - 1):
        return None
    return (
        f"Some rows are {np.sqrt(total) / faintest:.0e} times as large as others, so that in {dtype} only {seen} of "
        f"{wanted} directions can be told from rounding: leave such rows out, or pass robust=True."
    )


def underflow_notice(variances: Floats, moved: Floats) -> str | None:
    """Whether features whose means have moved, (D,), are taken for constant because the squares of what they vary by are out of range."""
    lost = np.flatnonzero((variances == 0) & (moved != 0))
    if not len(lost):
        return None
    return (
        f"{len(lost)} of {len(variances)} features, feature {lost[0]} the first, vary so little beside the others that squares of it "
        "underflow, and are taken for constant: bring the features to like units."
    )


def strangers_notice(pair: tuple[int, int] | None) -> str | None:
    """What to say of two features that were never observed in the same row."""
    if pair is None:
        return None
    return (
        f"Features {pair[0]} and {pair[1]} have never been observed in the same row, so that nothing is known of how they vary "
        "together; they are taken for uncorrelated, and components that depend on that are a guess."
    )


def unpredicted_notice(explained: Floats, missing: NDArray[np.bool_]) -> str | None:
    """Whether features with missing values, (D,), cannot be filled, given the share of their variances that predictions explain, (D,)."""
    unknown = np.flatnonzero(missing & (explained < _UNPREDICTED))
    if not len(unknown):
        return None
    named = ", ".join(str(j) for j in unknown[:10]) + (", …" if len(unknown) > 10 else "")
    return (
        f"{len(unknown)} of the {int(missing.sum())} features with missing values (columns {named}) are not predicted by the others: "
        "their missing values are filled with little more than their means."
    )


def growth_notice(variance: Floats, first: Floats, variances: Floats, wanted: int) -> str | None:
    """Whether deviations have changed so unevenly that directions left out in the old ones may be missing in the new.

    The measure is the spread of the logarithms of the changes, times the variance of the last direction kept over that of the last one
    wanted: about the error that is to be expected.

    Parameters
    ----------
    variance, first : (D,)
        Variances of the features, and their deviations as of when rows were first divided by them, 0 if that has not been.
    variances : (K',)
        Variances of the directions.
    wanted : int
        Directions asked for.
    """
    known = (first > 0) & (variance > 0)
    last = float(variances[min(wanted, len(variances)) - 1]) if len(variances) else 0.0
    if len(variances) >= len(first) or not known.any() or not last > 0.0:
        return None
    growth = 0.5 * np.log(variance[known]) - np.log(first[known])
    spread = float(growth.std())
    if not spread * float(variances[-1]) / last > _UNEVEN:
        return None
    return (
        f"The standard deviations of the features have changed by factors from {np.exp(growth.min()):.2g} to {np.exp(growth.max()):.2g} "
        "since rows were first divided by them, as with heavy tails, so that components of the standardised features are less accurate: "
        f"pass a larger oversample (with {-(-len(first) // FEW)} directions they are exact), or transform the data, for example "
        "by logarithms."
    )


def tail_notice(rows: float, lost: float) -> str | None:
    """Whether `robust` has cut a tail, given the share of rows just beyond its limit, and the share of the variance that they lost."""
    if not lost > _TAIL_SHARE:
        return None
    return (
        f"robust=True has cut a heavy tail: rows just beyond its limit, {100.0 * rows:.1f} % of all, have lost {100.0 * lost:.0f} % of the "
        "variance, although no gap lies between them and the other rows, as it would if they were gross. explained_variance_ is too small "
        "by at least that; if the rows are data, set robust=False, or transform the data, for example by logarithms."
    )


def start_notice(weight: float, variance: float) -> str | None:
    """Whether the first rows differ from all later ones, given their share in the weight and in the variance of all rows."""
    if not (variance - weight > _START_EXCESS and variance * (1.0 - weight) > _START_TIMES * weight * (1.0 - variance)):
        return None
    return (
        f"The first rows, {100.0 * weight:.1f} % of the weight of all, make up {100.0 * variance:.0f} % of the variance: robust=True takes "
        "for ordinary what half of the first rows agree on. If these are gross, start anew without them, or pass half_life, so that they "
        "are forgotten."
    )


def warn_never_observed(known: Floats) -> None:
    """Warn about features that have never been observed, given the weight of each, (D,)."""
    never = np.flatnonzero(known <= 0)
    if len(never):
        named = ", ".join(str(j) for j in never[:10]) + (", …" if len(never) > 10 else "")
        warnings.warn(
            f"{len(never)} of {len(known)} features have never been observed (columns {named}): they have mean 0 and no loading.",
            UserWarning,
            stacklevel=4,
        )


def gross_notice(share: float) -> str | None:
    """Whether gross rows have lost more of the weight of all rows than may pass without a word."""
    if not share > GROSS_SHARE:
        return None
    return (
        f"robust=True has taken {100.0 * share:.0f} % of their weight from the rows so far, because some are far from the others "
        "(sample_influence tells which): see whether they are gross, or data of another kind, such as a new regime."
    )
