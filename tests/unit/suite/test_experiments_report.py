"""Verdicts, tables, pictures, the report, and the commands."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from typer.testing import CliRunner

from online_psp.cli.main import app
from online_psp.datasets import ImageLayout
from online_psp.experiments import figures, plots, tables
from online_psp.experiments.deviations import deviations_table
from online_psp.experiments.records import Experiment
from online_psp.experiments.report import Section, write_report
from online_psp.experiments.rows import DONE, Row, select
from tests import ROOT
from tests.unit.suite.test_verdicts import SCALE, noise_rows, picture_rows, timing_rows

FIVE = [curve.label for curve in figures.FIVE]


def row(**columns: Any) -> Row:
    base = Row("key", "fig", "data", 100, 10, 0.0, "label", "algorithm", 4, 0, 100, "err_batch", 1.0)
    return replace(base, **columns)


# Tables and pictures


def test_tables_have_the_medians() -> None:
    table = tables.noise(noise_rows({"IPCA": 0.1}, {}))[0]
    assert table.header == ("ρ", "IPCA")
    assert table.lines[0] == ("0.0001", "0.105")
    assert "| 0.0001 | 0.105 |" in table.to_markdown()
    faster = tables.timings(timing_rows({"fsm": 1.0}, SCALE))[0].lines[0]
    assert faster[:2] == ("64", "FSM")
    assert faster[-3:-1] == ("1.0×", "1.0×")


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
    figure = plots.fig4(picture_rows("yale", (0.9, 0.19), (10.0, 35.0)), {"key": album}, {"yale": ImageLayout(4, 3, column_major=True)})
    shown = [axes.get_images()[0] for axes in figure.axes if axes.get_images()]
    assert len(shown) == 4
    for image in shown:
        np.testing.assert_array_equal(image.get_array(), face)
        assert image.origin == "upper"
    assert overlaps(figure) == []


# A whole reproduction, small


def test_results_of_one_figure_leave_those_of_the_others(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("put_results", ROOT / "docs" / "put_results.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    docs, out = tmp_path / "docs", tmp_path / "out"
    (docs / "img").mkdir(parents=True)
    out.mkdir()
    page = docs / "experiments.md"
    text = "# E\n<!-- fig1: begin -->\nold one\n<!-- fig1: end -->\nbetween\n<!-- fig2: begin -->\nold two\n<!-- fig2: end -->\nafter\n"
    page.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"fig1.png does not exist: run psp reproduce fig1"):
        script.put("fig1", out, docs)
    (out / "fig1.png").write_bytes(b"picture")
    (out / "results_fig1.md").write_text("new, with \\1 in it\n\n", encoding="utf-8")
    script.put("fig1", out, docs)
    assert page.read_text(encoding="utf-8") == text.replace("old one", "new, with \\1 in it")
    assert (docs / "img" / "fig1.png").read_bytes() == b"picture"
    page.write_text(text.replace("<!-- fig1: end -->\n", ""), encoding="utf-8")
    with pytest.raises(ValueError, match="does not have the marks"):
        script.put("fig1", out, docs)
    marks = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
    for name in figures.FIGURES:
        assert marks.count(f"<!-- {name}: begin -->\n") == marks.count(f"<!-- {name}: end -->\n") == 1, name


# The commands


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["evaluate", "-d", "absent.npy", "-k", "3"], "absent.npy is neither a file or folder nor a data set known here"),
        (["evaluate", "-d", "digits", "-k", "3", "-a", "nowhere:Thing"], "cannot be imported"),
        (["evaluate", "-d", "digits", "-k", "300"], "K must be between 1 and 64"),
        (["evaluate", "-d", "digits"], "Pass K, the number of directions to find"),
        (["evaluate", "-d", "spiked:D=10,K=20"], "must have 1 ≤ K ≤ D"),
        (["evaluate", "-d", "spiked:D=10,Q=2"], "is not one of D, K, rho, N"),
        (["evaluate", "-d", "digits", "-k", "3", "--timeout", "0"], "timeout must be more than 0 seconds"),
        (["reproduce", "fig2", "-a", "nowhere:Thing"], "cannot be imported"),
    ],
)
def test_commands_say_what_is_wrong_without_a_traceback(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, [*arguments, "--jobs", "1"])
    assert result.exit_code == 1
    assert message in " ".join(result.output.split())
    assert "Traceback" not in result.output
    assert list(tmp_path.iterdir()) == [], "nothing was begun"


def test_datasets_lists_all_that_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COLUMNS", "220")
    result = CliRunner().invoke(app, ["datasets", "--data-home", str(tmp_path)])
    assert result.exit_code == 0, result.output
    for text in ("orl", "yale", "mnist", "digits", "400 × 10304", "2414 × 1024", "60000 × 784", "CC BY-SA 3.0", str(tmp_path)):
        assert text in result.output


def test_failed_rows_are_told() -> None:
    failed = row(metric="failed", note="RuntimeError: no", value=float("nan"))
    table = tables.comparison([row(), row(metric="score"), row(metric=DONE, value=1.0), failed])[-1]
    assert table.lines[0][-1] == "RuntimeError: no"


def test_the_deviations_are_in_the_docs_as_in_the_report() -> None:
    page = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
    assert deviations_table().to_markdown().split("\n", 2)[2] in page, "docs/experiments.md must have the table of deviations, as it is"


def test_the_start_that_rounding_does_not_move_is_shown_beside_the_published_one() -> None:
    records = [
        record for record in figures.fig3() if isinstance(record, Experiment) and record.curve.label.startswith(figures.STEADY.label)
    ]
    assert {record.K for record in records} == {64, 128}
    assert {record.jitter for record in records} == set(range(6)), "as it is, and on five perturbations"
    assert {record.seed for record in records} == {0}
    steady = [replace(found, label=figures.STEADY.label + suffix) for suffix in ("", tables.SPREAD) for found in learning_rows()[:2]]
    assert figures.STEADY.label not in tables.curves_of(steady)
    assert tables.spreads(steady)[0].lines[0][0] == figures.STEADY.label


def test_a_spread_is_no_curve_of_its_own() -> None:
    label = "CCIPCA" + tables.SPREAD
    several = [
        replace(found, label=label, value=found.value * factor) for found in select(learning_rows(), label="CCIPCA") for factor in (0.5, 2)
    ]
    rows = [*learning_rows(), *several]
    assert label not in tables.curves_of(rows)
    assert label not in tables.learning(rows)[0].header
    line = tables.spreads(rows)[0].lines[0]
    assert line[:2] == ("CCIPCA", "YALE")
    assert line[5:] == ("0.002", "0.001 – 0.004", "2"), "unperturbed, range over the perturbations, how many"
    assert label not in [text.get_text() for legend in plots.fig3(rows).legends for text in legend.get_texts()]
