"""Studies: what they assert, and that each gives tables; the long ones are commands, not tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from online_psp.cli.main import app
from online_psp.cli.suite import Study
from online_psp.metrics import subspace_error
from online_psp.suite import studies
from online_psp.suite.rivals import RIVALS
from online_psp.suite.studies import changing, gross, holes, others, published, run_study, tracking
from online_psp.suite.tables import Table
from tests.unit.suite.test_evaluation import rows_of


def test_the_command_knows_every_study() -> None:
    modules = {path.stem for path in Path(studies.__file__).parent.glob("*.py")} - {"__init__", "changing"}
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


def test_statements_at_equal_time_at_equal_error_and_of_defaults() -> None:
    def rows(times: dict[str, float], errors: dict[str, float]) -> list[object]:
        from dataclasses import replace

        kinds = {label: "online-psp" if label.startswith("OnlinePCA") else "peer" for label in errors}
        found = rows_of({label: [error] for label, error in errors.items()})
        return [replace(row, kind=kinds[row.label], value=times[row.label] if row.metric == "seconds" else row.value) for row in found]

    errors = {"OnlinePCA fit": 0.01, "quick": 0.1, "exact": 0.001, "IncrementalPCA (batch 5D)": 0.05}
    times = {"OnlinePCA fit": 1.0, "quick": 0.5, "exact": 4.0, "IncrementalPCA (batch 5D)": 10.0}
    (table,) = others.statements(rows(times, errors))  # type: ignore[arg-type]
    said = {line[0]: line[1:] for line in table.lines}
    assert said["equal time"][0] == "quick"
    assert said["equal time"][-1] == "10×"
    assert said["equal error"][0] == "exact"
    assert said["equal error"][2] == "4×"
    assert said["default against default"][2] == "10×"
    (alone,) = others.statements(rows({"OnlinePCA fit": 1.0, "slow": 2.0}, {"OnlinePCA fit": 0.01, "slow": 0.1}))  # type: ignore[arg-type]
    assert [line[1] for line in alone.lines][:2] == [f"no peer is as {what} at any setting tried" for what in ("fast", "accurate")]
    assert not list(others.statements(rows({"quick": 0.5}, {"quick": 0.1})))  # type: ignore[arg-type]


def test_weighted_covariance_is_exactly_weighted_pca() -> None:
    rng = np.random.default_rng(0)
    X = changing.steady(rng, 400, changing.basis(rng, 12, 2), np.array([4.0, 3.0]))
    model = tracking.WeightedCovariance(2, 12, 100.0)
    for part in np.array_split(X, 7):
        model.fit_block(part)
    assert subspace_error(model.get_components(), changing.exactly_weighted(X, 100.0, 2)[0].T) < 1e-9


def test_rows_are_spoiled_as_is_said() -> None:
    X = np.random.default_rng(0).standard_normal((400, 9))
    assert abs(np.isnan(holes.holed(X, 0.3)).mean() - 0.3) < 0.03
    assert np.isnan(holes.holed(X, None)).mean() == pytest.approx(1 / 6)
    spoiled, wrong = gross.spoiled(X, "clump")
    assert wrong.sum() == 20
    np.testing.assert_array_equal(spoiled[~wrong], X[~wrong])
    assert np.linalg.norm(spoiled[wrong], axis=1).min() > 10


def test_a_study_is_written_with_the_machine_and_its_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gross, "tables", lambda out, quick: iter([Table("A table", ("a",), (("1",),))]))
    (table,) = run_study("gross", tmp_path / "out", "psp bench gross", quick=True)
    text = (tmp_path / "out" / "gross.md").read_text(encoding="utf-8")
    assert table.to_markdown() in text
    assert "`psp bench gross`" in text
    assert "kernels" in text


def test_the_command_refuses_what_it_cannot_do(tmp_path: Path) -> None:
    for words, message in (
        (["--only", "nonsense", "--quick"], "No method has nonsense"),
        (["speed", "--only", "FSM"], "are for psp bench others"),
        (["-d", "digits", "-k", "60", "--quick"], "K must be between 1 and 32"),
    ):
        done = CliRunner().invoke(app, ["bench", *words, "--out", str(tmp_path / "out")])
        assert done.exit_code != 0
        assert message in done.output.replace("\n", " "), done.output
