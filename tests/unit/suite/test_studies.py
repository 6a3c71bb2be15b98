"""Studies: what they assert, and that each gives tables; the long ones are commands, not tests."""

from __future__ import annotations

import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from online_psp.cli.main import app
from online_psp.cli.suite import Study
from online_psp.metrics import subspace_error
from online_psp.suite import studies
from online_psp.suite.rivals import RIVALS
from online_psp.suite.rows import Row
from online_psp.suite.studies import merging, missing, others, published, run_study, tracking
from online_psp.suite.tables import Table
from tests import ROOT
from tests.unit.suite.test_evaluation import rows_of


def test_the_command_knows_every_study() -> None:
    modules = {path.stem for path in Path(studies.__file__).parent.glob("*.py")} - {"__init__"}
    assert {study.value for study in Study} == modules


def test_frequent_directions_bound_is_asserted_on_every_set(monkeypatch: pytest.MonkeyPatch) -> None:
    table = published.bounds(quick=True)
    assert len(table.lines) == 2 * len(published._sets(quick=True))
    assert all(float(line[-1]) <= 1.0 for line in table.lines)
    rival = RIVALS["frequent_directions"]

    def too_little(state: object, X: object, **options: int) -> object:
        found = rival.step(state, X, **options)
        return found._replace(B=0.1 * found.B)

    monkeypatch.setitem(RIVALS, "frequent_directions", rival._replace(step=too_little))
    with pytest.raises(RuntimeError, match="breaks its bound"):
        published.bounds(quick=True)


def test_implicit_krasulina_finds_the_subspace() -> None:
    rng = np.random.default_rng(0)
    U = np.linalg.qr(rng.standard_normal((20, 3)))[0]
    X = rng.standard_normal((2000, 3)) @ U.T + 0.05 * rng.standard_normal((2000, 20))
    model = published.ImplicitKrasulina(3, 20, scale=10.0)
    for part in np.array_split(X, 5):
        model.fit_block(part)
    assert subspace_error(model.get_components(), U) < 0.05


def test_default_against_default_equal_error_and_equal_time() -> None:
    def rows(times: dict[str, float], errors: dict[str, float]) -> list[Row]:
        kinds = {label: "online-psp" if label == "OnlinePCA" else "peer" for label in errors}
        found = rows_of({label: [error] for label, error in errors.items()})
        return [replace(row, kind=kinds[row.label], value=times[row.label] if row.metric == "seconds" else row.value) for row in found]

    default, more = "IncrementalPCA (batch 5D)", "IncrementalPCA (batch 5D, 4K cut to K)"
    errors = {"OnlinePCA": 0.01, "quick": 0.1, "exact": 0.001, default: 0.05, more: 0.009}
    times = {"OnlinePCA": 1.0, "quick": 0.5, "exact": 4.0, default: 10.0, more: 8.0}
    (table,) = others.beside(rows(times, errors), once=0.02)
    said = {line[0]: line[1:] for line in table.lines}
    assert said["default against default"][0] == default
    assert said["default against default"][2] == "10×"
    assert said["equal error, IncrementalPCA"][0] == more
    assert said["equal error, any peer"][:3:2] == ("exact", "4×")
    assert said["equal time, any peer"][::4] == ("quick", "10×")
    assert said["the anchor"][2] == "2×"
    (alone,) = others.beside(rows({"OnlinePCA": 1.0, "slow": 2.0}, {"OnlinePCA": 0.01, "slow": 0.1}), once=0.02)
    assert {line[1] for line in alone.lines if line[0].startswith("equal")} == {"none of the settings tried"}
    assert not list(others.beside(rows({"quick": 0.5}, {"quick": 0.1}), once=0.02))


def test_weighted_covariance_is_exactly_weighted_pca() -> None:
    X = np.random.default_rng(0).standard_normal((400, 12)) * np.r_[4.0, 3.0, np.ones(10)] + 2.0
    model = tracking.WeightedCovariance(2, 12, 100.0)
    for part in np.array_split(X, 7):
        model.fit_block(part)
    weights = 2.0 ** (-np.arange(399.0, -1.0, -1.0) / 100.0)
    exact = np.linalg.eigh(np.cov(X.T, aweights=weights))[1][:, -2:]
    assert subspace_error(model.get_components(), exact) < 1e-9


def test_what_people_do_with_holes_and_gross_rows_finds_the_subspace() -> None:
    rng = np.random.default_rng(0)
    U = np.linalg.qr(rng.standard_normal((20, 2)))[0]
    X = 3.0 * rng.standard_normal((3000, 2)) @ U.T + 0.3 * rng.standard_normal((3000, 20))
    for model, rows in (
        (missing.Pairs(2, 20), np.where(rng.random(X.shape) < 0.4, np.nan, X)),
        (missing.Spherical(2, 20), np.where(np.arange(3000)[:, None] % 50 == 0, 1e3 * rng.standard_normal(X.shape), X)),
    ):
        model.fit_block(rows)
        assert subspace_error(model.get_components(), U) < 0.1


def test_a_study_is_written_with_the_machine_and_its_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "tables", lambda out, quick: iter([Table("A table", ("a",), (("1",),))]))
    _, table = run_study("merging", tmp_path / "out", "psp bench merging", quick=True)
    text = (tmp_path / "out" / "merging.md").read_text(encoding="utf-8")
    assert table.to_markdown() in text
    assert "`psp bench merging`" in text
    assert "kernels" in text


def test_the_command_refuses_what_it_cannot_do(tmp_path: Path) -> None:
    for words, message in (
        (["--only", "nonsense", "--quick"], "No method has nonsense"),
        (["speed", "--only", "FSM"], "are for psp bench others"),
        (["-d", "digits", "-k", "65", "--quick"], "K must be between 1 and 64"),
    ):
        done = CliRunner().invoke(app, ["bench", *words, "--out", str(tmp_path / "out")])
        assert done.exit_code != 0
        assert message in done.output.replace("\n", " "), done.output


def test_results_are_put_between_the_marks_of_their_page(tmp_path: Path) -> None:
    put = runpy.run_path(str(ROOT / "docs" / "put_results.py"))["put"]
    (tmp_path / "img").mkdir()
    page, old = tmp_path / "page.md", "before\n<!-- speed: begin -->\nold\n<!-- speed: end -->\nafter img/a.png\n"
    page.write_text(old, encoding="utf-8")
    out = tmp_path / "out"
    out.mkdir()
    (out / "a.png").write_bytes(b"a")
    (out / "b.png").write_bytes(b"b")
    for name in ("speed", "nothing"):
        with pytest.raises(ValueError, match=r"speed\.md does not exist|No page"):
            put(name, out, tmp_path)
    assert page.read_text(encoding="utf-8") == old
    (out / "speed.md").write_text("new\n", encoding="utf-8")
    put("speed", out, tmp_path)
    assert page.read_text(encoding="utf-8") == old.replace("old", "new")
    assert [path.name for path in (tmp_path / "img").iterdir()] == ["a.png"]
