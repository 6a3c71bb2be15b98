"""What the live page costs the process that learns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from online_psp.monitoring import Monitor
from online_psp.pca import OnlinePCA
from online_psp.suite.measure import Stopwatch
from online_psp.suite.rows import median
from online_psp.suite.tables import Table


def tables(out: Path, quick: bool = False) -> Iterator[Table]:
    """Processor time of learning with a page beside that without, in turn."""
    from online_psp.watch import Dashboard

    lines = []
    for D, K in ((10, 4), (784, 16)) if quick else ((10, 4), (784, 16), (8192, 64)):
        rng = np.random.default_rng(0)
        X = rng.standard_normal((2048, K)) @ (3.0 * rng.standard_normal((K, D))) + rng.standard_normal((2048, D))
        shares, micros = [], []
        for _ in range(3 if quick else 9):
            alone, watched = Monitor(OnlinePCA(K)), Monitor(OnlinePCA(K))
            without = _learn(alone, X, None)
            with Dashboard(watched, title="benchmark", port=0, follow=False) as page:
                with_page = _learn(watched, X, page)
            micros.append(1e6 * without)
            shares.append(with_page / without - 1.0)
        lines.append((f"{D:,}", str(K), f"{median(micros):.1f}", f"{100 * median(shares):+.1f} %"))
    title = "The live page: processor time of the process that learns, blocks of 256 rows, no browser"
    yield Table(title, ("D", "K", "learning alone, µs a row", "with a page"), tuple(lines))


def _learn(monitor: Monitor, X: Any, page: Any) -> float:
    """Seconds a row."""
    watch = Stopwatch()
    with watch:
        for block in X.reshape(8, 256, -1):
            found = monitor.update(block)
            if page is not None:
                page.update(block, found)
    return watch.seconds / len(X)
