"""Metrics against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import subspace_angles

from online_psp.engine.types import Floats
from online_psp.metrics import (
    batch_components,
    explained_variance_fraction,
    orthonormal_error,
    principal_angles,
    spanned,
    standardize,
    subspace_error,
)
from tests.oracle import spiked

RNG = np.random.default_rng(0)
U = np.linalg.qr(RNG.standard_normal((30, 4)))[0]
V = np.linalg.qr(RNG.standard_normal((30, 4)))[0]


def test_subspace_error_is_the_distance_of_projections() -> None:
    expected = np.linalg.norm(U @ U.T - V @ V.T) / np.linalg.norm(V @ V.T)
    assert subspace_error(U, V) == pytest.approx(expected, rel=1e-12)
    assert subspace_error(V, U) == pytest.approx(expected, rel=1e-12)


def test_subspace_error_depends_on_the_span_only() -> None:
    mixed = U @ RNG.standard_normal((4, 4))
    assert subspace_error(mixed, U) < 1e-13
    assert subspace_error(mixed, V) == pytest.approx(subspace_error(U, V), rel=1e-10)


@pytest.mark.parametrize("size", [1e-4, 1e-8, 1e-11])
def test_subspace_error_is_right_when_small(size: float) -> None:
    step = RNG.standard_normal((30, 4))
    step -= U @ (U.T @ step)
    step *= size / np.linalg.norm(step)
    assert subspace_error(U + step, U) == pytest.approx(np.sqrt(2 / 4) * size, rel=1e-3)


def test_the_lengths_of_columns_do_not_matter() -> None:
    assert subspace_error(U * np.array([1.0, 1e-30, 1e30, 1e-100]), U) < 1e-13


def test_a_span_of_another_dimension_has_a_distance_too() -> None:
    """A basis with columns that say nothing is measured by what it spans, and not by what rounding makes of the rest."""
    broken = np.column_stack([U[:, 0], U[:, 0], np.zeros(30), 3 * U[:, 1]])
    Q = spanned(broken)
    assert Q.shape == (30, 2)
    expected = np.linalg.norm(U[:, :2] @ U[:, :2].T - V @ V.T) / np.linalg.norm(V @ V.T)
    assert orthonormal_error(Q, V) == pytest.approx(expected, rel=1e-12)
    assert orthonormal_error(spanned(np.zeros((30, 4))), V) == pytest.approx(1.0), "nothing is found: the whole of V is missed"


def test_orthogonal_subspaces_are_at_root_two() -> None:
    both = np.linalg.qr(RNG.standard_normal((30, 8)))[0]
    assert subspace_error(both[:, :4], both[:, 4:]) == pytest.approx(np.sqrt(2))


def test_principal_angles_are_scipys_and_exact_when_small() -> None:
    assert np.allclose(principal_angles(U, V), np.sort(subspace_angles(U, V)))
    assert np.allclose(principal_angles(U[:, :2], V), np.sort(subspace_angles(U[:, :2], V)))
    assert principal_angles(U, U).max() < 1e-14


def test_explained_variance_fraction() -> None:
    X = spiked(200, 30, 4) + 3.0
    full = np.linalg.qr(RNG.standard_normal((30, 30)))[0]
    assert explained_variance_fraction(full, X) == pytest.approx(1.0)
    best = batch_components(X - X.mean(axis=0), 4)
    values = np.linalg.svd(X - X.mean(axis=0), compute_uv=False) ** 2
    assert explained_variance_fraction(best, X) == pytest.approx(values[:4].sum() / values.sum())


@pytest.mark.parametrize("n", [12, 100])
def test_batch_components_are_the_leading_singular_vectors(n: int) -> None:
    X = spiked(n, 30, 4)
    expected = np.linalg.svd(X, full_matrices=False)[2][:4]
    found = batch_components(X, 4)
    assert np.allclose(np.abs(np.sum(found.T * expected, axis=1)), 1.0)


def test_standardize_gives_mean_zero_and_mean_norm_one() -> None:
    Z = standardize(spiked(50, 30, 4) * 7 + 2)
    assert np.abs(Z.mean(axis=0)).max() < 1e-14
    assert np.linalg.norm(Z, axis=1).mean() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("one", "two", "message"),
    [
        (U.T, V, "as columns"),
        (U, V[:20], "same number of features"),
        (U, V[:, :3], "same dimension"),
        (U * np.nan, V, "finite"),
        (np.zeros((30, 4)), V, "columns of U span only 0 dimensions"),
        (np.repeat(U[:, :1], 4, axis=1), V, "columns of U span only 1 dimensions"),
        (U, V[:, [0, 1, 1, 2]], "columns of V span only 3 dimensions"),
        (U * 1j, V, "real numbers; got complex128"),
    ],
)
def test_bases_that_do_not_fit(one: Floats, two: Floats, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        subspace_error(one, two)
