"""Streams that change: a half-life in rows or in time, and axes that stay where they were."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from online_psp import OnlinePCA
from online_psp.engine.types import Floats
from online_psp.metrics import subspace_error


def weighted_pca(X: Floats, weights: Floats, K: int) -> tuple[Floats, Floats, Floats]:
    """Components (K, D), variances and mean of rows with given weights, as pandas' debiased ewm divides."""
    mean = weights @ X / weights.sum()
    covariance = ((X - mean).T * weights) @ (X - mean) / weights.sum()
    values, vectors = np.linalg.eigh(covariance)
    bias = weights.sum() ** 2 / (weights.sum() ** 2 - (weights**2).sum())
    return vectors[:, ::-1][:, :K].T, bias * values[::-1][:K], mean


def ages(n: int, half_life: float) -> Floats:
    return np.asarray(2.0 ** (-np.arange(n - 1.0, -1.0, -1.0) / half_life))


def turning(n: int, D: int, K: int, rate: float, seed: int = 0) -> Floats:
    """Rows in a subspace that rotates, with a mean."""
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.standard_normal((D, 2 * K)))[0]
    angle = rate * np.arange(n)[:, np.newaxis, np.newaxis]
    bases = np.cos(angle) * Q[:, :K].T + np.sin(angle) * Q[:, K:].T
    return np.asarray(
        np.einsum("nk,nkd->nd", rng.standard_normal((n, K)) * np.linspace(3, 2, K), bases) + 0.1 * rng.standard_normal((n, D)) + 1.0
    )


@pytest.mark.parametrize(("D", "tolerance"), [(30, 1e-10), (400, 0.02)])
@pytest.mark.parametrize("rate", [0.0, 5e-4])
def test_the_model_is_that_of_exponentially_weighted_rows(D: int, tolerance: float, rate: float) -> None:
    X, h, K = turning(3000, D, 8, rate), 500.0, 8
    model = OnlinePCA(K, half_life=h)
    for n in (1, 2, 40, 700, 3000):
        model.partial_fit(X[model.n_samples_seen_ if n > 1 else 0 : n])
        weights = ages(n, h)
        assert model.n_samples_seen_ == n
        assert model.effective_samples_ == pytest.approx(weights.sum())
        if n < 9:
            continue
        components, variances, mean = weighted_pca(X[:n], weights, K)
        error = subspace_error(model.components_.T, components.T)
        assert error <= tolerance, f"{n} rows: error {error:.4f}"
        assert np.allclose(model.mean_, mean, atol=1e-8)
        assert np.allclose(model.explained_variance_, variances, rtol=max(0.02 if D > 100 else 0, 1e-8))


