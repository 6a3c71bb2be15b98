"""Covariances of few features with missing values: exact, from the rows in which both features of a pair are observed.

For features i and j, three sums over these rows are kept: N_ij of the weights, T_ij of ``x_i − c_i``, and S_ij of
``(x_i − c_i)(x_j − c_j)``, all weighted. Here c is a place near the mean; it moves along with the mean, so that no digits are lost. Then
``cov_ij = S_ij/N_ij − T_ij T_ji/N_ij²``, the covariance that pandas gives. No row is ever filled.

Such a matrix need not be positive semidefinite. The nearest one that is, with the same total variance, has the same eigenvectors. Its
eigenvalues are those of the first minus one number, and zero where that would be negative.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple, Self

import numpy as np
from scipy.linalg import eigh

from online_psp.engine.blas import matmul
from online_psp.engine.types import Floats
from online_psp.pca.exact import ReadOut
from online_psp.pca.holes import Mask


class PairsState(NamedTuple):
    weights: Annotated[Floats, "D", "D"]
    sums: Annotated[Floats, "D", "D"]
    products: Annotated[Floats, "D", "D"]
    place: Annotated[Floats, "D"]


class Pairs:
    """Weights, sums and products of pairs of features, each (D, D)."""

    def __init__(self, D: int) -> None:
        self.weights: Floats = np.zeros((D, D))
        self.sums: Floats = np.zeros((D, D))
        self.products: Floats = np.zeros((D, D))
        self.place: Floats = np.zeros(D)

    @classmethod
    def of_complete(cls, covariance: Floats, weight: float, mean: Floats) -> Self:
        """The sums of rows without missing values."""
        pairs = cls(len(covariance))
        pairs.weights[:], pairs.products, pairs.place = weight, weight * covariance, mean.copy()
        return pairs

    def copy(self) -> Pairs:
        """A copy that goes its own way; arrays are shared, because none is ever changed in place."""
        new = Pairs(0)
        new.weights, new.sums, new.products, new.place = self.weights, self.sums, self.products, self.place
        return new

    def state(self) -> PairsState:
        return PairsState(self.weights.copy(), self.sums.copy(), self.products.copy(), self.place.copy())

    @classmethod
    def from_state(cls, state: PairsState) -> Self:
        pairs = cls(len(state.place))
        pairs.weights, pairs.sums, pairs.products = state.weights.copy(), state.sums.copy(), state.products.copy()
        pairs.place = state.place.copy()
        return pairs

    def add(self, rows: Floats, observed: Mask, weights: Floats, left: float) -> None:
        """Add rows, (n, D).

        Parameters
        ----------
        rows, observed : (n, D)
        weights : (n,)
            Weights of the rows after the last of them has come.
        left : float
            What is left of everything before these rows.
        """
        seen = observed.astype(np.float64)
        apart = np.where(observed, rows - self.place, 0.0)
        weighted = apart * weights[:, np.newaxis]
        self.weights = left * self.weights + matmul((seen * weights[:, np.newaxis]).T, seen)
        self.sums = left * self.sums + matmul(weighted.T, seen)
        self.products = left * self.products + matmul(weighted.T, apart)

    def move(self, place: Floats) -> None:
        """Take differences from another place, (D,)."""
        by = place - self.place
        moved = self.sums * by
        self.products = self.products - moved - moved.T + self.weights * by * by[:, np.newaxis]
        self.sums = self.sums - self.weights * by[:, np.newaxis]
        self.place = place.copy()

    def scale(self, factor: float) -> None:
        """Multiply every value by a factor."""
        self.sums, self.products, self.place = self.sums * factor, self.products * factor**2, self.place * factor

    def fade(self, left: float) -> None:
        """Let all weights fade to a share of what they were."""
        self.weights, self.sums, self.products = left * self.weights, left * self.sums, left * self.products

    def merge(self, other: Pairs) -> None:
        """Add the sums of other rows."""
        other = other.copy()
        other.move(self.place)
        self.weights, self.sums = self.weights + other.weights, self.sums + other.sums
        self.products = self.products + other.products

    def covariance(self, center: bool) -> Floats:
        """The covariance matrix, (D, D), symmetric; zero for pairs that were never observed together."""
        known = self.weights > 0
        per = np.divide(1.0, self.weights, out=np.zeros_like(self.weights), where=known)
        found: Floats = self.products * per
        if center:
            found -= (self.sums * per) * (self.sums.T * per)
        return 0.5 * (found + found.T)

    def read_out(self, rank: int, center: bool, deviations: Floats | None = None) -> ReadOut:
        """The leading directions of the nearest positive matrix, of features divided by deviations, (D,), where they are given."""
        matrix = self.covariance(center)
        if deviations is not None:
            matrix = matrix / deviations / deviations[:, np.newaxis]
        whole = bool(np.isfinite(matrix).all())
        values, vectors = eigh(matrix, check_finite=False) if whole else (np.zeros(0), matrix)
        if not whole or not np.isfinite(values).all():  # which only a forged file can lead to
            raise ValueError("The covariances of the model are not finite, so it has no directions: its file is not one that was saved.")
        values = nearest_positive(values[::-1])
        return ReadOut(np.ascontiguousarray(vectors.T[::-1][:rank]), values[:rank])


def nearest_positive(values: Floats) -> Floats:
    """Eigenvalues, largest first, of the nearest positive matrix of the same trace: all less by one number, and none below zero."""
    total = float(values.sum())
    if not len(values) or values[-1] >= 0.0:
        return values
    if total <= 0.0:
        return np.zeros_like(values)
    excess = (np.cumsum(values) - total) / np.arange(1.0, len(values) + 1.0)
    last = int(np.flatnonzero(values > excess)[-1])
    return np.asarray(np.maximum(values - excess[last], 0.0))
