"""Ways to learn with threads as they come, against one thread of BLAS, in turn, by the clock on the wall."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from online_psp.engine.types import Floats
from online_psp.monitoring import Monitor
from online_psp.pca import OnlinePCA
from online_psp.suite.measure import in_turn
from online_psp.suite.rows import median
from online_psp.suite.tables import Table

_D, _K = 784, 16


def tables(out: Path, quick: bool = False) -> Iterator[Table]:
    """One table: nothing is to be slower with threads than without."""
    X, large = _rows(2000 if quick else 20_000, _D), _rows(400, 2048 if quick else 32_768)
    few, lines = X[: len(X) // 4], []
    with tempfile.TemporaryDirectory() as folder:
        np.save(path := Path(folder) / "rows.npy", X)
        ways: dict[str, tuple[int, Callable[[], Any]]] = {
            "`fit`": (len(X), lambda: OnlinePCA(_K).fit(X)),
            "`partial_fit`, 500 rows a call": (len(X), lambda: _in_calls(OnlinePCA(_K).partial_fit, X)),
            "`fit_next`": (len(few), lambda: _one_by_one(OnlinePCA(_K).partial_fit(few[:1]).fit_next, few[1:])),
            "`Monitor.update`, 500 rows a call": (len(few), lambda: _in_calls(Monitor(OnlinePCA(_K)).update, few)),
            "`psp fit`, a .npy file, with its start": (len(X), partial(_by_command, path)),
            "`psp fit --monitor`": (len(X), partial(_by_command, path, "--monitor", str(path.with_name("alarms.csv")))),
            f"`fit`, D={large.shape[1]}, K=64": (len(large), lambda: OnlinePCA(64).fit(large)),
        }
        for way, (rows, learn) in ways.items():
            learn()
            found = in_turn({"as it comes": learn, "one": partial(_alone, learn)}, 3 if quick else 9, time.perf_counter)
            ratios = sorted(np.divide(found["as it comes"], found["one"]))
            cells = (f"{rows / median(found['one']):,.0f}", f"{median(ratios):.2f}", f"{ratios[0]:.2f} – {ratios[-1]:.2f}")
            lines.append((way, *cells))
    header = ("way", "rows/s, one thread", "time as it comes / one", "range")
    yield Table(f"Threads as they come / one thread of BLAS, {os.cpu_count()} cores, D={_D}, K={_K}, wall-clock", header, tuple(lines))


def _alone(learn: Callable[[], Any]) -> None:
    """With one thread of BLAS, in this process and in those that it starts."""
    before = os.environ.get("OPENBLAS_NUM_THREADS")
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    try:
        with threadpool_limits(1, "blas"):
            learn()
    finally:
        os.environ.pop("OPENBLAS_NUM_THREADS")
        os.environ |= {} if before is None else {"OPENBLAS_NUM_THREADS": before}


def _by_command(path: Path, *options: str) -> None:
    words = [sys.executable, "-m", "online_psp", "fit", str(path), "-k", str(_K), "-o", str(path.with_suffix(".psp")), "--force", "-q"]
    subprocess.run([*words, *options], check=True)


def _rows(n: int, D: int) -> Floats:
    rng = np.random.default_rng(0)
    return np.asarray(rng.standard_normal((n, 16)) @ rng.standard_normal((16, D)) + 0.3 * rng.standard_normal((n, D)))


def _in_calls(learn: Callable[[Floats], Any], X: Floats) -> None:
    for start in range(0, len(X), 500):
        learn(X[start : start + 500])


def _one_by_one(learn: Callable[[Floats], Any], X: Floats) -> None:
    for x in X:
        learn(x)
