"""Methods in processes of their own: memory, crashes, time limits, Ctrl-C, and the commands from end to end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from online_psp.suite import How, Plan, Row, evaluate, read_rows, run
from online_psp.suite.rows import DONE, finished, select
from tests import ROOT
from tests.command import PSP
from tests.somebodys import Mine
from tests.unit.suite.test_runs import trial

HERE = "tests.somebodys"
SPIKED = "spiked:D=400,K=3,rho=0.01,N=5000"


@pytest.fixture(scope="module")
def apart() -> list[Row]:
    """Good and bad neighbours, together."""
    names = ("Mine", "KeepsAll", "Dies", "Hangs")
    plan = Plan(trials=2, builtin=False, jobs=2, timeout=10.0)
    return evaluate(SPIKED, algorithms={name: f"{HERE}:{name}" for name in names}, plan=plan).rows


def test_a_class_that_kills_its_process_or_hangs_is_a_failed_row(apart: list[Row]) -> None:
    for label, note in (("Dies", "killed by SIGABRT"), ("Hangs", "it took more than 10 s")):
        notes = [row.note for row in select(apart, label=label, metric="failed")]
        assert len(notes) == 2, label
        assert all(note in each for each in notes), notes
    assert len(select(apart, label="Mine", metric="score")) == 2, "the others go on"


def test_a_class_that_keeps_all_rows_cannot_hide_it(apart: list[Row]) -> None:
    most = {label: max(row.value for row in select(apart, label=label, metric="growth_mib")) for label in ("Mine", "KeepsAll")}
    rows_mib = 5000 * 400 * 8 / 2**20
    assert select(apart, label="KeepsAll", metric="score")[0].value < 1e-6, "it is exact"
    assert most["KeepsAll"] > rows_mib > most["Mine"], f"{rows_mib:.0f} MiB of rows, and {most} were seen"


def test_the_process_gives_what_this_process_gives(apart: list[Row]) -> None:
    here = evaluate(SPIKED, algorithms={"Mine": Mine}, plan=Plan(trials=2, builtin=False, jobs=0)).rows
    for metric in ("err_batch", "err_pop", "score"):
        one, other = ([row.value for row in select(rows, label="Mine", metric=metric)] for rows in (apart, here))
        np.testing.assert_allclose(one, other, rtol=1e-9)


def test_same_seed_same_rows_however_many_processes(tmp_path: Path) -> None:
    records = [trial(seed=seed) for seed in range(4)]
    one, two = (run(records, tmp_path / f"{jobs}.csv", How(jobs)) for jobs in (0, 2))
    assert [(row.key, row.t, row.value) for row in one if row.metric != DONE] == [
        (row.key, row.t, row.value) for row in two if row.metric != DONE
    ]


SCRIPT = """
import numpy as np
from online_psp.suite import Plan, evaluate

class Local:
    def __init__(self, K, D):
        self.K, self.C = K, np.zeros((D, D))
    def fit_next(self, x):
        self.C += np.outer(x, x)
    def get_components(self):
        return np.linalg.eigh(self.C)[1][:, -self.K :]

X = np.random.default_rng(0).standard_normal((200, 8)) * np.linspace(3, 0.1, 8)
print(evaluate(X, K=2, algorithms={"local": Local}, plan=Plan(trials=1, builtin=False)).table())
"""


def test_a_script_needs_no_guard_and_its_classes_travel(tmp_path: Path) -> None:
    """A file beside it that is named like a module of the library is no trap either."""
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "| local |" in done.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT to a process here")
@pytest.mark.usefixtures("hear_ctrl_c")
def test_ctrl_c_leaves_saved_rows_and_no_processes(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    words = ["evaluate", "-d", "spiked:D=30,K=2,N=300", "-a", "fsm", "--no-builtin", "-a", f"{HERE}:Hangs", "--trials", "1", "--out", "out"]
    parent = subprocess.Popen([*PSP, *words], cwd=tmp_path, env=environment, stderr=subprocess.PIPE, start_new_session=True)
    path, deadline = tmp_path / "out" / "rows.csv", time.monotonic() + 120
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(2.0)
    os.killpg(parent.pid, signal.SIGINT)  # as a terminal does: to parent and children
    _, told = parent.communicate(timeout=60)
    assert parent.returncode == 130, told
    assert b"continues from there" in told
    for _ in range(200):
        try:
            os.killpg(parent.pid, 0)
        except ProcessLookupError:
            break
        time.sleep(0.05)
    else:
        pytest.fail("a process outlived its parent")
    finished(read_rows(path))  # whatever was done can be read


def test_the_commands_together(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("from tests.somebodys import Mine\n")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}

    def psp(*words: str) -> str:
        done = subprocess.run([*PSP, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=600)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    said = psp(
        "evaluate",
        "-d",
        "spiked:D=20,K=2,N=300",
        "-a",
        "mine:Mine",
        "-a",
        "fsm",
        "--no-builtin",
        "--trials",
        "1",
        "--track",
        "sorted",
        "--out",
        "ev",
    )
    assert "searched for in" in said
    assert "Mine" in said
    assert "Mine" in psp("leaderboard", "ev/rows.csv", "-o", "board.html")
    assert "<h1>" in (tmp_path / "board.html").read_text(encoding="utf-8")
    said = psp("bench", "--quick", "-d", "digits", "--only", "OnlinePCA", "--only", "5D", "--out", "b")
    assert "equal error" in said
    assert (tmp_path / "b" / "others.md").exists()
    with Image.open(tmp_path / "b" / "comparison.png") as picture:
        assert picture.width > 500
