"""Every algorithm against the paper-literal loop, and against the floor that the machine sets.

The floor of `fit_block` is 4DK flops a sample at this machine's own matrix-product speed (the two products X Bᵀ and C X, timed); that of
`fit_next` is one matrix-vector product with the basis (timed).
"""

from __future__ import annotations

import importlib
import itertools
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table
from threadpoolctl import threadpool_limits

from benchmarks.timing import seconds
from online_psp.algorithms import ALGORITHMS
from online_psp.datasets import SpikedCovariance
from online_psp.types import Floats

SIZES = [(784, 16), (1024, 64), (8192, 64), (8192, 256), (32768, 64)]


class Row(NamedTuple):
    """Microseconds per sample."""

    D: int
    K: int
    algorithm: str
    literal: float
    single: float
    block: float
    block32: float
    gemm_floor: float
    gemv_floor: float


def literal_seconds(name: str, X: Floats, K: int, samples: int = 4) -> float:
    """One sample of the paper's update as printed, in NumPy."""
    module: Any = importlib.import_module(ALGORITHMS[name].__module__)
    start = module.reference_start(np.linalg.qr(X[:K].T)[0])
    rates = (1e-3, 1e-3) if name in ("sm", "fsm") else (1e-3,)
    rows = X[K : K + samples]

    def run() -> None:
        state = start
        for x in rows:
            state, _ = module.reference_step(state, x, *rates)

    return seconds(run, repeats=3) / len(rows)


def measure(name: str, X: Floats, X32: Any, K: int, floors: tuple[float, float]) -> Row:
    n, D = X.shape
    model, single = ALGORITHMS[name](K, D), ALGORITHMS[name](K, D)
    model32 = ALGORITHMS[name](K, D, dtype=np.float32)
    for started in (model, single, model32):
        started.fit_block(X[: max(K, 64)])
    rows = itertools.cycle(X)  # all of them: a few, again and again, would be data of low rank

    def one_by_one() -> None:
        for x in itertools.islice(rows, 64):
            single.fit_next(x)

    return Row(
        D,
        K,
        name,
        1e6 * literal_seconds(name, X, K),
        1e6 * seconds(one_by_one) / 64,
        1e6 * seconds(lambda: model.fit_block(X)) / n,
        1e6 * seconds(lambda: model32.fit_block(X32)) / n,
        *floors,
    )


def floors(X: Floats, K: int) -> tuple[float, float]:
    """Microseconds per sample of two matrix products, and of one matrix-vector product with the basis."""
    D = X.shape[1]
    block, basis, C = X[:256], np.ones((K, D)), np.ones((K, len(X[:256])))
    gemm = seconds(lambda: block @ basis.T) + seconds(lambda: C @ block)
    return 1e6 * gemm / len(block), 1e6 * seconds(lambda: basis @ X[0])


def main() -> list[Row]:
    console = Console(width=150)
    rows: list[Row] = []
    with threadpool_limits(1):
        for D, K in track(SIZES, description="engine", console=console):
            X = SpikedCovariance(D, min(K, 32), 0.01, seed=0).draw(max(512, 2 * K))
            X32, floor = X.astype(np.float32), floors(X, K)
            rows += [measure(name, X, X32, K, floor) for name in ALGORITHMS]
    table = Table(title="µs per sample, one thread", caption="/literal: times faster than the literal loop; /floor: times slower than it")
    for column in (
        "D",
        "K",
        "algorithm",
        "literal",
        "fit_next",
        "/literal",
        "/floor",
        "fit_block",
        "/literal",
        "/floor",
        "float32",
        "/float64",
    ):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            str(row.D),
            str(row.K),
            row.algorithm.upper(),
            f"{row.literal:.0f}",
            f"{row.single:.1f}",
            f"{row.literal / row.single:.1f}×",
            f"{row.single / row.gemv_floor:.1f}",
            f"{row.block:.1f}",
            f"{row.literal / row.block:.1f}×",
            f"{row.block / row.gemm_floor:.1f}",
            f"{row.block32:.1f}",
            f"{row.block / row.block32:.2f}×",
            end_section=row.algorithm == list(ALGORITHMS)[-1],
        )
    console.print(table)
    return rows
