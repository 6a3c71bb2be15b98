"""Runs one experiment: feeds rows to an algorithm, and measures its bases."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from online_psp.datasets import DataSet, SpikedCovariance, load
from online_psp.engine.types import Array, Floats
from online_psp.experiments.learners import Builders, Learner, build, check_basis, takes_missing, warm_up
from online_psp.experiments.passes import Rows, Stopwatch, filled, perturbed, timed_pass, warmed, watched_pass
from online_psp.experiments.records import Experiment, RealData, SpikedData, Track
from online_psp.experiments.rows import DONE, Row
from online_psp.experiments.tracks import Stream, make_stream
from online_psp.metrics import batch_components, gram_matrix, orthonormal, orthonormal_error, spanned, standardize

_CHUNK = 2048
_PROBES = 256

PRESENT = "err_present"
"""Distance to the present true subspace, which tracks measure."""
SCORE = "score"
"""The score of an algorithm on a track: its last error, or the mean over time if the truth moves."""
FILLED = "holes filled with the mean"

_REPEATS = 1e-3
"""Relative difference of the errors of two passes beyond which a note is added."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """Standardised data, with the references that bases are compared with.

    Attributes
    ----------
    X : (N, D)
        Standardised rows.
    order : (n,)
        The rows of one pass.
    V : (D, K)
        The batch solution.
    truth : (D, K) or None
        The generator's own subspace.
    probes : (m, D)
        A few rows to reconstruct.
    measure_span : callable
        Computes the range of the raw numbers, in standardised units.
    """

    X: Array
    order: NDArray[np.intp]
    V: Floats
    truth: Floats | None
    probes: Array
    measure_span: Callable[[], float]

    # References for the bases, computed at first use and then kept, because there are many bases.

    @cached_property
    def batch(self) -> Floats:
        """V, orthonormalised in the same way as the bases that are compared with it."""
        return orthonormal(self.V, "V")

    @cached_property
    def population(self) -> Floats:
        """The truth, orthonormalised."""
        if self.truth is None:
            raise ValueError("err_pop needs synthetic data: real data has no known population.")
        return orthonormal(self.truth, "V")

    @cached_property
    def explained(self) -> float:
        """The share of the probes' squares that the batch solution explains."""
        return _explained(self.batch, self.probes)

    @cached_property
    def rebuilt(self) -> Floats:
        """The probes as the batch solution reconstructs them."""
        return np.asarray((self.probes @ self.V) @ self.V.T)

    @cached_property
    def span(self) -> float:
        """The range of the raw numbers, in standardised units."""
        return self.measure_span()


@dataclass(frozen=True, eq=False)
class Outcome:
    """The outcome of an experiment: rows, and pictures if they were asked for."""

    rows: list[Row]
    arrays: Mapping[str, NDArray[Any]]


def _explained(Q: Floats, rows: Array) -> float:
    total = float(np.sum(rows**2))
    return float(np.sum((rows @ Q) ** 2)) / total if total > 0 else 1.0


def _likeness(Q: Floats, data: Prepared) -> float:
    """Peak signal-to-noise ratio, in dB, of reconstructions against those of batch PCA."""
    difference = (data.probes @ Q) @ Q.T - data.rebuilt
    return float(20.0 * np.log10(data.span / max(float(np.sqrt(np.mean(difference**2))), 1e-300)))


METRICS: Mapping[str, Callable[[Floats, Prepared], float]] = MappingProxyType(
    {
        "err_batch": lambda Q, data: orthonormal_error(Q, data.batch),
        "err_pop": lambda Q, data: orthonormal_error(Q, data.population),
        "explained": lambda Q, data: _explained(Q, data.probes) / data.explained,
        "psnr": _likeness,
    }
)
"""Metrics of an orthonormal basis, (D, K), or with fewer columns if a learner gave no more."""


