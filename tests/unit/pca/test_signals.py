"""The number of components that stand out from noise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from online_psp import OnlinePCA
from online_psp.pca.signals import Noise, count_signals


def rows_with(signals: int, n: int, D: int, seed: int, times: float = 2.0) -> Any:
    """Rows of unit noise and signals, of which the sample's variance will be so many times the edge."""
    rng = np.random.default_rng([2026, seed])
    ratio, edge = D / n, (1 + np.sqrt(D / n)) ** 2
    middle = times * edge - 1.0 - ratio  # (1 + l) (1 + ratio/l) = times · edge
    strength = (middle + np.sqrt(middle**2 - 4.0 * ratio)) / 2.0
    U = np.linalg.qr(np.random.default_rng(D).standard_normal((D, D)))[0][:, :signals]
    return np.sqrt(strength) * rng.standard_normal((n, signals)) @ U.T + rng.standard_normal((n, D))


@pytest.mark.parametrize("rule", ["auto", "filter"])
@pytest.mark.parametrize(("D", "n", "signals"), [(60, 400, 5), (250, 300, 3), (250, 300, 0)])
def test_right_at_twice_the_edge(D: int, n: int, signals: int, rule: str) -> None:
    right = [OnlinePCA(rule, max_rank=24).fit(rows_with(signals, n, D, seed)).n_components_ == max(signals, 1) for seed in range(10)]
    assert sum(right) >= 9


@pytest.mark.filterwarnings("ignore:The standard deviations")
@pytest.mark.parametrize("options", [{}, {"standardize": True}, {"robust": True}, {"missing": "impute"}])
def test_grows_and_shrinks_with_the_stream(options: dict[str, Any]) -> None:
    model = OnlinePCA("auto", half_life=100, max_rank=20, **options)
    for i, signals in enumerate((2, 6, 1, 4)):
        model.partial_fit(rows_with(signals, 1200, 150, i, times=6.0))
        assert model.n_components_ == signals


def test_a_signal_stays_at_a_variance_at_which_it_would_not_come() -> None:
    noise = Noise(200, 1000.0, False)
    variances = np.array([9.0, 1.03 * noise.edge, 0.9 * noise.edge])
    total = variances.sum() + 197.0
    assert [count_signals(variances, total, noise, "auto", before) for before in (0, 1, 2, 3)] == [1, 1, 2, 2]


def test_units_rank_and_saving(tmp_path: Path) -> None:
    X = 1e6 * rows_with(3, 500, 120, 0, times=4.0)
    model = OnlinePCA("auto", max_rank=16).fit(X[:300])
    model.save(tmp_path / "m.psp")
    loaded = OnlinePCA.load(tmp_path / "m.psp")
    for each in (model, loaded):
        each.partial_fit(X[300:])
    assert model.n_components_ == loaded.n_components_ == 3
    assert np.array_equal(model.components_, loaded.components_)
    one, two = OnlinePCA("auto", max_rank=16).fit(X[:250]), OnlinePCA("auto", max_rank=16).fit(X[250:])
    assert one.merge(two).n_components_ == 3
    low = np.random.default_rng(1).standard_normal((90, 3)) @ np.random.default_rng(2).standard_normal((3, 120))
    assert OnlinePCA("auto", max_rank=16).fit(low).n_components_ == 3
    assert OnlinePCA("auto").fit(np.ones((5, 4))).n_components_ == 1


def test_constant_features_are_no_noise() -> None:
    X = np.hstack([rows_with(2, 400, 60, 0, times=4.0), np.full((400, 200), 7.0)])
    assert OnlinePCA("auto", max_rank=24).fit(X).n_components_ == 2


def test_missing_values_are_not_taken_for_signals() -> None:
    X = rows_with(3, 1500, 60, 0, times=6.0)
    X[np.random.default_rng(0).random(X.shape) < 0.3] = np.nan
    assert OnlinePCA("auto", missing="impute", max_rank=24).fit(X).n_components_ == 3


def test_says_when_more_stand_out_than_are_kept() -> None:
    with pytest.warns(UserWarning, match="max_rank"):
        assert OnlinePCA("auto", max_rank=3).fit(rows_with(8, 400, 60, 0, times=4.0)).n_components_ == 3
