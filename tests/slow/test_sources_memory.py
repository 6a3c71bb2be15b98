"""Memory stays at a few blocks for every format, whatever the size of the file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BOUND = 8 << 20

_CHILD = r"""
import gzip, json, lzma, sys, zipfile
from pathlib import Path
import h5py, numpy as np, pyarrow as pa, pyarrow.feather, pyarrow.parquet as pq, zarr
from PIL import Image
from scipy import sparse
from online_psp.io.sources import open_source

folder, bound, columns = Path(sys.argv[1]), int(sys.argv[2]), 500

def text(rows, delimiter=b","):
    line = delimiter.join(b"%d.25" % (i % 7) for i in range(columns)) + b"\n"
    return line, rows

def csv(path, rows, opener=open):
    line, _ = text(rows)
    with opener(path, "wb") as file:
        for _ in range(rows // 100):
            file.write(line * 100)

def blocks(rows):
    rng = np.random.default_rng(0)
    part = rng.standard_normal((100, columns))
    for _ in range(rows // 100):
        yield part

def npy(path, rows):
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (rows, columns)})
        for block in blocks(rows):
            file.write(block.data)

def npy_fortran(path, rows):
    array = np.lib.format.open_memmap(path, "w+", "f8", (rows, columns), fortran_order=True)
    array[:] = 1.5

def npz(path, rows):
    npy(folder / "inner", rows)
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(folder / "inner", "x.npy")

def parquets(path, rows, table):
    with pq.ParquetWriter(path, table.schema, use_dictionary=False) as writer:
        for _ in range(max(1, rows // 1000)):
            writer.write_table(pa.concat_tables([table] * (min(rows, 1000) // 100)).combine_chunks())
        writer.write_table(pa.concat_tables([table] * (rows % 1000 // 100)).combine_chunks() if rows > 1000 else table[:0])

def parquet(path, rows):
    block = next(blocks(100))
    parquets(path, rows, pa.table({f"f{i}": block[:, i] for i in range(columns)}))

def lists(path, rows):
    parquets(path, rows, pa.table({"v": pa.array(next(blocks(100)).tolist(), pa.list_(pa.float64()))}))

def arrow(path, rows):
    first = pa.table({f"f{i}": np.ones(100) for i in range(columns)})
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, first.schema) as writer:
        for _ in range(rows // 100):
            writer.write_table(first)

def hdf5(path, rows):
    with h5py.File(path, "w") as file:
        table = file.create_dataset("x", (rows, columns), "f8", chunks=(100, columns))
        for i, block in enumerate(blocks(rows)):
            table[100 * i : 100 * i + 100] = block

def zarrs(path, rows):
    table = zarr.create_array(str(path), shape=(rows, columns), chunks=(100, columns), dtype="f8", overwrite=True)
    for i, block in enumerate(blocks(rows)):
        table[100 * i : 100 * i + 100] = block

def raw(path, rows):
    with open(path, "wb") as file:
        for block in blocks(rows):
            file.write(block.data)

def csr(path, rows):
    per_row = 60
    entries = rows * per_row
    indices = np.tile(np.arange(per_row, dtype=np.int32), rows)
    matrix = sparse.csr_array((np.ones(entries), indices, np.arange(0, entries + 1, per_row)), shape=(rows, 10**6))
    sparse.save_npz(path, matrix, compressed=False)

def csr_hdf5(path, rows):
    per_row = 60
    with h5py.File(path, "w") as file:
        group = file.create_group("X")
        group.attrs["encoding-type"], group.attrs["shape"] = "csr_matrix", (rows, 10**6)
        group.create_dataset("data", data=np.ones(rows * per_row), chunks=(10_000,))
        group.create_dataset("indices", data=np.tile(np.arange(per_row, dtype=np.int32), rows), chunks=(10_000,))
        group["indptr"] = np.arange(0, rows * per_row + 1, per_row)

def jsonl(path, rows):
    line = json.dumps([0.25] * columns).encode() + b"\n"
    with open(path, "wb") as file:
        for _ in range(rows // 100):
            file.write(line * 100)

def excel(path, rows):
    import openpyxl
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("x")
    for _ in range(rows // 40):  # a few only: the slowest by far
        sheet.append([0.25] * (columns // 5))
    book.save(path)

def pictures(path, rows):
    path.mkdir()
    for i in range(rows // 100):
        Image.fromarray(np.full((500, 100), i % 250, dtype=np.uint8)).save(path / f"{i}.png")

def several(path, rows):
    path.mkdir()
    for i in range(5):
        csv(path / f"{i}.csv", rows // 5)

FORMATS = {
    "csv": csv,
    "csv.gz": lambda path, rows: csv(path, rows, gzip.open),
    "csv.xz": lambda path, rows: csv(path, rows, lambda path, mode: lzma.open(path, mode, preset=0)),
    "npy": npy, "fortran.npy": npy_fortran, "npz": npz, "parquet": parquet, "lists.parquet": lists, "arrow": arrow, "h5": hdf5,
    "zarr": zarrs, "bin": raw, "csr.npz": csr, "h5ad": csr_hdf5, "jsonl": jsonl, "xlsx": excel, "pictures": pictures, "several": several,
}

def status(key):
    for line in open("/proc/self/status"):
        if line.startswith(key):
            return int(line.split()[1]) * 1024

def read(path):
    options = {"features": columns, "dtype": "float64"} if path.suffix == ".bin" else {}
    return sum(block.length for block in open_source(path, max_memory=bound, **options).blocks())

for name, write in FORMATS.items():
    if len(sys.argv) > 3 and name not in sys.argv[3:]:
        continue
    big = 10 * bound // (8 * columns) // 100 * 100
    write(folder / f"small.{name}", 500)
    read(folder / f"small.{name}")
    if name == "csr.npz" or name == "h5ad":
        big = 10 * bound // (12 * 60)
    write(folder / f"big.{name}", big)
    import gc; gc.collect()
    pa.default_memory_pool().release_unused()
    open("/proc/self/clear_refs", "w").write("5")
    before = status("VmHWM")
    rows = read(folder / f"big.{name}")
    expected = {"xlsx": big // 40, "pictures": big // 100, "several": big // 500 * 500}.get(name, big)
    print(json.dumps({"format": name, "rows": rows, "expected": expected, "growth": status("VmHWM") - before}), flush=True)
"""


def test_a_file_ten_times_the_bound_is_read_within_it(tmp_path: Path) -> None:
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("the peak of memory can be measured on Linux only")
    command = [sys.executable, "-c", _CHILD, str(tmp_path), str(BOUND)]
    environment = {**os.environ, "MIMALLOC_PURGE_DELAY": "0"}  # Arrow's allocator keeps for a while what it has had
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == 18
    for each in found:  # the allowance is for one block; libraries hold some more, and a row group or chunk beside it
        assert each["rows"] == each["expected"], each
        assert each["growth"] < 4 * BOUND, (
            f"{each['format']}: {each['growth'] / 2**20:.1f} MB more while reading ten times {BOUND >> 20} MB"
        )
