"""Every promise about speed beside what this machine gives: targets, limits, growth, block sizes, threads, start-up.

Floors are two matrix products for a block and one matrix-vector product for a single sample, on the same rows and timed in turn with what
is compared.
"""

from __future__ import annotations

import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from scipy.linalg import cho_factor, cho_solve
from threadpoolctl import threadpool_limits

from benchmarks.models import ROWS, SINGLE, block_by_block, draw, in_place_rows, row_by_row, running, two_products
from benchmarks.timing import beside, in_turn, seconds
from online_psp.algorithms import ALGORITHMS, fsm, sm
from online_psp.algorithms._similarity import inverse
from online_psp.algorithms._similarity_blocks import compress_block, settle, work_for
from online_psp.engine.blas import add_product, gram, matmul
from online_psp.engine.tiles import add_strips, suits
from online_psp.engine.types import Floats


class Target(NamedTuple):
    what: str
    figure: float
    relation: str
    target: float
    unit: str = ""

    @property
    def met(self) -> bool:
        return self.figure <= self.target if self.relation == "≤" else self.figure >= self.target


COMPRESSED = [name for name, make in ALGORITHMS.items() if not make.handles_missing]
"""Algorithms that take rows in blocks: not those of rows with holes."""


def block_seconds(model: Any, X: Floats, repeats: int = 5) -> float:
    """A sample of `fit_block`."""
    return seconds(block_by_block(model.fit_block, X, model.K), repeats) / ROWS


def next_seconds(model: Any, X: Floats) -> float:
    return seconds(row_by_row(model.fit_next, X, model.K)) / SINGLE


# What was asked for


def single_samples() -> Iterator[Target]:
    for D, K in [(784, 16), (8192, 64), (32768, 64), (8192, 256), (32768, 256)]:
        X, basis = draw(D, K, 8 if D * K < 4e6 else 2), np.ones((K, D))
        time_, ratio = beside(row_by_row(running("fsm", X, K).fit_next, X, K), row_by_row(basis.__matmul__, X, K))
        if D == 784:
            yield Target(f"FSM.fit_next at D=784, K=16 ({ratio:.1f} floors)", 1e6 * time_ / SINGLE, "≤", 8.0, " µs")
        else:
            yield Target(f"FSM.fit_next / floor at D={D}, K={K}", ratio, "≤", 2.0)


def blocks() -> Iterator[Target]:
    for K, target in [(64, 2.0), (128, 1.5), (256, 1.5), (512, 1.5)]:
        X = draw(8192, K)
        ratio = beside(block_by_block(running("fsm", X, K).fit_block, X, K), block_by_block(two_products(8192, K), X, K))[1]
        yield Target(f"FSM.fit_block / floor at D=8192, K={K}", ratio, "≤", target)


def against_in_place() -> Iterator[Target]:
    """Blocks against the published update in place, one sample at a time."""
    wanted = [("fsm", 784, 16, 6.0), ("fsm", 1024, 64, 6.0), ("fsm", 8192, 64, 8.0), ("fsm", 32768, 64, 8.0), ("fsm", 8192, 256, 12.0)]
    wanted += [(name, 8192, K, least) for name, least in (("ipca", 10.0), ("ccipca", 5.0)) for K in (64, 256)]
    wanted += [("fsm", 8192, 1024, 12.0), ("ipca", 8192, 1024, 10.0)]
    for name, D, K, least in wanted:
        X = draw(D, K, 8 if D * K < 4e6 else 2)
        samples = 32 if D * K < 1e6 else 4
        single, model = running(name, X, K), running(name, X, K)
        loop, rows, blocks = in_turn(
            in_place_rows(name, X, K, samples), row_by_row(single.fit_next, X, K), block_by_block(model.fit_block, X, K)
        )
        each = loop / samples
        yield Target(f"{name.upper()}.fit_block against the in-place loop at D={D}, K={K}", each / (blocks / ROWS), "≥", least)
        if name == "fsm":
            yield Target(f"{name.upper()}.fit_next against the in-place loop at D={D}, K={K}", each / (rows / SINGLE), "≥", 3.0)


def lateral_solve() -> Iterator[Target]:
    """SM's O(K²) step against LAPACK's factor-and-solve with M."""
    n = 64
    for K in (256, 1024, 2048):
        rng = np.random.default_rng(0)
        M = np.cov(rng.standard_normal((K, 4 * K)))
        P, G, rates, b = rng.standard_normal((n, K)), np.eye(n), np.full(n, 1e-3), rng.standard_normal(K)
        w, Y, R = np.zeros(n), np.zeros((n, K)), np.ascontiguousarray(cho_factor(M)[0])
        ours = seconds(partial(sm.recur, P, G, rates, rates, 1.0, w, Y, R), 3) / n
        yield Target(f"SM's lateral step / LAPACK's solve at K={K}", ours / seconds(partial(_solve, M, b), 3), "≤", 1.0)


