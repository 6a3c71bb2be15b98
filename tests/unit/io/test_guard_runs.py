"""Runs that lose nothing: slow pipes, signals, other sources on resume, failures half-way."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from online_psp import OnlinePCA
from online_psp.engine.types import Floats
from online_psp.io import runs
from online_psp.io.sources import SourceError, open_source
from online_psp.io.sources.source import Chunk, Mark, Source
from tests.command import data, psp, write_csv

# Pipes


def pipe(X: Floats, arrivals: list[int], hook: Any = None) -> Source:
    """A pipe in which so many rows are there at each look, and then no more for a while: what `Source.blocks` promises of slow sources."""

    def read(begin: Mark) -> Iterator[Chunk]:
        at = begin.row
        for number, rows in enumerate(arrivals):
            if hook is not None:
                hook(number)
            yield Chunk(rows, X[at : at + rows])
            at += rows

    return Source("a pipe", X.shape[1], np.dtype(np.float64), read, once=True, foreign=True)


def test_a_slow_pipe_is_saved_when_it_is_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred rows a second, and a clock of our own: blocks of thousands of rows must not delay a checkpoint."""
    X = data(1500, 8)
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    saved: list[int] = []
    save = runs.Saving.save

    def note(saving: runs.Saving, run: runs.Run) -> None:
        saved.append(run.row)
        save(saving, run)

    monkeypatch.setattr(runs.Saving, "save", note)

    def tick(_: int) -> None:
        clock[0] += 0.1

    model = runs.fit_stream(pipe(X, [10] * 150, tick), tmp_path / "m.psp", OnlinePCA(3), checkpoint_every="1s")
    assert model.n_samples_seen_ == 1500
    assert saved[0] <= 120, f"the first checkpoint came at row {saved[0]}, of 100 rows a second and one a second"
    assert len(saved) >= 12
    np.testing.assert_allclose(model.components_, OnlinePCA(3).fit(X).components_, atol=1e-10)


@pytest.mark.usefixtures("hear_ctrl_c")
def test_a_signal_saves_what_has_arrived(tmp_path: Path) -> None:
    X = data(900, 8)

    def hook(number: int) -> None:
        if number == 7:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        runs.fit_stream(pipe(X, [10] * 90, hook), tmp_path / "m.psp", OnlinePCA(3))
    run = runs.reopen(tmp_path / "m.psp")
    assert run.row == run.model.n_samples_seen_ == 80
    rest = runs.fit_stream(pipe(X, [900]), tmp_path / "m.psp", resume=True)
    assert rest.n_samples_seen_ == 900
    np.testing.assert_allclose(rest.components_, OnlinePCA(3).fit(X).components_, atol=1e-10)


@pytest.mark.usefixtures("hear_ctrl_c")
def test_a_silent_pipe_is_left_at_the_first_signal(tmp_path: Path) -> None:
    """Nothing arrives any more: the run must see the signal all the same, and not wait for a row."""

    def hook(number: int) -> None:
        if number == 3:
            signal.raise_signal(signal.SIGINT)
        assert number < 6, "the signal was not seen between two looks at a silent pipe"

    with pytest.raises(KeyboardInterrupt):
        runs.fit_stream(pipe(data(20, 5), [20] + [0] * 90, hook), tmp_path / "m.psp", OnlinePCA(2))
    assert runs.reopen(tmp_path / "m.psp").row == 20


def test_a_bad_row_in_a_pipe_loses_none_of_those_before_it(tmp_path: Path) -> None:
    X = data(700, 4)
    text = write_csv(tmp_path / "x.csv", X, {650: "1,2,oops,4"}).read_text()
    said = psp("fit", "-", "-k", 2, "-o", tmp_path / "m.psp", input=text, code=1).stderr
    assert "row 650" in said
    run = runs.reopen(tmp_path / "m.psp")
    assert run.row == run.model.n_samples_seen_ == 649
    assert "up to epoch 1, row 649." in said


# Another source on resume


