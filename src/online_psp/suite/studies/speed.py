"""Our own speed: beside the in-place loop, beside what this machine gives, beside forming XᵀX once; threads; start-up."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from online_psp.datasets.spiked import spiked_covariance
from online_psp.engine.blas import matmul
from online_psp.engine.types import Floats
from online_psp.pca import OnlinePCA
from online_psp.suite.baselines import BASELINES
from online_psp.suite.data import images
from online_psp.suite.measure import in_turn
from online_psp.suite.rows import median, select
from online_psp.suite.speed import FLOORS, METRIC, WAYS, Timing, time_steady
from online_psp.suite.tables import Table, micro

_SIZES = ((784, 16), (1024, 64), (8192, 64), (8192, 256), (32768, 64))


def tables(out: Path, quick: bool = False) -> Iterator[Table]:
    """All of them."""
    yield ways(_SIZES[:2] if quick else _SIZES, 3 if quick else 9)
    yield anchor(2 if quick else 7)
    yield threads(3 if quick else 9)
    yield start_up(1 if quick else 5)


def ways(sizes: tuple[tuple[int, int], ...], runs: int) -> Table:
    """Every algorithm as published, row by row and in blocks, and how many times the floor that is."""
    lines = []

    def taken(algorithm: str, way: str, dtype: str = "float64") -> float:
        timing = Timing("speed", algorithm, way, D, K, runs, samples=32, budget=3.0, dtype=dtype)
        return median(row.value for row in select(time_steady(timing), metric=METRIC))

    for D, K in sizes:
        floors = {way: taken("", floor) for way, floor in FLOORS.items()}
        for name in BASELINES:
            published, alone, block = (taken(name, way) for way in WAYS)
            single = taken(name, "fit_block", "float32")
            gains = (f"{published / alone:.1f}×", f"{alone / floors['fit_next']:.1f}", f"{published / block:.1f}×")
            cells = (micro(published), micro(alone), *gains[:2], micro(block), gains[2], f"{block / floors['fit_block']:.1f}")
            lines.append((str(D), str(K), name.upper(), *cells, f"{block / single:.2f}×"))
    header = (
        "D",
        "K",
        "algorithm",
        "in-place loop, µs",
        "fit_next, µs",
        "faster",
        "floors",
        "fit_block, µs",
        "faster",
        "floors",
        "float32",
    )
    return Table("Time per sample; floors: one matrix-vector product for a row, two matrix products for a block", header, tuple(lines))


def anchor(rounds: int) -> Table:
    """OnlinePCA beside the time of forming XᵀX once, in turn with it: a ratio that depends on no other package."""
    sets: dict[str, Floats] = {
        "spiked": spiked_covariance(10_000, 784, 16, 0.01).X,
        "spiked, wide": spiked_covariance(4000, 3072, 16, 0.01).X,
        **dict([images(20_000)]),
    }
    lines = []
    for (name, X), K in product(sets.items(), (16, 64)):
        OnlinePCA(K).fit(X[:3000])
        found = in_turn({"once": partial(matmul, X.T, X), "ours": partial(_learned, X, K)}, rounds)
        once, ours = (median(found[what]) / len(X) for what in ("once", "ours"))
        share = median(np.divide(found["ours"], found["once"]))
        lines.append((name, f"{X.shape[0]:,} × {X.shape[1]}", str(K), micro(once), micro(ours), f"{share:.2f}"))
    header = ("rows", "size", "K", "XᵀX once, µs a row", "OnlinePCA, µs a row", "OnlinePCA / XᵀX")
    return Table("The anchor: OnlinePCA beside forming XᵀX once, processor time, in turn", header, tuple(lines))


def _learned(X: Floats, K: int) -> Any:
    return OnlinePCA(K).fit(X).components_


def threads(rounds: int) -> Table:
    """OnlinePCA with threads as they come against one thread of BLAS, by the clock on the wall: nothing is to be slower with threads."""
    lines = []
    for n, D, K in ((10_000, 784, 16), (2000, 8192, 64), (400, 32_768, 64)):
        X = np.random.default_rng(0).standard_normal((n, D))

        def learn(limit: int | None, X: Floats = X, K: int = K) -> None:
            with threadpool_limits(limit, "blas"):
                _learned(X, K)

        learn(1)
        found = in_turn({"several": partial(learn, os.cpu_count()), "one": partial(learn, 1)}, rounds, time.perf_counter)
        ratios = sorted(np.divide(found["several"], found["one"]))
        cells = (micro(median(found["one"]) / n), f"{median(ratios):.2f}", f"{ratios[0]:.2f} – {ratios[-1]:.2f}")
        lines.append((str(D), str(K), *cells))
    title = f"Threads as they come / one thread of BLAS, {os.cpu_count()} cores, wall-clock"
    return Table(title, ("D", "K", "one thread, µs a row", "as they come / one", "range"), tuple(lines))


def start_up(repeats: int) -> Table:
    """What an import and a first fit take, with compiling and from the cache."""

    def process(code: str, times: int = repeats, **environment: str) -> float:
        act = partial(subprocess.run, [sys.executable, "-c", code], env=os.environ | environment, check=True)
        return median(in_turn({"": act}, times, time.perf_counter)[""])

    base, ours = process("import sklearn.decomposition"), process("import online_psp, sklearn.decomposition")
    imports = "import numpy, sklearn.decomposition; from online_psp import OnlinePCA"
    fit = imports + "; X = numpy.random.default_rng(0).standard_normal((500, 100)); OnlinePCA(4).fit(X)"
    with tempfile.TemporaryDirectory() as cache:
        first = process(fit, 1, NUMBA_CACHE_DIR=cache)
        later, alone = process(fit, NUMBA_CACHE_DIR=cache), process(imports)
    lines = (
        ("import online_psp, more than sklearn.decomposition", f"{ours - base:.2f}"),
        ("first fit of OnlinePCA after installing, compiling included, imports apart", f"{first - alone:.2f}"),
        ("the same in a later process, imports apart", f"{later - alone:.2f}"),
    )
    return Table("Start-up, wall-clock", ("what", "seconds"), lines)
