"""Tables of options in place of their products: every pair of values that goes together is in some row."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Row = dict[str, Any]


def pairs(factors: Mapping[str, Sequence[Any]], allowed: Callable[[Row], bool] = lambda row: True, seed: int = 0) -> list[Row]:
    """Rows with a value of each factor, all of them allowed, in which every pair of values of two factors occurs if any row may have it.

    Greedy and seeded: each row begins with a pair that has not occurred yet, and is the one of fifty draws that brings most of them.
    """
    chance, names, table = random.Random(seed), list(factors), []
    missing = {
        (one, i, two, j)
        for one, two in itertools.combinations(names, 2)
        for i, j in itertools.product(range(len(factors[one])), range(len(factors[two])))
    }

    def brought(places: dict[str, int]) -> set[tuple[str, int, str, int]]:
        return {(one, places[one], two, places[two]) for one, two in itertools.combinations(names, 2)} & missing

    while missing:
        one, i, two, j = min(missing)
        drawn = [{name: chance.randrange(len(factors[name])) for name in names} | {one: i, two: j} for _ in range(50)]
        found = [places for places in drawn if allowed({name: factors[name][at] for name, at in places.items()})]
        if found:
            best = max(found, key=lambda places: len(brought(places)))
            missing -= brought(best)
            table.append({name: factors[name][at] for name, at in best.items()})
        missing.discard((one, i, two, j))  # no row may have it
    return table


def title(row: Row) -> str:
    """What a test of this row is called."""
    return " ".join(f"{name}={value}" for name, value in row.items() if value not in (None, False))
