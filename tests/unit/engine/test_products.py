"""Products by one BLAS are the products that NumPy gives, whatever the layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from online_psp.engine.blas import add_product, dot, full_gram, gram, matmul
from online_psp.engine.symmetric import symmetric_product
from online_psp.engine.types import Array

RNG = np.random.default_rng(0)


def layouts(M: Array) -> list[Array]:
    """The same values in C order, in Fortran order, and with gaps."""
    apart = np.empty((2 * M.shape[0], 2 * M.shape[1]), dtype=M.dtype)[::2, ::2]
    apart[:] = M
    return [np.ascontiguousarray(M), np.asfortranarray(M), apart]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("m", "k", "n"), [(3, 5, 4), (1, 7, 2), (6, 1, 3), (0, 4, 2), (3, 0, 2), (40, 200, 30)])
def test_matmul(m: int, k: int, n: int, dtype: Any) -> None:
    A, B = RNG.standard_normal((m, k)).astype(dtype), RNG.standard_normal((k, n)).astype(dtype)
    tolerance = 1e-12 if dtype is np.float64 else 1e-4
    for one in layouts(A):
        for two in layouts(B):
            found = matmul(one, two)
            assert found.dtype == dtype
            assert found.shape == (m, n)
            assert np.allclose(found, A @ B, atol=tolerance)
        assert np.allclose(matmul(one, B[:, 0].copy()), A @ B[:, 0], atol=tolerance), "a matrix and a vector"
    if m:
        for two in layouts(B):
            assert np.allclose(matmul(A[0].copy(), two), A[0] @ B, atol=tolerance), "a vector and a matrix"
    assert matmul(A, B.astype(np.float64)).dtype == np.result_type(dtype, np.float64), "mixed precision as NumPy has it"


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_gram(dtype: Any) -> None:
    X = RNG.standard_normal((7, 30)).astype(dtype)
    for layout in layouts(X):
        assert np.allclose(np.tril(gram(layout)), np.tril(X @ X.T), atol=1e-4)
        assert np.allclose(full_gram(layout), X @ X.T, atol=1e-4)
    assert gram(X[:0]).shape == (0, 0)
    assert dot(X[0], X[1]) == pytest.approx(float(X[0] @ X[1]), rel=1e-5)
    assert dot(X[0, :0], X[0, :0]) == 0.0


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_products_in_place(dtype: Any) -> None:
    rng = np.random.default_rng(2)
    stack = rng.standard_normal((9, 30)).astype(dtype)
    B, X, C = stack[:5], stack[5:], rng.standard_normal((5, 4))
    expected = B + 0.5 * (C @ X)
    add_product(B, 0.5, C, X)
    np.testing.assert_allclose(stack[:5], expected, rtol=0, atol=1e-5, err_msg="B + factor C X, in place")


def test_a_factor_goes_into_the_product() -> None:
    A = np.random.default_rng(3).standard_normal((4, 6))
    for one, two in ((A, A.T), (A, A[0]), (A[0], A.T), (A[0], A[1]), (A.astype(np.float32), A.T), (A[:0], A.T)):
        np.testing.assert_allclose(matmul(one, two, 3.0), 3.0 * (one @ two), rtol=1e-12)


@pytest.mark.parametrize("K", [1, 5, 203])
def test_only_the_lower_half_of_a_symmetric_matrix_is_read(K: int) -> None:
    S, x, product = RNG.standard_normal((K, K)), RNG.standard_normal(K), np.empty(K)
    symmetric_product(np.tril(S) + np.triu(np.full((K, K), np.nan), 1), x, product)
    np.testing.assert_allclose(product, (np.tril(S) + np.tril(S, -1).T) @ x, atol=1e-10)
