"""What the live page costs the process that learns."""

from __future__ import annotations

import time
from collections.abc import Iterator
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

    lines = []
    for D, K in ((10, 4), (784, 16)) if quick else ((10, 4), (784, 16), (8192, 64)):
        rng = np.random.default_rng(0)
        X = rng.standard_normal((2048, K)) @ (3.0 * rng.standard_normal((K, D))) + rng.standard_normal((2048, D))
        for name, make, size in (
            ("partial_fit, 256 rows", OnlinePCA, 256),
            ("fit_next", OnlinePCA, 1),
            ("Monitor.update, 256 rows", lambda K: Monitor(OnlinePCA(K)), 256),
            ("Monitor.update_one", lambda K: Monitor(OnlinePCA(K)), 1),
        ):
            alone, watched = make(K), make(K)
            for each in (alone, watched):
                _learn(each, X[:512], 256, 0.0)
            micros, more, threads = [], [], []
            for _ in range(3 if quick else 5):
                without, _ = _learn(alone, X, size, 1.0 if quick else 2.0)
                with Dashboard(watched, port=0):
                    with_page, share = _learn(watched, X, size, 2.0 if quick else 8.0)
                micros.append(1e6 * without)
                more.append(100.0 * (with_page / without - 1.0))
                threads.append(100.0 * share)
            lines.append((f"{name}, D={D:,}, K={K}", f"{median(micros):.1f}", f"{median(more):+.1f} %", f"{median(threads):.2f} %"))
    title = "The live page: what it costs the process that learns"
    yield Table(title, ("", "learning alone, µs a row", "the learner's thread with a page", "the page's threads, of a core"), tuple(lines))


def _learn(learner: Any, X: Floats, size: int, seconds: float) -> tuple[float, float]:
    """Learn for some seconds: processor time of this thread a row, and of all others a second."""
    clock, process, own, rows = time.perf_counter(), time.process_time(), time.thread_time(), 0
    one, many = ("update_one", "update") if isinstance(learner, Monitor) else ("fit_next", "partial_fit")
    while rows == 0 or time.perf_counter() - clock < seconds:
        for block in X.reshape(-1, 256, X.shape[1]):
            if size == 1:
                for row in block:
                    getattr(learner, one)(row)
            else:
                getattr(learner, many)(block)
        rows += len(X)
    spent = time.thread_time() - own
    return spent / rows, (time.process_time() - process - spent) / (time.perf_counter() - clock)
