"""Runs each algorithm in a process of its own, so that its memory can be measured and a crash affects nothing else."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from online_psp.engine.types import Array
from online_psp.experiments.measure import FILLED, Outcome, Workbench, failure, measurement
from online_psp.experiments.records import Experiment
from online_psp.experiments.rows import DONE, Row
from online_psp.experiments.worker import MIB, Job, StoredRows, Task

PEAK, GROWTH = "peak_mib", "growth_mib"
"""The peak resident memory of an algorithm's process, and how much of it came after the first row."""

_SEVERAL = 1.3
"""Processor use above this counts as more than one processor."""

_POLL_SECONDS = 0.05
_LOG_BYTES = 4096
_START_SECONDS = 300.0


@dataclass(frozen=True)
class Isolation:
    """The parameters of isolated runs.

    Attributes
    ----------
    folder : Path
        Folder for rows, bases and events while they are needed.
    timeout : float or None
        Most seconds that a pass over the data may take before the process is ended.
    jobs : int
        Number of processes at a time. With more than one, they disturb each other's times.
    """

    folder: Path
    timeout: float | None = None
    jobs: int = 1

    def __post_init__(self) -> None:
        if self.timeout is not None and not self.timeout > 0:
            raise ValueError(f"The timeout must be more than 0 seconds; got {self.timeout:g}.")


def run_isolated(records: Sequence[Experiment], bench: Workbench, how: Isolation) -> Iterator[tuple[Experiment, Outcome]]:
    """Run records, those of one curve in one process; yields their outcomes as the processes end."""
    _check_room(records, how.folder)
    stored = {record.key: _store(record, bench, how.folder) for record in records}
    by_curve: dict[Any, list[Experiment]] = {}
    for record in records:
        by_curve.setdefault(record.curve, []).append(record)
    running = [_Runs(group, stored, how, how.folder / f"curve{number}") for number, group in enumerate(by_curve.values())]
    with ThreadPoolExecutor(how.jobs) as pool:
        try:
            for done in [pool.submit(runs.run) for runs in running]:
                for told in done.result():
                    yield from ((record, _outcome(record, told, bench)) for record in told.reached)
        finally:
            for runs in running:
                runs.end()


def _check_room(records: Sequence[Experiment], folder: Path) -> None:
    """Raise an error if the rows do not fit on the disk, before anything is written."""
    sizes = {(record.data, record.track, record.seed): 8.0 * record.data.used * record.data.D for record in records}
    needed, free = sum(sizes.values()), shutil.disk_usage(folder).free
    if needed > free:
        raise ValueError(
            f"The rows of {len(sizes)} streams take up to {needed / 1e9:.1f} GB, and {folder.parent} has {free / 1e9:.1f} GB left: run "
            "fewer trials or tracks at a time, or name another folder with the environment variable TMPDIR."
        )


def _store(record: Experiment, bench: Workbench, folder: Path) -> StoredRows:
    """Write the rows of a record to a file, once for all records that share them."""
    data, stream = bench.prepare(record.data, record.K, record.seed), bench.stream(record)
    seed = "" if stream is None and data.truth is None else f"_{record.seed}"
    track = "" if record.track is None else f"_{record.track.kind}_{record.track.amount:g}"
    path = folder / f"rows{seed}{track}.f64"
    X, order = (data.X, data.order) if stream is None else (stream.X, np.arange(len(stream.X)))
    if not path.exists():
        np.ascontiguousarray(X, dtype=np.float64).tofile(path)
    holes = stream is not None and bool(np.isnan(stream.X).any())
    return StoredRows(str(path), X.shape[1], order, holes)


@dataclass(frozen=True)
class _Told:
    """What a process reported before it ended.

    Attributes
    ----------
    events : list of dict
    folder : Path
        Folder of its bases.
    failed : dict
        Why records failed, by their keys.
    reached : list of Experiment
        Records with results, or with a failure; not those after the one that killed the process.
    left : list of Experiment
        Records on tracks other than the one that killed it, which another process can run.
    """

    events: list[dict[str, Any]]
    folder: Path
    failed: dict[str, str]
    reached: list[Experiment]
    left: list[Experiment]


class _Runs:
    """Runs the records of one curve in one process and, if that is killed, the remaining tracks in another."""

    def __init__(self, records: Sequence[Experiment], stored: dict[str, StoredRows], how: Isolation, folder: Path) -> None:
        self._records, self._stored, self._how, self._folder = list(records), stored, how, folder
        self._process: _Process | None = None
        self._ended = False

    def run(self) -> list[_Told]:
        """Run everything; returns the reports of the processes."""
        told, left, folder = list[_Told](), self._records, self._folder
        while left and not self._ended:
            self._process = _Process(left, self._stored, self._how, folder)
            told.append(self._process.run())
            left, folder = told[-1].left, self._folder.with_name(f"{self._folder.name}_{len(told)}")
        return told

    def end(self) -> None:
        """End the running process, and start no other."""
        self._ended = True
        if self._process is not None:
            self._process.end()


