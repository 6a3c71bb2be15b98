"""Missing values: what is learned from rows with holes, and how they are filled."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.decomposition import PCA

from online_psp import FSM, OnlinePCA
from online_psp.datasets import load
from online_psp.engine.types import Floats
from online_psp.metrics import subspace_error
from tests.oracle import check_same

SIZES = {"few features": (30, 3), "between": (120, 3), "many features": (300, 4)}  # sums of pairs; filled, with and without a matrix before


def rows_of(n: int, D: int, K: int, seed: int = 0, noise: float = 0.5) -> Floats:
    rng = np.random.default_rng(seed)
    U = np.linalg.qr(rng.standard_normal((D, K)))[0]
    return np.asarray(rng.standard_normal((n, K)) * np.linspace(6, 3, K) @ U.T + noise * rng.standard_normal((n, D)) + 3.0)


def with_holes(X: Floats, share: float, seed: int = 1) -> Floats:
    return np.where(np.random.default_rng(seed).random(X.shape) < share, np.nan, X)


def pairwise_basis(H: Floats, K: int) -> Floats:
    return np.asarray(np.linalg.eigh(pd.DataFrame(H).cov().fillna(0.0).to_numpy())[1][:, ::-1][:, :K])


def mean_filled(H: Floats) -> Floats:
    return np.where(np.isnan(H), np.nanmean(H, axis=0), H)


# What is learned


@pytest.mark.parametrize("kind", SIZES)
def test_rows_without_holes_give_exactly_the_plain_model(kind: str) -> None:
    D, K = SIZES[kind]
    X = rows_of(700, D, K)
    check_same(OnlinePCA(K, missing="impute").fit(X), OnlinePCA(K).fit(X))


@pytest.mark.parametrize(
    ("kind", "first"), [("few features", 0), ("few features", 37), ("between", 1), ("many features", 0), ("many features", 650)]
)
def test_moments_count_what_is_observed(kind: str, first: int) -> None:
    """Also where the first hole comes after rows that were learned without any."""
    D, K = SIZES[kind]
    H = rows_of(700, D, K)
    H[first:] = with_holes(H[first:], 0.3)
    model = OnlinePCA(K, missing="impute").fit(H)
    assert np.allclose(model.mean_, np.nanmean(H, axis=0), atol=1e-10)
    assert np.allclose(model.var_, np.nanvar(H, axis=0, ddof=1), rtol=1e-9)
    assert model.n_samples_seen_ == 700
    truth = PCA(K).fit(rows_of(700, D, K)).components_.T
    error, plain = subspace_error(model.components_.T, truth), subspace_error(PCA(K).fit(mean_filled(H)).components_.T, truth)
    assert error < 1.1 * plain + 0.005, f"error {error:.3f}, with means in the place of holes {plain:.3f}"
    assert np.allclose(model.components_ @ model.components_.T, np.eye(K), atol=1e-10)


@pytest.mark.parametrize("kind", SIZES)
def test_a_weight_of_two_is_the_row_twice(kind: str) -> None:
    D, K = SIZES[kind]
    H = with_holes(rows_of(600, D, K), 0.2)
    twice = OnlinePCA(K, missing="impute").fit(np.repeat(H, 2, axis=0))
    heavy = OnlinePCA(K, missing="impute").fit(H, sample_weight=np.full(600, 2.0))
    assert np.allclose(twice.mean_, heavy.mean_)
    assert np.allclose(twice.var_, heavy.var_)
    assert subspace_error(twice.components_.T, heavy.components_.T) < 0.03


@pytest.mark.parametrize(("kind", "holes_in"), [("few features", "both"), ("between", "one"), ("many features", "both")])
def test_merged_models_are_near_one_that_saw_everything(kind: str, holes_in: str) -> None:
    D, K = SIZES[kind]
    X = rows_of(1600, D, K)
    H = with_holes(X, 0.2)
    if holes_in == "one":
        H[:800] = X[:800]
    merged = OnlinePCA(K, missing="impute").fit(H[:800]).merge(OnlinePCA(K, missing="impute").fit(H[800:]))
    assert np.allclose(merged.mean_, np.nanmean(H, axis=0))
    assert np.allclose(merged.var_, np.nanvar(H, axis=0, ddof=1))
    assert merged.n_samples_seen_ == 1600
    one = OnlinePCA(K, missing="impute").fit(H)
    assert subspace_error(merged.components_.T, one.components_.T) < 0.05
    assert merged.partial_fit(H[:50]).n_samples_seen_ == 1650
    with pytest.raises(ValueError, match="missing"):
        OnlinePCA(K).fit(X).merge(one)


@pytest.mark.parametrize("D", [40, 300])
@pytest.mark.parametrize("standardize", [False, True])
def test_models_that_share_but_some_features_are_merged_by_those(D: int, standardize: bool) -> None:
    rng, K, n = np.random.default_rng(0), 4, 2000
    U = np.linalg.qr(rng.standard_normal((D, K)))[0]
    X = (rng.standard_normal((2 * n, K)) * np.linspace(3, 1.5, K)) @ U.T + 0.2 * rng.standard_normal((2 * n, D))
    H = X.copy()
    H[:n, int(0.8 * D) :] = np.nan
    H[n:, : int(0.2 * D)] = np.nan
    one, two = (OnlinePCA(K, missing="impute", standardize=standardize).partial_fit(part) for part in (H[:n], H[n:]))
    truth = PCA(K).fit(X / X.std(axis=0) if standardize else X).components_
    merged = one.merge(two)
    assert subspace_error(merged.components_.T, truth.T) < 0.1
    assert np.allclose(merged.var_, np.nanvar(H, axis=0, ddof=1))


def test_rows_with_nothing_teach_nothing_and_features_never_seen_are_said() -> None:
    H = with_holes(rows_of(500, 300, 4), 0.2)
    empty = np.full((40, 300), np.nan)
    model = OnlinePCA(4, missing="impute").partial_fit(empty)  # before anything else
    assert model.n_samples_seen_ == 40
    assert np.isfinite(model.components_).all()
    model.partial_fit(H).partial_fit(empty)
    plain = OnlinePCA(4, missing="impute").fit(H)
    assert model.n_samples_seen_ == 580
    assert model.effective_samples_ == 500
    assert np.allclose(model.mean_, plain.mean_)
    assert subspace_error(model.components_.T, plain.components_.T) < 0.05
    assert np.allclose(model.impute(empty[:2]), model.mean_), "nothing is known of such a row but the mean"
    assert np.allclose(model.transform(empty[:2]), 0.0)
    H[:, 7] = np.nan
    for D in (300, 30):
        with pytest.warns(UserWarning, match="never been observed .*7"):
            never = OnlinePCA(4, missing="impute").fit(H[:, :D])
        assert never.mean_[7] == 0.0
        assert np.abs(never.components_[:, 7]).max() < 1e-8
        with pytest.warns(UserWarning, match="never been observed"):
            assert np.allclose(never.impute(H[:3, :D])[:, 7], 0.0, atol=1e-12)


@pytest.mark.filterwarnings("ignore:.*are not predicted by the others")
@settings(max_examples=25)
@given(st.integers(0, 10**6), st.sampled_from([3, 30, 80]), st.floats(0.05, 1.0), st.sampled_from(["values", "rows", "columns", "stretch"]))
def test_holes_of_any_shape_give_a_finite_model(seed: int, D: int, share: float, pattern: str) -> None:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((70, D)) * 10.0 ** rng.integers(-3, 4)
    if pattern == "values":
        X[rng.random(X.shape) < share] = np.nan
    elif pattern == "rows":
        X[rng.random(70) < share] = np.nan
    elif pattern == "columns":
        X[:, rng.random(D) < share] = np.nan
    else:
        X[20:60, : max(1, int(share * D))] = np.nan
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*never been observed")
        model = OnlinePCA(2, oversample=1, missing="impute").fit(X)
        full = model.impute(X)
    assert np.isfinite(full).all()
    assert np.array_equal(full[~np.isnan(X)], X[~np.isnan(X)])
    assert np.allclose(model.components_ @ model.components_.T, np.eye(model.n_components_), atol=1e-8)
    assert np.isfinite(model.transform(X)).all()
    assert np.isfinite(model.score_samples(X)).all()
    assert (model.explained_variance_ >= 0).all()


# What is refused


def test_nan_is_refused_without_the_option_and_infinity_always() -> None:
    X = rows_of(50, 30, 3)
    H = X.copy()
    H[-1, 4] = np.nan
    model = OnlinePCA(3).fit(X)
    before = model.components_.copy()
    for call in (model.partial_fit, model.transform, model.score_samples, OnlinePCA(3).fit):
        with pytest.raises(ValueError, match=r"NaN: row 49, column 4.*missing='impute'"):
            call(H)
    assert np.array_equal(before, model.components_)
    H[20, 2] = np.nan
    H[30, :2] = np.nan, np.inf
    taking = OnlinePCA(3, missing="impute").fit(X)
    for call in (taking.partial_fit, taking.transform, taking.score_samples, taking.impute, OnlinePCA(3, missing="impute").fit):
        with pytest.raises(ValueError, match="infinity: row 30, column 1"):
            call(H)
    with pytest.raises(ValueError, match="infinity"):
        taking.fit_next(H[30])
    assert taking.n_samples_seen_ == 50


# Containers


def test_every_container_is_filled_as_itself() -> None:
    X = rows_of(400, 30, 3)
    H = with_holes(X, 0.2)
    H[:, 5] = np.round(H[:, 5])
    model = OnlinePCA(3, missing="impute").fit(H)
    expected = model.impute(H)
    names = [f"c{i}" for i in range(30)]
    frame = pd.DataFrame(H, columns=names, index=range(100, 500)).astype({"c1": "float32", "c2": "Float64"})
    frame["c5"] = frame["c5"].astype("Int64")
    named = OnlinePCA(3, missing="impute").fit(frame)
    assert np.allclose(named.components_, model.components_, atol=1e-5)
    full = named.impute(frame)
    assert isinstance(full, pd.DataFrame)
    assert (full.index == frame.index).all()
    assert str(full.dtypes["c1"]) == "float32"
    assert str(full.dtypes["c2"]) == "Float64"
    assert not full.isna().any().any()
    assert np.allclose(full.to_numpy(dtype=float), expected, atol=1e-4)
    lazy = pl.DataFrame(H, schema=names).fill_nan(None)
    filled = OnlinePCA(3, missing="impute").fit(lazy).impute(lazy)
    assert isinstance(filled, pl.DataFrame)
    assert np.allclose(filled.to_numpy(), expected)
    single = model.impute(H.astype(np.float32))
    assert single.dtype == np.float32
    assert np.allclose(model.impute(H.tolist()), expected)


def test_sparse_rows_count_what_was_observed_before_them() -> None:
    """Rows without holes after some with holes: a feature's own weight decides, not that of the rows."""
    H = rows_of(1200, 300, 2)
    H[:600, 3] = np.nan
    dense = OnlinePCA(2, missing="impute").partial_fit(H[:600]).partial_fit(H[600:])
    sparse = OnlinePCA(2, missing="impute").partial_fit(H[:600]).partial_fit(csr_array(H[600:]))
    check_same(sparse, dense)
    assert np.allclose(sparse.mean_[3], H[600:, 3].mean())


