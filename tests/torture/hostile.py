"""Data files with bytes changed, cut and added: an exit code of 0, 1 or 2, and a sentence where it is not 0."""

from __future__ import annotations

import random
import resource
from pathlib import Path

from tests.torture._common import Tally, complaint, psp, rows, run
from tests.torture.kills import SOURCES

_MEMORY = 6 << 30


def data_files(folder: Path, chance: random.Random, count: int = 40) -> Tally:
    """So many damaged copies of one small file."""
    tally = Tally()
    kind = chance.choice(list(SOURCES))
    sources = SOURCES[kind](folder, rows(60, 5, 0))
    victim = sources[0]
    data = victim.read_bytes()
    for _ in range(count):
        new, seed = bytearray(data), chance.randrange(10**9)
        _spoil(new, random.Random(seed))
        victim.write_bytes(new)
        output = folder / "m.psp"
        output.unlink(missing_ok=True)
        arguments = [
            "fit",
            *sources,
            "-k",
            2,
            "-o",
            output,
            "-q",
            "--set",
            "max_memory=200M",
            "--on-bad-row",
            chance.choice(["stop", "skip"]),
        ]

        def work(arguments: list[object] = arguments) -> int:
            resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
            return psp(*arguments, *(["--set", "features=5"] if kind == "raw" else []))()

        ended = run(work, folder, 60.0)
        problem = complaint(ended)
        tally.tried += 1
        tally.kinds[kind] += 1
        if problem:
            tally.lost.append(f"hostile {kind}, seed {seed}: {problem}")
        elif ended.code:
            tally.refused += 1
        else:
            tally.right += 1
    return tally


def _spoil(data: bytearray, chance: random.Random) -> None:
    kind = chance.randrange(5)
    at = chance.randrange(len(data))
    if kind == 0:
        data[at] ^= 1 << chance.randrange(8)
    elif kind == 1:
        del data[at:]
    elif kind == 2:
        data[at : at + 8] = chance.randbytes(8)
    elif kind == 3:
        data[at:at] = chance.randbytes(chance.randrange(1, 30))
    else:
        for _ in range(chance.randrange(1, 12)):
            data[chance.randrange(len(data))] = chance.randrange(256)
