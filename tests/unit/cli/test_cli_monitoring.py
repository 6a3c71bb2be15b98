"""Monitoring from the command line: psp score, psp fit --monitor, and their pictures."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from online_psp import OnlinePCA
from online_psp.cli._charts import draw_scores, read_table
from online_psp.engine.types import Floats
from online_psp.io import runs
from online_psp.io.model_file import ModelFileError
from online_psp.monitoring import Monitor, spe, t2, t2_limit
from online_psp.monitoring.limits import limits_of
from online_psp.monitoring.scores import snapshot
from tests.command import psp, write_csv

D, K = 8, 2
HEAD = ["row", "t2", "spe", "t2_limit", "spe_limit", "outlier"]


def stream(n: int = 700, changed: int = 0, seed: int = 0) -> Floats:
    """Gaussian rows near a plane, then so many near another, around another mean."""
    rng = np.random.default_rng(seed)
    first, second = (np.linalg.qr(rng.standard_normal((D, K)))[0].T for _ in range(2))
    noise = 0.5 * rng.standard_normal((n + changed, D))
    y = rng.standard_normal((n + changed, K)) * [5.0, 4.0]
    rows: Floats = noise + np.concatenate([y[:n] @ first + 1.0, y[n:] @ second + 3.0])
    return rows


def cells(path: Path) -> list[list[str]]:
    with open(path, newline="") as file:
        return list(csv.reader(file))


def numbers(path: Path) -> Floats:
    return np.array([[float(cell or "nan") for cell in line] for line in zip(*(column(path, name) for name in HEAD), strict=True)])


def column(path: Path, name: str) -> list[str]:
    lines = cells(path)
    return [line[lines[0].index(name)] for line in lines[1:]]


@pytest.fixture
def plain(tmp_path: Path) -> tuple[Path, Path, Floats]:
    """A model without a monitor: its file, the table that it was fitted to, the rows."""
    X = stream(300)
    source = write_csv(tmp_path / "x.csv", X)
    psp("fit", source, "-k", K, "-o", tmp_path / "plain.psp", "-q")
    return tmp_path / "plain.psp", source, X


def monitored(folder: Path, source: Path, *more: Any, code: int = 0) -> tuple[Path, Path, Any]:
    """Fit with a monitor: the model file, the table of alarms, what was said."""
    model, table = folder / "m.psp", folder / "alarms.csv"
    return model, table, psp("fit", source, "-k", K, "-o", model, "--monitor", table, *more, code=code)


# psp score


def test_scores_are_those_of_the_library(tmp_path: Path, plain: tuple[Path, Path, Floats]) -> None:
    """T², SPE, both limits at alpha, flags and row numbers, with columns matched by name."""
    model, _, _ = plain
    X = stream(50, seed=0)
    X[7] += 30.0
    names = [f"x{i}" for i in range(D)]
    lines = [",".join(names[::-1])] + [",".join(map(repr, row)) for row in X[:, ::-1].tolist()]
    (tmp_path / "turned.csv").write_text("\n".join(lines) + "\n")
    done = psp("score", model, tmp_path / "turned.csv", "-o", tmp_path / "s.csv", "--alpha", 0.05, "--set", "block=16")
    assert "without --monitor" in done.stderr
    assert cells(tmp_path / "s.csv")[0] == HEAD
    assert cells(tmp_path / "s.csv")[1][0] == "1"
    found, fitted = numbers(tmp_path / "s.csv"), runs.read_stored(model)[0]
    runs.take_names(fitted)
    np.testing.assert_array_equal(found[:, 0], np.arange(1, 51))
    np.testing.assert_allclose(found[:, 1], t2(fitted, X), rtol=1e-10)
    np.testing.assert_allclose(found[:, 2], spe(fitted, X), rtol=1e-10)
    assert set(found[:, 3]) == {t2_limit(fitted, 0.05)}
    assert set(found[:, 4]) == {limits_of(snapshot(fitted), None, 0.05)[1]}
    np.testing.assert_array_equal(found[:, 5], (found[:, 1] > found[:, 3]) | (found[:, 2] > found[:, 4]))
    assert found[7, 5] == 1
    assert found[:, 5].sum() < 15


def test_bad_rows_keep_their_place_and_ids_are_carried(tmp_path: Path, plain: tuple[Path, Path, Floats]) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    model, _, X = plain
    lines = ["id," + ",".join(f"x{i}" for i in range(D))]
    lines += [f"r{i}," + ",".join(map(repr, row)) for i, row in enumerate(X[:20].tolist())]
    lines[4] = "r3," + ",".join(["nan"] * D)
    source = tmp_path / "y.csv"
    source.write_text("\n".join(lines) + "\n")
    done = psp("score", model, source, "--ids", "id", "-o", tmp_path / "s.csv", code=1)
    assert "row 4" in done.stderr
    assert not (tmp_path / "s.csv").exists()
    psp("score", model, source, "--ids", "id", "-o", tmp_path / "s.csv", "--on-bad-row", "skip", "--set", "block=3")
    found = cells(tmp_path / "s.csv")
    assert found[0] == ["id", *HEAD]
    assert found[4] == ["r3", "4", "", "", "", "", ""]
    assert [line[:2] for line in found[1:]] == [[f"r{i}", str(i + 1)] for i in range(20)]
    psp("score", model, source, "--ids", "id", "-o", tmp_path / "s.parquet", "--on-bad-row", "skip", "--set", "block=3")
    table = pq.read_table(tmp_path / "s.parquet")
    assert table.column("row").to_pylist() == list(range(1, 21))
    assert table.column("outlier").to_pylist()[2:5] == [0, None, 0]
    psp("score", model, source, "--exclude", "id", "-o", tmp_path / "s.npy", "--on-bad-row", "skip")
    assert np.load(tmp_path / "s.npy").shape == (20, 6)


def test_a_row_too_far_for_floating_point_is_an_outlier(tmp_path: Path) -> None:
    X = 1e-6 * stream(300)
    psp("fit", write_csv(tmp_path / "x.csv", X), "-k", K, "-o", tmp_path / "m.psp", "-q")
    X = X[:3].copy()
    X[1] = 1e153
    psp("score", tmp_path / "m.psp", write_csv(tmp_path / "y.csv", X), "-o", tmp_path / "s.csv", "-q")
    found = numbers(tmp_path / "s.csv")
    assert found[1, 1] == np.inf
    assert found[1, 2] > 1e300
    assert found[:, 5].tolist() == [0, 1, 0]


def test_limits_of_a_model_of_few_rows_are_missing(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "x.csv", stream(19))
    psp("fit", source, "-k", K, "-o", tmp_path / "m.psp", "-q")
    done = psp("score", tmp_path / "m.psp", source, "-o", tmp_path / "s.csv")
    assert "limits need 20" in done.stderr
    assert [line[3:] for line in cells(tmp_path / "s.csv")[1:]] == [["", "", "0"]] * 19
    assert np.isfinite(numbers(tmp_path / "s.csv")[:, 1:3]).all()


def test_a_monitored_model_knows_its_limits(tmp_path: Path) -> None:
    """Noise that is not equal along all directions: its limit comes from the rows, and alpha from the run."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((3000, D)) * [6, 5, 2, 0.1, 0.1, 0.1, 0.1, 0.1]
    source = write_csv(tmp_path / "x.csv", X[:2000])
    other = write_csv(tmp_path / "y.csv", X[2000:])
    model, _, _ = monitored(tmp_path, source, "--set", "alpha=0.02", "-q")
    done = psp("score", model, other, "-o", tmp_path / "s.csv")
    assert "SPE" not in done.stderr
    found = numbers(tmp_path / "s.csv")
    over = np.mean(found[:, 2] > found[:, 4])
    assert 0.01 < over < 0.035, f"2 % of ordinary rows should be above the limit of the SPE; {100 * over} % are"
    psp("fit", source, "-k", K, "-o", tmp_path / "plain.psp", "-q")
    psp("score", tmp_path / "plain.psp", other, "-o", tmp_path / "p.csv", "--alpha", 0.02, "-q")
    assert numbers(tmp_path / "p.csv")[0, 4] < 0.8 * found[0, 4]


