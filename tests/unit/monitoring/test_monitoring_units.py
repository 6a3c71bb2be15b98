"""Monitors of models that forget by time, and of models that standardise."""

from __future__ import annotations

import math
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from online_psp import OnlinePCA
from online_psp.engine.types import Floats
from online_psp.monitoring import Monitor, Update, contributions, spe, t2
from tests.unit.monitoring.test_monitoring import World, joined, same

K = 5
SCALES = np.geomspace(1e-3, 1e4, 80)


# Ages in time


@pytest.fixture(scope="module")
def changing() -> Floats:
    world = World(21)
    return np.vstack([world.rows(900), world.rows(300, world.basis())])


def test_evenly_timed_rows_are_those_of_a_half_life_in_rows(changing: Floats) -> None:
    by_rows = Monitor(OnlinePCA(K, half_life=600.0), on_drift="reset")
    by_time = Monitor(OnlinePCA(K, half_life="10min"), on_drift="reset")
    times = np.datetime64("2024-03-01T00:00:00") + np.arange(len(changing)) * np.timedelta64(1, "s")
    expected, found = by_rows.update(changing), by_time.update(changing, times)
    assert by_rows.alarms
    assert by_rows.alarms == by_time.alarms
    same(found, expected, rtol=1e-6)


@pytest.mark.parametrize("learn_outliers", [True, False])
def test_cuts_into_calls_do_not_matter_where_rows_come_unevenly(changing: Floats, learn_outliers: bool) -> None:
    rng = np.random.default_rng(3)
    times = np.cumsum(rng.exponential(1.0, len(changing)))
    times[500:] += 100.0

    def monitor() -> Monitor:
        half_life = timedelta(minutes=5)
        return Monitor(OnlinePCA(K, half_life=half_life), on_drift="reset", learn_outliers=learn_outliers)

    whole, cut, single = monitor(), monitor(), monitor()
    expected = whole.update(changing, times)
    assert whole.alarms, "there is a change to be found"
    cuts = np.sort(rng.choice(len(changing), 30, replace=False))
    same(joined([cut.update(*part) for part in zip(np.split(changing, cuts), np.split(times, cuts), strict=True)]), expected, rtol=1e-7)
    rows = [single.update_one(x, time) for x, time in zip(changing, times, strict=True)]
    same(Update(*(np.array(field) for field in zip(*rows, strict=True))), expected, rtol=1e-7)
    assert whole.alarms == cut.alarms == single.alarms


@pytest.mark.parametrize("at", [3, 45, 700, 1000])
def test_saved_mid_stream_it_goes_on_bit_for_bit(changing: Floats, at: int, tmp_path: Path) -> None:
    times = np.cumsum(np.random.default_rng(4).exponential(1.0, len(changing)))
    through = Monitor(OnlinePCA(K, half_life="5min"), on_drift="reset", learn_outliers=False)
    through.update(changing[:at], times[:at])
    through.save(tmp_path / "monitor.psp")
    resumed = Monitor.load(tmp_path / "monitor.psp")
    same(resumed.update(changing[at:], times[at:]), through.update(changing[at:], times[at:]))
    assert resumed.alarms == through.alarms
    assert len(resumed.alarms) > 0
    resumed.save(tmp_path / "one.psp")
    through.save(tmp_path / "two.psp")
    assert (tmp_path / "one.psp").read_bytes() == (tmp_path / "two.psp").read_bytes()


def test_after_a_pause_too_little_is_known_to_judge() -> None:
    """The first row after it is scored by what was known before; then there are no scores until enough rows have come."""
    X, times = World(22).rows(900), np.arange(900.0)
    times[500:] += 1e6
    monitor = Monitor(OnlinePCA(K, half_life="5min"))
    found = monitor.update(X, times)
    assert np.isfinite(found.t2[100:501]).all()
    assert np.isnan(found.t2[501:520]).all()
    assert np.isfinite(found.t2[540:]).all()
    assert np.isnan(found.spe_limit[501:530]).all(), "limits of forgotten scores are no limits"
    assert np.isfinite(found.spe_limit[600:]).all()
    assert not monitor.alarms, "a pause is no drift"


def test_rows_too_rare_for_the_half_life_are_never_judged() -> None:
    found = Monitor(OnlinePCA(K, half_life="1min")).update(World(23).rows(300), 60.0 * np.arange(300))
    assert np.isnan(found.t2).all()
    assert not found.outlier.any()


