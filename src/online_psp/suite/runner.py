"""Runs records, saves their rows as they come, and continues where a run stopped.

Methods learn in processes of their own, which loky starts: one process for each method where memory is measured, otherwise one for each
core. A process that is killed, or takes too long, is a failed row; the next trial gets a new one.
"""

from __future__ import annotations

import queue
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as PassedError
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from joblib.externals.loky import process_executor

from online_psp.suite.data import Problem, problem
from online_psp.suite.measure import GROWTH, PEAK, Trial
from online_psp.suite.methods import OURS, PEER, build
from online_psp.suite.rows import Row, append_rows, code_digest, finished, origin, read_rows, stamped, write_rows
from online_psp.suite.speed import Timing

Record: TypeAlias = Trial | Timing

_START_SECONDS = 300.0


@dataclass(frozen=True)
class How:
    """How records are run.

    Attributes
    ----------
    jobs : int
        Number of processes at a time; more than one disturb each other's caches. 0 runs everything in this process, without figures for
        memory.
    apart : bool
        Whether every method has a process of its own, that does not hold the rows: for memory, and for methods that may crash.
    timeout : float or None
        Most seconds that a trial may take.
    data_home : str or Path or None
        Folder of the data sets.
    progress : bool
        Whether to show what is running.
    """

    jobs: int = 1
    apart: bool = False
    timeout: float | None = None
    data_home: str | Path | None = None
    progress: bool = False

    def __post_init__(self) -> None:
        if self.jobs < 0:
            raise ValueError(f"jobs must be at least 1; got {self.jobs}.")
        if self.timeout is not None and not self.timeout > 0:
            raise ValueError(f"The timeout must be more than 0 seconds; got {self.timeout:g}.")


def run(records: Sequence[Record], path: str | Path, how: How | None = None) -> list[Row]:
    """Run records; their rows are added to a CSV file as they come, and are in the order of the records at the end.

    Records that the file already has are not run again, except those of a user's algorithm. Rows that other code or another processor has
    measured are moved to a file beside it.
    """
    how, path = how or How(), Path(path)
    origin()  # of the code that runs now: files may change before the end
    have = finished(_fresh(path))
    for record in records:
        if record.again:
            have.pop(record.key, None)
    missing, begun = [record for record in records if record.key not in have], False
    with ExitStack() as stack:
        bar = stack.enter_context(_progress(how.progress))
        task = bar.add_task("", total=len(records), completed=len(records) - len(missing))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="psp-suite-")))
        outcomes = _outcomes(missing, how, folder)
        stack.callback(outcomes.close)
        for record, rows in outcomes:
            have[record.key] = stamped(record.key, rows)
            if begun:
                append_rows(path, have[record.key])
            else:  # not before there is something new: a run of which nothing came leaves the file as it was
                write_rows(path, (row for rows in have.values() for row in rows))
            begun = True
            bar.update(task, advance=1, description=record.title)
    wanted = list(dict.fromkeys(record.key for record in records))
    others = [key for key in have if key not in set(wanted)]
    write_rows(path, (row for key in (*wanted, *others) for row in have[key]))
    return [row for key in wanted for row in have[key]]


def _fresh(path: Path) -> list[Row]:
    """The rows of a file that this code has measured on this processor; the others are set aside."""
    rows, here = read_rows(path), (code_digest(), origin()["cpu"])
    fresh, stale = ([row for row in rows if ((row.code, row.cpu) == here) is own] for own in (True, False))
    if stale:
        aside = path.with_name(path.name + ".stale")  # not .csv, so that nobody collects it by its ending
        write_rows(aside, [*read_rows(aside), *stale])
        write_rows(path, fresh)
    return fresh


# Processes


def _outcomes(records: Sequence[Record], how: How, folder: Path) -> Generator[tuple[Record, list[Row]], None, None]:
    """Run records, and give their outcomes as they come."""
    if how.jobs == 0:
        for record in records:
            yield record, [row for row in record.measured(None, how.data_home) if row.metric not in (PEAK, GROWTH)]
        return
    jobs = 1 if any(record.alone for record in records) else how.jobs
    lanes, stored = _lanes(records, jobs, how.apart), _Stored(folder, how.data_home) if how.apart else None
    workers = [_Worker(how.timeout) for _ in lanes]
    done: queue.SimpleQueue[tuple[Record, list[Row]] | BaseException] = queue.SimpleQueue()

    def work(worker: _Worker, lane: list[Record]) -> None:
        try:
            for record in lane:
                done.put((record, worker.run(record, stored(record) if stored else None, how.data_home)))
            worker.end()
        except BaseException as error:
            done.put(error)

    with ThreadPoolExecutor(jobs) as pool:
        try:
            for worker, lane in zip(workers, lanes, strict=True):
                pool.submit(work, worker, lane)
            for _ in records:
                found = done.get()
                if isinstance(found, BaseException):
                    raise found
                yield found
        finally:
            for worker in workers:
                worker.end(for_good=True)


