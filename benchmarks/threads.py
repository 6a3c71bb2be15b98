"""Every way to learn with threads as they come, against one thread of BLAS: rows a second, and the ratio of times in turn."""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from online_psp import OnlinePCA
from online_psp.cli.main import app
from online_psp.engine.types import Floats
from online_psp.io.runs import fit_stream
from online_psp.monitoring import Monitor

_D, _K, _N = 784, 16, 20_000
_LARGE_D, _LARGE_K, _LARGE_N = 32_768, 64, 400
_REPEATS = 9


def main() -> None:
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as held:
        folder = Path(name)
        X, large = _rows(_N, _D), _rows(_LARGE_N, _LARGE_D)
        np.save(folder / "rows.npy", X)
        np.save(folder / "few.npy", X[: _N // 4])
        print(f"\nThreads as they come / one thread of BLAS; D={_D}, K={_K}\n")
        print("| way | rows/s, one thread | time as it comes / one |\n|---|---|---|")
        for words, rows, way in _ways(X, folder, held):
            _line(words, rows, way)
        _line(f"`fit`, D={_LARGE_D}, K={_LARGE_K}", _LARGE_N, lambda: OnlinePCA(_LARGE_K).fit(large))


def _rows(n: int, D: int) -> Floats:
    rng = np.random.default_rng(0)
    found: Floats = rng.standard_normal((n, 16)) @ rng.standard_normal((16, D)) + 0.3 * rng.standard_normal((n, D))
    return found


def _ways(X: Floats, folder: Path, held: contextlib.ExitStack) -> list[tuple[str, int, Callable[[], Any]]]:
    few = len(X) // 4
    psp = ["fit", "-k", str(_K), "-o", str(folder / "m.psp"), "--force", "-q"]
    ways: list[tuple[str, int, Callable[[], Any]]] = [
        ("`fit`", len(X), lambda: OnlinePCA(_K).fit(X)),
        ("`partial_fit`, 500 rows a call", len(X), lambda: _in_calls(OnlinePCA(_K).partial_fit, X)),
        ("`fit_next`", few, lambda: _by_row(X[:few])),
        ("`fit_stream`, a .npy file", len(X), lambda: fit_stream(folder / "rows.npy", folder / "s.psp", OnlinePCA(_K))),
        ("`psp fit`, a .npy file", len(X), partial(app, [*psp, str(folder / "rows.npy")], standalone_mode=False)),
        ("`Monitor.update`, 500 rows a call", few, lambda: _in_calls(Monitor(OnlinePCA(_K)).update, X[:few])),
        (
            "`psp fit --monitor`",
            few,
            partial(app, [*psp, str(folder / "few.npy"), "--monitor", str(folder / "a.csv")], standalone_mode=False),
        ),
    ]
    with contextlib.suppress(ImportError):
        from online_psp.watch import Dashboard, PageSettings

        shown = OnlinePCA(_K)
        held.enter_context(Dashboard(shown, PageSettings(port=0)))
        ways.append(("`partial_fit` beside the page", len(X), lambda: _in_calls(shown.partial_fit, X)))
    with contextlib.suppress(ImportError):
        import dask.array as da

        from online_psp.integrations.dask import fit as fit_dask

        ways.append(("Dask, threads", few, lambda: fit_dask(OnlinePCA(_K), da.from_array(X[:few], chunks=(len(X) // 8, -1)))))
    return ways


def _in_calls(learn: Callable[[Floats], Any], X: Floats) -> None:
    for start in range(0, len(X), 500):
        learn(X[start : start + 500])


def _by_row(X: Floats) -> None:
    model = OnlinePCA(_K)
    for x in X:
        model.fit_next(x)


def _line(words: str, rows: int, way: Callable[[], Any]) -> None:
    """A way with default threads and with one, in turn, by the clock on the wall."""
    pairs = []
    way()
    for _ in range(_REPEATS):
        default = _seconds(way)
        with threadpool_limits(1, "blas"):
            pairs.append((default, _seconds(way)))
    ratios = sorted(default / one for default, one in pairs)
    one = statistics.median(one for _, one in pairs)
    print(f"| {words} | {rows / one:,.0f} | {statistics.median(ratios):.2f} ({ratios[1]:.2f} to {ratios[-2]:.2f}) |", flush=True)


def _seconds(way: Callable[[], Any]) -> float:
    began = time.perf_counter()
    way()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