class Workbench:
    """Runs experiments; loads, standardises and solves each data set once for all experiments on it.

    Parameters
    ----------
    data_home : str or Path, optional
    sources : mapping of name to DataSet, optional
        Data already in memory; takes precedence over files of the same name.
    builders : mapping of name to callable, optional
        Algorithms already in memory.
    keep : int
        Number of orders, or draws, to keep in memory.
    """

    def __init__(
        self,
        data_home: str | Path | None = None,
        sources: Mapping[str, DataSet] | None = None,
        builders: Builders | None = None,
        keep: int = 1,
    ) -> None:
        self._data_home, self._sources, self._builders = data_home, sources or {}, builders
        self.raw = lru_cache(maxsize=1)(self._raw)
        self.standardized = lru_cache(maxsize=1)(self._standardized)
        self.prepare = lru_cache(maxsize=keep)(self._prepare)
        self._track = lru_cache(maxsize=keep)(self._make_stream)
        self._reference = lru_cache(maxsize=4)(self._batch_solution)
        self._gram = lru_cache(maxsize=1)(self._gram_matrix)

    def _raw(self, source: str, key: str | None) -> DataSet:
        return self._sources[source] if source in self._sources else load(source, self._data_home, key=key)

    def _standardized(self, source: str, key: str | None) -> Array:
        return standardize(self.raw(source, key).X)

    def _gram_matrix(self, source: str, key: str | None) -> Floats:
        return gram_matrix(self.standardized(source, key))

    def _batch_solution(self, data: RealData, K: int, seed: int | None) -> Floats:
        X = self.standardized(data.source, data.key)
        if seed is None:
            return batch_components(X, K, self._gram(data.source, data.key))
        return batch_components(X[_order(data, seed)], K)

    def _prepare(self, data: SpikedData | RealData, K: int, seed: int) -> Prepared:
        if isinstance(data, SpikedData):
            model = SpikedCovariance(data.D, data.K, data.rho, seed)
            X = standardize(model.draw(data.N))
            return Prepared(X, np.arange(data.N), batch_components(X, K), model.U[:, :K], X[:_PROBES], lambda: _span(X))
        raw, X = self.raw(data.source, data.key), self.standardized(data.source, data.key)
        V = self._reference(data, K, None if data.rows is None else seed)
        chosen = np.sort(np.random.default_rng(0).permutation(data.N)[:_PROBES])
        return Prepared(X, _order(data, seed), V, None, X[chosen], lambda: _span(raw.X) / scale_of(raw.X))

    def stream(self, record: Experiment) -> Stream | None:
        """The rows of a track, with the truth at every moment; None if the data is used as it is."""
        return None if record.track is None else self._track(record.data, record.K, record.seed, record.track)

    def _make_stream(self, data: SpikedData | RealData, K: int, seed: int, track: Track) -> Stream:
        prepared = self.prepare(data, K, seed)
        known = prepared.truth is not None and prepared.truth.shape[1] == K
        return make_stream(track, prepared.X[prepared.order], prepared.truth if known and prepared.truth is not None else prepared.V, seed)

    def rows_of(self, record: Experiment) -> tuple[Rows, str]:
        """The rows of an experiment, and a note on how they were changed for the algorithm."""
        data, stream = self.prepare(record.data, record.K, record.seed), self.stream(record)
        source = data if stream is None else replace(data, X=stream.X, order=np.arange(len(stream.X)))
        rows: Rows = partial(chunks, source)
        if record.jitter:
            rows = perturbed(rows, record.jitter)
        if stream is None or not np.isnan(stream.X).any() or takes_missing(record.curve, record.K, data.X.shape[1], self._builders):
            return rows, ""
        return filled(rows), FILLED

    def score(
        self, record: Experiment, bases: Iterable[tuple[int, Array]], note: str = "", timed: Callable[[], Array] | None = None
    ) -> Iterator[Row]:
        """Measure the bases of a pass as they come; `timed` gives the last basis of the timed pass."""
        over_time, short = list[float](), list[int]()
        for t, basis in bases:
            Q, found = self._measured(record, t, basis)
            yield from (measurement(record, t, metric, value, note) for metric, value in found.items())
            over_time.append(next(iter(found.values())))
            short += [Q.shape[1]] * (Q.shape[1] < record.K)
        if record.scored and over_time:
            stream = self.stream(record)
            score = float(np.mean(over_time)) if stream is not None and stream.over_time else over_time[-1]
            told = [note, f"only {min(short)} of {record.K} dimensions at {len(short)} of {len(over_time)} moments" if short else ""]
            if timed is not None:
                again = next(iter(self._measured(record, t, timed())[1].values()))
                if abs(again - over_time[-1]) > max(_REPEATS * again, _REPEATS * over_time[-1], 1e-9):
                    told.append(f"two passes over the same rows ended at {over_time[-1]:.2g} and {again:.2g}; the worse counts")
                    score = max(score, again)
            yield measurement(record, t, SCORE, score, "; ".join(filter(None, told)))

    def _measured(self, record: Experiment, t: int, basis: Array) -> tuple[Floats, dict[str, float]]:
        """The basis after t samples, made orthonormal, and its metrics."""
        data, stream = self.prepare(record.data, record.K, record.seed), self.stream(record)
        Q = spanned(check_basis(basis, record.curve, record.K, data.X.shape[1]))
        if stream is None:
            return Q, {metric: METRICS[metric](Q, data) for metric in record.metrics}
        return Q, {PRESENT: orthonormal_error(Q, orthonormal(stream.present(t), "V"))}

    def run(self, record: Experiment) -> Outcome:
        """Run an experiment; if a user's algorithm fails, the rows say so."""
        self.prepare(record.data, record.K, record.seed)
        try:
            return self._run(record)
        except (Exception, SystemExit) as error:
            if not record.curve.foreign:
                raise
            return failure(record, f"{type(error).__name__}: {error}")

    def _run(self, record: Experiment) -> Outcome:
        curve, K = record.curve, record.K
        data = self.prepare(record.data, K, record.seed)
        rows, note = self.rows_of(record)
        total = record.checkpoints[-1]

        def make() -> Learner:
            return build(curve, K, data.X.shape[1], self._builders)

        pictures = self._album(record, data)
        warm_up(curve.algorithm)
        watch, timed = Stopwatch(), None
        if record.scored:
            warmed(make, rows, total, K)
            timed = timed_pass(make, rows, total)

        def watched() -> Iterator[tuple[int, Array]]:
            for t, basis in watched_pass(make, rows, record.checkpoints, watch):
                if pictures is not None:
                    pictures.take(orthonormal(basis))
                yield t, basis

        measured = list(self.score(record, watched(), note, None if timed is None else lambda: timed.basis))
        done = measurement(record, total, DONE, watch.seconds if timed is None else timed.seconds, note)
        return Outcome([*measured, done], pictures.arrays() if pictures is not None else {})

    def _album(self, record: Experiment, data: Prepared) -> _Album | None:
        if record.pictured is None or isinstance(record.data, SpikedData):
            return None
        return _Album(self.raw(record.data.source, record.data.key), data, record.pictured, record.checkpoints)