def begun(tmp_path: Path, X: Floats, *options: Any) -> tuple[Path, Path]:
    """A run that was stopped by a bad row, in a CSV file that is then mended."""
    source, model = tmp_path / "x.csv", tmp_path / "m.psp"
    write_csv(source, X, {len(X): "1,2,oops,4,5"})
    psp("fit", source, "-k", 2, "-o", model, "-q", "--set", "block=100", *options, code=1)
    assert runs.reopen(model).row == len(X) - 100
    return source, model


def lines_of(X: Floats, names: str = "x0,x1,x2,x3,x4") -> list[str]:
    return [names, *(",".join(map(repr, row)) for row in X.tolist())]


CHANGES: dict[str, tuple[Any, str]] = {
    "changed beginning": (lambda lines: [lines[0], "9" + lines[1], *lines[2:]], "begins differently"),
    "shrunk": (lambda lines: lines[:300], "has shrunk"),
    "reordered columns": (lambda lines: ["x1,x0,x2,x3,x4", *lines[1:]], "'x0', and is now 'x1'"),
    "other columns": (lambda lines: ["x0,x1,x2,x3,x9", *lines[1:]], "'x9' new"),
    "fewer columns": (lambda lines: [line.rpartition(",")[0] for line in lines], "'x4' missing"),
    "no header": (lambda lines: lines[1:], "."),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_file_is_not_resumed(tmp_path: Path, change: str) -> None:
    X = data(600, 5)
    source, model = begun(tmp_path, X)
    before = model.read_bytes()
    edit, message = CHANGES[change]
    source.write_text("\n".join(edit(lines_of(X))) + "\n")
    said = psp("fit", source, "-o", model, "--resume", "-q", code=1).stderr
    assert message in said, said
    assert said.count("\n") == 1
    assert "psp update" in said
    assert "--force" in said
    assert model.read_bytes() == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--set", "dtype=float32"], "float64"),
        (["--no-header"], "was read with"),
        (["--columns", "x0,x1,x2,x3"], "'x4' missing"),
        (["-k", 3], "n_components = 2, not 3"),
        (["--set", "oversample=1"], "oversample = None, not 1"),
        (["--set", "center=no"], "center = True, not False"),
        (["--set", "whiten=yes"], "whiten = False, not True"),
        (["--set", "block=50"], "block = 100, not 50"),
        (["--algorithm", "ipca"], "algorithm = None, not ipca"),
        (["--standardize"], "standardize = False, not True"),
        (["--half-life", 50], "half_life = None, not 50.0"),
        (["--missing", "impute"], "missing = error, not impute"),
        (["--robust"], "robust = False, not True"),
        (["--set", "axes=stable"], "axes = principal, not stable"),
        (["--exclude", "x1"], "'x1' missing"),
        (["--ids", "x0"], "'x0' missing"),
        (["--time-column", "x0"], "'x0' missing"),
        (["--set", "thousands='"], "read with thousands: none, and now with thousands: '"),
        (["--na-values", "none"], "read with na values: [], and now with na values: ['none']"),
        (["--set", "comment=#"], "read with comment: none, and now with comment: #"),
        (["--set", "skip_rows=5"], "read with"),
        (["--set", "encoding=latin-1"], "read with encoding: utf-8, and now with encoding: latin-1"),
        (["--set", "keep_index=yes"], "read with keep index: False, and now with keep index: True"),
    ],
)
def test_other_options_are_not_resumed(tmp_path: Path, options: list[Any], message: str) -> None:
    X = data(600, 5)
    source, model = begun(tmp_path, X)
    before = model.read_bytes()
    done = psp("fit", source, "-o", model, "--resume", "-q", *options, code=2 if ", not" in message else 1)
    assert message in done.stderr, done.stderr
    assert model.read_bytes() == before


