"""Evaluate: everybody's algorithm, each in a process of its own; tracks; provenance; the leaderboard; data sets of one's own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from online_psp.experiments.rows import finished, read_rows
from online_psp.experiments.runner import run
from tests import ROOT
from tests.unit.suite.test_evaluate import HERE
from tests.unit.suite.test_experiments import slow


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT to a process here")
@pytest.mark.usefixtures("hear_ctrl_c")
def test_ctrl_c_ends_the_processes_of_others_too(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", np.random.default_rng(0).standard_normal((300, 12)))
    root = ROOT
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")]), "TMPDIR": str(tmp_path)}
    words = ["evaluate", "-d", "X.npy", "-k", "2", "--no-builtin", "-a", f"{HERE}:Hangs", "--out", "out"]
    parent = subprocess.Popen(
        [sys.executable, "-m", "online_psp.cli", *words], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 60
    while not (begun := list(tmp_path.glob("psp-evaluate-*/curve0/pid"))) and time.monotonic() < deadline:
        time.sleep(0.05)
    child = int(begun[0].read_text())
    parent.send_signal(signal.SIGINT)
    _, told = parent.communicate(timeout=20)
    assert parent.returncode == 130
    assert b"--resume" in told
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


SCRIPT = """
from pathlib import Path
import sys
from online_psp.experiments.runner import run
from tests.unit.suite.test_experiments import slow
if __name__ == "__main__":
    try:
        run(slow(), sys.argv[1], jobs=2)
    except KeyboardInterrupt:
        sys.exit(130)
"""


def ends(group: int) -> bool:
    """Whether all processes of a group are gone within a while."""
    for _ in range(200):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT to a process here")
@pytest.mark.usefixtures("hear_ctrl_c")
def test_ctrl_c_leaves_saved_rows_and_no_processes(tmp_path: Path) -> None:
    path, script = tmp_path / "rows.csv", tmp_path / "script.py"
    script.write_text(SCRIPT)
    root = ROOT
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])}
    process = subprocess.Popen([sys.executable, str(script), str(path)], cwd=root, env=environment, start_new_session=True)
    deadline = time.monotonic() + 300  # of a machine that is busy with other things
    while len(finished(read_rows(path))) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to parent and children
    assert process.wait(timeout=120) == 130
    done = finished(read_rows(path))
    assert 2 <= len(done) < 60
    assert ends(process.pid), "a worker outlived its parent"
    first = slow()[:2]
    assert [row.key for row in run(first, path)] == [row.key for record in first for row in done.get(record.key, run([record], path))]
