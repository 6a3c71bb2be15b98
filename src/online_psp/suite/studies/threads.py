"""Every way to learn with threads as they come, against one thread of BLAS, in turn, by the clock on the wall."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from online_psp.engine.types import Floats
from online_psp.io.runs import fit_stream
from online_psp.monitoring import Monitor
from online_psp.pca import OnlinePCA
from online_psp.suite.rows import median
from online_psp.suite.speed import steady_model
from online_psp.suite.tables import Table
from online_psp.watch import Dashboard

_D, _K = 784, 16


def tables(out: Path, quick: bool = False) -> Iterator[Table]:
    """One table: nothing is to be slower with threads than without."""
    n, repeats, lines = 2000 if quick else 20_000, 3 if quick else 9, []
    with tempfile.TemporaryDirectory() as name, ExitStack() as held:
        path = Path(name) / "rows.npy"
        X = _rows(n, _D)
        np.save(path, X)
        for way, (rows, act) in _ways(X, path, held, quick).items():
            act(False)
            pairs = [(_seconds(act, False), _seconds(act, True)) for _ in range(repeats)]
            ratios = sorted(default / one for default, one in pairs)
            lines.append(
                (way, f"{rows / median(one for _, one in pairs):,.0f}", f"{median(ratios):.2f}", f"{ratios[0]:.2f} – {ratios[-1]:.2f}")
            )
    header = ("way", "rows/s, one thread", "time as it comes / one", "range")
    yield Table(f"Threads as they come / one thread of BLAS, {os.cpu_count()} cores, D={_D}, K={_K}, wall-clock", header, tuple(lines))


def _ways(X: Floats, path: Path, held: ExitStack, quick: bool) -> dict[str, tuple[int, Callable[[bool], Any]]]:
    """Rows of each way, and what learns them, given whether on one thread."""
    few, large = X[: len(X) // 4], _rows(400, 2048 if quick else 32_768)

    def limited(learn: Callable[[], Any]) -> Callable[[bool], Any]:
        def act(alone: bool) -> Any:
            with threadpool_limits(1, "blas") if alone else nullcontext():
                return learn()

        return act

    def by_command(alone: bool, *options: str) -> None:
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"} if alone else dict(os.environ)
        words = [sys.executable, "-m", "online_psp", "fit", str(path), "-k", str(_K), "-o", str(path.with_suffix(".psp")), "--force", "-q"]
        subprocess.run([*words, *options], env=environment, check=True)

    def by_stream() -> None:
        with tempfile.TemporaryDirectory() as empty:
            fit_stream(path, Path(empty) / "model.psp", OnlinePCA(_K))

    def by_monitor(alone: bool) -> None:
        with tempfile.TemporaryDirectory() as empty:
            by_command(alone, "--monitor", str(Path(empty) / "alarms.csv"))

    ways = {
        "`fit`": (len(X), limited(lambda: OnlinePCA(_K).fit(X))),
        "`partial_fit`, 500 rows a call": (len(X), limited(lambda: _in_calls(OnlinePCA(_K).partial_fit, X, 500))),
        "`fit_next`": (len(few), limited(lambda: _one_by_one(OnlinePCA(_K).partial_fit(few[:1]).fit_next, few[1:]))),
        "`Monitor.update`, 500 rows a call": (len(few), limited(lambda: _in_calls(Monitor(OnlinePCA(_K)).update, few, 500))),
        "`fit_stream`, a .npy file": (len(X), limited(by_stream)),
        "`psp fit`, a .npy file, with its start": (len(X), by_command),
        "`psp fit --monitor`": (len(X), by_monitor),
        f"`fit`, D={large.shape[1]}, K=64": (len(large), limited(lambda: OnlinePCA(64).fit(large))),
    }
    for name in ("fsm", "ipca"):
        model, rows = steady_model(name, _D, _K)[0], few[:1024]
        ways[f"`{name.upper()}.fit_block`"] = (len(rows), limited(partial(model.fit_block, rows)))
    if find_spec("dask") is not None:
        from dask import array

        from online_psp import distributed

        parts = array.from_array(X, chunks=(1000, X.shape[1]))
        ways["Dask, blocks of 1,000 rows"] = (len(X), limited(lambda: distributed.fit(parts, OnlinePCA(_K))))
    shown = OnlinePCA(_K)
    held.enter_context(Dashboard(shown, port=0))
    ways["`partial_fit` beside the page"] = (len(X), limited(lambda: _in_calls(shown.partial_fit, X, 500)))
    return ways


def _rows(n: int, D: int) -> Floats:
    rng = np.random.default_rng(0)
    return np.asarray(rng.standard_normal((n, 16)) @ rng.standard_normal((16, D)) + 0.3 * rng.standard_normal((n, D)))


def _in_calls(learn: Callable[[Floats], Any], X: Floats, size: int) -> None:
    for start in range(0, len(X), size):
        learn(X[start : start + size])


def _one_by_one(learn: Callable[[Floats], Any], X: Floats) -> None:
    for x in X:
        learn(x)


def _seconds(act: Callable[[bool], Any], alone: bool) -> float:
    began = time.perf_counter()
    act(alone)
    return time.perf_counter() - began
