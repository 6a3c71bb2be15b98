"""Runs over sources, and the commands: checkpoints, resuming, bad rows, full disks, exit codes."""

from __future__ import annotations

import gzip
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from online_psp import OnlinePCA
from online_psp.cli.main import app
from online_psp.engine.types import Floats
from online_psp.io import pacing
from online_psp.io import runs as streams
from online_psp.io.model_file import ModelFileError
from online_psp.io.sources import SourceError, open_source

PSP = [sys.executable, "-m", "online_psp.cli"]


def data(n: int = 2000, D: int = 40, seed: int = 0) -> Floats:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, D)) * np.linspace(4, 0.2, D) + 1


def psp(*arguments: Any, code: int = 0, file_size: int | None = None, **options: Any) -> Any:
    """Run the command in this process; its exit code must be `code`, and files may grow to `file_size` only."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limits[0] if file_size is None else file_size, limits[1]))
    try:
        done = CliRunner().invoke(app, [str(argument) for argument in arguments], **options)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert done.exit_code == code, (done.output, done.exception)
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return done


def write_csv(path: Path, X: Floats, changes: dict[int, str] | None = None) -> Path:
    lines = [",".join(f"x{i}" for i in range(X.shape[1]))] + [",".join(map(repr, row)) for row in X.tolist()]
    for row, text in (changes or {}).items():
        lines[row] = text
    path.write_text("\n".join(lines) + "\n")
    return path


# Runs


class StopError(Exception):
    pass


@pytest.mark.parametrize("options", [{}, {"epochs": 3}, {"shuffle_buffer": 150}, {"epochs": 2, "shuffle_buffer": 333, "seed": 5}])
def test_a_run_stopped_anywhere_goes_on_as_if_it_had_not_been(tmp_path: Path, options: dict[str, Any]) -> None:
    X = data(1000)
    np.save(tmp_path / "x.npy", X)

    def go(name: str, stop_after: int | None, again: bool) -> OnlinePCA:
        def report(run: streams.Run) -> None:
            nonlocal stop_after
            if stop_after is not None:
                stop_after -= 1
                if stop_after == 0:
                    raise StopError

        model = OnlinePCA(3, oversample=2)
        return streams.fit_stream(
            tmp_path / "x.npy", tmp_path / name, model, block=64, checkpoint_every=100, resume=again, report=report, **options
        )

    whole = go("whole.psp", None, False)
    assert whole.n_samples_seen_ == 1000 * options.get("epochs", 1)
    rng = np.random.default_rng(1)
    for _ in range(100):
        try:
            go("pieces.psp", int(rng.integers(2, 6)), True)
            break
        except StopError:
            pass
    assert (tmp_path / "pieces.psp").read_bytes() == (tmp_path / "whole.psp").read_bytes()


def test_mixing_loses_no_row_and_depends_on_the_seed(tmp_path: Path) -> None:
    X = data(500, 5)
    models = [
        streams.fit_stream(X, tmp_path / "m.psp", OnlinePCA(2), shuffle_buffer=200, block=30, seed=seed, epochs=2) for seed in (1, 1, 2)
    ]
    batch = OnlinePCA(2).fit(X)
    assert models[0].components_.tobytes() == models[1].components_.tobytes() != models[2].components_.tobytes()
    np.testing.assert_allclose(models[2].components_, batch.components_, atol=1e-10)
    np.testing.assert_allclose(models[2].mean_, X.mean(axis=0), atol=1e-12)


def test_iterables_skip_what_was_done_or_go_on(tmp_path: Path) -> None:
    X = data(700, 5)
    path, expected = tmp_path / "m.psp", OnlinePCA(2).fit(X)

    def broken() -> Any:
        yield from X[:300]
        raise StopError

    for rest, at_end in ((X, False), (X[256:], True)):
        path.unlink(missing_ok=True)
        with pytest.raises(StopError):
            streams.fit_stream(broken(), path, OnlinePCA(2), block=64, checkpoint_every=64)
        assert streams.reopen(path).row == 256
        model = streams.fit_stream(iter(rest), path, resume=True, at_end=at_end)
        assert model.n_samples_seen_ == 700
        np.testing.assert_allclose(model.components_, expected.components_, atol=1e-12)


def test_a_file_that_has_grown_or_shrunk(tmp_path: Path) -> None:
    X = data(500, 6)
    np.save(tmp_path / "x.npy", X[:300])
    streams.fit_stream(tmp_path / "x.npy", tmp_path / "m.psp", OnlinePCA(2))
    np.save(tmp_path / "x.npy", X)
    model = streams.fit_stream(tmp_path / "x.npy", tmp_path / "m.psp", resume=True)
    assert model.n_samples_seen_ == 500
    np.testing.assert_allclose(model.components_, OnlinePCA(2).fit(X).components_, atol=1e-12)
    for wrong, message in ((X[:100], "has shrunk"), (X[:, :5], "features")):
        np.save(tmp_path / "x.npy", wrong)
        with pytest.raises(SourceError, match=message):
            streams.fit_stream(tmp_path / "x.npy", tmp_path / "m.psp", resume=True)


def test_what_cannot_be_run(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="only once"):
        streams.start(open_source(iter(data(10))), OnlinePCA(2), epochs=2)
    with pytest.raises(ValueError, match="block must be at least 1"):
        streams.start(open_source(data(10)), OnlinePCA(2), block=0)
    with pytest.raises(ValueError, match="on_bad_row must be"):
        streams.fit_stream(data(10), tmp_path / "m.psp", OnlinePCA(2), on_bad_row="ignore")
    with pytest.raises(SourceError, match="no rows"):
        streams.fit_stream(np.zeros((0, 4)), tmp_path / "m.psp", OnlinePCA(2))
    OnlinePCA(2).fit(data(10)).save(tmp_path / "m.psp")
    with pytest.raises(ModelFileError, match="without the position"):
        streams.reopen(tmp_path / "m.psp")
    for wrong in ("0", "5x", "1.5", "-3s", ""):
        with pytest.raises(ValueError, match="Checkpoints come every"):
            pacing.Timer(wrong)
    assert pacing.Timer("1.5m").seconds == 90
    assert pacing.Timer(500).samples == 500


# The command line


def test_fit_transform_info_merge_plot(tmp_path: Path) -> None:
    X = data(900)
    np.save(tmp_path / "a.npy", X[:500])
    np.save(tmp_path / "b.npy", X[500:])
    for name in "ab":
        psp("fit", tmp_path / f"{name}.npy", "-k", 3, "-o", tmp_path / f"{name}.psp", "--quiet")
    found = json.loads(psp("fit", tmp_path / "a.npy", "-k", 3, "-o", tmp_path / "a.psp", "--force", "--json", "--epochs", 2).stdout)
    assert found["samples"] == 1000
    psp("fit", tmp_path / "a.npy", "-k", 3, "-o", tmp_path / "a.psp", "--force", "-q")
    psp("merge", tmp_path / "a.psp", tmp_path / "b.psp", "-o", tmp_path / "ab.psp")
    merged, batch = OnlinePCA.load(tmp_path / "ab.psp"), OnlinePCA(3).fit(X)
    assert merged.n_samples_seen_ == 900
    np.testing.assert_allclose(merged.mean_, batch.mean_, atol=1e-12)
    model = OnlinePCA.load(tmp_path / "a.psp")
    for name in ("s.npy", "s.csv", "s.parquet"):
        psp("transform", tmp_path / "a.psp", tmp_path / "b.npy", "-o", tmp_path / name, "--block", 70)
        (block,) = open_source(tmp_path / name).blocks()
        np.testing.assert_allclose(block.rows, model.transform(X[500:]), atol=1e-12)
        psp("transform", tmp_path / "a.psp", tmp_path / name, "--inverse", "-o", tmp_path / "back.npy", "--force")
        np.testing.assert_allclose(np.load(tmp_path / "back.npy"), model.inverse_transform(model.transform(X[500:])), atol=1e-12)
    shown = psp("info", tmp_path / "a.psp").stdout
    for part in ("500", "a.npy", "row 500 of 500, finished", "3 of 40 features", "█", "algorithm=block"):
        assert part in shown.replace("\n              ", "")
    facts = json.loads(psp("info", tmp_path / "ab.psp", "--json").stdout)
    assert facts["samples"] == 900
    assert len(facts["merged"]) == 2
    psp("plot", tmp_path / "ab.psp", "-o", tmp_path / "scree.png")
    with Image.open(tmp_path / "scree.png") as picture:
        assert picture.size[0] > 500
    assert not list(tmp_path.glob(".*"))


def test_pictures_in_components_out(tmp_path: Path) -> None:
    (tmp_path / "faces").mkdir()
    for i, pixels in enumerate(np.random.default_rng(0).integers(0, 255, (20, 8, 6), dtype=np.uint8)):
        Image.fromarray(pixels).save(tmp_path / "faces" / f"{i:02}.png")
    psp("fit", tmp_path / "faces", "-k", 4, "-o", tmp_path / "m.psp", "-q")
    psp("plot", tmp_path / "m.psp", "-o", tmp_path / "m.png")
    with Image.open(tmp_path / "m.png") as picture:
        assert picture.size[1] > 500  # a row of pictures under the scree


def test_a_pipe_and_its_resuming(tmp_path: Path) -> None:
    X = data(600, 8)
    text = write_csv(tmp_path / "x.csv", X).read_text()
    expected = OnlinePCA(3).fit(X)
    with open(tmp_path / "x.csv", "rb") as pipe:
        subprocess.run([*PSP, "fit", "-", "-k", "3", "-o", str(tmp_path / "m.psp"), "-q"], stdin=pipe, check=True, timeout=60)
    np.testing.assert_allclose(OnlinePCA.load(tmp_path / "m.psp").components_, expected.components_, atol=1e-12)
    lines = text.splitlines(keepends=True)
    for rest in ("".join(lines), "".join([lines[0], *lines[301:]])):
        psp("fit", "-", "-k", 3, "-o", tmp_path / "p.psp", "-q", "--force", input="".join(lines[:301]))
        again = "--resume" if rest == text else "--resume-at-end"
        psp("fit", "-", "-k", 3, "-o", tmp_path / "p.psp", "-q", again, input=rest)
        model = OnlinePCA.load(tmp_path / "p.psp")
        assert model.n_samples_seen_ == 600
        np.testing.assert_allclose(model.components_, expected.components_, atol=1e-12)
    psp("fit", "-", "-k", 3, "-o", tmp_path / "r.psp", "-q", "--features", 8, "--dtype", "float32", input=X.astype(np.float32).tobytes())
    np.testing.assert_allclose(OnlinePCA.load(tmp_path / "r.psp").components_, expected.components_, atol=1e-4)


def test_usage_errors_exit_with_2(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", data(50, 6))
    source, model = tmp_path / "x.npy", tmp_path / "m.psp"
    psp("fit", source, "-k", 2, "-o", model, "-q")
    before = model.read_bytes()
    (tmp_path / "y.xyz").touch()
    other = tmp_path / "o.psp"
    cases: list[tuple[list[Any], str]] = [
        (["fit", source, "-k", 2, "-o", model], "--force"),
        (["fit", source, "-k", 3, "-o", model, "--resume"], "leave -k out"),
        (["fit", source, "-k", 9, "-o", other], "fewer than the 9 components"),
        (["fit", tmp_path / "none.npy", "-k", 2, "-o", other], "does not exist"),
        (["fit", tmp_path / "y.xyz", "-k", 2, "-o", other], "no known kind"),
        (["fit", source, "-k", 2, "-o", tmp_path / "no" / "m.psp"], "folder"),
        (["fit", source, "-k", 2, "-o", other, "--algorithm", "x"], "--algorithm"),
        (["fit", source, "-k", 2, "-o", other, "--checkpoint-every", "x"], "30s"),
        (["fit", source, "-k", 2, "-o", other, "--on-bad-row", "x"], "--on-bad-row"),
        (["fit", source, "-k", 2, "-o", other, "--dtype", "int8"], "--dtype"),
        (["fit", source, "-o", other], "-k"),
        (["transform", model, source, "-o", tmp_path / "s.xyz"], ".parquet"),
        (["info", tmp_path / "none.psp"], "does not exist"),
        (["merge", model, "-o", other], "at least two"),
    ]
    for arguments, message in cases:
        done = psp(*arguments, code=2)
        assert message in done.stderr
        assert done.stdout == ""
    assert model.read_bytes() == before
    assert not other.exists()


# Bad rows


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (",".join(["1", "nan", "3", "4"]), "an empty or NaN value in column"),
        ("1,2", "2 values where 4"),
        ("1,2,abc,4", "the text 'abc' in column"),
    ],
)
def test_a_bad_row_is_named_and_the_last_checkpoint_is_whole(tmp_path: Path, text: str, message: str) -> None:
    X = data(13_000, 4)
    path = write_csv(tmp_path / "bad.csv", X, {12_345: text})
    arguments = ["fit", path, "-k", 2, "-o", tmp_path / "m.psp", "-q", "--block", 500, "--checkpoint-every", 4000]
    done = psp(*arguments, code=1)
    assert "bad.csv, row 12345 (line 12346)" in done.stderr
    assert message in done.stderr
    run = streams.reopen(tmp_path / "m.psp")
    assert run.row == run.model.n_samples_seen_ == 12_000
    found = json.loads(psp(*arguments, "--resume", "--on-bad-row", "skip", "--json").stdout)
    assert (found["samples"], found["skipped"], found["skipped_rows"]) == (12_999, 1, [12_345])
    expected = OnlinePCA(2).fit(np.delete(X, 12_344, axis=0))
    np.testing.assert_allclose(OnlinePCA.load(tmp_path / "m.psp").components_, expected.components_, atol=1e-11)
    done = psp("fit", path, "-k", 2, "-o", tmp_path / "s.psp", "--on-bad-row", "skip", "--block", 500)
    assert "1 bad row was skipped: 12345." in done.stderr
    psp("transform", tmp_path / "m.psp", path, "-o", tmp_path / "s.npy", code=1)
    assert not (tmp_path / "s.npy").exists()
    assert not list(tmp_path.glob(".*"))


def test_a_full_disk_leaves_the_last_checkpoint(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", data(4000, 300))
    small, large = tmp_path / "m.psp", tmp_path / "large.psp"
    arguments = ["-k", 10, "-q", "--block", 200, "--checkpoint-every", 200]
    psp("fit", tmp_path / "x.npy", *arguments, "-o", large)
    room = large.stat().st_size

    done = psp("fit", tmp_path / "x.npy", *arguments, "-o", small, code=1, file_size=room // 2)
    assert "m.psp: File too large." in done.stderr
    assert not small.exists()
    (tmp_path / "half").mkdir()
    np.save(tmp_path / "half" / "x.npy", data(4000, 300)[:1000])
    psp("fit", tmp_path / "half" / "x.npy", *arguments, "-o", small)
    before = small.read_bytes()
    done = psp("fit", tmp_path / "x.npy", *arguments, "-o", small, "--resume", code=1, file_size=len(before) // 2)
    assert "m.psp: File too large." in done.stderr
    assert "holds the run up to epoch 1, row 1000." in done.stderr
    assert small.read_bytes() == before
    psp("fit", tmp_path / "x.npy", *arguments, "-o", small, "--resume")
    assert small.read_bytes() == large.read_bytes()
    psp("transform", large, tmp_path / "x.npy", "-o", tmp_path / "s.npy", code=1, file_size=10_000)
    assert sorted(os.listdir(tmp_path)) == ["half", "large.psp", "m.psp", "x.npy"]


def test_damaged_models_and_sources_exit_with_1(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", data(50, 6))
    psp("fit", tmp_path / "x.npy", "-k", 2, "-o", tmp_path / "m.psp", "-q")
    whole = (tmp_path / "m.psp").read_bytes()
    (tmp_path / "m.psp").write_bytes(whole[:-9])
    (tmp_path / "bad.npy").write_bytes(b"nothing")
    assert "truncated" in psp("info", tmp_path / "m.psp", code=1).stderr
    assert "truncated" in psp("fit", tmp_path / "x.npy", "-k", 2, "-o", tmp_path / "m.psp", "--resume", code=1).stderr
    assert "bad.npy" in psp("fit", tmp_path / "bad.npy", "-k", 2, "-o", tmp_path / "n.psp", code=1).stderr
    assert not (tmp_path / "n.psp").exists()


# Stopping


@pytest.mark.usefixtures("hear_ctrl_c")
def test_ctrl_c_writes_a_checkpoint_and_says_how_to_go_on(tmp_path: Path) -> None:
    X = data(60_000, 60)
    np.save(tmp_path / "x.npy", X)
    psp("fit", tmp_path / "x.npy", "-k", 3, "-o", tmp_path / "whole.psp", "-q", "--block", 16)
    command = [*PSP, "fit", str(tmp_path / "x.npy"), "-k", "3", "-o", str(tmp_path / "m.psp"), "-q", "--block", "16"]
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
    psp("fit", tmp_path / "x.npy", "-k", 3, "-o", tmp_path / "m.psp", "-q", "--block", 16, "--resume")
    assert (tmp_path / "m.psp").read_bytes() == (tmp_path / "whole.psp").read_bytes()


KILLER = """
import os, random, signal, sys, time
import numpy as np
import online_psp.cli.fit, online_psp.io.runs, online_psp.pca.files
from online_psp.cli.main import app
folder, block, most = sys.argv[1], sys.argv[2], int(sys.argv[3])
arguments = ["fit", *sys.argv[4:], "-k", "4", "--oversample", "2", "-q", "--block", block]
app([*arguments, "-o", f"{folder}/whole.psp"], standalone_mode=False)  # and all kernels are compiled
arguments += ["-o", f"{folder}/killed.psp", "--resume", "--checkpoint-every"]
chance, kills, writing = random.Random(7), 0, 0