def _order(data: RealData, seed: int) -> NDArray[np.intp]:
    return np.random.default_rng(seed).permutation(data.N)[: data.used]


def _span(X: NDArray[Any]) -> float:
    return float(X.max()) - float(X.min())


def scale_of(X: NDArray[Any]) -> float:
    """The mean norm of a centred row, by which `standardize` divides."""
    mean = X.mean(axis=0, dtype=np.float64)
    norms = [np.linalg.norm(X[start : start + _CHUNK] - mean, axis=1) for start in range(0, len(X), _CHUNK)]
    return float(np.concatenate(norms).mean()) or 1.0


def chunks(data: Prepared, start: int, stop: int) -> Iterator[Array]:
    """The rows of samples `start` … `stop`−1, pass after pass, a bounded number at a time."""
    n = len(data.order)
    while start < stop:
        within = start % n
        size = min(stop - start, n - within, _CHUNK)
        yield data.X[data.order[within : within + size]]
        start += size


class _Album:
    """Reconstructions of one row of the data set, in the units of the file."""

    def __init__(self, raw: DataSet, data: Prepared, pictured: int, moments: tuple[int, ...]) -> None:
        self._moments, self._mean, self._scale = moments, raw.X.mean(axis=0, dtype=np.float64), scale_of(raw.X)
        self._x = data.X[pictured]
        self._original, self._batch = raw.X[pictured], self._project(data.batch)
        self._taken: list[Floats] = []

    def _project(self, Q: Floats) -> Floats:
        return np.asarray(self._mean + self._scale * (Q @ (Q.T @ self._x)))

    def take(self, Q: Floats) -> None:
        """Add the reconstruction by an orthonormal basis, (D, K)."""
        self._taken.append(self._project(Q))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """moments (m,), pictures (m, D), batch (D,) and original (D,)."""
        return {"moments": np.array(self._moments), "pictures": np.array(self._taken), "batch": self._batch, "original": self._original}


def failure(record: Experiment, reason: str) -> Outcome:
    """The outcome of an algorithm that failed: a row that says why."""
    told = " ".join(reason.split()).removesuffix(":")  # an error without a message
    return Outcome([measurement(record, record.checkpoints[-1], "failed", float("nan"), told), measurement(record, 0, DONE, 0.0)], {})


def measurement(record: Experiment, t: int, metric: str, value: float, note: str = "") -> Row:
    """A row of an experiment."""
    data, curve = record.data, record.curve
    rho = data.rho if isinstance(data, SpikedData) else 0.0
    return Row(
        record.key,
        record.figure,
        data.name,
        data.used,
        data.D,
        rho,
        curve.label,
        curve.text,
        record.K,
        record.seed,
        t,
        metric,
        value,
        note,
        record.track.name if record.track else "",
    )