# psp fit --monitor


def test_the_table_is_what_a_monitor_says(tmp_path: Path) -> None:
    X = stream(900, 150)
    source = write_csv(tmp_path / "x.csv", X)
    model, table, done = monitored(
        tmp_path, source, "--json", "--set", "alpha=0.02", "--set", "learn_outliers=no", "--set", "on_drift=reset", "--set", "block=97"
    )
    monitor = Monitor(OnlinePCA(K), alpha=0.02, learn_outliers=False, on_drift="reset")
    expected = monitor.update(X)
    found, lines = numbers(table), cells(table)
    assert lines[0] == ["row", "source", *HEAD[1:5], "missing", "outlier", "drift", "moved", "features"]
    assert [line[0] for line in lines[1:]] == [str(i) for i in range(1, 1051)]
    for i, name in enumerate(("t2", "spe", "t2_limit", "spe_limit"), 1):
        np.testing.assert_allclose(found[:, i], getattr(expected, name), rtol=1e-9, err_msg=name)
    np.testing.assert_array_equal(found[:, 5], expected.outlier)
    assert column(table, "drift") == expected.drift.tolist()
    assert any(column(table, "drift")[900:]), "the change after row 900 should have raised an alarm"
    said = json.loads(done.stdout)["monitor"]
    assert said["rows"] == 1050
    assert said["outliers"] == expected.outlier.sum()
    assert said["left_out"] == monitor.n_left_out > 0
    assert said["drift_alarms"] == len(monitor.alarms)
    stored = runs.read_stored(model).monitor
    assert stored is not None
    assert [alarm._replace(label="") for alarm in stored.alarms] == monitor.alarms
    np.testing.assert_allclose(np.abs(stored.model.components_), np.abs(monitor.model.components_), atol=1e-8)


