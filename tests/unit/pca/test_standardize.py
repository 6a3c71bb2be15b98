"""PCA of the correlation matrix, learned in the same pass."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler

from online_psp import OnlinePCA
from online_psp.engine.types import Floats
from online_psp.metrics import subspace_error


def odd_units(n: int, D: int, seed: int = 0) -> Floats:
    """A few common factors, in columns whose units differ by twelve orders of magnitude."""
    rng = np.random.default_rng(seed)
    factors = rng.standard_normal((n, 4)) * [3.0, 2.0, 1.5, 1.0] @ rng.standard_normal((4, D))
    return np.asarray((factors + rng.standard_normal((n, D)) + 5.0) * 10.0 ** rng.uniform(-6, 6, D))


def close(model: OnlinePCA, X: Floats, K: int, tolerance: float) -> None:
    scaled = StandardScaler().fit_transform(X)
    batch = PCA(K, svd_solver="full").fit(scaled)
    assert subspace_error(model.components_.T, batch.components_.T) < tolerance
    assert np.allclose(model.explained_variance_, batch.explained_variance_, rtol=max(10 * tolerance, 1e-9))
    assert np.allclose(model.explained_variance_ratio_, batch.explained_variance_ratio_, rtol=max(10 * tolerance, 1e-9))
    assert np.allclose(np.abs(model.transform(X)), np.abs(batch.transform(scaled)), atol=max(200 * tolerance, 1e-7))
    spread = np.abs(model.inverse_transform(model.transform(X)) - X) / X.std(axis=0)
    expected = np.abs(batch.inverse_transform(batch.transform(scaled)) - scaled)
    assert np.allclose(spread, expected, atol=max(200 * tolerance, 1e-6))


@pytest.mark.parametrize(("n", "D", "tolerance"), [(500, 40, 1e-9), (100, 300, 1e-9), (3000, 300, 2e-3)])
def test_as_after_a_standard_scaler(n: int, D: int, tolerance: float) -> None:
    X = odd_units(n, D)
    model = OnlinePCA(4, standardize=True).fit(X)
    close(model, X, 4, tolerance)
    assert np.isfinite(model.score(X))
    assert np.allclose(model.var_, X.var(axis=0, ddof=1), rtol=1e-9)


@pytest.mark.parametrize("D", [40, 300])
def test_sparse_rows_and_merges(D: int) -> None:
    X = odd_units(2000, D) * (np.random.default_rng(1).random((2000, D)) < 0.3)
    dense = OnlinePCA(4, standardize=True).fit(X)
    rows = OnlinePCA(4, standardize=True).partial_fit(sparse.csr_array(X[:700])).partial_fit(sparse.csr_array(X[700:]))
    assert subspace_error(rows.components_.T, dense.components_.T) < 1e-6
    assert np.allclose(rows.transform(sparse.csr_array(X[:9])), dense.transform(X[:9]), atol=1e-6)
    merged = OnlinePCA(4, standardize=True).fit(X[:900]).merge(OnlinePCA(4, standardize=True).fit(X[900:]))
    scaled = StandardScaler().fit_transform(X)
    error = subspace_error(merged.components_.T, PCA(4, svd_solver="full").fit(scaled).components_.T)
    assert error < (1e-8 if D == 40 else 0.05), f"merged: {error:.4f}"


@pytest.mark.parametrize("D", [40, 300])
def test_constant_columns(D: int) -> None:
    X = odd_units(1200, D)
    X[:, ::7] = 5.0
    model = OnlinePCA(4, standardize=True).fit(X)
    assert np.isfinite(model.transform(X)).all()
    assert np.abs(model.components_[:, ::7]).max() < 1e-6
    assert model.explained_variance_ratio_.sum() <= 1.0


def test_what_is_standardised_is_centred() -> None:
    with pytest.raises(ValueError, match="center=True"):
        OnlinePCA(2, standardize=True, center=False).fit(odd_units(50, 9))


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_coordinates_beyond_their_type_are_an_error(kind: str) -> None:
    """A feature that hardly varies, divided by its deviation, in numbers of 32 bits: infinite, and so not handed out."""
    X = np.random.default_rng(0).standard_normal((200, 6)).astype(np.float32)
    X[:, 2] *= np.float32(1e-40)
    rows = sparse.csr_array(X) if kind == "sparse" else X
    with pytest.raises(ValueError, match=r"row 0 .*float32"):
        OnlinePCA(3, standardize=True, dtype="float32").fit(X).transform(rows)
    Z = OnlinePCA(3, standardize=True, dtype="float64").fit(X).transform(rows)
    assert np.isfinite(Z).all()
    assert 0.5 < Z.std() < 3.0


@pytest.mark.parametrize("unit", [1e-100, 1.0, 1e100])
def test_a_constant_column_is_divided_by_one_in_any_units(unit: float) -> None:
    X = np.random.default_rng(15).standard_normal((300, 6)) * unit
    X[:, 2] = unit
    model = OnlinePCA(2, standardize=True).fit(X)
    assert model.scale_ is not None
    assert model.scale_[2] == 1.0, f"scale of a constant column {model.scale_[2]}, 1 expected"
    assert np.allclose(np.delete(model.scale_, 2) / unit, np.delete(X / unit, 2, axis=1).std(axis=0)), f"scales {model.scale_ / unit}"


@pytest.mark.parametrize("D", [30, 260])
def test_columns_whose_squares_underflow_are_not_taken_for_constant_in_silence(D: int) -> None:
    rng = np.random.default_rng(16)
    X = rng.standard_normal((600, D)) + rng.standard_normal((600, 1))
    with pytest.warns(RuntimeWarning, match="feature 0 .*constant"):
        _ = OnlinePCA(2, standardize=True).fit(X * 10.0 ** np.linspace(-150, 130, D)).components_
    plain, scaled = (OnlinePCA(2, standardize=True).fit(X * units).components_ for units in (1.0, 10.0 ** np.linspace(-60, 60, D)))
    error = subspace_error(scaled.T, plain.T)
    assert error < 1e-6, f"columns in units of 1e-60 to 1e60: error {error:.1e}"


def changed_units(seed: int = 17) -> tuple[Floats, Floats]:
    """Rows of which a third of the features are 1000 times as large from the middle on, and the components of the standardised rows."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((3000, 3)) * [1.5, 1.2, 0.9] @ rng.standard_normal((3, 300)) + rng.standard_normal((3000, 300))
    X[1500:, ::3] *= 1000.0
    return X, PCA(3).fit((X - X.mean(axis=0)) / X.std(axis=0)).components_


