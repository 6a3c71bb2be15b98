"""What a referee would try: classes that hide, cheat and break, names that are markup, damaged files, rows that do not belong together."""

from __future__ import annotations

import csv
import re
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from online_psp.cli.main import app
from online_psp.experiments import Plan, evaluate, isolation, provenance, reproduction
from online_psp.experiments.evaluation import parse_curve
from online_psp.experiments.figures import FIVE
from online_psp.experiments.leaderboard import boards, collect, overall, write_leaderboard
from online_psp.experiments.measure import Workbench
from online_psp.experiments.records import Experiment, SpikedData, Track
from online_psp.experiments.rows import DONE, Row, read_rows, select, write_rows
from online_psp.experiments.tables import curves_of
from tests.somebodys import (
    Complex,
    Exits,
    Huge,
    KeepsAll,
    Lazy,
    LooksAhead,
    Masked,
    Mine,
    Minute,
    NeverRuns,
    Overwrites,
    Repeats,
    StopsTheClock,
    Zeros,
)

HERE = "tests.somebodys"
DATA = "spiked:D=12,K=2,rho=0.01,N=120"
HERE_ONLY = Plan(trials=1, builtin=False, isolate=False)


# Classes


def scores(*classes: type[Any]) -> dict[str, Row]:
    found = evaluate(DATA, algorithms={cls.__name__: cls for cls in classes}, plan=HERE_ONLY).rows
    return {row.label: row for row in found if row.metric in ("score", "failed")}


def test_directions_that_were_not_given_are_not_made_up() -> None:
    found = scores(Zeros, Repeats, Mine)
    assert found["Zeros"].value == pytest.approx(1.0), "an empty subspace misses all of V"
    assert "only 0 of 2 dimensions at" in found["Zeros"].note
    assert found["Repeats"].value == pytest.approx(np.sqrt(0.5), abs=0.02), "one of two directions is found"
    assert "only 1 of 2 dimensions at" in found["Repeats"].note
    assert found["Mine"].note == ""


def test_a_basis_that_is_not_real_is_refused() -> None:
    assert scores(Complex)["Complex"].note == "ValueError: Complex gave a basis of complex128; it must be real numbers."


def test_the_length_of_directions_does_not_matter() -> None:
    found = scores(Mine, Huge, Minute)
    assert found["Huge"].value == pytest.approx(found["Mine"].value, rel=1e-6)
    assert found["Minute"].value == pytest.approx(found["Mine"].value, rel=1e-6)
    assert not found["Huge"].note
    assert not found["Minute"].note


def test_what_is_masked_is_not_given() -> None:
    assert scores(Masked)["Masked"].note == "ValueError: Masked gave a basis that is not finite."


def test_a_class_that_never_runs_is_refused() -> None:
    with pytest.raises(TypeError, match=r"fit_next of NeverRuns does nothing when it is called: it is a generator or a coroutine\."):
        scores(NeverRuns)


def test_a_class_that_stops_the_clock_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.perf_counter", time.perf_counter)  # so that it is put back
    found = evaluate(DATA, algorithms={"s": StopsTheClock}, plan=HERE_ONLY).rows
    assert time.perf_counter() == 0.0, "it did"
    assert select(found, metric=DONE)[0].value > 0


def test_a_class_that_clears_its_rows_harms_nobody() -> None:
    found = evaluate(DATA, algorithms={"one": Overwrites, "two": KeepsAll}, plan=HERE_ONLY).errors()
    assert max(found.values()) < 1e-12, "neither itself nor who comes after it"


def test_no_row_after_the_moment_that_is_measured_can_be_reached() -> None:
    rows = evaluate(DATA, algorithms={"looks": LooksAhead, "keeps": KeepsAll}, plan=HERE_ONLY).rows
    looks, keeps = ([row.value for row in select(rows, label=name, metric="err_batch")] for name in ("looks", "keeps"))
    np.testing.assert_allclose(looks, keeps, atol=1e-12)
    assert keeps[0] > 0.01, "which is more than the error of all rows"