def _solve(M: Floats, b: Floats) -> None:
    cho_solve(cho_factor(M), b)


def precision() -> Iterator[Target]:
    X = draw(8192, 256)
    single: Any = X.astype(np.float32)
    double_call = block_by_block(running("fsm", X, 256).fit_block, X, 256)
    ratio = beside(double_call, block_by_block(running("fsm", single, 256, dtype=np.float32).fit_block, single, 256))[1]
    yield Target("FSM.fit_block, float32 against float64 at D=8192, K=256", ratio, "≥", 1.6)


def threads() -> Iterator[Target]:
    """One thread against all there are; called without a limit on them."""
    cores = len(os.sched_getaffinity(0))

    def ratio(call: Callable[[], float]) -> float:
        """Alternating, because other work comes and goes."""
        found = []
        for _ in range(3):
            with threadpool_limits(1):
                one = call()
            with threadpool_limits(cores):
                found.append(one / call())
        return statistics.median(found)

    X = draw(32768, 256, 2)
    model = running("fsm", X, 256)
    yield Target(f"FSM.fit_block at D=32768, K=256, {cores} threads against one", ratio(partial(block_seconds, model, X, 3)), "≥", 1.6)
    for D, K in [(64, 8), (784, 16), (1024, 64), (8192, 64)]:
        X = draw(D, K)
        for name in COMPRESSED:
            learner = running(name, X, K)
            for what, measure in (("fit_block", block_seconds), ("fit_next", next_seconds)):
                slower = 1.0 / ratio(partial(measure, learner, X))
                yield Target(f"{name.upper()}.{what} at D={D}, K={K}, {cores} threads / one", slower, "≤", 1.1)


def start_up() -> Iterator[Target]:
    def process(code: str, cache: str | None = None) -> float:
        environment = os.environ | ({"NUMBA_CACHE_DIR": cache} if cache else {})
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], env=environment, check=True)
        return time.perf_counter() - start

    def median(code: str, cache: str | None = None) -> float:
        return statistics.median(process(code, cache) for _ in range(5))

    base, ours = median("import sklearn.decomposition"), median("import online_psp, sklearn.decomposition")
    yield Target("import online_psp, more than sklearn.decomposition", ours - base, "≤", 0.5, " s")
    imports = "import numpy, sklearn.decomposition; from online_psp import OnlinePCA"
    code = imports + "; X = numpy.random.default_rng(0).standard_normal((500, 100)); OnlinePCA(4).fit(X)"
    with tempfile.TemporaryDirectory() as cache:
        first = process(code, cache)
        yield Target("first fit of OnlinePCA after installing, compiling included", first - median(imports), "≤", 10.0, " s")
        yield Target("first fit in a later process, imports apart", median(code, cache) - median(imports), "≤", 1.0, " s")
        yield Target("the same with imports", median(code, cache), "≤", 3.0, " s")


# Where the time goes


def limits(D: int, K: int) -> tuple[float, dict[str, float]]:
    """Microseconds of a sample of FSM.fit_block, and shares of it."""
    X = draw(D, K, 4)
    model = running("fsm", X, K)
    total = block_seconds(model, X)
    n = model.block_rows
    rows, basis, rates = np.ascontiguousarray(X[:n]), np.array(model.W), np.full(n, 1e-4)
    w, Y, Minv, M, C = np.zeros(n), np.zeros((n, K)), model.Minv, inverse(model.Minv), np.full((K, n), 1e-9)
    if suits(K, D):
        work = work_for(n, K, D, rows.dtype)
        compress_block(rows, 0, n, basis, work)
        P, G = work.P, work.G
        compress: Callable[[], Any] = partial(compress_block, rows, 0, n, basis, work)
        expand: Callable[[], Any] = partial(add_strips, basis, C, work.strips, n)
    else:
        P, G = rows @ basis.T, rows @ rows.T
        compress, expand = lambda: (matmul(rows, basis.T), gram(rows)), partial(add_product, basis, 1.001, C, rows)
    parts = {
        "X Bᵀ, X Xᵀ": seconds(compress) / n,
        "B + C X": seconds(expand) / n,
        "recurrence": seconds(lambda: fsm.recur(P, G, rates, rates, 1.0, w, Y, Minv)) / n,
        "M, M⁻¹": seconds(lambda: settle(Y, rates, M)) / n + seconds(lambda: inverse(M)) / max(256, 4 * K),
    }
    shares = {name: part / total for name, part in parts.items()}
    return 1e6 * total, shares | {"rest": max(0.0, 1.0 - sum(shares.values()))}


