"""Evaluate: everybody's algorithm, each in a process of its own; tracks; provenance; the leaderboard; data sets of one's own."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sklearn.decomposition import IncrementalPCA
from typer.testing import CliRunner

from online_psp import ALGORITHMS
from online_psp.cli.main import app
from online_psp.experiments import Plan, evaluate
from online_psp.experiments.rows import Row, select
from online_psp.experiments.tracks import TRACKS
from tests.somebodys import Mine
from tests.unit.suite.test_evaluate import HERE, Floats

HERE_ONLY = Plan(trials=2, isolate=False)


def test_evaluate_in_five_lines(X: Floats, tmp_path: Path) -> None:
    result = evaluate(X, K=3, algorithms={"mine": Mine, "IncrementalPCA": IncrementalPCA}, plan=HERE_ONLY, out=tmp_path)
    errors = result.errors()
    assert {"mine", "IncrementalPCA", "OnlinePCA", "IPCA", "CCIPCA", "FSM γ=0.6"} <= set(errors)
    assert errors["mine"] == pytest.approx(errors["FSM γ=2.0"], abs=1e-9)
    assert max(errors.values()) < 0.5
    assert "mine" in result.table()
    assert (tmp_path / "report.html").exists()
    with Image.open(tmp_path / "evaluation.png") as picture:
        assert picture.width > 500


@pytest.fixture
def X() -> Floats:
    scales = np.array([5.0, 4.0, 3.0] + [0.5] * 9)
    return np.asarray(np.random.default_rng(0).standard_normal((300, 12)) * scales + 7.0)


@pytest.fixture(scope="module")
def isolated(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Row], Path]:
    """Good and bad neighbours, together."""
    out = tmp_path_factory.mktemp("isolated")
    names = ("Mine", "KeepsAll", "Dies", "DiesAtOnce", "Prints")
    algorithms: dict[str, Any] = {name: f"{HERE}:{name}" for name in names}
    plan = Plan(trials=2, builtin=False, jobs=2)
    result = evaluate("spiked:D=400,K=3,rho=0.01,N=5000", algorithms=algorithms, plan=plan, out=out)
    return result.rows, out


def of(found: list[Row], label: str, metric: str) -> list[Row]:
    return select(found, label=label, metric=metric)


def test_a_class_that_kills_its_process_is_one_failed_row(isolated: tuple[list[Row], Path]) -> None:
    found, _ = isolated
    for label, note in (("Dies", "SIGABRT"), ("DiesAtOnce", "exit code 3")):
        failed = of(found, label, "failed")
        assert len(failed) == 1, f"{label}: {[row.note for row in failed]}"
        assert note in failed[0].note
        assert "1 further run of it left out" in failed[0].note
    assert len(of(found, "Mine", "score")) == 2, "the others go on"


def test_a_class_that_hangs_is_stopped(X: Floats) -> None:
    found = evaluate(X, K=2, algorithms={"Hangs": f"{HERE}:Hangs"}, plan=Plan(trials=2, builtin=False, timeout=0.5)).rows
    assert [row.note.partition(";")[0] for row in of(found, "Hangs", "failed")] == ["stopped: a pass took more than 0.5 s"]


def test_a_slow_reading_is_not_held_against_a_class_thirty_times(X: Floats) -> None:
    plan = Plan(trials=1, builtin=False, timeout=6.0)
    found = evaluate(X, K=2, algorithms={"ReadsSlowly": f"{HERE}:ReadsSlowly"}, plan=plan).rows
    assert len(of(found, "ReadsSlowly", "score")) == 1, [row.note for row in of(found, "ReadsSlowly", "failed")]


def test_a_class_that_keeps_all_rows_cannot_hide_it(isolated: tuple[list[Row], Path]) -> None:
    found, _ = isolated
    most = {label: max(row.value for row in of(found, label, "growth_mib")) for label in ("Mine", "KeepsAll")}
    rows_mib = 5000 * 400 * 8 / 2**20
    assert of(found, "KeepsAll", "score")[0].value < 1e-6, "it is exact"
    assert most["KeepsAll"] > rows_mib, f"it holds {rows_mib:.0f} MiB of rows, and {most['KeepsAll']:.1f} MiB were seen"
    least = min(row.value for row in of(found, "Mine", "growth_mib"))  # the first pass may still load libraries
    assert least < rows_mib
    assert most["Mine"] < most["KeepsAll"]
    assert all(row.value > most[row.label] for row in select(found, metric="peak_mib") if row.label in most), "whole processes are larger"


def test_what_a_class_prints_is_its_own_affair(isolated: tuple[list[Row], Path]) -> None:
    found, _ = isolated
    assert [row.value for row in of(found, "Prints", "score")] == [row.value for row in of(found, "Mine", "score")]


def test_the_process_gives_what_this_process_gives(isolated: tuple[list[Row], Path]) -> None:
    found, _ = isolated
    here = evaluate("spiked:D=400,K=3,rho=0.01,N=5000", algorithms={"Mine": Mine}, plan=Plan(trials=2, builtin=False, isolate=False))
    for metric in ("err_batch", "err_pop", "score"):
        np.testing.assert_allclose(
            [row.value for row in of(found, "Mine", metric)], [row.value for row in of(here.rows, "Mine", metric)], rtol=1e-9
        )


def test_every_row_says_where_it_comes_from(isolated: tuple[list[Row], Path]) -> None:
    _, out = isolated
    with (out / "rows.csv").open(newline="", encoding="utf-8") as stream:
        stored = list(csv.DictReader(stream))
    assert stored
    for name in ("version", "commit", "code", "date", "platform", "cpu", "blas", "threads", "ram_gib", "checksum", "seed"):
        assert all(line[name] for line in stored), f"{name} is missing in some rows"
    assert {line["threads"] for line in stored} == {"1"}


def test_the_whole_family_runs_on_every_track() -> None:
    plan = Plan(trials=1, builtin=False, family=True, isolate=False, tracks=tuple(TRACKS))
    found = evaluate("spiked:D=16,K=2,N=100", plan=plan).rows
    assert not select(found, metric="failed")
    labels = {cls.__name__ for cls in ALGORITHMS.values()}
    for track in (each.name for several in TRACKS.values() for each in several):
        assert labels == {row.label for row in select(found, track=track, metric="score")}, track


def test_the_commands_together(X: Floats, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    (home / "somebodys_own.py").write_text(f"from {HERE} import Mine\n")
    np.save(home / "X.npy", X)
    monkeypatch.chdir(home)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    assert CliRunner().invoke(app, ["datasets", "add", "mine", "X.npy"]).exit_code == 0
    assert "your own, 300 × 12" in CliRunner().invoke(app, ["datasets"]).output
    arguments = ["evaluate", "--data", "mine", "-k", "3", "-a", "somebodys_own:Mine,gamma=0.6", "--no-builtin", "--trials", "1"]
    result = CliRunner().invoke(app, [*arguments, "--track", "drift", "--timeout", "60"])
    assert result.exit_code == 0, result.output
    assert "Mine, gamma=0.6" in result.output
    assert sys.path[-1] == str(home), "the working folder is the last place to look in"
    assert f"also searched for in {home}," in " ".join(result.output.split())
    page = (home / "psp-evaluation" / "report.html").read_text(encoding="utf-8")
    for words in ("psp evaluate --data mine", "--algorithm somebodys_own:Mine,gamma=0.6", "--track drift", "--seed 0", "--timeout 60.0"):
        assert words in page, f"the command must be whole: {words}"
    result = CliRunner().invoke(app, ["leaderboard", "psp-evaluation/rows.csv", "-o", "page.html"])
    assert result.exit_code == 0, result.output
    assert "drift-rotation" in (home / "page.html").read_text(encoding="utf-8")
