"""Files that want to harm: bombs, programs in disguise, damage of every kind. One sentence each, and nothing allocated or run."""

from __future__ import annotations

import gzip
import json
import pickle
import struct
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from PIL import Image
from scipy import sparse

from online_psp.io.sources import SourceError, open_source
from tests.contract.test_sources import data, feather, hdf5, npy, npz, npz_fortran, parquet, sparse_npz, ten_x, tsv_gz, zarr_array
from tests.messy_files import clean


@pytest.fixture
def small_memory() -> Iterator[None]:
    """Fails a test that takes more than 32 MB."""
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 32e6, f"{peak / 1e6:.0f} MB were allocated"


def refused(path: Any, message: str, **options: Any) -> None:
    with pytest.raises(SourceError, match=message) as raised:
        for _ in open_source(path, **options).blocks():
            pass
    assert "\n" not in str(raised.value)


def npy_claim(shape: tuple[int, ...], fortran: bool = False) -> bytes:
    header = repr({"descr": "<f8", "fortran_order": fortran, "shape": shape}).encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header) + 1) + header + b"\n" + bytes(64)


@pytest.mark.usefixtures("small_memory")
@pytest.mark.parametrize(
    ("shape", "fortran", "message"),
    [((1, 10**11), False, "one row would take 800.0 GB"), ((10**6, 10**6), True, "must be unpacked, would take 8,000.0 GB")],
)
def test_arrays_that_claim_to_be_huge(tmp_path: Path, shape: tuple[int, int], fortran: bool, message: str) -> None:
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", npy_claim(shape, fortran))
    refused(tmp_path / "x.npz", rf"x\.npz::a: .*{message}.*max_memory")
    (tmp_path / "x.npy.gz").write_bytes(gzip.compress(npy_claim(shape, fortran)))
    refused(tmp_path / "x.npy.gz", message)
    (tmp_path / "x.npy").write_bytes(npy_claim(shape, fortran))
    refused(tmp_path / "x.npy", "is not a whole .npy file")


@pytest.mark.usefixtures("small_memory")
def test_a_line_without_end(tmp_path: Path) -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join(packer.compress(b"1," * 500_000) for _ in range(100)) + packer.flush()
    (tmp_path / "x.csv.gz").write_bytes(bomb)
    refused(tmp_path / "x.csv.gz", r"x\.csv\.gz, line 1: the line is longer than 1\.0 MB.*max_memory", max_memory=1 << 25)
    (tmp_path / "x.jsonl.gz").write_bytes(bomb)
    refused(tmp_path / "x.jsonl.gz", r"line 1: the line is longer than", max_memory=1 << 25)


