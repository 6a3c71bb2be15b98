"""Records to rows: what is measured, saved, continued, and never reused when it is stale. Processes: slow tests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from online_psp import FSM
from online_psp.metrics import subspace_error
from online_psp.suite import measure, rows, runner, speed
from online_psp.suite.data import Problem, Track, parse, problem
from online_psp.suite.measure import FILLED, Trial, moments
from online_psp.suite.methods import Method, fsm, yours
from online_psp.suite.rows import DONE, Row, append_rows, finished, median, read_rows, select, write_rows
from online_psp.suite.runner import How, run
from online_psp.suite.speed import FLOORS, METRIC, WAYS, Timing, time_steady

HERE = How(jobs=0)
DATA = parse("spiked:D=20,K=3,rho=0.01,N=200")


def trial(method: Method | None = None, **changes: Any) -> Trial:
    return replace(Trial("test", DATA, method or fsm(2.0), 3, 0, 1, ("err_batch", "err_pop"), (100, 200)), **changes)


def test_rows_say_what_the_algorithm_really_does(tmp_path: Path) -> None:
    found = run([trial()], tmp_path / "rows.csv", HERE)
    data = problem(DATA, 3, 0)
    model = FSM(3, 20, gamma=2.0)
    model.fit_block(np.concatenate(list(data.blocks(0, 100))))
    assert data.truth is not None
    at = {row.metric: row.value for row in select(found, t=100)}
    assert at["err_batch"] == pytest.approx(subspace_error(model.get_components(), data.V), abs=1e-9)
    assert at["err_pop"] == pytest.approx(subspace_error(model.get_components(), data.truth), abs=1e-9)
    assert found[-1].metric == DONE
    for name in ("version", "commit", "code", "date", "platform", "cpu", "blas", "ram_gib", "checksum"):
        assert getattr(found[0], name), f"a row should say its {name}"
    assert "kernels" in found[0].blas


def test_a_record_is_identified_by_all_that_matters() -> None:
    others = [
        trial(K=2),
        trial(seed=1),
        trial(moments=(200,)),
        trial(track=Track("sorted")),
        trial(fsm(0.6)),
        trial(data=parse("spiked:D=20,K=3,rho=0.1,N=200")),
    ]
    others += [trial(jitter=1), trial(scored=True), trial(Method("FSM γ=2.0", "fsm", (("gamma", 2.0),), times=2))]
    assert trial().key == trial().key
    assert len({other.key for other in [*others, trial()]}) == len(others) + 1


def test_a_run_that_was_cut_off_goes_on_where_it_was(tmp_path: Path) -> None:
    path, both = tmp_path / "rows.csv", [trial(), trial(seed=1)]
    whole = run(both, path, HERE)
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(lines[:-2]) + lines[-2][:30], encoding="utf-8")
    assert list(finished(read_rows(path))) == [both[0].key], "the second was cut off"
    again = run(both, path, HERE)
    assert [(row.metric, row.value) for row in again if row.metric != DONE] == [
        (row.metric, row.value) for row in whole if row.metric != DONE
    ]
    assert [row for row in again if row.seed == 0] == [row for row in whole if row.seed == 0], "the first is not run again"
    assert read_rows(path) == again


def test_rows_of_another_processor_are_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    write_rows(path, [replace(row, cpu="another") for row in run([trial()], path, HERE)])
    assert "another" not in {row.cpu for row in run([trial()], path, HERE)}


def test_rows_of_other_code_are_set_aside_and_never_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.csv"
    old, key = run([trial()], path, HERE), trial().key
    for module in (rows, runner, measure):
        monkeypatch.setattr(module, "code_digest", lambda: "othercode123")
    rows.origin.cache_clear()
    assert trial().key != key
    assert {row.code for row in run([trial()], path, HERE)} == {"othercode123"}
    assert {row.code for row in read_rows(path)} == {"othercode123"}
    assert read_rows(tmp_path / "rows.csv.stale") == old, "nothing is lost"
    monkeypatch.undo()
    rows.origin.cache_clear()


def test_the_digest_follows_the_files_that_measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in rows._MEASURING:
        assert (rows.PACKAGE / name).exists(), f"{name} is not a part of the package any more"
    first = rows.code_digest.__wrapped__()
    for name in rows._MEASURING:
        place = tmp_path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("a = 1\n") if place.suffix else place.mkdir()
    monkeypatch.setattr(rows, "PACKAGE", tmp_path)
    second = rows.code_digest.__wrapped__()
    (tmp_path / "metrics.py").write_text("a = 2\n")
    assert len({first, second, rows.code_digest.__wrapped__()}) == 3


def test_rows_of_ones_own_algorithm_are_always_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its code may have changed while its name stays."""
    path, asked, measured = tmp_path / "rows.csv", [trial(yours("tests.somebodys:Mine")), trial()], list[str]()
    plain = measure.measure

    def told(each: Trial, data: Problem) -> Any:
        measured.append(each.method.label)
        return plain(each, data)

    monkeypatch.setattr(measure, "measure", told)
    run(asked, path, HERE)
    run(asked, path, HERE)
    assert measured == ["Mine", "FSM γ=2.0", "Mine"]


