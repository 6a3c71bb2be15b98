"""What a stream has learned, as a view to read."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from online_psp.engine.types import Array, Floats
from online_psp.pca.settings import Settings


class View(NamedTuple):
    """What can be read of a stream at one moment, in the units of the data."""

    components: Array
    """(K', D), orthonormal rows, largest variance first; the entry of largest size in each is positive."""
    variances: Floats
    """(K',), divided by the weight."""
    total_variance: float
    feature_variances: Floats
    """(D,)"""
    mean: Floats
    """(D,)"""
    deviations: Floats | None
    """(D,): divisors of standardised features, whose components these then are; None otherwise."""
    seen: int
    weight: float
    squares: float
    known: Floats | None = None
    """(D,): sum of the weights of the rows in which each feature was observed; None if none was ever missing."""
    excess: float = 1.0
    """Factor of the noise when missing values are filled."""
    gross: float = 0.0
    """Share of the weight of all rows that was taken from gross ones."""

    def degrees(self, settings: Settings) -> float:
        """Factor that makes a variance divided by the weight unbiased."""
        if not settings.center:
            return 1.0
        if settings.half_life is None:
            return self.weight / (self.weight - 1.0) if self.weight > 1.0 else 1.0
        left = self.weight**2 - self.squares
        return self.weight**2 / left if left > 0 else 1.0


def flip_signs(components: Array) -> Array:
    """The one rule for signs: the entry of largest size in each component is positive."""
    largest = components[np.arange(len(components)), np.argmax(np.abs(components), axis=1)]
    flipped: Array = components * np.where(largest < 0, -1.0, 1.0)[:, np.newaxis].astype(components.dtype)
    return flipped
