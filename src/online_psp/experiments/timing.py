"""How long a sample takes: as published, one at a time, and in blocks.

"As published" is the published update in place (`online_psp.experiments.baselines`), not the oracle with its D×K temporaries. All three
start from the population's own answer and see the same samples, so that they do the work of a stream in its steady state, and none of the
start. One thread; a warm-up before the clock starts.
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
from online_psp.datasets import SpikedCovariance
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
    """Standardised samples without end. They are never used twice: a basis that has seen its samples before has less to do.

    Attributes
    ----------
    Q, variances : (D, K), (K,)
        The truth.
    """

    def __init__(self, D: int, K: int, rho: float, seed: int) -> None:
        self._model = SpikedCovariance(D, K, rho, seed)
        self._norm2 = float(self._model.variances.sum() + rho * (D - K))
        self.Q, self.variances = self._model.U, self._model.variances / self._norm2

    def draw(self, n: int) -> Floats:
        """The next n, (n, D)."""
        X = self._model.draw(n)
        X /= np.sqrt(self._norm2)
        return X


_stream = lru_cache(maxsize=1)(_Stream)


def needed_bytes(record: Timing) -> float:
    """About what a timing needs: the truth, the basis with its temporaries, the samples, and the small matrices."""
    D, K = record.D, record.K
    return _FLOAT_BYTES * (D * K * (1.0 + _COPIES[record.way]) + _MOST_SAMPLES * D + 8.0 * K * K)


def time_record(record: Timing) -> list[Row]:
    """A row a run, seconds per sample; or one row that says why it was left out."""
    wanted, free = needed_bytes(record), available_bytes()
    if wanted > 0.9 * free:
        _stream.cache_clear()
        free = available_bytes()
    if wanted > 0.9 * free:
        reason = f"needs about {wanted / 1e9:.1f} GB of memory and {free / 1e9:.1f} GB are free"
        return [_row(record, 0, "skipped", float("nan"), reason), _row(record, 0, DONE, 0.0)]
    began = time.perf_counter()
    one_run = _RUNS[record.way](record)
    with threadpool_limits(1):
        warm_up(record.algorithm)
        first = one_run(time.perf_counter() + 0.2 * record.budget)
        deadline = time.perf_counter() + record.budget
        # One that took longer than all that is allowed is slow for no lack of warmth: it is the measurement, and the only one.
        runs = [first if first[0] > record.budget else one_run(deadline)]
        while len(runs) < record.runs and first[0] <= record.budget and time.perf_counter() < deadline:
            runs.append(one_run(deadline))
    rows = [
        _row(record, run, "seconds_per_sample", seconds / samples, f"{samples} samples")
        for run, (seconds, samples) in enumerate(runs, start=1)
    ]
    return [*rows, _row(record, 0, DONE, time.perf_counter() - began)]


Run = Callable[[float], tuple[float, int]]


def _published(record: Timing) -> Run:
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


def _model(record: Timing) -> tuple[Any, _Stream]:
    stream = _stream(record.D, record.K, record.rho, record.seed)
    baseline, make = BASELINES[record.algorithm], ALGORITHMS[record.algorithm]
    options: dict[str, Any] = dict(zip(baseline.arguments.values(), baseline.steady(stream.Q, stream.variances), strict=True))
    if takes(record.algorithm, "gamma"):
        options["gamma"] = record.gamma
    return make(record.K, record.D, **options), stream


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


def _row(record: Timing, run: int, metric: str, value: float, note: str = "") -> Row:
    label = f"{record.algorithm.upper()}, {record.way}"
    key, K, D = record.key, record.K, record.D
    return Row(key, record.figure, "spiked", record.runs, D, record.rho, label, record.algorithm, K, record.seed, run, metric, value, note)