def test_an_evaluation_that_cannot_begin_leaves_the_last_one(tmp_path: Path) -> None:
    evaluate(DATA, algorithms={"a": Mine}, plan=HERE_ONLY, out=tmp_path)
    before = (tmp_path / "rows.csv").read_bytes()
    with pytest.raises(ValueError, match="no direction outside of a subspace of K=12"):
        evaluate(DATA, K=12, algorithms={"a": f"{HERE}:Mine"}, plan=Plan(trials=1, builtin=False, tracks=("drift",)), out=tmp_path)
    assert (tmp_path / "rows.csv").read_bytes() == before


def test_a_class_that_learns_only_while_it_is_watched_does_not_win() -> None:
    Lazy.made = 0
    found = scores(Lazy)["Lazy"]
    assert found.value > 0.1, "the error of the pass that was timed"
    assert "two passes over the same rows ended at" in found.note


def test_a_class_that_ends_the_program_is_a_failed_row() -> None:
    assert scores(Exits)["Exits"].note == "SystemExit: 0"


def test_rows_that_fill_the_disk_are_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=1000))
    record = Experiment("e", SpikedData(12, 2, 0.01, 120), FIVE[0], 2, 0, 1, ("err_batch",), (120,), scored=True)
    with pytest.raises(ValueError, match=r"The rows of 1 streams take up to .* GB .*TMPDIR"):
        next(iter(isolation.run_isolated([record], Workbench(), isolation.Isolation(tmp_path))))


def test_rows_that_fill_the_memory_are_not_begun() -> None:
    with pytest.raises(ValueError, match=r"1,000,000 × 1,000,000 rows need about .* GB of memory"):
        evaluate("spiked:D=1000000,K=2,N=1000000")


def test_more_directions_than_the_generator_has_are_measured_against_batch_pca() -> None:
    """The truth has two columns: a basis of four cannot be held against it."""
    data, track = SpikedData(12, 2, 0.01, 120), Track("sorted")
    record = Experiment("e", data, FIVE[0], 4, 0, 1, ("err_batch",), (120,), track=track, scored=True)
    stream = Workbench().stream(record)
    assert stream is not None
    assert stream.present(120).shape == (12, 4)


# Names


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hostile_syntax:C", "cannot be imported: SyntaxError"),
        ("hostile_exit:C", "cannot be imported: SystemExit: 3"),
        ("hostile_raise:C", "cannot be imported: RuntimeError: boom"),
        (":C", "There is no algorithm ':C'"),
        (f"{HERE}:", "There is no algorithm"),
        ("fsm,gama=3", "unexpected keyword argument 'gama'"),
    ],
)
def test_a_module_that_cannot_be_had_is_one_sentence(text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for name, code in (("syntax", "def f(:\n"), ("exit", "import sys\nsys.exit(3)\n"), ("raise", "raise RuntimeError('boom')\n")):
        (tmp_path / f"hostile_{name}.py").write_text(code)
    with pytest.raises((ValueError, TypeError), match=message):
        evaluate(DATA, algorithms={"x": text}, plan=Plan(trials=1, builtin=False))
    with pytest.raises((ValueError, TypeError), match=message):
        reproduction.reproduce(["fig2"], tmp_path / "out", scope=reproduction.Scope(quick=True, algorithms=(parse_curve(text),)))


def test_a_class_called_like_a_check_is_drawn() -> None:
    row = Row("k", "fig3", "d", 10, 5, 0.0, "SMART", "m:SMART", 2, 0, 10, "err_batch", 0.1)
    assert curves_of([row, replace(row, label="SM γ=0.6")]) == ["SMART"]


# Plans


@pytest.mark.parametrize("wrong", [{"seed": -1}, {"trials": 0}, {"epochs": 0}, {"jobs": 0}])
def test_a_plan_that_cannot_be_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"at least [01]; got"):
        Plan(**wrong)  # type: ignore[arg-type]


def test_a_seed_below_zero_is_one_sentence() -> None:
    result = CliRunner().invoke(app, ["reproduce", "fig2", "--quick", "--seed", "-1"])
    assert "The seed must be at least 0" in " ".join(result.output.split())
    assert result.exit_code == 1


