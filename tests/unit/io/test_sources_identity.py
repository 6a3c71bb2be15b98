"""A source that is not what it was is told from one that has only grown."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from online_psp.io.sources import Source, different, open_source
from tests.messy_files import NAMES, clean, lines, put


def known(source: Source) -> dict[str, Any]:
    """An identity as a checkpoint gives it back."""
    return dict(json.loads(json.dumps(source.identity())))


def change(old: dict[str, Any], source: Source, position: int = 30) -> str | None:
    return different(old, json.loads(json.dumps(source.identity(since=old))), position)


def read(source: Source) -> Source:
    for _ in source.blocks():
        pass
    return source


def test_the_same_file_is_the_same_and_so_is_its_copy(tmp_path: Path) -> None:
    path = put(tmp_path / "x.csv", lines(clean()))
    old = known(read(open_source(path)))
    assert change(old, open_source(path)) is None
    put(tmp_path / "moved.csv", lines(clean()))
    assert change(old, open_source(tmp_path / "moved.csv")) is None


def test_a_file_that_has_grown_is_the_same(tmp_path: Path) -> None:
    X = clean()
    path = put(tmp_path / "x.csv", lines(X[:40]))
    old = known(read(open_source(path)))
    put(path, lines(X))
    assert change(old, open_source(path), 40) is None
    np.save(tmp_path / "x.npy", X[:40])
    old = known(open_source(tmp_path / "x.npy"))
    np.save(tmp_path / "x.npy", X)  # its header is another
    assert change(old, open_source(tmp_path / "x.npy"), 40) is None


@pytest.mark.parametrize("big", [False, True])
def test_other_bytes_are_named(tmp_path: Path, big: bool) -> None:
    X = np.tile(clean(), (1000 if big else 1, 1))  # more than two megabytes of text
    text = lines(X)
    path = put(tmp_path / "x.csv", text)
    old = known(open_source(path))
    put(path, [*text[:3], text[3].replace("9", "8").replace("1", "2"), *text[4:]])
    assert "x.csv begins differently: its bytes 0 to" in str(change(old, open_source(path)))
    put(path, [*text[:-1], text[-1].replace("9", "8").replace("1", "2")])
    assert ("x.csv has changed before its end" if big else "begins differently") in str(change(old, open_source(path)))
    put(path, text[:-1])
    assert "x.csv has shrunk: it had" in str(change(old, open_source(path)))
    other = put(tmp_path / "other.csv", lines(X[::-1]))
    assert "is another file: it was x.csv, and is now other.csv" in str(change(old, open_source(other)))
    np.save(tmp_path / "x.npy", X)
    old = known(open_source(tmp_path / "x.npy"))
    for row, words in ((2, "begins differently"), (len(X) - 3, "has changed before its end" if big else "begins differently")):
        changed = X.copy()
        changed[row, 1] += 1
        np.save(tmp_path / "x.npy", changed)
        assert words in str(change(old, open_source(tmp_path / "x.npy")))
    np.save(tmp_path / "x.npy", X[:20])
    assert "shrunk" in str(change(old, open_source(tmp_path / "x.npy")))


def test_other_columns_and_options_are_named(tmp_path: Path) -> None:
    X = clean()
    path = put(tmp_path / "x.csv", lines(X))
    old = known(open_source(path))
    cases: list[tuple[dict[str, Any], str]] = [
        ({"columns": ["1", "0", "2-4"]}, "in another order: column 0 was 'depth', and is now 'speed'"),
        ({"columns": "0-3"}, "not what they were ('noise' missing): depth, speed, heat, load, noise; now depth, speed, heat, load."),
        ({"dtype": "float32"}, "dtype: float64, and now with dtype: float32"),
        ({"header": False, "skip_rows": 1}, "read with"),
        ({"missing": "keep"}, "missing: error, and now with missing: keep"),
        ({"na_values": ["7"]}, "na values: none, and now with na values: 7"),
        ({"keep_index": True}, "keep index: False, and now with keep index: True"),
    ]
    for options, message in cases:
        assert message in str(change(old, open_source(path, **options))), options
    turned = [1, 0, 2, 3, 4]
    put(path, lines(X[:, turned], names=[NAMES[i] for i in turned]))
    assert "in another order" in str(change(old, open_source(path)))
    put(path, lines(X, ";"))
    assert "delimiter: ',', and now with delimiter: ';'" in str(change(old, open_source(path)))
    np.save(tmp_path / "x.npy", X)
    assert "The source was text (x.csv), and is now npy (x.npy)." in str(change(old, open_source(tmp_path / "x.npy")))
    np.save(tmp_path / "y.npy", X[:, :4])
    assert "had 5 features, and now has 4" in str(change(known(open_source(tmp_path / "x.npy")), open_source(tmp_path / "y.npy")))


def test_a_last_line_that_was_being_written(tmp_path: Path) -> None:
    text = "\n".join(lines(clean()))
    path = put(tmp_path / "x.csv", text[:-3])  # cut inside of a number
    taken = read(open_source(path))
    old = known(taken)
    assert old["schema"]["open_end"] is True
    put(path, text + "\n")
    assert "was read while its last line was being written" in str(change(old, open_source(path), 60))
    put(path, text[:-3] + "\n1,2,3,4,5\n")  # the line was whole, and only its end was missing
    assert change(old, open_source(path), 60) is None
    put(path, text[:-3])
    held = read(open_source(path, final=False))
    assert sum(block.length for block in held.blocks()) == 59
    assert "held back" in held.warnings[0]
    old = known(held)
    put(path, text + "\n")
    assert change(old, open_source(path, final=False), 59) is None


def test_a_last_line_of_a_file_that_changes_is_held_back(tmp_path: Path) -> None:
    text = "\n".join(lines(np.tile(clean(), (2000, 1))))
    path = put(tmp_path / "x.csv", text[:-3])
    source = open_source(path)
    blocks = source.blocks(500)
    rows = next(blocks).length
    with path.open("a") as file:
        file.write(text[-3:])
    assert rows + sum(block.length for block in blocks) == 2000 * 60 - 1
    assert "held back" in source.warnings[0]


def test_several_files(tmp_path: Path) -> None:
    X = clean()
    for i in (1, 2, 10):
        put(tmp_path / f"{i}.csv", lines(X + i))
    old = known(open_source(tmp_path))
    assert old["names"] == ["1.csv", "2.csv", "10.csv"]
    put(tmp_path / "11.csv", lines(X))
    assert change(old, open_source(tmp_path), 180) is None
    put(tmp_path / "10.csv", lines(np.concatenate([X + 10, X])))
    assert change(old, open_source(tmp_path), 180) is None
    put(tmp_path / "3.csv", lines(X))
    assert "number 3 was 10.csv, and is now 3.csv" in str(change(old, open_source(tmp_path), 180))
    (tmp_path / "3.csv").unlink()
    put(tmp_path / "2.csv", lines(X + 3))
    assert "2.csv" in str(change(old, open_source(tmp_path), 180))
    for name in ("2.csv", "11.csv"):
        (tmp_path / name).unlink()
    assert "had 3 files" in str(change(old, open_source(tmp_path), 180))


def test_many_files_make_a_small_identity(tmp_path: Path) -> None:
    for i in range(300):
        Image.fromarray(np.full((2, 3), i % 250, dtype=np.uint8)).save(tmp_path / f"{i}.png")
    old = known(open_source(tmp_path))
    assert len(json.dumps(old)) < 20_000
    assert change(old, open_source(tmp_path), 300) is None
    Image.fromarray(np.full((2, 3), 7, dtype=np.uint8)).save(tmp_path / "3.png")
    assert "3.png" in str(change(old, open_source(tmp_path), 300))


def test_a_pipe_is_known_by_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    def piped(text: str) -> Source:
        monkeypatch.setattr(sys, "stdin", type("In", (), {"buffer": io.BytesIO(text.encode())}))
        return open_source("-")

    text = "\n".join(lines(clean()))
    old = known(read(piped(text)))
    assert old["digests"]["0"]["first"][2] is not None
    assert change(old, read(piped(text))) is None
    assert change(old, read(piped(text + "\n1,2,3,4,5\n"))) is None
    assert "standard input begins differently" in str(change(old, read(piped(text.replace("7", "8")))))


def test_objects(tmp_path: Path) -> None:
    X = clean()
    old = known(open_source(X))
    assert change(old, open_source(X.copy())) is None
    assert change(old, open_source(np.concatenate([X, X]))) is None
    assert "begins differently" in str(change(old, open_source(X + 1)))
    assert change(known(open_source(iter(X))), open_source(iter(X))) is None