@pytest.mark.usefixtures("small_memory")
@pytest.mark.parametrize(
    "text",
    [
        "coordinate real general\n800000000000 1 0\n",
        "coordinate real general\n3 3 900000000000\n1 1 1\n",
        "array real general\n1000000 1000000\n1\n",
    ],
)
def test_matrix_market_files_that_claim_to_be_huge(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.mtx").write_text(f"%%MatrixMarket matrix {text}")
    refused(tmp_path / "x.mtx", r"read as a whole, would take [\d.,]+ GB, and .* are allowed")


def test_whole_numbers_beyond_64_bits(tmp_path: Path) -> None:
    for number, right in ((2**63 - 1, True), (2**63, False), (-(2**63), True), (10**30, False)):
        (tmp_path / "x.mtx").write_text(f"%%MatrixMarket matrix coordinate integer general\n% c\n2 2 2\n1 1 5\n2 1 {number}\n")
        if right:
            (block,) = open_source(tmp_path / "x.mtx").blocks()
            assert block.rows.toarray()[1, 0] == float(number)
        else:
            refused(tmp_path / "x.mtx", "out of range|in place of an entry")
    (tmp_path / "x.mtx").write_text(f"%%MatrixMarket matrix coordinate real general\n2 2 1\n2 1 {2**63}\n")
    assert next(open_source(tmp_path / "x.mtx").blocks()).rows.toarray()[1, 0] == 2.0**63


@pytest.mark.usefixtures("small_memory")
def test_stored_chunks_that_are_huge(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", (10**5, 10**4), "f8", chunks=(10**4, 10**4), compression="gzip")
    refused(tmp_path / "x.h5", "one stored chunk would take 800.0 MB", max_memory=1 << 26)
    zarr.create_array(str(tmp_path / "x.zarr"), shape=(10**5, 10**4), chunks=(10**4, 10**4), dtype="f8")
    refused(tmp_path / "x.zarr", "one stored chunk would take 800.0 MB", max_memory=1 << 26)


def picture_bomb(path: Path) -> None:
    """A PNG of a few bytes that claims to be 60,000 × 60,000."""
    Image.fromarray(np.zeros((1, 1), dtype=np.uint8)).save(path)
    whole = bytearray(path.read_bytes())
    whole[16:24] = struct.pack(">II", 60_000, 60_000)
    whole[29:33] = struct.pack(">I", zlib.crc32(whole[12:29]))
    path.write_bytes(whole)


def test_pictures_that_are_none_are_bad_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import subprocess

    def no_program(*args: Any, **kwargs: Any) -> Any:
        pytest.fail(f"a program was run for a picture: {args}")

    monkeypatch.setattr(subprocess, "Popen", no_program)
    Image.fromarray(np.ones((4, 3), dtype=np.uint8)).save(tmp_path / "2.png")
    Image.fromarray(np.ones((4, 3), dtype=np.uint8)).save(tmp_path / "6.png")
    picture_bomb(tmp_path / "1.png")
    (tmp_path / "3.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 3 4\n%%EndComments\n(x) run\n")
    (tmp_path / "4.png").write_bytes((tmp_path / "2.png").read_bytes()[:40])
    (tmp_path / "5.png").write_bytes(b"")
    source = open_source(tmp_path, ids="file")
    (block,) = source.blocks()
    assert [bad.row for bad in block.bad] == [1, 3, 4, 5]
    assert "pixels" in block.bad[0].problem
    assert "not a picture that can be read" in block.bad[1].problem
    assert block.rows.shape == (2, 12)
    assert block.ids is not None
    assert block.ids[:, 0].tolist() == [f"{i}.png" for i in range(1, 7)]


# Zarr and HDF5


class Marker:
    """Pickled, it writes a file when it is loaded."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return open, (self.path, "w")


def test_a_codec_that_runs_code_is_not_run(tmp_path: Path) -> None:
    store = tmp_path / "x.zarr"
    for compressor, filters in (({"id": "pickle"}, None), (None, [{"id": "pickle"}])):
        store.mkdir(exist_ok=True)
        metadata = {"chunks": [2, 2], "compressor": compressor, "dtype": "<f8", "fill_value": 0, "filters": filters, "order": "C"}
        (store / ".zarray").write_text(json.dumps({**metadata, "shape": [2, 2], "zarr_format": 2}))
        (store / "0.0").write_bytes(pickle.dumps(Marker(str(tmp_path / "ran"))))
        refused(store, r"x\.zarr is stored with the codec 'pickle', which is not run here")
        assert not (tmp_path / "ran").exists()


def test_chunks_that_are_not_there_are_said(tmp_path: Path) -> None:
    X = clean()
    array = zarr.create_array(str(tmp_path / "x.zarr"), shape=X.shape, chunks=(10, 5), dtype="f8")
    array[:] = X
    assert open_source(tmp_path / "x.zarr").warnings == []
    for lost in [*(tmp_path / "x.zarr").rglob("3"), *(tmp_path / "x.zarr").rglob("c/2/0")]:
        if lost.is_file():
            lost.unlink()
    (warning,) = open_source(tmp_path / "x.zarr").warnings
    assert "of the 6 chunks of" in warning
    assert "read as 0.0: never written, or lost" in warning
    with h5py.File(tmp_path / "x.h5", "w") as file:
        rows = file.create_dataset("x", X.shape, "f8", chunks=(10, 5), fillvalue=-1)
        rows[:30] = X[:30]
    (warning,) = open_source(tmp_path / "x.h5").warnings
    assert "3 of the 6 chunks of" in warning


def test_parts_of_a_virtual_table_that_are_missing(tmp_path: Path) -> None:
    X = clean()
    layout = h5py.VirtualLayout(shape=(120, 5), dtype="f8")
    for i in range(2):
        with h5py.File(tmp_path / f"part{i}.h5", "w") as file:
            file["x"] = X
        layout[60 * i : 60 * i + 60] = h5py.VirtualSource(f"part{i}.h5", "x", shape=X.shape)
    with h5py.File(tmp_path / "all.h5", "w") as file:
        file.create_virtual_dataset("x", layout)
    assert sum(block.length for block in open_source(tmp_path / "all.h5").blocks()) == 120
    (tmp_path / "part1.h5").unlink()
    refused(tmp_path / "all.h5", r"all\.h5::/x is put together from other files, and part1\.h5 is not there")


# Damage


def excel_book(folder: Path, X: Any) -> Any:
    book = openpyxl.Workbook()
    for row in X[:40].tolist():
        book.active.append(row)
    book.save(folder / "x.xlsx")
    return folder / "x.xlsx"


def json_lines(folder: Path, X: Any) -> Any:
    (folder / "x.jsonl").write_text("\n".join(json.dumps(row) for row in X.tolist()))
    return folder / "x.jsonl"


DAMAGED: list[tuple[Callable[[Path, Any], Any], int]] = [
    (npy, 60), (npz, 60), (npz_fortran, 40), (hdf5, 150), (ten_x, 100), (parquet, 100), (feather, 100), (sparse_npz, 60), (tsv_gz, 60),
    (excel_book, 25), (json_lines, 40),
]  # fmt: skip


def outcome(source: Any) -> str:
    """The sentence that comes of reading it all, or that there is none; any other error goes through."""
    try:
        for _ in open_source(source, max_memory=1 << 28).blocks():
            pass
    except SourceError as error:
        return str(error)
    return "It was read."


@pytest.mark.parametrize(("maker", "times"), DAMAGED, ids=[maker.__name__ for maker, _ in DAMAGED])
def test_damage_anywhere_gives_rows_or_one_sentence(tmp_path: Path, maker: Callable[[Path, Any], Any], times: int) -> None:
    made = str(maker(tmp_path, data()))
    path = Path(made.partition("::")[0])
    whole, rng = path.read_bytes(), np.random.default_rng(5)
    for _ in range(times):
        broken = bytearray(whole)
        if rng.random() < 0.3:
            broken = broken[: int(rng.integers(len(whole)))]
        elif rng.random() < 0.2:
            at = int(rng.integers(len(whole)))
            broken[at : at + 16] = rng.integers(0, 256, 16, dtype=np.uint8).tobytes()
        else:
            for at in rng.integers(0, len(whole) if rng.random() < 0.5 else min(len(whole), 600), int(rng.integers(1, 4))):
                broken[at] = int(rng.integers(256))
        path.write_bytes(broken)
        said = outcome(made)
        assert "\n" not in said
        assert said.endswith(".")


def test_damage_of_a_zarr_store(tmp_path: Path) -> None:
    store, rng = Path(zarr_array(tmp_path, data())), np.random.default_rng(2)
    files = [file for file in store.rglob("*") if file.is_file()]
    for _ in range(60):
        file = files[int(rng.integers(len(files)))]
        whole = file.read_bytes()
        broken = bytearray(whole)
        broken[int(rng.integers(len(whole)))] = int(rng.integers(256))
        file.write_bytes(broken)
        assert "\n" not in outcome(store)
        file.write_bytes(whole)


def test_a_frame_with_text_and_an_anndata_object_say_what_to_do() -> None:
    import pandas as pd
    import polars as pl

    for frame in (pd.DataFrame({"a": [1.0], "name": ["x"]}), pl.DataFrame({"a": [1.0], "name": ["x"]})):
        refused(frame, r"column 1 \('name'\) is of (large_)?string(_view)?, not numbers: leave it out")
        (block,) = open_source(frame, columns=["a"], ids="name").blocks()
        assert block.rows.tolist() == [[1]]
        assert block.ids is not None
        assert block.ids.tolist() == [["x"]]

    class AnnData:
        X = sparse.csr_matrix((2, 2))
        obs_names = var_names = ("a", "b")
        shape = (2, 2)

    refused(AnnData(), r"pass adata\.X .*the path of its \.h5ad file, or use online_psp\.integrations\.anndata\.fit\(adata, 50\)")


@pytest.mark.parametrize("max_memory", [1 << 30, 70_000])
def test_a_parquet_file_whose_columns_contradict_their_statistics_is_damaged(tmp_path: Path, max_memory: int) -> None:
    """Arrow ends the process that asks for the description of such a column."""
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({f"x{i}": np.arange(3000.0) + i for i in range(5)}), path)
    data = path.read_bytes()
    optional = b"%\x02\x18\x02x2"
    assert data.count(optional) == 1, "the footer is written in another way than it was: the test has to find the column anew"
    path.write_bytes(data.replace(optional, b"%\x00\x18\x02x2"))
    refused(path, "cannot be read", max_memory=max_memory)


@pytest.mark.parametrize(("option", "value"), [("max_memory", "1G"), ("max_memory", True), ("features", "3")])
def test_numbers_that_are_none_are_said(option: str, value: Any) -> None:
    refused(np.zeros((4, 3)), f"{option} is a number", **{option: value})
