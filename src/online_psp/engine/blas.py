"""Matrix products, all through one BLAS: SciPy's, which the compiled kernels use too.

NumPy and SciPy each bring a BLAS of their own, whose threads spin for a while after every product. If products of the two alternated, as
they would in every block here, the threads of one would keep the other's from the cores, and a small block would take milliseconds instead
of microseconds. So no product on a sample's path goes through NumPy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas

from online_psp.engine.symmetric import fill_upper
from online_psp.engine.types import Array, Floats

_DOUBLE = np.dtype(np.float64)
_SINGLE = np.dtype(np.float32)


def matmul(A: NDArray[Any], B: NDArray[Any], factor: float = 1.0) -> Array:
    """``factor A @ B`` for matrices and vectors."""
    dtype = A.dtype
    if dtype != B.dtype or dtype not in (_DOUBLE, _SINGLE) or not A.size or not B.size:
        return np.asarray(factor * (A @ B))
    if A.ndim == 1:
        return matmul(B.T, A, factor) if B.ndim == 2 else np.asarray(factor * dot(A, B))
    if B.ndim == 1:
        gemv = blas.dgemv if dtype == _DOUBLE else blas.sgemv
        if A.flags.f_contiguous:
            return np.asarray(gemv(factor, A, B))
        return np.asarray(gemv(factor, np.ascontiguousarray(A).T, B, trans=1))
    # In the column order of BLAS this is (A B)ᵀ = Bᵀ Aᵀ; a matrix stored by columns is passed as it is, and BLAS transposes it.
    gemm = blas.dgemm if dtype == _DOUBLE else blas.sgemm
    left, turn_left = _as_columns(B)
    right, turn_right = _as_columns(A)
    return np.asarray(gemm(factor, left, right, trans_a=turn_left, trans_b=turn_right).T)


def _as_columns(M: NDArray[Any]) -> tuple[NDArray[Any], int]:
    """``Mᵀ`` as a matrix stored by columns, and whether BLAS still has to transpose it."""
    if M.flags.c_contiguous:
        return M.T, 0
    return (M, 1) if M.flags.f_contiguous else (np.ascontiguousarray(M).T, 0)


def add_product(B: Array, factor: float, C: Floats, X: Array) -> None:
    """``B ← B + factor C X`` in place."""
    gemm = blas.dgemm if B.dtype == _DOUBLE else blas.sgemm
    gemm(factor, X.T, C.T.astype(B.dtype, order="F", copy=False), beta=1.0, c=B.T, overwrite_c=1)


def gram(X: Array) -> Array:
    """``X Xᵀ`` for X (n, D); only the lower triangle is filled."""
    if not X.size:
        return np.asarray(X @ X.T)
    syrk = blas.dsyrk if X.dtype == _DOUBLE else blas.ssyrk
    return np.asarray(syrk(1.0, np.ascontiguousarray(X).T, trans=1).T)


def full_gram(X: Array) -> Array:
    """``X Xᵀ``, all of it."""
    whole = gram(X)
    fill_upper(whole)
    return whole


def dot(x: Array, y: Array) -> float:
    """``x · y``."""
    if not x.size:
        return 0.0
    return float((blas.ddot if x.dtype == _DOUBLE else blas.sdot)(x, y))
