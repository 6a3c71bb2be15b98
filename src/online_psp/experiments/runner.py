"""Runs records in parallel, saves their rows as they come, and resumes where a run stopped."""

from __future__ import annotations

import math
import multiprocessing
import signal
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, ProcessPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from online_psp.experiments.isolation import Isolation, run_isolated
from online_psp.experiments.measure import Outcome, Workbench
from online_psp.experiments.provenance import code_digest, provenance
from online_psp.experiments.records import GENERATED, Experiment, Record, Timing
from online_psp.experiments.rows import Row, append_rows, finished, read_rows, write_rows
from online_psp.experiments.timing import time_record

Group: TypeAlias = tuple[Record, ...]

_SAY_SECONDS = 60.0
_TRUST_SECONDS = 60.0


def run_group(records: Group, bench: Workbench) -> list[Outcome]:
    """Run records that share their data, one after the other, on one BLAS thread."""
    with threadpool_limits(1):
        return [Outcome(time_record(record), {}) if isinstance(record, Timing) else bench.run(record) for record in records]


def run(
    records: Sequence[Record],
    path: str | Path,
    *,
    jobs: int = 1,
    data_home: str | Path | None = None,
    resume: bool = True,
    bench: Workbench | None = None,
    isolation: Isolation | None = None,
    progress: bool = False,
) -> list[Row]:
    """Run records and save their rows.

    Parameters
    ----------
    records : sequence of Experiment or Timing
    path : str or Path
        The CSV file. Rows are added to it as they come, and records that it already has are not computed again. When all are there, the
        file is put in the order of the records, so that equal seeds give equal files (except for times).
    jobs : int
        Number of processes. Timings always run alone, in this process.
    data_home : str or Path, optional
        Folder of the data sets.
    resume : bool
        Whether to keep the rows of an earlier run.
    bench : Workbench, optional
        Workbench with data or algorithms of this process; then everything runs in this process.
    isolation : Isolation, optional
        Run every algorithm in a process of its own. If its process is killed, that is one failed row, and its other records are left out.
    progress : bool
        Whether to show what is running and how long is left.

    Returns
    -------
    list of Row
        The rows of `records`, in their order.
    """
    path = Path(path)
    provenance()  # of the code that runs now: files may change before the end
    if jobs < 1:
        raise ValueError(f"jobs must be at least 1; got {jobs}.")
    have = finished(_set_stale_aside(path)) if resume else {}
    for key in without_pictures(path, records):
        have.pop(key, None)
    write_rows(path, (row for rows in have.values() for row in rows))
    missing = [record for record in records if record.key not in have]
    groups = [tuple(group) for _, group in groupby(missing, key=lambda record: record.group)]
    alone = jobs == 1 or bench is not None or any(isinstance(record, Timing) for record in missing)
    outcomes: Generator[Step, None, None]
    if isolation is not None:
        outcomes = _isolated([record for record in missing if isinstance(record, Experiment)], bench or Workbench(data_home), isolation)
    else:
        outcomes = _here(groups, bench or Workbench(data_home)) if alone else _elsewhere(groups, jobs, data_home)
    with ExitStack() as stack:
        show = stack.enter_context(_Display(records, missing)) if progress else None
        stack.callback(outcomes.close)
        for running, done in outcomes:
            for record, outcome in done:
                if outcome.arrays:
                    _save_arrays(path, record.key, outcome.arrays)
                have[record.key] = stamped(record, outcome.rows)
                append_rows(path, have[record.key])
            if show is not None:
                show.update(running, [record for record, _ in done])
    wanted = dict.fromkeys(record.key for record in records if record.key in have)
    rows = [row for key in wanted for row in have[key]]
    others = [kept for key, kept in have.items() if key not in wanted]
    measured = {_meaning(have[key]) for key in wanted}
    _set_aside(path, [row for kept in others if _meaning(kept) in measured for row in kept])
    write_rows(path, [*rows, *(row for kept in others if _meaning(kept) not in measured for row in kept)])
    return rows


def _meaning(rows: Sequence[Row]) -> tuple[object, ...]:
    """What a record measures, whatever the code of a user's algorithm was: rows of one meaning are of two states of that code.

    For the algorithms of this package, whose code every row names, it is the key.
    """
    row = rows[0]
    if ":" not in row.algorithm:
        return (row.key,)
    columns = ("figure", "data", "N", "D", "rho", "label", "algorithm", "K", "seed", "track")
    return (*(getattr(row, name) for name in columns), row.origin.checksum, max(row.t for row in rows))


def stamped(record: Record, rows: Sequence[Row]) -> list[Row]:
    """Rows with their provenance."""
    origin = provenance(GENERATED if isinstance(record, Timing) else record.data.fingerprint)
    return [replace(row, origin=origin) for row in rows]


def _set_stale_aside(path: Path) -> list[Row]:
    """The rows of a file that this code has measured; rows of other code are moved to a file beside it."""
    rows = read_rows(path)
    _set_aside(path, [row for row in rows if row.origin.code != code_digest()])
    return [row for row in rows if row.origin.code == code_digest()]


def _set_aside(path: Path, stale: Sequence[Row]) -> None:
    """Keep rows that no longer count in a file beside that of the others."""
    if stale:
        aside = path.with_name(path.name + ".stale")  # not .csv, so that nobody collects it by its ending
        write_rows(aside, [*read_rows(aside), *stale])


