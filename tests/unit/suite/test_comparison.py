"""The comparison page: the runner, tables, the picture, the command."""

from __future__ import annotations

import csv
import importlib.util
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from online_psp.cli.main import app
from online_psp.comparison import packages, plot, problems, results, runner, tables
from online_psp.comparison.methods import MEMORY, OURS, PEER, Method, Setting, methods
from online_psp.comparison.problems import Problem, Size, prepare
from online_psp.comparison.results import Result, choose_shown, write_csv
from online_psp.engine.types import Floats
from online_psp.metrics import subspace_error

TINY = Size(400, 40, 300, 4)
ALL = [(method, setting) for method in methods() for setting in method.settings]


def needs(method: Method) -> None:
    if method.package is not None and packages.absent(method.package):
        pytest.skip(f"{method.package} is not installed")


@pytest.fixture(scope="module")
def tiny() -> Problem:
    return prepare("spiked", TINY)


# Methods


@pytest.mark.parametrize(("method", "setting"), ALL, ids=[f"{method.name}, {setting.label}" for method, setting in ALL])
def test_every_method_finds_the_subspace_and_leaves_the_rows_alone(method: Method, setting: Setting, tiny: Problem) -> None:
    needs(method)
    before = tiny.X.copy()
    basis = setting.fit(tiny.X, tiny.K)
    np.testing.assert_array_equal(tiny.X, before)
    assert basis.shape == tiny.V.shape
    assert subspace_error(basis, tiny.V) < (1e-6 if method.kind == MEMORY else 0.5)


def test_names_are_distinct() -> None:
    names = [method.name for method in methods()]
    assert len(set(names)) == len(names)
    for method in methods():
        assert len({setting.label for setting in method.settings}) == len(method.settings)


@pytest.mark.parametrize("name", ["FSM", "SM", "IPCA", "CCIPCA"])
def test_the_in_place_loop_and_both_ways_of_this_package_agree(name: str, tiny: Problem) -> None:
    mine = [method.settings[0].fit(tiny.X, tiny.K) for method in methods() if method.family == name]
    assert len(mine) == 3
    for one, other in combinations(mine, 2):
        assert subspace_error(one, other) < 1e-7


# Problems


def test_problems_are_centred_and_solved() -> None:
    problem = prepare("power-law", TINY)
    assert problem.X.shape == (400, 40)
    assert np.abs(problem.X.mean(axis=0)).max() < 1e-15
    assert subspace_error(problem.V, np.linalg.svd(problem.X)[2][:4].T) < 1e-10


def test_files_and_known_sets_are_read(tmp_path: Path) -> None:
    np.save(tmp_path / "mine.npy", np.random.default_rng(0).standard_normal((50, 20)))
    problem = prepare(str(tmp_path / "mine.npy"), TINY, K=3, rows=40)
    assert (problem.name, problem.X.shape, problem.K) == ("mine", (40, 20), 3)
    assert "40 of 50" in problem.about
    assert prepare("digits", problems.FULL).X.shape == (1797, 64)


def test_mnist_is_taken_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONLINE_PSP_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert problems.default_names()[-1] == "digits"
    (tmp_path / "train-images-idx3-ubyte").touch()
    assert problems.default_names()[-1] == "mnist"


def test_too_many_directions_are_refused() -> None:
    with pytest.raises(ValueError, match="between 1 and 20"):
        prepare("spiked", TINY, K=21)


def test_rows_too_few_for_any_comparison_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", np.ones((1, 5)))
    with pytest.raises(ValueError, match="1 × 5, is too small to compare on: it needs at least 2 rows and 2 features"):
        prepare(str(tmp_path / "one.npy"), TINY, K=1)


# Runner


def peer(name: str, fit: Any, **options: Any) -> Method:
    return Method(name, name, PEER, (Setting("only", fit),), **options)


def test_a_package_that_is_not_there_is_one_line_that_says_how_to_get_it(tiny: Problem) -> None:
    settings = tuple(Setting(label, lambda X, K: tiny.V) for label in ("a", "b"))
    found = runner.compare(tiny, [Method("absent", "absent", PEER, settings, package="no-such-package")], 1)
    assert all(result.note == "not installed: pip install 'online-psp[peers]'" for result in found)
    assert tables.to_markdown(tiny, found).count("not installed") == 1
    assert tables.to_rich(tiny, found).row_count == 1


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "version", lambda package: None)
    assert "pip install 'online-psp[peers]'" in packages.river_note()
    assert packages.absent("proSVD") == "not installed: pip install 'online-psp[peers]'"
    monkeypatch.setattr(packages, "version", lambda package: "9.9")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "9.9: has no online PCA" in packages.river_note()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    assert "does not know yet" in packages.river_note()


