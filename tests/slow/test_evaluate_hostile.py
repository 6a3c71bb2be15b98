"""What a referee would try: classes that hide, cheat and break, names that are markup, damaged files, rows that do not belong together."""

from __future__ import annotations

import io
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from online_psp.experiments import Plan, evaluate, reproduction
from online_psp.experiments.evaluation import labelled, parse_curve
from online_psp.experiments.figures import FIVE
from online_psp.experiments.leaderboard import write_leaderboard
from online_psp.experiments.records import Experiment, told_apart
from online_psp.experiments.rows import Row, select
from online_psp.experiments.tables import Table, to_markdown
from tests.somebodys import (
    Mine,
)
from tests.unit.suite.test_evaluate_hostile import DATA, HERE, HERE_ONLY


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    algorithms: dict[str, Any] = {name: f"{HERE}:{name}" for name in ("Forks", "Hides")}
    return evaluate(DATA, algorithms=algorithms, plan=Plan(trials=1, builtin=False, jobs=2, timeout=120)).rows


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are counted from /proc")
def test_memory_in_another_process_is_seen_and_nothing_is_left_behind(apart: list[Row]) -> None:
    hidden = select(apart, label="Hides", metric="growth_mib")[0]
    assert hidden.value > 60, f"64 MB are in another process, and {hidden.value:.0f} MiB were seen"
    assert "its memory includes other processes" in hidden.note
    left = [place for place in Path("/proc").glob("[0-9]*") if b"64_000_000" in _words(place)]
    assert not left, "what it started is ended with it"


def _words(place: Path) -> bytes:
    try:
        return (place / "cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_of_the_process_tells_nothing(apart: list[Row]) -> None:
    assert len(select(apart, label="Forks", metric="score")) == 1
    assert select(apart, label="Forks", metric="score")[0].value < 1e-6


def test_what_kills_a_class_on_one_track_leaves_it_the_others() -> None:
    plan = Plan(trials=2, builtin=False, tracks=("missing", "sorted"))
    found = evaluate(DATA, algorithms={"h": f"{HERE}:HolesKill"}, plan=plan).rows
    broken = select(found, metric="failed")
    assert [row.track for row in broken] == [f"missing {share} %" for share in (10, 20, 40, 60, 80)]
    assert all("exit code 4" in row.note and "1 further run " in row.note for row in broken)
    assert len(select(found, track="sorted", metric="score")) == 2, "the sorted rows have no holes"


def test_a_class_with_the_name_of_another_takes_nobodys_place() -> None:
    mine = parse_curve(f"{HERE}:IPCA")
    assert [curve.label for curve in told_apart([mine], FIVE)] == [f"IPCA [{HERE}:IPCA]"]
    assert labelled(["a:C", "b:C", "b:C", "c:D"]) == {"C [a:C]": "a:C", "C [b:C]": "b:C", "D": "c:D"}
    planned = reproduction.plan(reproduction.Scope(quick=True, trials=1, algorithms=(mine,)))["fig2"]
    papers = [record for record in planned if isinstance(record, Experiment) and record.curve.label == "IPCA"]
    assert {record.curve.algorithm for record in papers} == {"ipca"}, "the paper's line is the paper's alone"
    found = evaluate(DATA, algorithms={"IPCA": f"{HERE}:IPCA"}, plan=replace(HERE_ONLY, builtin=True)).errors()
    assert {"IPCA", f"IPCA [{HERE}:IPCA]"} <= set(found)


HOSTILE = ["[/red] $x$ <script>alert(1)</script> | [bold]", "$\\frac{$", "_hidden", "a\nb"]


def test_names_are_text_wherever_they_are_shown(tmp_path: Path) -> None:
    result = evaluate(DATA, algorithms=dict.fromkeys(HOSTILE, Mine), plan=HERE_ONLY, out=tmp_path / "[/x] $1$")
    page = (tmp_path / "[/x] $1$" / "report.html").read_text(encoding="utf-8")
    board = write_leaderboard([tmp_path / "[/x] $1$" / "rows.csv"], tmp_path / "page.html").read_text(encoding="utf-8")
    for text in (page, board):
        assert "<script>" not in text
        assert "&lt;script&gt;" in text
    console = Console(record=True, width=400, file=io.StringIO())
    console.print(Table("[/t]", ("[/h]",), ((HOSTILE[0],),)).to_rich())
    assert HOSTILE[0] in console.export_text(), "brackets are not markup"
    assert "_hidden" in to_markdown([Table("t", ("h",), (("_hidden",),))])
    assert {row.label for row in result.rows} == set(HOSTILE)
