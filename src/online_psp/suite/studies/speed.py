"""The paper's algorithms, as published in place, row by row and in blocks, beside the least that this machine needs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from online_psp.suite import tables as made
from online_psp.suite.baselines import BASELINES
from online_psp.suite.speed import FLOORS, WAYS, Timing
from online_psp.suite.studies import measured
from online_psp.suite.tables import Table

_SIZES = ((784, 16), (1024, 64), (8192, 64), (8192, 256), (32768, 64))


def tables(out: Path, quick: bool = False) -> Iterator[Table]:
    """A table for each D."""
    asked = [*((name, way) for name in BASELINES for way in WAYS), *(("", floor) for floor in FLOORS.values())]
    records = [
        Timing("speed", name, way, D, K, runs=3 if quick else 9, samples=32, budget=1.0 if quick else 3.0)
        for D, K in (_SIZES[:2] if quick else _SIZES)
        for name, way in asked
    ]
    yield from made.timings(measured(records, out / "speed.csv"))
