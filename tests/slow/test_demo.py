"""``psp demo``: what it shows, and that nothing is compiled while something is timed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from online_psp.cli.main import app
from online_psp.experiments import demo

METHODS = ("FSM", "IPCA", "CCIPCA", "IncrementalPCA", "OnlinePCA")
ROWS = 1200

TIMED = f"""
import gc
from numba.core.dispatcher import Dispatcher
from online_psp.experiments import demo
from online_psp.experiments.demo_kernels import compiling_beside

def versions():
    made = [kernel for kernel in gc.get_objects() if isinstance(kernel, Dispatcher) and kernel.py_func.__module__.startswith("online_psp")]
    return {{(kernel.py_func.__qualname__, signature) for kernel in made for signature in kernel.signatures}}

with compiling_beside() as compile_all:
    compile_all()
before = versions()
assert len(before) > 10, before
results = list(demo.run([problem._replace(X=problem.X[:{ROWS}]) for problem in demo.problems()]))
print(len(results), sorted(versions() - before))
"""


@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled")
def test_everything_is_compiled_before_anything_is_timed() -> None:
    """In a process of its own: in this one, other tests have compiled most of it."""
    done = subprocess.run([sys.executable, "-c", TIMED], capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "10 []", f"compiled or loaded while something was timed: {done.stdout}"


def test_the_demo_shows_every_method_a_picture_and_what_to_do_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = [problem._replace(X=problem.X[:ROWS]) for problem in demo.problems()]
    monkeypatch.setattr(demo, "problems", lambda: short)
    picture = tmp_path / "demo.png"
    done = CliRunner().invoke(app, ["demo", "--out", str(picture)], env={"COLUMNS": "120"})
    assert done.exit_code == 0, done.output
    shown = done.output
    for problem in short:
        assert problem.name in shown
    for method in METHODS:
        assert sum(line.strip("│ ").startswith(method + " ") for line in shown.splitlines()) == len(short), (
            f"{method} is not in every table"
        )
    assert picture.read_bytes().startswith(b"\x89PNG")
    for step in ("psp fit", "psp bench", "README.md", "docs"):
        assert step in shown.split("Next:")[1], f"{step} is not among what to do next"