def test_times_that_cannot_be_change_nothing(tmp_path: Path) -> None:
    X, times = World(24).rows(300), np.arange(300.0)
    monitor = Monitor(OnlinePCA(K, half_life="5min"))
    monitor.update(X[:250], times[:250])
    monitor.save(tmp_path / "before.psp")
    back = times[250:].copy()
    back[-1] = 3.0
    calls: list[tuple[dict[str, Any], str]] = [
        ({}, "every row needs a time"),
        ({"times": back}, "that of row 49 is 3.0"),
        ({"times": times[:50]}, "Times must not go back: that of row 0"),
        ({"times": times[250:260]}, "one for each of the 50 rows"),
        ({"times": np.full(50, np.nan)}, "time of row 0 is missing"),
    ]
    for given, message in calls:
        with pytest.raises(ValueError, match=message):
            monitor.update(X[250:], **given)
    with pytest.raises(ValueError, match="every row needs a time"):
        monitor.update_one(X[250])
    with pytest.raises(ValueError, match="Times must not go back"):
        monitor.update_one(X[250], 3.0)
    monitor.save(tmp_path / "after.psp")
    assert (tmp_path / "before.psp").read_bytes() == (tmp_path / "after.psp").read_bytes()
    with pytest.raises(ValueError, match="half_life is not a time"):
        Monitor(OnlinePCA(K)).update(X, times)


def test_a_model_that_has_learned_by_time_goes_on_from_its_last_row() -> None:
    X, times = World(25).rows(600), np.arange(600.0)
    monitor = Monitor(OnlinePCA(K, half_life="10min").fit(X[:500], times=times[:500]))
    with pytest.raises(ValueError, match="Times must not go back"):
        monitor.update(X[500:], times[:100])
    assert np.isfinite(monitor.update(X[500:], times[500:]).t2).all()


# Standardised features


def test_scores_are_those_of_rows_that_were_standardised_before() -> None:
    X = World(26).rows(500) + 2.0
    raw = OnlinePCA(K, standardize=True).fit(X * SCALES)
    deviations = np.std(X * SCALES, axis=0)
    assert raw.scale_ is not None
    np.testing.assert_allclose(raw.scale_, deviations, rtol=1e-12)
    plain = OnlinePCA(K).fit(X * SCALES / deviations)
    rows = World(27).rows(40)
    for score in (t2, spe):
        expected = score(plain, rows * SCALES / deviations)
        np.testing.assert_allclose(score(raw, rows * SCALES), expected, rtol=1e-8, err_msg=score.__name__)
        np.testing.assert_allclose(score(raw, csr_array(rows * SCALES)), expected, rtol=1e-6, err_msg=f"{score.__name__}, sparse")
    parts = contributions(raw, rows * SCALES)
    np.testing.assert_allclose(parts.t2.sum(axis=1), t2(raw, rows * SCALES), rtol=1e-9)
    np.testing.assert_allclose(parts.spe.sum(axis=1), spe(raw, rows * SCALES), rtol=1e-9)


def test_features_in_other_units_are_monitored_alike() -> None:
    """Outliers, limits and alarms of features in any units are those of features in equal ones."""
    world = World(29)
    X = np.vstack([world.rows(1200), world.rows(300) + 0.6 * world.rng.choice([-1.0, 1.0], 80)])
    X[700] *= 20
    found, expected = (Monitor(OnlinePCA(K, standardize=True), on_drift="reset") for _ in range(2))
    one, two = found.update(X * SCALES), expected.update(X)
    assert found.alarms
    assert found.alarms == expected.alarms
    assert one.outlier[700]
    same(one, two, rtol=1e-6)
    shares = [float(np.mean((score > limit)[200:1200])) for score, limit in ((one.t2, one.t2_limit), (one.spe, one.spe_limit))]
    assert max(shares) < 0.03, f"limits at 1 % are exceeded by {shares}"


def test_a_standardising_monitor_is_saved_mid_stream(tmp_path: Path) -> None:
    world = World(30)
    X = np.vstack([world.rows(800), world.rows(200, world.basis())]) * SCALES
    through = Monitor(OnlinePCA(K, standardize=True), learn_outliers=False)
    through.update(X[:650])
    through.save(tmp_path / "monitor.psp")
    resumed = Monitor.load(tmp_path / "monitor.psp")
    same(resumed.update(X[650:]), through.update(X[650:]))
    assert resumed.alarms == through.alarms
    assert resumed.alarms


def test_a_feature_that_was_constant_counts_in_its_own_units() -> None:
    X = np.random.default_rng(0).standard_normal((400, 6))
    X[:, 4] = 7.0
    monitor = Monitor(OnlinePCA(2, standardize=True))
    monitor.update(X)
    row = X[0].copy()
    row[4] = 107.0
    found = monitor.update_one(row)
    assert found.outlier
    assert math.isclose(found.spe, 1e4, rel_tol=0.01)
