"""Accuracy on large sets and long streams: beside batch PCA, beside what people do, and beside the published package."""

from __future__ import annotations

import functools
import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.decomposition import PCA, IncrementalPCA

from online_psp import FSM, SM, OnlinePCA
from online_psp.datasets import load
from online_psp.engine.types import Array
from online_psp.metrics import subspace_error
from tests.contract.test_forgetting import ages, weighted_pca
from tests.contract.test_golden import IN_THE_REPOSITORY, RECORDINGS, RUNS, check_reference, recording_of
from tests.contract.test_hard_data import check
from tests.hard_data import CASES
from tests.unit.pca.test_missing import mean_filled, pairwise_basis, problem, with_holes
from tests.unit.pca.test_robust import KINDS, check_clean_rows, check_gross_rows


@pytest.mark.filterwarnings("ignore:.*are not predicted by the others")
@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.8])
@pytest.mark.parametrize("name", ["spiked", "MNIST"])
def test_better_than_what_people_do(name: str, share: float, request: pytest.FixtureRequest) -> None:
    if name == "MNIST":
        request.getfixturevalue("data_home")
        if share == 0.3:
            pytest.skip("three shares of MNIST are enough; the benchmark has all")
    X, K = problem(name)
    H = with_holes(X, share, seed=7)
    batch = PCA(K).fit(X)
    truth = batch.components_.T
    model = OnlinePCA(K, missing="impute").fit(H)
    error = subspace_error(model.components_.T, truth)
    assert error < subspace_error(PCA(K).fit(mean_filled(H)).components_.T, truth), "batch PCA on mean-filled rows is better"
    assert error < subspace_error(IncrementalPCA(K).fit(mean_filled(H)).components_.T, truth)
    if share <= 0.5:
        assert error < subspace_error(pairwise_basis(H, K), truth), "the batch pairwise covariance is better"
    if share == 0.3:
        assert np.allclose(model.explained_variance_, batch.explained_variance_, rtol=0.05)
        assert model.noise_variance_ == pytest.approx(batch.noise_variance_, rel=0.1)
    holes = np.isnan(H)
    wrong = np.sqrt(np.mean((model.impute(H) - X)[holes] ** 2)) / np.sqrt(np.mean((model.mean_ - X)[holes] ** 2))
    assert wrong < (0.65 if share < 0.8 else 0.75)


@pytest.mark.parametrize("name", CASES)
def test_as_accurate_as_incremental_pca(name: str) -> None:
    case = CASES[name](np.random.default_rng([2026, list(CASES).index(name)]))
    model = OnlinePCA(case.K, center=case.center).fit(case.X, sample_weight=case.weights)
    check(name, case, model)


@pytest.mark.parametrize("power", [0.5, 1.0])
def test_no_cliff_where_the_exact_phase_ends(power: float) -> None:
    """Every N from 1 to ten times the directions kept: the error rises smoothly from zero."""
    K, D, kept = 2, 400, 36
    X = np.random.default_rng(77).standard_normal((10 * kept, D)) / np.arange(1, D + 1) ** power
    model = OnlinePCA(K)
    for n in range(1, len(X) + 1):
        model.fit_next(X[n - 1])
        if n < 3:
            continue
        truth = np.linalg.svd(X[:n] - X[:n].mean(axis=0), full_matrices=False)[2][:K]
        error = subspace_error(model.components_.T, truth.T)
        if n <= 6 * kept:
            assert error < 1e-9, f"N={n}: {error:.1e} where the model is exact"
        elif n % 12 == 0 or n < 6 * kept + 6:
            peer = IncrementalPCA(kept, batch_size=5 * kept).fit(X[:n]).components_[:K]
            theirs = subspace_error(peer.T, truth.T)
            assert error <= 1.3 * theirs + 0.003, f"N={n}: error {error:.5f}, IncrementalPCA {theirs:.5f}"


@pytest.mark.parametrize("order", ["cluster", "first component", "norm"])
def test_sorted_pictures(order: str, data_home: Path) -> None:
    X = mnist(data_home)
    truth = PCA(16, svd_solver="covariance_eigh").fit(X)
    keys = {
        "cluster": lambda: np.argmin(((X[:, np.newaxis, ::8] - X[np.newaxis, :10, ::8]) ** 2).sum(axis=2), axis=1),
        "first component": lambda: truth.transform(X)[:, 0],
        "norm": lambda: np.linalg.norm(X, axis=1),
    }
    error = subspace_error(OnlinePCA(16).fit(X[np.argsort(keys[order](), kind="stable")]).components_.T, truth.components_.T)
    assert error <= 0.035, f"sorted by {order}: error {error:.4f}"