def test_half_lives_in_time_and_standardised_features(tmp_path: Path, checkpoints: list[tuple[Path, int]]) -> None:
    """The table is that of a monitor in Python, and a run that was stopped ends with the bytes of one that was not."""
    X = stream(500, 100) * np.geomspace(0.01, 100.0, D)
    times = np.cumsum(np.random.default_rng(5).exponential(1.0, 600))
    names = ["when", *(f"x{i}" for i in range(D))]
    lines = [",".join(map(repr, row)) for row in np.column_stack([times, X]).tolist()]
    source = tmp_path / "x.csv"
    source.write_text("\n".join([",".join(names), *lines]) + "\n")
    options = ["--half-life", "4min", "--time-column", "when", "--standardize", "--set", "block=64", "--checkpoint-every", 150, "-q"]
    model, table, _ = monitored(tmp_path, source, *options)
    monitor = Monitor(OnlinePCA(K, half_life="4min", standardize=True))
    expected = monitor.update(X, times)
    found = numbers(table)
    for i, name in enumerate(("t2", "spe", "t2_limit", "spe_limit"), 1):
        np.testing.assert_allclose(found[:, i], getattr(expected, name), rtol=1e-7, err_msg=name)
    assert monitor.alarms
    assert column(table, "drift") == expected.drift.tolist()
    whole, rows, copies = model.read_bytes(), table.read_bytes(), list(checkpoints)
    shutil.copy(copies[1][0], model)
    psp("fit", source, "-o", model, "--monitor", table, "--resume", "-q")
    assert (model.read_bytes(), table.read_bytes()) == (whole, rows)


def test_a_monitored_model_file_is_read_by_every_command(tmp_path: Path) -> None:
    X = stream(300)
    source = write_csv(tmp_path / "x.csv", X)
    model, _, _ = monitored(tmp_path, source, "-q")
    psp("fit", source, "-k", K, "-o", tmp_path / "plain.psp", "-q")
    for name in ("m", "plain"):
        psp("transform", tmp_path / f"{name}.psp", source, "-o", tmp_path / f"{name}.npy", "-q")
    np.testing.assert_allclose(np.load(tmp_path / "m.npy"), np.load(tmp_path / "plain.npy"), atol=1e-9)
    facts = json.loads(psp("info", model, "--json").stdout)
    assert facts["monitor"]["n_rows"] == facts["samples"] == 300
    assert "alpha=0.01" in psp("info", model).stdout
    psp("merge", model, tmp_path / "plain.psp", "-o", tmp_path / "both.psp", "-q")
    assert OnlinePCA.load(tmp_path / "both.psp").n_samples_seen_ == 600
    psp("plot", model, "-o", tmp_path / "m.png", "-q")
    with pytest.raises(ModelFileError, match=r"Monitor\.load"):
        OnlinePCA.load(model)
    assert Monitor.load(model).model.feature_names_in_.tolist() == [f"x{i}" for i in range(D)]


