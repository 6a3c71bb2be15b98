"""Kernels on the three arrays of a CSR matrix X (n×D): row i has ``data[indptr[i]:indptr[i+1]]`` in columns ``indices[…]``.

`indptr` need not begin at zero, so a part of the rows is a slice of it, and nothing is copied.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from online_psp.engine.compiler import kernel
from online_psp.engine.types import Array, Floats


@kernel
def products(indptr: Array, indices: Array, data: Array, V: Array, S: Floats, P: Floats, XS: Floats) -> None:
    """``P = X V`` and ``XS = X S``, for V (D, K) and S (D,)."""
    K = V.shape[1]
    for i in range(len(indptr) - 1):
        P[i, :] = 0.0
        total = 0.0
        for at in range(indptr[i], indptr[i + 1]):
            j, value = indices[at], np.float64(data[at])
            total += value * S[j]
            for k in range(K):
                P[i, k] += value * V[j, k]
        XS[i] = total


@kernel
def gram(indptr: Array, indices: Array, data: Array, heads: NDArray[np.int64], G: Floats) -> None:
    """``G = X Xᵀ``, both triangles, by means of lists of the entries met so far in each column.

    The cost is that of the pairs of entries that share a column. `heads` (D,) is work space, −1 throughout before and after.
    """
    n = len(indptr) - 1
    base = indptr[0]
    before, row_of = np.empty(indptr[n] - base, np.int64), np.empty(indptr[n] - base, np.int64)
    G[:] = 0.0
    for i in range(n):
        for at in range(indptr[i], indptr[i + 1]):
            j, value = indices[at], np.float64(data[at])
            other = heads[j]
            before[at - base], row_of[at - base] = other, i
            heads[j] = at - base
            G[i, i] += value * value
            while other >= 0:
                G[i, row_of[other]] += value * data[base + other]
                other = before[other]
    for at in range(base, indptr[n]):
        heads[indices[at]] = -1
    for i in range(n):
        for k in range(i):
            G[k, i] = G[i, k]


@kernel
def scatter_add(indptr: Array, indices: Array, data: Array, C: Floats, V: Array) -> None:
    """``V ← V + Xᵀ C`` for C (n, K) and V (D, K); only the rows of V that occur in X are touched."""
    K = V.shape[1]
    for i in range(len(indptr) - 1):
        for at in range(indptr[i], indptr[i + 1]):
            j, value = indices[at], np.float64(data[at])
            for k in range(K):
                V[j, k] += value * C[i, k]
