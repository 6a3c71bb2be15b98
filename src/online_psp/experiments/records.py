"""Experiments as data: what to run, not how. A figure is a list of these records."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from online_psp import __version__
from online_psp.experiments.imports import algorithm_digest
from online_psp.experiments.provenance import code_digest

_OPERATIONS, _BYTES = 30e9, 20e9  # a second, of one core: matrix products, memory

GENERATED = "generated"
"""Stands in place of a checksum for generated data, which its sizes and seed identify."""


@dataclass(frozen=True)
class SpikedData:
    """N rows of the spiked-covariance model, drawn anew for every seed."""

    D: int
    K: int
    rho: float
    N: int

    @property
    def name(self) -> str:
        """How tables call it."""
        return "spiked"

    @property
    def used(self) -> int:
        """How many rows one pass has."""
        return self.N

    @property
    def fingerprint(self) -> str:
        """Empty: generated data has no file, and its seed identifies it."""
        return GENERATED


@dataclass(frozen=True)
class RealData:
    """A data set known by name or a file; the seed of the experiment gives the order of its rows.

    Attributes
    ----------
    source : str
        A name that `online_psp.datasets.load` knows, or a path.
    N, D : int
        Samples and features.
    rows : int or None
        Use only this many rows, the first in the order of the seed.
    key : str or None
        Which array of the file.
    fingerprint : str
        Digest that tells different contents of one file apart, if that matters.
    """

    source: str
    N: int
    D: int
    rows: int | None = None
    key: str | None = None
    fingerprint: str = ""

    @property
    def name(self) -> str:
        """How tables call it."""
        return self.source

    @property
    def used(self) -> int:
        """How many rows one pass has."""
        return self.N if self.rows is None else min(self.rows, self.N)


@dataclass(frozen=True)
class Track:
    """What is done to a stream to make it harder, and how much; see `online_psp.experiments.tracks`.

    Attributes
    ----------
    kind : str
        A key of `online_psp.experiments.tracks.KINDS`.
    amount : float
        A share or an angle, depending on the kind.
    """

    kind: str
    amount: float = 0.0

    @property
    def name(self) -> str:
        """How tables call it."""
        return f"{self.kind} {100 * self.amount:g} %" if self.amount else self.kind


@dataclass(frozen=True)
class Curve:
    """An algorithm with its parameters: one line of a plot.

    Attributes
    ----------
    algorithm : str
        A key of `online_psp.algorithms.ALGORITHMS`, or ``module:Class`` of your own.
    options : tuple of (name, value)
        Keyword arguments of the constructor.
    lead : int
        Use step sizes ``2/(gamma (t − lead) + 5)``, as recorded runs of the authors' package do with ``lead=1``.
    batch : int or None
        Rows per call of ``partial_fit``, or 0 to pass blocks on as they come; 5 K by default, as in scikit-learn.
    """

    label: str
    algorithm: str
    options: tuple[tuple[str, Any], ...] = ()
    lead: int = 0
    batch: int | None = None

    @property
    def text(self) -> str:
        """The algorithm with its options, as the command line takes it; then the size of batches, if one was asked for."""
        options = ",".join([self.algorithm, *(f"{name}={value}" for name, value in self.options)])
        return f"{options} (batches of {self.batch})" if self.batch else options

    @property
    def foreign(self) -> bool:
        """Whether it is not built in, so that it may fail without ending the run."""
        return ":" in self.algorithm


def told_apart(given: Sequence[Curve], known: Sequence[Curve]) -> list[Curve]:
    """The given curves without repeats; a label that another algorithm has too is extended by the algorithm."""
    meant: dict[str, set[str]] = {}
    for curve in (*known, *given):
        meant.setdefault(curve.label, set()).add(curve.text)
    return [
        replace(curve, label=f"{curve.label} [{curve.text}]") if len(meant[curve.label]) > 1 else curve for curve in dict.fromkeys(given)
    ]


@dataclass(frozen=True)
class Experiment:
    """One or several passes of one algorithm over one data set in one order, with what to measure and when.

    Attributes
    ----------
    seed : int
        Determines the samples of synthetic data, and the order of real data.
    epochs : int
        Passes over the data, in the same order.
    metrics : tuple of str
        Keys of `online_psp.experiments.measure.METRICS`.
    checkpoints : tuple of int
        Numbers of samples after which to measure, ascending.
    pictured : int or None
        Row of the data set whose reconstruction is kept at every checkpoint.
    track : Track or None
        What is done to the stream.
    scored : bool
        Whether to time a separate pass, in which the basis is read only at the end, and to rank by the outcome: for evaluations.
        Otherwise the time is that of the measured pass, a rough guide.
    jitter : int
        If not 0, every number is perturbed by 1e-15 of itself, differently for every value of `jitter`; this shows the effect of rounding.
    """

    figure: str
    data: SpikedData | RealData
    curve: Curve
    K: int
    seed: int
    epochs: int
    metrics: tuple[str, ...]
    checkpoints: tuple[int, ...]
    pictured: int | None = None
    track: Track | None = None
    jitter: int = 0
    scored: bool = False

    @property
    def key(self) -> str:
        """Identifies the record, so that its rows are found again."""
        return _digest(self)

    @property
    def group(self) -> tuple[Any, ...]:
        """Records of the same group run one after the other in one process, because they share synthetic data that takes long to make.

        Real data is loaded once per process, so its records form groups of their own, and their rows are saved sooner.
        """
        shared = (self.figure, self.data, self.K, self.seed, self.track)
        return shared if isinstance(self.data, SpikedData) else (*shared, self.curve)

    @property
    def cost(self) -> float:
        """Roughly proportional to the time that it takes."""
        data = self.data
        N = data.used
        per_sample = data.D * (self.K + 32.0) + 40.0 * self.K * self.K
        return N * self.epochs * per_sample + len(self.checkpoints) * data.D * self.K * self.K

    @property
    def title(self) -> str:
        """What is running, for people."""
        data = self.data
        where = f"spiked D={data.D} ρ={data.rho:.2g}" if isinstance(data, SpikedData) else data.source
        what = "" if isinstance(data, SpikedData) else f" {self.curve.label}"
        track = f" {self.track.name}" if self.track else ""
        return f"{self.figure} {where}{track} K={self.K} seed {self.seed}{what}"


@dataclass(frozen=True)
class Timing:
    """Measures the time per sample.

    Attributes
    ----------
    way : str
        "published" (the published update, one sample at a time, in place: `online_psp.experiments.baselines`), "fit_next" or "fit_block".
    runs, samples : int
        Number of runs, and samples per run. `fit_next` and `fit_block` take whole blocks, so that deferred work is counted.
    budget : float
        Seconds after which no new sample is started.
    """

    figure: str
    algorithm: str
    way: str
    D: int
    K: int
    rho: float
    gamma: float
    runs: int
    samples: int
    seed: int
    budget: float

    @property
    def key(self) -> str:
        """Identifies the record, so that its rows are found again."""
        return _digest(self)

    @property
    def group(self) -> tuple[Any, ...]:
        """Records with an equal group share their samples."""
        return (self.figure, self.D, self.K)

    @property
    def cost(self) -> float:
        """Seconds that it takes, within a factor of two, on one core with 30e9 operations and 20e9 bytes of memory a second."""
        one = self._run_seconds()
        again = 0.0 if one > self.budget else min(self.runs * one, max(self.budget, one))
        return 0.02 + self._start_seconds() + one + again

    @property
    def _pass(self) -> float:
        """Seconds to read the basis."""
        return 8.0 * self.D * self.K / _BYTES

    def _start_seconds(self) -> float:
        """To start a model, in memory that is new to the process; `fit_next` does it for `fit_block` too."""
        work = {"fsm": 6.0 * self.K**3, "sm": 4.0 * self.K**3, "ipca": 6.0 * self.D * self.K**2, "ccipca": 0.0}
        started = {"published": 0.0, "fit_next": work[self.algorithm] / _OPERATIONS}
        return 100.0 * self._pass + started[self.way] if self.way in started else 0.0

    def _run_seconds(self) -> float:
        """One run: `samples` of the published loop, or a block."""
        D, K = self.D, self.K
        turn, cube, square = 2.0 * D * K * K / _OPERATIONS, K**3 / _OPERATIONS, 8.0 * K * K / _BYTES
        if self.way == "published":
            more = {"fsm": 5.0 * square, "sm": 5.0 * square + cube / 3, "ipca": turn + 6.0 * cube, "ccipca": 0.0}
            each = 5.0 * self._pass + more[self.algorithm]
            return each * max(1.0, min(self.samples, self.budget / each))
        rows, reads = (64, self._pass) if self.way == "fit_next" else (256, 6.0 * D * K / _OPERATIONS)
        turns, squares = {"fsm": (0.0, 3.0), "sm": (0.0, 7.0), "ipca": (0.0, 12.0), "ccipca": (1.0, 12.0)}[self.algorithm]
        return turns * turn + rows * (reads + squares * square)

    @property
    def title(self) -> str:
        """What is running, for people."""
        return f"{self.figure} D={self.D} K={self.K} {self.algorithm.upper()}, {self.way}"


Record: TypeAlias = Experiment | Timing


def parse_spiked(text: str) -> SpikedData:
    """Spiked data from ``spiked:D=1024,K=16,rho=0.01,N=6000``; what is left out is as in this example."""
    values: dict[str, float] = {"D": 1024, "K": 16, "rho": 0.01, "N": 6000}
    given = set[str]()
    for setting in filter(None, text.partition(":")[2].split(",")):
        name, equals, value = setting.strip().partition("=")
        if not equals or name not in values:
            raise ValueError(f"{setting!r} in {text!r} is not one of {', '.join(values)}: write spiked:D=1024,K=16,rho=0.01,N=6000.")
        if name in given:
            raise ValueError(f"{text!r} gives {name} twice.")
        given.add(name)
        try:
            values[name] = float(value) if name == "rho" else int(value)
        except ValueError:
            raise ValueError(f"{value!r} in {text!r} is not a {'number' if name == 'rho' else 'whole number'}.") from None
    D, K, N, rho = int(values["D"]), int(values["K"]), int(values["N"]), values["rho"]
    if not (1 <= K <= min(D, N) and 0 <= rho < float("inf")):
        raise ValueError(f"{text!r} must have 1 ≤ K ≤ D, K ≤ N and rho ≥ 0.")
    return SpikedData(D, K, rho, N)


def _digest(record: Record) -> str:
    """A digest of what is measured and of the code that measures it, so that rows of other code are never reused."""
    algorithm = algorithm_digest(record.curve.algorithm) if isinstance(record, Experiment) else ""
    content = json.dumps([__version__, code_digest(), algorithm, type(record).__name__, asdict(record)], sort_keys=True, default=repr)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def moments(total: int, first: int, count: int) -> tuple[int, ...]:
    """About `count` checkpoints from `first` to `total`, evenly spaced on a logarithmic axis."""
    if first >= total:
        return (total,)
    return tuple(int(t) for t in np.unique(np.geomspace(first, total, count).round().astype(int)))