def test_more_trials_than_the_papers_are_run() -> None:
    planned = reproduction.plan(reproduction.Scope(quick=True, trials=3))
    for name in ("fig2", "fig3"):
        assert {record.seed for record in planned[name]} == {0, 1, 2}, name
    assert len(planned["fig4"]) == len(reproduction.plan(reproduction.Scope(quick=True))["fig4"])


# Files of rows


def trial(label: str, value: float, seed: int = 0, metric: str = "score", **columns: Any) -> list[Row]:
    base = Row(f"{label}{seed}{columns}", "evaluation", "set", 100, 10, 0.0, label, f"m:{label}", 4, seed, 100, metric, value)
    made = replace(base, **columns)
    return [made, replace(made, metric=DONE, value=1e-3)]


def test_a_line_that_is_damaged_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    write_rows(path, [row for seed in range(3) for row in trial("a", 0.1, seed)])
    whole = path.read_text(encoding="utf-8")
    path.write_text(whole[:-30], encoding="utf-8")
    assert len(read_rows(path)) == 5, "a last line that was cut off is what an interruption leaves"
    assert collect([path])[1] == ["Interrupted, and left out: 1 trial."]
    lines = whole.splitlines(keepends=True)
    path.write_text("".join([*lines[:2], lines[2][:20] + "\n", *lines[3:]]), encoding="utf-8")
    with pytest.raises(ValueError, match=r"rows.csv is damaged in record 3"):
        read_rows(path)
    path.write_bytes(b"\x93NUMPY\x00")
    with pytest.raises(ValueError, match=r"rows.csv is not a file of rows"):
        read_rows(path)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.1, 1.5, 1e9])
def test_an_error_that_is_none_takes_no_place(value: float, tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.csv", [*trial("a", 0.1), *trial("b", value)])
    with pytest.raises(ValueError, match=r"rows.csv has an error of .* for b, which is impossible"):
        collect([tmp_path / "rows.csv"])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"label": "b"}, "rows of one trial of a have the label 'a' and 'b'"),
        ({"K": 5}, "rows of one trial of a have the K 4 and 5"),
        ({"track": "sorted"}, "rows of one trial of a have the track '' and 'sorted'"),
        ({"value": -1.0}, "a time of -1.0 s for a, which is impossible"),
        ({"value": float("nan")}, "a time of nan s for a, which is impossible"),
    ],
)
def test_rows_that_somebody_edited_are_refused(columns: dict[str, Any], message: str, tmp_path: Path) -> None:
    first, last = trial("a", 0.1)
    write_rows(tmp_path / "rows.csv", [first, replace(last, **columns)])
    with pytest.raises(ValueError, match=re.escape(message)):
        collect([tmp_path / "rows.csv"])


