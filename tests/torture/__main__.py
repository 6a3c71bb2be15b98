"""``python -m tests.torture --minutes 60``."""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy: children are forked

import argparse
import contextlib
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

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


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description="Attack runs and files at random.")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=None, help="to do again what was done; random by default")
    parser.add_argument("--only", choices=list(ATTACKS), action="append", help="one kind of attack; may be given several times")
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(10**6) if given.seed is None else given.seed
    print(f"seed {seed}, {given.minutes:g} minutes", flush=True)
    end, chance, names = time.monotonic() + 60.0 * given.minutes, random.Random(seed), given.only or list(ATTACKS)
    with tempfile.TemporaryDirectory() as start:
        warm(Path(start))
    tallies, spent = {name: Tally() for name in names}, dict.fromkeys(names, 0.0)
    with contextlib.suppress(KeyboardInterrupt):  # ends it early, with what was found so far
        while time.monotonic() < end:
            name = min(names, key=lambda each: spent[each] / SHARES.get(each, 1.0))
            began = time.monotonic()
            with tempfile.TemporaryDirectory(prefix="torture-", ignore_cleanup_errors=True) as folder:
                try:
                    found = ATTACKS[name][1](Path(folder), random.Random(chance.randrange(10**9)))
                except Exception:
                    found = Tally(1, lost=[f"{name}: {traceback.format_exc(limit=-2)}"])
            for words in found.lost:
                print(f"LOST  {' '.join(words.split())}", flush=True)
            tallies[name].add(found)
            spent[name] += time.monotonic() - began
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
