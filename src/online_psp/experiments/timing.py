"""Measures the time per sample: as published, one at a time, and in blocks.

"As published" is the published update in place (`online_psp.experiments.baselines`), not the oracle with its D×K temporaries. All three
start from the population's own answer and see the same samples, so that they do the work of a stream in its steady state, without the
start. They run in one thread, after a warm-up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from online_psp.algorithms import ALGORITHMS
from online_psp.datasets.spiked import spectrum
from online_psp.engine.types import Floats
from online_psp.experiments.baselines import BASELINES, started, takes
from online_psp.experiments.learners import warm_up
from online_psp.experiments.records import Timing
from online_psp.experiments.resources import available_bytes
from online_psp.experiments.rows import DONE, Row

WAYS = ("published", "fit_next", "fit_block")
_FLOAT_BYTES = 8
_COPIES = {"published": 3.0, "fit_next": 3.5, "fit_block": 3.5}
_MOST_SAMPLES = 512


class _Stream:
    """Endless standardised samples, never used twice: a basis that has seen its samples before has less to do.

    Attributes
    ----------
    Q, variances : (D, K), (K,)
        The true subspace and its variances.
    """

    def __init__(self, D: int, K: int, rho: float, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        signal = spectrum(K)
        norm2 = float(signal.sum() + rho * D)
        self.Q, self.variances = random_directions(D, K, self._rng), (signal + rho) / norm2
        self._signal, self._noise = np.sqrt(signal / norm2), np.sqrt(rho / norm2)

    def draw(self, n: int) -> Floats:
        """The next n samples, (n, D)."""
        X = self._rng.standard_normal((n, len(self.Q)))
        X *= self._noise
        X += (self._rng.standard_normal((n, len(self._signal))) * self._signal) @ self.Q.T
        return X


def random_directions(D: int, K: int, rng: np.random.Generator) -> Floats:
    """(D, K) orthonormal columns, each contiguous: K columns of the cosine transform, chosen at random, with random signs of the rows.

    No time depends on which directions they are, and the QR decomposition of a Gaussian matrix takes minutes where D K² is 5e11. The
    arguments of the cosines are whole multiples of π/2D, so that a table has them all without rounding.
    """
    table = np.sqrt(2.0 / D) * np.cos(np.arange(4 * D) * (np.pi / (2 * D)))
    odd, signs = 2 * np.arange(D) + 1, rng.choice((-1.0, 1.0), D)
    Q = np.empty((D, K), order="F")
    for column, frequency in zip(Q.T, rng.permutation(D)[:K].tolist(), strict=True):
        np.multiply(table[odd * frequency % (4 * D)], signs * (np.sqrt(0.5) if frequency == 0 else 1.0), out=column)
    return Q


_stream = lru_cache(maxsize=1)(_Stream)


def needed_bytes(record: Timing) -> float:
    """Approximate memory of a timing: the truth, the basis with its temporaries, the samples, and the small matrices."""
    D, K = record.D, record.K
    return _FLOAT_BYTES * (D * K * (1.0 + _COPIES[record.way]) + _MOST_SAMPLES * D + 12.0 * K * K)


def time_record(record: Timing) -> list[Row]:
    """A row a run, seconds per sample, its N the samples of the run; or one row that says why the record was left out."""
    wanted, free = needed_bytes(record), available_bytes()
    if wanted > 0.9 * free:
        _stream.cache_clear()
        _started.cache_clear()
        free = available_bytes()
    if wanted > 0.9 * free:
        reason = f"needs about {wanted / 1e9:.1f} GB of memory and {free / 1e9:.1f} GB are free"
        return [_row(record, 0, "skipped", float("nan"), reason), _row(record, 0, DONE, 0.0)]
    began = time.perf_counter()
    with threadpool_limits(1):
        one_run = _RUNS[record.way](record)
        warm_up(record.algorithm)
        first = one_run(time.perf_counter() + 0.2 * record.budget)
        deadline = time.perf_counter() + record.budget
        # If the warm-up takes longer than the whole budget, compiling is not the reason: it is taken as the only measurement.
        alone = first[0] > record.budget
        runs = [first if alone else one_run(deadline)]
        while len(runs) < record.runs and not alone and time.perf_counter() < deadline:
            runs.append(one_run(deadline))
    note = f"one run, without a warm-up: it took longer than the {record.budget:g} s that are allowed" if alone else ""
    rows = [
        _row(record, run, "seconds_per_sample", seconds / samples, note, samples) for run, (seconds, samples) in enumerate(runs, start=1)
    ]
    return [*rows, _row(record, 0, DONE, time.perf_counter() - began)]


Run = Callable[[float], tuple[float, int]]


def _published(record: Timing) -> Run:
    _started.cache_clear()  # two bases are enough
    stream = _stream(record.D, record.K, record.rho, record.seed)
    baseline = BASELINES[record.algorithm]
    model, t = started(record.algorithm, *baseline.steady(stream.Q, stream.variances)), 0

    def run(deadline: float) -> tuple[float, int]:
        nonlocal t
        spent, done = 0.0, 0
        for x in stream.draw(record.samples):
            rates = baseline.rates(t + 1, record.gamma)
            began = time.perf_counter()
            model.step(x, *rates)
            spent += time.perf_counter() - began
            t, done = t + 1, done + 1
            if time.perf_counter() > deadline:
                break
        return spent, done

    return run


@lru_cache(maxsize=1)
def _started(algorithm: str, D: int, K: int, rho: float, gamma: float, seed: int) -> Any:
    """A model in its steady state. `fit_next` and `fit_block` go on with one: to start it can take longer than to time it."""
    stream = _stream(D, K, rho, seed)
    baseline, make = BASELINES[algorithm], ALGORITHMS[algorithm]
    options: dict[str, Any] = dict(zip(baseline.arguments.values(), baseline.steady(stream.Q, stream.variances), strict=True))
    if takes(algorithm, "gamma"):
        options["gamma"] = gamma
    return make(K, D, **options)


def _model(record: Timing) -> tuple[Any, _Stream]:
    stream = _stream(record.D, record.K, record.rho, record.seed)
    return _started(record.algorithm, record.D, record.K, record.rho, record.gamma, record.seed), stream


def _one_at_a_time(record: Timing) -> Run:
    model, stream = _model(record)

    def run(deadline: float) -> tuple[float, int]:
        rows = stream.draw(model.open_capacity)
        began = time.perf_counter()
        for x in rows:
            model.fit_next(x)
        return time.perf_counter() - began, len(rows)

    return run


def _in_blocks(record: Timing) -> Run:
    model, stream = _model(record)

    def run(deadline: float) -> tuple[float, int]:
        rows = stream.draw(model.block_rows)
        began = time.perf_counter()
        model.fit_block(rows)
        return time.perf_counter() - began, len(rows)

    return run


_RUNS: Mapping[str, Callable[[Timing], Run]] = MappingProxyType(
    {"published": _published, "fit_next": _one_at_a_time, "fit_block": _in_blocks}
)


def _row(record: Timing, run: int, metric: str, value: float, note: str = "", samples: int = 0) -> Row:
    label = f"{record.algorithm.upper()}, {record.way}"
    key, K, D = record.key, record.K, record.D
    return Row(key, record.figure, "spiked", samples, D, record.rho, label, record.algorithm, K, record.seed, run, metric, value, note)
