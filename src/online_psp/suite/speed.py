"""Time per sample in the steady state: as published, row by row, in blocks, and what this machine needs at the least.

All ways of one size start from the population's own answer and see fresh samples: they do the work of a stream, and not of its start.
"As published" is the published update in place (`online_psp.suite.baselines`), not the equations with their D×K temporaries. Floors are
what no way through can go below: one matrix-vector product with the basis for a single row, two matrix products for a block.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from online_psp.algorithms import ALGORITHMS
from online_psp.datasets.spiked import spectrum
from online_psp.engine.blas import matmul
from online_psp.engine.types import Floats
from online_psp.suite.baselines import BASELINES
from online_psp.suite.data import GENERATED
from online_psp.suite.measure import digest
from online_psp.suite.rows import DONE, FAILED, Row, installed_bytes

WAYS = ("published", "fit_next", "fit_block")
FLOORS: Mapping[str, str] = MappingProxyType({"fit_next": "floor of a row", "fit_block": "floor of a block"})
METRIC = "seconds_per_sample"
_SINGLE, _BLOCK = 64, 256
_RHO = 2e-3


@dataclass(frozen=True)
class Timing:
    """Measures the time per sample of one way of running an algorithm.

    Attributes
    ----------
    algorithm : str
        A key of `BASELINES`; empty for floors.
    way : str
        One of `WAYS`, or of the floors.
    runs : int
        Most runs; there are fewer if they do not fit into the budget, and one if the first alone does not.
    samples : int
        Samples of a run as published; runs of `fit_next` have 64 and of `fit_block` 256, so that deferred work is counted.
    budget : float
        Seconds.
    """

    study: str
    algorithm: str
    way: str
    D: int
    K: int
    runs: int = 10
    samples: int = 10
    budget: float = 5.0
    seed: int = 0

    @property
    def key(self) -> str:
        """Identifies what is measured and the code that measures it."""
        return digest(asdict(self))

    @property
    def title(self) -> str:
        """What is running, for people."""
        return f"{self.study} D={self.D} K={self.K} {self.algorithm.upper()} {self.way}"

    again, alone, rows_of = False, True, None

    def shared(self, apart: bool) -> object:
        """What it has in common with the timings that run in the same process."""
        return self.D, self.K

    def measured(self, given: object, data_home: object) -> list[Row]:
        """Its rows."""
        return time_steady(self)

    def failure(self, reason: str) -> list[Row]:
        """The rows of a timing whose process was killed."""
        return [self.row(0, FAILED, float("nan"), reason), self.row(0, DONE, 0.0)]

    def row(self, run: int, metric: str, value: float, note: str = "", samples: int = 0) -> Row:
        """A row of this timing; its t is the number of the run, its N the samples of it."""
        label = f"{self.algorithm.upper()}, {self.way}" if self.algorithm else self.way
        place = (samples, self.D, _RHO, "", label, self.algorithm, self.way, self.K, self.seed)
        return Row(self.key, self.study, "spiked", *place, run, metric, value, note, checksum=GENERATED)


class _Stream:
    """Endless standardised samples, never used twice: a basis that has seen its samples before has less to do.

    Attributes
    ----------
    Q, variances : (D, K), (K,)
        The true subspace and its variances.
    """

    def __init__(self, D: int, K: int, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        signal = spectrum(K)
        norm2 = float(signal.sum() + _RHO * D)
        self.Q, self.variances = random_directions(D, K, self._rng), (signal + _RHO) / norm2
        self._signal, self._noise = np.sqrt(signal / norm2), np.sqrt(_RHO / norm2)

    def draw(self, n: int) -> Floats:
        """The next n samples, (n, D)."""
        X = self._rng.standard_normal((n, len(self.Q)))
        X *= self._noise
        X += (self._rng.standard_normal((n, len(self._signal))) * self._signal) @ self.Q.T
        return X


def random_directions(D: int, K: int, rng: np.random.Generator) -> Floats:
    """(D, K) orthonormal columns, each contiguous: K columns of the cosine transform, chosen at random, with random signs of the rows.

    No time depends on which directions they are, and the QR decomposition of a Gaussian matrix takes minutes where D K² is 5e11.
    """
    table = np.sqrt(2.0 / D) * np.cos(np.arange(4 * D) * (np.pi / (2 * D)))
    odd, signs = 2 * np.arange(D) + 1, rng.choice((-1.0, 1.0), D)
    Q = np.empty((D, K), order="F")
    for column, frequency in zip(Q.T, rng.permutation(D)[:K].tolist(), strict=True):
        np.multiply(table[odd * frequency % (4 * D)], signs * (np.sqrt(0.5) if frequency == 0 else 1.0), out=column)
    return Q


_stream = lru_cache(maxsize=1)(_Stream)


@lru_cache(maxsize=1)
def _model(algorithm: str, D: int, K: int, seed: int) -> Any:
    """A model in its steady state, with which `fit_next` and `fit_block` go on: to start it can take longer than to time it."""
    compiles, rows = ALGORITHMS[algorithm](4, 64), np.random.default_rng(0).standard_normal((600, 64))
    compiles.fit_block(rows[:500])
    for row in rows[500:]:
        compiles.fit_next(row)
    stream = _stream(D, K, seed)
    return ALGORITHMS[algorithm](K, D, **BASELINES[algorithm].steady(stream.Q, stream.variances))


def _act(timing: Timing) -> Callable[[float], tuple[float, int]]:
    """One run of a timing, which ends at a deadline, to the processor seconds it took and how many samples it had."""
    D, K = timing.D, timing.K
    stream = _stream(D, K, timing.seed)
    if timing.way in ("fit_next", "fit_block"):
        model = _model(timing.algorithm, D, K, timing.seed)
        by_row = timing.way == "fit_next"
        learn, rows = (model.fit_next, _SINGLE) if by_row else (model.fit_block, _BLOCK)
        return lambda deadline: _over(learn, stream.draw(rows), by_row, np.inf)
    if timing.way == "published":
        _model.cache_clear()  # two bases are enough
        baseline = BASELINES[timing.algorithm]
        state, rates = baseline(*baseline.steady(stream.Q, stream.variances).values()), baseline.rates(1000, 2.0)
        return lambda deadline: _over(lambda x: state.step(x, *rates), stream.draw(timing.samples), True, deadline)
    basis, C = np.ascontiguousarray(stream.Q.T), np.ones((K, _BLOCK))
    single = timing.way == FLOORS["fit_next"]

    def product(rows: Any) -> None:
        if single:
            matmul(basis, rows)
        else:
            matmul(rows, basis.T), matmul(C, rows)

    return lambda deadline: _over(product, stream.draw(_BLOCK), single, np.inf)


def _over(function: Callable[[Any], Any], rows: Floats, by_row: bool, deadline: float) -> tuple[float, int]:
    done, began = 0, time.process_time()
    for each in rows if by_row else [rows]:
        function(each)
        done += 1
        if time.perf_counter() > deadline:
            break
    return time.process_time() - began, done if by_row else len(rows)


def time_steady(timing: Timing) -> list[Row]:
    """A row a run, processor seconds per sample; or one row that says why it was left out."""
    needed = 8.0 * (timing.D * timing.K * 4.5 + 2 * _BLOCK * timing.D + 12.0 * timing.K**2)
    if needed > 0.9 * installed_bytes():
        reason = f"needs about {needed / 1e9:.1f} GB of memory, and this machine has {installed_bytes() / 1e9:.1f}"
        return [timing.row(0, "skipped", float("nan"), reason), timing.row(0, DONE, 0.0)]
    began = time.process_time()
    with threadpool_limits(1):
        act = _act(timing)
        first = act(time.perf_counter() + 0.2 * timing.budget)
        deadline = time.perf_counter() + timing.budget
        alone = first[0] > timing.budget  # the warm-up is the measurement then
        runs = [first if alone else act(deadline)]
        while len(runs) < timing.runs and not alone and time.perf_counter() < deadline:
            runs.append(act(deadline))
    note = f"one run, without a warm-up: it took longer than the {timing.budget:g} s that are allowed" if alone else ""
    rows = [timing.row(number, METRIC, seconds / samples, note, samples) for number, (seconds, samples) in enumerate(runs, start=1)]
    return [*rows, timing.row(0, DONE, time.process_time() - began)]
