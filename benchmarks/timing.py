"""Time as a ratio to a baseline in the same process: single-threaded, after warm-up, the median or the best of repeats.

Ratios are of processor time, so that what other programs take from this one does not count; what they do to the caches does.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any


def _calls(function: Callable[[], Any], at_least: float) -> int:
    """How many calls fill `at_least` seconds; warms up on the way."""
    function()
    start = time.perf_counter()
    function()
    return max(1, round(at_least / max(time.perf_counter() - start, 1e-9)))


def _once(function: Callable[[], Any], calls: int, clock: Callable[[], float] = time.process_time) -> float:
    start = clock()
    for _ in range(calls):
        function()
    return (clock() - start) / calls


def seconds(function: Callable[[], Any], repeats: int = 5, at_least: float = 0.02) -> float:
    """Median time of a call, by the clock on the wall; each repeat makes as many calls as fill `at_least` seconds. What takes a second is
    timed once.
    """
    calls = _calls(function, at_least)
    once = _once(function, calls, time.perf_counter)
    if once > 1.0:
        return once
    return statistics.median([once, *(_once(function, calls, time.perf_counter) for _ in range(repeats - 1))])


def beside(function: Callable[[], Any], baseline: Callable[[], Any], repeats: int = 9, at_least: float = 0.02) -> tuple[float, float]:
    """Median time of a call, and the median of its ratio to a baseline that is timed in turn with it: what slows both does not show."""
    calls, others = _calls(function, at_least), _calls(baseline, at_least)
    pairs = [(_once(function, calls), _once(baseline, others)) for _ in range(repeats)]
    return statistics.median(own for own, _ in pairs), statistics.median(own / other for own, other in pairs)


def in_turn(*functions: Callable[[], Any], repeats: int = 9, at_least: float = 0.02) -> list[float]:
    """The best time of a call of each, timed in turn: what other programs take from one, they take from all."""
    calls = [_calls(function, at_least) for function in functions]
    rounds = [[_once(function, several) for function, several in zip(functions, calls, strict=True)] for _ in range(repeats)]
    return [min(times) for times in zip(*rounds, strict=True)]