def test_peak_memory_is_what_the_fit_allocates() -> None:
    def fit(X: Floats, K: int) -> Floats:
        once = np.ones((1 << 20) // 8 * 3)
        del once
        return np.ones((1 << 20) // 8 * 2)

    assert 3 << 20 <= runner.peak_bytes(fit, np.ones((1000, 1000)), 1) < (3 << 20) + 100_000


def test_the_most_accurate_and_the_fastest_setting_are_shown() -> None:
    tried = [a_result(setting=name, microseconds=us, err_batch=error) for name, us, error in (("a", 1, 0.3), ("b", 2, 0.2), ("c", 3, 0.1))]
    tried.append(replace(a_result(setting="d", note="failed: x"), err_batch=float("nan")))
    assert [result.setting for result in choose_shown(tried, every=False) if result.shown] == ["a", "c", "d"]
    assert all(result.shown for result in choose_shown(tried, every=True))


# Tables, CSV, picture


def a_result(**columns: Any) -> Result:
    base = Result("data", 100, 10, 2, "peer", "peer", PEER, "default", 10.0, 9.0, 3, 0.1, 1.5, 100)
    return replace(base, **columns)


def test_csv_has_every_column_and_row(tmp_path: Path) -> None:
    path = write_csv([a_result(), a_result(note="failed: a, b", err_batch=float("nan"))], tmp_path / "c.csv")
    with path.open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert tuple(rows[0]) == results.COLUMNS
    assert {"data", "N", "D", "K", "method", "setting", "microseconds", "err_batch", "peak_mib", "note"} <= set(rows[0])
    assert float(rows[0]["err_batch"]) == 0.1
    assert rows[1]["note"] == "failed: a, b"


def ours(**columns: Any) -> Result:
    return a_result(method="OnlinePCA fit", family="OnlinePCA", kind=OURS, **columns)


def test_statements_at_equal_time_and_at_equal_error() -> None:
    slow, quick = a_result(method="slow", microseconds=50.0, err_batch=0.001), a_result(method="quick", microseconds=5.0, err_batch=0.2)
    time, error = tables.statements([ours(err_batch=0.01), slow, quick])
    assert "quick" in time
    assert "20 times its error" in time
    assert "slow" in error
    assert "5 times its time" in error
    time, error = tables.statements([ours(err_batch=0.0001, microseconds=1.0), slow, quick])
    assert "no peer is as fast" in time
    assert "no peer is as accurate" in error
    assert "slow" in error
    assert tables.statements([slow, quick]) == []
    assert tables.statements([ours()]) == []


def test_a_peer_that_is_better_in_both_is_said_to_be() -> None:
    better = a_result(method="better", microseconds=1.0, err_batch=0.001)
    time, error = tables.statements([ours(err_batch=0.01), better])
    assert "0.1 times its error" in time
    assert "0.1 times its time" in error


def test_the_table_is_sorted_and_in_memory_comes_last(tiny: Problem) -> None:
    shown = [
        a_result(method="exact", kind=MEMORY, err_batch=1e-15),
        a_result(method="worse", err_batch=0.5),
        ours(err_batch=0.01),
        a_result(method="broken", err_batch=float("nan"), note="failed: why"),
        a_result(method="hidden", shown=False),
    ]
    text = tables.to_markdown(tiny, shown)
    places = [text.index(name) for name in ("OnlinePCA fit", "worse", "broken", "exact", "Settings also tried", "hidden")]
    assert places == sorted(places)
    assert "**OnlinePCA fit**" in text
    assert "exact (in memory)" in text
    assert "failed: why" in text


def test_nothing_to_draw_is_said() -> None:
    with pytest.raises(ValueError, match="nothing to draw"):
        plot.scatter([a_result(err_batch=float("nan"))])


# The command


def test_the_command_refuses_what_it_cannot_do(tmp_path: Path) -> None:
    out = ["--out", str(tmp_path / "out")]
    assert CliRunner().invoke(app, ["bench", "--only", "no such method", *out]).exit_code == 2
    assert CliRunner().invoke(app, ["bench", "--quick", "--data", "digits", "-k", "60", *out]).exit_code == 1
    assert CliRunner().invoke(app, ["bench", "--quick", "--data", "no-such-file.npy", *out]).exit_code == 1
    assert not (tmp_path / "out").exists()


def test_rows_without_directions_are_not_compared(tmp_path: Path) -> None:
    np.save(tmp_path / "flat.npy", np.ones((60, 8)))
    with pytest.raises(ValueError, match="The data has 0 directions, fewer than K=2"):
        prepare(str(tmp_path / "flat.npy"), TINY, K=2)