class _Process:
    """The process that runs the trials of one curve."""

    def __init__(self, records: Sequence[Experiment], stored: dict[str, StoredRows], how: Isolation, folder: Path) -> None:
        self._records, self._how, self._folder = records, how, folder
        tasks = tuple(Task(record.key, stored[record.key], record.K, record.checkpoints) for record in records)
        self._job = Job(records[0].curve, tasks, str(folder), tuple(sys.path))
        self._child: subprocess.Popen[bytes] | None = None
        self._ended = False

    def run(self) -> _Told:
        """Start the process, wait for it, and read its report."""
        self._folder.mkdir(parents=True)
        job = self._folder / "job.pickle"
        with job.open("wb") as stream:
            pickle.dump(self._job.path, stream)
            pickle.dump(self._job, stream)
        # The working folder comes last, once our own modules are imported, so that a module beside the data cannot replace one of them.
        places = [place for place in sys.path if place and os.path.realpath(place) != os.path.realpath(os.curdir)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places)}
        if self._ended:
            return _Told([], self._folder, {}, [], [])
        with (self._folder / "log.txt").open("wb") as log:
            self._child = subprocess.Popen(
                [sys.executable, "-P", "-m", "online_psp.experiments.worker", str(job)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
            stopped = self._wait(self._child)
            self._sweep(self._child)
        return self._read(self._child.returncode, stopped)

    def end(self) -> None:
        """End the process, and all that it has started, if it is still running."""
        self._ended = True
        child = self._child
        if child is None or child.poll() is not None:
            return
        if hasattr(os, "killpg"):
            os.killpg(child.pid, signal.SIGKILL)
        else:
            child.kill()
        child.wait()

    @staticmethod
    def _sweep(child: subprocess.Popen[bytes]) -> None:
        """End processes that a process has started and left behind."""
        if hasattr(os, "killpg"):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)

    def _wait(self, child: subprocess.Popen[bytes]) -> float:
        """Wait for the end; returns the seconds that ran out, or 0.

        The time limit applies to each warm-up, to each timed pass, and to each stretch of the other pass between two measurements: there a
        slow ``get_components`` is called many times, which is nothing that the algorithm can help.
        """
        events, heard, since = self._folder / "events.jsonl", -1, time.monotonic()
        while child.poll() is None:
            time.sleep(_POLL_SECONDS)
            told = self._events(events)
            if told != heard:
                heard, since = told, time.monotonic()
            allowed = _START_SECONDS if heard == 0 else self._how.timeout
            if allowed is not None and time.monotonic() - since > allowed:
                self.end()
                return allowed
        return 0.0

    @staticmethod
    def _events(events: Path) -> int:
        """Number of events so far; 0 before the process is ready."""
        return len(events.read_text(encoding="utf-8").splitlines()) if events.exists() else 0

    def _read(self, code: int, stopped: float) -> _Told:
        path = self._folder / "events.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        events = [json.loads(line) for line in lines if line.endswith("}")]
        done = {event["key"] for event in events if event["event"] == "done"}
        failed = {event["key"]: str(event["reason"]) for event in events if event["event"] == "failed"}
        left = [record for record in self._records if record.key not in done and record.key not in failed]
        if left:
            alike = sum(record.track == left[0].track for record in left) - 1
            failed[left[0].key] = self._why(code, stopped) + (f"; {alike} further run{'s' * (alike > 1)} of it left out" if alike else "")
        reached = [record for record in self._records if record.key in done or record.key in failed]
        return _Told(events, self._folder, failed, reached, [record for record in left if record.track != left[0].track])

    def _why(self, code: int, stopped: float) -> str:
        if stopped:
            return f"stopped: a pass took more than {stopped:g} s"
        name = signal.Signals(-code).name if code < 0 and -code in {s.value for s in signal.Signals} else f"exit code {code}"
        with (self._folder / "log.txt").open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - _LOG_BYTES))
            log = stream.read().decode("utf-8", errors="replace").strip().splitlines()
        last = f": {log[-1][:200]}" if log else ""
        return f"its process ended with {name}{last}"


def _outcome(record: Experiment, told: _Told, bench: Workbench) -> Outcome:
    """Score the bases of a record, without the process that made them."""
    if record.key in told.failed:
        return failure(record, told.failed[record.key])
    timed = next(event for event in told.events if event["event"] == "timed" and event["key"] == record.key)
    note = "; ".join(filter(None, _remarks(timed)))

    def basis(moment: int | str) -> Array:
        file = told.folder / f"{record.key}_{moment}.npy"
        found: Array = np.load(file)
        file.unlink()
        return found

    try:
        rows: list[Row] = list(bench.score(record, ((t, basis(t)) for t in record.checkpoints), note, lambda: basis("timed")))
    except ValueError as error:
        return failure(record, f"ValueError: {error}")
    end = record.checkpoints[-1]
    if timed["peak"]:
        rows += [measurement(record, end, PEAK, timed["peak"] / MIB, note), measurement(record, end, GROWTH, timed["growth"] / MIB, note)]
    return Outcome([*rows, measurement(record, end, DONE, float(timed["seconds"]), note)], {})


def _remarks(timed: dict[str, Any]) -> list[str]:
    """Notes on a pass: what was done to its rows, and what it used beyond one process on one processor."""
    return [
        FILLED if timed["filled"] else "",
        f"used {timed['processors']:.1f} processors" if timed["processors"] > _SEVERAL else "",
        "its memory includes other processes that it started" if timed["others"] else "",
    ]
