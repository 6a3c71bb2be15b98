"""Mean and variances of features that are not always observed: every feature has a sum of weights of its own.

As in `online_psp.engine.moments`, but a row has another share in the average of every feature: ``s_j = w/W_j``, W_j the sum of the weights
of the rows in which feature j was observed. If every value is observed, these are the moments of `Moments`.
"""

from __future__ import annotations

import numpy as np

from online_psp.engine.compiler import kernel
from online_psp.engine.moments import Moments
from online_psp.engine.types import Array, Floats


@kernel
def take_observed(rows: Floats, weights: Floats, decays: Floats, center: bool, known: Floats, mean: Floats, variance: Floats) -> None:
    """Centre the observed values of rows in place, and update the moments of each feature.

    Parameters
    ----------
    rows : (n, D), changed in place
    weights : (n,)
        Not negative; a row of weight zero is centred, and changes no moment.
    decays : (n,)
        Factor by which all earlier weights fade when a row comes.
    known : (D,), changed in place
        Sum of the weights of each feature.
    mean, variance : (D,), changed in place
    """
    for i in range(rows.shape[0]):
        row, weight, decay = rows[i], weights[i], decays[i]
        for j in range(row.shape[0]):
            known[j] *= decay
            value = row[j]
            if np.isnan(value):
                continue
            total = known[j] + weight
            share = weight / total if total > 0.0 else 0.0
            keep = 1.0 - share
            known[j] = total
            if center:
                difference = value - mean[j]
                step = share * difference
                mean[j] += step
                variance[j] = keep * (variance[j] + step * difference)
                row[j] = np.sqrt(keep) * difference
            else:
                variance[j] = keep * variance[j] + share * value * value


class PartialMoments(Moments):
    """Moments of features that may be missing.

    Attributes
    ----------
    known : (D,)
        Sum of the weights of the rows in which each feature was observed, faded if the stream forgets.
    """

    def __init__(self, D: int) -> None:
        super().__init__(D)
        self.known: Floats = np.zeros(D)

    @classmethod
    def following(cls, moments: Moments) -> PartialMoments:
        """The same moments, in arrays of their own."""
        new = cls(len(moments.variance))
        new.count, new.weight, new.squares = moments.count, moments.weight, moments.squares
        new.mean, new.variance = np.array(moments.mean), moments.variance.copy()
        new.known = moments.known.copy() if isinstance(moments, PartialMoments) else np.full(len(new.variance), moments.weight)
        return new

    def copy(self) -> PartialMoments:
        return PartialMoments.following(self)

    def scaled(self, factor: float) -> PartialMoments:
        """The moments of the same rows times a factor."""
        new = self.copy()
        new.mean, new.variance = new.mean * factor, new.variance * factor**2
        return new

    @property
    def missing_share(self) -> float:
        """Share of the values that were missing."""
        return 0.0 if self.weight <= 0.0 else min(max(1.0 - float(self.known.mean()) / self.weight, 0.0), 1.0)

    def take_partial(self, rows: Floats, weights: Floats, decays: Floats, center: bool) -> Floats:
        """Centre the observed values of rows (n, D) in place, and update the moments; returns the shares of the rows in the average, (n,).

        A row without any observed value must have weight zero. `take_squares` adds the squares of the weights: a row may stand for several.
        """
        shares: Floats = np.zeros(len(weights))
        for i, (weight, decay) in enumerate(zip(weights, decays, strict=True)):
            self.weight = decay * self.weight + weight
            shares[i] = weight / self.weight if weight > 0.0 else 0.0
        self.count += len(weights)
        take_observed(rows, weights, decays, center, self.known, self.origin, self.variance)
        return shares

    def take_squares(self, squares: Floats, decays: Floats) -> None:
        """Move the sum of the squares of the weights past rows with these, (n,)."""
        for square, decay in zip(squares, decays, strict=True):
            self.squares = decay * decay * self.squares + square


def merge_partial(one: PartialMoments, two: PartialMoments, center: bool) -> tuple[PartialMoments, Array]:
    """The moments of both streams together, and the vector (D,) whose square the difference of their means adds to the variances."""
    merged = PartialMoments(len(one.variance))
    merged.count, merged.weight, merged.squares = one.count + two.count, one.weight + two.weight, one.squares + two.squares
    merged.known = one.known + two.known
    share = np.divide(two.known, merged.known, out=np.zeros_like(merged.known), where=merged.known > 0)
    difference = two.mean - one.mean
    between: Floats = np.sqrt(share * (1.0 - share)) * difference if center else np.zeros_like(difference)
    merged.mean = one.mean + share * difference
    merged.variance = (1.0 - share) * one.variance + share * two.variance + between**2
    return merged, between
