"""Runs the comparison: in one thread and one process, after a warm-up, several times in turn; medians are reported.

Times are processor times: with one thread they equal the wall-clock time on an idle machine, and other programs disturb them less. Memory
is measured in a separate fit, because measuring it takes time. It counts what Python and NumPy allocate (tracemalloc), but not the small
internal buffers of BLAS and the compiled kernels.
"""

from __future__ import annotations

import gc
import statistics
import time
import tracemalloc
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from threadpoolctl import threadpool_limits

from online_psp.comparison.methods import LOOP, MEMORY, OURS, Fit, Method, Setting
from online_psp.comparison.packages import absent
from online_psp.comparison.problems import Problem
from online_psp.comparison.results import Result, choose_shown
from online_psp.engine.types import Floats
from online_psp.metrics import subspace_error

_ENOUGH_SECONDS = 3.0  # of timed runs, after which a setting is not run again
_WARM_UP_ROWS = 3000  # enough for compiled code to go through all its phases
_WARM_UP_OTHERS = 10  # in multiples of K

Tell = Callable[[str], None]


@dataclass
class _Candidate:
    """A method at a setting, and its runs so far."""

    method: Method
    setting: Setting
    result: Result
    times: list[float] = field(default_factory=list)
    basis: Floats | None = None

    @property
    def alive(self) -> bool:
        return not self.result.note

    def fail(self, error: Exception) -> None:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        self.result = replace(self.result, note=f"failed: {reason}")


def compare(problem: Problem, methods: Sequence[Method], repeats: int, tell: Tell = lambda _: None) -> list[Result]:
    """Run all methods at all settings on one problem.

    Parameters
    ----------
    problem : Problem
    methods : sequence of Method
    repeats : int
        Most timed fits per setting; slow settings get fewer.
    tell : callable
        Called with a few words before every step; `steps` tells how many there are.
    """
    candidates = [_candidate(problem, method, setting) for method in methods for setting in method.settings]
    with threadpool_limits(1):
        for stage in (_warm_up, *[_timed] * repeats, _measured):
            for candidate in candidates:
                tell(f"{problem.name}: {candidate.method.name}, {candidate.setting.label}")
                if candidate.alive:
                    _guarded(stage, candidate, problem)
    by_method = [[candidate.result for candidate in candidates if candidate.method is method] for method in methods]
    return [result for tried, method in zip(by_method, methods, strict=True) for result in choose_shown(tried, method.every)]


def steps(methods: Sequence[Method], repeats: int) -> int:
    """Number of steps that `compare` takes on one problem."""
    return (repeats + 2) * sum(len(method.settings) for method in methods)


def _candidate(problem: Problem, method: Method, setting: Setting) -> _Candidate:
    N, D = problem.X.shape
    missing = absent(method.package) if method.package is not None else None
    result = Result(problem.name, N, D, problem.K, method.name, method.family, method.kind, setting.label, note=missing or "")
    return _Candidate(method, setting, result)


def _guarded(stage: Callable[[_Candidate, Problem], None], candidate: _Candidate, problem: Problem) -> None:
    """Run one stage; if it fails, the result says why, and the others continue."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            stage(candidate, problem)
        except Exception as error:
            candidate.fail(error)


def _warm_up(candidate: _Candidate, problem: Problem) -> None:
    rows = _WARM_UP_ROWS if candidate.method.kind == OURS else _WARM_UP_OTHERS * problem.K
    candidate.setting.fit(problem.X[:rows], problem.K)


def _timed(candidate: _Candidate, problem: Problem) -> None:
    if sum(candidate.times) > _ENOUGH_SECONDS:
        return
    gc.collect()
    began = time.process_time()
    basis = candidate.setting.fit(problem.X, problem.K)
    candidate.times.append(time.process_time() - began)
    candidate.basis = np.asarray(basis, dtype=np.float64)


def _measured(candidate: _Candidate, problem: Problem) -> None:
    N, D = problem.X.shape
    if candidate.basis is None or candidate.basis.shape != (D, problem.K):
        raise ValueError(f"the basis must be of shape ({D}, {problem.K}); got {None if candidate.basis is None else candidate.basis.shape}")
    rows = min(N, _memory_rows(candidate.method.kind, N, D))
    per_sample = [1e6 * seconds / N for seconds in candidate.times]
    candidate.result = replace(
        candidate.result,
        microseconds=statistics.median(per_sample),
        fastest=min(per_sample),
        runs=len(per_sample),
        err_batch=subspace_error(candidate.basis, problem.V),
        peak_mib=peak_bytes(candidate.setting.fit, problem.X[:rows], problem.K) / 2**20,
        memory_rows=rows,
    )


def _memory_rows(kind: str, N: int, D: int) -> int:
    """Number of rows that a fit needs to reach its peak memory: all, a little more than the largest batch, or a few for single rows."""
    return {MEMORY: N, LOOP: 1000}.get(kind, 6 * D)


def peak_bytes(fit: Fit, X: Floats, K: int) -> int:
    """Peak memory that a fit allocates, not counting X."""
    gc.collect()
    tracemalloc.start()
    try:
        fit(X, K)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