@pytest.mark.filterwarnings("ignore:.*are not predicted by the others")
def test_in_sparse_rows_absent_is_zero_and_nan_is_missing() -> None:
    rng = np.random.default_rng(0)
    X = np.where(rng.random((500, 80)) < 0.1, rng.standard_normal((500, 80)) + 2.0, 0.0)
    H = np.where((rng.random(X.shape) < 0.2) & (X != 0), np.nan, X)
    for K, oversample in ((3, None), (2, 2)):
        sparse = OnlinePCA(K, oversample=oversample, missing="impute").fit(csr_array(H))
        dense = OnlinePCA(K, oversample=oversample, missing="impute").fit(H)
        assert np.allclose(sparse.components_, dense.components_, atol=1e-9)
        full = sparse.impute(csr_array(H))
        assert full.nnz == np.count_nonzero(H)
        assert np.allclose(full.toarray(), dense.impute(H), atol=1e-8)
        assert np.allclose(sparse.transform(csr_array(H)), dense.transform(H), atol=1e-8)
        assert np.allclose(sparse.score_samples(csr_array(H)), dense.score_samples(H))


# How well


@functools.cache
def problem(name: str) -> tuple[Floats, int]:
    if name == "spiked":
        from online_psp.datasets.spiked import spiked_covariance

        return spiked_covariance(4000, 200, 6, 0.01, seed=3).X, 6
    X = load("mnist").X[:5000]
    return np.asarray(X, dtype=np.float64), 8


