"""The comparison page: the runner, tables, the picture, the command."""

from __future__ import annotations

import csv
from dataclasses import replace
from html.parser import HTMLParser
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.text import Annotation, Text
from PIL import Image
from typer.testing import CliRunner

from online_psp.cli.main import app
from online_psp.comparison import plot, runner
from online_psp.comparison.methods import LOOP, MEMORY, OURS, PEER, methods
from online_psp.comparison.problems import prepare
from online_psp.datasets import load
from online_psp.engine.types import Floats
from online_psp.experiments import figures, plots, provenance, reproduce, reproduction, verdicts
from online_psp.experiments.plots import save
from online_psp.experiments.records import Experiment, Record, SpikedData, Timing
from online_psp.experiments.reproduction import Scope
from online_psp.experiments.rows import read_rows, select
from online_psp.experiments.runner import run
from tests.unit.suite.test_comparison import TINY, a_result, peer
from tests.unit.suite.test_experiments import several, without_times
from tests.unit.suite.test_experiments_report import learning_rows, overlaps
from tests.unit.suite.test_verdicts import BATCH, EXPONENTS, POPULATION, SCALE, noise_rows, timing_rows


def test_the_picture_has_a_panel_a_set_and_no_labels_on_each_other(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    families = [(method.name, method.family, method.kind) for method in methods()]
    crowd = [
        a_result(data=name, method=method, family=family, kind=kind, microseconds=float(us), err_batch=float(error))
        for name in ("one", "two", "three")
        for (method, family, kind), us, error in zip(
            families, 10 ** rng.uniform(0.5, 2.5, 40), 10 ** rng.uniform(-3, -0.5, 40), strict=False
        )
    ]
    crowd += [a_result(data=name, family="PCA, exact", kind=MEMORY, err_batch=1e-15) for name in ("one", "two", "three")]
    crowd.append(a_result(data="one", err_batch=float("nan"), note="failed: x"))
    figure = plot.scatter(crowd)
    save(figure, tmp_path / "c.png")
    with Image.open(tmp_path / "c.png") as image:
        assert image.width > image.height > 400
    assert len(figure.axes) == 3
    canvas: Any = figure.canvas
    renderer = canvas.get_renderer()
    for axes in figure.axes:
        labels = [text for text in axes.texts if isinstance(text, Annotation) and text.get_text() != "better"]
        assert {text.get_text() for text in labels} == {result.family for result in crowd if not result.failed}
        boxes = [Text.get_window_extent(text, renderer) for text in labels]
        assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
        assert axes.get_ylim()[0] > 1e-5


def test_the_command_writes_table_csv_page_and_picture(tmp_path: Path) -> None:
    arguments = ["bench", "--quick", "--data", "digits", "--rows", "300", "--only", "fsm", "--only", "onlinepca", "--only", "adaoja"]
    outcome = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "out")])
    assert outcome.exit_code == 0, outcome.output
    assert "OnlinePCA fit" in outcome.output
    assert "Equal time" in outcome.output
    with (tmp_path / "out" / "comparison.csv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert {row["kind"] for row in rows} == {OURS, LOOP, PEER}
    assert {row["N"] for row in rows} == {"300"}
    assert not any(row["note"] for row in rows)
    page = (tmp_path / "out" / "comparison.md").read_text(encoding="utf-8")
    assert "| **OnlinePCA fit** |" in page
    assert "packages:" in page
    assert str(tmp_path) not in page
    with Image.open(tmp_path / "out" / "comparison.png") as image:
        assert image.width > 400


def test_nothing_overlaps_in_the_pictures() -> None:
    timings = timing_rows(EXPONENTS, SCALE)
    several = [
        replace(found, D=D, K=K) for found in noise_rows(BATCH, POPULATION) for D, K in ((256, 16), (256, 128), (2048, 16), (2048, 128))
    ]
    exact = [replace(found, value=1e-14) if found.label == "OnlinePCA" and found.t == 1000 else found for found in learning_rows()]
    for figure in (
        plots.fig1(timings),
        plots.fig2(several),
        plots.fig3(learning_rows()),
        plots.fig3(exact),
        plots.evaluation(select(learning_rows(), data="orl", K=16)),
    ):
        assert overlaps(figure) == []


def test_a_picture_is_the_same_twice(tmp_path: Path) -> None:
    for name in ("one.svg", "two.svg"):
        plots.save(plots.fig3(select(learning_rows(), data="yale")), tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


def tiny(quick: bool, seed: int) -> dict[str, list[Record]]:
    noise = [
        Experiment("fig2", SpikedData(30, 3, rho, 300), curve, 3, seed, 1, ("err_batch", "err_pop"), (300,))
        for rho in (1e-4, 1e-2)
        for curve in (*figures.FIVE, figures.sm(2.0))
    ]
    times = [
        Timing("fig1", name, way, 64, K, 2e-3, 2.0, 2, 5, seed, 5.0)
        for K in (4, 8)
        for name in ("sm", "fsm")
        for way in ("published", "fit_block")
    ]
    return {"fig1": list(times), "fig2": list(noise)}


class Checker(HTMLParser):
    """Finds what a page wants from elsewhere, and tags left open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wanted: list[str] = []
        self.images = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)
        self.images += tag == "img"
        self.wanted += [value for name, value in attrs if name in ("src", "href") and value and not value.startswith("data:")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_reproduce_writes_a_report_that_needs_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        reproduction, "FIGURES", {name: lambda quick, seed, trials, name=name: tiny(quick, seed)[name] for name in ("fig1", "fig2")}
    )
    first = reproduce(["fig2"], tmp_path, scope=Scope(quick=True))
    assert set(first.pictures) == {"fig2"}
    second = reproduce(["fig1"], tmp_path, scope=Scope(quick=True))
    assert set(second.pictures) == {"fig1", "fig2"}, "what is complete from before is in the report too"
    page = second.report.read_text(encoding="utf-8")
    checker = Checker()
    checker.feed(page)
    assert checker.open == []
    assert checker.wanted == []
    assert checker.images == 2
    for verdict in second.verdicts:
        assert verdict.statement.replace("<", "&lt;") in page
    assert {verdict.statement: verdict.outcome for verdict in second.verdicts}["FSM equals SM"] == verdicts.HOLDS
    assert f"psp reproduce fig1 --quick --seed 0 --jobs 1 --out {tmp_path}" in page, "the whole command"
    assert "Deviations from the paper" in page
    assert "commit" in page
    assert "numpy" in page
    assert (tmp_path / "quick_verdicts.md").exists()


def test_the_part_for_the_docs_says_what_was_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduction, "FIGURES", {"fig2": lambda quick, seed, trials: tiny(quick, seed)["fig2"]})
    (tmp_path / "times.json").write_text("{", encoding="utf-8")  # a run that was ended while it wrote
    reproduce(["fig2"], tmp_path, scope=Scope(quick=True))
    page = (tmp_path / "quick_results_fig2.md").read_text(encoding="utf-8")
    assert page.startswith(f"`psp reproduce fig2 --quick --seed 0 --jobs 1`: SPIKED D=30 K=3; 1 trial. Commit {provenance.commit()}, ")
    assert "![Figure 2: error against noise on spiked data](img/fig2.png)" in page
    assert "| FSM equals SM | holds |" in page
    assert "best time" not in page, "claims on figure 1 stand with figure 1"
    assert str(tmp_path) not in page, "where it was run is nobody's business"


def test_what_has_no_data_is_left_out_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ONLINE_PSP_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(reproduction, "load", lambda source, home: load(source, home, download=False))
    some = {"fig2": lambda quick, seed, trials: tiny(quick, seed)["fig2"], "fig4": figures.fig4}
    monkeypatch.setattr(reproduction, "FIGURES", some)
    result = reproduce(["fig2", "fig4"], tmp_path, scope=Scope(quick=True))
    assert set(result.pictures) == {"fig2"}
    assert "put it" in result.left_out["fig4"]
    with pytest.raises(FileNotFoundError, match="'yale'"):
        reproduce(["fig4"], tmp_path, scope=Scope(quick=True))


def test_same_seed_same_rows_however_many_processes(tmp_path: Path) -> None:
    alone = run(several(), tmp_path / "alone.csv")
    together = run(several(), tmp_path / "together.csv", jobs=2)
    assert without_times(read_rows(tmp_path / "together.csv")) == without_times(together)
    one, two = without_times(alone), without_times(together)
    assert [replace(row, value=0.0) for row in one] == [replace(row, value=0.0) for row in two], "the same rows, in the same order"
    # A kernel that this process has just compiled may round otherwise than the one that another process reads from the cache.
    np.testing.assert_allclose([row.value for row in one], [row.value for row in two], rtol=1e-11)


@pytest.mark.parametrize("name", list(figures.FIGURES))
def test_quick_is_less_of_the_same(name: str) -> None:
    quick, full = figures.FIGURES[name](True, 0, None), figures.FIGURES[name](False, 0, None)
    assert 0 < sum(record.cost for record in quick) < sum(record.cost for record in full)
    keys = [record.key for record in full]
    assert len(set(keys)) == len(keys)


def test_one_that_fails_says_why_and_the_others_go_on() -> None:
    tiny = prepare("spiked", TINY)

    def broken(X: Floats, K: int) -> Floats:
        raise RuntimeError("no\n such luck")

    told: list[str] = []
    chosen = [peer("broken", broken), peer("wide", lambda X, K: np.eye(X.shape[1])), peer("right", lambda X, K: tiny.V)]
    found = {result.method: result for result in runner.compare(tiny, chosen, 2, told.append)}
    assert found["broken"].note == "failed: RuntimeError: no such luck"
    assert "(40, 4)" in found["wide"].note
    assert found["broken"].failed
    assert found["wide"].failed
    assert not found["right"].note
    assert found["right"].err_batch < 1e-14
    assert found["right"].runs == 2
    assert found["right"].memory_rows == 240  # 6 D
    assert len(told) == runner.steps(chosen, 2)