def test_a_trial_without_an_outcome_is_refused(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.csv", [*trial("a", 0.1), trial("b", 0.1)[1]])
    with pytest.raises(ValueError, match="a trial of b ended without an error or a failure"):
        collect([tmp_path / "rows.csv"])
    write_rows(tmp_path / "rows.csv", trial("a", 0.1, D=0))
    with pytest.raises(ValueError, match="has N=100, D=0, K=4"):
        collect([tmp_path / "rows.csv"])


def test_a_page_does_not_overwrite_rows(tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    write_rows(rows, trial("a", 0.1))
    before = rows.read_bytes()
    with pytest.raises(ValueError, match=r"does not end in \.html"):
        write_leaderboard([rows], rows)
    (tmp_path / "page.html").hardlink_to(rows)
    with pytest.raises(ValueError, match="is one of the files of rows, and would be overwritten"):
        write_leaderboard([rows], tmp_path / "page.html")
    assert rows.read_bytes() == before


def test_one_trial_on_two_machines_counts_once(tmp_path: Path) -> None:
    """The same data lies elsewhere there, and the code is another: still the same seed of the same algorithm on the same rows."""
    here, there = (provenance.Provenance(checksum="abc", cpu=cpu, code=cpu) for cpu in ("one", "two"))
    write_rows(tmp_path / "one.csv", [row for seed in (0, 1) for row in trial("a", 0.1, seed, data="/home/a/x.npy", origin=here)])
    write_rows(tmp_path / "two.csv", [row for seed in (1, 2) for row in trial("a", 0.2, seed, data="/data/x.npy", origin=there)])
    rows, remarks = collect([tmp_path / "one.csv", tmp_path / "two.csv"])
    found = boards(rows)
    assert len(found) == 1, "one data set by its content"
    assert found[0].places[0].trials == 3
    assert sorted(row.value for row in select(rows, metric="score")) == [0.1, 0.2, 0.2]
    assert remarks[0] == "Measured more than once: 1 trial; the last file's rows were taken."
    assert len(remarks) == 3


def test_who_was_run_on_few_boards_is_not_first() -> None:
    """A place of its own choosing, beside somebody who failed there, is no place among those who were run everywhere."""
    everywhere = [row for K in (2, 3, 4) for name, error in (("a", 0.1), ("b", 0.2)) for row in trial(name, error, K=K)]
    alone = [*trial("picky", 0.01, K=5), *(replace(row, note="broke") for row in trial("broken", float("nan"), metric="failed", K=5))]
    lines = overall(boards([*everywhere, *alone])).lines
    assert [line[0] for line in lines] == ["a", "b", "picky", "broken"]
    assert lines[2][1:4] == ("1.00", "–", "1 of 4")


def test_passes_are_not_mixed() -> None:
    found = boards([*trial("a", 0.1), *trial("b", 0.05, t=1000)])
    assert [board.name.rpartition("K = ")[2] for board in found] == ["4", "4, 10 passes"]


def test_options_tell_algorithms_of_one_label_apart(tmp_path: Path) -> None:
    rows = [*trial("mine", 0.1, algorithm="fsm,gamma=0.6"), *trial("mine", 0.2, algorithm="fsm,gamma=2.0")]
    write_rows(tmp_path / "rows.csv", [replace(row, key=row.algorithm) for row in rows])
    assert {row.label for row in collect([tmp_path / "rows.csv"])[0]} == {"mine [fsm,gamma=0.6]", "mine [fsm,gamma=2.0]"}


def test_one_trial_has_no_interval(tmp_path: Path) -> None:
    place = boards(trial("a", 0.1))[0].places[0]
    assert np.isnan([place.score.low, place.score.high, place.rank.low, place.rank.high]).all()
    write_rows(tmp_path / "rows.csv", trial("a", 0.1))
    assert "fewer than six trials" in write_leaderboard([tmp_path / "rows.csv"], tmp_path / "p.html").read_text(encoding="utf-8")
    with pytest.raises(FileNotFoundError, match=r"The folder .*absent does not exist"):
        write_leaderboard([tmp_path / "rows.csv"], tmp_path / "absent" / "p.html")


def test_a_trial_that_failed_is_not_hidden_by_those_that_did_not(tmp_path: Path) -> None:
    from online_psp.experiments.tables import comparison

    broken = replace(trial("a", float("nan"), 2, "failed")[0], note="it broke")
    rows = [*trial("a", 0.1, 0), *trial("a", 0.1, 1), broken, *(row for seed in range(3) for row in trial("b", 0.2, seed))]
    tables = comparison(rows)
    assert tables[0].lines[0][0] == "a (only 2 of 3 trials ended)"
    assert "it broke" in tables[1].lines[0]
    assert [place.label for place in boards(rows)[0].places] == ["b", "a"], "a failure is the last place"


def test_rows_name_the_options(tmp_path: Path) -> None:
    evaluate(DATA, algorithms={"x": "fsm,gamma=0.6"}, plan=HERE_ONLY, out=tmp_path)
    with (tmp_path / "rows.csv").open(newline="", encoding="utf-8") as stream:
        assert {line["algorithm"] for line in csv.DictReader(stream)} == {"fsm,gamma=0.6"}
