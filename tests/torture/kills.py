"""SIGKILL at random moments, over all kinds of sources and all algorithms; slow pipes that are interrupted."""

from __future__ import annotations

import gzip
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from online_psp import ALGORITHMS, OnlinePCA
from online_psp.engine.types import Floats
from online_psp.io import runs
from tests.torture._common import Tally, complaint, fork, psp, rows, run, wait


def _text(path: Path, X: Floats) -> list[Path]:
    opener: Any = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wt") as file:
        np.savetxt(file, X, fmt="%.17g", delimiter=",", header=",".join(f"x{i}" for i in range(X.shape[1])), comments="")
    return [path]


def _npy(folder: Path, X: Floats) -> list[Path]:
    np.save(folder / "x.npy", X)
    return [folder / "x.npy"]


def _npz(folder: Path, X: Floats) -> list[Path]:
    np.savez_compressed(folder / "x.npz", x=X)
    return [folder / "x.npz"]


def _several(folder: Path, X: Floats) -> list[Path]:
    return [_text(folder / f"part{i}.csv", part)[0] for i, part in enumerate(np.array_split(X, 4))]


def _parquet(folder: Path, X: Floats) -> list[Path]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({f"x{i}": X[:, i] for i in range(X.shape[1])}), folder / "x.parquet", row_group_size=700)
    return [folder / "x.parquet"]


def _hdf5(folder: Path, X: Floats) -> list[Path]:
    import h5py

    with h5py.File(folder / "x.h5", "w") as file:
        file["x"] = X
    return [folder / "x.h5"]


def _raw(folder: Path, X: Floats) -> list[Path]:
    X.tofile(folder / "x.bin")
    return [folder / "x.bin"]


def _sparse(folder: Path, X: Floats) -> list[Path]:
    from scipy import sparse

    sparse.save_npz(folder / "x.npz", sparse.csr_matrix(X * (np.random.default_rng(1).random(X.shape) < 0.2)))
    return [folder / "x.npz"]


SOURCES: dict[str, Callable[[Path, Floats], list[Path]]] = {
    "npy": _npy,
    "npz": _npz,
    "csv": lambda folder, X: _text(folder / "x.csv", X),
    "csv.gz": lambda folder, X: _text(folder / "x.csv.gz", X),
    "several files": _several,
    "parquet": _parquet,
    "hdf5": _hdf5,
    "raw": _raw,
    "sparse": _sparse,
}


def _options(kind: str, X: Floats, chance: random.Random) -> list[Any]:
    """Options of ``psp fit`` that go together; the rows are changed where they need it."""
    found: list[Any] = []
    named = kind in ("csv", "csv.gz", "several files", "parquet")
    if named and chance.random() < 0.3:
        X[:, 0] = np.arange(len(X)) * 2.0
        found += ["--time-column", "x0", "--half-life", chance.choice(["2m", "1h"])]
    else:
        found += ["--set", "epochs=2"] if chance.random() < 0.3 else []
        found += ["--half-life", chance.choice([50, 2000])] if chance.random() < 0.3 else []
    found += ["--standardize"] if chance.random() < 0.2 and kind != "sparse" else []
    found += ["--set", "axes=stable"] if chance.random() < 0.2 else []
    if kind != "sparse":
        found += ["--robust"] if chance.random() < 0.3 else []
        if chance.random() < 0.3:
            found += ["--missing", "impute"]
            holes = np.random.default_rng(chance.randrange(1000)).random(X.shape) < 0.1
            X[:, 1:][holes[:, 1:]] = np.nan
    return found