@pytest.mark.parametrize("gamma", [0.6, 2.0])
def test_a_million_samples_keep_fsm_and_sm_together(gamma: float) -> None:
    K, D, block = 4, 12, 20_000
    samples = 1_000_000
    fsm, sm = FSM(K, D, gamma=gamma), SM(K, D, gamma=gamma)
    rng = np.random.default_rng(3)
    scale = np.r_[1.0, 0.8, 0.6, 0.5, np.full(D - K, 0.1)]
    for _ in range(samples // block):
        X = rng.standard_normal((block, D)) * scale
        fsm.fit_block(X)
        sm.fit_block(X)
    error = subspace_error(fsm.get_components(), sm.get_components())
    assert fsm.t == samples
    assert error <= 1e-6, f"FSM and SM are {error:.1e} apart after a million samples"
    Minv = fsm.Minv
    assert np.abs(Minv - Minv.T).max() <= 1e-12 * np.abs(Minv).max()
    assert np.abs(Minv @ sm.M - np.eye(K)).max() <= 1e-6


@pytest.mark.parametrize(("times", "dtype", "half_life"), [(50, np.float64, 2e4), (3, np.float32, 300.0), (3, np.float64, None)])
def test_a_million_rows_do_not_drift(times: int, dtype: Any, half_life: float | None) -> None:
    """Few features, so that it is quick, and fewer directions still, so that it is not exact."""
    rng = np.random.default_rng(0)
    scale = np.r_[3.0, 2.0, np.full(128, 0.1)]
    rows = (rng.standard_normal((20_000, 130)) * scale + 5.0).astype(dtype)
    model = OnlinePCA(2, oversample=18, half_life=half_life)
    for _ in range(times):
        model.partial_fit(rows)
    C = model.components_.astype(np.float64)
    assert model.n_samples_seen_ == 20_000 * times
    assert np.abs(C @ C.T - np.eye(2)).max() < (1e-12 if dtype == np.float64 else 1e-5)
    expected = model.n_samples_seen_ if half_life is None else 1 / (1 - 2 ** (-1 / half_life))
    assert model.effective_samples_ == pytest.approx(expected, rel=1e-9)
    weights = np.ones(len(rows)) if half_life is None else ages(len(rows), half_life)  # all passes weigh their rows alike
    components, variances, mean = weighted_pca(rows.astype(np.float64), weights, 2)
    if half_life is None:
        variances = variances * (1 - 1 / len(rows)) / (1 - 1 / model.n_samples_seen_)
    assert subspace_error(C.T, components.T) < (1e-3 if dtype == np.float64 else 2e-3)
    assert np.allclose(model.explained_variance_, variances, rtol=1e-3)
    assert np.allclose(model.mean_, mean, atol=1e-8)


def mnist(home: Path) -> Array:
    with gzip.open(home / "train-images-idx3-ubyte.gz") as file:
        X: Any = np.frombuffer(file.read(), dtype=np.uint8, offset=16).reshape(-1, 784)
    return np.asarray(X[np.random.default_rng(9).permutation(len(X))][:20_000] / 255.0)


def test_a_tree_of_merged_models(data_home: Path) -> None:
    X = mnist(data_home)
    truth = PCA(16, svd_solver="covariance_eigh").fit(X)
    models = [OnlinePCA(16).fit(part) for part in np.array_split(X, 128)]
    while len(models) > 1:
        models = [one.merge(two) for one, two in zip(models[::2], models[1::2], strict=True)]
    error = subspace_error(models[0].components_.T, truth.components_.T)
    assert error <= 0.008, f"128 models merged: error {error:.4f}"
    assert np.allclose(models[0].explained_variance_, truth.explained_variance_, rtol=0.02)


def test_on_mnist(data_home: Path) -> None:
    with gzip.open(data_home / "train-images-idx3-ubyte.gz") as file:
        X: Any = np.frombuffer(file.read(), dtype=np.uint8, offset=16).reshape(-1, 784).astype(np.float32)
    X = X[np.random.default_rng(0).permutation(len(X))][:20_000] / 255
    batch = PCA(16, svd_solver="covariance_eigh").fit(X.astype(np.float64))
    single, double = OnlinePCA(16).fit(X), OnlinePCA(16).fit(X.astype(np.float64))
    errors = [subspace_error(model.components_.T, batch.components_.T) for model in (single, double)]
    assert errors[1] < 0.01
    assert errors[0] == pytest.approx(errors[1], rel=0.01)
    assert np.abs(np.sum(double.components_[:10] * batch.components_[:10], axis=1)).min() > 0.9999
    assert np.allclose(double.explained_variance_, batch.explained_variance_, rtol=0.01)
    parts = [OnlinePCA(16).fit(part) for part in np.array_split(X.astype(np.float64), 8)]
    merged = functools.reduce(lambda one, two: one.merge(two), parts)
    assert subspace_error(merged.components_.T, batch.components_.T) <= 2 * errors[1]


@pytest.mark.usefixtures("data_home")
@pytest.mark.parametrize("kind", KINDS)
def test_gross_pictures_do_not_move_the_model(kind: str) -> None:
    check_gross_rows(np.asarray(load("mnist").X[:6000], dtype=np.float64), 16, kind)


@pytest.mark.usefixtures("data_home")
def test_clean_pictures_give_the_plain_model_nearly() -> None:
    check_clean_rows(np.asarray(load("mnist").X[:6000], dtype=np.float64), 16)


@pytest.mark.parametrize("recording", [recording for recording in RECORDINGS if recording not in IN_THE_REPOSITORY])
@pytest.mark.parametrize("run", RUNS)
def test_reference_is_the_published_package_on_the_papers_sets(run: str, recording: str, request: pytest.FixtureRequest) -> None:
    check_reference(run, recording_of(recording, run, request))
