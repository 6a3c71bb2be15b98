"""Operations on symmetric matrices that read only the lower half: a K×K matrix larger than the caches costs what it takes to read it."""

from __future__ import annotations

from online_psp.engine.compiler import kernel
from online_psp.engine.types import Floats


@kernel
def symmetric_product(S: Floats, x: Floats, result: Floats) -> None:
    """``result = S x`` from the lower half of a symmetric S, which is read once, four rows at a time."""
    K = x.shape[0]
    for k in range(K):
        result[k] = 0.0
    i = 0
    while i + 4 <= K:
        one, two, three, four = S[i], S[i + 1], S[i + 2], S[i + 3]
        x1, x2, x3, x4 = x[i], x[i + 1], x[i + 2], x[i + 3]
        first, second, third, fourth = 0.0, 0.0, 0.0, 0.0
        for k in range(i):
            first += one[k] * x[k]
            second += two[k] * x[k]
            third += three[k] * x[k]
            fourth += four[k] * x[k]
        for k in range(i):
            result[k] += one[k] * x1 + two[k] * x2 + three[k] * x3 + four[k] * x4
        result[i] += first + one[i] * x1 + two[i] * x2 + three[i] * x3 + four[i] * x4
        result[i + 1] += second + two[i] * x1 + two[i + 1] * x2 + three[i + 1] * x3 + four[i + 1] * x4
        result[i + 2] += third + three[i] * x1 + three[i + 1] * x2 + three[i + 2] * x3 + four[i + 2] * x4
        result[i + 3] += fourth + four[i] * x1 + four[i + 1] * x2 + four[i + 2] * x3 + four[i + 3] * x4
        i += 4
    while i < K:
        total = 0.0
        for k in range(i):
            total += S[i, k] * x[k]
        for k in range(i):
            result[k] += S[i, k] * x[i]
        result[i] += total + S[i, i] * x[i]
        i += 1


@kernel
def fill_upper(S: Floats) -> None:
    """Copy the lower half of S to the upper one."""
    for i in range(S.shape[0]):
        for j in range(i):
            S[j, i] = S[i, j]
