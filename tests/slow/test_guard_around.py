"""What is around a run: standard streams that are closed, links, an output that somebody else writes, folders that vanish."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

from online_psp import OnlinePCA
from online_psp.io import files, runs
from online_psp.io.files import OutputReplacedError
from online_psp.io.runs import _steps
from tests.command import PSP, data, psp, write_csv


def rows(tmp_path: Path, n: int = 600) -> Path:
    np.save(tmp_path / "x.npy", data(n, 6))
    return tmp_path / "x.npy"


def in_shell(line: str, *arguments: Any) -> subprocess.CompletedProcess[str]:
    """A line of shell with the command as ``"$@"``."""
    command = [*PSP, *map(str, arguments)]
    return subprocess.run(["bash", "-c", line, "bash", *command], capture_output=True, text=True, timeout=120, check=False)


# Standard streams


def test_standard_input_that_is_closed_is_said(tmp_path: Path) -> None:
    done = in_shell('"$@" <&-', "fit", "-", "-k", 2, "-o", tmp_path / "m.psp")
    assert (done.returncode, done.stderr) == (2, "psp: Standard input is closed, so there is nothing to read from it.\n")
    assert not list(tmp_path.iterdir())


def test_standard_output_that_is_closed_is_said(tmp_path: Path) -> None:
    source = rows(tmp_path)
    psp("fit", source, "-k", 2, "-o", tmp_path / "m.psp", "-q")
    done = in_shell('"$@" >&-', "transform", tmp_path / "m.psp", source, "-o", "-", "-q")
    assert (done.returncode, done.stderr) == (2, "psp: Standard output is closed, so nothing can be written to it; name a file (-o).\n")


def test_what_standard_output_has_no_signs_for_is_escaped(tmp_path: Path) -> None:
    (tmp_path / "größe.csv").write_text("größe,b\n1,2\n2,5\n4,3\n", encoding="utf-8")
    psp("fit", tmp_path / "größe.csv", "-k", 1, "-o", tmp_path / "größe.psp", "-q")
    done = in_shell('PYTHONIOENCODING=ascii "$@"', "info", tmp_path / "größe.psp")
    assert done.returncode == 0, done.stderr
    assert "gr\\xf6\\xdfe, b" in done.stdout
    assert "##########" in done.stdout, "the bars are no signs of ASCII either"


def test_a_reader_that_has_had_enough_ends_a_command_without_a_word(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "x.csv", data(20_000, 6))
    psp("fit", source, "-k", 2, "-o", tmp_path / "m.psp", "-q")
    done = in_shell('"$@" | head -1; echo "${PIPESTATUS[0]}"', "transform", tmp_path / "m.psp", source, "-o", "-", "-q")
    assert done.stdout == "pc1,pc2\n1\n"
    assert done.stderr == ""


@pytest.mark.parametrize("number", [errno.EPIPE, errno.EIO])
def test_a_run_goes_on_where_nobody_reads_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Whoever reads standard error has ended (EPIPE), or its terminal is gone (EIO)."""
    from online_psp.cli import _progress

    monkeypatch.setattr(_progress, "_LINE_EVERY", 0.0)  # a line after each block
    tried: list[str] = []

    echo = typer.echo

    def broken(text: str, err: bool = False) -> None:
        if err:
            tried.append(text)
            raise OSError(number, os.strerror(number))
        echo(text)

    monkeypatch.setattr(typer, "echo", broken)
    psp("fit", rows(tmp_path), "-k", 2, "-o", tmp_path / "m.psp", "--set", "block=100")
    assert any("rows/s" in text for text in tried), "no line of progress was tried"
    run = runs.reopen(tmp_path / "m.psp")
    assert run.finished
    assert run.row == 600


# Links


def test_a_link_that_leads_nowhere_is_called_one(tmp_path: Path) -> None:
    one, two = tmp_path / "one.psp", tmp_path / "two.npy"
    one.symlink_to(two)
    two.symlink_to(one)
    assert "one.psp is a symbolic link that leads nowhere." in psp("fit", one, "-k", 2, "-o", tmp_path / "m.psp", code=2).stderr
    source = rows(tmp_path)
    for options in ([], ["--force"], ["--resume"]):
        assert "Too many levels of symbolic links" in psp("fit", source, "-k", 2, "-o", one, *options, code=2).stderr
    assert one.is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["one.psp", "two.npy", "x.npy"]


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


