"""Sources elsewhere, by fsspec: its file system in memory, and a server on this machine."""

from __future__ import annotations

import builtins
import functools
import gzip
import http.server
import io
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from online_psp.io.sources import MissingExtraError, Source, SourceError, UnknownSourceError, different, identity, open_source
from tests.messy_files import NAMES, clean, lines

fsspec = pytest.importorskip("fsspec")


def contents() -> dict[str, bytes]:
    """The clean table in several formats."""
    X = clean()
    found = {"x.csv": "\n".join(lines(X)).encode(), "x.csv.gz": gzip.compress("\n".join(lines(X)).encode())}
    stream = io.BytesIO()
    np.save(stream, X)
    found["x.npy"] = stream.getvalue()
    stream = io.BytesIO()
    np.savez(stream, a=X, b=X[:3])
    found["x.npz"] = stream.getvalue()
    stream = io.BytesIO()
    pq.write_table(pa.table(dict(zip(NAMES, X.T, strict=True))), stream)
    found["x.parquet"] = stream.getvalue()
    stream = io.BytesIO()
    with h5py.File(stream, "w") as file:
        file["x"] = X
    found["x.h5"] = stream.getvalue()
    return found


def rows(source: Source) -> Any:
    return np.concatenate([block.rows for block in source.blocks(17)])


@pytest.fixture
def memory() -> Iterator[str]:
    """A folder of fsspec's file system in memory."""
    system = fsspec.filesystem("memory")
    for name, data in contents().items():
        system.pipe(f"/sources/{name}", data)
    yield "memory://sources"
    system.rm("/sources", recursive=True)


@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz", "x.npy", "x.npz::a", "x.parquet", "x.h5"])
def test_formats_in_memory(memory: str, name: str) -> None:
    source = open_source(f"{memory}/{name}")
    np.testing.assert_array_equal(rows(source), clean())
    np.testing.assert_array_equal(rows(source), clean())  # and again
    assert different(identity(source), source, 60) is None


def test_patterns_and_folders(memory: str) -> None:
    system = fsspec.filesystem("memory")
    for i in (1, 2, 10):
        system.pipe(f"/sources/parts/{i}.csv", "\n".join(lines(clean() + i)).encode())
    expected = np.concatenate([clean() + i for i in (1, 2, 10)])
    for name in (f"{memory}/parts/*.csv", f"{memory}/parts"):
        source = open_source(name)
        np.testing.assert_allclose(rows(source), expected, rtol=1e-14)
        assert source.feature_names == NAMES
    system.pipe("/sources/parts/2.csv", b"depth,speed,heat,load,noise\n1,2,3,x,5\n1,2,3,4,5\n")
    (bad,) = [bad for block in open_source(f"{memory}/parts/*.csv").blocks() for bad in block.bad]
    assert "text 'x' in column 3 ('load')" in bad.problem
    with pytest.raises(UnknownSourceError, match="matches no file"):
        open_source(f"{memory}/none/*.csv")
    with pytest.raises(UnknownSourceError, match=r"memory://sources/none\.csv cannot be opened"):
        open_source(f"{memory}/none.csv")


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves a folder without a word."""

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The address of a folder with the same files."""
    pytest.importorskip("aiohttp")
    for name, data in contents().items():
        (tmp_path / name).write_bytes(data)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(tmp_path))) as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{running.server_address[1]}"
        running.shutdown()
        thread.join()


@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz", "x.npy", "x.parquet"])
def test_formats_by_http(server: str, name: str) -> None:
    source = open_source(f"{server}/{name}")
    np.testing.assert_array_equal(rows(source), clean())
    assert list(source.blocks(30, start=31))[-1].length == 29


def test_what_cannot_be_had_by_http(server: str) -> None:
    with pytest.raises(SourceError, match=r"x\.npz cannot be read as npz \(The HTTP server doesn't appear to support range requests"):
        open_source(f"{server}/x.npz::a")
    with pytest.raises(SourceError, match=rf"{server}/none\.csv cannot be opened"):
        open_source(f"{server}/none.csv")


def test_a_url_without_the_extra_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(wanted: str, *args: Any, **kwargs: Any) -> Any:
        if wanted.partition(".")[0] == "fsspec":
            raise ImportError(wanted)
        return real(wanted, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=r"https://example\.org/x\.csv needs fsspec: pip install 'online-psp\[remote\]'"):
        open_source("https://example.org/x.csv")


def test_a_scheme_that_nobody_knows() -> None:
    with pytest.raises(SourceError, match=r"nowhere://x\.csv cannot be opened"):
        open_source("nowhere://x.csv")
