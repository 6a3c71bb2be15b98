"""The paper's algorithms fitted to files, as they are: resumable, rows as given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from online_psp import ALGORITHMS, FSM, OnlinePCA
from online_psp.cli.main import app
from online_psp.io.model_file import ModelFileError
from online_psp.io.runs import Run, Stopped, fit_stream
from tests.oracle import NAMES, spiked

X = spiked(500, 20, 4) + 0.3  # not centred


def psp(*arguments: Any) -> Any:
    return CliRunner().invoke(app, [str(each) for each in arguments])


def source(folder: Path) -> Path:
    np.save(folder / "rows.npy", X)
    return folder / "rows.npy"


@pytest.mark.parametrize("name", NAMES)
def test_a_fit_is_that_of_the_class(name: str, tmp_path: Path) -> None:
    ended = psp("fit", source(tmp_path), "-k", 4, "--algorithm", name, "-o", tmp_path / "m.psp", "--set", "block=100")
    assert ended.exit_code == 0, ended.output
    assert "nothing is centred" in ended.stderr
    assert "500 samples" in ended.stdout
    expected = ALGORITHMS[name](4, 20)
    for part in np.split(X, 5):
        expected.fit_block(part)
    found = ALGORITHMS[name].load(tmp_path / "m.psp")
    assert np.array_equal(found.get_components(), expected.get_components())


@pytest.mark.parametrize("name", NAMES)
def test_a_run_that_was_stopped_is_resumed(name: str, tmp_path: Path) -> None:
    def stop(run: Run) -> None:
        if run.row == 200:
            raise Stopped

    rows, path = source(tmp_path), tmp_path / "m.psp"
    with pytest.raises(Stopped):
        fit_stream(rows, path, ALGORITHMS[name](4, 20), block=100, report=stop)
    assert ALGORITHMS[name].load(path).t == 200
    resumed = fit_stream(rows, path, resume=True)
    whole = fit_stream(rows, tmp_path / "whole.psp", ALGORITHMS[name](4, 20), block=100)
    assert type(resumed) is ALGORITHMS[name]
    assert resumed.t == 500
    assert np.array_equal(resumed.get_components(), whole.get_components())


def test_the_command_resumes_and_updates(tmp_path: Path) -> None:
    rows, path = source(tmp_path), tmp_path / "m.psp"
    assert psp("fit", rows, "-k", 4, "--algorithm", "fsm", "-o", path).exit_code == 0
    assert psp("fit", rows, "-k", 4, "--algorithm", "fsm", "-o", path, "--resume").exit_code == 0
    assert FSM.load(path).t == 500, "nothing is learned twice"
    ended = psp("fit", rows, "-k", 4, "--algorithm", "sm", "-o", path, "--resume")
    assert ended.exit_code == 2
    assert "begun with algorithm = fsm, not sm" in ended.stderr
    ended = psp("update", path, rows, "--json")
    assert ended.exit_code == 0, ended.output
    assert json.loads(ended.stdout)["samples"] == FSM.load(path).t == 1000


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--algorithm", "oja"], "--algorithm must be one of fsm, sm, ipca, ccipca"),
        (["--algorithm", "fsm", "--half-life", "100"], "leave half_life out"),
        (["--algorithm", "fsm", "--monitor", "table.csv"], "leave monitor out"),
        (["--algorithm", "fsm", "-k", "0.9"], "whole number of components"),
    ],
)
def test_what_does_not_go_with_them_is_refused(options: list[str], word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ended = psp("fit", source(tmp_path), "-k", 4, "-o", "m.psp", *options)
    assert ended.exit_code == 2
    assert word in " ".join(ended.stderr.split())
    assert not (tmp_path / "m.psp").exists()


def test_other_commands_say_what_the_file_holds(tmp_path: Path) -> None:
    fit_stream(source(tmp_path), tmp_path / "m.psp", FSM(4, 20))
    with pytest.raises(ModelFileError, match="not an OnlinePCA"):
        OnlinePCA.load(tmp_path / "m.psp")
    ended = psp("transform", tmp_path / "m.psp", source(tmp_path), "-o", tmp_path / "scores.npy")
    assert ended.exit_code != 0
    assert "fsm algorithm" in ended.stderr
