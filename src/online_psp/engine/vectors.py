"""Small matrix-vector products for the recurrences, four rows at a time: a loop over few numbers costs mostly overhead."""

from __future__ import annotations

from online_psp.engine.compiler import kernel
from online_psp.engine.types import Floats


@kernel
def row_products(R: Floats, n: int, x: Floats, out: Floats) -> None:
    """``out[j] = R[j] · x`` for j < n."""
    K, j = len(x), 0
    while j + 4 <= n:
        one, two, three, four = R[j], R[j + 1], R[j + 2], R[j + 3]
        first, second, third, fourth = 0.0, 0.0, 0.0, 0.0
        for k in range(K):
            first += one[k] * x[k]
            second += two[k] * x[k]
            third += three[k] * x[k]
            fourth += four[k] * x[k]
        out[j], out[j + 1], out[j + 2], out[j + 3] = first, second, third, fourth
        j += 4
    while j < n:
        one, first = R[j], 0.0
        for k in range(K):
            first += one[k] * x[k]
        out[j] = first
        j += 1