# Names


def test_a_folder_in_the_place_of_a_lock_is_said(tmp_path: Path) -> None:
    (tmp_path / ".m.psp.lock").mkdir()
    said = r"\.m\.psp\.lock is a folder, and not a lock of this program; remove it"
    with pytest.raises(files.OutputError, match=said), files.claimed(tmp_path / "m.psp"):
        pass


@pytest.mark.parametrize("length", [199, 201, 255])
def test_a_name_may_be_as_long_as_the_file_system_allows(tmp_path: Path, length: int) -> None:
    """The hidden files beside an output have longer names; that was found only after all rows had been learned."""
    source, model = rows(tmp_path), tmp_path / ("n" * (length - 4) + ".psp")
    runs.fit_stream(source, model, OnlinePCA(2))
    assert runs.reopen(model).row == 600
    leftover = files._hidden(model, "999999999-00000000.partial")
    leftover.write_text("of a run that was killed")
    with files.claimed(model), pytest.raises(files.OutputInUseError), files.claimed(model):
        pass
    assert sorted(os.listdir(tmp_path)) == [model.name, "x.npy"]


def test_a_name_that_is_too_long_is_found_before_the_first_row(tmp_path: Path) -> None:
    with pytest.raises(files.OutputError, match="File name too long"), files.claimed(tmp_path / ("n" * 252 + ".psp")):
        pass


def test_a_working_folder_that_is_gone_is_said(tmp_path: Path) -> None:
    rows(tmp_path)
    (tmp_path / "gone").mkdir()
    line = f'cd {tmp_path}/gone && rmdir ../gone && "$@"'
    done = in_shell(line, "fit", tmp_path / "x.npy", "-k", 2, "-o", "m.psp", "-q")
    assert (done.returncode, done.stderr) == (2, "psp: m.psp cannot be written: No such file or directory.\n")


# Somebody else


@pytest.mark.parametrize("kind", ["a file", "a named pipe"])
def test_an_output_that_somebody_else_writes_during_a_run_is_left_alone(tmp_path: Path, kind: str) -> None:
    source, model = rows(tmp_path), tmp_path / "m.psp"

    def interfere(run: runs.Run) -> None:
        if run.row == 300:
            model.unlink(missing_ok=True)
            if kind == "a file":
                model.write_text("precious")
            else:
                os.mkfifo(model)

    with pytest.raises(OutputReplacedError, match=r"m\.psp was written by somebody else .* is in .*m-2\.psp"):
        runs.fit_stream(source, model, OnlinePCA(2), block=100, checkpoint_every=100, report=interfere)
    assert model.is_fifo() if kind == "a named pipe" else model.read_text() == "precious"
    kept = runs.reopen(tmp_path / "m-2.psp")
    assert kept.row == kept.model.n_samples_seen_ == 400
    runs.fit_stream(source, tmp_path / "whole.psp", OnlinePCA(2), block=100)
    runs.fit_stream(source, tmp_path / "m-2.psp", resume=True)
    assert (tmp_path / "m-2.psp").read_bytes() == (tmp_path / "whole.psp").read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["m-2.psp", "m.psp", "whole.psp", "x.npy"]


def test_an_output_that_appears_during_a_run_needs_force_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, model = rows(tmp_path), tmp_path / "m.psp"
    steps = _steps.steps

    def appearing(*given: Any, **options: Any) -> Any:
        for run in steps(*given, **options):
            model.write_text("precious")
            yield run

    monkeypatch.setattr("online_psp.io.runs._driving.steps", appearing)
    said = psp("fit", source, "-k", 2, "-o", model, "-q", code=1).stderr
    assert said.count("\n") == 1
    assert "is left as it is" in said
    assert model.read_text() == "precious"
    assert OnlinePCA.load(tmp_path / "m-2.psp").n_samples_seen_ == 600


_WRITERS: dict[str, tuple[str, ...]] = {
    "out.npy": ("transform", "m.psp", "x.npy"),
    "out.csv": ("score", "m.psp", "x.npy"),
    "out.parquet": ("impute", "m.psp", "x.npy"),
    "out.psp": ("merge", "m.psp", "m.psp"),
    "out.png": ("plot", "m.psp"),
}


