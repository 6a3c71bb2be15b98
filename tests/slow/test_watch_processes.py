"""The live page without a browser: what is handed over and kept, who can see it, and that learning never depends on it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from online_psp import OnlinePCA
from online_psp.watch import Dashboard
from tests.command import psp
from tests.unit.watch.test_watch import K, data


def test_an_onlooker_that_fails_is_left_and_the_fit_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("the page is broken")

    waits = [sys.executable, "-c", "import sys; sys.stdin.buffer.read()"]  # in place of the serving process
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    monkeypatch.setattr("online_psp.watch.dashboard._start", lambda: subprocess.Popen(waits, **pipes))
    monkeypatch.setattr(Dashboard, "update", fail)
    np.save(tmp_path / "x.npy", data(300))
    done = psp("fit", tmp_path / "x.npy", "-k", K, "-o", tmp_path / "m.psp", "--watch", "--port", 0)
    assert "the page is broken" in done.stderr
    assert done.stderr.count("the page is broken") == 1
    assert OnlinePCA.load(tmp_path / "m.psp").n_samples_seen_ == 300


def test_the_serving_process_ends_with_the_learner() -> None:
    code = (
        "import os, time\n"
        "from online_psp import OnlinePCA\n"
        "from online_psp.watch import Dashboard, PageSettings\n"
        "page = Dashboard(OnlinePCA(2), PageSettings(port=0))\n"
        "page.wait()\n"
        "print(page.address['process'], flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    process = int(done.stdout)
    for _ in range(600):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if "Z" not in Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1][:3]:
                time.sleep(0.05)
                continue
        return
    os.kill(process, signal.SIGKILL)
    pytest.fail("the serving process outlives its learner")


def test_importing_the_package_does_not_import_bokeh() -> None:
    code = "import sys, online_psp, online_psp.cli.main; online_psp.watch.Dashboard; sys.exit('bokeh' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
