"""Pipes: what has arrived is given when its time has come, whatever the rate, and waiting can be interrupted."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest
from scipy.io import mmwrite
from scipy.sparse import csr_matrix

from online_psp.io.sources import Source, SourceError, UnknownSourceError, open_source

HEADER = b"a,b,c\n"


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[BinaryIO]:
    """The writing end of standard input."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stdin, os.fdopen(writing, "wb", buffering=0) as out:
        monkeypatch.setattr(sys, "stdin", type("In", (), {"buffer": stdin}))
        yield out


def until(blocks: Iterator[Any], enough: Callable[[int], bool]) -> list[Any]:
    """The blocks up to the one with which there are enough rows."""
    found, rows = [], 0
    while not enough(rows):
        found.append(next(blocks))
        rows += found[-1].length
    return found


def test_rows_that_have_arrived_are_given_when_it_is_time(pipe: BinaryIO) -> None:
    pipe.write(HEADER + b"1,2,3\n")
    source = open_source("-")
    due = False
    blocks = source.blocks(1000, deadline=lambda: due)
    empty = next(blocks)
    assert (empty.length, empty.rows.shape) == (0, (0, 3))  # nothing is given before its time, but the caller is asked
    due = True
    assert [block.rows.tolist() for block in until(blocks, lambda rows: rows == 1) if block.length] == [[[1, 2, 3]]]
    assert next(blocks).length == 0
    pipe.write(b"4,5,6\n7,8,")  # a row and a half
    (given,) = [block for block in until(blocks, lambda rows: rows == 1) if block.length]
    assert (given.start, given.rows.tolist()) == (1, [[4, 5, 6]])
    pipe.write(b"9\n")
    assert until(blocks, lambda rows: rows == 1)[-1].rows.tolist() == [[7, 8, 9]]
    pipe.write(b"1,1,")
    pipe.close()
    rest = [block for block in blocks if block.length]
    assert rest[0].bad[0].problem == "has an empty or NaN value in column 2 ('c')"


@pytest.mark.parametrize("size", [1, 7, 64])
def test_without_a_deadline_blocks_are_full_however_the_bytes_come(pipe: BinaryIO, size: int) -> None:
    X = np.round(np.random.default_rng(0).standard_normal((300, 3)), 4)
    data = HEADER + b"".join(",".join(map(repr, row)).encode() + b"\n" for row in X.tolist())

    def write() -> None:
        for at in range(0, len(data), 101):
            pipe.write(data[at : at + 101])
        pipe.close()

    writer = threading.Thread(target=write)
    writer.start()
    blocks = list(open_source("-").blocks(size, start=5))
    writer.join()
    assert {block.length for block in blocks[:-1]} == {size}
    np.testing.assert_array_equal(np.concatenate([block.rows for block in blocks]), X[5:])


@pytest.mark.parametrize("deadline", [None, lambda: False])
def test_waiting_can_be_interrupted(pipe: BinaryIO, deadline: Any) -> None:
    pipe.write(HEADER + b"1,2,3\n")
    source = open_source("-")

    class RungError(Exception):
        pass

    def ring(*_: Any) -> None:
        raise RungError

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises((RungError, SourceError)):
            for _ in source.blocks(1000, deadline=deadline):
                pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def stdin(monkeypatch: pytest.MonkeyPatch, data: bytes, **options: Any) -> Source:
    monkeypatch.setattr(sys, "stdin", type("In", (), {"buffer": io.BytesIO(data)}))
    return open_source("-", **options)


def test_compressed_standard_input_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    source = stdin(monkeypatch, gzip.compress(HEADER + b"1,2,3\n4,5,6"))
    assert "compressed by gzip" in source.notes
    assert next(source.blocks()).rows.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_a_named_pipe_is_a_stream(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    def write() -> None:
        with open(tmp_path / "pipe", "wb") as file:
            file.write(gzip.compress(HEADER + b"1,2,3\n4,5,6"))

    writer = threading.Thread(target=write)
    writer.start()
    source = open_source(tmp_path / "pipe")
    assert source.once
    assert next(source.blocks()).rows.tolist() == [[1, 2, 3], [4, 5, 6]]
    writer.join()


def test_json_lines_on_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    source = stdin(monkeypatch, b'{"a": 1, "b": 2}\n{"b": 4, "a": 3}\n{"a": 5, "b": 6}')
    assert source.feature_names == ["a", "b"]
    assert next(source.blocks()).rows.tolist() == [[1, 2], [3, 4], [5, 6]]


def test_standard_input_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownSourceError, match=r"standard input gives a file of a kind that must be searched \(parquet\)"):
        stdin(monkeypatch, b"PAR1" + bytes(100))
    with pytest.raises(SourceError, match="standard input is empty"):
        stdin(monkeypatch, b"")
    with pytest.raises(UnknownSourceError, match="cannot be one of several sources"):
        open_source(["-", "-"])