@pytest.mark.parametrize("name", _WRITERS)
@pytest.mark.parametrize("present", ["new", "present"])
def test_no_writer_replaces_what_somebody_else_has_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, present: str
) -> None:
    """As `psp fit`: at the last moment too, with --force too, and what took long to compute is kept under another name."""
    rows(tmp_path)
    OnlinePCA(2).fit(data(50, 6)).save(tmp_path / "m.psp")
    output, beside = tmp_path / name, tmp_path / name.replace(".", "-2.")
    if present == "present":
        output.write_text("older")
    fsync = os.fsync

    def interfere(descriptor: int) -> None:
        fsync(descriptor)
        monkeypatch.setattr(os, "fsync", fsync)
        output.write_text("precious")

    command, *sources = _WRITERS[name]
    arguments = [command, *(tmp_path / each for each in sources), "-o", output, *(["--force"] if present == "present" else []), "-q"]
    monkeypatch.setattr(os, "fsync", interfere)
    said = str(psp(*arguments, code=1).stderr).splitlines()[-1]
    assert said == (
        f"psp: {output} was written by somebody else during the run, and is left as it is; what was to be written is in {beside}."
    )
    assert output.read_text() == "precious", "an output of somebody else was overwritten"
    kept = beside.read_bytes()
    output.unlink()
    psp(*arguments)
    assert output.read_bytes() == kept, "the file beside the output is not what would have been written"
    assert sorted(os.listdir(tmp_path)) == sorted(["m.psp", "x.npy", output.name, beside.name]), "something was left behind"


def test_names_beside_an_output_are_not_taken_from_anybody(tmp_path: Path) -> None:
    """Also where the name is taken in the very moment between looking and writing."""
    (tmp_path / "m-2.psp").symlink_to(tmp_path / "nowhere")
    (tmp_path / "m-3.psp").write_text("precious")

    def write() -> None:
        with files.claimed(tmp_path / "m.psp") as output, files.replacing(output) as file:
            file.write(b"whole")
            os.mkdir(tmp_path / "m.psp")

    with pytest.raises(OutputReplacedError) as found:
        write()
    assert found.value.beside == tmp_path / "m-4.psp"
    assert found.value.beside.read_bytes() == b"whole"
    assert (tmp_path / "m-3.psp").read_text() == "precious"
    assert sorted(os.listdir(tmp_path)) == ["m-2.psp", "m-3.psp", "m-4.psp", "m.psp"]


def test_a_file_system_without_links_is_written_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any, **__: Any) -> Any:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refused)
    for contents in (b"one", b"two"):
        with files.claimed(tmp_path / "m.psp") as output, files.replacing(output) as file:
            file.write(contents)
        assert (tmp_path / "m.psp").read_bytes() == contents
    (tmp_path / "m.psp").unlink()
    with pytest.raises(OutputReplacedError), files.claimed(tmp_path / "m.psp") as output, files.replacing(output) as file:
        (tmp_path / "m.psp").write_bytes(b"precious")
    assert (tmp_path / "m.psp").read_bytes() == b"precious"
    assert sorted(os.listdir(tmp_path)) == ["m-2.psp", "m.psp"]


def test_an_output_with_another_time_and_number_is_known_by_its_contents(tmp_path: Path) -> None:
    """As on network disks, and after a copy was put back; and one that is gone is written again."""
    source, model = rows(tmp_path), tmp_path / "m.psp"

    def touch(run: runs.Run) -> None:
        if run.row == 300:
            shutil.copy(model, tmp_path / "copy")
            os.utime(tmp_path / "copy", (1, 1))
            os.replace(tmp_path / "copy", model)
        elif run.row == 500:
            model.unlink()

    runs.fit_stream(source, model, OnlinePCA(2), block=100, checkpoint_every=100, report=touch)
    assert runs.reopen(model).finished
    assert sorted(os.listdir(tmp_path)) == ["m.psp", "x.npy"]


def test_a_folder_that_vanishes_during_a_run_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, folder = rows(tmp_path), tmp_path / "out"
    folder.mkdir()
    steps = _steps.steps

    def vanishing(*given: Any, **options: Any) -> Any:
        for run in steps(*given, **options):
            shutil.rmtree(folder, ignore_errors=True)
            yield run

    monkeypatch.setattr("online_psp.io.runs._driving.steps", vanishing)
    said = psp("fit", source, "-k", 2, "-o", folder / "m.psp", "-q", code=2).stderr
    assert said == f"psp: The folder {folder} does not exist.\n"


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
