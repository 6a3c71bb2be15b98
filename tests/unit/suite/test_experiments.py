"""The runner: rows that repeat, resume and survive being cut off; learners of every kind; the authors' recorded curves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.io import savemat
from sklearn.decomposition import IncrementalPCA

from online_psp import FSM
from online_psp.datasets import KNOWN, DataSet
from online_psp.experiments import figures, rows, runner, tables, timing
from online_psp.experiments.baselines import BASELINES
from online_psp.experiments.learners import EstimatorLearner, RowLearner, build, resolve
from online_psp.experiments.measure import Workbench, chunks
from online_psp.experiments.provenance import UNKNOWN
from online_psp.experiments.records import Curve, Experiment, RealData, SpikedData, Timing, moments
from online_psp.experiments.rows import DONE, Row, finished, read_rows, select, write_rows
from online_psp.experiments.runner import arrays_path, run
from online_psp.metrics import batch_components, standardize, subspace_error
from tests import DATA

SPIKED = SpikedData(D=20, K=3, rho=0.01, N=200)


def experiment(curve: Curve = figures.IPCA, seed: int = 0, **changes: Any) -> Experiment:
    made = Experiment("test", SPIKED, curve, 3, seed, 1, ("err_batch", "err_pop"), (50, 200))
    return replace(made, **changes)


def several() -> list[Experiment]:
    return [experiment(curve, seed) for seed in range(3) for curve in (figures.IPCA, figures.fsm(2.0))]


def without_times(found: list[Row]) -> list[Row]:
    return [replace(row, value=0.0 if row.metric == DONE else row.value, origin=UNKNOWN) for row in found]


# Records and rows


def test_a_record_is_identified_by_all_that_matters() -> None:
    base = experiment()
    changed = [
        experiment(figures.CCIPCA),
        experiment(seed=1),
        replace(base, epochs=2),
        replace(base, K=2),
        replace(base, checkpoints=(200,)),
        replace(base, data=replace(SPIKED, rho=0.02)),
        experiment(figures.fsm(2.0)),
        experiment(figures.fsm(0.6)),
    ]
    assert base.key == experiment().key
    assert len({record.key for record in [base, *changed]}) == 1 + len(changed)


def test_moments_end_at_the_end() -> None:
    assert moments(1000, 10, 20)[0] == 10
    assert moments(1000, 10, 20)[-1] == 1000
    assert list(moments(1000, 10, 20)) == sorted(set(moments(1000, 10, 20)))
    assert moments(5, 10, 20) == (5,)


def test_rows_survive_a_round_trip_to_the_last_bit(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    kept = [
        Row("k", "f", "with, comma", 1, 2, 0.1, 'quoted "γ=2"', "a", 3, 4, 5, "err_batch", 1 / 3, "two\nlines"),
        Row("k", "f", "d", 1, 2, 1e-300, "l", "a", 3, 4, 5, DONE, 5e-324),
    ]
    write_rows(path, kept)
    assert read_rows(path) == kept
    assert read_rows(tmp_path / "absent.csv") == []


def test_a_file_of_other_rows_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="does not have the columns"):
        run(several(), path)
    assert path.read_text() == "a,b\n1,2\n"


# The runner


def test_rows_say_what_the_algorithm_really_does(tmp_path: Path) -> None:
    found = run([experiment(figures.fsm(0.6), seed=4)], tmp_path / "rows.csv")
    model = Workbench().prepare(SPIKED, 3, 4)
    fsm = FSM(3, 20, gamma=0.6)
    for x in model.X[:50]:
        fsm.fit_next(x)
    assert select(found, t=50, metric="err_batch")[0].value == pytest.approx(subspace_error(fsm.get_components(), model.V), abs=1e-10)
    for x in model.X[50:]:
        fsm.fit_next(x)
    assert model.truth is not None
    assert select(found, t=200, metric="err_pop")[0].value == pytest.approx(subspace_error(fsm.get_components(), model.truth), abs=1e-10)
    np.testing.assert_allclose(model.X, standardize(model.X), atol=1e-12)


def test_a_run_that_was_cut_off_goes_on_where_it_was(tmp_path: Path) -> None:
    path, records = tmp_path / "rows.csv", several()
    whole = run(records, path)
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    # Two records done, the third without its last row, the fourth in the middle of a line.
    path.write_text("".join(lines[:14]) + lines[16][:30], encoding="utf-8")
    before = finished(read_rows(path))
    assert set(before) == {records[0].key, records[1].key}
    again = run(records, path)
    assert without_times(again) == without_times(whole)
    kept = [row for row in again if row.key in before]
    assert kept == [row for found in before.values() for row in found], "times too: these were not run again"
    assert run(records, path) == again


def test_rows_of_other_records_stay_in_the_file(tmp_path: Path) -> None:
    path, records = tmp_path / "rows.csv", several()
    run(records, path)
    assert [row.key for row in run(records[:1], path)] == [records[0].key] * 5
    assert set(finished(read_rows(path))) == {record.key for record in records}
    run(records[:1], path, resume=False)
    assert set(finished(read_rows(path))) == {records[0].key}


def slow() -> list[Experiment]:
    data = SpikedData(D=200, K=20, rho=0.01, N=3000)
    when = tuple(range(100, 3001, 100))
    return [Experiment("slow", data, figures.IPCA, 20, seed, 1, ("err_batch",), when) for seed in range(60)]


def test_jobs_must_be_a_number_of_processes(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="jobs must be at least 1"):
        run(several(), tmp_path / "rows.csv", jobs=0)


# Real data


@pytest.fixture
def faces(tmp_path: Path) -> Path:
    """A data home with a small file in the place of YALE."""
    X = np.random.default_rng(5).integers(0, 256, (60, 1024), dtype=np.uint8)
    savemat(tmp_path / "YaleB_32x32.mat", {"fea": X})
    return tmp_path


def small_yale(**changes: Any) -> Experiment:
    data = RealData("yale", 60, 1024)
    return replace(Experiment("test", data, figures.IPCA, 4, 7, 2, ("err_batch",), (30, 120)), **changes)


def test_the_seed_is_the_order_and_passes_repeat_it(faces: Path) -> None:
    bench = Workbench(faces)
    prepared = bench.prepare(RealData("yale", 60, 1024), 4, 7)
    order = np.random.default_rng(7).permutation(60)
    np.testing.assert_array_equal(np.concatenate(list(chunks(prepared, 0, 120))), prepared.X[np.r_[order, order]])
    np.testing.assert_array_equal(np.concatenate(list(chunks(prepared, 50, 70))), prepared.X[np.r_[order, order][50:70]])


def test_a_part_of_the_rows_is_measured_against_that_part(faces: Path) -> None:
    prepared = Workbench(faces).prepare(RealData("yale", 60, 1024, rows=40), 4, 7)
    part = prepared.X[np.random.default_rng(7).permutation(60)[:40]]
    assert subspace_error(prepared.V, batch_components(part, 4)) < 1e-12
    assert subspace_error(prepared.V, batch_components(prepared.X, 4)) > 1e-3
    assert len(prepared.order) == 40


def test_pictures_are_kept_in_the_units_of_the_file(faces: Path, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    record = small_yale(pictured=3, K=59, epochs=1, checkpoints=(60,), metrics=("err_batch", "psnr", "explained"))
    found = run([record], path, data_home=faces)
    with np.load(arrays_path(path, record.key)) as album:
        original, batch, picture = album["original"], album["batch"], album["pictures"][0]
    np.testing.assert_allclose(batch, original, atol=1e-6)  # 59 directions are all that 60 centred rows have
    np.testing.assert_allclose(picture, original, atol=1e-3)
    assert select(found, metric="psnr")[0].value > 60
    assert select(found, metric="explained")[0].value == pytest.approx(1.0, abs=1e-6)
    arrays_path(path, record.key).unlink()
    run([record], path, data_home=faces)
    assert arrays_path(path, record.key).exists(), "rows without their pictures are not finished"


def test_err_pop_needs_a_known_truth(faces: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="err_pop needs synthetic data"):
        run([small_yale(metrics=("err_pop",))], tmp_path / "rows.csv", data_home=faces)


# Learners


class Plain:
    """The least that an algorithm must have."""

    def __init__(self, K: int, D: int) -> None:
        self.inner = FSM(K, D)
        self.calls = 0

    def fit_next(self, x: NDArray[np.float64]) -> None:
        self.calls += 1
        self.inner.fit_next(x)

    def get_components(self) -> NDArray[np.float64]:
        return np.asarray(self.inner.get_components())


def test_anything_with_fit_next_is_fed_row_by_row() -> None:
    learner = build(Curve("mine", f"{__name__}:Plain"), 2, 5)
    assert isinstance(learner, RowLearner)
    X = np.random.default_rng(0).standard_normal((30, 5))
    learner.feed(X)
    assert learner.model.calls == 30
    twin = FSM(2, 5)
    twin.fit_block(X)
    assert subspace_error(learner.basis(), twin.get_components()) < 1e-10


def test_estimators_get_equal_batches_whatever_comes_in_and_whoever_looks() -> None:
    X = np.random.default_rng(0).standard_normal((103, 6))
    curve = Curve("theirs", "sklearn.decomposition:IncrementalPCA", batch=20)
    watched = build(curve, 3, 6)
    assert isinstance(watched, EstimatorLearner)
    for start in range(0, 103, 7):
        watched.feed(X[start : start + 7])
        watched.basis()
    watched.finish()
    expected = IncrementalPCA(n_components=3)
    for start in range(0, 103, 20):
        expected.partial_fit(X[start : start + 20])
    np.testing.assert_allclose(watched.basis(), expected.components_.T, atol=1e-12)


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        ("nonsense", r"no algorithm 'nonsense': name one of fsm, sm, ipca, ccipca, .*or module:Class"),
        ("no_such_module:Thing", r"module 'no_such_module' .* cannot be imported"),
        ("numpy:no_such_thing", r"module 'numpy' has no 'no_such_thing'"),
        ("numpy:pi", r"not a class or a function"),
    ],
)
def test_names_that_lead_nowhere(algorithm: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        resolve(algorithm)


def nothing_much(K: int, D: int) -> object:
    return object()


def test_what_is_missing_is_named() -> None:
    with pytest.raises(
        TypeError, match=r"must implement fit_next\(x\) and get_components\(\).*Missing: fit_next, get_components, partial_fit, learn_one"
    ):
        build(Curve("nothing", f"{__name__}:nothing_much"), 2, 5)


class Broken(Plain):
    """Fails in the middle."""

    def fit_next(self, x: NDArray[np.float64]) -> None:
        if self.calls == 60:
            raise RuntimeError("out of ideas")
        super().fit_next(x)


class Diverged(Plain):
    """Gives nonsense."""

    def get_components(self) -> NDArray[np.float64]:
        return np.full((20, 3), np.nan)


class Sideways(Plain):
    """Gives rows for columns."""

    def get_components(self) -> NDArray[np.float64]:
        return super().get_components().T


@pytest.mark.parametrize(
    ("name", "note"),
    [("Broken", "RuntimeError: out of ideas"), ("Diverged", "not finite"), ("Sideways", r"shape (3, 20); it must be (D, K)")],
)
def test_the_algorithms_of_others_may_fail_without_failing_the_run(tmp_path: Path, name: str, note: str) -> None:
    records = [experiment(Curve(name, f"{__name__}:{name}")), experiment()]
    found = run(records, tmp_path / "rows.csv")
    failed = select(found, key=records[0].key, metric="failed")
    assert len(failed) == 1
    assert note in failed[0].note
    assert len(select(found, key=records[1].key, metric="err_batch")) == 2
    assert records[0].key not in finished(read_rows(tmp_path / "rows.csv")), "it is tried again next time"


def test_data_and_algorithms_in_memory(tmp_path: Path) -> None:
    X = np.random.default_rng(0).standard_normal((80, 6))
    bench = Workbench(sources={"here": DataSet("here", X)}, builders={"given:mine": Plain})
    record = Experiment("test", RealData("here", 80, 6), Curve("mine", "given:mine"), 2, 0, 1, ("err_batch",), (80,))
    assert 0 <= select(run([record], tmp_path / "rows.csv", bench=bench), metric="err_batch")[0].value < np.sqrt(2)


# Timings


def small_timing(**changes: Any) -> Timing:
    made = Timing("fig1", "fsm", "published", D=64, K=4, rho=2e-3, gamma=2.0, runs=3, samples=10, seed=0, budget=10.0)
    return replace(made, **changes)


@pytest.mark.parametrize("algorithm", list(BASELINES))
@pytest.mark.parametrize("way", timing.WAYS)
def test_every_algorithm_is_timed_every_way(algorithm: str, way: str) -> None:
    found = timing.time_record(small_timing(algorithm=algorithm, way=way))
    runs = select(found, metric="seconds_per_sample")
    assert [row.t for row in runs] == [1, 2, 3]
    assert all(row.value > 0 for row in runs)
    assert found[-1].metric == DONE


def test_a_timing_stops_when_its_budget_is_spent() -> None:
    found = timing.time_record(small_timing(runs=10**9, budget=0.05))
    assert 1 <= len(select(found, metric="seconds_per_sample")) < 10**6


def test_rows_say_of_how_many_samples_they_are() -> None:
    found = select(timing.time_record(small_timing()), metric="seconds_per_sample")
    assert [(row.N, row.note) for row in found] == [(10, "")] * 3
    blocks = select(timing.time_record(small_timing(way="fit_block")), metric="seconds_per_sample")
    assert {row.N for row in blocks} == {FSM(4, 64).block_rows}


def test_a_single_run_that_takes_longer_than_all_that_is_allowed_is_the_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = iter([7.0, 1.0])
    monkeypatch.setattr(timing, "_RUNS", {"published": lambda record: lambda deadline: (next(slow), 1)})
    found = select(timing.time_record(small_timing(budget=5.0)), metric="seconds_per_sample")
    assert [(row.value, row.N) for row in found] == [(7.0, 1)], "no warm-up, no second run"
    assert found[0].note == "one run, without a warm-up: it took longer than the 5 s that are allowed"
    assert list(slow) == [1.0]
    table = tables.timings(found)[0]
    assert table.lines[0][-1] == "1 × 1* / – / –"


def test_directions_for_timings_are_orthonormal_and_the_samples_are_the_papers() -> None:
    for D, K in ((7, 7), (64, 5), (100, 99)):
        Q = timing.random_directions(D, K, np.random.default_rng(D))
        np.testing.assert_allclose(Q.T @ Q, np.eye(K), atol=1e-14)
        assert Q.flags.f_contiguous
    stream = timing._Stream(40, 3, 2e-3, 0)
    X = stream.draw(40_000)
    assert np.mean(np.sum(X**2, axis=1)) == pytest.approx(1.0, rel=0.02), "standardised"
    seen = np.diag(stream.Q.T @ X.T @ X @ stream.Q) / len(X)
    np.testing.assert_allclose(seen, stream.variances, rtol=0.05)


def test_what_is_left_follows_what_was_done(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("online_psp.experiments.runner.time.monotonic", lambda: now[0])
    records = [small_timing(K=K, budget=5.0, D=8192) for K in (256, 512, 1024, 2048)]
    left = runner.Remaining(records)
    assert left.seconds() == pytest.approx(sum(record.cost for record in records)), "the estimate, before anything is known"
    left.take(records[:1])
    quick = left.seconds()
    now[0] = 600.0
    assert left.seconds() > 10 * quick, "a machine that is slower takes longer"
    left.take(records[1:])
    assert left.seconds() == pytest.approx(0.0, abs=1e-9)
    experiments = runner.Remaining([experiment()])
    assert experiments.told() == "", "nothing is known before the first one is done"


def test_the_first_figure_takes_about_half_an_hour() -> None:
    """By its own estimate, which is of operations and memory and not of a clock."""
    seconds = sum(record.cost for record in figures.fig1())
    assert 15 * 60 < seconds < 35 * 60


def test_what_does_not_fit_in_memory_is_left_out_and_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "available_bytes", lambda: 1e4)
    found = run([small_timing()], tmp_path / "rows.csv")
    assert "GB of memory" in select(found, metric="skipped")[0].note
    monkeypatch.undo()
    assert not select(run([small_timing()], tmp_path / "rows.csv"), metric="skipped")


# Figures as lists


def test_the_figures_are_the_papers() -> None:
    fig1, fig2, fig3 = (make(False, 0) for make in (figures.fig1, figures.fig2, figures.fig3))
    assert {(record.D, record.K) for record in fig1 if isinstance(record, Timing)} == {
        (D, 2**power) for D in (8192, 32768) for power in range(6, 13)
    }
    spiked = [record for record in fig2 if isinstance(record, Experiment)]
    assert len([record for record in spiked if not record.curve.label.startswith("SM") and not record.jitter]) == 10 * 4 * 10 * 5
    assert {(record.K, record.curve.algorithm) for record in spiked if record.jitter} == {(128, "ccipca")}, "what rounding decides"
    assert {record.data.N for record in spiked} == {6000}
    real = [record for record in fig3 if isinstance(record, Experiment)]
    assert {(record.data.name, record.epochs, record.checkpoints[-1]) for record in real} == {
        ("yale", 10, 24140),
        ("orl", 30, 12000),
        ("mnist", 1, 60000),
    }
    assert {record.K for record in real} == {16, 64, 128}
    assert {record.seed for record in real} == set(range(10))


def test_the_recorded_curves_are_reproduced_by_the_runner(data_home: Path, golden_home: Path, tmp_path: Path) -> None:
    records, recorded = figures.golden(golden_home)
    chosen = [record for record in records if isinstance(record, Experiment) and record.data.name == "yale"]
    found = select(run(chosen, tmp_path / "golden.csv", data_home=data_home), metric="err_batch")
    assert {row.label for row in found} == {curve.label for curve in figures.RECORDED.values()}
    for row in found:
        assert row.value == pytest.approx(recorded[row.data, row.K, row.label, row.t], abs=1e-7), (row.label, row.t)


def test_the_recordings_of_this_repository_are_reproduced_by_the_runner(tmp_path: Path) -> None:
    records, recorded = figures.golden(DATA)
    found = select(run(records, tmp_path / "golden.csv"), metric="err_batch")
    assert {(row.data, row.K, row.label, row.t) for row in found} == set(recorded), "both K, told apart"
    for row in found:
        assert row.value == pytest.approx(recorded[row.data, row.K, row.label, row.t], abs=1e-6), (row.K, row.label, row.t)


def test_known_sets_are_as_large_as_their_records_say(data_home: Path) -> None:
    assert {name: (known.N, known.D) for name, known in KNOWN.items() if known.names} == {
        name: Workbench(data_home).raw(name, None).X.shape for name in ("orl", "yale", "mnist")
    }


def test_the_median_of_nothing_is_not_a_number() -> None:
    assert np.isnan(rows.median([]))
    assert rows.median([3.0, 1.0, float("nan")]) == 2.0


def test_a_file_that_is_no_recording_is_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "digits_K8.npz", K=8, N=100)
    with pytest.raises(ValueError, match=r"digits_K8.npz is not a recording: it has no FSM_gamma0.6_err, .*CCIPCA_err"):
        figures.golden(tmp_path)
    (tmp_path / "digits_K8.npz").write_bytes(b"PK\x03\x04")
    with pytest.raises(ValueError, match=r"digits_K8.npz is not a whole .npz file"):
        figures.golden(tmp_path)
