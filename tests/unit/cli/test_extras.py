"""What is not installed is named, with the line that installs it, before any work is done."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from online_psp import OnlinePCA
from online_psp.cli.main import app
from online_psp.io.sources import MissingExtraError, open_source


@pytest.fixture
def hidden(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in [name for name in sys.modules if name.split(".")[0] in ("matplotlib", "PIL")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("matplotlib", "PIL"):
        monkeypatch.setitem(sys.modules, name, None)
        assert importlib.util.find_spec(name) is None, f"{name} should look as if it were not installed"
    return monkeypatch


@pytest.mark.parametrize(
    "arguments",
    [
        ["demo"],
        ["bench", "--quick"],
        ["reproduce", "fig2", "--quick"],
        ["evaluate", "--data", "digits", "-k", "4"],
        ["leaderboard", "rows.csv"],
        ["plot", "model.psp", "-o", "model.png"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_commands_that_draw_name_matplotlib_first(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hidden: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    OnlinePCA(2).fit(np.eye(5)).save("model.psp")
    before = sorted(path.name for path in tmp_path.iterdir())
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2, f"psp {arguments[0]} without matplotlib should be wrong usage: {result.output}"
    assert result.stderr.strip() == f"psp: psp {arguments[0]} needs matplotlib: pip install 'online-psp[plot]'."
    assert sorted(path.name for path in tmp_path.iterdir()) == before, "nothing should be written where the command cannot end"


def test_a_folder_of_pictures_names_pillow(tmp_path: Path, hidden: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.pgm").write_bytes(b"P5 2 1 255\n\x00\xff")
    with pytest.raises(MissingExtraError, match=r"online-psp\[images\]"):
        open_source(tmp_path)
