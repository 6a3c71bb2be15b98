"""Compress and expand: this module and `online_psp.engine.frames` are the only ones that touch arrays of length D.

Over a block of n samples every algorithm here leaves its basis ``B`` (K×D) as a linear combination of the old basis and the samples ``X``
(n×D). So the block is *compressed* into small arrays, the algorithm *recurs* on those alone, sample by sample, and the basis is *expanded*:
``B ← A B + C X``. The iterates are those of one sample at a time; the D-sized work is matrix products.

Two ways to compress:

:class:`GramBlock` (SM, FSM)
    ``P = X Bᵀ`` and ``G = X Xᵀ``: all that a similarity-matching recurrence reads.
:class:`~online_psp.engine.frames.FrameBlock` (IPCA, CCIPCA)
    Coordinates of the basis and of the samples in an orthonormal frame of ``[B; X]``. Norms of small residuals matter there, and an inner
    product of two residuals taken from a Gram matrix is only good to ``eps ‖x‖²``; coordinates are good to ``eps ‖x‖``.

Both hold an *open* block for one sample at a time: the stacked rows ``[B; pending samples]`` are one array, so that a new sample costs one
matrix-vector product with it, and the basis moves only when the block is full or somebody reads it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from online_psp.engine.blas import add_product, dot, gram, matmul
from online_psp.engine.compiler import kernel
from online_psp.engine.state import WritableState
from online_psp.engine.types import Array, Floats

_STRIP = 8192
_LARGE = 1 << 22  # numbers: 32 MB in double precision, more than the caches of most machines hold


class Block(WritableState, ABC):
    """The stacked rows ``[B; pending]`` and what both ways of compressing share.

    Parameters
    ----------
    basis : (K, D)
        The basis to start from; it is copied.
    pending : int
        How many samples the open block holds.
    """

    def __init__(self, basis: Array, pending: int) -> None:
        K, D = basis.shape
        self.stack: Array = np.empty((K + pending, D), dtype=basis.dtype)
        self.stack[:K] = basis
        self.K, self.D, self.pending = K, D, pending
        self.n = 0  # samples in the open block

    @property
    def basis(self) -> Array:
        """The K×D basis as of the last close (a view)."""
        return self.stack[: self.K]

    @abstractmethod
    def load(self, X: Array, G: Array | None = None) -> None:
        """Compress a whole block, (n, D), given the lower half of ``X Xᵀ`` where that is known."""

    @abstractmethod
    def nbytes(self) -> int:
        """Bytes held."""


@kernel
def put_and_multiply(stack: Array, last: int, row: Array, products: Array) -> None:
    """Make `row` row `last` of the stack, and multiply it with itself and the rows before it: ``products[i] = stack[i] · row``.

    Where the stack is small this is as quick as BLAS, and cannot fall into the overhead of threads; where it is large they help.

    Parameters
    ----------
    stack : (m, D)
    last : int
    row : (D,)
    products : (last + 1,), filled
    """
    D, zero = stack.shape[1], stack.dtype.type(0)
    if last * D > _LARGE:
        stack[last] = row
        np.dot(stack[: last + 1], row, products)
        return
    for i in range(last + 1):
        products[i] = zero
    for start in range(0, D, _STRIP):  # as much of x as stays in the caches, and long enough to be fetched ahead
        stop = min(D, start + _STRIP)
        x = row[start:stop]
        stack[last, start:stop] = x
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
    """How small a factor outside an array may get before it is multiplied in: far from where its inverse would overflow."""
    return math.cbrt(float(np.finfo(dtype).tiny))


class GramBlock(Block):
    """Inner products with the basis and between samples.

    The basis is ``s`` times the first rows of the stack: then ``B ← a B + C X`` adds to them, and scaling costs nothing. (BLAS would scale
    in a pass of its own.)

    Attributes
    ----------
    s : float
    P : (n, K)
    G : (n, n)
        Its lower triangle.
    """

    def __init__(self, basis: Array, pending: int) -> None:
        super().__init__(basis, pending)
        self.s = 1.0
        self.loaded: tuple[Floats, Floats] | None = None
        self.X: Array | None = None

    @property
    def basis(self) -> Array:
        """(K, D), formed for the occasion."""
        return np.asarray(self.stack[: self.K] * self.stack.dtype.type(self.s))

    @property
    def P(self) -> Floats:
        return self._both()[0]

    @property
    def G(self) -> Floats:
        return self._both()[1]

    def _both(self) -> tuple[Floats, Floats]:
        assert self.loaded is not None
        return self.loaded

    def load(self, X: Array, G: Array | None = None) -> None:
        P = matmul(X, self.stack[: self.K].T, self.s)
        G = gram(X) if G is None else G
        self.loaded = P.astype(np.float64, copy=False), G.astype(np.float64, copy=False)
        self.X = X

    def expand(self, a: float, C: Floats) -> None:
        """``B ← a B + C X`` for the block in hand, which is then let go."""
        X = self.stack[self.K : self.K + self.n] if self.n else self.X
        assert X is not None
        rows = self.stack[: self.K]
        self.s *= a
        if not self.s > least_scale(rows.dtype):
            rows *= rows.dtype.type(self.s)
            self.s = 1.0
        add_product(rows, 1.0 / self.s, C, X)
        self.n, self.X, self.loaded = 0, None, None

    def times(self, A: Floats) -> Array:
        """``A B``, (K, D)."""
        rows = self.stack[: self.K]
        return matmul(A.astype(rows.dtype, copy=False), rows, self.s)

    def turn(self, A: Floats) -> None:
        """``B ← A B``."""
        rows = self.stack[: self.K]
        rows[:] = matmul(A.astype(rows.dtype), rows)

    def scale(self, factor: float) -> None:
        """``B ← factor B``."""
        self.s *= factor

    def nbytes(self) -> int:
        return self.stack.nbytes


def row_squares(X: NDArray[Any]) -> Floats:
    """``‖x‖²`` of every row: finite exactly where the row is and its square does not overflow."""
    with np.errstate(over="ignore", invalid="ignore"):
        squares: Floats = np.einsum("ij,ij->i", X, X)
    return squares


def sum_of_squares(X: NDArray[Any]) -> float:
    """``‖X‖²``: one quick pass that tells whether everything is finite (if it is not, some row may be, or the sum overflowed)."""
    flat = X.ravel(order="K")
    return dot(flat, flat)