Step: TypeAlias = tuple[list[Group], list[tuple[Record, Outcome]]]


def _here(groups: Iterable[Group], bench: Workbench) -> Generator[Step, None, None]:
    """Run groups in this process; yields what is running, then what is done, one record at a time."""
    for record in (record for group in groups for record in group):
        yield [(record,)], []
        yield [(record,)], [(record, run_group((record,), bench)[0])]


def _isolated(records: Sequence[Experiment], bench: Workbench, isolation: Isolation) -> Generator[Step, None, None]:
    """As `_here`, each algorithm in a process of its own."""
    yield [tuple(records)] if records else [], []
    for record, outcome in run_isolated(records, bench, isolation):
        yield [(record,)], [(record, outcome)]


_bench: Workbench
_limits: Any


def _start_worker(data_home: str | Path | None) -> None:
    global _bench, _limits  # a worker has no other place for what its tasks share
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets it too, and ends this process
    _bench, _limits = Workbench(data_home), threadpool_limits(1)


def _work(group: Group) -> list[Outcome]:
    return run_group(group, _bench)


def _elsewhere(groups: Sequence[Group], jobs: int, data_home: str | Path | None) -> Generator[Step, None, None]:
    """As `_here`, in several processes; they are ended when the iterator is closed early."""
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(
        min(jobs, max(1, len(groups))), multiprocessing.get_context("spawn"), initializer=_start_worker, initargs=(data_home,)
    )
    try:
        waiting, running = list(reversed(groups)), dict[Future[list[Outcome]], Group]()
        while waiting or running:
            while waiting and len(running) < jobs:
                group = waiting.pop()
                running[pool.submit(_work, group)] = group
            yield list(running.values()), []
            ready, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in ready:
                group = running.pop(future)
                yield list(running.values()), list(zip(group, _result(future, group), strict=True))
        pool.shutdown()
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in set(multiprocessing.active_children()) - others:
            child.terminate()
        raise


def _result(future: Future[list[Outcome]], group: Group) -> list[Outcome]:
    try:
        return future.result()
    except BrokenExecutor as error:
        raise RuntimeError(
            f"A process ended in the middle of {group[0].title} or of what ran beside it. What was done is saved."
        ) from error


class _Display:
    """A progress bar in units of work, with the names of what is running; a line a minute where there is no terminal."""

    def __init__(self, records: Sequence[Record], missing: Sequence[Record]) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self._bar = Progress(
            TextColumn("{task.fields[done]}/{task.fields[of]}"),
            BarColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            TextColumn("{task.description}", markup=False),
        )
        self._done, self._of = len(records) - len(missing), len(records)
        self._left = Remaining(missing)
        self._task = self._bar.add_task("starting", total=self._left.cost, done=self._done, of=self._of, left=self._left.told())
        self._said = time.monotonic()

    def __enter__(self) -> _Display:
        if self._left.told():
            self._bar.console.print(f"{self._of - self._done} of {self._of} to run, {self._left.told()}", highlight=False)
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def update(self, running: Sequence[Group], done: Sequence[Record]) -> None:
        self._done += len(done)
        names = " | ".join(group[0].title for group in running)
        self._left.take(done)
        left = self._left.told()
        self._bar.update(self._task, completed=self._left.done, description=names, done=self._done, left=left)
        if not self._bar.console.is_terminal and time.monotonic() - self._said > _SAY_SECONDS:
            self._said = time.monotonic()
            self._bar.console.print(f"{self._done}/{self._of}, {left}: {names}", markup=False, highlight=False)


class Remaining:
    """How long what is left will take: by what was done so far, and before that by what timings are known to take."""

    def __init__(self, missing: Sequence[Record]) -> None:
        self.cost, self.done = sum(record.cost for record in missing), 0.0
        self._in_seconds = bool(missing) and all(isinstance(record, Timing) for record in missing)
        self._began = time.monotonic()

    def take(self, done: Sequence[Record]) -> None:
        """These are done now."""
        self.done += sum(record.cost for record in done)

    def seconds(self) -> float:
        """Not a number where nothing is known."""
        gone = time.monotonic() - self._began
        if self._in_seconds:  # at first the estimate counts as much as a minute of measurements
            return max(0.0, self.cost - self.done) * (gone + _TRUST_SECONDS) / (self.done + _TRUST_SECONDS)
        return max(0.0, self.cost - self.done) * gone / self.done if self.done else math.nan

    def told(self) -> str:
        """In words; nothing where nothing is known."""
        seconds = self.seconds()
        if math.isnan(seconds):
            return ""
        return f"about {seconds:.0f} s left" if seconds < 100 else f"about {seconds / 60:.0f} min left"


def arrays_path(path: str | Path, key: str) -> Path:
    """The file of a record's pictures, beside its rows."""
    path = Path(path)
    return path.with_name(f"{path.stem}_{key}.npz")


def without_pictures(path: Path, records: Sequence[Record]) -> list[str]:
    """Records that should have pictures and have none."""
    pictured = [record.key for record in records if not isinstance(record, Timing) and record.pictured is not None]
    return [key for key in pictured if not arrays_path(path, key).exists()]


def _save_arrays(path: Path, key: str, arrays: Mapping[str, NDArray[Any]]) -> None:
    np.savez_compressed(arrays_path(path, key), **arrays)  # type: ignore[arg-type]
