"""One pass of an algorithm over a stream: either timed, or watched."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from time import perf_counter  # taken now: a class that puts another clock in its place is still timed by this one
from typing import Any, NamedTuple

import numpy as np

from online_psp.engine.types import Array, Floats
from online_psp.experiments.learners import Learner

Rows = Callable[[int, int], Iterator[Array]]
"""The rows of samples `start` … `stop`−1, some at a time."""

_WARM_UP_ROWS = 64


class Stopwatch:
    """Adds up the time spent inside the context."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> None:
        self._began = perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds += perf_counter() - self._began


class Timed(NamedTuple):
    """The result of a timed pass.

    Attributes
    ----------
    seconds : float
    basis : (D, K)
        The last basis; the watched pass must end with the same.
    """

    seconds: float
    basis: Array


def timed_pass(make: Callable[[], Learner], rows: Rows, total: int) -> Timed:
    """Feed all rows, and read the basis once, at the end: deferred work is timed, and watching is not."""
    watch, learner = Stopwatch(), make()
    for chunk in rows(0, total):
        with watch:
            learner.feed(chunk)
    with watch:
        learner.finish()
        basis = learner.basis()
    return Timed(watch.seconds, basis)


def watched_pass(
    make: Callable[[], Learner], rows: Rows, checkpoints: Sequence[int], watch: Stopwatch | None = None
) -> Iterator[tuple[int, Array]]:
    """The basis after every checkpoint; a given stopwatch measures the feeding and the last read."""
    learner, seen, watch = make(), 0, watch or Stopwatch()
    for t in checkpoints:
        for chunk in rows(seen, t):
            with watch:
                learner.feed(chunk)
        seen = t
        if t < checkpoints[-1]:
            yield t, learner.basis()
    with watch:
        learner.finish()
        basis = learner.basis()
    yield seen, basis


def warmed(make: Callable[[], Learner], rows: Rows, total: int, K: int) -> None:
    """A short fit before the timed one, so that compiling and importing are not timed."""
    learner = make()
    for chunk in rows(0, min(total, max(4 * K, _WARM_UP_ROWS))):
        learner.feed(chunk)
    learner.finish()
    learner.basis()


def perturbed(rows: Rows, seed: int) -> Rows:
    """The same rows with every number changed by about 1e-15 of itself."""
    rng = np.random.default_rng(seed)

    def some(start: int, stop: int) -> Iterator[Array]:
        for chunk in rows(start, stop):
            noisy: Any = chunk * (1.0 + 1e-15 * rng.standard_normal(chunk.shape))
            yield noisy

    return some


def filled(rows: Rows) -> Rows:
    """The same rows with missing values replaced by zero, the mean."""

    def some(start: int, stop: int) -> Iterator[Array]:
        for chunk in rows(start, stop):
            whole: Floats = np.nan_to_num(chunk, nan=0.0)
            yield whole

    return some