@pytest.mark.parametrize("options", [{}, {"standardize": True}])
def test_features_that_appear_late_are_learned_as_if_they_had_been_there(options: dict[str, Any]) -> None:
    """What was learned before is carried over to them; it is not averaged with zeros."""
    X = rows_of(1500, 300, 4, seed=4)
    H = X.copy()
    H[:700, :150] = np.nan
    model = OnlinePCA(4, missing="impute", **options).fit(H)
    scaled = (X - X.mean(axis=0)) / X.std(axis=0, ddof=1) if options else X
    truth = PCA(4).fit(scaled)
    error = subspace_error(model.components_.T, truth.components_.T)
    assert error < 0.12, f"error {error:.2f}; 800 rows alone give 0.07"
    assert np.allclose(model.explained_variance_, truth.explained_variance_, rtol=0.05)
    assert model.noise_variance_ == pytest.approx(truth.noise_variance_, rel=0.05)


def test_a_stretch_of_dependent_features_does_not_make_the_model_trust_itself() -> None:
    """Neighbouring features of a picture depend on each other beyond the directions kept: filling must not amplify that."""
    rng = np.random.default_rng(2)
    smooth = np.exp(-0.5 * ((np.arange(300)[:, np.newaxis] - np.arange(300)) / 6.0) ** 2)
    X = rng.standard_normal((4000, 300)) @ smooth * np.linspace(2.0, 0.5, 300)
    H = X.copy()
    H[1000:3000, :100] = np.nan
    truth = PCA(4).fit(X)
    model = OnlinePCA(4, missing="impute").fit(H)
    error = subspace_error(model.components_.T, truth.components_.T)
    assert error < 0.2, f"error {error:.2f}"
    assert np.allclose(model.explained_variance_, truth.explained_variance_, rtol=0.2), "variances grow where the model trusts itself"


