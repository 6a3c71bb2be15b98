"""Time as a ratio to a baseline in the same process: single-threaded, after warm-up, the median of repeats."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any


def seconds(function: Callable[[], Any], repeats: int = 5, at_least: float = 0.02) -> float:
    """Median time of a call; each repeat makes as many calls as fill `at_least` seconds. What takes a second is timed once."""
    function()
    start = time.perf_counter()
    function()
    once = time.perf_counter() - start
    if once > 1.0:
        return once
    calls = max(1, round(at_least / max(once, 1e-9)))
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(calls):
            function()
        times.append((time.perf_counter() - start) / calls)
    return statistics.median(times)