@pytest.fixture
def checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, int]]:
    """Copies of every checkpoint that is written, and how long the table of alarms was then."""
    kept: list[tuple[Path, int]] = []
    write = runs.Saving.save

    def save(saving: runs.Saving, run: runs.Run) -> None:
        write(saving, run)
        copy = tmp_path / f"copy{len(kept)}.psp"
        shutil.copy(saving.path, copy)
        kept.append((copy, run.row))

    monkeypatch.setattr(runs.Saving, "save", save)
    return kept


def test_a_killed_run_is_resumed_with_its_table(tmp_path: Path, checkpoints: list[tuple[Path, int]]) -> None:
    """From each checkpoint, with a table that had gone further and ends in half a line: the same model and table, byte for byte."""
    source = write_csv(tmp_path / "x.csv", stream(500, 100))
    options = ("--set", "block=50", "--checkpoint-every", 150, "-q")
    model, table, _ = monitored(tmp_path, source, *options)
    whole, end = table.read_bytes(), model.read_bytes()
    copies = list(checkpoints)
    assert [row for _, row in copies] == [50, 200, 350, 500, 600]
    for copy, row in copies[:-1]:
        shutil.copy(copy, model)
        lines = whole.splitlines(keepends=True)
        table.write_bytes(b"".join(lines[: row + 30]) + b"999,0.12" * 20_000)
        psp("fit", source, "-o", model, "--monitor", table, "--resume", *options)
        assert table.read_bytes() == whole, f"resumed at row {row}"
        assert model.read_bytes() == end, f"resumed at row {row}"


def test_a_run_killed_before_its_first_checkpoint_leaves_a_table_that_it_can_take_up(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "x.csv", stream(300))
    options = ("--set", "block=50", "-q")
    model, table, _ = monitored(tmp_path, source, *options)
    whole, end = table.read_bytes(), model.read_bytes()
    within = whole.index(b"\n40,") + 2  # the first checkpoint comes after row 50
    for cut in (0, 3, within):
        model.unlink()
        table.write_bytes(whole[:cut])
        monitored(tmp_path, source, *options, "--resume")
        assert (table.read_bytes(), model.read_bytes()) == (whole, end), f"after {cut} bytes of the table"
    model.unlink()
    for content in (b"row,t2\n1,2\n", whole[:within] + b"x", whole):
        table.write_bytes(content)
        done = monitored(tmp_path, source, *options, "--resume", code=1)[2]
        assert "is not the table of the run that begins here" in done.stderr
        assert table.read_bytes() == content
        assert not model.exists()


def test_a_full_disk_leaves_a_table_that_can_be_continued(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "x.csv", stream(1500))
    (tmp_path / "whole").mkdir()
    complete, expected, _ = monitored(tmp_path / "whole", source, "-q", "--set", "block=50")
    size = complete.stat().st_size + 5000
    assert size < 0.8 * expected.stat().st_size, "the table should be what the disk is too small for"
    model, table = tmp_path / "m.psp", tmp_path / "alarms.csv"
    options = ("--set", "block=50", "-q", "--checkpoint-every", 100, "--monitor", table)
    done = psp("fit", source, "-k", K, "-o", model, *options, code=1, file_size=size)
    assert "alarms.csv: " in done.stderr
    assert size - 5000 < table.stat().st_size <= size
    assert 0 < runs.reopen(model).row < 1500
    psp("fit", source, "-o", model, *options, "--resume")
    assert table.read_bytes() == expected.read_bytes()


def test_a_finished_run_continues_with_a_file_that_has_grown(tmp_path: Path) -> None:
    X = stream(400)
    source = write_csv(tmp_path / "x.csv", X[:250])
    model, table, _ = monitored(tmp_path, source, "-q")
    psp("fit", source, "-o", model, "--monitor", table, "--resume", "-q")
    assert len(cells(table)) == 251
    write_csv(source, X)
    psp("fit", source, "-o", model, "--monitor", table, "--resume", "-q")
    (tmp_path / "whole").mkdir()
    _, whole, _ = monitored(tmp_path / "whole", source, "-q")
    np.testing.assert_allclose(numbers(table), numbers(whole), rtol=1e-8)


