"""The product of a sample with the stacked rows of a basis and of the samples before it: the only work of length D of `fit_next`."""

from __future__ import annotations

import numpy as np

from online_psp.engine.compiler import kernel
from online_psp.engine.types import Array

_LARGE = 1 << 22  # size of a stack from which BLAS, with its threads, beats the loop
_STRIP = 8192  # columns worked on at a time: the sample stays in the caches, and rows are long enough to be prefetched


@kernel
def put_and_multiply(stack: Array, last: int, row: Array, products: Array) -> None:
    """Store `row` as row `last` of the stack, and multiply it with itself and the rows before it: ``products[i] = stack[i] · row``.

    Parameters
    ----------
    stack : (m, D)
    last : int
    row : (D,)
    products : (last + 1,), filled
    """
    D, zero = stack.shape[1], stack.dtype.type(0)
    if last * D > _LARGE:
        for k in range(D):
            stack[last, k] = row[k]
        np.dot(stack[: last + 1], row, products)
        return
    for i in range(last + 1):
        products[i] = zero
    for start in range(0, D, _STRIP):
        stop = min(D, start + _STRIP)
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
