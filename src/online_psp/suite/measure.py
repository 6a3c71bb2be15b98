"""Measures a method on data: its error along the way, its processor time, and the peak of its process's memory.

A scored trial is run twice over the same rows: a timed pass, in which the basis is read once, at the end, and a watched pass, in which it
is read at every moment. Rows are given a few megabytes at a time.
"""

from __future__ import annotations

import functools
import hashlib
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from threadpoolctl import threadpool_limits

from online_psp.engine.types import Floats
from online_psp.metrics import orthonormal, orthonormal_error, spanned
from online_psp.suite.data import Data, Problem, Track, problem
from online_psp.suite.methods import OURS, YOURS, Learner, Method, build, check_basis
from online_psp.suite.rows import DONE, FAILED, SCORE, Row, code_digest

PEAK, GROWTH = "peak_mib", "growth_mib"
"""The peak resident memory of the process, and how much of it came after the first row."""
FILLED = "holes filled with the mean"
_WARM_UP_ROWS = 3000  # enough for compiled code to go through all its phases
_ENOUGH_SECONDS = 3.0
"""Of timed passes, after which there is no further one."""

Blocks: TypeAlias = Callable[[int, int], Iterator[Floats]]


@dataclass(frozen=True)
class Trial:
    """One or several passes of one method over one set in one order, with what to measure and when.

    Attributes
    ----------
    study : str
        What it belongs to: "fig2", "evaluation", …
    seed : int
        Draws generated rows, and the order of others.
    epochs : int
        Passes over the data, in the same order.
    metrics : tuple of str
        Keys of `METRICS`; on a track the distance to the present subspace is measured.
    moments : tuple of int
        Numbers of samples after which to measure, ascending.
    scored : bool
        Whether to time a pass of its own and measure memory. Otherwise the time is that of the watched pass, a rough guide.
    repeats : int
        Most timed passes.
    jitter : int
        If not 0, every number is perturbed by 1e-15 of itself, differently for every value: this shows what rounding does.
    """

    study: str
    data: Data
    method: Method
    K: int
    seed: int
    epochs: int
    metrics: tuple[str, ...]
    moments: tuple[int, ...]
    track: Track | None = None
    scored: bool = False
    repeats: int = 1
    jitter: int = 0

    @functools.cached_property
    def key(self) -> str:
        """Identifies what is measured and the code that measures it."""
        method = self.method
        what = asdict(replace(self, method=None))  # type: ignore[arg-type]
        return digest([what, method.label, method.text, method.kind, method.times, method.batch])

    @property
    def again(self) -> bool:
        """Whether rows of an earlier run are never used: the code of a user's algorithm may have changed."""
        return self.method.kind == YOURS

    @property
    def alone(self) -> bool:
        """Whether nothing else of a run may run beside it."""
        return False

    def shared(self, apart: bool) -> object:
        """What it has in common with the trials that run in the same process."""
        return self.method if apart else (self.data, self.K, self.seed)

    @property
    def rows_of(self) -> tuple[Data, int, int, Track | None]:
        """What says which rows it runs on."""
        return self.data, self.K, self.seed, self.track

    def measured(self, given: Problem | None, data_home: str | Path | None) -> list[Row]:
        """Its rows, on the rows that are given, or on those that are made here."""
        return measure(self, given or problem(*self.rows_of, data_home))

    @property
    def title(self) -> str:
        """What is running, for people."""
        data, track = self.data, f" {self.track.name}" if self.track else ""
        where = f"{data.source} D={data.D} ρ={data.rho:.2g}" if data.generated else Path(data.source).name
        return f"{self.study} {where}{track} K={self.K} seed {self.seed} {self.method.label}"

    def row(self, t: int, metric: str, value: float, note: str = "") -> Row:
        """A row of this trial."""
        data, method, track = self.data, self.method, self.track.name if self.track else ""
        own = (method.label, method.text, method.kind, self.K, self.seed, t, metric, value, note)
        return Row(self.key, self.study, data.source, data.used, data.D, data.rho, track, *own, checksum=data.checksum)

    def failure(self, reason: str) -> list[Row]:
        """The rows of a trial that failed, which say why."""
        told = " ".join(reason.split()).removesuffix(":")  # an error without a message
        return [self.row(self.moments[-1], FAILED, float("nan"), told), self.row(0, DONE, 0.0)]


def digest(content: Any) -> str:
    """A digest of what is measured, and of the code that measures it."""
    return hashlib.sha256(json.dumps([code_digest(), content], sort_keys=True, default=repr).encode()).hexdigest()[:16]


def moments(total: int, first: int, count: int) -> tuple[int, ...]:
    """About `count` numbers of samples from `first` to `total`, evenly spaced on a logarithmic axis."""
    if first >= total:
        return (total,)
    return tuple(int(t) for t in np.unique(np.geomspace(first, total, count).round().astype(int)))


# Metrics of an orthonormal basis, (D, K), or with fewer columns if a method gave no more


def _population(Q: Floats, problem: Problem, t: int) -> float:
    if problem.truth is None:
        raise ValueError("err_pop needs generated data: real data has no known population.")
    return orthonormal_error(Q, problem.truth)


def _present(Q: Floats, problem: Problem, t: int) -> float:
    return orthonormal_error(Q, orthonormal((problem.present or (lambda t: problem.V))(t)))


def _explained(Q: Floats, problem: Problem, t: int) -> float:
    """The variance of some rows that is explained, as a share of what batch PCA explains."""
    return float(np.sum((problem.probes @ Q) ** 2) / np.sum((problem.probes @ problem.V) ** 2))