def test_what_cannot_be_continued_is_refused_and_nothing_changes(tmp_path: Path, plain: tuple[Path, Path, Floats]) -> None:
    source = write_csv(tmp_path / "x.csv", stream(300))
    other = write_csv(tmp_path / "y.csv", stream(30, seed=1))
    model, table, _ = monitored(tmp_path, source, "-q")
    kept = table.read_bytes()
    resume = ["fit", source, "-o", model, "--resume"]
    changed, short = kept.replace(b"\n200,", b"\n201,"), kept[:-5]
    cases: list[tuple[bytes | None, list[Any], int, str]] = [
        (kept, resume, 2, "--monitor"),
        (kept, [*resume, "--monitor", table, "--set", "alpha=0.5"], 2, "alpha = 0.01"),
        (kept, [*resume, "--monitor", table, "--set", "learn_outliers=no"], 2, "learn_outliers"),
        (kept, [*resume, "--monitor", table, "--set", "on_drift=reset"], 2, "on_drift"),
        (kept, [*resume, "--monitor", table, "--set", "epochs=3"], 2, "epochs"),
        (changed, [*resume, "--monitor", table], 1, "was changed"),
        (short, [*resume, "--monitor", table], 1, "was changed"),
        (None, [*resume, "--monitor", table], 1, "does not exist"),
        (kept, ["fit", source, "-o", plain[0], "--resume", "--monitor", tmp_path / "n.csv"], 2, "without --monitor"),
        (kept, ["fit", source, "-k", K, "-o", tmp_path / "n.psp", "--monitor", table], 2, "exists"),
        (changed, ["update", model, other, "--monitor", table], 1, "was changed"),
    ]
    before = model.read_bytes(), plain[0].read_bytes()
    for content, arguments, code, message in cases:
        table.unlink(missing_ok=True)
        if content is not None:
            table.write_bytes(content)
        done = psp(*arguments, "-q", code=code)
        assert message in done.stderr, (arguments, done.stderr)
        assert done.stderr.count("\n") == 1, done.stderr
        assert (table.read_bytes() if table.exists() else None) == content, arguments
        assert (model.read_bytes(), plain[0].read_bytes()) == before, arguments
    assert not (tmp_path / "n.psp").exists()
    assert not (tmp_path / "n.csv").exists()


def test_impossible_options_are_refused(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "x.csv", stream(60))
    table = tmp_path / "a.csv"
    cases: list[tuple[list[Any], str]] = [
        (["--set", "alpha=0.01"], "--monitor"),
        (["--set", "learn_outliers=no"], "--monitor"),
        (["--monitor", table, "--set", "alpha=0"], "alpha"),
        (["--monitor", table, "--set", "alpha=nan"], "alpha"),
        (["--monitor", table, "--set", "on_drift=panic"], "on_drift"),
        (["--monitor", table, "--set", "epochs=2"], "epochs"),
        (["--monitor", table, "--half-life", 2], "half_life"),
        (["--monitor", tmp_path / "a.parquet"], ".csv"),
        (["--monitor", source], "source"),
        (["--monitor", tmp_path / "none" / "a.csv"], "none"),
    ]
    for arguments, message in cases:
        done = psp("fit", source, "-k", K, "-o", tmp_path / "m.psp", *arguments, "-q", code=2)
        assert message in done.stderr, (arguments, done.stderr)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["x.csv"], arguments
    done = psp("score", tmp_path / "m.psp", source, "-o", tmp_path / "s.csv", "--alpha", 1, code=2)
    assert "--alpha" in done.stderr


def test_bad_rows_have_a_line_with_their_number(tmp_path: Path) -> None:
    bad = ",".join(["1"] * (D - 1) + ["nan"])
    source = write_csv(tmp_path / "x.csv", stream(120), {71: bad, 120: bad})
    model, table, done = monitored(tmp_path, source, "--set", "block=40", "-q", code=1)
    assert "row 71" in done.stderr
    assert len(cells(table)) == 41, "of the block with the bad row nothing is learned, and nothing written"
    psp("fit", source, "-o", model, "--monitor", table, "--resume", "--on-bad-row", "skip", "-q")
    lines = cells(table)
    assert lines[71] == ["71", str(source)] + [""] * 9
    assert lines[120] == ["120", str(source)] + [""] * 9
    assert [line[0] for line in lines[1:]] == [str(i) for i in range(1, 121)]
    assert lines[72][2]