def _lanes(records: Sequence[Record], jobs: int, apart: bool) -> list[list[Record]]:
    """What shares a process, one after the other: the trials of a method, or what is dealt out by the rows that trials have in common."""
    groups: dict[Any, list[Record]] = {}
    for record in records:
        groups.setdefault(record.shared(apart), []).append(record)
    several = list(groups.values())
    return several if apart else [lane for i in range(jobs) if (lane := [record for group in several[i::jobs] for record in group])]


class _Stored:
    """The problems of trials with their rows in files, each made once."""

    def __init__(self, folder: Path, data_home: str | Path | None) -> None:
        self._folder, self._data_home, self._made = folder, data_home, dict[Any, Problem]()
        self._lock = threading.Lock()

    def __call__(self, record: Record) -> Problem | None:
        which = record.rows_of
        if which is None:
            return None
        with self._lock:
            if which not in self._made:
                found = problem(*which, self._data_home)
                self._made[which] = found.stored(self._folder / f"rows{len(self._made)}.f64")
            return self._made[which]


def _start(path: list[str]) -> None:
    """In a new process: the parent's search path, no Ctrl-C of its own, and no restart where a set that is kept looks like a leak."""
    sys.path[:] = path
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    process_executor._USE_PSUTIL = False
    import online_psp.suite.measure  # noqa: F401  (imported before anything is timed)


def _ready(record: Record) -> None:
    """In a process that has started: compile what is ours, so that it counts in no limit of time."""
    if isinstance(record, Trial) and record.method.kind in (OURS, PEER):
        X = np.random.default_rng(0).standard_normal((64, 32))
        with suppress(Exception):  # the trial will say what is wrong
            learner = build(record.method, 4, 32)
            for _ in range(2):
                learner.feed(X)
                learner.basis()


class _Worker:
    """One process at a time; a new one where the last was killed, or took too long."""

    def __init__(self, timeout: float | None) -> None:
        self._timeout, self._ended = timeout, False
        self._pool: Any = None

    def run(self, record: Record, given: Problem | None, data_home: str | Path | None) -> list[Row]:
        """The outcome of a record; that its process was killed, or took too long, is a failure."""
        try:
            self.ask(partial(_ready, record), _START_SECONDS)
            found: list[Row] = self.ask(partial(record.measured, given, data_home), self._timeout)
            return found
        except PassedError:
            reason = f"stopped: it took more than {self._timeout:g} s"
        except process_executor.BrokenProcessPool as error:
            reason = " ".join(str(error).split())
            reason = "its process was killed" + (f" by {reason[at:].split(')')[0]})" if (at := reason.find("SIG")) >= 0 else "")
        self.end()
        return record.failure(reason)

    def ask(self, function: Callable[[], Any], timeout: float | None) -> Any:
        """What a function gives in the process, which is started where there is none."""
        if self._ended:
            raise RuntimeError("stopped")
        if self._pool is None:
            # PYTHONSAFEPATH, so that a file of the working folder does not replace a module of the same name.
            environment = {"PYTHONSAFEPATH": "1", "OPENBLAS_NUM_THREADS": "1"}
            self._pool = process_executor.ProcessPoolExecutor(1, env=environment, initializer=_start, initargs=(list(sys.path),))
        return self._pool.submit(function).result(timeout)

    def end(self, for_good: bool = False) -> None:
        """End the process, and all that it has started."""
        self._ended, pool = for_good, self._pool
        self._pool = None
        if pool is not None:
            pool.shutdown(wait=True, kill_workers=True)


def _progress(shown: bool) -> Any:
    """A bar with the name of what was done last."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    told = TextColumn("{task.description}", markup=False)
    columns = (MofNCompleteColumn(), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn(), told)
    return Progress(*columns, console=Console(stderr=True), disable=not shown)
