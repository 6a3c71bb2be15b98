"""Outputs: one writer at a time, whole files, and nothing but regular files."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from online_psp import OnlinePCA
from online_psp.io import runs
from online_psp.io import runs as streams
from online_psp.io.files import OutputInUseError, claimed, replacing
from tests import ROOT
from tests.command import PSP, data, psp, write_csv
from tests.torture.kills import SOURCES
from tests.unit.io.test_guard_files import rows

HOLDER = """
import sys, time
from online_psp.io.files import claimed
with claimed(sys.argv[1]):
    open(sys.argv[1] + ".held", "w").close()
    time.sleep(60)
"""


def hold(path: Path) -> subprocess.Popen[bytes]:
    """Another process that holds an output."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)])
    while not Path(f"{path}.held").exists():
        assert process.poll() is None, "the holder ended before it held the output"
        threading.Event().wait(0.01)
    os.unlink(f"{path}.held")
    return process


def test_a_second_fit_is_refused_and_names_the_first(tmp_path: Path) -> None:
    source, model = rows(tmp_path), tmp_path / "m.psp"
    holder = hold(model)
    try:
        said = psp("fit", source, "-k", 2, "-o", model, code=1).stderr
        assert f"process {holder.pid}" in said
        assert said.startswith("psp: ")
        assert said.count("\n") == 1
        (tmp_path / "link.psp").symlink_to(model)
        assert f"process {holder.pid}" in psp("fit", source, "-k", 2, "-o", tmp_path / "link.psp", code=1).stderr
        assert not model.exists()
        with pytest.raises(OutputInUseError, match=str(holder.pid)):
            runs.fit_stream(source, model, OnlinePCA(2))
    finally:
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
    assert (tmp_path / ".m.psp.lock").exists(), "a killed process cannot clean up, or this test shows nothing"
    psp("fit", source, "-k", 2, "-o", model, "-q")
    assert OnlinePCA.load(model).n_samples_seen_ == 60
    assert sorted(os.listdir(tmp_path)) == ["link.psp", "m.psp", "x.npy"]


def _count_up(path: str, turns: int) -> None:
    """Add one to the number in a file, under the lock, so often."""
    for _ in range(turns):
        while True:
            try:
                with claimed(path), replacing(path) as file:
                    before = int(Path(path).read_text() or "0") if os.path.exists(path) else 0
                    file.write(str(before + 1).encode())
                break
            except OutputInUseError:
                pass


def test_many_processes_take_turns(tmp_path: Path) -> None:
    """A lock that two can hold, or that is lost between unlinking and opening, loses a turn."""
    path = str(tmp_path / "n")
    workers = [multiprocessing.get_context("fork").Process(target=_count_up, args=(path, 40)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    assert Path(path).read_text() == "160"
    assert os.listdir(tmp_path) == ["n"]


@pytest.mark.usefixtures("hear_ctrl_c")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_before_the_first_row_is_a_sentence_and_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    """The source is silent from the beginning, so that the run is still starting when the signal comes."""
    command = [*PSP, "fit", "-", "-k", "2", "-o", str(tmp_path / "m.psp"), "--monitor", str(tmp_path / "a.csv")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        for _ in range(6000):
            if any(tmp_path.iterdir()):  # the output is held
                break
            time.sleep(0.01)
        process.send_signal(number)
        assert process.stderr is not None
        said = process.stderr.read()
    assert process.returncode == 130, (process.returncode, said)
    assert said == "psp: Stopped before the first row was learned; nothing was written.\n"
    assert not list(tmp_path.iterdir()), "no model, no lock and no part of a file may be left"


def test_a_pipe_and_its_resuming(tmp_path: Path) -> None:
    X = data(600, 8)
    text = write_csv(tmp_path / "x.csv", X).read_text()
    expected = OnlinePCA(3).fit(X)
    with open(tmp_path / "x.csv", "rb") as pipe:
        subprocess.run([*PSP, "fit", "-", "-k", "3", "-o", str(tmp_path / "m.psp"), "-q"], stdin=pipe, check=True, timeout=60)
    np.testing.assert_allclose(OnlinePCA.load(tmp_path / "m.psp").components_, expected.components_, atol=1e-12)
    lines = text.splitlines(keepends=True)
    psp("fit", "-", "-k", 3, "-o", tmp_path / "p.psp", "-q", "--force", input="".join(lines[:301]))
    psp("fit", "-", "-k", 3, "-o", tmp_path / "p.psp", "-q", "--resume", input=text)
    model = OnlinePCA.load(tmp_path / "p.psp")
    assert model.n_samples_seen_ == 600
    np.testing.assert_allclose(model.components_, expected.components_, atol=1e-12)


@pytest.mark.usefixtures("hear_ctrl_c")
def test_ctrl_c_writes_a_checkpoint_and_says_how_to_go_on(tmp_path: Path) -> None:
    X = data(60_000, 60)
    np.save(tmp_path / "x.npy", X)
    psp("fit", tmp_path / "x.npy", "-k", 3, "-o", tmp_path / "whole.psp", "-q", "--set", "block=16")
    command = [*PSP, "fit", str(tmp_path / "x.npy"), "-k", "3", "-o", str(tmp_path / "m.psp"), "-q", "--set", "block=16"]
    with subprocess.Popen([*command, "--checkpoint-every", "100"], stderr=subprocess.PIPE, text=True) as process:
        while not (tmp_path / "m.psp").exists():
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        said = process.stderr.read()
    assert process.returncode == 130
    assert "To continue: psp fit" in said
    assert said.rstrip().endswith("--resume")
    run = streams.reopen(tmp_path / "m.psp")
    assert 0 < run.row == run.model.n_samples_seen_ < 60_000
    assert f"row {run.row}" in said
    psp("fit", tmp_path / "x.npy", "-k", 3, "-o", tmp_path / "m.psp", "-q", "--set", "block=16", "--resume")
    assert (tmp_path / "m.psp").read_bytes() == (tmp_path / "whole.psp").read_bytes()


ATTACK = """
import random, sys
from pathlib import Path
from tests.torture.kills import kills, pipes
folder, kind, seed = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
tally = pipes(folder, random.Random(seed)) if kind == "pipe" else kills(folder, random.Random(seed), 10, kind)
print(tally.tried, tally.lost)
"""


@pytest.mark.parametrize(("kind", "seed"), [(kind, seed) for seed, kind in enumerate([*SOURCES, "pipe", "pipe", "pipe"])])
def test_kills_and_signals_at_random_moments_lose_no_row(tmp_path: Path, kind: str, seed: int) -> None:
    """Of a run over each kind of source, killed ten times or until it has ended, and of slow pipes; `make torture` goes on."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", ATTACK, str(tmp_path), kind, str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=environment, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    tried, _, lost = done.stdout.strip().splitlines()[-1].partition(" ")
    assert int(tried) > 0
    assert lost == "[]"