def test_a_pipe_is_monitored(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "x.csv", stream(200))
    _, expected, _ = monitored(tmp_path, source, "-q")
    psp("fit", "-", "-k", K, "-o", tmp_path / "p.psp", "--monitor", tmp_path / "p.csv", "-q", input=source.read_bytes())
    np.testing.assert_allclose(numbers(tmp_path / "p.csv"), numbers(expected), rtol=1e-9)


def test_an_update_goes_on_with_the_monitor(tmp_path: Path) -> None:
    """Rows of a second file are scored by what was learned from the first, into a table of their own or none."""
    X = stream(300)
    model, _, _ = monitored(tmp_path, write_csv(tmp_path / "x.csv", X[:200]), "-q")
    shutil.copy(model, tmp_path / "silent.psp")
    more = write_csv(tmp_path / "y.csv", X[200:])
    psp("update", model, more, "--monitor", tmp_path / "more.csv", "-q")
    monitor = Monitor(OnlinePCA(K))
    expected = monitor.update(X)
    found = numbers(tmp_path / "more.csv")
    np.testing.assert_array_equal(found[:, 0], np.arange(1, 101))
    np.testing.assert_allclose(found[:, 2], expected.spe[200:], rtol=1e-8)
    psp("update", tmp_path / "silent.psp", more, "-q")
    stored = runs.read_stored(tmp_path / "silent.psp").monitor
    assert stored is not None
    assert stored.n_rows == 300
    np.testing.assert_allclose(stored.moments.mean, monitor.moments.mean, rtol=1e-8)


# psp plot


def test_a_picture_shows_scores_limits_outliers_and_alarms(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "x.csv", stream(600, 100))
    model, table, _ = monitored(tmp_path, source, "-q")
    psp("plot", table, "-o", tmp_path / "a.png", "-q")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    found = read_table(table)
    assert found.drift
    upper, lower = draw_scores(found, "alarms.csv").axes
    for axes, values, limit in ((upper, found.t2, found.t2_limit), (lower, found.spe, found.spe_limit)):
        assert axes.get_yscale() == "log"
        scores, limits, outliers, *alarms = axes.get_lines()
        np.testing.assert_array_equal(scores.get_xdata(), np.arange(1, 701))
        np.testing.assert_array_equal(limits.get_ydata(), limit)
        np.testing.assert_array_equal(outliers.get_xdata(), found.row[values > limit])
        assert [line.get_xdata()[0] for line in alarms] == [place + 1 for place, _ in found.drift]
    psp("score", model, source, "-o", tmp_path / "s.csv", "-q")
    psp("plot", tmp_path / "s.csv", "-o", tmp_path / "s.svg", "-q")
    assert b"<svg" in (tmp_path / "s.svg").read_bytes()


def test_a_table_of_something_else_is_not_plotted(tmp_path: Path, plain: tuple[Path, Path, Floats]) -> None:
    head = ",".join([*HEAD, "drift"]) + "\n"
    cases = {
        "other": ("a,b\n1,2\n", "row"),
        "empty": (head, "no rows"),
        "nothing": ("", "row"),
        "missing": (head + "1,,,,,0,\n", "missing"),
        "text": (head + "1,1,1,1,1,0,\n2,x,1,1,1,0,\n", "Row #3"),
        "short": (head + "1,1,1,1,1,0,\n2,1\n", "Row #3"),
    }
    for name, (text, message) in cases.items():
        path = tmp_path / f"{name}.csv"
        path.write_text(text)
        done = psp("plot", path, "-o", tmp_path / "a.png", code=1)
        assert message in done.stderr, (name, done.stderr)
        assert not (tmp_path / "a.png").exists()
    (tmp_path / "growing.csv").write_text(head + "1,1,1,1,1,0,\n2,1,1")
    assert len(read_table(tmp_path / "growing.csv").row) == 1
