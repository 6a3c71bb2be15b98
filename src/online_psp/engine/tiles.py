"""Matrix products for small bases, by tiles that stay in registers.

BLAS copies both factors into an order of its own before it multiplies. If a block has a few dozen rows and the basis fits in the caches,
the copying and the calls cost about as much as the product. The products here read the basis in place, and take 0.6 to 0.9 times as long on
one core (ADR 15). They never wake a thread, and kernels can call them.

The rows of a block are copied once, into *strips* of columns, one after the other (:func:`into_strips`). Rows that lie a power of two
apart would otherwise push each other out of the caches.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from online_psp.engine.compiler import inlined_kernel, kernel
from online_psp.engine.register_tile import VECTOR, register_tile
from online_psp.engine.sizes import TILED_BASIS
from online_psp.engine.types import Array, Floats

WIDTH = 384
"""Columns of a strip."""
_PITCH = WIDTH + 8  # numbers from one row of a strip to the next: not a power of two
_MOST_ROWS = 256  # so that a strip stays in the caches
_TALL, _VECTORS = 4, 3  # a tile: twelve vectors of sums, and their factors, fill sixteen registers


def suits(K: int, D: int) -> bool:
    """Whether a basis is small enough that these products beat BLAS on it."""
    return K * D <= TILED_BASIS


def suit(X: Array, B: Array) -> bool:
    """Whether these products can be used for rows X (n, D) and a basis B (K, D), and beat BLAS there."""
    return suits(*B.shape) and len(X) <= _MOST_ROWS and X.dtype == B.dtype and X.flags.carray and B.flags.carray


def strips_for(rows: int, D: int, dtype: np.dtype[Any]) -> Array:
    """Memory for blocks of up to `rows` rows, cut into strips."""
    return np.empty((-(-D // WIDTH), rows, _PITCH), dtype=dtype)


@inlined_kernel
def _copy_strip(X: Array, first: int, last: int, start: int, width: int, strip: Array) -> None:
    """Copy some columns of rows `first` … `last`−1 of X into a strip."""
    for i in range(first, last):
        source, target = X[i, start : start + width], strip[i - first]
        for k in range(width):
            target[k] = source[k]


@inlined_kernel
def into_strips(X: Array, first: int, last: int, strips: Array) -> None:
    """Copy rows `first` … `last`−1 of X, (n, D), into strips."""
    for q in range(strips.shape[0]):
        _copy_strip(X, first, last, q * WIDTH, min(WIDTH, X.shape[1] - q * WIDTH), strips[q])


@kernel
def add_row_products(X: Array, B: Array, n: int, m: int, start: int, width: int, half: bool, P: Floats) -> None:
    """``P[i, j] += X[i] · B[j]`` for i < n, j < m, over `width` columns: those of X from the first on, those of B from `start` on.

    Parameters
    ----------
    X : (≥ n, ≥ width)
    B : (≥ m, ≥ start + width)
    half : bool
        Whether only j ≤ i is needed; entries above the diagonal are then undefined.
    P : (≥ n, ≥ m)
    """
    zero = X.dtype.type(0)
    j = 0
    while j + 3 <= m:
        b1, b2, b3 = B[j, start : start + width], B[j + 1, start : start + width], B[j + 2, start : start + width]
        i = j - j % 4 if half else 0
        while i + 4 <= n:
            x1, x2, x3, x4 = X[i, :width], X[i + 1, :width], X[i + 2, :width], X[i + 3, :width]
            p11, p12, p13, p21, p22, p23 = zero, zero, zero, zero, zero, zero
            p31, p32, p33, p41, p42, p43 = zero, zero, zero, zero, zero, zero
            for k in range(width):
                p11 += x1[k] * b1[k]
                p12 += x1[k] * b2[k]
                p13 += x1[k] * b3[k]
                p21 += x2[k] * b1[k]
                p22 += x2[k] * b2[k]
                p23 += x2[k] * b3[k]
                p31 += x3[k] * b1[k]
                p32 += x3[k] * b2[k]
                p33 += x3[k] * b3[k]
                p41 += x4[k] * b1[k]
                p42 += x4[k] * b2[k]
                p43 += x4[k] * b3[k]
            P[i, j] += p11
            P[i, j + 1] += p12
            P[i, j + 2] += p13
            P[i + 1, j] += p21
            P[i + 1, j + 1] += p22
            P[i + 1, j + 2] += p23
            P[i + 2, j] += p31
            P[i + 2, j + 1] += p32
            P[i + 2, j + 2] += p33
            P[i + 3, j] += p41
            P[i + 3, j + 1] += p42
            P[i + 3, j + 2] += p43
            i += 4
        while i < n:
            x1 = X[i, :width]
            p11, p12, p13 = zero, zero, zero
            for k in range(width):
                p11 += x1[k] * b1[k]
                p12 += x1[k] * b2[k]
                p13 += x1[k] * b3[k]
            P[i, j] += p11
            P[i, j + 1] += p12
            P[i, j + 2] += p13
            i += 1
        j += 3
    while j < m:
        b1 = B[j, start : start + width]
        i = j - j % 4 if half else 0
        while i + 4 <= n:
            x1, x2, x3, x4 = X[i, :width], X[i + 1, :width], X[i + 2, :width], X[i + 3, :width]
            p11, p21, p31, p41 = zero, zero, zero, zero
            for k in range(width):
                p11 += x1[k] * b1[k]
                p21 += x2[k] * b1[k]
                p31 += x3[k] * b1[k]
                p41 += x4[k] * b1[k]
            P[i, j] += p11
            P[i + 1, j] += p21
            P[i + 2, j] += p31
            P[i + 3, j] += p41
            i += 4
        while i < n:
            x1, p11 = X[i, :width], zero
            for k in range(width):
                p11 += x1[k] * b1[k]
            P[i, j] += p11
            i += 1
        j += 1


_large, _narrow, _flat, _small = (register_tile(tall, wide) for tall in (_TALL, 1) for wide in (_VECTORS, 1))


@kernel
def add_rows(B: Array, start: int, width: int, C: Array, X: Array, n: int) -> None:
    """``B[:, start : start + width] += C[:, :n] X[:n, :width]``.

    Parameters
    ----------
    B : (K, ≥ start + width)
    C : (K, ≥ n), X : (≥ n, ≥ width)
        In the precision of B.
    """
    K, lanes, i = B.shape[0], VECTOR // B.itemsize, 0
    while i < K:  # rows in the outer loop, so that those of B are read in long runs
        tall, k = _TALL if i + _TALL <= K else 1, 0
        while k + _VECTORS * lanes <= width:
            if tall == _TALL:
                _large(B, i, start + k, C, X, k, n)
            else:
                _flat(B, i, start + k, C, X, k, n)
            k += _VECTORS * lanes
        while k + lanes <= width:
            if tall == _TALL:
                _narrow(B, i, start + k, C, X, k, n)
            else:
                _small(B, i, start + k, C, X, k, n)
            k += lanes
        while k < width:
            for row in range(i, i + tall):
                total = B[row, start + k]
                for j in range(n):
                    total += C[row, j] * X[j, k]
                B[row, start + k] = total
            k += 1
        i += tall


@inlined_kernel
def multiply_strips(strips: Array, n: int, B: Array, P: Floats, G: Floats) -> None:
    """``P = X Bᵀ`` and the lower half of ``G = X Xᵀ`` for n rows in strips.

    Parameters
    ----------
    strips : as of `strips_for`
    B : (K, D)
    P : (≥ n, K), filled
    G : (≥ n, ≥ n), filled
    """
    K, D = B.shape
    for i in range(n):
        for j in range(K):
            P[i, j] = 0.0
        for j in range(n):
            G[i, j] = 0.0
    for q in range(strips.shape[0]):
        X, width = strips[q], min(WIDTH, D - q * WIDTH)
        add_row_products(X, B, n, K, q * WIDTH, width, False, P)
        add_row_products(X, X, n, n, 0, width, True, G)


@inlined_kernel
def add_strips(B: Array, C: Array, strips: Array, n: int) -> None:
    """``B ← B + C X`` for n rows in strips, C (K, ≥ n) in the precision of B."""
    D = B.shape[1]
    for q in range(strips.shape[0]):
        add_rows(B, q * WIDTH, min(WIDTH, D - q * WIDTH), C, strips[q], n)


@kernel
def products(X: Array, B: Array) -> tuple[Floats, Floats]:
    """``X Bᵀ`` (n, K) and ``X Xᵀ`` (n, n), the lower half and zeros above it, for X (n, D) and B (K, D); in double precision."""
    n, (K, D) = len(X), B.shape
    P, G, strip = np.zeros((n, K)), np.zeros((n, n)), np.empty((n, _PITCH), dtype=X.dtype)
    for start in range(0, D, WIDTH):
        width = min(WIDTH, D - start)
        _copy_strip(X, 0, n, start, width, strip)
        add_row_products(strip, B, n, K, start, width, False, P)
        add_row_products(strip, strip, n, n, 0, width, True, G)
    for i in range(n):  # tiles may have written above the diagonal, and states hold G
        for j in range(i + 1, n):
            G[i, j] = 0.0
    return P, G


@kernel
def add_product(B: Array, C: Array, X: Array) -> None:
    """``B ← B + C X`` for B (K, D), C (K, n), X (n, D), all of one precision."""
    n, D = X.shape
    strip = np.empty((n, _PITCH), dtype=X.dtype)
    for start in range(0, D, WIDTH):
        width = min(WIDTH, D - start)
        _copy_strip(X, 0, n, start, width, strip)
        add_rows(B, start, width, C, strip, n)


@kernel
def combine(A: Array, B: Array, C: Array, X: Array) -> Array:
    """``A B + C X``, (m, D), for A (m, K), B (K, D), C (m, n) and X (n, D), all of one precision: one pass over both."""
    (m, K), n, D = A.shape, X.shape[0], X.shape[1]
    new, factors = np.zeros((m, D), dtype=B.dtype), np.empty((m, K + n), dtype=B.dtype)
    for i in range(m):
        for j in range(K):
            factors[i, j] = A[i, j]
        for j in range(n):
            factors[i, K + j] = C[i, j]
    strip = np.empty((K + n, WIDTH // 2 + 8), dtype=B.dtype)
    for start in range(0, D, WIDTH // 2):
        width = min(WIDTH // 2, D - start)
        _copy_strip(B, 0, K, start, width, strip)
        _copy_strip(X, 0, n, start, width, strip[K:])
        add_rows(new, start, width, factors, strip, K + n)
    return new


@inlined_kernel
def times_symmetric(X: Floats, S: Floats, out: Floats) -> None:
    """``out = X S`` for a symmetric S, (K, K)."""
    n, K = X.shape
    if K * K <= TILED_BASIS:
        for i in range(n):
            for j in range(K):
                out[i, j] = 0.0
        add_row_products(X, S, n, K, 0, K, False, out)
    else:
        np.dot(X, S, out)


@kernel
def add_matrix_product(S: Floats, C: Floats, X: Floats) -> None:
    """``S ← S + C X`` for contiguous arrays."""
    if S.size <= TILED_BASIS:
        add_rows(S, 0, S.shape[1], C, X, X.shape[0])
    else:
        added = np.dot(C, X)
        for i in range(S.shape[0]):
            for k in range(S.shape[1]):
                S[i, k] += added[i, k]
