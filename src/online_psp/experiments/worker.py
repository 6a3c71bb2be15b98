"""The process of one isolated algorithm: reads rows from a file, learns, and writes its bases to files.

Started by `online_psp.experiments.isolation` as ``python -m online_psp.experiments.worker JOB``. It reports to a file of events, one per
line, so that a process that dies leaves a record of how far it got. Rows are read in chunks and never mapped, so that the memory of this
process is that of the algorithm.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pickle
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from online_psp.engine.types import Array
from online_psp.experiments.records import Curve
from online_psp.experiments.resources import Others, forget_peak, others, resident_bytes

_CHUNK_BYTES = 4_000_000
MIB = 2**20


@dataclass(frozen=True)
class StoredRows:
    """Rows in a file of float64, and the order of one pass over them.

    Attributes
    ----------
    path : str
    D : int
    order : (n,)
    holes : bool
        Whether values are missing.
    """

    path: str
    D: int
    order: NDArray[np.intp]
    holes: bool

    def rows(self, start: int, stop: int) -> Iterator[Array]:
        """The rows of samples `start` … `stop`−1, pass after pass, a few megabytes at a time."""
        n, most = len(self.order), max(1, _CHUNK_BYTES // (8 * self.D))
        with open(self.path, "rb", buffering=0) as stream:
            while start < stop:
                within = start % n
                size = min(stop - start, n - within, most)
                chunk = np.empty((size, self.D))
                for row, place in zip(chunk, self.order[within : within + size], strict=True):
                    stream.seek(8 * self.D * int(place))
                    stream.readinto(row.view(np.uint8).data)
                yield chunk
                start += size


@dataclass(frozen=True)
class Task:
    """One trial of an algorithm."""

    key: str
    rows: StoredRows
    K: int
    checkpoints: tuple[int, ...]


@dataclass(frozen=True)
class Job:
    """The task of a process: the trials of one algorithm, and where to write."""

    curve: Curve
    tasks: tuple[Task, ...]
    folder: str
    path: tuple[str, ...]
    """The module search path of the parent process."""


class Events:
    """A file with one line per event."""

    def __init__(self, folder: Path) -> None:
        self._path, self._process = folder / "events.jsonl", os.getpid()

    def tell(self, event: str, **facts: Any) -> None:
        """Write an event at once. A copy of this process that an algorithm has forked must not report, and ends here."""
        if os.getpid() != self._process:
            os._exit(0)
        with self._path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps({"event": event, **facts}) + "\n")


def work(job: Job) -> None:
    """Run all trials of a job: each is timed in one pass, then watched in another."""
    from threadpoolctl import threadpool_limits

    from online_psp.experiments.learners import build, check_basis, resolve, takes_missing
    from online_psp.experiments.passes import Rows, filled, timed_pass, warmed, watched_pass

    folder, events = Path(job.folder), Events(Path(job.folder))
    resolve(job.curve.algorithm)  # so that no pass includes importing
    (folder / "pid").write_text(str(os.getpid()), encoding="ascii")
    events.tell("ready")
    before: int | None = None
    began = others()
    with threadpool_limits(1):
        for task in job.tasks:
            events.tell("begun", key=task.key)
            total, make = task.checkpoints[-1], partial(build, job.curve, task.K, task.rows.D)
            try:
                fill = task.rows.holes and not takes_missing(job.curve, task.K, task.rows.D)
                rows: Rows = filled(task.rows.rows) if fill else task.rows.rows
                warmed(make, rows, total, task.K)
                events.tell("warm", key=task.key)
                gc.collect()
                forget_peak()
                before = resident_bytes()[0] if before is None else before  # only once: later, freed memory may not have been returned
                watch = _Processors()
                timed = timed_pass(make, rows, total)
                used, more = watch.used(timed.seconds), _since(began)
                peak = resident_bytes()[1] + more
                facts = {"seconds": timed.seconds, "peak": peak, "growth": max(0, peak - before), "filled": fill}
                events.tell("timed", key=task.key, processors=used, others=more, **facts)
                bases = watched_pass(make, rows, task.checkpoints)
                for moment, basis in chain([("timed", timed.basis)], bases):
                    np.save(folder / f"{task.key}_{moment}.npy", check_basis(basis, job.curve, task.K, task.rows.D).astype(np.float64))
                    events.tell("basis", key=task.key, t=moment)
            except Exception as error:
                events.tell("failed", key=task.key, reason=f"{type(error).__name__}: {error}")
            else:
                events.tell("done", key=task.key)


def _since(began: Others) -> int:
    """Peak memory of the other processes of this session since then, in bytes."""
    peak = others().peak
    return peak if peak > began.peak else 0


class _Processors:
    """Measures how many processors an algorithm keeps busy, including its threads and other processes."""

    def __init__(self) -> None:
        self._began = time.process_time() + others().seconds

    def used(self, seconds: float) -> float:
        """Processors used over a wall-clock time; reading rows counts a little, too."""
        return (time.process_time() + others().seconds - self._began) / max(seconds, 0.1)


def main() -> None:
    """Read the job and run it."""
    with open(sys.argv[1], "rb") as stream:
        path = pickle.load(stream)
        importlib.import_module("online_psp.algorithms")  # with all of its imports, before other folders come into the search path
        sys.path.extend(place for place in path if place not in sys.path)
        job = pickle.load(stream)
    work(job)


if __name__ == "__main__":
    main()
