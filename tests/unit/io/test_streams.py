"""Runs over sources, and the commands: checkpoints, resuming, bad rows, full disks, exit codes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from online_psp import OnlinePCA
from online_psp.io import pacing
from online_psp.io import runs as streams
from online_psp.io.model_file import ModelFileError
from online_psp.io.sources import SourceError, open_source
from tests.command import data, psp, write_csv

# Runs


class StopError(Exception):
    pass


@pytest.mark.parametrize("options", [{}, {"epochs": 3}])
def test_a_run_stopped_anywhere_goes_on_as_if_it_had_not_been(tmp_path: Path, options: dict[str, Any]) -> None:
    X = data(1000)
    np.save(tmp_path / "x.npy", X)

    def go(name: str, stop_after: int | None, again: bool) -> Any:
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


def test_iterables_skip_what_was_done(tmp_path: Path) -> None:
    X = data(700, 5)
    path, expected = tmp_path / "m.psp", OnlinePCA(2).fit(X)

    def broken() -> Any:
        yield from X[:300]
        raise StopError

    with pytest.raises(StopError):
        streams.fit_stream(broken(), path, OnlinePCA(2), block=64, checkpoint_every=64)
    assert streams.reopen(path).row == 256
    other = X.copy()
    other[255, 3] += 1
    with pytest.raises(SourceError, match="has changed before row 256"):
        streams.fit_stream(iter(other), path, resume=True)
    model = streams.fit_stream(iter(X), path, resume=True)
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
    found = json.loads(psp("fit", tmp_path / "a.npy", "-k", 3, "-o", tmp_path / "a.psp", "--force", "--json", "--set", "epochs=2").stdout)
    assert found["samples"] == 1000
    psp("fit", tmp_path / "a.npy", "-k", 3, "-o", tmp_path / "a.psp", "--force", "-q")
    psp("merge", tmp_path / "a.psp", tmp_path / "b.psp", "-o", tmp_path / "ab.psp")
    merged, batch = OnlinePCA.load(tmp_path / "ab.psp"), OnlinePCA(3).fit(X)
    assert merged.n_samples_seen_ == 900
    np.testing.assert_allclose(merged.mean_, batch.mean_, atol=1e-12)
    model = OnlinePCA.load(tmp_path / "a.psp")
    for name in ("s.npy", "s.csv", "s.parquet"):
        psp("transform", tmp_path / "a.psp", tmp_path / "b.npy", "-o", tmp_path / name, "--set", "block=70")
        (block,) = open_source(tmp_path / name).blocks()
        np.testing.assert_allclose(block.rows, model.transform(X[500:]), atol=1e-12)
        psp("transform", tmp_path / "a.psp", tmp_path / name, "--inverse", "-o", tmp_path / "back.npy", "--force")
        np.testing.assert_allclose(np.load(tmp_path / "back.npy"), model.inverse_transform(model.transform(X[500:])), atol=1e-12)
    shown = psp("info", tmp_path / "a.psp", env={"COLUMNS": "300"}).stdout
    for part in ("500", "a.npy", "row 500 of 500, finished", "3 of 40 features", "####"):
        assert part in shown
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


def test_usage_errors_exit_with_2(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", data(50, 6))
    source, model = tmp_path / "x.npy", tmp_path / "m.psp"
    psp("fit", source, "-k", 2, "-o", model, "-q")
    before = model.read_bytes()
    (tmp_path / "y.xyz").touch()
    other = tmp_path / "o.psp"
    cases: list[tuple[list[Any], str]] = [
        (["fit", source, "-k", 2, "-o", model], "--force"),
        (["fit", source, "-k", 3, "-o", model, "--resume"], "leave it out"),
        (["fit", source, "-k", 9, "-o", other], "fewer than the 9 components"),
        (["fit", tmp_path / "none.npy", "-k", 2, "-o", other], "does not exist"),
        (["fit", tmp_path / "y.xyz", "-k", 2, "-o", other], "no known kind"),
        (["fit", source, "-k", 2, "-o", tmp_path / "no" / "m.psp"], "folder"),
        (["fit", source, "-k", 2, "-o", other, "--algorithm", "x"], "--algorithm"),
        (["fit", source, "-k", 2, "-o", other, "--checkpoint-every", "x"], "30s"),
        (["fit", source, "-k", 2, "-o", other, "--on-bad-row", "x"], "--on-bad-row"),
        (["fit", source, "-k", 2, "-o", other, "--set", "dtype=int8"], "int8"),
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
    arguments = ["fit", path, "-k", 2, "-o", tmp_path / "m.psp", "-q", "--set", "block=500", "--checkpoint-every", 4000]
    done = psp(*arguments, code=1)
    assert "bad.csv, row 12345 (line 12346)" in done.stderr
    assert message in done.stderr
    run = streams.reopen(tmp_path / "m.psp")
    assert run.row == run.model.n_samples_seen_ == 12_000
    found = json.loads(psp(*arguments, "--resume", "--on-bad-row", "skip", "--json").stdout)
    assert (found["samples"], found["skipped"], found["skipped_rows"]) == (12_999, 1, [12_345])
    expected = OnlinePCA(2).fit(np.delete(X, 12_344, axis=0))
    np.testing.assert_allclose(OnlinePCA.load(tmp_path / "m.psp").components_, expected.components_, atol=1e-11)
    done = psp("fit", path, "-k", 2, "-o", tmp_path / "s.psp", "--on-bad-row", "skip", "--set", "block=500")
    assert "1 bad row was skipped: 12345." in done.stderr
    psp("transform", tmp_path / "m.psp", path, "-o", tmp_path / "s.npy", code=1)
    assert not (tmp_path / "s.npy").exists()
    assert not list(tmp_path.glob(".*"))


def test_a_full_disk_leaves_the_last_checkpoint(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", data(4000, 300))
    small, large = tmp_path / "m.psp", tmp_path / "large.psp"
    arguments = ["-k", 10, "-q", "--set", "block=200", "--checkpoint-every", 200]
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