def kills(folder: Path, chance: random.Random, most: int = 20, kind: str | None = None) -> Tally:
    """One run, killed so often, against one that was not."""
    tally = Tally()
    kind, algorithm = kind or chance.choice(list(SOURCES)), chance.choice(["", "", *ALGORITHMS])
    n, D = 6000, chance.choice([8, 40])
    X = rows(n, D, chance.randrange(1000))
    options: list[Any] = ["-k", 3, "-q", "--set", "block=100"]
    options += ["--algorithm", algorithm] if algorithm else ["--set", "oversample=2", *_options(kind, X, chance)]
    options += ["--set", f"features={D}"] if kind == "raw" else []
    alarms = not algorithm and chance.random() < 0.3 and not {"epochs=2", "--missing"} & set(options)
    sources = SOURCES[kind](folder, X)

    def fit(name: str, *more: Any) -> Callable[[], int]:
        table = ["--monitor", folder / f"{name}.csv"] if alarms else []
        return psp("fit", *sources, *options, "-o", folder / f"{name}.psp", *table, *more)

    words = f"{kind}, {algorithm}, {' '.join(map(str, options[3:]))}{' --monitor' if alarms else ''}"
    ended = run(fit("whole"), folder)
    if complaint(ended, (0,)):
        tally.lost.append(f"kills of {words}: the run itself: {complaint(ended, (0,))}")
        return tally
    said = folder / "said.txt"
    while tally.tried < most:
        child = fork(fit("m", "--resume", "--checkpoint-every", 100), said)
        time.sleep(chance.uniform(0.0, 0.3))
        os.kill(child, signal.SIGKILL)
        ended = wait(child, said)
        tally.kinds[kind] += 1
        tally.tried += 1
        if ended.code is not None:  # it was done before
            break
    ended = run(fit("m", "--resume"), folder)
    problem = complaint(ended, (0,)) or _compare(folder, n * (2 if "epochs=2" in options else 1), kind == "sparse")
    if problem:
        tally.lost.append(f"kills of {words}: {problem}")
    else:
        tally.right += tally.tried
    return tally


def _compare(folder: Path, n: int, to_rounding: bool) -> str | None:
    found, whole = (runs.reopen(folder / name).model for name in ("m.psp", "whole.psp"))
    seen = found.n_samples_seen_ if isinstance(found, OnlinePCA) else found.t
    if seen != n:
        return f"{seen} rows, not {n}"
    if to_rounding and isinstance(found, OnlinePCA):  # sparse: every row once shows in the moments
        same = np.allclose(found.mean_, whole.mean_, atol=1e-10) and np.allclose(found.var_, whole.var_, rtol=1e-9)
        return None if same else "moments differ: rows were lost, or counted twice"
    if (folder / "whole.csv").exists() and (folder / "m.csv").read_bytes() != (folder / "whole.csv").read_bytes():
        return "another table of alarms than the run that was not killed"
    if (folder / "m.psp").read_bytes() != (folder / "whole.psp").read_bytes():
        return "other bytes than the run that was not killed"
    left = [name for name in os.listdir(folder) if name.endswith((".partial", ".lock"))]
    return f"left behind: {left}" if left else None


def pipes(folder: Path, chance: random.Random) -> Tally:
    """A pipe at some rate, interrupted by some signal: what had come a while before is in the model."""
    tally = Tally(tried=1)
    number = chance.choice([signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
    pause, D = chance.choice([0.0, 0.002, 0.02, 0.1]), 6
    X = rows(200_000, D, chance.randrange(1000))
    reading, writing = os.pipe()
    said, model = folder / "said.txt", folder / "m.psp"

    def learn() -> int:
        os.dup2(reading, 0)
        os.close(writing)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored, and stays so
        return psp("fit", "-", "-k", 2, "-o", model, "-q", "--checkpoint-every", "1s")()

    child = fork(learn, said)
    os.close(reading)
    end, more = time.monotonic() + 60.0, chance.uniform(0.2, 4.0)
    sent = 0
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    try:
        for row in X.tolist():
            os.write(writing, (",".join(map(repr, row)) + "\n").encode())
            sent += 1
            if more and model.exists():  # it has begun: from here on, nothing that is sent may be lost
                end, more = time.monotonic() + more, 0.0
            if time.monotonic() > end:
                break
            if pause:
                time.sleep(pause)
    except BrokenPipeError:
        pass
    signalled = time.monotonic()
    os.kill(child, number)
    ended = wait(child, said, 30.0)
    os.close(writing)
    took = time.monotonic() - signalled
    problem = complaint(ended, (130,))
    if problem is None and not model.exists():
        problem = f"{sent} rows came in a minute, and no model"
    elif problem is None:
        found = runs.reopen(model)
        if found.row != found.model.n_samples_seen_ or found.row > sent:
            problem = f"row {found.row}, {found.model.n_samples_seen_} samples, {sent} sent"
        elif pause and sent - found.row > 2 + 1.5 / pause:
            problem = f"{sent} rows were sent at one in {pause} s, and {found.row} are in the model"
    if problem:
        tally.lost.append(f"pipe, {number!r}, {pause} s a row, ended in {took:.1f} s: {problem}")
    else:
        tally.right += 1
    return tally
