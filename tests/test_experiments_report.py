"""Verdicts, tables, pictures, the report, and the commands."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from html.parser import HTMLParser
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from matplotlib.figure import Figure
from matplotlib.text import Text
from numpy.typing import NDArray
from PIL import Image
from sklearn.decomposition import IncrementalPCA
from typer.testing import CliRunner

from online_psp import FSM
from online_psp.cli import experiments as commands
from online_psp.cli._errors import Commands
from online_psp.cli.datasets import datasets
from online_psp.datasets import ImageLayout, load
from online_psp.experiments import evaluate, figures, plots, reproduce, reproduction, tables, verdicts
from online_psp.experiments.evaluation import parse_curve
from online_psp.experiments.records import Curve, Experiment, Record, SpikedData, Timing
from online_psp.experiments.report import Section, write_report
from online_psp.experiments.rows import DONE, Row, select

FIVE = [curve.label for curve in figures.FIVE]


def row(**columns: Any) -> Row:
    base = Row("key", "fig", "data", 100, 10, 0.0, "label", "algorithm", 4, 0, 100, "err_batch", 1.0)
    return replace(base, **columns)


def noise_rows(errors: dict[str, float], noise: Iterable[float] = (1e-4, 1e-2)) -> list[Row]:
    return [
        row(figure="fig2", data="spiked", rho=rho, label=label, value=value * (1 + 0.01 * seed), seed=seed, metric=metric)
        for (label, value), rho, seed, metric in product(errors.items(), noise, range(3), ("err_batch", "err_pop"))
    ]


def final_rows(*panels: dict[str, float]) -> list[Row]:
    return [
        row(figure="fig3", data=f"set{i}", label=label, value=value * (2 if t == 50 else 1), t=t)
        for i, errors in enumerate(panels)
        for label, value in errors.items()
        for t in (50, 100)
    ]


def timing_rows(exponents: dict[str, float]) -> list[Row]:
    return [
        row(
            figure="fig1",
            label=f"{name.upper()}, {way}",
            algorithm=name,
            K=K,
            D=D,
            t=run,
            metric="seconds_per_sample",
            value=1e-6 * K**power,
        )
        for (name, power), way, K, D, run in product(
            exponents.items(), ("published", "fit_next", "fit_block"), (64, 128, 256), (8192,), (1, 2)
        )
    ]


def picture_rows(psnr: float, error: float = 0.19) -> list[Row]:
    values = {"err_batch": (0.9, error), "psnr": (10.0, psnr), "explained": (0.5, 0.99)}
    return [
        row(figure="fig4", data="yale", metric=name, t=t, value=value)
        for name, pair in values.items()
        for t, value in zip((50, 100), pair, strict=True)
    ]


# Verdicts: each outcome from rows made to give it


def test_fsm_equals_sm_only_if_they_do() -> None:
    same = [row(label="SM γ=2.0", value=0.5), row(label="FSM γ=2.0", value=0.5 + 1e-9)]
    assert verdicts.same_iterates(same).outcome == verdicts.HOLDS
    assert verdicts.same_iterates([same[0], row(label="FSM γ=2.0", value=0.51)]).outcome == verdicts.FAILS
    assert verdicts.same_iterates([same[0], row(label="FSM γ=0.6", value=0.5)]).outcome == verdicts.OPEN
    assert verdicts.same_iterates([same[0], replace(same[1], seed=1)]).outcome == verdicts.OPEN


def test_close_on_spiked_data() -> None:
    good = {"IPCA": 0.01, "FSM γ=2.0": 0.012, "CCIPCA": 0.1, "FSM γ=0.6": 0.12, "FSM γ=1.5": 0.02}
    assert verdicts.gamma2_near_ipca(noise_rows(good)).outcome == verdicts.HOLDS
    assert verdicts.gamma06_near_ccipca(noise_rows(good)).outcome == verdicts.HOLDS
    assert verdicts.order_of_magnitude(noise_rows(good)).outcome == verdicts.HOLDS
    assert "Err_batch: 10×" in verdicts.order_of_magnitude(noise_rows(good)).evidence
    far = {**good, "FSM γ=2.0": 0.03}
    assert verdicts.gamma2_near_ipca(noise_rows(far)).outcome == verdicts.FAILS
    assert verdicts.order_of_magnitude(noise_rows(dict.fromkeys(FIVE, 0.1))).outcome == verdicts.FAILS
    assert verdicts.order_of_magnitude(noise_rows(good, noise=[0.1])).outcome == verdicts.OPEN


def test_the_order_at_the_end() -> None:
    paper = {"FSM γ=0.6": 0.1, "CCIPCA": 0.11, "FSM γ=1.5": 0.2, "IPCA": 0.3, "FSM γ=2.0": 0.31}
    other = {**paper, "CCIPCA": 0.05, "FSM γ=1.5": 0.4}
    claims = (verdicts.forgetful_fsm_ends_best, verdicts.ccipca_close_behind, verdicts.slow_forgetters_worst)
    assert [claim(final_rows(paper, paper)).outcome for claim in claims] == [verdicts.HOLDS] * 3
    assert [claim(final_rows(paper, paper, other)).outcome for claim in claims] == [verdicts.PARTLY] * 3
    assert [claim(final_rows(other)).outcome for claim in claims] == [verdicts.FAILS] * 3
    assert "SET0 K=4: CCIPCA (0.05 against 0.1)" in verdicts.forgetful_fsm_ends_best(final_rows(other)).evidence
    del paper["IPCA"]
    assert [claim(final_rows(paper)).outcome for claim in claims] == [verdicts.OPEN] * 3, "four curves are not the paper's five"


def test_growth_with_K() -> None:
    paper = timing_rows({"fsm": 1.0, "sm": 1.9, "ipca": 2.2, "ccipca": 1.0})
    assert verdicts.fsm_linear(paper).outcome == verdicts.HOLDS
    assert verdicts.others_quadratic(paper).outcome == verdicts.HOLDS
    other = timing_rows({"fsm": 1.8, "sm": 1.0, "ipca": 2.2})
    assert verdicts.fsm_linear(other).outcome == verdicts.FAILS
    assert verdicts.others_quadratic(other).outcome == verdicts.PARTLY
    assert verdicts.slopes(paper, "sm", "published")[8192] == pytest.approx((1.9, 1.9))


def test_what_the_eye_sees() -> None:
    assert verdicts.looks_like_batch(picture_rows(35.0)).outcome == verdicts.HOLDS
    assert verdicts.looks_like_batch(picture_rows(20.0)).outcome == verdicts.FAILS
    never = verdicts.looks_like_batch(picture_rows(35.0, error=0.5))
    assert never.outcome == verdicts.OPEN
    assert "never below 0.50" in never.evidence


def test_nothing_run_nothing_claimed() -> None:
    assert {verdict.outcome for verdict in verdicts.judge([])} == {verdicts.OPEN}
    recorded = {("yale", "IPCA", 100): 0.5}
    found = row(figure="golden", data="yale", label="IPCA")
    assert verdicts.judge([replace(found, value=0.5)], recorded)[-1].outcome == verdicts.HOLDS
    assert verdicts.judge([replace(found, value=0.6)], recorded)[-1].outcome == verdicts.FAILS


def test_online_pca_is_judged_where_it_was_run() -> None:
    errors = {**dict.fromkeys(FIVE, 0.1), "OnlinePCA": 0.01}
    assert verdicts.online_pca_best(final_rows(errors)).outcome == verdicts.HOLDS
    assert verdicts.online_pca_best(final_rows({**errors, "OnlinePCA": 0.2})).outcome == verdicts.FAILS


# Tables and pictures


def test_tables_have_the_medians() -> None:
    table = tables.noise(noise_rows({"IPCA": 0.1}))[0]
    assert table.header == ("ρ", "IPCA")
    assert table.lines[0] == ("0.0001", "0.101")
    assert "| 0.0001 | 0.101 |" in table.to_markdown()
    faster = tables.timings(timing_rows({"fsm": 1.0}))[0].lines[0]
    assert faster[:2] == ("64", "FSM")
    assert faster[-2:] == ("1.0×", "1.0×")


def test_markup_in_names_stays_text(tmp_path: Path) -> None:
    table = tables.Table("<b>", ("<i>|",), (("<script>",),))
    assert "<script>" not in table.to_html()
    assert "\\|" in table.to_markdown()
    report = write_report(tmp_path / "report.html", "<u>", "", [Section("<s>", "", None, (table,))], [], {"<x>": "<y>"}, "psp <z>")
    assert not re.search(r"<(u|s|x|y|z|script)>", report.read_text(encoding="utf-8"))


def test_words_begin_at_the_left_and_numbers_end_at_the_right() -> None:
    page = tables.Table("t", ("K", "algorithm", "µs"), (("64", "FSM", "1,000"), ("128", "SM", "–"))).to_html()
    assert re.findall(r'<td class="(\w+)">', page) == ["number", "text", "number"] * 2
    assert re.findall(r'<th class="(\w+)">', tables.Table("t", ("a", "b"), ()).to_html()) == ["text", "text"]


def drawn_texts(figure: Figure) -> list[Text]:
    """The texts of a figure that are drawn: tick labels only where there is an axis, and within it."""
    texts = [text for legend in figure.legends for text in legend.get_texts()]
    for axes in figure.axes:
        texts += [axes.title, *axes.texts]
        for axis in (axes.xaxis, axes.yaxis) if axes.axison else ():
            low, high = sorted(axis.get_view_interval())
            shown = [tick for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()) if low <= tick.get_loc() <= high]
            texts += [axis.label, *(tick.label1 for tick in shown if tick.label1.get_visible())]
    return [text for text in texts if text.get_text().strip()]


def overlaps(figure: Figure) -> list[str]:
    """Texts of a figure that lie over one another or outside of it."""
    figure.canvas.draw()
    boxes = [(text.get_text(), text.get_window_extent().shrunk(0.95, 0.9)) for text in drawn_texts(figure)]
    over = [f"{one!r} over {two!r}" for i, (one, a) in enumerate(boxes) for two, b in boxes[:i] if a.overlaps(b)]
    width, height = figure.bbox.width, figure.bbox.height
    return over + [f"{text!r} outside" for text, box in boxes if box.x0 < 0 or box.y0 < 0 or box.x1 > width or box.y1 > height]


def learning_rows() -> list[Row]:
    return [
        row(figure="fig3", data=name, K=K, label=label, t=t, seed=seed, value=(1 + i + seed) / t, N=400)
        for name, K, (i, label), t, seed in product(
            ("yale", "orl", "mnist"), (16, 64, 128), enumerate([*FIVE, "OnlinePCA"]), (100, 400, 1000), (0, 1)
        )
    ]


def test_nothing_overlaps_in_the_pictures() -> None:
    timings = timing_rows({"sm": 1.5, "fsm": 1.0, "ipca": 2.0, "ccipca": 1.0})
    errors = {label: 10.0**-i for i, label in enumerate(FIVE)}
    several = [replace(found, D=D, K=K) for found in noise_rows(errors) for D, K in ((256, 16), (256, 128), (2048, 16), (2048, 128))]
    exact = [replace(found, value=1e-14) if found.label == "OnlinePCA" and found.t == 1000 else found for found in learning_rows()]
    for figure in (
        plots.fig1(timings),
        plots.fig2(several),
        plots.fig3(learning_rows()),
        plots.fig3(exact),
        plots.evaluation(select(learning_rows(), data="orl", K=16)),
    ):
        assert overlaps(figure) == []


def test_a_line_that_is_exact_does_not_flatten_the_others() -> None:
    found = select(learning_rows(), data="yale", K=16)
    low = min(row.value for row in found)
    exact = [replace(row, value=1e-14) if row.label == "OnlinePCA" and row.t == 1000 else row for row in found]
    axes = plots.fig3(exact).axes[0]
    assert axes.get_ylim()[0] > 0.1 * low
    assert any("OnlinePCA: exact" in text.get_text() for text in axes.texts)
    assert "exact" not in " ".join(text.get_text() for text in plots.fig3(found).axes[0].texts)


def test_lines_are_medians() -> None:
    axes = plots.fig3(select(learning_rows(), data="yale", K=16)).axes[0]
    lines = {line.get_label(): np.asarray(line.get_ydata(), dtype=float) for line in axes.get_lines()}
    np.testing.assert_allclose(lines["IPCA"], np.array([1.5 / 100, 1.5 / 400, 1.5 / 1000]))


def test_faces_are_upright_in_figure_4() -> None:
    face = np.zeros((4, 3))
    face[0] = 255  # hair
    album = {"moments": np.array([50, 100]), "pictures": np.stack([face.ravel(order="F")] * 2)}
    album |= {"batch": face.ravel(order="F"), "original": face.ravel(order="F")}
    figure = plots.fig4(picture_rows(35.0), {"key": album}, {"yale": ImageLayout(4, 3, column_major=True)})
    shown = [axes.get_images()[0] for axes in figure.axes if axes.get_images()]
    assert len(shown) == 4
    for image in shown:
        np.testing.assert_array_equal(image.get_array(), face)
        assert image.origin == "upper"
    assert overlaps(figure) == []


def test_a_picture_is_the_same_twice(tmp_path: Path) -> None:
    for name in ("one.svg", "two.svg"):
        plots.save(plots.fig3(select(learning_rows(), data="yale")), tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


# A whole reproduction, small


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
        reproduction, "FIGURES", {name: lambda quick, seed, name=name: tiny(quick, seed)[name] for name in ("fig1", "fig2")}
    )
    first = reproduce(["fig2"], tmp_path, quick=True)
    assert set(first.pictures) == {"fig2"}
    second = reproduce(["fig1"], tmp_path, quick=True)
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
    assert "psp reproduce all --quick" in page
    assert "numpy" in page
    assert (tmp_path / "quick_verdicts.md").exists()


def test_what_has_no_data_is_left_out_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ONLINE_PSP_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(reproduction, "load", lambda source, home: load(source, home, download=False))
    some = {"fig2": lambda quick, seed: tiny(quick, seed)["fig2"], "fig4": figures.fig4}
    monkeypatch.setattr(reproduction, "FIGURES", some)
    result = reproduce(["fig2", "fig4"], tmp_path, quick=True)
    assert set(result.pictures) == {"fig2"}
    assert "put it" in result.left_out["fig4"]
    with pytest.raises(FileNotFoundError, match="'yale'"):
        reproduce(["fig4"], tmp_path, quick=True)


# Evaluate


class Mine:
    """Somebody's algorithm."""

    def __init__(self, K: int, D: int, gamma: float = 2.0) -> None:
        self.inner = FSM(K, D, gamma=gamma)

    def fit_next(self, x: NDArray[np.float64]) -> None:
        self.inner.fit_next(x)

    def get_components(self) -> NDArray[np.float64]:
        return np.asarray(self.inner.get_components())