def test_options_are_remembered_on_resume(tmp_path: Path) -> None:
    """What was said once need not be said again: the checkpoint knows how its source is read and fed."""
    X = data(600, 5)
    options = [
        "--set",
        "whiten=yes",
        "--set",
        "oversample=1",
        "--columns",
        "x0,x2,x3",
        "--set",
        "dtype=float32",
    ]
    source, model = write_csv(tmp_path / "x.csv", X), tmp_path / "m.psp"
    psp("fit", source, "-k", 2, "-o", tmp_path / "whole.psp", "-q", "--set", "block=50", *options)
    psp("fit", source, "-k", 2, "-o", model, "-q", "--set", "block=50", *options)
    run = runs.reopen(model)
    assert run.reading == {"columns": ["x0", "x2", "x3"], "dtype": "float32"}
    half = runs.start(open_source(source, **run.reading), OnlinePCA(2, whiten=True, oversample=1, dtype="float32"), block=50)
    half.reading = run.reading
    for _ in runs.steps(half, open_source(source, **run.reading)):
        if half.row == 300:
            break
    runs.checkpoint(half, model)
    psp("fit", source, "-o", model, "--resume", "-q")
    assert model.read_bytes() == (tmp_path / "whole.psp").read_bytes()


def test_another_file_needs_update_or_force(tmp_path: Path) -> None:
    X = data(900, 5)
    parts = [write_csv(tmp_path / f"part{i}.csv", X[300 * i : 300 * (i + 1)]) for i in range(3)]
    model = tmp_path / "m.psp"
    psp("fit", parts[0], "-k", 2, "-o", model, "-q")
    said = psp("fit", parts[1], "-k", 2, "-o", model, "--resume", code=1).stderr
    assert "part0.csv" in said
    assert "part1.csv" in said
    assert runs.reopen(model).model.n_samples_seen_ == 300
    psp("update", model, parts[1], "-q")
    psp("update", model, parts[2], "-q")
    found = OnlinePCA.load(model)
    assert found.n_samples_seen_ == 900
    np.testing.assert_allclose(found.components_, OnlinePCA(2).fit(X).components_, atol=1e-10)
    facts = json.loads(psp("info", model, "--json").stdout)
    assert [Path(entry["name"]).name for entry in facts["before"]] == ["part0.csv", "part1.csv"]
    assert facts["row"] == 300
    said = psp("update", model, parts[1]).stderr
    assert "once more" in said
    assert "does not exist" in psp("update", tmp_path / "none.psp", parts[0], code=2).stderr


def test_an_update_that_failed_does_not_count_rows_twice(tmp_path: Path) -> None:
    X = data(900, 5)
    first, model, more = write_csv(tmp_path / "a.csv", X[:300]), tmp_path / "m.psp", tmp_path / "b.csv"
    psp("fit", first, "-k", 2, "-o", model, "-q", "--set", "block=100")
    write_csv(more, X[300:], {})
    np.save(tmp_path / "b.npy", X[300:])

    stopped = runs.updating(runs.reopen(model), open_source(tmp_path / "b.npy"), 100)
    steps = runs.steps(stopped, open_source(tmp_path / "b.npy"))
    next(steps)
    next(steps)
    runs.checkpoint(stopped, model)
    assert "only up to row 200" in psp("update", model, more, "-q", code=1).stderr
    assert "continuing from there" in psp("update", model, tmp_path / "b.npy").stderr
    found = OnlinePCA.load(model)
    assert found.n_samples_seen_ == 900
    np.testing.assert_allclose(found.components_, OnlinePCA(2).fit(X).components_, atol=1e-10)


def test_any_model_can_be_updated(tmp_path: Path) -> None:
    """One that was saved from Python, or merged, has no source, and learns all the same."""
    X = data(600, 4)
    np.save(tmp_path / "a.npy", X[:200])
    np.save(tmp_path / "b.npy", X[200:])
    OnlinePCA(2).fit(X[:200]).save(tmp_path / "plain.psp")
    psp("update", tmp_path / "plain.psp", tmp_path / "b.npy", "-q")
    psp("fit", tmp_path / "a.npy", "-k", 2, "-o", tmp_path / "one.psp", "-q")
    psp("merge", tmp_path / "one.psp", tmp_path / "one.psp", "-o", tmp_path / "two.psp", "-q")
    psp("update", tmp_path / "two.psp", tmp_path / "b.npy", "-q")
    for name, rows in (("plain", X), ("two", np.concatenate([X[:200], X]))):
        found = runs.reopen(tmp_path / f"{name}.psp")
        assert found.model.n_samples_seen_ == len(rows)
        assert found.row == 400
        np.testing.assert_allclose(found.model.components_, OnlinePCA(2).fit(rows).components_, atol=1e-9)
    assert "without the position" in psp("fit", tmp_path / "b.npy", "-o", _saved(tmp_path), "--resume", code=1).stderr


