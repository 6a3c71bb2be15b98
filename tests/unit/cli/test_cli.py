"""The command line: one error policy, columns by name, several files, outputs, what is printed."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from online_psp import OnlinePCA
from online_psp.cli._errors import plain
from online_psp.cli._progress import Progress
from online_psp.cli.main import app
from online_psp.engine.types import Floats
from online_psp.io import model_file, runs
from online_psp.io.sources import open_source
from tests.command import data, psp

NAMES = ["alpha", "beta", "gamma", "delta"]


def table(path: Path, X: Floats, names: list[str] | None = None, ids: list[str] | None = None) -> Path:
    """A CSV file with names, and text in its first column where there are ids."""
    lines = [",".join([*(["id"] if ids else []), *(names or NAMES)])]
    lines += [",".join([*([ids[i]] if ids else []), *map(repr, row)]) for i, row in enumerate(X.tolist())]
    path.write_text("\n".join(lines) + "\n")
    return path


def rows_of(path: Path) -> Any:
    return np.genfromtxt(path, delimiter=",", skip_header=1)


@pytest.fixture
def fitted(tmp_path: Path) -> tuple[Path, Path, Floats]:
    """A model of a table with names: the model file, the table, its rows."""
    X = data(80, 4)
    source = table(tmp_path / "x.csv", X)
    psp("fit", source, "-k", 2, "-o", tmp_path / "m.psp", "-q")
    return tmp_path / "m.psp", source, X


# Errors


def test_every_error_is_one_sentence(tmp_path: Path, fitted: tuple[Path, Path, Floats]) -> None:
    """Usage errors of the parser too: ``psp:``, one line, exit code 2, nothing on standard output."""
    model, source, _ = fitted
    (tmp_path / "text.npy").write_text("nothing")
    cases: list[tuple[list[Any], int, str]] = [
        (["fit"], 2, "sources"),
        (["fit", source, "-k", 2], 2, "--output"),
        (["fit", source, "-k", 2, "-o", "n.psp", "--nonsense"], 2, "--nonsense"),
        (["fit", source, "-k", 2, "-o", "n.psp", "--set", "epochs=x"], 2, "epochs"),
        (["fit", source, "-k", 2, "-o", "n.psp", "--set", "block=0"], 2, "block"),
        (["fit", source, "-k", 2, "-o", "n.psp", "--set", "blok=9"], 2, "no setting blok; write --set name=value with one of alpha, "),
        (["fit", source, "-k", 2, "-o", "n.psp", "--time-axis", 2], 2, "It is a setting: --set time_axis=…"),
        (["fit", source, "-k", 2, "-o", "n.psp", "--set", "block"], 2, "block needs a value"),
        (["fit", source, "-k", 2, "-o", "n.psp", "--set", "center=perhaps"], 2, "yes or no"),
        (["fit", source, "-k", 2, "-o", "n.psp", "--set", "robust=yes"], 2, "an option of its own: --robust"),
        (["fit", source, "-k", 0, "-o", "n.psp"], 2, "-k"),
        (["fit", source, "-k", 1.5, "-o", "n.psp"], 2, "-k"),
        (["fit", source, "-k", "nan", "-o", "n.psp"], 2, "-k"),
        (["fit", source, "-k", 2, "-o", model, "--resume", "--force"], 2, "--force"),
        (["fit", source, "-k", 2, "-o", "n.psp", "--set", "max_memory=lots"], 2, "500M"),
        (["nonsense"], 2, "nonsense"),
        (["transform", model, source, "-o", "s.xyz"], 2, ".parquet"),
        (["fit", tmp_path / "text.npy", "-k", 2, "-o", tmp_path / "n.psp"], 1, "text.npy"),
        (["info", source], 1, "x.csv"),
    ]
    for arguments, code, message in cases:
        done = psp(*arguments, code=code)
        assert done.stderr.startswith("psp: "), done.stderr
        assert message in done.stderr, done.stderr
        assert done.stderr.count("\n") == 1, done.stderr
        assert done.stdout == ""


def test_whatever_is_raised_is_a_sentence_and_a_traceback_only_with_debug(
    fitted: tuple[Path, Path, Floats], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("a reader of some library\nis broken")

    monkeypatch.setattr(runs, "read_stored", broken)
    said = psp("info", fitted[0], code=1).stderr
    assert said == "psp: ZeroDivisionError: a reader of some library. --debug shows where it came from.\n"
    for words in (["--debug", "info"], ["info", "--debug"]):
        done = CliRunner().invoke(app, [*words, str(fitted[0])])
        assert isinstance(done.exception, ZeroDivisionError)


def test_help_speaks_the_words_of_the_ecosystem() -> None:
    for command in ("fit", "update", "transform", "info", "merge", "plot", "evaluate", "bench", "reproduce", "datasets", "demo"):
        assert command in psp("--help").stdout
    shown = psp("fit", "--help", env={"COLUMNS": "300", "TERM": "dumb"}).stdout
    for words in ("Continue from the checkpoint", "--n-components", "--set", "epochs"):
        assert words in shown
    flags = {word for line in shown.splitlines() for word in line.split()[1:3] if word.startswith("--")}
    assert 20 <= len(flags) <= 28, f"what people look for has a flag, everything else is set: {sorted(flags)}"
    assert "--gamma" not in shown
    for command in ("evaluate", "bench"):
        assert "--n-components" in psp(command, "--help", env={"COLUMNS": "300", "TERM": "dumb"}).stdout


# Columns


def test_columns_are_matched_by_name(tmp_path: Path, fitted: tuple[Path, Path, Floats]) -> None:
    model, source, X = fitted
    assert list(OnlinePCA.load(model).feature_names_in_) == NAMES
    order = [2, 0, 3, 1]
    other = table(tmp_path / "y.csv", X[:, order], [NAMES[i] for i in order])
    for path in (source, other):
        psp("transform", model, path, "-o", tmp_path / f"{path.stem}.npy", "-q")
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), np.load(tmp_path / "y.npy"))
    wrong = table(tmp_path / "z.csv", X[:, :3], ["alpha", "beta", "omega"])
    said = psp("transform", model, wrong, "-o", tmp_path / "z.npy", "-q", code=1).stderr
    assert "'gamma', 'delta' are missing, and 'omega' is unknown" in said
    more = table(tmp_path / "w.csv", np.column_stack([X, X[:, 0]]), [*NAMES, "extra"])
    assert "'extra' is unknown" in psp("transform", model, more, "-o", tmp_path / "w.npy", "-q", code=1).stderr
    psp("transform", model, more, "-o", tmp_path / "w.npy", "-q", "--exclude", "extra")
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), np.load(tmp_path / "w.npy"))


@pytest.mark.parametrize(
    "options",
    [["--columns", "alpha,gamma,delta"], ["--exclude", "id,beta"], ["--columns", "1,3-4"], ["--ids", "id", "--exclude", "beta"]],
)
def test_chosen_columns_are_remembered(tmp_path: Path, options: list[str]) -> None:
    X = data(80, 4)
    source = table(tmp_path / "x.csv", X, ids=[f"n{i}" for i in range(80)])
    psp("fit", source, "-k", 2, "-o", tmp_path / "m.psp", "-q", *options)
    psp("transform", tmp_path / "m.psp", source, "-o", tmp_path / "s.npy", "-q")
    expected = OnlinePCA(2).fit(X[:, [0, 2, 3]])
    np.testing.assert_allclose(np.load(tmp_path / "s.npy"), expected.transform(X[:, [0, 2, 3]]), atol=1e-12)


def test_merge_looks_at_names(tmp_path: Path, fitted: tuple[Path, Path, Floats]) -> None:
    model, source, X = fitted
    psp("fit", source, "-k", 2, "-o", tmp_path / "same.psp", "-q")
    psp("merge", model, tmp_path / "same.psp", "-o", tmp_path / "both.psp", "-q")
    assert list(OnlinePCA.load(tmp_path / "both.psp").feature_names_in_) == NAMES
    for names, message in (
        (["beta", "alpha", "gamma", "delta"], "another order"),
        (["alpha", "beta", "gamma", "omega"], "'omega' is unknown"),
    ):
        psp("fit", table(tmp_path / "y.csv", X, names), "-k", 2, "-o", tmp_path / "other.psp", "-q", "--force")
        assert message in psp("merge", model, tmp_path / "other.psp", "-o", tmp_path / "no.psp", code=1).stderr
    assert not (tmp_path / "no.psp").exists()


def test_a_hundred_thousand_names(tmp_path: Path) -> None:
    """More text than a header may have: it is stored beside it, and read again."""
    names = [f"gene {i} with a rather long name" for i in range(100_000)]
    X = np.random.default_rng(0).standard_normal((4, 100_000))
    model = OnlinePCA(1, oversample=0).fit(X)
    runs.give_names(model, names)
    model.save(tmp_path / "m.psp")
    assert list(OnlinePCA.load(tmp_path / "m.psp").feature_names_in_) == names


# Sources and outputs


def test_several_files_are_one_source(tmp_path: Path) -> None:
    X = data(300, 4)
    (tmp_path / "parts").mkdir()
    parts = [table(tmp_path / "parts" / f"part{i}.csv", X[100 * i : 100 * (i + 1)]) for i in range(3)]
    expected = OnlinePCA(2).fit(X)
    for number, sources in enumerate((parts, [tmp_path / "parts"], [tmp_path / "parts" / "part*.csv"])):
        psp("fit", *sources, "-k", 2, "-o", tmp_path / f"{number}.psp", "-q")
        model = OnlinePCA.load(tmp_path / f"{number}.psp")
        assert model.n_samples_seen_ == 300
        np.testing.assert_allclose(model.components_, expected.components_, atol=1e-12)
    psp("transform", tmp_path / "0.psp", *parts, "-o", tmp_path / "s.npy", "-q")
    np.testing.assert_allclose(np.load(tmp_path / "s.npy"), expected.transform(X), atol=1e-11)


def test_a_share_of_the_variance(tmp_path: Path, fitted: tuple[Path, Path, Floats]) -> None:
    _, source, X = fitted
    psp("fit", source, "--n-components", 0.9, "-o", tmp_path / "share.psp", "-q")
    model = OnlinePCA.load(tmp_path / "share.psp")
    assert model.n_components == 0.9
    assert model.n_components_ == OnlinePCA(0.9).fit(X).n_components_ < 4


def test_options_of_text_are_passed_on(tmp_path: Path) -> None:
    X = data(60, 3)
    lines = ["# made by hand", "a;b;c", *(";".join(repr(value).replace(".", ",") for value in row) for row in X.tolist())]
    lines[5] = lines[5].partition(";")[0] + ";none;1,0"
    (tmp_path / "x.txt").write_text("\n".join(lines) + "\n", encoding="utf-16")
    options = [
        "--delimiter",
        ";",
        "--set",
        "decimal=,",
        "--set",
        "comment=#",
        "--set",
        "encoding=utf-16",
        "--na-values",
        "none",
        "--set",
        "max_memory=100M",
    ]
    found = json.loads(
        psp("fit", tmp_path / "x.txt", "-k", 2, "-o", tmp_path / "m.psp", "--on-bad-row", "skip", "--json", "-q", *options).stdout
    )
    assert (found["samples"], found["skipped"]) == (59, 1)
    np.testing.assert_allclose(OnlinePCA.load(tmp_path / "m.psp").mean_, np.delete(X, 3, axis=0).mean(axis=0), atol=1e-12)


@pytest.mark.parametrize("form", ["npy", "csv", "parquet"])
def test_bad_rows_keep_their_places(tmp_path: Path, fitted: tuple[Path, Path, Floats], form: str) -> None:
    model, _, X = fitted
    bad = table(tmp_path / "bad.csv", X)
    lines = bad.read_text().splitlines()
    lines[1] = "1,2,oops,4"
    lines[8] = "1,2,,4"
    lines[80] = "1,2"
    bad.write_text("\n".join(lines) + "\n")
    output = tmp_path / f"s.{form}"
    psp("transform", model, bad, "-o", output, "--on-bad-row", "skip", "-q", "--set", "block=7")
    if form == "npy":
        scores = np.load(output)
    elif form == "csv":
        scores = rows_of(output)
    else:
        import pyarrow.parquet as pq

        scores = np.column_stack([column.to_numpy() for column in pq.read_table(output).columns])
    expected = OnlinePCA.load(model)
    runs.take_names(expected)
    wanted = expected.transform(X)
    wanted[[0, 7, 79]] = np.nan
    np.testing.assert_allclose(scores, wanted, atol=1e-12)


def test_ids_are_carried_through(tmp_path: Path) -> None:
    X, ids = data(30, 4), [f'"patient, {i}"' for i in range(30)]
    source = table(tmp_path / "x.csv", X, ids=ids)
    lines = source.read_text().splitlines()
    lines[4] = '"patient, 3",1,x,3,4'
    source.write_text("\n".join(lines) + "\n")
    psp("fit", source, "-k", 2, "-o", tmp_path / "m.psp", "-q", "--ids", "id", "--on-bad-row", "skip")
    psp("transform", tmp_path / "m.psp", source, "-o", tmp_path / "s.csv", "-q", "--ids", "id", "--on-bad-row", "skip")
    written = (tmp_path / "s.csv").read_text().splitlines()
    assert written[0] == "id,pc1,pc2"
    assert written[4] == '"patient, 3",,'
    assert written[30].startswith('"patient, 29",')
    psp("transform", tmp_path / "m.psp", source, "-o", tmp_path / "s.parquet", "-q", "--ids", "id", "--on-bad-row", "skip")
    assert ".csv or .parquet" in psp("transform", tmp_path / "m.psp", source, "-o", tmp_path / "s.npy", "--ids", "id", code=2).stderr


def test_times_are_carried_through(tmp_path: Path) -> None:
    X = data(20, 4)
    lines = ["when," + ",".join(NAMES), *(f"2024-01-{i + 1:02}T00:00:00," + ",".join(map(repr, row)) for i, row in enumerate(X.tolist()))]
    (tmp_path / "x.csv").write_text("\n".join(lines) + "\n")
    psp("fit", tmp_path / "x.csv", "-k", 2, "-o", tmp_path / "m.psp", "-q", "--time-column", "when")
    written = psp("transform", tmp_path / "m.psp", tmp_path / "x.csv", "-o", "-", "-q", "--time-column", "when").stdout.splitlines()
    assert written[0] == "when,pc1,pc2"
    assert written[3].startswith('"2024-01-03T00:00:00')


# What is printed


def test_nothing_from_a_file_steers_the_terminal(tmp_path: Path) -> None:
    hostile = "\x1b]0;owned\x07\x1b[2J\u202e\x9b31m\ud800"
    model = OnlinePCA(2).fit(data(30, 4))
    path = tmp_path / "m.psp"
    runs.checkpoint(runs.start(open_source(data(30, 4)), model), path)
    found = model_file.read(path)
    found.run["source"] = {**found.run["source"], "name": hostile, "feature_names": [hostile, "b", "c", "d"]}
    found.run["before"] = [{"name": hostile, "rows": hostile}]
    model_file.write(path, model_file.Contents(hostile, found.arrays, found.state, found.run))
    shown = psp("info", path, code=1)
    model_file.write(path, model_file.Contents(found.kind, found.arrays, found.state, found.run))
    for done in (
        shown,
        psp("info", path),
        psp("info", path, "--json"),
        psp("transform", path, hostile[:-1], "-o", tmp_path / "s.npy", code=2),
    ):
        printed = done.stdout + done.stderr
        assert not set(printed) & set("\x1b\x07\x9b\u202e"), repr(printed)
    assert plain("a\nb\tc\x1b") == "a b c\\x1b"


class Written:
    """A run and its saving, as the progress sees them."""

    def __init__(self) -> None:
        self.run = runs.start(open_source(data(1000, 6)), OnlinePCA(2), block=100)
        self.run.model.partial_fit(data(100, 6))
        self.run.row = 100
        self.saving = runs.Saving("m.psp")


def test_progress_in_a_log_is_a_line_every_ten_seconds(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    parts = Written()
    with Progress(parts.run, parts.saving, shown=True) as progress:
        for _ in range(25):
            clock[0] += 1.0
            parts.run.row += 10
            parts.run.passed += 10
            if clock[0] == 115.0:
                parts.saving.last = clock[0]
            progress.update()
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    for part in ("200 of 1,000 rows", "80 s left", "10 rows/s", "no checkpoint yet", "MB"):
        assert part in said[0], said[0]
    assert "checkpoint 5 s ago" in said[1]
    with Progress(parts.run, parts.saving, shown=False) as progress:
        clock[0] += 100.0
        progress.update()
    assert capsys.readouterr().err == ""


def test_a_source_is_never_overwritten(tmp_path: Path, fitted: tuple[Path, Path, Floats]) -> None:
    model, source, _ = fitted
    (tmp_path / "link.csv").symlink_to(source)
    before = source.read_bytes(), model.read_bytes()
    for arguments in (
        ["fit", source, "-k", 2, "-o", source, "--force"],
        ["fit", source, "-k", 2, "-o", tmp_path / "link.csv", "--force"],
        ["transform", model, source, "-o", source, "--force"],
    ):
        assert "source as well as the output" in psp(*arguments, code=2).stderr
    assert before == (source.read_bytes(), model.read_bytes())


# What may run
