"""The paper's figures, all four at sizes of a test: run, drawn, judged and reported."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from online_psp.suite import paper
from online_psp.suite.data import Data
from online_psp.suite.measure import Trial
from online_psp.suite.methods import ONLINE_PCA, yours
from online_psp.suite.paper import FIGURES, Scope, reproduce
from online_psp.suite.rows import distinct, select
from online_psp.suite.runner import How
from online_psp.suite.speed import Timing

HERE = How(jobs=0)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The figures at sizes of a test: digits in place of faces, few samples, few sizes."""
    digits = Data("digits", 1797, 64, most=300, checksum="x")

    def shrunk(record: Trial | Timing) -> Trial | Timing | None:
        if isinstance(record, Timing):
            return replace(record, D=64, K=record.K // 16, runs=1, samples=2) if record.D == 8192 else None
        if record.data.source == "spiked":
            data = replace(record.data, N=150, D=40)
            return replace(record, data=data, moments=(150,)) if (record.data.D, record.K) == (256, 16) and record.data.rho < 1e-2 else None
        if record.study == "fig3" and (record.K != 16 or record.data.source != "yale"):
            return None
        return replace(record, data=digits, K=8, moments=(20, 100, 300))

    def records(name: str) -> Any:
        made = FIGURES[name].records
        return lambda scope, home: list(dict.fromkeys(found for record in made(scope, home) if (found := shrunk(record))))

    figures = {name: replace(figure, records=records(name)) for name, figure in FIGURES.items()}
    monkeypatch.setattr(paper, "FIGURES", figures)
    monkeypatch.setattr(paper, "_without_data", lambda *_: {})
    return figures


def test_all_four_figures_are_run_drawn_judged_and_reported(small: dict[str, Any], tmp_path: Path) -> None:
    mine = yours("tests.somebodys:Mine")
    result = reproduce(list(FIGURES), tmp_path, scope=Scope(quick=True, methods=(mine,)), how=HERE, command="psp reproduce all")
    assert set(result.pictures) == set(FIGURES)
    for name in FIGURES:
        with Image.open(tmp_path / f"quick_{name}.png") as picture:
            assert picture.width > 500, name
        assert "**Verdicts**" in (tmp_path / f"quick_{name}.md").read_text(encoding="utf-8")
    page = result.report.read_text(encoding="utf-8")
    assert all(figure.title in page for figure in FIGURES.values())
    assert "Deviations from the paper" in page
    assert "psp reproduce all" in page
    assert not select(result.rows, metric="failed")
    assert {"Mine", ONLINE_PCA.label} <= set(distinct(select(result.rows, study="fig3"), "label"))
    again = reproduce(list(FIGURES), tmp_path, scope=Scope(quick=True), how=HERE)
    assert [row for row in again.rows if row.label != "Mine"] == [row for row in result.rows if row.label != "Mine"], "not measured again"