def _saved(tmp_path: Path) -> Path:
    OnlinePCA(2).fit(data(20, 4)).save(tmp_path / "saved.psp")
    return tmp_path / "saved.psp"


def test_an_update_matches_columns_by_name(tmp_path: Path) -> None:
    X = data(400, 4)
    write_csv(tmp_path / "a.csv", X[:200])
    (tmp_path / "b.csv").write_text("\n".join(lines_of(X[200:, [2, 0, 3, 1]], "x2,x0,x3,x1")) + "\n")
    psp("fit", tmp_path / "a.csv", "-k", 2, "-o", tmp_path / "m.psp", "-q")
    psp("update", tmp_path / "m.psp", tmp_path / "b.csv", "-q")
    found = OnlinePCA.load(tmp_path / "m.psp")
    np.testing.assert_allclose(found.components_, OnlinePCA(2).fit(X).components_, atol=1e-10)
    assert list(found.feature_names_in_) == ["x0", "x1", "x2", "x3"]
    (tmp_path / "c.csv").write_text("\n".join(lines_of(X[:9, :4], "x0,x1,x2,y")) + "\n")
    said = psp("update", tmp_path / "m.psp", tmp_path / "c.csv", code=1).stderr
    assert "'x3' is missing, and 'y' is unknown" in said


def test_a_pipe_that_is_not_the_same(tmp_path: Path) -> None:
    X = data(600, 5)
    lines = [line + "\n" for line in lines_of(X)]
    model = tmp_path / "m.psp"
    psp("fit", "-", "-k", 2, "-o", model, "-q", "--set", "block=100", input="".join(lines[:401]))
    before = model.read_bytes()
    said = psp("fit", "-", "-o", model, "--resume", "-q", input="".join(lines[:201]), code=1).stderr
    assert "ended after 200 rows" in said
    assert "row 400" in said
    assert model.read_bytes() == before
    psp("fit", "-", "-o", model, "--resume", "-q", input="".join(lines))
    assert OnlinePCA.load(model).n_samples_seen_ == 600


# Failures


def test_after_a_failure_with_force_the_old_file_is_not_called_a_checkpoint(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", data(60, 5))
    psp("fit", tmp_path / "x.npy", "-k", 2, "-o", tmp_path / "m.psp", "-q")
    before = (tmp_path / "m.psp").read_bytes()
    bad = write_csv(tmp_path / "bad.csv", data(50, 5), {3: "1,2,x,4,5"})
    said = psp("fit", bad, "-k", 2, "-o", tmp_path / "m.psp", "--force", code=1).stderr
    assert "checkpoint" not in said
    assert "is what it was before this run" in said
    assert (tmp_path / "m.psp").read_bytes() == before


def test_a_source_that_raises_saves_what_was_learned(tmp_path: Path) -> None:
    def broken() -> Any:
        yield from data(500, 5)[:300]
        raise OSError("the network is gone")

    with pytest.raises(OSError, match="network"):
        runs.fit_stream(broken(), tmp_path / "m.psp", OnlinePCA(2), block=100)
    run = runs.reopen(tmp_path / "m.psp")
    assert run.row == run.model.n_samples_seen_ >= 200


def test_a_file_that_changes_while_it_is_read(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "x.csv", data(600, 5))

    def rewrite(run: runs.Run) -> None:
        if run.row == 200:
            write_csv(source, data(600, 5, seed=9))

    with pytest.raises(SourceError, match="changed while it was read"):
        runs.fit_stream(source, tmp_path / "m.psp", OnlinePCA(2), block=100, report=rewrite)
    assert not os.path.exists(tmp_path / "m.psp")