def test_units_that_change_half_way() -> None:
    X, batch = changed_units()
    model = OnlinePCA(3, standardize=True).fit(X)
    error = subspace_error(model.components_.T, batch.T)
    assert error < 0.005, f"error {error:.4f} to PCA of the standardised rows, below 0.005 expected"


def tailed(freedom: float, seed: int) -> Floats:
    """Rows of four factors, with noise of a t distribution in every value, and more features than are exact."""
    rng = np.random.default_rng(seed)
    loadings = rng.standard_normal((4, 320)) * np.array([1.5, 1.2, 1.0, 0.8])[:, np.newaxis]
    return np.asarray(rng.standard_normal((2500, 4)) @ loadings + rng.standard_t(freedom, (2500, 320)))


def with_sentences(rows: Any, **options: Any) -> tuple[OnlinePCA, list[str]]:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model = OnlinePCA(4, standardize=True, **options).fit(rows)
        _ = model.components_
    return model, [str(each.message) for each in said]


def test_deviations_that_change_unevenly_are_said() -> None:
    """Heavy tails: directions that were left out in the old deviations are missing in the new. Lighter tails need no word."""
    _, said = with_sentences(tailed(1.5, seed=71))
    assert any("have changed" in each for each in said), said
    model, said = with_sentences(tailed(3.0, seed=73))
    batch = PCA(4, svd_solver="full").fit(StandardScaler().fit_transform(tailed(3.0, seed=73)))
    error = subspace_error(model.components_.T, batch.components_.T)
    assert error < 0.01, f"error {error:.4f} to PCA of the standardised rows, below 0.01 expected"
    assert said == [], "nothing to be said of an error this small"
