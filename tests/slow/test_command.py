"""The command line: one error policy, columns by name, several files, outputs, what is printed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from tests.command import PSP, data, psp, write_csv


def test_completion_is_installed(tmp_path: Path) -> None:
    environment = {**os.environ, "HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    done = subprocess.run([*PSP, "--install-completion", "bash"], env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    scripts = list(tmp_path.rglob("*.sh"))
    assert scripts, "no completion script was written"
    assert "_PSP_COMPLETE=complete_bash" in scripts[0].read_text()
    for words, expected in {"psp tran": "transform", "psp fit --che": "--checkpoint-every", "psp fit --set ep": "epochs="}.items():
        asked = {"_PSP_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        done = subprocess.run(PSP, env={**environment, **asked}, capture_output=True, text=True, check=False, timeout=60)
        assert done.stdout.split() == [expected], f"{words} was completed by {done.stdout!r}"


def test_start_up_is_light() -> None:
    code = (
        "import sys\nfrom online_psp.cli.main import app\napp(['--help'], standalone_mode=False)\n"
        "heavy = {'numba', 'pandas', 'pyarrow', 'matplotlib', 'sklearn', 'scipy', 'h5py', 'polars'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


def test_scores_on_standard_output(tmp_path: Path) -> None:
    X = data(80, 4)
    source, model = write_csv(tmp_path / "x.csv", X), tmp_path / "m.psp"
    psp("fit", source, "-k", 2, "-o", model, "-q")
    shown = psp("transform", model, source, "-o", "-").stdout.splitlines()
    assert shown[0] == "pc1,pc2"
    assert len(shown) == len(X) + 1
    command = f"{' '.join(PSP)} transform {model} {source} -o - -q | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout == "pc1,pc2\n"
    assert done.stderr == ""


def test_evaluate_looks_into_the_working_folder_only_for_a_module_that_is_named(tmp_path: Path) -> None:
    """A ``pandas.py`` beside the data must not be run, whether an algorithm is named or not."""
    np.save(tmp_path / "x.npy", data(60, 5))
    for name in ("pandas", "pyarrow", "polars", "h5py"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'owned')!r}, 'w').close()\nraise ImportError\n")
    (tmp_path / "mine.py").write_text("from online_psp import FSM\n\n\nclass Mine(FSM):\n    pass\n")
    common = [*PSP, "evaluate", "--data", "x.npy", "-k", "2", "--trials", "1", "--jobs", "1", "--out", "out"]
    environment = {**os.environ, "PYTHONSAFEPATH": "1"}  # python -m puts the folder on the path itself; the installed command does not
    plain_run = subprocess.run(common, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert plain_run.returncode == 0, plain_run.stderr
    assert "searched for in" not in plain_run.stderr
    named = [*common[:-1], "out2", "--algorithm", "mine:Mine", "--no-builtin"]
    done = subprocess.run(named, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert f"searched for in {tmp_path}" in done.stderr.replace("\n", "")
    assert not (tmp_path / "owned").exists(), "a module beside the data was run"


def test_the_command_line_starts_without_heavy_imports() -> None:
    heavy = "{'numba', 'sklearn', 'matplotlib', 'scipy', 'river', 'proSVD'}"
    code = f"import sys, online_psp.cli.main; print(sorted({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_importing_is_light() -> None:
    commands_only = "import sys, online_psp.cli.suite, online_psp.cli.datasets; sys.exit('numba' in sys.modules)"
    everything = "import sys; from online_psp.suite import evaluate, reproduce; sys.exit('matplotlib' in sys.modules)"
    for code in (commands_only, everything):
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
