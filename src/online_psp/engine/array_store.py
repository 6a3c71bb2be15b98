"""A basis in an array of another library (array API standard): products run on the array's device, the recurrence on the host.

For a block of n rows, ``P = X Bᵀ`` and ``G = X Xᵀ`` come to the host, and C (K×n) goes back.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from online_psp.engine.libraries import Library, to_host
from online_psp.engine.rows import ArrayRows
from online_psp.engine.types import Array, Floats


class ArrayStore:
    """A basis B (K×D) in an array of another library.

    Parameters
    ----------
    basis : (K, D)
    library : Library
        Library, device and precision of the rows that it will take.
    """

    def __init__(self, basis: Array, library: Library) -> None:
        self.K, self.D = basis.shape
        self.library = library
        self.B: Any = library.of(basis)
        self._rows: Any = None

    def compress(self, rows: ArrayRows, G: Array | None = None) -> tuple[Floats, Floats]:
        self._rows = rows.X
        P, G = (to_host(each).astype(np.float64, copy=False) for each in (self._rows @ self.B.T, self._rows @ self._rows.T))
        return P, G

    def add(self, a: float, C: Floats) -> None:
        C_there = self.library.of(C)
        if hasattr(self.B, "addmm_"):  # torch does it in one call, without temporaries of the size of the basis
            self.B.addmm_(C_there, self._rows, beta=a)
        else:
            self.B = self.B * a + C_there @ self._rows
        self._rows = None

    def move(self, A: Floats, C: Floats) -> None:
        self.B = self.library.of(A) @ self.B + self.library.of(C) @ self._rows
        self._rows = None

    def turn(self, A: Floats) -> None:
        self.B = self.library.of(A) @ self.B

    def scale(self, factor: float) -> None:
        self.B = self.B * factor

    def times(self, A: Floats) -> Array:
        return to_host(self.library.of(A) @ self.B)

    def gram(self) -> Floats:
        return to_host(self.B @ self.B.T).astype(np.float64)

    def read(self) -> Array:
        return np.array(to_host(self.B))
