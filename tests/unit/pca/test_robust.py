"""Gross rows: a few of them do not move a robust model, and clean rows give the plain one."""

from __future__ import annotations

import functools
import warnings
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from sklearn.decomposition import PCA

from online_psp import OnlinePCA
from online_psp.datasets.spiked import spiked_covariance
from online_psp.engine.types import Floats
from online_psp.metrics import subspace_error

KINDS = ("scattered", "clump", "first", "direction")


@functools.cache
def problem(name: str) -> tuple[Floats, int]:
    return spiked_covariance(4000, 60 if name == "few features" else 300, 8, 0.01, seed=3).X, 8


def spoiled(X: Floats, kind: str, seed: int = 0) -> tuple[Floats, Any]:
    """5 % of the rows are gross, 20 times the spread: the rows, and which of them."""
    rng, (n, D), X = np.random.default_rng(seed), X.shape, X.copy()
    gross = np.zeros(n, dtype=bool)
    if kind == "clump":
        gross[n // 2 : n // 2 + n // 20] = True
    elif kind == "first":
        gross[:100] = True
    else:
        gross[rng.choice(n, n // 20, replace=False)] = True
    if kind == "direction":
        way = rng.standard_normal(D)
        X[gross] = X.mean(axis=0) + 20 * np.sqrt(X.var(axis=0).sum()) * np.outer(
            rng.standard_normal(gross.sum()), way / np.linalg.norm(way)
        )
    else:
        X[gross] = X.mean(axis=0) + 20 * np.sqrt(X.var(axis=0).mean()) * rng.standard_normal((gross.sum(), D))
    return X, gross


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["spiked", "few features"])
def test_gross_rows_do_not_move_the_model(name: str, kind: str) -> None:
    check_gross_rows(*problem(name), kind)


def check_gross_rows(X: Floats, K: int, kind: str) -> None:
    G, gross = spoiled(X, kind)
    truth = PCA(K).fit(X[~gross])
    model, plain = OnlinePCA(K, robust=True).fit(G), OnlinePCA(K).fit(G)
    error = subspace_error(model.components_.T, truth.components_.T)
    assert error <= 0.1
    assert error <= 0.25 * subspace_error(plain.components_.T, truth.components_.T), "a quarter of the plain model's error, at most"
    assert np.allclose(model.explained_variance_, truth.explained_variance_, rtol=0.05)
    influence = model.sample_influence(G)
    assert influence[~gross].mean() > 0.99
    assert influence[gross].mean() < 0.1
    assert model.n_samples_seen_ == len(G)
    assert model.effective_samples_ < len(G) - 0.8 * gross.sum()


@pytest.mark.parametrize("name", ["spiked", "few features"])
def test_clean_rows_give_the_plain_model_nearly(name: str) -> None:
    check_clean_rows(*problem(name))


def check_clean_rows(X: Floats, K: int) -> None:
    truth = PCA(K).fit(X).components_.T
    errors = [subspace_error(OnlinePCA(K, robust=robust).fit(X).components_.T, truth) for robust in (True, False)]
    assert errors[0] <= errors[1] + 0.02


def test_a_new_regime_is_followed() -> None:
    """With a half-life the error falls to a tenth of the jump within twice the plain model's time."""
    one, two = spiked_covariance(3000, 200, 5, 0.01, seed=1).X, 3.0 * spiked_covariance(4000, 200, 5, 0.01, seed=2).X
    truth = PCA(5).fit(two).components_.T
    times = []
    for robust in (False, True):
        model = OnlinePCA(5, robust=robust, half_life=500).fit(one)
        with pytest.warns(UserWarning, match="weight") if robust else nullcontext():
            for done in range(0, 4000, 50):
                model.partial_fit(two[done : done + 50])
                if subspace_error(model.components_.T, truth) < 0.1:
                    break
        times.append(done + 50)
    assert times[0] < 2000, "the plain model does not follow either"
    assert times[1] <= 2 * times[0], f"{times[1]} rows, where the plain model takes {times[0]}"


@pytest.mark.parametrize("kind", ["first", "direction"])
def test_holes_and_gross_rows_together(kind: str) -> None:
    X, K = problem("spiked")
    X = X[:1800]
    G, gross = spoiled(X, kind)
    H = np.where(np.random.default_rng(4).random(G.shape) < 0.2, np.nan, G)
    H[50] = np.nan
    truth = PCA(K).fit(X[~gross]).components_.T
    model = OnlinePCA(K, robust=True, missing="impute").fit(H)
    plain = OnlinePCA(K, missing="impute").fit(H)
    error = subspace_error(model.components_.T, truth)
    assert error <= 0.1
    assert error <= 0.25 * subspace_error(plain.components_.T, truth)
    assert np.isfinite(model.impute(H)).all()
    assert model.sample_influence(H)[gross].mean() < 0.15


def test_merged_models_have_left_out_the_same_rows() -> None:
    X, K = problem("spiked")
    G, gross = spoiled(X, "scattered")
    merged = OnlinePCA(K, robust=True).fit(G[:2000]).merge(OnlinePCA(K, robust=True).fit(G[2000:]))
    assert subspace_error(merged.components_.T, PCA(K).fit(X[~gross]).components_.T) < 0.05
    assert merged.sample_influence(G)[gross].mean() < 0.1
    assert (OnlinePCA(K).fit(X[:100]).sample_influence(G) == 1.0).all(), "without the option all rows count fully"


@pytest.mark.parametrize("n", [1, 2, 5, 40])
def test_few_rows(n: int) -> None:
    X, K = problem("spiked")
    few = OnlinePCA(K, robust=True).partial_fit(X[:n])
    assert np.isfinite(few.components_).all()
    assert np.isfinite(few.transform(X[:3])).all()


@pytest.mark.parametrize("D", [60, 300])
@pytest.mark.parametrize(("size", "where"), [(1e9, [0]), (1e17, [0]), (1e100, [0, 700, 899])])
def test_huge_rows(size: float, where: list[int], D: int) -> None:
    """Sums that are counted from where the first row is would have no digits left for the others."""
    rng = np.random.default_rng(21)
    X = rng.standard_normal((900, D)) / np.arange(1, D + 1)
    X[where] = size * rng.standard_normal(D)
    model, truth = OnlinePCA(3, robust=True).fit(X), PCA(3).fit(np.delete(X, where, axis=0))
    error = subspace_error(model.components_.T, truth.components_.T)
    assert error < 0.03, f"error {error:.4f} with rows of {size:.0e}"
    assert np.isfinite(model.score(X[1:5])), f"score {model.score(X[1:5])}"


def test_rows_that_are_all_alike() -> None:
    constant = OnlinePCA(2, robust=True).fit(np.ones((50, 10)))
    assert np.isfinite(constant.components_).all()
    assert (constant.sample_influence(np.ones((3, 10))) == 1.0).all()


@pytest.mark.parametrize("D", [200, 30])
@pytest.mark.parametrize("kind", ["two of three", "first"])
def test_rows_that_are_all_alike_do_not_make_the_others_gross(D: int, kind: str) -> None:
    """A sensor that is idle most of the time, or at first: what it measures afterwards is no outlier."""
    X = spiked_covariance(1500, D, 3, 0.01, seed=3).X
    idle = np.arange(1500) % 3 > 0 if kind == "two of three" else np.arange(1500) < 1000
    X[idle] = 0.5
    truth = PCA(3).fit(X)
    model = OnlinePCA(3, robust=True).fit(X)
    assert model.sample_influence(X).mean() > 0.98
    assert subspace_error(model.components_.T, truth.components_.T) < 0.06
    assert np.allclose(model.explained_variance_, truth.explained_variance_, rtol=0.06)


def repeated(kind: str, D: int) -> Floats:
    """2,000 rows of which many are the same."""
    rng, X = np.random.default_rng(21), spiked_covariance(2000, D, 3, 0.01, seed=17).X + 1.0
    if kind.endswith("different"):
        return X[rng.choice(3, 2000, p=[0.7, 0.2, 0.1]) if kind.startswith("three") else rng.integers(0, 10, 2000)]
    if kind == "in runs":
        return np.repeat(X[:10], 200, axis=0)
    if kind == "whole numbers":
        return np.round(X)
    if kind == "yes or no":
        return (X[:, :5] > 1.2).astype(np.float64)
    share = {"nine of ten idle": 0.9, "nearly all idle": 0.98, "some idle": 0.3}[kind]
    X[rng.random(2000) < share] = 0.0 if share > 0.5 else X[0]
    return X


REPEATED = ("three different", "ten different", "in runs", "whole numbers", "yes or no", "nine of ten idle", "nearly all idle", "some idle")


@pytest.mark.parametrize(("kind", "D"), [(kind, (100, 30)[i % 2]) for i, kind in enumerate(REPEATED)])
def test_rows_that_are_repeated_count_as_often_as_they_come(kind: str, D: int) -> None:
    X = repeated(kind, D)
    K = 2 if kind in ("three different", "yes or no") else 3
    truth, model = PCA(K).fit(X), OnlinePCA(K, robust=True).fit(X)
    assert subspace_error(model.components_.T, truth.components_.T) < 0.05
    assert np.allclose(model.explained_variance_, truth.explained_variance_, rtol=0.03)
    assert np.allclose(model.mean_, truth.mean_, atol=0.02 * X.std())
    assert model.n_samples_seen_ == len(X)
    assert model.effective_samples_ == pytest.approx(len(X), rel=0.01)
    assert model.kish_samples_ == pytest.approx(len(X), rel=0.02)


def test_gross_rows_that_are_all_the_same_or_among_idle_ones() -> None:
    rng, X = np.random.default_rng(22), spiked_covariance(2500, 60, 3, 0.01, seed=19).X
    for idle in (0.0, 0.6):
        G = X.copy()
        G[rng.random(2500) < idle] = 0.0
        gross = rng.random(2500) < 0.05
        G[gross] = 20.0 * X.std() * rng.standard_normal((gross.sum() if idle else 1, 60))
        truth, model = PCA(3).fit(G[~gross]), OnlinePCA(3, robust=True).fit(G)
        assert subspace_error(model.components_.T, truth.components_.T) < 0.02
        assert np.allclose(model.explained_variance_, truth.explained_variance_, rtol=0.02)


def test_what_is_taken_from_many_rows_is_said() -> None:
    """A fifth of the rows may be another cluster, and that is data."""
    rng, X = np.random.default_rng(23), spiked_covariance(1500, 60, 3, 0.01, seed=20).X
    X[rng.random(1500) < 0.2] += 3.0
    with pytest.warns(UserWarning, match="robust=True .*(19|20|21) %"):
        OnlinePCA(3, robust=True).fit(X)
    model = OnlinePCA(3, robust=True)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for part in np.array_split(X, 10):
            model.partial_fit(part)
        for x in X[:200]:
            model.fit_next(x)
    assert ["robust=True" in str(each.message) for each in said] == [True], "once is enough"


@pytest.mark.parametrize("size", [1.0, 1e20])
def test_rows_that_are_all_equally_far_apart(size: float) -> None:
    """A decomposition of many equal eigenvalues may end with fewer than were asked for."""
    for seed in range(8):
        rows = size * np.eye(300)[np.random.default_rng(seed).integers(0, 300, 500)]
        assert np.isfinite(OnlinePCA(3, robust=True).fit(rows).components_).all()


@pytest.mark.parametrize(("D", "sizes"), [(6, (2.2e7, 2.5e7)), (300, (1.6e7, 1.9e7))])
@pytest.mark.parametrize("standardize", [False, True])
def test_merged_streams_on_either_side_of_a_change_of_unit_judge_rows_as_before(
    D: int, sizes: tuple[float, float], standardize: bool
) -> None:
    rng = np.random.default_rng(8)
    parts = [(size * (3.0 + rng.standard_normal((900, D)))).astype(np.float32) for size in sizes]
    models = [OnlinePCA(2, robust=True, standardize=standardize).fit(part) for part in parts]
    assert models[0]._state.model.unit != models[1]._state.model.unit
    merged = models[0].merge(models[1])
    for part in parts:
        assert 0.8 < merged.sample_influence(part).mean() <= 1.0
        assert merged.sample_influence(100.0 * part[:50]).max() < 0.2
