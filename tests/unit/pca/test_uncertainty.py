"""Error bars of components and variances."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from online_psp import OnlinePCA
from online_psp.engine.types import Array
from online_psp.metrics import subspace_error
from online_psp.monitoring import spe, t2
from tests.command import psp


def spiked(D: int, K: int, n: int, rho: float, seed: int) -> tuple[Array, Array]:
    """Rows of the paper's spiked covariance, and its K directions, (D, K)."""
    rng = np.random.default_rng([2026, seed])
    U = np.linalg.qr(rng.standard_normal((D, K)))[0]
    S = 1.0 - np.arange(K) / (2.0 * (K - 1))
    return (rng.standard_normal((n, K)) * np.sqrt(S)) @ U.T + np.sqrt(rho) * rng.standard_normal((n, D)), U


@pytest.mark.parametrize("options", [{}, {"half_life": 200}, {"axes": "stable"}, {"center": False}])
@pytest.mark.parametrize("D", [40, 300])
def test_the_error_is_as_expected(D: int, options: dict[str, Any]) -> None:
    X, U = spiked(D, 6, 1000, 0.1, 2)
    model = OnlinePCA(6, **options).fit(X)
    assert model.subspace_error_ == pytest.approx(subspace_error(model.components_.T, U), rel=0.25)
    if "axes" in options:  # of each axis, to the subspace
        outside = np.linalg.norm(model.components_ - model.components_ @ U @ U.T, axis=1)
        assert model.component_errors_ == pytest.approx(outside, rel=0.4)


def test_each_axis_and_those_that_cannot_be_told_apart() -> None:
    rng = np.random.default_rng(3)
    scales = np.sqrt([9.0, 4.0, 1.0, 1.0, 1.0, 0.4] + [0.01] * 54)
    angles, close = [], []
    for _ in range(20):
        model = OnlinePCA(6).fit(rng.standard_normal((2000, 60)) * scales)
        angles.append(np.sqrt(1.0 - model.components_[np.arange(6), np.arange(6)] ** 2))
        close.append(model.not_told_apart_ == [(2, 4)])
    expected = model.component_errors_
    assert expected[[0, 1, 5]] == pytest.approx(np.sqrt(np.mean(np.square(angles), axis=0))[[0, 1, 5]], rel=0.25)
    assert (expected[2:5] > 0.3).all()
    assert np.mean(close) >= 0.9
    assert model.subspace_error_ < 0.05, "their span is known"
    assert model.explained_variance_error_[0] == pytest.approx(9.0 * np.sqrt(2 / 2000), rel=0.1)


@pytest.mark.parametrize("freedom", [5, 8])
def test_heavy_tails_are_known_from_rows(freedom: int) -> None:
    """As docs/start.md has it."""
    pairs, variances, wrong = [], [], 0.0
    for seed in range(6):
        X, U = spiked(200, 8, 2000, 0.1, seed)
        X /= np.sqrt(np.random.default_rng(seed).chisquare(freedom, (len(X), 1)) / freedom)
        model = OnlinePCA(8).fit(X)
        inside, outside = t2(model, X), spe(model, X)
        together = np.sqrt(np.mean(inside * outside) / (inside.mean() * outside.mean()))
        pairs.append((model.subspace_error_ * together, subspace_error(model.components_.T, U)))
        variances.append(model.explained_variance_[0])
        scores = model.transform(X)[:, 0]
        wrong = model.explained_variance_error_[0] * np.sqrt((np.mean(scores**4) / np.mean(scores**2) ** 2 - 1.0) / 2.0)
    expected, measured = np.mean(pairs, axis=0)
    assert expected == pytest.approx(measured, rel=0.2)
    assert 0.3 * np.std(variances) < wrong < 3.0 * np.std(variances)


@pytest.mark.parametrize("rows", [1, 2, 5, 30])
@pytest.mark.parametrize("rank", [0, 2, 30])
def test_near_the_worst_where_rows_say_nothing(rows: int, rank: int) -> None:
    rng = np.random.default_rng(4)
    X = rng.standard_normal((rows, rank)) @ rng.standard_normal((rank, 30))
    model = OnlinePCA(5).fit(X)
    worst = np.sqrt(2.0 * (1.0 - 5 / 30))
    assert 0.5 * worst < model.subspace_error_ <= worst + 1e-12
    assert np.isfinite(model.component_errors_).all()
    assert (model.component_errors_ <= 1.0).all()


def test_nothing_is_uncertain_about_all_of_the_space() -> None:
    assert OnlinePCA().fit(np.random.default_rng(5).standard_normal((50, 4))).subspace_error_ == 0.0


def test_info_shows_error_bars(tmp_path: Path) -> None:
    OnlinePCA(6).fit(spiked(40, 6, 200, 0.1, 2)[0]).save(tmp_path / "m.psp")
    shown = psp("info", tmp_path / "m.psp").stdout
    assert "±" in shown
    assert "not told apart" in shown
    assert 0.0 < json.loads(psp("info", tmp_path / "m.psp", "--json").stdout)["subspace_error"] < 0.5
