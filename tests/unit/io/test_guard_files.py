"""Outputs: one writer at a time, whole files, and nothing but regular files."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from online_psp import OnlinePCA
from online_psp.io import runs
from online_psp.io.files import OutputError, OutputInUseError, claimed
from tests.command import data, psp


def rows(tmp_path: Path) -> Path:
    np.save(tmp_path / "x.npy", data(60, 6))
    return tmp_path / "x.npy"


# One writer


def test_one_claim_at_a_time_within_a_process(tmp_path: Path) -> None:
    with claimed(tmp_path / "m.psp"):
        with pytest.raises(OutputInUseError, match=f"process {os.getpid()}"), claimed(tmp_path / "m.psp"):
            pass
        with claimed(tmp_path / "n.psp"):
            pass
    with claimed(tmp_path / "m.psp"):
        pass
    assert os.listdir(tmp_path) == []


def test_writers_that_hold_nothing_do_not_tear_the_file(tmp_path: Path) -> None:
    """`save` takes no lock: whoever is last wins, with a whole file."""
    path = tmp_path / "m.psp"
    models = [OnlinePCA(2).fit(data(50 + 50 * i, 30 + 40 * i, i)) for i in range(4)]
    seen = {model.n_samples_seen_ for model in models}

    def save(model: OnlinePCA) -> None:
        for _ in range(25):
            model.save(path)

    threads = [threading.Thread(target=save, args=(model,)) for model in models]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        if path.exists():
            assert OnlinePCA.load(path).n_samples_seen_ in seen
    for thread in threads:
        thread.join()
    assert os.listdir(tmp_path) == ["m.psp"]


# What is there already


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    source, other = rows(tmp_path), tmp_path / "other"
    other.write_text("precious")
    (tmp_path / ".w.psp.lock").symlink_to(other)
    assert "symbolic link" in psp("fit", source, "-k", 2, "-o", tmp_path / "w.psp", "-q", code=2).stderr
    assert other.read_text() == "precious"


def test_a_linked_output_is_written_through_and_keeps_its_permissions(tmp_path: Path) -> None:
    source = rows(tmp_path)
    (tmp_path / "real").mkdir()
    target, link = tmp_path / "real" / "m.psp", tmp_path / "m.psp"
    link.symlink_to(Path("real") / "m.psp")
    psp("fit", source, "-k", 2, "-o", link, "-q")
    assert link.is_symlink()
    assert target.is_file()
    target.chmod(0o640)
    psp("fit", source, "-k", 2, "-o", link, "-q", "--force")
    assert link.is_symlink()
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    OnlinePCA.load(link).save(link)
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert os.listdir(tmp_path / "real") == ["m.psp"]


@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "socket"])
def test_what_is_no_regular_file_stays_what_it_is(tmp_path: Path, kind: str) -> None:
    source, output = rows(tmp_path), tmp_path / "m.psp"
    if kind == "pipe":
        os.mkfifo(output)
    elif kind == "folder":
        output.mkdir()
    elif kind == "socket":
        import socket

        with socket.socket(socket.AF_UNIX) as server:
            here = os.getcwd()
            os.chdir(tmp_path)  # such names are short
            try:
                server.bind("m.psp")
            finally:
                os.chdir(here)
    else:
        output.symlink_to("/dev/null")
    before = os.stat(output)
    for options in ([], ["--force"]):
        said = psp("fit", source, "-k", 2, "-o", output, *options, code=2).stderr
        assert "must be a regular file" in said
    with pytest.raises(OutputError):
        OnlinePCA(2).fit(data(9, 3)).save(output)
    assert os.path.samestat(before, os.stat(output))
    assert (before.st_mode, before.st_rdev) == (os.stat(output).st_mode, os.stat(output).st_rdev)


def test_a_folder_that_cannot_be_written_is_found_before_the_first_row(tmp_path: Path) -> None:
    read: list[int] = []

    def source() -> Any:
        read.append(1)
        yield from data(20, 4)

    with pytest.raises(OutputError, match=r"does not exist|does not allow"):
        runs.fit_stream(source(), "/proc/no/m.psp", OnlinePCA(2))
    with pytest.raises(OutputError, match="does not allow"):
        runs.fit_stream(source(), "/proc/m.psp", OnlinePCA(2))
    assert not read, "rows were read for an output that cannot be written"
    said = psp("fit", "-", "-k", 2, "-o", "/proc/m.psp", input="1,2\n3,4\n", code=2).stderr
    assert "does not allow" in said
