"""Every algorithm against the published update in place, and against the floor that the machine sets.

The baseline is one sample at a time without blocking, as a good engineer writes it (`online_psp.experiments.baselines`); it is timed in
turn with what is compared with it, nine times, and the ratios are of the best of each.

The floor of `fit_block` is 4DK flops a sample at this machine's own matrix-product speed (the two products X Bᵀ and C X, timed); that of
`fit_next` is one matrix-vector product with the basis (timed).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table
from threadpoolctl import threadpool_limits

from benchmarks.models import ROWS, SINGLE, block_by_block, draw, in_place_rows, row_by_row, running, two_products
from benchmarks.timing import beside, in_turn, seconds
from online_psp.engine.types import Floats
from online_psp.experiments.baselines import BASELINES

SIZES = [(784, 16), (1024, 64), (8192, 64), (8192, 256), (32768, 64)]


class Row(NamedTuple):
    """Microseconds per sample, and how many times the floor they are."""

    D: int
    K: int
    algorithm: str
    in_place: float
    single_gain: float
    block_gain: float
    single: float
    single_floors: float
    block: float
    block_floors: float
    block32: float


def measure(name: str, X: Floats, X32: Any, K: int) -> Row:
    D = X.shape[1]
    model, single = running(name, X, K), running(name, X, K)
    model32 = running(name, X32, K, dtype=np.float32)
    block, over_gemm = beside(block_by_block(model.fit_block, X, K), block_by_block(two_products(D, K), X, K))
    alone, over_gemv = beside(row_by_row(single.fit_next, X, K), row_by_row(np.ones((K, D)).__matmul__, X, K))
    block32 = seconds(block_by_block(model32.fit_block, X32, K))
    samples = 32 if D * K < 1e6 else 8
    loop, next_, blocks = in_turn(
        in_place_rows(name, X, K, samples), row_by_row(single.fit_next, X, K), block_by_block(model.fit_block, X, K)
    )
    each = loop / samples
    gains = each / (next_ / SINGLE), each / (blocks / ROWS)
    return Row(D, K, name, 1e6 * each, *gains, 1e6 * alone / SINGLE, over_gemv, 1e6 * block / ROWS, over_gemm, 1e6 * block32 / ROWS)


def main() -> list[Row]:
    console = Console(width=150)
    rows: list[Row] = []
    with threadpool_limits(1):
        for D, K in track(SIZES, description="engine", console=console):
            X = draw(D, K, 4)
            X32 = X.astype(np.float32)
            rows += [measure(name, X, X32, K) for name in BASELINES]
    table = Table(
        title="µs per sample, one thread",
        caption="/in place: times faster than the published update in place; /floor: times slower than the floor",
    )
    for column in (
        "D",
        "K",
        "algorithm",
        "in place",
        "fit_next",
        "/in place",
        "/floor",
        "fit_block",
        "/in place",
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
            f"{row.in_place:.0f}",
            f"{row.single:.1f}",
            f"{row.single_gain:.1f}×",
            f"{row.single_floors:.1f}",
            f"{row.block:.1f}",
            f"{row.block_gain:.1f}×",
            f"{row.block_floors:.1f}",
            f"{row.block32:.1f}",
            f"{row.block / row.block32:.2f}×",
            end_section=row.algorithm == list(BASELINES)[-1],
        )
    console.print(table)
    return rows
