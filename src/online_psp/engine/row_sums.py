"""Squares of rows and sums of a few of them, in one pass over the rows."""

from __future__ import annotations

import numpy as np

from online_psp.engine.compiler import kernel
from online_psp.engine.types import Array, Floats


@kernel
def _add_row(x: Array, factor: float, out: Array) -> None:
    for j in range(x.shape[0]):
        out[j] += factor * x[j]


@kernel
def _square(x: Array) -> float:
    total = 0.0
    for j in range(x.shape[0]):
        total += np.float64(x[j]) * np.float64(x[j])
    return total


@kernel
def squares_and_sums(X: Array, factors: Array, squares: Floats, sums: Array) -> None:
    """``squares[i] = ‖x_i‖²``, and sums of every count-th row, each times its factor; quickest for four rows each.

    Parameters
    ----------
    X : (n, D)
    factors : (n,)
    squares : (n,), filled
    sums : (count, D), filled
    """
    n, count = X.shape[0], sums.shape[0]
    for i in range(count):
        out = sums[i]
        if i + 3 * count < n:
            a, b, c, d = X[i], X[i + count], X[i + 2 * count], X[i + 3 * count]
            fa, fb, fc, fd = factors[i], factors[i + count], factors[i + 2 * count], factors[i + 3 * count]
            for j in range(out.shape[0]):
                out[j] = fa * a[j] + fb * b[j] + fc * c[j] + fd * d[j]
        else:
            out[:] = 0.0
            for k in range(i, n, count):
                _add_row(X[k], factors[k], out)
        for k in range(i, n, count):
            squares[k] = _square(X[k])