@pytest.fixture
def X() -> NDArray[np.float64]:
    scales = np.array([5.0, 4.0, 3.0] + [0.5] * 9)
    return np.asarray(np.random.default_rng(0).standard_normal((300, 12)) * scales + 7.0)


def test_evaluate_in_five_lines(X: NDArray[np.float64], tmp_path: Path) -> None:
    result = evaluate(X, K=3, algorithms={"mine": Mine, "IncrementalPCA": IncrementalPCA}, trials=2, out=tmp_path)
    errors = result.errors()
    assert set(errors) == {"mine", "IncrementalPCA", "OnlinePCA", *FIVE}
    assert errors["mine"] == pytest.approx(errors["FSM γ=2.0"], abs=1e-9)
    assert max(errors.values()) < 0.5
    assert "mine" in result.table()
    assert (tmp_path / "report.html").exists()
    with Image.open(tmp_path / "evaluation.png") as picture:
        assert picture.width > 500


def test_evaluate_says_what_is_wrong(X: NDArray[np.float64]) -> None:
    with pytest.raises(ValueError, match=r"K must be between 1 and 12 .* got 13"):
        evaluate(X, K=13)
    with pytest.raises(ValueError, match="samples as rows"):
        evaluate(X[0], K=2)
    with pytest.raises(ValueError, match="Row 4 of the data"):
        evaluate(np.where(np.arange(300)[:, None] == 4, np.nan, X), K=2)
    with pytest.raises(ValueError, match="nothing to evaluate"):
        evaluate(X, K=2, builtin=False)
    with pytest.raises(TypeError, match="Missing: fit_next"):
        evaluate(X, K=2, algorithms={"not one": lambda K, D: object()})


