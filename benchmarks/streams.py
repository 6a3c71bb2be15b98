"""Files larger than the memory allowed: the rate of every format against the same rows in memory, and peak resident memory.

Files of 1 GB are made (``ONLINE_PSP_STREAM_GB`` sets another size; text has a quarter of the rows), fitted in a process of their own each,
and deleted. The baseline is the same model fed the same blocks from an array in memory, in the same process and in turn, over a quarter of
the file (all of it for text); rates are the best of three, over the same rows. Where other programs use the cores on which files are read
ahead, the second figure, by the processor time of the thread that learns, says what is left when they do not. For text, there is also the
reader that came before: lines in Python, numbers by `numpy.loadtxt`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

_FEATURES, _NARROW, _COMPONENTS = 1024, 20, 16

_CHILD = """
import itertools, json, resource, sys, time
import numpy as np
from threadpoolctl import threadpool_limits
from online_psp import OnlinePCA
from online_psp.io.sources import open_source

path, part, components, before = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "before"

def rate(blocks):
    model, rows, began, own = OnlinePCA(components), 0, time.perf_counter(), time.thread_time()
    for block in blocks:
        model.partial_fit(block)
        rows += block.shape[0]
    return np.array([rows / (time.perf_counter() - began), rows / (time.thread_time() - own)])

def pieces(rows, size):
    return (rows[at : at + size] for at in range(0, len(rows), size))

def by_loadtxt(path, size):
    with open(path, encoding="utf-8-sig", errors="replace") as file:
        lines = (line for line in file if not line.isspace())
        next(lines)
        while taken := list(itertools.islice(lines, size)):
            yield np.loadtxt(taken, delimiter=",", ndmin=2, comments=None, quotechar='"')

with threadpool_limits(1):
    source = open_source(path)
    size = source.block_rows()
    for _ in source.blocks(size):  # what is loaded once is loaded
        break
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    count = max(1, part // size)
    first = np.concatenate([block.rows for block in itertools.islice(source.blocks(size), count)])
    rate(pieces(first[: 4 * size], size))
    memory, file, read, old = np.zeros(2), np.zeros(2), 0.0, np.zeros(2)
    for _ in range(3):  # in turn, the best of three: others may use the machine
        memory = np.maximum(memory, rate(pieces(first, size)))
        file = np.maximum(file, rate(block.rows for block in itertools.islice(source.blocks(size), count)))
        began = time.perf_counter()
        rows = sum(block.length for block in source.blocks(size))
        read = max(read, rows / (time.perf_counter() - began))
        if before:
            old = np.maximum(old, rate(itertools.islice(by_loadtxt(path, size), count)))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"memory": memory.tolist(), "file": file.tolist(), "read": read, "old": old.tolist(), "rows": rows, "base": base / 1024,
                  "peak": peak / 1024, "held": first.nbytes / 1e6}))
"""


def parts(rows: int, features: int) -> Any:
    """Standardised noise with some strong directions, as float32, a part at a time."""
    rng = np.random.default_rng(0)
    directions = rng.standard_normal((_COMPONENTS, features), dtype=np.float32)
    for at in range(0, rows, 4096):
        n = min(4096, rows - at)
        yield rng.standard_normal((n, _COMPONENTS), dtype=np.float32) @ directions + rng.standard_normal((n, features), dtype=np.float32)


def write_npy(path: Path, rows: int, features: int) -> None:
    """Not memory-mapped: a child's peak memory, as Linux counts it, begins at that of its parent."""
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (rows, features)})
        for part in parts(rows, features):
            file.write(part.data)


