"""Files larger than the memory allowed: rows per second of ``psp fit`` by format, beside the same rows in memory, and peak memory."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from online_psp.pca import OnlinePCA
from online_psp.suite.tables import Table

_FEATURES, _K = 1024, 16


def _parts(rows: int, features: int) -> Iterator[Any]:
    """Noise with some strong directions, as float32, 4,096 rows at a time."""
    rng = np.random.default_rng(0)
    directions = rng.standard_normal((_K, features), dtype=np.float32)
    for at in range(0, rows, 4096):
        n = min(4096, rows - at)
        yield rng.standard_normal((n, _K), dtype=np.float32) @ directions + rng.standard_normal((n, features), dtype=np.float32)


def _write(path: Path, rows: int, features: int) -> None:
    """By the ending of the name: .npy, .parquet (compressed as pandas does by default), or .csv with all digits of float64."""
    parts, names = _parts(rows, features), [f"f{i}" for i in range(features)]
    if path.suffix == ".npy":
        whole = np.lib.format.open_memmap(path, "w+", np.float32, (rows, features))
        for at, part in enumerate(parts):
            whole[4096 * at : 4096 * at + len(part)] = part
        whole.flush()
    elif path.suffix == ".parquet":
        with pq.ParquetWriter(path, pa.schema([(name, pa.float32()) for name in names]), use_dictionary=False) as writer:
            for part in parts:
                writer.write_table(pa.table(dict(zip(names, part.T, strict=True))))
    else:
        with open(path, "w") as file:
            file.write(",".join(names) + "\n")
            for part in parts:
                file.writelines(",".join(map(repr, row)) + "\n" for row in part.astype(np.float64).tolist())


def _in_memory(rows: int, features: int) -> float:
    """Rows a second of `partial_fit` on the same rows."""
    parts = list(_parts(rows, features))
    OnlinePCA(_K).partial_fit(parts[0])
    model, began = OnlinePCA(_K), time.perf_counter()
    for part in parts:
        model.partial_fit(part)
    return rows / (time.perf_counter() - began)


def _by_command(path: Path, model: Path) -> tuple[float, float]:
    """Seconds, and peak resident megabytes, of ``psp fit``."""
    command = [sys.executable, "-m", "online_psp", "fit", str(path), "-k", str(_K), "-o", str(model), "--force", "-q"]
    began = time.perf_counter()
    process = subprocess.Popen(command, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"})
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"psp fit ended with {process.returncode}")
    return time.perf_counter() - began, used.ru_maxrss / 1024


def tables(out: Path, quick: bool = False) -> Iterator[Table]:
    """One line a format; what starting takes is measured on a file of few rows, and taken off."""
    rows = (20 if quick else 1000) * 10**6 // (4 * _FEATURES)
    formats = {"npy": (".npy", rows, _FEATURES), "parquet": (".parquet", rows, _FEATURES), "csv": (".csv", rows // 4, _FEATURES)}
    formats["csv, narrow"] = (".csv", rows * 2, 20)
    lines = []
    with TemporaryDirectory() as folder:
        few, model = Path(folder) / "few.npy", Path(folder) / "model.psp"
        _write(few, 500, _FEATURES)
        start = min(_by_command(few, model)[0] for _ in range(1 if quick else 3))
        for name, (ending, count, features) in formats.items():
            path = Path(folder) / f"rows{ending}"
            _write(path, count, features)
            seconds, peak = _by_command(path, model)
            memory = _in_memory(min(count, 100_000), features)
            size, told = f"{path.stat().st_size / 1e6:,.0f} MB, {count:,} × {features}", ("–", "–")
            if seconds > 2 * start:  # otherwise the difference says nothing
                rate = count / (seconds - start)
                told = (f"{rate:,.0f}", f"{100 * rate / memory:.0f} %")
            lines.append((name, size, f"{seconds:.1f}", *told, f"{peak:.0f}"))
            path.unlink()
    header = ("format", "file", "seconds", "rows per second", "of in memory", "peak memory, MB")
    yield Table(f"psp fit of whole files, K={_K}, start of {start:.1f} s taken off for the rates, wall-clock", header, tuple(lines))
