"""The largest eigenvalues of symmetric matrices."""

from __future__ import annotations

from typing import Any

from scipy.linalg import eigh

from online_psp.engine.types import Floats

_PART = 6
"""Size of a matrix, in multiples of the eigenvalues wanted, up to which it is faster to find all of them."""


def largest(matrix: Floats, k: int) -> tuple[Any, Any]:
    """The k largest eigenvalues, (k,), ascending, and their eigenvectors, (n, k), of a matrix of which only the lower half is read.

    Where many eigenvalues are equal, LAPACK's way to find a part of them may end with fewer, without an error; then all are found.
    """
    n = len(matrix)
    if n > _PART * k:
        values, vectors = eigh(matrix, subset_by_index=(n - k, n - 1), check_finite=False)
        if len(values) == k:
            return values, vectors
    values, vectors = eigh(matrix, driver="evd", check_finite=False)
    return values[n - k :], vectors[:, n - k :]
