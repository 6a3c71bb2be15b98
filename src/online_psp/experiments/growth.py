"""The paper's claims about times, checked against figure 1 with the published updates in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from online_psp.experiments.rows import Row, median, select
from online_psp.experiments.tables import number
from online_psp.experiments.timing import WAYS
from online_psp.experiments.verdict import FAILS, HOLDS, OPEN, PARTLY, Verdict, share

_PUBLISHED = WAYS[0]
_MUCH = 5.0
_LINEAR = (0.75, 1.25)
_TURNING = 1.5
_NOT_RUN = "figure 1 was not run with enough sizes"

Claim = Callable[[Sequence[Row]], Verdict]


def seconds(rows: Sequence[Row], way: str = _PUBLISHED) -> dict[tuple[int, int], dict[str, float]]:
    """Median seconds per sample of one way of running, by (D, K) and algorithm."""
    runs: dict[tuple[int, int], dict[str, list[float]]] = {}
    for row in select(rows, figure="fig1", metric="seconds_per_sample"):
        if row.label.endswith(f", {way}"):
            runs.setdefault((row.D, row.K), {}).setdefault(row.algorithm, []).append(row.value)
    return {where: {name: median(values) for name, values in found.items()} for where, found in runs.items()}


def slopes(rows: Sequence[Row], algorithm: str, way: str) -> dict[int, tuple[float, float]]:
    """The exponent of K over all sizes and over the last doubling, by D."""
    found = {}
    times = {where: by_name[algorithm] for where, by_name in seconds(rows, way).items() if algorithm in by_name}
    for D in sorted({D for D, _ in times}):
        several = sorted(K for size, K in times if size == D)
        if len(several) >= 3:
            K, logs = np.log2(several), np.log2([times[D, size] for size in several])
            found[D] = (float(np.polyfit(K, logs, 1)[0]), float((logs[-1] - logs[-2]) / (K[-1] - K[-2])))
    return found


def _growth(rows: Sequence[Row], algorithm: str) -> str:
    parts = []
    for way in WAYS:
        found = slopes(rows, algorithm, way)
        parts += [f"{way} D={D}: K^{whole:.2f}, last doubling K^{last:.2f}" for D, (whole, last) in found.items()]
    return f"{algorithm.upper()} ({'; '.join(parts)})"


_WHOLE = (
    "The rule once looked at the last doubling of K only, chosen after first timings had been seen; now it is the exponent over all sizes."
)


def _linear(algorithm: str) -> Claim:
    def claim(rows: Sequence[Row]) -> Verdict:
        statement = f"the time of {algorithm.upper()} grows like K"
        low, high = _LINEAR
        rule = f"over all sizes of K, as published, the exponent is between {low:g} and {high:g} for every D"
        found = slopes(rows, algorithm, _PUBLISHED)
        if not found:
            return Verdict(statement, OPEN, _NOT_RUN, rule, _WHOLE)
        hits = sum(low <= whole <= high for whole, _ in found.values())
        return Verdict(statement, share(hits, len(found)), _growth(rows, algorithm), rule, _WHOLE)

    return claim


def turning(rows: Sequence[Row]) -> Verdict:
    """The cost of SM and IPCA."""
    statement = "the times of SM and IPCA turn towards K² and beyond"
    rule = f"over the last doubling of K, as published, the exponent is at least {_TURNING:g} for SM and for IPCA, for every D"
    found = {name: slopes(rows, name, _PUBLISHED) for name in ("sm", "ipca")}
    lasts = [last for by_size in found.values() for _, last in by_size.values()]
    if not all(found.values()):
        return Verdict(statement, OPEN, _NOT_RUN, rule)
    hits = sum(last >= _TURNING for last in lasts)
    largest = max(row.K for row in select(rows, figure="fig1"))
    evidence = f"{_growth(rows, 'sm')}; {_growth(rows, 'ipca')}; largest K {largest}"
    return Verdict(statement, HOLDS if hits == len(lasts) else PARTLY if hits else FAILS, evidence, rule)


def fsm_best_time(rows: Sequence[Row]) -> Verdict:
    """Who is fastest."""
    statement = "FSM has the best time at most sizes"
    rule = "the lowest median time of the four, as published, at more than half of the (D, K)"
    cells = {where: found for where, found in seconds(rows).items() if len(found) == 4}
    if not cells:
        return Verdict(statement, OPEN, "figure 1 was not run with all four", rule)
    winners = {where: min(found, key=found.__getitem__) for where, found in cells.items()}
    hits = sum(name == "fsm" for name in winners.values())
    others = [f"D={D} K={K}: {name.upper()}" for (D, K), name in winners.items() if name != "fsm"]
    evidence = f"best at {hits} of {len(cells)}" + (f"; elsewhere {', '.join(others)}" if others else "")
    return Verdict(statement, HOLDS if 2 * hits > len(cells) else FAILS, evidence, rule)


def fsm_much_faster(rows: Sequence[Row]) -> Verdict:
    """FSM against IPCA where K is large."""
    statement = "FSM is much faster than IPCA at large K"
    rule = f"at the largest K of every D, as published, IPCA takes at least {_MUCH:g} times as long"
    cells = {where: found for where, found in seconds(rows).items() if "fsm" in found and "ipca" in found}
    largest = {D: max(K for size, K in cells if size == D) for D, _ in cells}
    if not largest:
        return Verdict(statement, OPEN, "figure 1 was not run with both", rule)
    ratios = {(D, K): cells[D, K]["ipca"] / cells[D, K]["fsm"] for D, K in largest.items()}
    hits = sum(ratio >= _MUCH for ratio in ratios.values())
    evidence = ", ".join(f"D={D} K={K}: {number(ratio)}×" for (D, K), ratio in ratios.items())
    return Verdict(statement, share(hits, len(ratios)), evidence, rule)


def growth_claims() -> Mapping[str, Claim]:
    """The claims on times, by name."""
    return {
        "FSM best time": fsm_best_time,
        "FSM much faster than IPCA": fsm_much_faster,
        "FSM linear": _linear("fsm"),
        "CCIPCA linear": _linear("ccipca"),
        "SM and IPCA quadratic": turning,
    }