def written():
    try:
        return os.stat(f"{folder}/killed.psp").st_mtime_ns
    except FileNotFoundError:
        return None

while True:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = app([*arguments, block if kills < most else "60s"], standalone_mode=False)
        finally:
            os._exit(code)
    if kills < most:
        before = written()
        while kills % 10 > 1 and written() == before:  # one in five is killed while it starts
            time.sleep(0.001)
        time.sleep(chance.uniform(0.0, 0.025))
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    if not os.WIFSIGNALED(status):
        assert os.WEXITSTATUS(status) == 0
        break
    kills += 1
    writing += any(name.endswith(".partial") for name in os.listdir(folder))
print(kills, writing)
"""


def _npy(folder: Path, X: Floats) -> list[Path]:
    np.save(folder / "x.npy", X)
    return [folder / "x.npy"]


def _csv_gz(folder: Path, X: Floats) -> list[Path]:
    with gzip.open(folder / "x.csv.gz", "wt", compresslevel=1) as file:
        np.savetxt(file, X, fmt="%.6g", delimiter=",", header=",".join(f"x{i}" for i in range(X.shape[1])), comments="")
    return [folder / "x.csv.gz"]


def _parquet(folder: Path, X: Floats) -> list[Path]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({f"x{i}": X[:, i] for i in range(X.shape[1])}), folder / "x.parquet", row_group_size=5000)
    return [folder / "x.parquet"]


def _several(folder: Path, X: Floats) -> list[Path]:
    for i, part in enumerate(np.array_split(X, 7)):
        np.save(folder / f"part{i}.npy", part)
    return [folder / f"part{i}.npy" for i in range(7)]


def _sparse(folder: Path, X: Floats) -> list[Path]:
    from scipy import sparse

    sparse.save_npz(folder / "x.npz", sparse.csr_matrix(X * (np.random.default_rng(1).random(X.shape) < 0.2)))
    return [folder / "x.npz"]


@pytest.mark.parametrize("maker", [_npy, _csv_gz, _parquet, _several, _sparse])
def test_fifty_kills_and_not_a_row_lost(tmp_path: Path, maker: Callable[[Path, Floats], list[Path]]) -> None:
    """SIGKILL at random moments of one run, most of them near a checkpoint, and some in the middle of writing one; ten a kind of source."""
    rows, D = (8_000, 20) if maker is _csv_gz else (20_000, 40)
    X = data(rows, D)
    sources = maker(tmp_path, X)
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    algorithm = ["--algorithm", "fsm"] if maker is _sparse else []  # sparse rows: the one whose resumed run is that of one never stopped
    command = [sys.executable, "-c", KILLER, str(tmp_path), "250", "10", *map(str, sources), *algorithm]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    kills, _ = map(int, done.stdout.split())
    assert kills == 10
    run = streams.reopen(tmp_path / "killed.psp")
    assert run.finished
    assert run.row == run.model.n_samples_seen_ == len(X)
    whole = OnlinePCA.load(tmp_path / "whole.psp")
    if maker is _sparse:  # a checkpoint stores the basis as a dense one: the same to rounding
        np.testing.assert_allclose(run.model.components_, whole.components_, atol=1e-9)
    else:
        assert (tmp_path / "killed.psp").read_bytes() == (tmp_path / "whole.psp").read_bytes()
    assert sorted(os.listdir(tmp_path)) == sorted(["killed.psp", "whole.psp", *(source.name for source in sources)])