def slope(sizes: list[int], times: list[float]) -> float:
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def growth() -> Iterator[tuple[str, str, float]]:
    """What varies, where, and the exponent of the time a sample of `fit_block` (for N: of the whole)."""
    for name in COMPRESSED:
        sizes = [2048, 8192, 32768]
        times = [block_seconds(running(name, X, 64), X) for X in (draw(D, 64, 4) for D in sizes)]
        yield f"{name.upper()} in D", "2048, 8192, 32768, K=64", slope(sizes, times)
        sizes = [64, 256, 1024]
        times = [block_seconds(running(name, X, K), X, 3) for K, X in ((K, draw(8192, K)) for K in sizes)]
        yield f"{name.upper()} in K", "64, 256, 1024, D=8192", slope(sizes, times)
    X = draw(1024, 64, 128)
    sizes = [2048, 8192, 32768]
    times = [seconds(partial(running("fsm", X, 64).fit_block, X[:N]), 3) for N in sizes]
    yield "FSM in N", "2048 … 32768, D=1024, K=64", slope(sizes, times)


def block_sizes() -> Iterator[tuple[str, int, int, int, float]]:
    """Algorithm and size; the model's number of rows, the best of several, and what the model's costs more than that."""
    tried = [8, 16, 32, 64, 128, 256]
    for name, (D, K) in itertools.product(("fsm", "ipca", "ccipca"), [(784, 16), (8192, 64)]):
        X = draw(D, K)
        for what, measure, own, sizes in (
            ("fit_next", next_seconds, running(name, X, K).open_capacity, tried[:4]),
            ("fit_block", block_seconds, running(name, X, K).block_rows, tried[2:]),
        ):
            models = {n: running(name, X, K, block_size=n) for n in sorted({*sizes, own})}
            rounds = [{n: measure(model, X) for n, model in models.items()} for _ in range(3)]  # in turn, because other work comes and goes
            times = {n: statistics.median(times[n] for times in rounds) for n in models}
            best = min(times, key=times.__getitem__)
            yield f"{name.upper()}.{what} at D={D}, K={K}", own, best, len(times), times[own] / times[best]


def main() -> list[Target]:
    console = Console(width=150)
    found: list[Target] = []
    with Progress(console=console) as progress, threadpool_limits(1):
        groups = [start_up, single_samples, blocks, against_in_place, lateral_solve, precision]
        task = progress.add_task("speed", total=len(groups) + 4)
        for group in groups:
            progress.update(task, description=group.__name__)
            found += group()
            progress.advance(task)
        progress.update(task, description="limits")
        limited = [((D, K), *limits(D, K)) for D, K in [(784, 16), (1024, 64), (8192, 64), (8192, 256), (8192, 1024), (32768, 256)]]
        progress.update(task, advance=1, description="growth")
        grown = list(growth())
        progress.update(task, advance=1, description="block sizes")
        sized = list(block_sizes())
    with Progress(console=console) as progress:
        progress.add_task("threads", total=None)
        found += threads()

    table = Table(title="targets, one thread unless it says otherwise")
    for column in ("what", "measured", "target", ""):
        table.add_column(column, justify="left" if column == "what" else "right")
    for each in found:
        mark = "met" if each.met else "[bold]missed[/bold]"
        table.add_row(each.what, f"{each.figure:.2f}{each.unit}", f"{each.relation} {each.target:g}{each.unit}", mark)
    console.print(table)

    table = Table(title="where a sample of FSM.fit_block goes")
    for column in ("D", "K", "µs", *limited[0][2]):
        table.add_column(column, justify="right")
    for (D, K), total, shares in limited:
        table.add_row(str(D), str(K), f"{total:.1f}", *(f"{share:.0%}" for share in shares.values()))
    console.print(table)

    table = Table(title="growth of the time per sample of fit_block", caption="exponents of a straight line in log-log")
    for column in ("what", "over", "exponent"):
        table.add_column(column, justify="right")
    for what, where, exponent in grown:
        table.add_row(what, where, f"{exponent:.2f}")
    console.print(table)

    table = Table(title="the model of block sizes", caption="loss: how much slower the model's size is than the best of those tried")
    for column in ("what", "model", "best", "loss"):
        table.add_column(column, justify="right")
    for what, own, best, _, loss in sized:
        table.add_row(what, str(own), str(best), f"{loss - 1:.0%}")
    console.print(table)
    return found
