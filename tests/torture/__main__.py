"""``python -m tests.torture --minutes 60``."""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy: children are forked

import argparse
import contextlib
import pickle
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from online_psp.io.files import replacing
from tests.torture._common import Tally, psp, rows
from tests.torture.hostile import data_files
from tests.torture.kills import SOURCES, kills, pipes
from tests.torture.mutations import model_files
from tests.torture.sharing import full_disks, many_calls, threads, writers

ATTACKS: dict[str, tuple[str, Callable[[Path, random.Random], Tally]]] = {
    "kills": ("SIGKILLs of runs, then resumed", kills),
    "models": ("model files, damaged", model_files),
    "data": ("data files, damaged", data_files),
    "pipes": ("slow pipes, interrupted", pipes),
    "threads": ("models shared by ten threads", threads),
    "calls": ("100,000 calls from eight threads, against one", many_calls),
    "writers": ("runs on an output in use", writers),
    "disks": ("runs on a full disk", full_disks),
}


SHARES = {"kills": 8.0, "models": 16.0, "data": 3.0}  # of the time, where others have one


def warm(folder: Path) -> None:
    """Load libraries and compile kernels here, so that forked processes have them."""
    from online_psp import OnlinePCA

    for kind, maker in SOURCES.items():
        (folder / kind).mkdir()
        sources = maker(folder / kind, rows(200, 8, 0))
        psp("fit", *sources, "-k", 2, "-o", folder / kind / "m.psp", "-q", *(["--set", "features=8"] if kind == "raw" else []))()
    for D in (6, 40, 60):
        model = OnlinePCA(3, oversample=2).partial_fit(rows(300, D, 0))
        model.fit_next(rows(1, D, 0)[0])
        model.transform(rows(3, D, 0))


def attack(names: list[str], seed: int, end: float, counts: dict[str, int], report: Path) -> None:
    """Attack in turn, each kind with its share of the time, until the time is over and the counts are reached; the report grows with it."""
    chance, tallies, spent = random.Random(seed), {name: Tally() for name in names}, dict.fromkeys(names, 0.0)
    while left := [name for name in names if (tallies[name].tried < counts[name] if name in counts else time.monotonic() < end)]:
        name = min(left, key=lambda each: spent[each] / SHARES.get(each, 1.0))
        began = time.monotonic()
        folder = Path(tempfile.mkdtemp(prefix="torture-"))
        try:
            found = ATTACKS[name][1](folder, random.Random(chance.randrange(10**9)))
        except Exception:
            found = Tally(1, lost=[f"{name}: {traceback.format_exc(limit=-2)}"])
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        for words in found.lost:
            print(f"LOST  {' '.join(words.split())}", flush=True)
        tallies[name].add(found)
        spent[name] += time.monotonic() - began
        with replacing(report) as file:
            file.write(pickle.dumps(tallies))


def in_parallel(jobs: int, names: list[str], seed: int, end: float, counts: dict[str, int]) -> dict[str, Tally]:
    """The same in several processes, each with its share of the counts; forked, so that the libraries are loaded once.

    Ctrl-C ends it early, with what was found so far.
    """
    with tempfile.TemporaryDirectory() as name:
        reports, children = [Path(name) / str(job) for job in range(jobs)], []
        for job, report in enumerate(reports):
            child = os.fork()
            if not child:
                code = 1
                try:
                    attack(names, seed + job, end, {kind: -(-count // jobs) for kind, count in counts.items()}, report)
                    code = 0
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(code)
            children.append(child)
        try:
            broken = [child for child in children if os.waitpid(child, 0)[1]]
        except KeyboardInterrupt:
            broken = []
            print("stopped early", flush=True)
            for child in children:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
        tallies = {name: Tally() for name in names}
        for report in reports:
            for kind, tally in (pickle.loads(report.read_bytes()) if report.exists() else {}).items():
                tallies[kind].add(tally)
        tallies[names[0]].lost += [f"job {child} broke off" for child in broken]
    return tallies


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description="Attack runs and files at random.")
    parser.add_argument("--minutes", type=float, default=60.0, help="time for the attacks that have no count of their own")
    parser.add_argument("--kills", type=int, help="kill runs so often, however long that takes")
    parser.add_argument("--mutations", type=int, help="try so many model files, however long that takes")
    parser.add_argument("--jobs", type=int, default=1, help="attack in so many processes at once")
    parser.add_argument("--seed", type=int, default=None, help="to do again what was done; random by default")
    parser.add_argument("--only", choices=list(ATTACKS), action="append", help="one kind of attack; may be given several times")
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(10**6) if given.seed is None else given.seed
    counts = {name: count for name, count in (("kills", given.kills), ("models", given.mutations)) if count is not None}
    print(f"seed {seed}, {given.minutes:g} minutes, {counts or 'no counts'}", flush=True)
    end = time.monotonic() + 60.0 * given.minutes
    with tempfile.TemporaryDirectory() as start:
        warm(Path(start))
    names = given.only or list(ATTACKS)
    tallies = in_parallel(given.jobs, names, seed, end, counts)
    print(table(tallies))
    return 1 if any(tally.lost for tally in tallies.values()) else 0


def table(tallies: dict[str, Tally]) -> str:
    """What was tried and what was lost, as Markdown."""
    lines = ["| attack | tried | right | refused with a sentence | lost |", "|---|---:|---:|---:|---:|"]
    for name, tally in tallies.items():
        lines.append(f"| {ATTACKS[name][0]} | {tally.tried:,} | {tally.right:,} | {tally.refused:,} | {len(tally.lost):,} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