def test_names_and_numbers_of_a_pipe_do_not_depend_on_how_it_comes(pipe: BinaryIO, monkeypatch: pytest.MonkeyPatch) -> None:
    text = b"# made by x\n2019,2020,2021\n5,3,1\n1,2,3\n4,5,6\n"
    pipe.write(text[:45])
    slow = open_source("-")
    assert slow.feature_names == stdin(monkeypatch, text).feature_names == ["2019", "2020", "2021"]


@pytest.mark.parametrize("lead", [b"Report of May\n\n", b"", b"# made by a machine\n"])
def test_lines_of_words_do_not_hide_the_rows_of_a_slow_pipe(pipe: BinaryIO, lead: bytes) -> None:
    """As many lines are waited for as it takes, and what is found does not depend on how they come."""
    data = lead + HEADER + b"1.5,2,3\n4,5,6\n7,8,9"

    def write() -> None:
        for at in range(len(data)):
            pipe.write(data[at : at + 1])
        pipe.close()

    writer = threading.Thread(target=write)
    writer.start()
    source = open_source("-")
    (block,) = source.blocks()
    writer.join()
    assert source.feature_names == ["a", "b", "c"], source.notes
    assert block.rows.tolist() == [[1.5, 2, 3], [4, 5, 6], [7, 8, 9]]
    assert any("the last line of standard input has no line end and was taken as whole" in said for said in source.warnings)


@pytest.mark.parametrize("packed", ["gz", "bz2", "xz", "zst"])
def test_compressed_raw_rows_are_no_numbers(tmp_path: Path, packed: str) -> None:
    """Their bytes were learned as if they were the rows."""
    X = np.arange(2000.0).reshape(-1, 4)
    if packed == "zst":
        data = pytest.importorskip("pyarrow").compress(X.tobytes(), "zstd", asbytes=True)
    else:
        data = {"gz": gzip, "bz2": bz2, "xz": lzma}[packed].compress(X.tobytes())
    (tmp_path / "x.bin").write_bytes(data)
    with pytest.raises(SourceError, match=r"x\.bin is compressed, and raw rows are read as they are"):
        open_source(tmp_path / "x.bin", features=1, dtype="uint8")


def matrix_market(path: Path) -> None:
    mmwrite(path, csr_matrix(np.eye(6) + 0.5))


def json_array(path: Path) -> None:
    path.write_text('[{"a": 1, "b": 2},\n{"a": 3, "b": 5}]\n')


def a_pickle(path: Path) -> None:
    path.write_bytes(pickle.dumps(np.eye(6)))


def arrow(path: Path) -> None:
    pytest.importorskip("pyarrow.feather").write_feather(pytest.importorskip("pyarrow").table({"a": [1.0, 2.0], "b": [3.0, 5.0]}), path)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (matrix_market, r"of a kind that must be searched \(matrix market\)"),
        (json_array, "standard input is one JSON array or object with all rows in it; write JSON lines"),
        (a_pickle, "standard input is a pickle, which is not read here"),
        (arrow, r"of a kind that must be searched \(arrow\)"),
    ],
)
def test_what_no_pipe_can_give_is_refused_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Any, said: str) -> None:
    """The entries of a Matrix Market file were learned as rows of three."""
    make(tmp_path / "x.mtx")
    monkeypatch.setattr(sys, "stdin", type("In", (), {"buffer": io.BytesIO((tmp_path / "x.mtx").read_bytes())}))
    with pytest.raises(UnknownSourceError, match=said):
        open_source("-")
