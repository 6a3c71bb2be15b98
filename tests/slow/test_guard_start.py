"""Signals that end a command, and modules that lie beside the data."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from online_psp import OnlinePCA
from online_psp.cli.main import app
from online_psp.io import files, runs
from online_psp.io.pacing import Stop, unbroken

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def test_an_interrupt_anywhere_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The parser turns it into an exit code without a word."""
    OnlinePCA(1).fit(np.eye(3)).save(tmp_path / "m.psp")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(runs, "read_stored", interrupted)
    code = app(["info", str(tmp_path / "m.psp")], standalone_mode=False)
    assert (code, capsys.readouterr().err) == (130, "psp: Stopped.\n")


@pytest.mark.parametrize("number", _SIGNALS)
def test_a_second_signal_waits_for_the_end_of_what_must_be_whole(number: signal.Signals) -> None:
    """A terminal that is closed may send several: rows would be learned, and the position not moved."""
    before, done = signal.signal(number, lambda *_: None), []

    def step() -> None:
        with Stop([number]):
            signal.raise_signal(number)
            with unbroken():
                signal.raise_signal(number)
                done.append("whole")

    try:
        with pytest.raises(KeyboardInterrupt):
            step()
        assert done == ["whole"], "the second signal came in between"
    finally:
        signal.signal(number, before)


def _plant(folder: Path) -> Path:
    """Modules that take the place of others where Python looks into the folder first; what is written where one is run."""
    for name in ("typing", "numpy", "typer", "pandas", "matplotlib", "typing_extensions", "random", "json"):
        (folder / f"{name}.py").write_text(f"open({str(folder / 'run')!r}, 'a').write('{name} ')\n")
    return folder / "run"


def _use_no_other_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let processes look where Python looks by itself, and where this package is; what the environment says is trusted."""
    monkeypatch.setenv("PYTHONPATH", str(Path(files.__file__).parents[2]))
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)


@pytest.mark.parametrize("module", ["online_psp", "online_psp.cli"])
def test_python_m_does_not_look_beside_the_data(tmp_path: Path, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = _plant(tmp_path)
    _use_no_other_path(monkeypatch)
    ended = subprocess.run(
        [sys.executable, "-m", module, "--version"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.stdout.startswith("psp "), ended.stderr
    assert not run.exists(), f"run from beside the data: {run.read_text()}"


_FILLED = """
import os
from online_psp.cli.start import fill_standard_streams
fill_standard_streams()
number = os.open("x", os.O_CREAT | os.O_RDWR)
with open("number", "w") as file:
    file.write(str(number))
os.write(1, b"heard")
"""


@pytest.mark.parametrize("closed", ["", "<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_an_output_is_never_in_the_place_of_a_standard_stream(tmp_path: Path, closed: str) -> None:
    """Libraries write to standard error by its number; where that was closed it would be the number of the model file."""
    line = ["bash", "-c", f'"$@" {closed}', "bash", sys.executable, "-c", _FILLED]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, timeout=120, check=True)
    assert int((tmp_path / "number").read_text()) > 2
    assert (tmp_path / "x").read_bytes() == b""
    assert done.stdout == (b"" if ">&-" in closed.split() else b"heard"), "streams that are open are left alone"
