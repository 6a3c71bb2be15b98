"""The paper's statements, checked against rows: each with a rule, and the numbers to which the rule was applied.

Err_batch and Err_pop are judged separately. Orderings are judged by a sign test over the trials of each panel, paired by seed. If there are
too few trials to tell, the verdict is "not tested"; if there are enough and they do not decide, "not decided". For every verdict, the tests
have a corruption of the rows that reverses it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy.stats import binomtest

from online_psp.suite.methods import CCIPCA, FIVE, IPCA, ONLINE_PCA, fsm
from online_psp.suite.rows import Row, by, distinct, median, medians, select
from online_psp.suite.speed import METRIC, WAYS
from online_psp.suite.tables import CHECK, Table, chosen_moments, number

HOLDS, PARTLY, FAILS, OPEN = "holds", "holds in part", "does not hold", "not tested"
BY_MORE, BY_LESS, UNDECIDED = "by more", "by less", "not decided"
_BADGES = {HOLDS: "yes", PARTLY: "partly", BY_MORE: "partly", BY_LESS: "partly", FAILS: "no", OPEN: "open", UNDECIDED: "open"}

LEVEL = 0.05
_SAME = 1e-6
_CLOSE, _NEARLY, _BEHIND = 2.0, 1.5, 1.5
_GOOD, _GOOD_DB, _POOR, _POOR_DB = 0.2, 30.0, 0.75, 25.0
_EARLY = 4
_MUCH, _LINEAR, _TURNING = 5.0, (0.75, 1.25), 1.5
_LISTED = 6
_TINY = 1e-300  # so that an error of zero still has a ratio
_FIVE = tuple(method.label for method in FIVE)
_QUICK, _SLOW = fsm(0.6).label, fsm(2.0).label
_NAMES = {"err_batch": "Err_batch", "err_pop": "Err_pop"}

Found: TypeAlias = tuple[str, str]
"""An outcome, and the evidence for it."""


@dataclass(frozen=True)
class Verdict:
    """A statement, and what the rows say about it.

    Attributes
    ----------
    rule : str
        How the outcome follows from the rows.
    widened : str
        What was changed in the rule after rows had been seen, and why; empty if nothing was.
    """

    statement: str
    outcome: str
    evidence: str
    rule: str
    widened: str = ""

    @property
    def badge(self) -> str:
        """Its colour on a page."""
        return _BADGES[self.outcome]


@dataclass(frozen=True)
class Claim:
    """A statement with its rule, to be judged on rows."""

    statement: str
    rule: str
    judge: Callable[[Sequence[Row]], Found]
    widened: str = ""

    def __call__(self, rows: Sequence[Row]) -> Verdict:
        """The verdict on these rows."""
        return Verdict(self.statement, *self.judge(rows), self.rule, self.widened)


class Case(NamedTuple):
    """Where a rule was applied, the number to which, and whether it says so."""

    where: str
    value: float
    hit: bool


def every(cases_of: Callable[[Sequence[Row]], Sequence[Case]]) -> Callable[[Sequence[Row]], Found]:
    """A judge: all cases, it holds; more than half, in part; none at hand, not tested."""

    def judge(rows: Sequence[Row]) -> Found:
        cases = cases_of(rows)
        if not cases:
            return OPEN, "not run, or not with enough sizes or curves"
        hits, values = sum(case.hit for case in cases), [case.value for case in cases]
        told = f"so in {hits} of {len(cases)}: " + "; ".join(f"{case.where}: {number(case.value)}" for case in cases[:_LISTED])
        if len(cases) > _LISTED:
            told = f"so in {hits} of {len(cases)}: from {number(min(values))} to {number(max(values))}, median {number(median(values))}"
        return HOLDS if hits == len(cases) else PARTLY if 2 * hits > len(cases) else FAILS, told

    return judge


# Figure 1: times, of the published updates in place


def seconds(rows: Sequence[Row]) -> dict[tuple[Any, ...], dict[str, float]]:
    """Median seconds per sample as published, by (D, K) and algorithm."""
    return medians(select(rows, study="fig1", metric=METRIC, kind=WAYS[0]), "D", "K", which="algorithm")


def slopes(rows: Sequence[Row], algorithm: str) -> dict[int, tuple[float, float]]:
    """The exponent of K over all sizes and over the last doubling, by D."""
    times, found = {where: named[algorithm] for where, named in seconds(rows).items() if algorithm in named}, {}
    for D in sorted({D for D, _ in times}):
        several = sorted(K for size, K in times if size == D)
        if len(several) >= 3:
            K, logs = np.log2(several), np.log2([times[D, size] for size in several])
            found[D] = (float(np.polyfit(K, logs, 1)[0]), float((logs[-1] - logs[-2]) / (K[-1] - K[-2])))
    return found


def _linear(algorithm: str, rows: Sequence[Row]) -> list[Case]:
    return [Case(f"D={D}, K to the", whole, _LINEAR[0] <= whole <= _LINEAR[1]) for D, (whole, _) in slopes(rows, algorithm).items()]


def _turning(rows: Sequence[Row]) -> list[Case]:
    found = {name: slopes(rows, name) for name in ("sm", "ipca")}
    cases = [Case(f"{name.upper()} D={D}, K to the", last, last >= _TURNING) for name in found for D, (_, last) in found[name].items()]
    return cases if all(found.values()) else []


def _fsm_fastest(rows: Sequence[Row]) -> list[Case]:
    winners = [min(found, key=found.__getitem__) for found in seconds(rows).values() if len(found) == 4]
    share = winners.count("fsm") / max(1, len(winners))
    return [Case(f"share of {len(winners)} sizes", share, share > 0.5)] if winners else []


def _fsm_much_faster(rows: Sequence[Row]) -> list[Case]:
    ratios = {where: found["ipca"] / found["fsm"] for where, found in seconds(rows).items() if {"fsm", "ipca"} <= set(found)}
    largest = {(D, K): ratio for (D, K), ratio in ratios.items() if K == max(K for size, K in ratios if size == D)}
    return [Case(f"D={D} K={K}, times as long", ratio, ratio >= _MUCH) for (D, K), ratio in largest.items()]


_WHOLE = (
    "The rule once looked at the last doubling of K only, chosen after first timings had been seen; now it is the exponent over all sizes."
)
_LINEAR_RULE = f"over all sizes of K, as published, the exponent is between {_LINEAR[0]:g} and {_LINEAR[1]:g} for every D"
_TIMES = {
    "FSM best time": Claim(
        "FSM has the best time at most sizes",
        "the lowest median time of the four, as published, at more than half of the (D, K)",
        every(_fsm_fastest),
    ),
    "FSM much faster than IPCA": Claim(
        "FSM is much faster than IPCA at large K",
        f"at the largest K of every D, as published, IPCA takes at least {_MUCH:g} times as long",
        every(_fsm_much_faster),
    ),
    "FSM linear": Claim("the time of FSM grows like K", _LINEAR_RULE, every(partial(_linear, "fsm")), _WHOLE),
    "CCIPCA linear": Claim("the time of CCIPCA grows like K", _LINEAR_RULE, every(partial(_linear, "ccipca")), _WHOLE),
    "SM and IPCA quadratic": Claim(
        "the times of SM and IPCA turn towards K² and beyond",
        f"over the last doubling of K, as published, the exponent is at least {_TURNING:g} for SM and for IPCA, for every D",
        every(_turning),
    ),
}


# Figures 2 and 3: the same iterates


def _same(rows: Sequence[Row]) -> list[Case]:
    place = ("study", "data", "D", "K", "rho", "seed", "t", "metric")
    found = {(row.label, *(getattr(row, name) for name in place)): row.value for row in rows if row.metric.startswith("err_")}
    pairs = {(label, *where): ("F" + label, *where) for label, *where in found if label.startswith(CHECK)}
    gaps = [abs(found[one] - found[other]) for one, other in pairs.items() if other in found]
    return [Case(f"largest difference of {len(gaps)}", max(gaps), max(gaps) < _SAME)] if gaps else []


_SAME_ITERATES = Claim("FSM equals SM", f"errors of FSM and SM on equal samples differ by less than {_SAME:g}", every(_same))


# Figure 2: spiked data


def _cells(rows: Sequence[Row], metric: str, labels: Sequence[str]) -> dict[str, list[float]]:
    """The median errors of these curves, nowhere zero, by (D, K, ρ) where all were run."""
    found = medians(select(rows, study="fig2", metric=metric), "D", "K", "rho")
    return {
        f"D={D} K={K} ρ={rho:.2g}": [max(errors[label], _TINY) for label in labels]
        for (D, K, rho), errors in found.items()
        if set(labels) <= set(errors)
    }


def _near(one: str, other: str, metric: str, rows: Sequence[Row]) -> list[Case]:
    ratios = {where: first / second for where, (first, second) in _cells(rows, metric, (one, other)).items()}
    return [Case(where, ratio, 1 / _CLOSE <= ratio <= _CLOSE) for where, ratio in ratios.items()]


def _magnitude(metric: str, rows: Sequence[Row]) -> Found:
    """How many times smaller the errors of the accurate pair are at low noise."""
    low = [row for row in rows if row.rho < 1e-3]
    logs = [
        float(np.log(errors) @ [0.5, 0.5, -0.5, -0.5]) for errors in _cells(low, metric, (CCIPCA.label, _QUICK, IPCA.label, _SLOW)).values()
    ]
    if not logs:
        return OPEN, "figure 2 was not run at low noise"
    ratio, least, most = (math.exp(value) for value in (float(np.mean(logs)), min(logs), max(logs)))
    outcome = HOLDS if 5 <= ratio <= 20 else BY_MORE if ratio > 20 else BY_LESS if ratio > 1 else FAILS
    return outcome, f"{number(ratio)}× ({number(least)} to {number(most)})"


def _population_equal(rows: Sequence[Row]) -> list[Case]:
    ratios = {where: max(errors) / min(errors) for where, errors in _cells(rows, "err_pop", _FIVE).items()}
    return [Case(where, ratio, ratio <= _NEARLY) for where, ratio in ratios.items()]


_APART = (
    "Err_batch and Err_pop were pooled once, which made the claim hold in part where Err_batch alone says otherwise; they are apart now."
)


def _nearness(one: str, other: str, metric: str, widened: str = "") -> Claim:
    statement = f"on spiked data {one} is close to {other}, by {_NAMES[metric]}"
    rule = f"medians of {_NAMES[metric]} within a factor of {_CLOSE:g} in every (D, K, ρ)"
    return Claim(statement, rule, every(partial(_near, one, other, metric)), widened)


def _order_of_magnitude(metric: str) -> Claim:
    better, worse = f"IPCA and {_SLOW}", f"CCIPCA and {_QUICK}"
    return Claim(
        f"on spiked data {better} are better than {worse} by about an order of magnitude at low noise, by {_NAMES[metric]}",
        f"geometric mean of the ratios of {_NAMES[metric]} at ρ < 1e-3 between 5 and 20; above it is “{BY_MORE}”, between 1 and 5 "
        f"“{BY_LESS}”, and it does not hold where they are not better",
        partial(_magnitude, metric),
    )


_NOISE = {
    "same iterates": _SAME_ITERATES,
    "gamma 2 near IPCA, Err_batch": _nearness(_SLOW, IPCA.label, "err_batch", _APART),
    "gamma 2 near IPCA, Err_pop": _nearness(_SLOW, IPCA.label, "err_pop", _APART),
    "gamma 0.6 near CCIPCA, Err_batch": _nearness(_QUICK, CCIPCA.label, "err_batch"),
    "gamma 0.6 near CCIPCA, Err_pop": _nearness(_QUICK, CCIPCA.label, "err_pop"),
    "order of magnitude, Err_batch": _order_of_magnitude("err_batch"),
    "order of magnitude, Err_pop": _order_of_magnitude("err_pop"),
    "Err_pop nearly equal": Claim(
        "on spiked data Err_pop of all five is nearly equal",
        f"the largest median Err_pop of the five is at most {_NEARLY:g} times the smallest, in every (D, K, ρ)",
        every(_population_equal),
    ),
}


# Figure 3: real data. A panel is a data set and a K; trials are paired by their seed.

Trials: TypeAlias = dict[str, dict[int, float]]


class SignTest(NamedTuple):
    """Sign test of paired trials of two curves; equal ones do not count.

    Attributes
    ----------
    trials, below, above : int
        Number of trials, and of those in which the first is lower than the second, or higher.
    p : float
        One-sided, small if the first is below.
    decided : int
        1 if the first is below, −1 if it is above, 0 if the trials do not decide.
    """

    trials: int
    below: int
    above: int
    p: float
    decided: int


def sign_test(one: Mapping[int, float], other: Mapping[int, float]) -> SignTest:
    """Test whether `one` is below `other`, over the trials (by seed) that both have."""
    pairs = [(one[seed], other[seed]) for seed in one if seed in other]
    below, above = sum(a < b for a, b in pairs), sum(a > b for a, b in pairs)
    p, q = (float(binomtest(hits, max(below + above, 1), alternative="greater").pvalue) for hits in (below, above))
    return SignTest(len(pairs), below, above, p, 1 if p < LEVEL else -1 if q < LEVEL else 0)


def _panels(rows: Sequence[Row], late: bool = True) -> dict[tuple[str, int], Trials]:
    """The error of each trial after the last sample, or at the moment nearest to 4K samples, by panel and curve."""
    found: dict[tuple[str, int], Trials] = {}
    for (name, K), panel in by(select(rows, study="fig3", metric="err_batch"), "data", "K").items():
        times = {row.t for row in panel}
        t = max(times) if late else min(times, key=lambda seen: abs(math.log(seen / (_EARLY * K))))
        trials: Trials = {}
        for row in select(panel, t=t):
            trials.setdefault(row.label, {})[row.seed] = row.value
        if all(label in trials for label in _FIVE):
            found[name, K] = trials
    return found


def _extreme(trials: Trials, labels: Sequence[str], of: Callable[[Sequence[float]], float]) -> dict[int, float]:
    """The smallest, or largest, error of several curves, by seed."""
    seeds = set.intersection(*(set(trials[label]) for label in labels))
    return {seed: of([trials[label][seed] for label in labels]) for seed in seeds}


def _ordered(lower: Sequence[str], upper: Sequence[str], rows: Sequence[Row], late: bool = True) -> Found:
    """Whether all of some curves are below all of others: decided for in all panels, in most, in no more than against, or in none."""
    panels = {where: trials for where, trials in _panels(rows, late).items() if all(label in trials for label in (*lower, *upper))}
    if not panels:
        return OPEN, "figure 3 was not run with them"
    tests = {where: sign_test(_extreme(trials, lower, max), _extreme(trials, upper, min)) for where, trials in panels.items()}
    decided = [test.decided for test in tests.values()]
    hits, against = decided.count(1), decided.count(-1)
    listed = "; ".join(f"{name.upper()} K={K} {test.below}:{test.above}, p = {test.p:.2g}" for (name, K), test in tests.items())
    evidence = f"decided for in {hits}, against in {against}, undecided in {decided.count(0)} of {len(tests)} panels ({listed})"
    most = max(test.trials for test in tests.values())
    if 0.5**most >= LEVEL:
        return OPEN, f"{evidence}; {most} trials cannot decide: p is at least {0.5**most:.2g}"
    if not hits and not against:
        return UNDECIDED, evidence
    return HOLDS if hits == len(tests) else PARTLY if hits > against and 2 * hits > len(tests) else FAILS, evidence


def _ccipca_close(rows: Sequence[Row]) -> Found:
    outcome, evidence = _ordered([_QUICK], [CCIPCA.label], rows)
    ratios = [median(trials[CCIPCA.label].values()) / max(median(trials[_QUICK].values()), _TINY) for trials in _panels(rows).values()]
    if not ratios:
        return outcome, evidence
    close = sum(1 / _BEHIND <= ratio <= _BEHIND for ratio in ratios)
    if outcome != OPEN and close < len(ratios):
        outcome = (PARTLY if outcome == HOLDS else outcome) if 2 * close > len(ratios) else FAILS
    span = f"CCIPCA/{_QUICK} from {min(ratios):.2f} to {max(ratios):.2f}, close in {close} of {len(ratios)}"
    return outcome, f"{span}; behind: {evidence}"


_SIGN_RULE = f"in every panel of figure 3, by a one-sided sign test over the trials, paired by seed, p < {LEVEL:g}"
_SOFTENED = (
    "The rule once said “does not hold” where a single panel was not close, also of trials too few for a test; changed after rows of two "
    "trials had shown that, and softer since: one panel that is not close no longer decides alone."
)


def _ordering(statement: str, lower: Sequence[str], upper: Sequence[str], late: bool = True) -> Claim:
    moment = "after the last sample" if late else f"at the moment nearest to {_EARLY}K samples"
    rule = f"Err_batch of {' and '.join(lower)} is below that of {', '.join(upper)}, all of them, {moment}, {_SIGN_RULE}"
    return Claim(f"on real data {statement}", rule, partial(_ordered, lower, upper, late=late))


def _but(*labels: str) -> list[str]:
    return [label for label in _FIVE if label not in labels]


_REAL = {
    "same iterates": _SAME_ITERATES,
    "FSM ends best": _ordering(f"{_QUICK} ends best", [_QUICK], _but(_QUICK)),
    "CCIPCA close behind": Claim(
        f"on real data CCIPCA is close behind {_QUICK}",
        f"final Err_batch above it {_SIGN_RULE}; and within a factor of {_BEHIND:g} of it by the medians: where that is so in most panels "
        "only, it holds in part at most, and in half of them or fewer it does not hold",
        _ccipca_close,
        _SOFTENED,
    ),
    "IPCA and gamma 2 worst": _ordering(f"IPCA and {_SLOW} end worst", _but(IPCA.label, _SLOW), [IPCA.label, _SLOW]),
    "forgetters lag early": _ordering(f"{_QUICK} and CCIPCA lag early", [IPCA.label, _SLOW], [_QUICK, CCIPCA.label], late=False),
    "forgetters win late": _ordering(f"{_QUICK} and CCIPCA win late", [_QUICK, CCIPCA.label], [IPCA.label, _SLOW]),
}

ONLINE_PCA_BEST = Claim(
    "OnlinePCA ends below every curve of the paper",
    f"its final Err_batch is below the least of the five {_SIGN_RULE}",
    partial(_ordered, [ONLINE_PCA.label], _FIVE),
)


# Figure 4: what errors look like


def _looks_like_batch(rows: Sequence[Row]) -> list[Case]:
    cases = []
    for (name,), mine in by(select(rows, study="fig4"), "data").items():
        errors = select(mine, metric="err_batch")
        reached = next((row for row in chosen_moments(errors) if row.value <= _GOOD), None)
        if reached is None:
            cases.append(Case(f"{name.upper()}, never below {min(row.value for row in errors):.2f}", math.nan, False))
        else:
            (psnr,) = (row.value for row in select(mine, metric="psnr", t=reached.t))
            cases.append(Case(f"{name.upper()}, dB at {reached.value:.2f}", psnr, psnr >= _GOOD_DB))
    return cases


def _looks_poor(rows: Sequence[Row]) -> list[Case]:
    cases = []
    for (name,), mine in by(select(rows, study="fig4"), "data").items():
        poor = {row.t for row in select(mine, metric="err_batch") if row.value >= _POOR}
        found = [row.value for row in select(mine, metric="psnr") if row.t in poor]
        if found:
            cases.append(Case(f"{name.upper()}, most dB of {len(found)} moments", max(found), max(found) < _POOR_DB))
    return cases


_LOOKS = {
    "0.2 looks like batch": Claim(
        f"an error of about {_GOOD:g} already looks like batch PCA",
        f"where Err_batch first comes to {_GOOD:g} or below, reconstructions have a PSNR of at least {_GOOD_DB:g} dB against batch PCA's, "
        "on every data set; one that never comes there counts against",
        every(_looks_like_batch),
    ),
    "0.75 looks poor": Claim(
        f"an error of {_POOR:g} or more looks poor",
        f"wherever Err_batch is {_POOR:g} or more, reconstructions have a PSNR below {_POOR_DB:g} dB against batch PCA's, on every data "
        "set that has such a moment",
        every(_looks_poor),
    ),
}

FIGURE_CLAIMS: Mapping[str, Mapping[str, Claim]] = MappingProxyType({"fig1": _TIMES, "fig2": _NOISE, "fig3": _REAL, "fig4": _LOOKS})
"""What the paper says of each of its figures."""
CLAIMS: Mapping[str, Claim] = MappingProxyType({name: claim for claims in FIGURE_CLAIMS.values() for name, claim in claims.items()})
"""All of it, each once."""


def judge(rows: Sequence[Row], claims: Mapping[str, Claim] = CLAIMS) -> list[Verdict]:
    """A verdict on every statement of the paper, and on what goes beyond it, if that was run."""
    several = [*claims.values(), *([ONLINE_PCA_BEST] if ONLINE_PCA.label in distinct(rows, "label") else [])]
    return [claim(rows) for claim in several]


def to_table(verdicts: Sequence[Verdict]) -> Table:
    """Verdicts as a table."""
    lines = tuple((verdict.statement, verdict.outcome, verdict.evidence, verdict.rule, verdict.widened) for verdict in verdicts)
    return Table("Verdicts", ("statement", "verdict", "evidence", "rule", "what was widened or narrowed, and why"), lines)
