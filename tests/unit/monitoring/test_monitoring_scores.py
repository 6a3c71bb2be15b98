"""Scores and limits against their definitions, for rows of every kind."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import ArrayLike
from scipy import stats
from scipy.sparse import csr_array, random_array

from online_psp import OnlinePCA
from online_psp.engine.types import Floats
from online_psp.monitoring import SpeMoments, contributions, spe, spe_limit, t2, t2_limit


def spiked(n: int, D: int = 30, K: int = 3, seed: int = 0, offset: float = 2.0) -> Floats:
    rng = np.random.default_rng(seed)
    strong = rng.standard_normal((n, K)) * np.linspace(6, 3, K) @ np.linalg.qr(rng.standard_normal((D, K)))[0].T
    return np.asarray(strong + rng.standard_normal((n, D)) + offset)


def by_definition(model: OnlinePCA, X: Floats) -> tuple[Floats, Floats]:
    """T² and SPE, row by row, by explicit projectors."""
    C, variances = model.components_.astype(np.float64), model.explained_variance_
    mean = model.mean_ if model.center else np.zeros(X.shape[1])
    inside = C.T @ np.diag(1 / variances) @ C
    outside = np.eye(X.shape[1]) - C.T @ C
    return np.array([(x - mean) @ inside @ (x - mean) for x in X]), np.array([(x - mean) @ outside @ (x - mean) for x in X])


@pytest.mark.parametrize("options", [{}, {"whiten": True}, {"center": False}, {"half_life": 100.0}], ids=str)
@pytest.mark.parametrize("D", [30, 300])
def test_scores_are_what_they_are_defined_to_be(options: dict[str, Any], D: int) -> None:
    X = spiked(600, D)
    model, rows = OnlinePCA(3, **options).fit(X[:500]), X[500:]
    inside, outside = by_definition(model, rows)
    np.testing.assert_allclose(t2(model, rows), inside, rtol=1e-9)
    np.testing.assert_allclose(spe(model, rows), outside, rtol=1e-9)


def test_sparse_rows_have_the_scores_of_dense_ones() -> None:
    rows = csr_array(random_array((400, 200), density=0.1, format="csr", random_state=np.random.default_rng(0)))
    model, part = OnlinePCA(3).fit(rows), rows[:50]
    np.testing.assert_allclose(t2(model, part), t2(model, part.toarray()), rtol=1e-9)
    np.testing.assert_allclose(spe(model, part), spe(model, part.toarray()), rtol=1e-9)


def test_sparse_rows_are_not_made_dense() -> None:
    n, D = 2000, 20_000  # 320 MB if they were dense
    rng = np.random.default_rng(0)
    rows = csr_array((rng.standard_normal(5 * n), rng.integers(0, D, 5 * n), np.arange(0, 5 * n + 1, 5)), shape=(n, D))
    model = OnlinePCA(2, oversample=0).fit(rows)
    tracemalloc.start()
    found = spe(model, rows), t2(model, rows)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40e6, f"scoring took {peak / 1e6:.0f} MB"
    np.testing.assert_allclose(found[0][:5], spe(model, rows[:5].toarray()), rtol=1e-9)
    np.testing.assert_allclose(found[1][:5], t2(model, rows[:5].toarray()), rtol=1e-9)


def test_float32_rows() -> None:
    X = spiked(600).astype(np.float32)
    model = OnlinePCA(3).fit(X)
    inside, outside = by_definition(model, X[:50].astype(np.float64))
    np.testing.assert_allclose(t2(model, X[:50]), inside, rtol=1e-4)
    np.testing.assert_allclose(spe(model, X[:50]), outside, rtol=1e-4)


def test_directions_without_variance_count_in_the_spe() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 2)) @ np.eye(2, 10)
    model = OnlinePCA(4).fit(X)
    off = np.zeros((1, 10))
    off[0, 5] = 3.0
    assert spe(model, off)[0] == pytest.approx(9.0, rel=0.01), "a direction never seen is outside the subspace, though four were asked for"
    assert np.isfinite(t2(model, off)).all()
    assert spe(model, X).max() < 1e-20


def test_stable_axes_have_the_scores_of_principal_ones() -> None:
    X = spiked(400)
    principal, stable = (OnlinePCA(3, axes=axes, half_life=50.0) for axes in ("principal", "stable"))
    for part in np.split(X, 8):
        principal.partial_fit(part)
        stable.partial_fit(part)
    covariance = stable.scores_covariance_
    assert np.abs(covariance - np.diag(np.diagonal(covariance))).max() > 0.01, "axes that are principal ones test nothing"
    np.testing.assert_allclose(t2(stable, X), t2(principal, X), rtol=1e-8)
    np.testing.assert_allclose(spe(stable, X), spe(principal, X), rtol=1e-8)


def test_contributions_add_up_and_point_at_the_feature() -> None:
    X = spiked(500)
    model = OnlinePCA(3).fit(X)
    odd = X[0].copy()
    odd[7] += 20.0
    found = contributions(model, odd)
    assert found.t2.sum() == pytest.approx(t2(model, [odd])[0], rel=1e-9)
    assert found.spe.sum() == pytest.approx(spe(model, [odd])[0], rel=1e-9)
    assert np.argmax(found.spe) == 7
    several = contributions(model, csr_array(np.vstack([odd, X[1]])))
    np.testing.assert_allclose(several.spe[0], found.spe, rtol=1e-9)
    np.testing.assert_allclose(several.t2.sum(axis=1), t2(model, np.vstack([odd, X[1]])), rtol=1e-9)


@pytest.mark.parametrize(
    "rows", [[[1.0, np.nan]], [[1.0, 2.0, 3.0]], [1.0, 2.0], np.zeros((0, 2))], ids=["nan", "features", "flat", "none"]
)
def test_bad_rows_are_refused(rows: ArrayLike) -> None:
    model = OnlinePCA(1).fit(np.random.default_rng(0).standard_normal((50, 2)))
    for function in (t2, spe):
        with pytest.raises(ValueError, match=r"NaN|features|1D array|minimum"):
            function(model, rows)


# Limits


def test_t2_limit_is_that_of_hotelling() -> None:
    model = OnlinePCA(3).fit(spiked(80))
    n, K = 80, 3
    assert t2_limit(model, 0.05) == pytest.approx(K * (n**2 - 1) / (n * (n - K)) * stats.f.ppf(0.95, K, n - K))
    assert np.isnan(t2_limit(OnlinePCA(3).fit(spiked(1)))), "one row says nothing about variances"
    assert np.isnan(t2_limit(OnlinePCA(3, half_life=0.5).fit(spiked(50)))), "all but the last two rows are forgotten"
    forgetting = OnlinePCA(3, half_life=40.0).fit(spiked(500))
    weights = 2.0 ** (-np.arange(500) / 40.0)
    n = weights.sum() ** 2 / (weights**2).sum()
    assert t2_limit(forgetting, 0.05) == pytest.approx(K * (n**2 - 1) / (n * (n - K)) * stats.f.ppf(0.95, K, n - K))


def test_spe_limit_matches_two_moments() -> None:
    values = np.random.default_rng(0).gamma(4.0, 2.0, 1000)
    moments = SpeMoments().take(values)
    g, h = values.var(ddof=1) / (2 * values.mean()), 2 * values.mean() ** 2 / values.var(ddof=1)
    assert spe_limit(moments, 0.02) == pytest.approx(g * stats.chi2.ppf(0.98, h))
    assert np.isnan(spe_limit(SpeMoments().take(values[:29])))
    assert np.isfinite(spe_limit(SpeMoments().take(values[:30])))
    assert spe_limit(SpeMoments().take(np.full(50, 3.0))) == 3.0, "what does not vary has its one value as limit"


@pytest.mark.parametrize("half_life", [5.0, 40.0, None])
def test_moments_are_those_of_pandas_however_the_values_come(half_life: float | None) -> None:
    values = np.random.default_rng(1).exponential(size=200)
    decay = 1.0 if half_life is None else 2.0 ** (-1.0 / half_life)
    moments = SpeMoments()
    for part in np.split(values, [1, 2, 50, 51, 120]):
        moments = moments.take(part, decay)
    series = pd.Series(values)
    window: Any = series.expanding() if half_life is None else series.ewm(halflife=half_life)
    assert moments.mean == pytest.approx(window.mean().iloc[-1], rel=1e-12)
    assert moments.variance == pytest.approx(window.var().iloc[-1], rel=1e-12)


@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.1, float("nan"), "0.01", None, True])
def test_impossible_levels(alpha: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="alpha must be a probability"):
        spe_limit(SpeMoments(), alpha)


# The detector
