"""Where a basis is stored, and the three products of length D that a block needs.

Over a block of n samples every algorithm here leaves its basis ``B`` (K×D) as a linear combination of the old basis and the samples ``X``
(n×D). So the block is *compressed* into small arrays, ``P = X Bᵀ`` and ``G = X Xᵀ``; the algorithm *recurs* on those alone, sample by
sample; and the basis is *expanded*: ``B ← A B + C X``. The iterates are those of one sample at a time; the D-sized work is matrix products.

:class:`Store` is the interface between an algorithm and its basis. There are three implementations:

:class:`DenseStore`
    a NumPy array, which also holds an *open* block for learning one sample at a time;
:class:`~online_psp.engine.sparse_store.SparseStore`
    for sparse rows: a block touches only the features that occur in it;
:class:`~online_psp.engine.array_store.ArrayStore`
    an array of another library, perhaps on a device.

IPCA and CCIPCA need more than inner products: see `online_psp.engine.frames`.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, Protocol

import numpy as np

from online_psp.engine.blas import add_product, full_gram, matmul, row_products
from online_psp.engine.compiler import kernel
from online_psp.engine.sizes import LARGE_STACK, STRIP
from online_psp.engine.types import Array, Floats


class Store(Protocol):
    """A basis B (K×D), wherever it is stored."""

    K: int
    D: int

    def compress(self, rows: Any, G: Array | None = None) -> tuple[Floats, Floats]:
        """``P = X Bᵀ`` (n, K) and the lower half of ``G = X Xᵀ`` (n, n); pass G if it is known. The rows are then in hand."""

    def add(self, a: float, C: Floats) -> None:
        """``B ← a B + C X`` for the rows in hand, C (K, n); they are then released."""

    def move(self, A: Floats, C: Floats) -> None:
        """``B ← A B + C X`` for the rows in hand, A (K, K), C (K, n); they are then released."""

    def turn(self, A: Floats) -> None:
        """``B ← A B``."""

    def scale(self, factor: float) -> None:
        """``B ← factor B``."""

    def times(self, A: Floats) -> Array:
        """``A B``, as a NumPy array."""

    def gram(self) -> Floats:
        """``B Bᵀ``, (K, K)."""

    def read(self) -> Array:
        """B, (K, D), as a NumPy array of its own."""


@kernel
def put_and_multiply(stack: Array, last: int, row: Array, products: Array) -> None:
    """Store `row` as row `last` of the stack, and multiply it with itself and the rows before it: ``products[i] = stack[i] · row``.

    On a small stack a plain loop is as quick as BLAS, and has no overhead of threads; on a large one BLAS is called, where threads help.

    Parameters
    ----------
    stack : (m, D)
    last : int
    row : (D,)
    products : (last + 1,), filled
    """
    D, zero = stack.shape[1], stack.dtype.type(0)
    if last * D > LARGE_STACK:
        for k in range(D):
            stack[last, k] = row[k]
        np.dot(stack[: last + 1], row, products)
        return
    for i in range(last + 1):
        products[i] = zero
    for start in range(0, D, STRIP):  # short enough that x stays in the caches, long enough to be prefetched
        stop = min(D, start + STRIP)
        x, kept = row[start:stop], stack[last, start:stop]
        for k in range(stop - start):
            kept[k] = x[k]
        i = 0
        while i + 4 <= last + 1:
            one, two, three, four = stack[i, start:stop], stack[i + 1, start:stop], stack[i + 2, start:stop], stack[i + 3, start:stop]
            first, second, third, fourth = zero, zero, zero, zero
            for k in range(stop - start):
                first += one[k] * x[k]
                second += two[k] * x[k]
                third += three[k] * x[k]
                fourth += four[k] * x[k]
            products[i] += first
            products[i + 1] += second
            products[i + 2] += third
            products[i + 3] += fourth
            i += 4
        while i <= last:
            one, first = stack[i, start:stop], zero
            for k in range(stop - start):
                first += one[k] * x[k]
            products[i] += first
            i += 1


@cache
def least_scale(dtype: np.dtype[Any]) -> float:
    """The smallest factor to keep outside an array before it is multiplied in: far from where its inverse would overflow."""
    return math.cbrt(float(np.finfo(dtype).tiny))


class DenseStore:
    """A basis in a NumPy array, and an open block below it.

    The basis is ``s`` times the first K rows of the stack, so that ``B ← a B + C X`` only adds to them, and scaling costs nothing. (BLAS
    would scale in a pass of its own.) The samples of an open block are the rows after them, so that a new sample costs one matrix-vector
    product with the stack. The basis moves only when the block is full or somebody reads it.

    Parameters
    ----------
    basis : (K, D)
        It is copied.
    capacity : int
        Samples that the open block has room for.

    Attributes
    ----------
    stack : (K + capacity, D)
    s : float
    n : int
        Samples in the open block.
    """

    def __init__(self, basis: Array, capacity: int) -> None:
        self.K, self.D = basis.shape
        self.capacity, self.n, self.s = capacity, 0, 1.0
        self.stack: Array = np.empty((self.K + capacity, self.D), dtype=basis.dtype)
        self.stack[: self.K] = basis
        self._rows: Array | None = None

    def compress(self, rows: Array, G: Array | None = None) -> tuple[Floats, Floats]:
        self._rows, B = rows, self.stack[: self.K]
        if G is not None:
            return matmul(rows, B.T, self.s).astype(np.float64, copy=False), G.astype(np.float64, copy=False)
        P, G = row_products(rows, B)
        P *= self.s
        return P, G

    def add(self, a: float, C: Floats) -> None:
        X, rows = self._in_hand(), self.stack[: self.K]
        self.s *= a
        if not self.s > least_scale(rows.dtype):
            rows *= rows.dtype.type(self.s)
            self.s = 1.0
        add_product(rows, 1.0 / self.s, C, X)
        self.n, self._rows = 0, None

    def move(self, A: Floats, C: Floats) -> None:
        X, rows = self._in_hand(), self.stack[: self.K]
        new = matmul(A.astype(rows.dtype, copy=False), rows, self.s)
        add_product(new, 1.0, C, X)
        rows[:], self.s = new, 1.0
        self.n, self._rows = 0, None

    def _in_hand(self) -> Array:
        rows = self.stack[self.K : self.K + self.n] if self.n else self._rows
        assert rows is not None
        return rows

    def turn(self, A: Floats) -> None:
        rows = self.stack[: self.K]
        rows[:] = matmul(A.astype(rows.dtype), rows)

    def scale(self, factor: float) -> None:
        self.s *= factor

    def times(self, A: Floats) -> Array:
        rows = self.stack[: self.K]
        return matmul(A.astype(rows.dtype, copy=False), rows, self.s)

    def gram(self) -> Floats:
        return self.s**2 * full_gram(self.stack[: self.K]).astype(np.float64)

    def read(self) -> Array:
        return np.asarray(self.stack[: self.K] * self.stack.dtype.type(self.s))