def test_what_is_masked_is_missing_and_not_the_value_under_the_mask() -> None:
    X = rows_of(300, 30, 3)
    H = with_holes(X, 0.2)
    masked = np.ma.masked_array(np.where(np.isnan(H), 1e6, X), mask=np.isnan(H))
    expected, one = OnlinePCA(3, missing="impute").fit(H), OnlinePCA(3, missing="impute").fit(masked[:250])
    for row in masked[250:]:
        one.fit_next(row)
    check_same(one, expected)
    for call in (OnlinePCA(3).fit, FSM(3).fit_block):
        with pytest.raises(ValueError, match=r"(?i)nan"):
            call(masked)


def test_pandas_na_in_columns_of_objects() -> None:
    H = with_holes(rows_of(300, 12, 2), 0.2)
    frame = pd.DataFrame(H).astype("Float64").astype(object)
    check_same(OnlinePCA(2, missing="impute").fit(frame), OnlinePCA(2, missing="impute").fit(pd.DataFrame(H)))
    assert not OnlinePCA(2, missing="impute").fit(frame).impute(frame).isna().any().any()


@pytest.mark.parametrize("D", [30, 300])
def test_fit_next_gives_coordinates_of_rows_with_holes(D: int) -> None:
    rng = np.random.default_rng(44)
    X = rng.standard_normal((600, 3)) * [5, 4, 3] @ np.linalg.qr(rng.standard_normal((D, 3)))[0].T + 0.1 * rng.standard_normal((600, D))
    H = np.where(rng.random(X.shape) < 0.2, np.nan, X)
    first = OnlinePCA(3, missing="impute")
    assert all(np.isfinite(first.fit_next(x)).all() for x in H[:40]), "from the first row on"
    model = OnlinePCA(3, missing="impute").partial_fit(H[:560])
    Y = np.array([model.fit_next(x) for x in H[560:]])
    assert np.abs(Y - model.transform(X[560:])).max() < 0.1 * np.abs(Y).max()


def test_features_that_the_others_do_not_predict_are_named_once() -> None:
    rng = np.random.default_rng(31)
    X = rng.standard_normal((2000, 2)) @ rng.standard_normal((2, 20)) + 0.1 * rng.standard_normal((2000, 20))
    X[:, 7] = rng.standard_normal(2000)
    H = np.where(rng.random(X.shape) < 0.2, np.nan, X)
    model = OnlinePCA(2, missing="impute").fit(H)
    with pytest.warns(UserWarning, match=r"columns 7\) are not predicted"):
        model.impute(H)
    model.impute(H)  # a second warning would be an error


def test_features_of_a_stretch_are_not_filled_with_false_confidence() -> None:
    """Neighbours vary together beyond what four components show, so that little is known of a stretch of absent ones."""
    rng, at = np.random.default_rng(32), np.arange(200)
    values, vectors = np.linalg.eigh(np.exp(-np.abs(at[:, np.newaxis] - at) / 8.0))
    X = rng.standard_normal((3000, 200)) * np.sqrt(values) @ vectors.T
    H = X.copy()
    H[800:2200, :60] = np.nan
    model = OnlinePCA(4, oversample=8, missing="impute").fit(H)
    missing = np.isnan(H)
    filled, mean = (model.impute(H) - X)[missing], (X - model.mean_)[missing]
    assert np.linalg.norm(filled) < 1.05 * np.linalg.norm(mean), "filled values must be no worse than the mean"


@pytest.mark.parametrize("n", [500, 2000])
def test_the_first_rows_are_filled_as_well_as_the_noise_allows(n: int) -> None:
    """A model of few rows has next to no noise left over, and would believe itself."""
    rng = np.random.default_rng(33)
    X = rng.standard_normal((n, 3)) @ rng.standard_normal((3, 60)) + 0.1 * rng.standard_normal((n, 60))
    H = np.where(rng.random(X.shape) < 0.3, np.nan, X)
    model = OnlinePCA(3, missing="impute")
    for part in np.array_split(H, n // 100):
        model.partial_fit(part)
    error = float(np.sqrt(np.mean((model.impute(H) - X)[np.isnan(H)] ** 2)))
    assert error < 0.15, f"filled values are {error:.3f} off, where the noise is 0.1"
