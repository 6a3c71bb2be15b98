"""Stacked rows ``[B; X]`` of a basis and its samples, and the triangular factor that gives their coordinates in an orthonormal frame.

See `online_psp.engine.frames`, which builds on these.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.linalg import solve_triangular

from online_psp.engine.blas import add_product, matmul
from online_psp.engine.compiler import kernel
from online_psp.engine.sizes import TILE_BYTES
from online_psp.engine.store import put_and_multiply
from online_psp.engine.types import Array, Floats


def tiles(B: Array, X: Array) -> Iterator[tuple[slice, Array]]:
    """Columns of B to work on at a time, with the same columns of X: all of them, unless there are very many."""
    width = max(64, TILE_BYTES // (B.itemsize * (len(B) + len(X))))
    for start in range(0, B.shape[1], width):
        columns = slice(start, start + width)
        yield columns, np.ascontiguousarray(X[:, columns])


def recombine(B: Array, A: Floats, C: Floats, X: Array, source: Array | None = None) -> None:
    """``B ← A S + C X``, where S is `source`, or B itself by default."""
    source = B if source is None else source
    A = A.astype(B.dtype, copy=False)
    for columns, part in tiles(B, X):
        new = matmul(A, source[:, columns])
        add_product(new, 1.0, C, part)
        B[:, columns] = new


@kernel
def forward_substitute(L: Floats, b: Floats, n: int, first: int = 0) -> None:
    """Solve ``L[:n, :n] c = b[:n]`` in place, L lower triangular; its rows up to `first` are those of the identity."""
    for i in range(first, n):
        total = b[i]
        for j in range(i):
            total -= L[i, j] * b[j]
        b[i] = total / L[i, i]


@kernel
def add_to_frame(stack: Array, at: int, row: Array, frame: Floats, known: int, coordinates: Floats) -> tuple[float, float]:
    """Store `row` as row `at` of the stack, and fill in its coordinates in the frame of the rows before it.

    The first `known` of those rows are orthonormal.

    Returns
    -------
    square, pivot : float
        ``‖x‖²``, and the part of it outside that frame.
    """
    products = np.empty(at + 1, dtype=stack.dtype)
    put_and_multiply(stack, at, row, products)
    for i in range(at):
        coordinates[i] = products[i]
    forward_substitute(frame, coordinates, at, known)
    square = float(products[at])
    pivot = square
    for i in range(at):
        pivot -= coordinates[i] * coordinates[i]
    return square, pivot


def over_stack(Z: Floats, frame: Floats) -> Floats:
    """Turn coordinates Z over the orthonormal frame into coordinates over the stacked rows themselves."""
    return np.asarray(solve_triangular(frame, Z.T, trans="T", lower=True, check_finite=False).T)