def test_an_algorithm_with_its_options_on_one_line() -> None:
    assert parse_curve("fsm,gamma=0.6") == Curve("fsm, gamma=0.6", "fsm", (("gamma", 0.6),))
    assert parse_curve("m:C,name=text") == Curve("C, name=text", "m:C", (("name", "text"),))
    with pytest.raises(ValueError, match="is not an option: write name=value"):
        parse_curve("fsm,gamma")


def app() -> typer.Typer:
    made = typer.Typer(cls=Commands)
    for command in (commands.reproduce, commands.evaluate, datasets):
        made.command()(command)
    return made


def test_the_evaluate_command(X: NDArray[np.float64], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "somebodys.py").write_text("from tests.test_experiments_report import Mine\n")
    np.save(tmp_path / "X.npy", X)
    monkeypatch.chdir(tmp_path)
    arguments = ["evaluate", "--data", "X.npy", "-k", "3", "-a", "somebodys:Mine,gamma=0.6", "-a", "sklearn.decomposition:IncrementalPCA"]
    result = CliRunner().invoke(app(), [*arguments, "--no-builtin", "--trials", "1", "--jobs", "1"])
    assert result.exit_code == 0, result.output
    assert "Mine, gamma=0.6" in result.output
    assert "IncrementalPCA" in result.output
    assert "--algorithm somebodys:Mine,gamma=0.6" in (tmp_path / "psp-evaluation" / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["evaluate", "-d", "absent.npy", "-k", "3"], "absent.npy is neither a file or folder nor a data set known here"),
        (["evaluate", "-d", "digits", "-k", "3", "-a", "nowhere:Thing"], "cannot be imported"),
        (["evaluate", "-d", "digits", "-k", "300"], "K must be between 1 and 64"),
    ],
)
def test_commands_say_what_is_wrong_without_a_traceback(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app(), [*arguments, "--jobs", "1"])
    assert result.exit_code == 1
    assert message in " ".join(result.output.split())
    assert "Traceback" not in result.output


def test_datasets_lists_all_that_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COLUMNS", "220")
    result = CliRunner().invoke(app(), ["datasets", "--data-home", str(tmp_path)])
    assert result.exit_code == 0, result.output
    for text in ("orl", "yale", "mnist", "digits", "400 × 10304", "2414 × 1024", "60000 × 784", "CC BY-SA 3.0", str(tmp_path)):
        assert text in result.output


def test_importing_is_light() -> None:
    commands_only = "import sys, online_psp.cli.experiments, online_psp.cli.datasets; sys.exit('numba' in sys.modules)"
    everything = "import sys; from online_psp.experiments import evaluate, reproduce; sys.exit('matplotlib' in sys.modules)"
    for code in (commands_only, everything):
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_failed_rows_are_told() -> None:
    failed = row(metric="failed", note="RuntimeError: no", value=float("nan"))
    table = tables.comparison([row(), row(metric=DONE, value=1.0), failed])[-1]
    assert table.lines[0][-1] == "RuntimeError: no"
