"""What the live page costs the process that learns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from online_psp.engine.types import Floats
from online_psp.monitoring import Monitor
from online_psp.pca import OnlinePCA
from online_psp.suite.rows import median
from online_psp.suite.tables import Table


def tables(out: Path, quick: bool = False) -> Iterator[Table]:
    """Processor time of the thread that learns, with a page and without in turn, and that of the page's threads."""
    from online_psp.watch import Dashboard

    lines, seconds = [], (1.0, 2.0) if quick else (2.0, 8.0)
    for D, K in ((10, 4), (784, 16)) if quick else ((10, 4), (784, 16), (8192, 64)):
        rng = np.random.default_rng(0)
        X = rng.standard_normal((2048, K)) @ (3.0 * rng.standard_normal((K, D))) + rng.standard_normal((2048, D))
        for name in ("partial_fit", "fit_next", "update", "update_one"):
            alone, watched = (Monitor(OnlinePCA(K)) if name.startswith("update") else OnlinePCA(K) for _ in range(2))
            parts = np.split(X, 8) if name in ("partial_fit", "update") else X
            for each in (alone, watched):
                getattr(each, "update" if isinstance(each, Monitor) else "partial_fit")(X)
            pairs = []
            for _ in range(3 if quick else 5):
                without, _ = _learn(getattr(alone, name), parts, seconds[0])
                with Dashboard(watched, port=0):
                    pairs.append((without, *_learn(getattr(watched, name), parts, seconds[1])))
            micros, more = median(1e6 * one for one, _, _ in pairs), median(100.0 * (two / one - 1.0) for one, two, _ in pairs)
            cells = (f"{micros:.1f}", f"{more:+.1f} %", f"{median(100.0 * share for _, _, share in pairs):.2f} %")
            lines.append((f"{name}{', 256 rows' * (len(parts) == 8)}, D={D:,}, K={K}", *cells))
    title = "The live page: what it costs the process that learns"
    yield Table(title, ("", "learning alone, µs a row", "the learner's thread with a page", "the page's threads, of a core"), tuple(lines))


def _learn(learn: Callable[[Any], Any], parts: list[Floats] | Floats, seconds: float) -> tuple[float, float]:
    """Learn 2,048 rows again and again for some seconds: processor time of this thread a row, and of all others a second."""
    clock, process, own, turns = time.perf_counter(), time.process_time(), time.thread_time(), 0
    while turns == 0 or time.perf_counter() - clock < seconds:
        turns += 1
        for part in parts:
            learn(part)
    spent = time.thread_time() - own
    return spent / (2048 * turns), (time.process_time() - process - spent) / (time.perf_counter() - clock)