@pytest.mark.parametrize(("seed", "noise"), [(1, 0.1), (2, 1.0), (4, 1.0)])
def test_a_switch_is_followed(seed: int, noise: float) -> None:
    """Directions that are new have no past in the model: they must not be too small for that, in noise that has been left out."""
    one, two = 2 * turning(3000, 400, 8, 0.0, seed=10 * seed), 2 * turning(500, 400, 8, 0.0, seed=10 * seed + 1) + 3.0
    X = np.concatenate([one, two]) + noise * np.random.default_rng(seed).standard_normal((3500, 400))
    model = OnlinePCA(8, half_life=500).fit(X)
    components, variances, mean = weighted_pca(X, ages(len(X), 500), 8)
    error = subspace_error(model.components_.T, components.T)
    assert error <= 0.06, f"500 rows after a switch: error {error:.4f} to exactly weighted PCA"
    assert np.allclose(model.mean_, mean, atol=1e-8)
    apart = np.abs(model.explained_variance_ / variances - 1).max()
    assert apart <= 0.02, f"500 rows after a switch: variances within {100 * apart:.2f} %"


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_gross_direction_does_not_hide_what_was_left_out(dtype: Any) -> None:
    """The total is then a large number beside what was left out of it, and their difference is rounding."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 300)) * np.r_[1e9 if dtype == np.float64 else 1e4, np.linspace(6, 4, 5), np.full(294, 0.5)]
    model = OnlinePCA(6, half_life=400).fit(X.astype(dtype))
    components, variances, _ = weighted_pca(X, ages(len(X), 400), 6)
    assert np.allclose(model.explained_variance_, variances, rtol=0.02)
    assert subspace_error(model.components_.T, components.T) < 0.05


@pytest.mark.parametrize("half_life", [0.1, 0.7])
def test_memories_of_a_row_or_less(half_life: float) -> None:
    X = turning(700, 300, 3, 1e-3) * (np.random.default_rng(1).random((700, 300)) < 0.4)
    dense, rows = (OnlinePCA(2, half_life=half_life).fit(kind) for kind in (X, sparse.csr_array(X)))
    assert np.allclose(dense.mean_, rows.mean_, atol=1e-9)
    assert np.allclose(dense.explained_variance_, rows.explained_variance_, rtol=1e-6)


def test_age_is_time() -> None:
    X = turning(300, 30, 3, 1e-3)
    seconds = np.cumsum(np.random.default_rng(0).exponential(5.0, 300))
    stamps = np.datetime64("2026-01-01T00:00:00", "ns") + (seconds * 1e9).astype("timedelta64[ns]")
    expected = weighted_pca(X, 2.0 ** (-(seconds[-1] - seconds) / 120.0), 3)
    for half_life, times in (("2min", seconds), (datetime.timedelta(minutes=2), stamps), ("120 s", stamps)):
        model = OnlinePCA(3, half_life=half_life).fit(X, times=times)
        assert subspace_error(model.components_.T, expected[0].T) < 1e-7
        assert np.allclose(model.explained_variance_, expected[1], rtol=1e-7)


def test_times_of_all_kinds_say_the_same() -> None:
    X = turning(40, 20, 3, 1e-3)
    expected = OnlinePCA(3, half_life="10s").fit(X, times=np.arange(40.0)).components_
    stamps = pd.date_range("2026-03-29 00:59:30", periods=40, freq="s", tz="UTC")  # clocks go forward in Berlin
    kinds: dict[str, Any] = {
        "datetime64[ns]": stamps.tz_localize(None).to_numpy(),
        "datetime64[s]": stamps.tz_localize(None).to_numpy().astype("datetime64[s]"),
        "series": pd.Series(stamps.tz_localize(None)),
        "series with a time zone": pd.Series(stamps.tz_convert("Europe/Berlin")),
        "datetimes": stamps.tz_localize(None).to_pydatetime(),
        "datetimes with a time zone": list(stamps.tz_convert("Asia/Tokyo").to_pydatetime()),
        "whole numbers": np.arange(40),
        "small numbers": np.arange(40, dtype=np.float32),
    }
    for name, times in kinds.items():
        found = OnlinePCA(3, half_life=pd.Timedelta("10s")).fit(X, times=times)
        assert np.allclose(found.components_, expected, atol=1e-9), name
        single = OnlinePCA(3, half_life=np.timedelta64(10, "s")).partial_fit(X[:39], times=times[:39])
        single.fit_next(X[39], list(times)[39])
        assert np.allclose(single.components_, expected, atol=1e-9), f"{name}, the last row alone"


@pytest.mark.parametrize(
    ("times", "message"),
    [
        (np.ma.masked_array(np.arange(40.0), np.arange(40) == 7), "row 7.*missing"),
        ([None, *[datetime.datetime(2026, 1, 1)] * 39], "row 0.*missing"),
        (1_770_000_000_000 + np.arange(40), "1.77e.12.*datetime64"),
        (1_770_000_000 + np.arange(40, dtype=np.float32), "coarse"),
        ([datetime.datetime(2026, 1, 1), *[datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)] * 39], "time zone"),
        ([datetime.date(2026, 1, 1)] * 40, r"datetime64.*datetime.date"),
        (["2026-01-01"] * 40, "times.*<U10"),
        (np.arange(40) * np.timedelta64(1, "s"), "times.*timedelta64"),
    ],
)
def test_times_that_would_be_misread_are_refused(times: Any, message: str) -> None:
    model = OnlinePCA(3, half_life="10s")
    with pytest.raises((ValueError, TypeError), match=message):
        model.partial_fit(turning(40, 20, 3, 1e-3), times=times)
    assert not model.__sklearn_is_fitted__()


def after_a_pause(D: int, dtype: Any, factor: float) -> tuple[Floats, Floats]:
    """Rows with zeros, times in seconds: 400 loud rows, a year of nothing, and 300 rows that are quieter by a factor."""
    X = turning(700, D, 3, 1e-3) * (np.random.default_rng(1).random((700, D)) < 0.4)
    X[400:] *= factor
    times = np.cumsum(np.random.default_rng(2).exponential(20.0, 700))
    times[400:] += 3e7
    return X.astype(dtype), times


def check_after_a_pause(kind: Callable[[Any], Any], dtype: Any, D: int) -> None:
    X, times = after_a_pause(D, dtype, 1e-6)
    tolerance = 1e-8 if dtype == np.float64 else 2e-3
    model = OnlinePCA(3, half_life="10min")
    for start, stop in ((0, 380), (380, 520), (520, 700)):  # the pause is within a call
        model.partial_fit(kind(X[start:stop]), times=times[start:stop])
    components, variances, mean = weighted_pca(X[400:].astype(np.float64), 2.0 ** (-(times[-1] - times[400:]) / 600), 3)
    scale = np.sqrt(variances[0])
    assert np.abs(model.mean_ - mean).max() < tolerance * scale
    assert np.allclose(model.explained_variance_, variances, rtol=0.02 if D > 100 else tolerance)
    error = subspace_error(model.components_.T, components.T)
    assert error < (0.02 if D > 100 else 10 * tolerance), f"error {error:.1e} to PCA of the rows since"


@pytest.mark.parametrize(
    ("kind", "dtype", "D"),
    [(np.asarray, np.float64, 30), (np.asarray, np.float32, 300), (sparse.csr_array, np.float64, 300), (sparse.csr_array, np.float32, 30)],
)
def test_after_a_long_pause_only_the_rows_since_count(kind: Callable[[Any], Any], dtype: Any, D: int) -> None:
    """Nothing of a loud past is left, not even as rounding."""
    check_after_a_pause(kind, dtype, D)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_forgetting_everything_is_survived(dtype: Any) -> None:
    X, times = after_a_pause(300, dtype, 1.0)
    for half_life in (1e-3, 1.0, "10min"):
        for rows in (X, sparse.csr_array(X)):
            model = OnlinePCA(3, half_life=half_life)
            model.fit(rows, times=times if half_life == "10min" else None)
            C = model.components_.astype(np.float64)
            apart = np.abs(C @ C.T - np.eye(3)).max()
            assert apart < (1e-5 if dtype == np.float32 else 1e-10), f"half-life {half_life}: components are {apart:.1e} from orthonormal"
            assert np.isfinite(model.explained_variance_).all()


@pytest.mark.parametrize(
    ("parameters", "call", "message"),
    [
        ({"half_life": "1h"}, {}, "times="),
        ({"half_life": 10}, {"times": np.arange(50.0)}, "half_life.*not a time"),
        ({"half_life": "1h"}, {"times": np.r_[np.arange(49.0), 3.0]}, "go back.*row 49"),
        ({"half_life": "1h"}, {"times": np.arange(49.0)}, "times.*50 rows"),
        ({"half_life": "1h"}, {"times": np.r_[np.nan, np.arange(49.0)]}, "row 0.*missing"),
        ({"axes": "stable", "n_components": 0.9}, {}, "axes='stable'.*components"),
        ({"axes": "stable", "reference": np.eye(3, 20)}, {}, r"\(2, 20\).*\(3, 20\)"),
    ],
)
def test_bad_input_is_said_and_nothing_is_learned(parameters: dict[str, Any], call: dict[str, Any], message: str) -> None:
    model = OnlinePCA(**{"n_components": 2, **parameters})
    with pytest.raises(ValueError, match=message):
        model.partial_fit(np.random.default_rng(0).standard_normal((50, 20)), **call)
    assert not model.__sklearn_is_fitted__()


def test_times_that_go_back_in_a_later_call() -> None:
    X = turning(60, 20, 2, 0.0)
    model = OnlinePCA(2, half_life="1h").partial_fit(X[:30], times=np.arange(30.0))
    with pytest.raises(ValueError, match=r"go back.*row 0"):
        model.partial_fit(X[30:], times=np.arange(5.0, 35.0))
    with pytest.raises(ValueError, match="go back"):
        model.fit_next(X[30], 3.0)
    with pytest.raises(ValueError, match="time"):
        model.fit_next(X[30])
    assert model.n_samples_seen_ == 30


@pytest.mark.parametrize(("D", "holes"), [(30, 0.0), (300, 0.0), (30, 0.1)])
def test_models_that_forget_are_merged_on_one_clock(D: int, holes: float) -> None:
    X, times = turning(400, D, 3, 1e-3), np.arange(400.0)
    H = np.where(np.random.default_rng(2).random(X.shape) < holes, np.nan, X)
    options: dict[str, Any] = {"half_life": "60s", "missing": "impute" if holes else "error"}
    one, two = (OnlinePCA(3, **options).fit(H[part], times=times[part]) for part in (slice(0, 400, 2), slice(1, 400, 2)))
    whole, (components, variances, mean) = OnlinePCA(3, **options).fit(H, times=times), weighted_pca(X, 2.0 ** (-(399 - times) / 60), 3)
    merged = two.merge(one)
    assert np.allclose(merged.mean_, whole.mean_, atol=1e-8)
    assert subspace_error(merged.components_.T, components.T) < (0.12 if holes else 0.01)
    if not holes:
        assert np.allclose(merged.mean_, mean, atol=1e-8)
        assert np.allclose(merged.explained_variance_, variances, rtol=0.02)


def swapping(n: int, D: int = 60, seed: int = 3) -> Floats:
    """Two directions whose variances take turns at being the larger, all the time."""
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.standard_normal((D, 2)))[0]
    phase = 2 * np.pi * np.arange(n) / 300
    scale = np.sqrt(np.column_stack([1 + 0.5 * np.sin(phase), 1 - 0.5 * np.sin(phase)]))
    return np.asarray((rng.standard_normal((n, 2)) * scale) @ Q.T + 0.05 * rng.standard_normal((n, D)))


@pytest.mark.parametrize("D", [60, 400])
def test_stable_axes_hold_their_coordinates(D: int) -> None:
    X = swapping(3000, D)
    points = X[:20] * 3
    moves: dict[str, list[float]] = {}
    for axes in ("principal", "stable"):
        model = OnlinePCA(2, half_life=400, axes=axes).partial_fit(X[:1000])
        seen = []
        for start in range(1000, 3000, 100):
            model.partial_fit(X[start : start + 100])
            seen.append(model.transform(points))
        moves[axes] = [float(np.linalg.norm(b - a) / np.linalg.norm(a)) for a, b in itertools.pairwise(seen)]
    assert max(moves["stable"]) < 0.1, f"coordinates move by {100 * max(moves['stable']):.0f} % in 100 rows"
    assert max(moves["principal"]) > 0.5, "principal axes jump on this data, or it shows nothing"
    scores = model.transform(X[-1200:])
    assert np.allclose(np.diag(model.scores_covariance_), model.explained_variance_)
    centred = X[-1200:] - model.mean_
    assert np.allclose(model.inverse_transform(scores) - model.mean_, centred @ model.components_.T @ model.components_, atol=1e-8)


def test_axes_near_given_ones() -> None:
    X = swapping(2000)
    truth = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2][:2]
    turn = np.array([[0.6, 0.8], [-0.8, 0.6]])
    model = OnlinePCA(2, axes="stable", reference=turn @ truth).fit(X)
    assert np.abs(model.components_ - turn @ truth).max() < 0.05
    covariance = np.cov(model.transform(X).T)
    assert np.allclose(model.scores_covariance_, covariance, atol=0.02)