def write_parquet(path: Path, rows: int, features: int, lists: bool = False, compression: str = "snappy") -> None:
    """Columns of numbers, compressed as pandas does by default, or one column of lists, as embeddings are stored; 4,096 rows in a group."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def table(part: Any) -> Any:
        if lists:
            return pa.table({"embedding": pa.FixedSizeListArray.from_arrays(pa.array(part.ravel()), features)})
        return pa.table({f"f{i}": column for i, column in enumerate(part.T)})

    writer = None
    for part in parts(rows, features):
        found = table(part)
        writer = writer or pq.ParquetWriter(path, found.schema, compression=compression, use_dictionary=False)
        writer.write_table(found)
    if writer is not None:
        writer.close()


def write_csv(path: Path, rows: int, features: int) -> None:
    """As pandas writes float64: all digits."""
    with open(path, "w") as file:
        file.write(",".join(f"f{i}" for i in range(features)) + "\n")
        for part in parts(rows, features):
            file.writelines(",".join(map(repr, row)) + "\n" for row in part.astype(np.float64).tolist())


def measured(path: Path, rows: int, before: bool = False) -> dict[str, Any]:
    """Rates and memory of one file, from a process of its own."""
    command = [
        sys.executable,
        "-c",
        _CHILD,
        str(path),
        str(rows if before else max(rows // 4, 1)),
        str(_COMPONENTS),
        "before" if before else "-",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"})
    return dict(json.loads(done.stdout))


def report(name: str, found: dict[str, Any]) -> None:
    """One line a file."""
    (memory, memory_own), (file, file_own), (old, _) = found["memory"], found["file"], found["old"]
    before = f"; by numpy.loadtxt {old:,.0f}: {file / old:.1f} times" if old else ""
    print(
        f"{name:34} {file:10,.0f} rows/s fitted, {100 * file / memory:3.0f} % of in memory ({memory:,.0f}), "
        f"{100 * file_own / memory_own:3.0f} % by the time of the learning thread; read alone {found['read']:,.0f}{before}; "
        f"memory {found['peak'] - found['base'] - found['held']:.0f} MB beyond the rows held"
    )


def fit_by_command(path: Path, model: Path) -> tuple[float, float]:
    """Seconds and peak resident megabytes of ``psp fit`` with a checkpoint every five seconds, start-up included."""
    command = [sys.executable, "-m", "online_psp.cli", "fit", str(path), "-k", str(_COMPONENTS), "-o", str(model), "-q"]
    began = time.perf_counter()
    process = subprocess.Popen([*command, "--checkpoint-every", "5s"], env={**os.environ, "OPENBLAS_NUM_THREADS": "1"})
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"psp fit ended with {process.returncode}")
    return time.perf_counter() - began, used.ru_maxrss / 1024


def main() -> None:
    gigabytes = float(os.environ.get("ONLINE_PSP_STREAM_GB", "1"))
    rows = int(gigabytes * 1e9 / (4 * _FEATURES))
    narrow = rows * _FEATURES // _NARROW // 8
    print(f"\nstreams: files of {gigabytes:g} GB as float32, K={_COMPONENTS}, one thread for matrix products")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        write_npy(path, rows, _FEATURES)
        report(f".npy, {rows} × {_FEATURES}", measured(path, rows))
        seconds, peak = fit_by_command(path, Path(folder) / "model.psp")
        print(f"{'psp fit of it':34} {rows / seconds:10,.0f} rows/s, start-up and checkpoints included; peak resident memory {peak:.0f} MB")
        path.unlink()
        path = Path(folder) / "rows.parquet"
        for compression in ("snappy", "zstd"):
            write_parquet(path, rows, _FEATURES, compression=compression)
            report(f".parquet, {compression}, {rows} × {_FEATURES}", measured(path, rows))
        write_parquet(path, rows, _FEATURES, lists=True, compression="zstd")
        report(f".parquet, zstd, {rows} lists of {_FEATURES}", measured(path, rows))
        path.unlink()
        path = Path(folder) / "rows.csv"
        for count, features in ((rows // 4, _FEATURES), (narrow // 4, _NARROW)):
            write_csv(path, count, features)
            report(f".csv, {count} × {features}", measured(path, count, before=True))
