"""The paper's algorithms, as published in place, row by row and in blocks, beside the least that this machine needs; and threads."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from joblib import cpu_count
from threadpoolctl import threadpool_limits

from online_psp.pca import OnlinePCA
from online_psp.suite import tables as made
from online_psp.suite.baselines import BASELINES
from online_psp.suite.speed import FLOORS, WAYS, Timing
from online_psp.suite.studies import measured
from online_psp.suite.tables import Table

_SIZES = ((784, 16), (1024, 64), (8192, 64), (8192, 256), (32768, 64))


def tables(out: Path, quick: bool = False) -> Iterator[Table]:
    """A table for each D, and one of threads."""
    asked = [*((name, way) for name in BASELINES for way in WAYS), *(("", floor) for floor in FLOORS.values())]
    records = [
        Timing("speed", name, way, D, K, runs=3 if quick else 9, samples=32, budget=1.0 if quick else 3.0)
        for D, K in (_SIZES[:2] if quick else _SIZES)
        for name, way in asked
    ]
    yield from made.timings(measured(records, out / "speed.csv"))
    yield threads(3 if quick else 9)


def threads(rounds: int) -> Table:
    """OnlinePCA with as many threads as there are cores against one, in turn, by the clock on the wall."""
    lines, cores = [], cpu_count()
    for n, D, K in ((10_000, 784, 16), (2000, 8192, 64), (400, 32_768, 64)):
        X, ratios, alone = np.random.default_rng(0).standard_normal((n, D)), [], []
        for _ in range(rounds + 1):
            seconds = []
            for limit in (cores, 1):
                began = time.perf_counter()
                with threadpool_limits(limit, "blas"):
                    _ = OnlinePCA(K).fit(X).components_
                seconds.append(time.perf_counter() - began)
            ratios.append(seconds[0] / seconds[1])
            alone.append(seconds[1])
        ratios = sorted(ratios[1:])  # the first round warms up
        lines.append(
            (str(D), str(K), f"{1e6 * np.median(alone[1:]) / n:.0f}", f"{np.median(ratios):.2f}", f"{ratios[0]:.2f} – {ratios[-1]:.2f}")
        )
    header = ("D", "K", "one thread, µs a row", "all / one, median", "range")
    return Table(f"OnlinePCA with {cores} threads of BLAS against one, wall-clock", header, tuple(lines))