def _likeness(Q: Floats, problem: Problem, t: int) -> float:
    """Peak signal-to-noise ratio, in dB, of reconstructions against those of batch PCA."""
    rows, V = problem.probes, problem.V
    difference = (rows @ Q) @ Q.T - (rows @ V) @ V.T
    return float(20.0 * np.log10(problem.span / max(float(np.sqrt(np.mean(difference**2))), 1e-300)))


METRICS: Mapping[str, Callable[[Floats, Problem, int], float]] = MappingProxyType(
    {
        "err_batch": lambda Q, problem, t: orthonormal_error(Q, problem.V),
        "err_pop": _population,
        "err_present": _present,
        "explained": _explained,
        "psnr": _likeness,
    }
)


# Trials


def measure(trial: Trial, problem: Problem) -> list[Row]:
    """Run a trial on one thread; if its method fails, the rows say so."""
    try:
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _measured(trial, problem)
    except (Exception, SystemExit) as error:
        return trial.failure(f"{type(error).__name__}: {error}")


def _measured(trial: Trial, problem: Problem) -> list[Row]:
    K, total = trial.K, trial.moments[-1]
    make = partial(build, trial.method, K, problem.D)
    blocks, note = _blocks(trial, problem, make)
    rows = list[Row]()
    _warm_up(make, blocks, min(total, _WARM_UP_ROWS if trial.method.kind == OURS else 10 * K))
    if trial.scored:
        used, basis, memory = _timed(make, blocks, total, trial.repeats)
        rows += [trial.row(total, metric, value / 2**20, note) for metric, value in memory.items()]
    over_time, short, watch = list[float](), 0, Stopwatch()
    once = trial.scored and trial.moments == (total,)
    for t, found in [(total, basis)] if once else watched(make, blocks, trial.moments, watch):
        Q = spanned(check_basis(found, K, problem.D))
        short += Q.shape[1] < K
        values = {metric: METRICS[metric](Q, problem, t) for metric in trial.metrics}
        rows += [trial.row(t, metric, value, note) for metric, value in values.items()]
        over_time.append(next(iter(values.values())))
    if trial.scored:
        drifts = trial.track is not None and trial.track.kind.startswith("drift")
        note = "; ".join(filter(None, [note, f"fewer than {K} dimensions at {short} of {len(over_time)} moments" if short else ""]))
        rows.append(trial.row(total, SCORE, float(np.mean(over_time)) if drifts else over_time[-1], note))
    return [*rows, trial.row(total, DONE, used if trial.scored else watch.seconds, note)]


def _blocks(trial: Trial, problem: Problem, make: Callable[[], Learner]) -> tuple[Blocks, str]:
    """The rows of a trial, and a note on what was done to them for the method."""
    if problem.holes and not make().takes_missing:
        return (lambda start, stop: (np.nan_to_num(block, nan=0.0) for block in problem.blocks(start, stop))), FILLED
    if trial.jitter:
        rng = np.random.default_rng(trial.jitter)
        return (lambda start, stop: (X * (1.0 + 1e-15 * rng.standard_normal(X.shape)) for X in problem.blocks(start, stop))), ""
    return problem.blocks, ""


class Stopwatch:
    """Adds up the processor time of this process inside the context: what other programs take from it does not count."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> None:
        self._began = time.process_time()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.process_time() - self._began


def _warm_up(make: Callable[[], Learner], blocks: Blocks, rows: int) -> None:
    """A short fit, so that compiling and importing are not timed."""
    learner = make()
    learner.feed(np.concatenate(list(blocks(0, rows))))
    learner.flush()
    learner.basis()


def _timed(make: Callable[[], Learner], blocks: Blocks, total: int, repeats: int) -> tuple[float, Floats, dict[str, float]]:
    """Median processor time of whole passes, the last basis, and memory in bytes."""
    times, memory = list[float](), dict[str, float]()
    while not times or (len(times) < repeats and sum(times) < _ENOUGH_SECONDS):
        _forget_peak()
        before, watch, learner = memory_bytes()[0], Stopwatch(), make()
        for block in blocks(0, total):
            with watch:
                learner.feed(block)
        with watch:
            learner.flush()
            basis = learner.basis()
        times.append(watch.seconds)
        peak = memory_bytes()[1]
        memory = memory or ({PEAK: peak, GROWTH: max(0.0, peak - before)} if peak else {})
    return float(np.median(times)), basis, memory


def watched(make: Callable[[], Learner], blocks: Blocks, when: tuple[int, ...], watch: Stopwatch) -> Iterator[tuple[int, Floats]]:
    """The basis after every moment."""
    learner, seen = make(), 0
    for t in when:
        for block in blocks(seen, t):
            with watch:
                learner.feed(block)
        seen = t
        if t == when[-1]:
            with watch:
                learner.flush()
        yield t, learner.basis()


def memory_bytes() -> tuple[float, float]:
    """Resident memory of this process now, and its peak; zeros if the system does not say.

    Linux keeps the peak that `getrusage` gives over the start of a program: a process would begin with its parent's.
    """
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
        sizes = {line.split(":")[0]: 1024.0 * int(line.split()[1]) for line in lines if line.startswith(("VmRSS", "VmHWM"))}
        return sizes["VmRSS"], sizes["VmHWM"]
    except (OSError, KeyError):
        pass
    try:
        import resource
    except ImportError:
        return 0.0, 0.0
    peak = float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * (1 if sys.platform == "darwin" else 1024)
    return peak, peak


def _forget_peak() -> None:
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
