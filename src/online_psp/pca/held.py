"""The rows of a block that is still open, as they came."""

from __future__ import annotations

from typing import Any

import numpy as np

from online_psp.engine.types import Array, Floats
from online_psp.pca.repeats import Held, without_repeats

_FEWEST = 64  # rows to make room for at first


class OpenRows:
    """Raw rows with their weights, kept in arrays that grow."""

    def __init__(self, D: int, dtype: np.dtype[Any]) -> None:
        self.n = 0
        self._kept = Held(np.zeros((0, D), dtype), np.zeros(0), np.zeros(0), np.zeros(0))

    @classmethod
    def of(cls, rows: Held) -> OpenRows:
        """Begin with these rows."""
        made = cls(0, rows.rows.dtype)
        made.n, made._kept = len(rows.rows), Held(*(each.copy() for each in rows))
        return made

    def all(self) -> Held:
        """The rows, without a copy."""
        return Held(*(each[: self.n] for each in self._kept))

    def add(self, rows: Array, weights: Floats, decays: Floats, most: int) -> None:
        """Append rows, (n, D); no more than `most` are ever held."""
        stop = self.n + len(rows)
        if stop > len(self._kept.rows):
            size = min(most, max(stop, _FEWEST, 2 * len(self._kept.rows)))
            self._kept = Held(*(_grown(each, size) for each in self._kept))
        for array, values in zip(self._kept, (rows, weights, weights**2, decays), strict=True):
            array[self.n : stop] = values
        self.n = stop

    def drop_repeats(self) -> int:
        """Keep each kind of row once, with the weight of all of them; returns how many rows that leaves out."""
        found, before = without_repeats(self.all()), self.n
        self._kept, self.n = found, len(found.rows)
        return before - self.n


def _grown(array: Any, rows: int) -> Any:
    new = np.zeros((rows, *array.shape[1:]), dtype=array.dtype)
    new[: len(array)] = array
    return new
