"""The monitor: scores before learning, limits that hold, alarms that come when they should and say what has changed."""

from __future__ import annotations

import copy
import math
import pickle
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array

from online_psp import OnlinePCA
from online_psp.engine.types import Floats
from online_psp.io import model_file
from online_psp.io.model_file import ModelFileError
from online_psp.metrics import subspace_error
from online_psp.monitoring import Alarm, Monitor, SpeMoments, Update, spe, spe_limit, t2

D, K = 80, 5


class World:
    """Gaussian rows with K strong directions in noise of variance one."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.directions = self.basis()

    def basis(self) -> Floats:
        return np.asarray(np.linalg.qr(self.rng.standard_normal((D, K)))[0].T)

    def rows(self, n: int, directions: Floats | None = None, noise: float = 1.0, scale: float = 1.0) -> Floats:
        strong = self.rng.standard_normal((n, K)) * np.array([6, 5, 4, 3.5, 3]) * scale
        rows: Floats = strong @ (self.directions if directions is None else directions) + noise * self.rng.standard_normal((n, D))
        return rows


def same(a: Update, b: Update, rtol: float = 0.0) -> None:
    for name, one, two in zip(Update._fields, a, b, strict=True):
        if name in ("outlier", "drift"):
            assert (one == two).all(), f"{name} differs at {np.flatnonzero(one != two)[:5]}"
        else:
            np.testing.assert_allclose(one, two, rtol=rtol, err_msg=name)


def joined(parts: list[Update]) -> Update:
    return Update(*(np.concatenate(field) for field in zip(*parts, strict=True)))


# Scores


def places(n: int, most: int) -> list[int]:
    """Where the documentation says that the model is read."""
    found, at = [], 0
    while at < n:
        at += min(max(at // 8, 1), most)
        found.append(at)
    return found


@pytest.mark.parametrize(("half_life", "most"), [(None, 64), (80.0, 10)])
def test_rows_are_scored_by_the_model_as_of_the_last_place_before_them(half_life: float | None, most: int) -> None:
    X = World().rows(400)
    found = Monitor(OnlinePCA(K, half_life=half_life)).update(X)
    model = OnlinePCA(K, half_life=half_life)
    starts = [0, *places(len(X), most)]
    for start, stop in pairwise(starts):
        rows = X[start:stop]
        if start >= 60:
            np.testing.assert_allclose(found.t2[start:stop], t2(model, rows), rtol=1e-9, err_msg=f"rows {start} to {stop}")
            np.testing.assert_allclose(found.spe[start:stop], spe(model, rows), rtol=1e-9, err_msg=f"rows {start} to {stop}")
        if len(rows):
            model.partial_fit(rows)


@pytest.mark.parametrize("learn_outliers", [True, False])
@pytest.mark.parametrize("on_drift", ["flag", "reset"])
def test_cuts_into_calls_do_not_matter(learn_outliers: bool, on_drift: str) -> None:
    world = World(1)
    X = np.vstack([world.rows(900), world.rows(500, world.basis())])
    X[400] *= 50

    def monitor() -> Monitor:
        return Monitor(OnlinePCA(K), learn_outliers=learn_outliers, on_drift=on_drift)

    whole = monitor()
    expected = whole.update(X)
    assert whole.alarms, "there is a change to be found"
    cut = monitor()
    cuts = np.sort(np.random.default_rng(0).choice(len(X), 40, replace=False))
    same(joined([cut.update(part) for part in np.split(X, cuts) if len(part)]), expected, rtol=1e-7)
    single = monitor()
    rows = [single.update_one(x) for x in X]
    same(Update(*(np.array(field) for field in zip(*rows, strict=True))), expected, rtol=1e-7)
    assert whole.alarms == cut.alarms == single.alarms
    assert whole.n_left_out == cut.n_left_out == single.n_left_out
    assert subspace_error(whole.model.components_.T, single.model.components_.T) < 1e-6


def test_sparse_rows_are_monitored_as_dense_ones() -> None:
    rng = np.random.default_rng(0)
    X = np.where(rng.random((1200, 60)) < 0.2, rng.standard_normal((1200, 60)) * 2, 0.0)
    X[900:] *= 3
    dense, sparse = (Monitor(OnlinePCA(3), on_drift="reset") for _ in range(2))
    same(sparse.update(csr_array(X)), dense.update(X), rtol=1e-6)
    assert dense.alarms
    assert dense.alarms == sparse.alarms


def test_before_there_are_enough_rows_nothing_is_known() -> None:
    found = Monitor(OnlinePCA(K)).update(World().rows(300))
    first = [int(np.argmax(np.isfinite(field))) for field in found[:4]]
    assert 25 <= first[0] == first[1] == first[2] < 35, "five rows a component"
    assert first[0] + 30 <= first[3] < first[0] + 50, "and thirty more for the limit of the SPE"
    assert not found.outlier[: first[0]].any()
    assert all(np.isfinite(field[first[3] :]).all() for field in found[:4])
    one = Monitor(OnlinePCA(K)).update_one(World().rows(1)[0])
    assert math.isnan(one.t2)
    assert one.outlier is False
    assert one.drift == ""


@pytest.mark.parametrize("half_life", [None, 1000.0])
def test_limits_are_exceeded_as_often_as_they_say(half_life: float | None) -> None:
    found = Monitor(OnlinePCA(K, half_life=half_life), run_length=None).update(World(3).rows(12_000))
    for score, limit in ((found.t2, found.t2_limit), (found.spe, found.spe_limit)):
        share = float(np.mean((score > limit)[100:]))
        assert 0.005 < share < 0.02, f"{100 * share:.2f} % of ordinary rows exceed the limit at 1 %"


def test_outliers_are_left_out_on_request_and_counted() -> None:
    X = World().rows(2000)
    X[500::100] += 30
    monitor = Monitor(OnlinePCA(K), learn_outliers=False, run_length=None)
    found = monitor.update(X)
    assert found.outlier[500::100].all()
    assert monitor.n_left_out == found.outlier.sum()
    assert found.outlier.mean() < 0.05
    expected = OnlinePCA(K).fit(X[~found.outlier])
    assert monitor.model.n_samples_seen_ == expected.n_samples_seen_
    np.testing.assert_allclose(monitor.model.mean_, expected.mean_, atol=1e-12)
    np.testing.assert_allclose(monitor.model.explained_variance_, expected.explained_variance_, rtol=1e-9)
    learned = Monitor(OnlinePCA(K), run_length=None)
    learned.update(X)
    assert learned.n_left_out == 0
    assert learned.model.n_samples_seen_ == 2000


def test_rows_within_the_subspace_have_no_spe_to_flag() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1000, 2)) @ rng.standard_normal((2, 20))
    monitor = Monitor(OnlinePCA(3), alpha=0.01)
    found = monitor.update(X)
    assert not (found.spe > found.spe_limit).any(), "rounding is not an outlier"
    assert not monitor.alarms
    assert monitor.update_one(X[0] + 1e-3).outlier, "but a small step out of it is"


# Drift

CHANGES: dict[str, tuple[str, Callable[[World], Floats]]] = {
    "a new basis": ("direction", lambda world: world.rows(400, world.basis())),
    "a shifted mean": ("mean", lambda world: world.rows(400) + 0.3 * world.rng.choice([-1.0, 1.0], D)),
    "a mean shifted along a component": ("mean", lambda world: world.rows(400) + 12 * world.directions[0]),
    "more noise": ("spread", lambda world: world.rows(400, noise=1.2)),
    "less noise": ("spread", lambda world: world.rows(400, noise=0.8)),
    "larger components": ("spread", lambda world: world.rows(400, scale=2.0)),
}


@pytest.fixture(scope="module")
def settled() -> list[tuple[World, Monitor]]:
    """Monitors after a few thousand quiet rows, which raised no alarm."""
    found = []
    for seed in range(3):
        world, monitor = World(seed), Monitor(OnlinePCA(K, half_life=2000.0 if seed == 1 else None))
        monitor.update(world.rows(3500))
        assert not monitor.alarms, f"seed {seed}: nothing has changed, but {monitor.alarms}"
        found.append((world, monitor))
    return found


@pytest.mark.parametrize("change", CHANGES)
def test_changes_are_found_soon_and_named(change: str, settled: list[tuple[World, Monitor]]) -> None:
    kind, rows = CHANGES[change]
    delays, kinds = [], []
    for world, monitor in settled:
        after = copy.deepcopy(monitor)
        found = after.update(rows(copy.deepcopy(world)))
        assert after.alarms, f"{change} was not found in 400 rows"
        delays.append(after.alarms[0].row - 3499)
        kinds.append(after.alarms[0].kind)
        assert found.drift[delays[-1] - 1] == kinds[-1]
    assert np.median(delays) <= 200
    assert kinds.count(kind) >= 2, f"{change} was taken for {kinds}"


def test_starting_anew_cures_what_a_long_memory_cannot() -> None:
    world = World(5)
    before, turned = world.rows(3000), world.basis()
    after = world.rows(600, turned) + 2.0
    errors = {}
    for on_drift in ("flag", "reset"):
        monitor = Monitor(OnlinePCA(K), on_drift=on_drift)
        monitor.update(before)
        monitor.update(after)
        errors[on_drift] = subspace_error(monitor.model.components_.T, turned.T)
    assert errors["reset"] < 0.25, errors
    assert errors["flag"] > 0.7, errors
    assert monitor.model.n_samples_seen_ <= 620, "the rows before the change are gone"
    assert abs(monitor.model.mean_.mean() - 2.0) < 0.1


def test_a_callable_sees_the_monitor_at_the_row_of_the_alarm() -> None:
    world, seen = World(6), []

    def react(monitor: Monitor, alarm: Alarm) -> None:
        seen.append((monitor.model.n_samples_seen_, monitor.n_rows, alarm))

    monitor = Monitor(OnlinePCA(K), on_drift=react)
    monitor.update(np.vstack([world.rows(1000), world.rows(300, world.basis())]))
    assert seen
    samples, rows, alarm = seen[0]
    assert samples == rows == alarm.row + 1
    assert 1000 <= alarm.row < 1100


def test_a_lasting_change_is_one_alarm() -> None:
    """A model that forgets nothing learns a large change slowly; the charts compare with rows since the alarm, not with the model."""
    X = World(5).rows(6000)
    X[3000:, 4] += 12.0
    monitor = Monitor(OnlinePCA(K))
    monitor.update(X)
    assert [3000 <= alarm.row < 3020 for alarm in monitor.alarms] == [True], monitor.alarms


# Files


def streams() -> dict[str, Any]:
    world = World(8)
    X = np.vstack([world.rows(1000), world.rows(300, world.basis())])
    return {"dense": X, "float32": X.astype(np.float32), "sparse": csr_array(np.where(np.abs(X) > 2, X, 0.0))}


@pytest.mark.parametrize("kind", ["dense", "float32", "sparse"])
@pytest.mark.parametrize("at", [1, 45, 777, 1100])
def test_saved_mid_stream_it_goes_on_bit_for_bit(kind: str, at: int, tmp_path: Path) -> None:
    X = streams()[kind]
    through = Monitor(OnlinePCA(K, oversample=None if kind == "sparse" else 4), alpha=0.02, on_drift="reset", learn_outliers=False)
    through.update(X[:at])
    through.save(tmp_path / "monitor.psp")
    resumed = Monitor.load(tmp_path / "monitor.psp")
    assert resumed.alarms == through.alarms
    same(resumed.update(X[at:]), through.update(X[at:]), 1e-9 if kind == "sparse" else 0.0)  # OnlinePCA resumes sparse streams to rounding
    assert resumed.alarms == through.alarms
    assert len(resumed.alarms) > 0
    assert (resumed.n_rows, resumed.n_left_out) == (through.n_rows, through.n_left_out)
    if kind == "sparse":
        return
    assert np.array_equal(resumed.model.components_, through.model.components_)
    resumed.save(tmp_path / "one.psp")
    through.save(tmp_path / "two.psp")
    assert (tmp_path / "one.psp").read_bytes() == (tmp_path / "two.psp").read_bytes()


def test_rows_that_depend_on_each_other_can_be_saved_while_little_is_known(tmp_path: Path) -> None:
    X = np.random.default_rng(0).standard_normal((500, 8))
    for i in range(1, 500):
        X[i] += 0.97 * X[i - 1]
    monitor = Monitor(OnlinePCA(K))
    monitor.update(X)
    monitor.save(tmp_path / "m.psp")
    assert Monitor.load(tmp_path / "m.psp").n_rows == 500


def test_a_monitor_that_has_seen_nothing_can_be_saved(tmp_path: Path) -> None:
    Monitor(OnlinePCA(K), run_length=2000, alpha=0.02).save(tmp_path / "m.psp")
    found = Monitor.load(tmp_path / "m.psp")
    assert (found.run_length, found.alpha) == (2000, 0.02)
    assert found.update(World().rows(100)).t2.shape == (100,)


def test_functions_are_not_saved_but_can_be_given_again(tmp_path: Path) -> None:
    Monitor(OnlinePCA(K), on_drift=print).save(tmp_path / "m.psp")
    with pytest.raises(ModelFileError, match="pass on_drift to load"):
        Monitor.load(tmp_path / "m.psp")
    assert Monitor.load(tmp_path / "m.psp", on_drift=print).on_drift is print


def test_it_can_be_pickled() -> None:
    world = World(9)
    monitor = Monitor(OnlinePCA(K))
    monitor.update(world.rows(333))
    other, rows = pickle.loads(pickle.dumps(monitor)), world.rows(300)
    same(other.update(rows), monitor.update(rows))


def test_files_of_another_version_and_of_other_models_are_refused(tmp_path: Path) -> None:
    monitor = Monitor(OnlinePCA(K))
    monitor.update(csr_array(World().rows(300)))
    monitor.save(tmp_path / "m.psp")
    contents = model_file.read(tmp_path / "m.psp")
    parameters = contents.state["parameters"]
    changes: list[dict[str, Any]] = [
        {"parameters": {**parameters, "novel": 1}},
        {"model": {}},
        {"parameters": {**parameters, "alpha": 2.0}},
    ]
    for change in changes:
        model_file.write(tmp_path / "bad.psp", contents._replace(state={**contents.state, **change}))
        with pytest.raises(ModelFileError, match="cannot be used as a monitor"):
            Monitor.load(tmp_path / "bad.psp")
    monitor.model.save(tmp_path / "pca.psp")
    with pytest.raises(ModelFileError, match="kind OnlinePCA, not a Monitor"):
        Monitor.load(tmp_path / "pca.psp")


# Bad input


def test_bad_rows_change_nothing(tmp_path: Path) -> None:
    X = World().rows(600)
    monitor = Monitor(OnlinePCA(K))
    monitor.update(X[:450])
    monitor.save(tmp_path / "before.psp")
    bad = X[450:].copy()
    bad[-1, 3] = np.nan
    for rows, message in ((bad, "row 149, column 3"), (X[:, :-1], "features"), (X[:0], "minimum of 1"), (X[0], "1D array")):
        with pytest.raises(ValueError, match=message):
            monitor.update(rows)
    with pytest.raises(ValueError, match="NaN"):
        monitor.update_one(bad[-1])
    with pytest.raises(ValueError, match="one row of shape"):
        monitor.update_one(X[:1])
    with pytest.raises(ValueError, match="features"):
        monitor.update_one(X[0, :-1])
    monitor.model.set_params(center=False)
    with pytest.raises(ValueError, match="center was True when learning began"):
        monitor.update(X[450:])
    monitor.model.set_params(center=True, half_life=3.0)
    with pytest.raises(ValueError, match="half_life or window of the model"):
        monitor.update(X[450:])
    monitor.model.set_params(half_life=None)
    monitor.save(tmp_path / "after.psp")
    assert (tmp_path / "before.psp").read_bytes() == (tmp_path / "after.psp").read_bytes()


def test_a_row_too_large_for_the_model_is_refused_before_the_rows_with_it_are_learned() -> None:
    X = World().rows(300) * 1e-80
    monitor = Monitor(OnlinePCA(K))
    monitor.update(X[:100])
    X[250] = 1e80
    with pytest.raises(ValueError, match="row 150, too large"):
        monitor.update(X[100:])
    assert monitor.n_rows == monitor.model.n_samples_seen_ == 100


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": 0}, "alpha"),
        ({"on_drift": "stop"}, "on_drift"),
        ({"run_length": 10}, "run_length"),
        ({"learn_outliers": "no"}, "learn_outliers"),
    ],
)
def test_impossible_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        Monitor(OnlinePCA(2), **options)


def test_a_memory_too_short_to_score_by_is_refused() -> None:
    with pytest.raises(ValueError, match="remembers only as much as 9 rows of equal weight; to score rows a monitor needs 20"):
        Monitor(OnlinePCA(2, half_life=3.0))


@pytest.mark.parametrize("unit", [1e-140, 1e-70, 1e60])
def test_units_do_not_matter(unit: float) -> None:
    world = World(13)
    X = np.vstack([world.rows(700), world.rows(150, world.basis())])
    X[300] *= 5
    found, expected = (Monitor(OnlinePCA(K), on_drift="reset").update(X * scale) for scale in (unit, 1.0))
    np.testing.assert_allclose(found.t2, expected.t2, rtol=1e-6)
    np.testing.assert_allclose(found.spe_limit / unit / unit, expected.spe_limit, rtol=1e-6)
    assert (found.outlier == expected.outlier).all()
    assert (found.drift == expected.drift).all()
    assert (found.drift == "direction").sum() == 1


@pytest.mark.filterwarnings("ignore:Some rows are")
def test_one_gross_row_is_an_outlier_and_no_drift() -> None:
    X = World(14).rows(1200)
    X[600] = 1e100
    monitor = Monitor(OnlinePCA(K), learn_outliers=False)
    found = monitor.update(X)
    assert found.outlier[600]
    assert found.outlier.mean() < 0.05
    assert not monitor.alarms
    learned = Monitor(OnlinePCA(K)).update(X)
    assert learned.outlier[600]
    assert np.isfinite(learned.spe_limit[100:]).all(), "a model that learns such a row is lost, but not in NaN"


def test_rows_that_are_all_the_same_have_no_scores() -> None:
    monitor = Monitor(OnlinePCA(2))
    found = monitor.update(np.full((600, 10), 3.7))
    assert np.isnan(found.t2).all()
    assert not found.outlier.any()
    assert not monitor.alarms


def test_only_an_online_pca_can_be_monitored() -> None:
    with pytest.raises(TypeError, match="takes an OnlinePCA; got str"):
        Monitor("pca")  # type: ignore[arg-type]


def test_data_frames_keep_their_names_when_the_model_starts_anew() -> None:
    world = World(10)
    X = pd.DataFrame(np.vstack([world.rows(800), world.rows(300, world.basis())]), columns=[f"sensor {j}" for j in range(D)])
    monitor = Monitor(OnlinePCA(K), on_drift="reset", learn_outliers=False)
    monitor.update(X[:500])
    monitor.update(X[500:])
    assert monitor.alarms
    assert list(monitor.model.feature_names_in_) == list(X.columns)
    with pytest.raises(ValueError, match="feature names"):
        monitor.update(X[list(X.columns[::-1])])


def test_one_thread_at_a_time_learns() -> None:
    X = World(11).rows(400)
    monitor = Monitor(OnlinePCA(K))
    threads = [threading.Thread(target=lambda: [monitor.update(X[i : i + 20]) for i in range(0, 400, 20)]) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert monitor.n_rows == monitor.model.n_samples_seen_ == 1200


def test_a_model_that_has_learned_before_scores_from_the_first_row() -> None:
    X = World(12).rows(600)
    monitor = Monitor(OnlinePCA(K).fit(X[:500]))
    found = monitor.update(X[500:])
    assert np.isfinite(found.t2).all()
    assert np.isfinite(found.t2_limit).all()
    scores = monitor.score(X[:7])
    assert monitor.n_rows == 100
    assert scores.t2.shape == (7,)


def test_one_gross_row_does_not_move_the_limit() -> None:
    """A single value a thousand times the others made the spread huge, the degrees tiny, and the limit fall below ordinary rows."""
    values = np.random.default_rng(4).chisquare(20, 1200)
    before = SpeMoments().take(values)
    after = before.take(np.array([2e4])).take(np.random.default_rng(5).chisquare(20, 300))
    assert spe_limit(after, 0.01) == pytest.approx(spe_limit(before, 0.01), rel=0.05)


def test_much_smaller_rows_are_not_all_outliers() -> None:
    """The SPE of long ago then makes up the mean and the spread, and a quantile of so uneven a mixture is next to nothing."""
    world = World(5)
    X = world.rows(2400)
    X[800:] *= 1e-3
    found = Monitor(OnlinePCA(K, half_life=100.0)).update(X)
    for rows in (slice(900, 1600), slice(1600, 2400)):
        assert found.outlier[rows].mean() < 0.05, f"{100 * found.outlier[rows].mean():.0f} % outliers long after the rows became smaller"
    anew = Monitor(OnlinePCA(K, half_life=100.0), on_drift="reset").update(X)
    assert 0.002 < anew.outlier[1600:].mean() < 0.03


def test_what_is_changed_later_is_checked_and_has_an_effect() -> None:
    X = World(6).rows(700)
    monitor, loose = Monitor(OnlinePCA(K)), Monitor(OnlinePCA(K), alpha=0.05)
    for each in (monitor, loose):
        each.update(X)
    with pytest.raises(ValueError, match="alpha must be a probability"):
        monitor.alpha = 2.0
    with pytest.raises(ValueError, match="on_drift must be"):
        monitor.on_drift = "nothing"
    monitor.alpha = 0.05
    same(monitor.update(X), loose.update(X))


def test_rows_with_missing_values_are_scored_by_the_others(tmp_path: Path) -> None:
    """T², SPE and outliers are on average those of complete rows, in any form of rows, and a monitor with such rows is saved."""
    X = World(8).rows(1500)
    holed = np.where(np.random.default_rng(0).random(X.shape) < 0.2, np.nan, X)
    holed[:20] = X[:20]
    holed[900] = np.where(np.arange(holed.shape[1]) < 2, 50.0, np.nan)
    monitor, whole = Monitor(OnlinePCA(K, missing="impute")), Monitor(OnlinePCA(K)).update(X)
    found = monitor.update(holed)
    for name in ("t2", "spe"):
        mine, full = getattr(found, name)[200:900], getattr(whole, name)[200:900]
        assert 0.9 < np.nanmean(mine) / full.mean() < 1.1, f"the mean {name} should be that of complete rows"
    assert np.mean(found.outlier[200:900]) < 0.05
    assert found.outlier[900], "a row that is far off in the two values that it has is an outlier"
    sparse = Monitor(OnlinePCA(K, missing="impute")).update(csr_array(holed))
    np.testing.assert_allclose(sparse.spe, found.spe, rtol=1e-6)
    one = Monitor(OnlinePCA(K, missing="impute"))
    np.testing.assert_allclose([one.update_one(x).spe for x in holed[:300]], found.spe[:300], rtol=1e-6)
    monitor.save(tmp_path / "m.psp")
    np.testing.assert_array_equal(Monitor.load(tmp_path / "m.psp").score(holed[:50]).spe, monitor.score(holed[:50]).spe)


def test_the_shift_of_one_feature_is_a_mean_and_names_it() -> None:
    """Also where the detector's sum rose before the change, so that ordinary rows seem to be part of it."""
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((2200, 2)) @ rng.standard_normal((2, 12)) + 0.5 * rng.standard_normal((2200, 12))
        X[2000:, 3] += 2.0 * X[:2000, 3].std()
        monitor = Monitor(OnlinePCA(2))
        monitor.update(X, label=lambda i: f"at {i}")
        alarm = monitor.alarms[0]
        assert alarm.kind == "mean", f"seed {seed}: {alarm}"
        assert alarm.features[0][0] == 3, f"seed {seed}: {alarm}"
        assert alarm.features[0][1] > 0.3, f"seed {seed}: {alarm}"
        assert abs(alarm.since - (alarm.row - 1999)) <= 5, f"seed {seed}: {alarm}"
        assert alarm.label == f"at {alarm.row}"
