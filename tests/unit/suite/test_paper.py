"""The paper's figures: what is run, drawn, and said of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from online_psp.datasets.registry import KNOWN, load
from online_psp.suite import paper, pictures, tables
from online_psp.suite.data import Data, find, problem
from online_psp.suite.measure import Trial
from online_psp.suite.methods import FIVE, PAPER, fsm
from online_psp.suite.paper import FIGURES, Scope, reproduce
from online_psp.suite.rows import Row, select
from online_psp.suite.runner import How, run
from online_psp.suite.speed import Timing

HERE = How(jobs=0)


def test_figures_without_their_data_are_left_out_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONLINE_PSP_DATA", str(tmp_path))
    monkeypatch.setattr(paper, "load", lambda name, home: (_ for _ in ()).throw(FileNotFoundError(f"no {name} here")))
    with pytest.raises(FileNotFoundError, match="no yale here"):
        reproduce(["fig3"], tmp_path, scope=Scope(quick=True), how=HERE)
    left_out = paper._without_data(["fig1", "fig3"], Scope(quick=True), HERE)
    assert set(left_out) == {"fig3"}


def test_the_figures_are_the_papers() -> None:
    first, second, third = (FIGURES[name].records(Scope(), None) for name in ("fig1", "fig2", "fig3"))
    assert {(record.D, record.K) for record in first if isinstance(record, Timing)} == {
        (D, K) for D in (8192, 32768) for K in (64, 128, 256, 512, 1024, 2048, 4096)
    }
    trials = [record for record in second if isinstance(record, Trial) and not record.jitter]
    assert {(record.data.D, record.K) for record in trials} == {(256, 16), (256, 128), (2048, 16), (2048, 128)}
    assert {record.data.N for record in trials} == {6000}
    assert {record.method for record in trials} > set(FIVE)
    assert len({record.seed for record in trials}) == 10
    real = [record for record in third if isinstance(record, Trial) and not record.jitter]
    assert {(record.data.source, record.epochs) for record in real} == {("yale", 10), ("orl", 30), ("mnist", 1)}
    assert {record.method for record in real} > set(PAPER)
    assert {record.jitter for record in third if isinstance(record, Trial)} == {0, 1, 2, 3, 4, 5}


@pytest.mark.parametrize("name", list(FIGURES))
def test_quick_is_less_of_the_same(name: str) -> None:
    whole, quick = FIGURES[name].records(Scope(), None), FIGURES[name].records(Scope(quick=True), None)
    assert len(quick) < len(whole)
    assert {(record.K, record.seed) for record in quick} <= {(record.K, record.seed) for record in whole}


def test_trials_and_seeds_that_cannot_be_are_refused() -> None:
    assert list(Scope(seed=3, trials=2).seeds) == [3, 4]
    for wrong in ({"seed": -1}, {"trials": 0}):
        with pytest.raises(ValueError, match="at least"):
            Scope(**wrong)  # type: ignore[arg-type]


def test_pictures_are_in_the_units_of_the_file(tmp_path: Path) -> None:
    faces = np.random.default_rng(0).integers(0, 255, (40, 12)).astype(np.uint8)
    savemat(tmp_path / "faces.mat", {"fea": faces})
    data = find(tmp_path / "faces.mat")
    trial = Trial("fig4", data, fsm(0.6), 12, 0, 1, ("err_batch", "explained", "psnr"), (20, 40))
    found = run([trial], tmp_path / "rows.csv", HERE)
    album = paper._album(trial, found, None)
    np.testing.assert_array_equal(album["original"], faces[0])
    np.testing.assert_allclose(album["batch"], faces[0], atol=1e-9, err_msg="all directions rebuild it")
    assert set(album) == {"t20", "t40", "batch", "original"}
    assert select(found, metric="explained")[-1].value == pytest.approx(1.0)


def test_the_same_figure_gives_the_same_bytes(tmp_path: Path) -> None:
    base = Row("k", "evaluation", "set", 100, 10, 0.0, "", "m", "a", "yours", 3, 0, 10, "err_batch", 0.5)
    rows = [replace(base, t=t, value=1 / t) for t in (10, 50, 100)]
    one, two = (pictures.save(pictures.evaluation(rows), tmp_path / name).read_bytes() for name in ("a.png", "b.png"))
    assert one == two


def test_a_spread_is_shown_and_is_no_curve_of_its_own() -> None:
    base = Row("k", "fig2", "spiked", 100, 10, 0.1, "", "CCIPCA", "a", "online-psp", 3, 0, 100, "err_batch", 0.5)
    rows = [base, *(replace(base, label="CCIPCA ±1e-15", value=value) for value in (0.4, 0.6))]
    assert tables.curves_of(rows) == ["CCIPCA"]
    (table,) = tables.spreads(rows)
    assert table.lines[0][5:] == ("0.5", "0.4 – 0.6", "2")


def test_known_sets_are_as_large_as_their_records_say(data_home: Path) -> None:
    for name in ("yale", "orl", "mnist"):
        assert load(name, data_home).X.shape == (KNOWN[name].N, KNOWN[name].D)


def test_references_of_a_known_set_are_found_in_its_folder() -> None:
    assert problem(Data("digits", 1797, 64, checksum="x"), 4, 0).V.shape == (64, 4)
