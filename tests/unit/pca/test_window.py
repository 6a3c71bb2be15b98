"""A window: PCA of the last n rows."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pytest

from online_psp import OnlinePCA
from online_psp.distributed import reduce
from online_psp.engine.types import Array, Floats
from online_psp.metrics import subspace_error
from online_psp.monitoring import Monitor
from tests.oracle import check_same


def turned(n: int, D: int, K: int, seed: int, noise: float = 0.1) -> Array:
    """Rows along K directions of their own, about a mean of their own."""
    rng = np.random.default_rng([40, seed])
    U = np.linalg.qr(rng.standard_normal((D, K)))[0]
    X: Array = (rng.standard_normal((n, K)) * np.linspace(3, 2, K)) @ U.T + noise * rng.standard_normal((n, D)) + rng.standard_normal(D)
    return X


def directions(X: Floats, K: int) -> Floats:
    return np.asarray(np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2][:K].T)


@pytest.mark.parametrize("D", [9, 250])
@pytest.mark.parametrize("n", [3, 16, 100, 800])
def test_at_every_sixteenth_it_is_the_last_rows_exactly(D: int, n: int) -> None:
    X = np.concatenate([turned(n + 7, D, 2, 1), turned(2 * n, D, 2, 2)])
    model, edges = OnlinePCA(2, window=n), [i * n // 16 for i in range(17, 45)]
    for start, stop in zip([0, *edges[:-1]], edges, strict=True):
        model.partial_fit(X[start:stop]) if stop > start else None
        last = X[stop - n : stop]
        assert model.effective_samples_ == pytest.approx(n)
        assert np.allclose(model.mean_, last.mean(axis=0), atol=1e-12)
        assert np.allclose(model.var_, last.var(axis=0, ddof=1), rtol=1e-10)
        assert subspace_error(model.components_.T, directions(last, 2)) < (1e-9 if D == 9 else 0.005)
    assert model.n_samples_seen_ == edges[-1]


@pytest.mark.parametrize("options", [{}, {"missing": "impute"}, {"robust": True}, {"standardize": True}, {"axes": "stable"}])
def test_weights_sum_to_the_window_after_every_row(options: dict[str, Any]) -> None:
    X = turned(900, 12, 2, 3)
    if "missing" in options:
        X[::7, 3] = np.nan
    model = OnlinePCA(2, window=250, **options)
    for i, x in enumerate(X, 1):
        model.fit_next(x)
        if i % 13 == 0 and "robust" not in options:
            assert model.effective_samples_ == pytest.approx(min(i, 250))
            assert model.kish_samples_ <= min(i, 250 * 17 / 16)
    assert model.effective_samples_ <= 250 + 1e-9


@pytest.mark.parametrize("sizes", [1e6, 1e-6])
@pytest.mark.parametrize("D", [12, 400])
def test_what_has_left_leaves_no_trace(D: int, sizes: float) -> None:
    later = turned(640, D, 3, 5)
    model = OnlinePCA(3, window=320, robust=False).fit(sizes * turned(500, D, 3, 4)).partial_fit(later)
    assert subspace_error(model.components_.T, directions(later[320:], 3)) < 0.02
    assert model.explained_variance_[0] == pytest.approx(OnlinePCA(3).fit(later[320:]).explained_variance_[0], rel=0.05)


def test_a_window_longer_than_the_stream_forgets_nothing() -> None:
    X = turned(700, 12, 2, 6)
    with_window, without = OnlinePCA(2, window=5000).fit(X), OnlinePCA(2).fit(X)
    assert np.allclose(with_window.components_, without.components_, atol=1e-10)
    assert np.allclose(with_window.explained_variance_, without.explained_variance_)


def test_missing_and_gross_rows_are_judged_by_what_the_window_holds() -> None:
    X, rng = turned(3000, 60, 3, 7), np.random.default_rng(7)
    whole, gross = X.copy(), rng.random(3000) < 0.03
    X[gross] = 500.0 * rng.standard_normal((gross.sum(), 60))
    X[rng.random(X.shape) < 0.1] = np.nan
    model = OnlinePCA(3, window=800, missing="impute", robust=True).fit(X)
    good = whole[-800:][~gross[-800:]]
    assert subspace_error(model.components_.T, directions(good, 3)) < 0.05
    assert np.isnan(X[-20:]).any()
    assert not np.isnan(model.impute(X[-20:])).any()


def test_a_burst_that_fills_a_block_does_not_pass_for_ordinary() -> None:
    X = turned(3600, 60, 4, 18)
    good, gross = directions(X, 4), np.arange(3600) % 500 >= 440
    gross[:1000] = False
    burst = np.random.default_rng(18).standard_normal((3600, 2)) @ np.random.default_rng(19).standard_normal((2, 60))
    X[gross] = 8.0 * burst[gross] + 3.0
    model, found = OnlinePCA(4, window=300, robust=True), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for part in np.array_split(X, 60):
            found.append(subspace_error(model.partial_fit(part).components_.T, good))
    assert max(found[15:]) < 0.1


def test_robust_models_follow_to_another_subspace() -> None:
    later = turned(1500, 40, 3, 9)
    model = OnlinePCA(3, window=400, robust=True).fit(turned(2000, 40, 3, 8)).partial_fit(later)
    assert subspace_error(model.components_.T, directions(later[-400:], 3)) < 0.05


def test_the_number_of_signals_follows_the_window() -> None:
    model = OnlinePCA("auto", window=500, max_rank=12)
    found = []
    for K, seed in ((5, 10), (2, 11), (4, 12)):
        found.append(model.partial_fit(turned(900, 50, K, seed, noise=0.3)).n_components_)
    assert found == [5, 2, 4]


def test_stable_axes_turn_with_the_window() -> None:
    X = turned(600, 20, 2, 13)
    model, axes = OnlinePCA(2, window=160, axes="stable"), []
    for part in np.array_split(X, 60):
        axes.append(model.partial_fit(part).components_)
    steps = [np.abs(one - two).max() for one, two in itertools.pairwise(axes[8:])]
    assert max(steps) < 0.1


def test_what_goes_with_no_window_is_one_sentence() -> None:
    X = turned(60, 5, 2, 14)
    with pytest.raises(ValueError, match="window and half_life"):
        OnlinePCA(2, window=50, half_life=10).fit(X)
    models = [OnlinePCA(2, window=50).fit(X) for _ in range(2)]
    with pytest.raises(ValueError, match="window"):
        models[0].merge(models[1])
    with pytest.raises(ValueError, match="window"):
        reduce(models)
    with pytest.raises(ValueError, match="window=5 remembers"):
        Monitor(OnlinePCA(2, window=5))


def test_an_error_in_the_middle_changes_nothing() -> None:
    X, broken = turned(500, 8, 2, 15), turned(300, 8, 2, 15)
    broken[250] = np.nan
    model, other = OnlinePCA(2, window=100).fit(X), OnlinePCA(2, window=100).fit(X)
    with pytest.raises(ValueError, match="NaN"):
        model.partial_fit(broken)
    check_same(model, other)


def test_a_monitor_scores_by_the_window() -> None:
    rows = np.concatenate([turned(3000, 15, 2, 16), turned(4000, 15, 2, 17)])
    monitor = Monitor(OnlinePCA(2, window=1000))
    found = monitor.update(rows)
    assert found.outlier[3000:3050].mean() > 0.9, "of another subspace"
    assert found.outlier[-2000:].mean() < 0.05, "which the window holds by now"
    assert monitor.alarms
