"""A file larger than the memory allowed: peak resident memory, and the rate against the same rows in memory.

A file of 2 GB is made (``ONLINE_PSP_STREAM_GB`` sets another size), fitted in a process of its own, and deleted. The baseline is the same
model fed the same blocks from an array in memory, in the same process, over as many rows as fit into a twentieth of the file.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

_FEATURES, _COMPONENTS = 1024, 16

_CHILD = """
import resource, sys, time
import numpy as np
from threadpoolctl import threadpool_limits
from online_psp import OnlinePCA
from online_psp.io.sources import open_source
from online_psp.io.runs import start, steps

path, part, components = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with threadpool_limits(1):
    rows = np.load(path, mmap_mode="r")[:part].copy()
    warm = OnlinePCA(components).partial_fit(rows[:2000])

    def memory():
        model, block = OnlinePCA(components), open_source(rows).block_rows()
        began = time.perf_counter()
        for at in range(0, len(rows), block):
            model.partial_fit(rows[at : at + block])
        return len(rows) / (time.perf_counter() - began)

    before = memory()
    source = open_source(path)
    run = start(source, OnlinePCA(components))
    began = time.perf_counter()
    for _ in steps(run, source):
        pass
    file = source.total / (time.perf_counter() - began)
    after = memory()
assert run.model.n_samples_seen_ == source.total
print(before, after, file, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def write(path: Path, gigabytes: float) -> int:
    """Standardised noise with some strong directions, as float32, a part at a time."""
    rng = np.random.default_rng(0)
    rows = int(gigabytes * 1e9 / (4 * _FEATURES))
    directions = rng.standard_normal((_COMPONENTS, _FEATURES), dtype=np.float32)
    with open(path, "wb") as file:  # not memory-mapped: a child's peak memory, as Linux counts it, begins at that of its parent
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (rows, _FEATURES)})
        for at in range(0, rows, 4096):
            n = min(4096, rows - at)
            part = rng.standard_normal((n, _COMPONENTS), dtype=np.float32) @ directions
            file.write((part + rng.standard_normal((n, _FEATURES), dtype=np.float32)).data)
    return rows


def fit_by_command(path: Path, model: Path) -> tuple[float, float]:
    """Seconds and peak resident megabytes of ``psp fit`` with a checkpoint every five seconds, start-up included."""
    command = [
        sys.executable,
        "-m",
        "online_psp.cli",
        "fit",
        str(path),
        "-k",
        str(_COMPONENTS),
        "-o",
        str(model),
        "-q",
        "--checkpoint-every",
        "5s",
    ]
    began = time.perf_counter()
    process = subprocess.Popen(command, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"})
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"psp fit ended with {process.returncode}")
    return time.perf_counter() - began, used.ru_maxrss / 1024


def main() -> None:
    gigabytes = float(os.environ.get("ONLINE_PSP_STREAM_GB", "2"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        rows = write(path, gigabytes)
        command = [sys.executable, "-c", _CHILD, str(path), str(rows // 20), str(_COMPONENTS)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"})
        seconds, peak_fit = fit_by_command(path, Path(folder) / "model.psp")
    before, after, file, peak = map(float, done.stdout.split())
    memory = (before + after) / 2
    print(f"\nstreams: {rows} rows of {_FEATURES} float32 ({gigabytes:g} GB), K={_COMPONENTS}, one thread")
    print(f"in memory {memory:12,.0f} rows/s (before {before:,.0f}, after {after:,.0f})")
    print(f"from .npy {file:12,.0f} rows/s, {100 * file / memory:.0f} % of it")
    print(f"peak resident memory {peak:.0f} MB, of which the rows in memory {rows // 20 * _FEATURES * 4 / 1e6:.0f} MB")
    print(f"psp fit   {rows / seconds:12,.0f} rows/s, start-up and checkpoints included; peak resident memory {peak_fit:.0f} MB")
