"""What is around a run: standard streams that are closed, links, an output that somebody else writes, full disks."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from online_psp import OnlinePCA
from online_psp.io import files
from tests.command import PSP, data, psp, write_csv


def rows(tmp_path: Path, n: int = 600) -> Path:
    np.save(tmp_path / "x.npy", data(n, 6))
    return tmp_path / "x.npy"


def in_shell(line: str, *arguments: Any) -> subprocess.CompletedProcess[str]:
    """A line of shell with the command as ``"$@"``."""
    command = [*PSP, *map(str, arguments)]
    return subprocess.run(["bash", "-c", line, "bash", *command], capture_output=True, text=True, timeout=120, check=False)


def test_standard_input_that_is_closed_is_said(tmp_path: Path) -> None:
    done = in_shell('"$@" <&-', "fit", "-", "-k", 2, "-o", tmp_path / "m.psp")
    assert (done.returncode, done.stderr) == (2, "psp: Standard input is closed, so there is nothing to read from it.\n")
    assert not list(tmp_path.iterdir())


def test_a_reader_that_has_had_enough_ends_a_command_without_a_word(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "x.csv", data(20_000, 6))
    psp("fit", source, "-k", 2, "-o", tmp_path / "m.psp", "-q")
    done = in_shell('"$@" | head -1; echo "${PIPESTATUS[0]}"', "transform", tmp_path / "m.psp", source, "-o", "-", "-q")
    assert done.stdout == "pc1,pc2\n1\n"
    assert done.stderr == ""


def test_another_name_of_the_output_keeps_what_it_had(tmp_path: Path) -> None:
    """A hard link, as backups make them: the file that it names is not written into."""
    source, model, backup = rows(tmp_path), tmp_path / "m.psp", tmp_path / "backup.psp"
    psp("fit", source, "-k", 2, "-o", model, "-q")
    os.link(model, backup)
    before = backup.read_bytes()
    np.save(tmp_path / "y.npy", data(50, 6, seed=3))
    psp("update", model, tmp_path / "y.npy", "-q")
    assert backup.read_bytes() == before
    assert OnlinePCA.load(model).n_samples_seen_ == 650


def test_a_name_that_is_too_long_is_found_before_the_first_row(tmp_path: Path) -> None:
    with pytest.raises(files.OutputError, match="File name too long"), files.claimed(tmp_path / ("n" * 252 + ".psp")):
        pass


# Disks


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_disk_that_is_full_at_any_step_leaves_the_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """Some file systems find out only when they are asked to keep their promise."""
    source, model = rows(tmp_path), tmp_path / "m.psp"
    psp("fit", source, "-k", 2, "-o", model, "-q", "--set", "block=100")
    before = model.read_bytes()
    np.save(tmp_path / "y.npy", data(300, 6, seed=3))

    def full(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, call, full)
        said = str(psp("update", model, tmp_path / "y.npy", "-q", "--set", "block=100", code=1).stderr)
    assert "No space left on device" in said
    assert "row 600." in said, said
    assert model.read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["m.psp", "x.npy", "y.npy"]