def test_rows_of_other_records_stay_in_the_file(tmp_path: Path) -> None:
    first = run([trial()], tmp_path / "rows.csv", HERE)
    second = run([trial(seed=1)], tmp_path / "rows.csv", HERE)
    assert read_rows(tmp_path / "rows.csv") == [*second, *first]


def test_rows_survive_a_round_trip_to_the_last_bit(tmp_path: Path) -> None:
    found = [Row("k", "s", "d,\n", 1, 2, 0.1 + 0.2, "", 'γ "x"', "a", "", 3, 4, 5, "m", value) for value in (1 / 3, 1e-300, float("inf"))]
    write_rows(tmp_path / "rows.csv", found[:1])
    append_rows(tmp_path / "rows.csv", found[1:])
    assert read_rows(tmp_path / "rows.csv") == found


def test_a_file_that_is_not_of_rows_is_named_and_left(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    write_rows(path, run([trial()], tmp_path / "other.csv", HERE))
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    for text, message in (
        ("a,b\n1,2\n", "does not have the columns"),
        ("".join([*lines[:2], "x,y\n", *lines[2:]]), "is damaged in line 3"),
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match=message):
            run([trial()], path, HERE)
        assert path.read_text(encoding="utf-8") == text


def test_somebodys_algorithm_fails_alone(tmp_path: Path) -> None:
    for name, note in (("Exits", "SystemExit"), ("Complex", "must be real numbers"), ("Masked", "")):
        found = run([trial(yours(f"tests.somebodys:{name}")), trial()], tmp_path / f"{name}.csv", HERE)
        failed = select(found, metric="failed")
        assert [row.label for row in failed] == ([name] if note else []), name
        assert all(note in row.note for row in failed)
        assert select(found, label="FSM γ=2.0", metric="err_batch"), "the others go on"


def test_directions_that_were_not_given_are_not_made_up(tmp_path: Path) -> None:
    found = run(
        [trial(yours(f"tests.somebodys:{name}"), scored=True) for name in ("Repeats", "Zeros", "Huge", "Minute", "Mine")],
        tmp_path / "r",
        HERE,
    )
    errors = {row.label: row.value for row in select(found, metric="err_batch", t=200)}
    assert errors["Huge"] == pytest.approx(errors["Mine"]) == pytest.approx(errors["Minute"]), "the length of directions does not matter"
    assert errors["Zeros"] == pytest.approx(1.0)
    assert errors["Mine"] < errors["Repeats"]
    assert "fewer than 3 dimensions at 2 of 2 moments" in select(found, label="Repeats", metric="score")[0].note


def test_holes_are_filled_for_those_that_need_it_and_that_is_said(tmp_path: Path) -> None:
    asked = [
        trial(yours(f"tests.somebodys:{name}"), track=Track("missing", 0.1), metrics=("err_present",)) for name in ("TakesHoles", "Mine")
    ]
    found = run(asked, tmp_path / "r", HERE)
    assert {row.label: row.note for row in found} == {"TakesHoles": "", "Mine": FILLED}


def test_drift_is_ranked_over_time_and_the_rest_at_the_end(tmp_path: Path) -> None:
    when = (50, 100, 150, 200)
    for name, expected in (("drift-switch", np.mean), ("sorted", lambda values: values[-1])):
        found = run([trial(track=Track(name), metrics=("err_present",), moments=when, scored=True)], tmp_path / name, HERE)
        errors = [row.value for row in select(found, metric="err_present")]
        assert select(found, metric="score")[0].value == pytest.approx(float(expected(errors)))


def test_the_time_of_getting_the_components_is_counted(tmp_path: Path) -> None:
    class Works:
        def __init__(self, K: int, D: int) -> None:
            self.D = D

        def fit_next(self, x: Any) -> None:
            pass

        def get_components(self) -> Any:
            for seed in range(10):
                Q = np.linalg.qr(np.random.default_rng(seed).standard_normal((300, 300)))[0]
            return Q[: self.D, :3]

    found = run([trial(Method("works", "", kind="yours", made=Works), scored=True)], tmp_path / "r", HERE)
    plain = run([trial(scored=True)], tmp_path / "r", HERE)
    assert select(found, metric=DONE)[0].value > select(plain, metric=DONE)[0].value


def test_moments_end_at_the_end_and_the_median_of_nothing_is_not_a_number() -> None:
    assert moments(1000, 10, 5) == (10, 32, 100, 316, 1000)
    assert moments(8, 10, 5) == (8,)
    assert median([3.0, float("nan"), 1.0]) == 2.0
    assert np.isnan(median([]))


# Timings


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("algorithm", ["sm", "fsm", "ipca", "ccipca"])
def test_every_algorithm_is_timed_every_way(algorithm: str, way: str) -> None:
    found = time_steady(Timing("fig1", algorithm, way, 50, 4, runs=3, samples=5, budget=2.0))
    assert [row.t for row in select(found, metric=METRIC)] == [1, 2, 3]
    assert {row.N for row in select(found, metric=METRIC)} == {{"published": 5, "fit_next": 64, "fit_block": 256}[way]}
    assert all(0 < row.value < 0.1 for row in select(found, metric=METRIC))
    assert {row.kind for row in found} == {way}


def test_floors_and_the_anchor_are_timed() -> None:
    for way in FLOORS.values():
        assert select(time_steady(Timing("speed", "", way, 50, 4, runs=1)), metric=METRIC)[0].value > 0


def test_a_timing_stops_when_its_budget_is_spent_and_says_so_of_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(time_steady(Timing("fig1", "fsm", "published", 50, 4, runs=10**6, budget=0.05))) < 10**5
    monkeypatch.setattr(speed, "_over", lambda *_: (9.0, 1))
    found = select(time_steady(Timing("fig1", "fsm", "published", 50, 4, budget=5.0)), metric=METRIC)
    assert len(found) == 1
    assert "longer than the 5 s" in found[0].note


def test_what_does_not_fit_in_memory_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "installed_bytes", lambda: 1e6)
    found = time_steady(Timing("fig1", "fsm", "published", 5000, 40))
    assert [row.metric for row in found] == ["skipped", DONE]
    assert "needs about" in found[0].note


def test_directions_for_timings_are_orthonormal() -> None:
    Q = speed.random_directions(64, 64, np.random.default_rng(0))
    np.testing.assert_allclose(Q.T @ Q, np.eye(64), atol=1e-13)
