"""Evaluate, and the leaderboard of many evaluations; in this process, and through the commands where no process is started."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sklearn.decomposition import IncrementalPCA

from online_psp.engine.types import Floats
from online_psp.suite import Plan, evaluate
from online_psp.suite.data import TRACKS
from online_psp.suite.leaderboard import boards, collect, overall, places, write_leaderboard
from online_psp.suite.rows import Row, distinct, read_rows, select, write_rows
from online_psp.suite.tables import comparison
from tests.somebodys import Complex, Mine

HERE = "tests.somebodys"

QUICK = Plan(trials=2, jobs=0)
ALONE = Plan(trials=1, builtin=False, jobs=0)


@pytest.fixture
def X() -> Floats:
    scales = np.array([5.0, 4.0, 3.0] + [0.5] * 9)
    return np.asarray(np.random.default_rng(0).standard_normal((300, 12)) * scales + 7.0)


def test_evaluate_in_five_lines(X: Floats, tmp_path: Path) -> None:
    result = evaluate(X, K=3, algorithms={"mine": Mine, "IncrementalPCA": IncrementalPCA}, plan=QUICK, out=tmp_path)
    errors = result.errors()
    assert {"mine", "IncrementalPCA", "OnlinePCA", "IPCA", "CCIPCA", "FSM γ=0.6"} <= set(errors)
    assert errors["mine"] == pytest.approx(errors["FSM γ=2.0"], abs=1e-9)
    assert max(errors.values()) < 0.5
    assert list(errors) == sorted(errors, key=errors.__getitem__), "the best first"
    assert "mine" in result.table()
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "IncrementalPCA" in page
    assert "data:image/png" in page
    with Image.open(tmp_path / "evaluation.png") as picture:
        assert picture.width > 500


def test_evaluate_says_what_is_wrong(X: Floats) -> None:
    for arguments, message in (
        ({"K": 13}, r"K must be between 1 and 12 .* got 13"),
        ({}, "Pass K"),
        ({"K": 2, "plan": Plan(builtin=False)}, "nothing to evaluate"),
        ({"K": 2, "algorithms": {"not one": lambda K, D: object()}}, "Missing: fit_next"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            evaluate(X, **arguments)
    with pytest.raises(ValueError, match="The data has 1 direction, fewer than K=2"):
        evaluate(np.outer(np.arange(30), np.ones(5)), K=2)
    for wrong, message in (
        ({"tracks": ("nonsense",)}, "no track 'nonsense'; there are drift, missing, outliers, sorted"),
        ({"tracks": ("drift",), "epochs": 2}, "A track is a single pass"),
        ({"seed": -1}, "seed"),
        ({"trials": 0}, "trials must be at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            Plan(**wrong)


def test_generated_data_knows_the_truth_and_more_directions_than_it_has_are_measured_against_batch_pca() -> None:
    plan = ALONE
    assert "Err_pop" in evaluate("spiked:D=20,K=3,rho=0.01,N=200", algorithms={"mine": Mine}, plan=plan).table()
    assert "Err_pop" not in evaluate("spiked:D=20,K=3,rho=0.01,N=200", K=4, algorithms={"mine": Mine}, plan=plan).table()


@pytest.mark.parametrize("family", [True, False])
def test_methods_run_on_tracks(family: bool) -> None:
    tracks = ("outliers", "sorted") if family else tuple(TRACKS)
    found = evaluate("spiked:D=8,K=2,N=30", plan=Plan(trials=1, family=family, jobs=0, tracks=tracks)).rows
    assert not select(found, metric="failed")
    labels = set(distinct(found, "label"))
    assert labels >= {"OnlinePCA", "IPCA"} | ({"AdaOja", "GROUSE"} if family else set())
    for track in (each.name for kind in tracks for each in TRACKS[kind]):
        assert labels == {row.label for row in select(found, track=track, metric="score")}, track


def test_built_in_results_are_kept(X: Floats, tmp_path: Path) -> None:
    first = evaluate(X, K=2, plan=replace(QUICK, trials=1), out=tmp_path).rows
    again = evaluate(X, K=2, algorithms={"mine": Mine}, plan=replace(QUICK, trials=1), out=tmp_path).rows
    assert [row for row in again if row.label != "mine"] == first
    assert set(distinct(read_rows(tmp_path / "rows.csv"), "label")) > {"mine", "IPCA"}


def test_several_tracks_have_one_table_of_all_errors() -> None:
    result = evaluate("spiked:D=8,K=2,N=30", algorithms={"mine": Mine}, plan=replace(ALONE, tracks=("drift", "sorted")))
    first = result.tables()[0]
    assert first.header == ("method", "drift-rotation", "drift-switch", "sorted")
    assert [line[0] for line in first.lines] == ["mine"]
    assert float(first.lines[0][3]) == pytest.approx(select(result.rows, track="sorted", metric="score")[0].value, rel=0.01)


def test_names_are_text_wherever_they_are_shown(X: Floats, tmp_path: Path) -> None:
    names = {"<b>[red]$x$": Mine, "_hidden | pipe": Mine}
    result = evaluate(X, K=2, algorithms=names, plan=ALONE, out=tmp_path)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<b>" not in page
    assert "&lt;b&gt;[red]$x$" in page
    assert "\\| pipe" in result.table()
    comparison(result.rows)[0].to_rich()


def test_a_failure_is_told_and_takes_no_place_from_others(X: Floats) -> None:
    table = evaluate(X, K=2, algorithms={"bad": Complex, "good": Mine}, plan=ALONE).table()
    assert "Left out or failed" in table
    assert "must be real numbers" in table


def test_labels_of_algorithms_named_by_their_text(X: Floats) -> None:
    names = [f"{HERE}:Mine", f"{HERE}:IPCA", "fsm,gamma=0.6"]
    assert set(distinct(evaluate(X, K=2, algorithms=names, plan=QUICK).rows, "label")) >= {"Mine", f"IPCA [{HERE}:IPCA]", "fsm, gamma=0.6"}


# The leaderboard


def rows_of(scores: dict[str, list[float]], **columns: Any) -> list[Row]:
    """Rows as `evaluate` writes them: an error a trial, or a failure where it is NaN."""
    found = []
    for label, values in scores.items():
        for seed, value in enumerate(values):
            base = Row(
                f"{label}{seed}{columns}", "evaluation", "set", 100, 10, 0.0, "", label, f"m:{label}", "yours", 3, seed, 100, "score", value
            )
            base = replace(base, **{"code": "c", "cpu": "cpu", "checksum": "abc", **columns})
            outcome = replace(base, metric="failed", note="broke") if np.isnan(value) else base
            found += [outcome, replace(base, metric="seconds", value=0.5)]
    return found


def test_places_on_a_board(tmp_path: Path) -> None:
    found = rows_of({"best": [0.1, 0.2], "same": [0.1, 0.2], "fails": [0.01, float("nan")], "worst": [0.5, 0.6]})
    write_rows(tmp_path / "rows.csv", found)
    rows, remarks = collect([tmp_path / "rows.csv"])
    (board,) = boards(rows).values()
    assert places(board) == {"best": 1.5, "same": 1.5, "worst": 3.0, "fails": 4.0}
    assert not remarks


def test_whoever_was_run_on_fewer_boards_stands_below() -> None:
    found = boards([*rows_of({"all": [0.2], "few": [0.1]}), *rows_of({"all": [0.2]}, K=5), *rows_of({"all": [0.2]}, track="sorted")])
    assert len(found) == 3
    assert [line[0] for line in overall(found).lines] == ["all", "few"]


def test_one_trial_measured_twice_counts_once_and_that_is_said(tmp_path: Path) -> None:
    write_rows(tmp_path / "a.csv", rows_of({"m": [0.1]}))
    write_rows(tmp_path / "b.csv", rows_of({"m": [0.3]}, cpu="another", data="/elsewhere/set"))
    rows, remarks = collect([tmp_path / "a.csv", tmp_path / "b.csv"])
    assert [row.value for row in select(rows, metric="score")] == [0.3], "the last file's"
    assert any("Measured more than once: 1 trial" in remark for remark in remarks)
    rows, remarks = collect([tmp_path / "a.csv"])
    write_rows(tmp_path / "c.csv", [*rows, *rows_of({"n": [0.2]})[:1]])
    assert any("Interrupted" in remark for remark in collect([tmp_path / "c.csv"])[1])


def test_different_algorithms_of_one_label_are_told_apart(tmp_path: Path) -> None:
    write_rows(tmp_path / "a.csv", rows_of({"m": [0.1]}))
    write_rows(tmp_path / "b.csv", [replace(row, algorithm="other:m", key=row.key + "x") for row in rows_of({"m": [0.3]})])
    assert set(distinct(collect([tmp_path / "a.csv", tmp_path / "b.csv"])[0], "label")) == {"m [m:m]", "m [other:m]"}


def test_the_page(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.csv", rows_of({"best": [0.1, 0.2], "fails": [float("nan")], "worst": [0.5, 0.6]}))
    page, table, _ = write_leaderboard([tmp_path / "rows.csv"], tmp_path / "page.html", "psp leaderboard rows.csv")
    text = page.read_text(encoding="utf-8")
    assert "broke" in text
    assert "psp leaderboard rows.csv" in text
    assert [line[0] for line in table.lines] == ["best", "worst", "fails"]
    for name, message in (("rows.csv", "does not end in .html"), ("nowhere/page.html", "does not exist")):
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            write_leaderboard([tmp_path / "rows.csv"], tmp_path / name)
    write_rows(tmp_path / "empty.csv", [])
    with pytest.raises(ValueError, match="no rows of an evaluation"):
        write_leaderboard([tmp_path / "empty.csv"], tmp_path / "page.html")
