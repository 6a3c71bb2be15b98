"""The paper's statements, checked against rows: each with a rule, and the numbers to which the rule was applied.

Err_batch and Err_pop are judged separately. Orderings are judged by a sign test over the trials of each panel, paired by seed. If there are
too few trials to tell, the verdict is "not tested"; if there are enough and they do not decide, "not decided". For every verdict,
`tests/unit/suite/test_verdicts.py` has a corruption of the rows that reverses it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from online_psp.experiments.figures import CCIPCA, FIVE, IPCA, ONLINE_PCA, fsm
from online_psp.experiments.growth import growth_claims
from online_psp.experiments.rows import Row, distinct, median, select
from online_psp.experiments.statistics import LEVEL, SignTest, sign_test
from online_psp.experiments.tables import CHECK, EXACT, Table, chosen_moments, number
from online_psp.experiments.verdict import BY_LESS, BY_MORE, FAILS, HOLDS, OPEN, PARTLY, UNDECIDED, Verdict, share

__all__ = ["BY_LESS", "BY_MORE", "CLAIMS", "FAILS", "HOLDS", "OPEN", "PARTLY", "UNDECIDED", "Verdict", "judge", "to_table"]

_SAME = 1e-6
_CLOSE = 2.0
_NEARLY = 1.5
_BEHIND = 1.5
_GOOD, _POOR = 0.2, 0.75
_GOOD_DB, _POOR_DB = 30.0, 25.0
_EARLY = 4
_TINY = 1e-300  # so that an error of zero still has a ratio
_FIVE = tuple(curve.label for curve in FIVE)
_QUICK_FORGETTER, _SLOW_FORGETTER = fsm(0.6).label, fsm(2.0).label
_NAMES = {"err_batch": "Err_batch", "err_pop": "Err_pop"}


def same_iterates(rows: Sequence[Row]) -> Verdict:
    """FSM against SM, wherever both were run on the same samples."""
    place = ("figure", "data", "D", "K", "rho", "seed", "t", "metric")
    by_place = {(row.label, *(getattr(row, name) for name in place)): row.value for row in rows if row.metric.startswith("err_")}
    gaps = [
        abs(value - by_place["F" + label, *where])
        for (label, *where), value in by_place.items()
        if label.startswith(CHECK) and ("F" + label, *where) in by_place
    ]
    rule = f"errors of FSM and SM on equal samples differ by less than {_SAME:g}"
    if not gaps:
        return Verdict("FSM equals SM", OPEN, "no rows of SM and FSM on equal samples", rule)
    evidence = f"largest difference {max(gaps):.1e} over {len(gaps)} measurements"
    return Verdict("FSM equals SM", HOLDS if max(gaps) < _SAME else FAILS, evidence, rule)


# Figure 2: spiked data

Cells = dict[tuple[int, int, float], dict[str, float]]


def _noise_cells(rows: Sequence[Row], metric: str) -> Cells:
    """The median error by (D, K, ρ) and curve."""
    cells: dict[tuple[int, int, float], dict[str, list[float]]] = {}
    for row in select(rows, figure="fig2", metric=metric):
        cells.setdefault((row.D, row.K, row.rho), {}).setdefault(row.label, []).append(row.value)
    return {where: {label: max(median(values), _TINY) for label, values in found.items()} for where, found in cells.items()}


def _near(one: str, other: str, metric: str, widened: str = "") -> Callable[[Sequence[Row]], Verdict]:
    def claim(rows: Sequence[Row]) -> Verdict:
        statement = f"on spiked data {one} is close to {other}, by {_NAMES[metric]}"
        rule = f"medians of {_NAMES[metric]} within a factor of {_CLOSE:g} in every (D, K, ρ)"
        ratios = [found[one] / found[other] for found in _noise_cells(rows, metric).values() if one in found and other in found]
        if not ratios:
            return Verdict(statement, OPEN, "figure 2 was not run", rule, widened)
        within = sum(1 / _CLOSE <= ratio <= _CLOSE for ratio in ratios)
        span = f"{number(min(ratios))} to {number(max(ratios))}, median {number(median(ratios))}"
        evidence = f"within it in {within} of {len(ratios)}, {one}/{other} from {span}"
        return Verdict(statement, share(within, len(ratios)), evidence, rule, widened)

    return claim


def _magnitude(metric: str) -> Callable[[Sequence[Row]], Verdict]:
    """How much better the accurate pair is at low noise."""

    def claim(rows: Sequence[Row]) -> Verdict:
        better, worse = f"IPCA and {_SLOW_FORGETTER}", f"CCIPCA and {_QUICK_FORGETTER}"
        name = _NAMES[metric]
        statement = f"on spiked data {better} are better than {worse} by about an order of magnitude at low noise, by {name}"
        rule = (
            f"geometric mean of the ratios of {name} at ρ < 1e-3 between 5 and 20; above it is “{BY_MORE}”, between 1 and 5 “{BY_LESS}”, "
            "and it does not hold where they are not better"
        )
        ratio, each = _advantage(_noise_cells(rows, metric))
        if math.isnan(ratio):
            return Verdict(statement, OPEN, "figure 2 was not run at low noise", rule)
        outcome = HOLDS if 5 <= ratio <= 20 else BY_MORE if ratio > 20 else BY_LESS if ratio > 1 else FAILS
        return Verdict(statement, outcome, f"{number(ratio)}× ({each})", rule)

    return claim


def _advantage(cells: Cells) -> tuple[float, str]:
    """How many times smaller the errors of the accurate pair are at low noise: over all sizes, and for each."""
    four = (CCIPCA.label, _QUICK_FORGETTER, IPCA.label, _SLOW_FORGETTER)
    by_size: dict[tuple[int, int], list[float]] = {}
    for (D, K, rho), found in cells.items():
        if rho < 1e-3 and all(label in found for label in four):
            logs = [math.log(found[label]) for label in four]
            by_size.setdefault((D, K), []).append(0.5 * (logs[0] + logs[1] - logs[2] - logs[3]))
    if not by_size:
        return math.nan, ""
    each = ", ".join(f"D={D} K={K}: {number(math.exp(float(np.mean(values))))}×" for (D, K), values in by_size.items())
    return math.exp(float(np.mean([value for values in by_size.values() for value in values]))), each


def population_errors_equal(rows: Sequence[Row]) -> Verdict:
    """Whether the samples, not the algorithm, are the limit."""
    statement = "on spiked data Err_pop of all five is nearly equal"
    rule = f"the largest median Err_pop of the five is at most {_NEARLY:g} times the smallest, in every (D, K, ρ)"
    cells = {where: found for where, found in _noise_cells(rows, "err_pop").items() if all(label in found for label in _FIVE)}
    ratios = {where: max(found[label] for label in _FIVE) / min(found[label] for label in _FIVE) for where, found in cells.items()}
    if not ratios:
        return Verdict(statement, OPEN, "figure 2 was not run", rule)
    hits = sum(ratio <= _NEARLY for ratio in ratios.values())
    worst = max(ratios, key=ratios.__getitem__)
    evidence = f"so in {hits} of {len(ratios)}; largest ratio {number(ratios[worst])} at D={worst[0]} K={worst[1]} ρ={worst[2]:.2g}"
    return Verdict(statement, share(hits, len(ratios)), evidence, rule)


# Figure 3: real data. A panel is a data set and a K; trials are paired by their seed.

Trials = dict[str, dict[int, float]]


def _panel_trials(rows: Sequence[Row], last: bool = True) -> dict[tuple[str, int], Trials]:
    """The error of each trial after the last sample, or at the moment nearest to 4K samples, by panel and curve."""
    found: dict[tuple[str, int], Trials] = {}
    mine = select(rows, figure="fig3", metric="err_batch")
    for name, K in dict.fromkeys((row.data, row.K) for row in mine):
        panel = select(mine, data=name, K=K)
        times = {row.t for row in panel}
        t = max(times) if last else min(times, key=lambda seen: abs(math.log(seen / (_EARLY * K))))
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


def _panel(where: tuple[str, int]) -> str:
    return f"{where[0].upper()} K={where[1]}"


def _ordered(tests: Mapping[tuple[str, int], SignTest]) -> tuple[str, str]:
    """Outcome and evidence of an ordering over the panels: decided for in all, in most, in no more than against, or in none."""
    hits = [where for where, test in tests.items() if test.decided > 0]
    against = [where for where, test in tests.items() if test.decided < 0]
    unsure = [where for where, test in tests.items() if test.decided == 0]
    listed = "; ".join(f"{_panel(where)} {test.below}:{test.above}, p = {test.p:.2g}" for where, test in tests.items())
    evidence = f"decided for in {len(hits)}, against in {len(against)}, undecided in {len(unsure)} of {len(tests)} panels ({listed})"
    most = max(test.trials for test in tests.values())
    if 0.5**most >= LEVEL:
        return OPEN, f"{evidence}; {most} trials cannot decide: p is at least {0.5**most:.2g}"
    if not hits and not against:
        return UNDECIDED, evidence
    if len(hits) == len(tests):
        return HOLDS, evidence
    return (PARTLY if len(hits) > len(against) and 2 * len(hits) > len(tests) else FAILS), evidence


_SIGN_RULE = f"in every panel of figure 3, by a one-sided sign test over the trials, paired by seed, p < {LEVEL:g}"
_NOT_RUN = "figure 3 was not run"


def forgetful_fsm_ends_best(rows: Sequence[Row]) -> Verdict:
    """Who is first after the last sample."""
    statement = f"on real data {_QUICK_FORGETTER} ends best"
    rule = f"its final Err_batch is below the least of the other four {_SIGN_RULE}"
    others = [label for label in _FIVE if label != _QUICK_FORGETTER]
    tests = {where: sign_test(trials[_QUICK_FORGETTER], _extreme(trials, others, min)) for where, trials in _panel_trials(rows).items()}
    return Verdict(statement, *_ordered(tests), rule) if tests else Verdict(statement, OPEN, _NOT_RUN, rule)


_SOFTENED = (
    "The rule once said “does not hold” where a single panel was not close, also of trials too few for a test; changed after rows of two "
    "trials had shown that, and softer since: one panel that is not close no longer decides alone."
)


def ccipca_close_behind(rows: Sequence[Row]) -> Verdict:
    """Who comes next."""
    statement = f"on real data CCIPCA is close behind {_QUICK_FORGETTER}"
    rule = (
        f"final Err_batch above it {_SIGN_RULE}; and within a factor of {_BEHIND:g} of it by the medians: where that is so in most panels "
        "only, it holds in part at most, and in half of them or fewer it does not hold"
    )
    panels = _panel_trials(rows)
    tests = {where: sign_test(trials[_QUICK_FORGETTER], trials[CCIPCA.label]) for where, trials in panels.items()}
    if not tests:
        return Verdict(statement, OPEN, _NOT_RUN, rule, _SOFTENED)
    ratios = {
        where: median(trials[CCIPCA.label].values()) / max(median(trials[_QUICK_FORGETTER].values()), _TINY)
        for where, trials in panels.items()
    }
    close = sum(1 / _BEHIND <= ratio <= _BEHIND for ratio in ratios.values())
    outcome, evidence = _ordered(tests)
    if outcome != OPEN and close < len(ratios):
        outcome = (PARTLY if outcome == HOLDS else outcome) if 2 * close > len(ratios) else FAILS
    span = f"CCIPCA/{_QUICK_FORGETTER} from {min(ratios.values()):.2f} to {max(ratios.values()):.2f}, close in {close} of {len(ratios)}"
    return Verdict(statement, outcome, f"{span}; behind: {evidence}", rule, _SOFTENED)


def slow_forgetters_worst(rows: Sequence[Row]) -> Verdict:
    """Who is last."""
    statement = f"on real data IPCA and {_SLOW_FORGETTER} end worst"
    rule = f"the greatest final Err_batch of the other three is below the least of these two {_SIGN_RULE}"
    two = [IPCA.label, _SLOW_FORGETTER]
    three = [label for label in _FIVE if label not in two]
    tests = {where: sign_test(_extreme(trials, three, max), _extreme(trials, two, min)) for where, trials in _panel_trials(rows).items()}
    return Verdict(statement, *_ordered(tests), rule) if tests else Verdict(statement, OPEN, _NOT_RUN, rule)


def _forgetters(rows: Sequence[Row], statement: str, late: bool) -> Verdict:
    forgetful, patient = [_QUICK_FORGETTER, CCIPCA.label], [IPCA.label, _SLOW_FORGETTER]
    one, other = (forgetful, patient) if late else (patient, forgetful)
    moment = "after the last sample" if late else f"at the moment nearest to {_EARLY}K samples"
    rule = f"Err_batch of both {' and '.join(one)} is below that of both {' and '.join(other)} {moment}, {_SIGN_RULE}"
    tests = {
        where: sign_test(_extreme(trials, one, max), _extreme(trials, other, min)) for where, trials in _panel_trials(rows, late).items()
    }
    return Verdict(statement, *_ordered(tests), rule) if tests else Verdict(statement, OPEN, _NOT_RUN, rule)


def forgetters_lag_early(rows: Sequence[Row]) -> Verdict:
    """Algorithms that forget quickly have little to go by at first."""
    return _forgetters(rows, f"on real data {_QUICK_FORGETTER} and CCIPCA lag early", late=False)


def forgetters_win_late(rows: Sequence[Row]) -> Verdict:
    """Later they are not held back by their start."""
    return _forgetters(rows, f"on real data {_QUICK_FORGETTER} and CCIPCA win late", late=True)


# Figure 4: what errors look like


def looks_like_batch(rows: Sequence[Row]) -> Verdict:
    """How an error of 0.2 looks."""
    statement = f"an error of about {_GOOD:g} already looks like batch PCA"
    rule = (
        f"where Err_batch first comes to {_GOOD:g} or below, reconstructions have a PSNR of at least {_GOOD_DB:g} dB against batch PCA's, "
        "on every data set; one that never comes there counts against"
    )
    mine = select(rows, figure="fig4")
    hits, told = 0, []
    for name in distinct(mine, "data"):
        errors = select(mine, data=name, metric="err_batch")
        reached = next((row for row in chosen_moments(errors) if row.value <= _GOOD), None)
        if reached is None:
            told.append(f"{str(name).upper()}: never below {min(row.value for row in errors):.2f}")
            continue
        at = {row.metric: row.value for row in select(mine, data=name, t=reached.t)}
        hits += at["psnr"] >= _GOOD_DB
        share_ = f"{100 * at['explained']:.1f} % of the variance that batch PCA explains"
        told.append(f"{str(name).upper()}: {at['psnr']:.1f} dB and {share_}, at {reached.value:.2f}")
    if not told:
        return Verdict(statement, OPEN, "figure 4 was not run", rule)
    return Verdict(statement, share(hits, len(told)), "; ".join(told), rule)


def looks_poor(rows: Sequence[Row]) -> Verdict:
    """How an error of 0.75 looks."""
    statement = f"an error of {_POOR:g} or more looks poor"
    rule = (
        f"wherever Err_batch is {_POOR:g} or more, reconstructions have a PSNR below {_POOR_DB:g} dB against batch PCA's, on every data "
        "set that has such a moment"
    )
    mine = select(rows, figure="fig4")
    hits, told = 0, []
    for name in distinct(mine, "data"):
        poor = [row.t for row in select(mine, data=name, metric="err_batch") if row.value >= _POOR]
        found = [row.value for row in select(mine, data=name, metric="psnr") if row.t in poor]
        if found:
            hits += max(found) < _POOR_DB
            told.append(f"{str(name).upper()}: {min(found):.1f} to {max(found):.1f} dB at {len(found)} moments")
    if not told:
        return Verdict(statement, OPEN, f"no moment with an error of {_POOR:g} or more", rule)
    return Verdict(statement, share(hits, len(told)), "; ".join(told), rule)


_APART = (
    "Err_batch and Err_pop were pooled once, which made the claim hold in part where Err_batch alone says otherwise; they are apart now."
)

Claims = Mapping[str, Callable[[Sequence[Row]], Verdict]]

FIGURE_CLAIMS: Mapping[str, Claims] = MappingProxyType(
    {
        "fig1": growth_claims(),
        "fig2": {
            "same iterates": same_iterates,
            "gamma 2 near IPCA, Err_batch": _near(_SLOW_FORGETTER, IPCA.label, "err_batch", _APART),
            "gamma 2 near IPCA, Err_pop": _near(_SLOW_FORGETTER, IPCA.label, "err_pop", _APART),
            "gamma 0.6 near CCIPCA, Err_batch": _near(_QUICK_FORGETTER, CCIPCA.label, "err_batch"),
            "gamma 0.6 near CCIPCA, Err_pop": _near(_QUICK_FORGETTER, CCIPCA.label, "err_pop"),
            "order of magnitude, Err_batch": _magnitude("err_batch"),
            "order of magnitude, Err_pop": _magnitude("err_pop"),
            "Err_pop nearly equal": population_errors_equal,
        },
        "fig3": {
            "same iterates": same_iterates,
            "FSM ends best": forgetful_fsm_ends_best,
            "CCIPCA close behind": ccipca_close_behind,
            "IPCA and gamma 2 worst": slow_forgetters_worst,
            "forgetters lag early": forgetters_lag_early,
            "forgetters win late": forgetters_win_late,
        },
        "fig4": {"0.2 looks like batch": looks_like_batch, "0.75 looks poor": looks_poor},
    }
)
"""What the paper says of each of its figures."""

CLAIMS: Claims = MappingProxyType({name: claim for claims in FIGURE_CLAIMS.values() for name, claim in claims.items()})
"""All of it, each once."""


def online_pca_best(rows: Sequence[Row]) -> Verdict:
    """OnlinePCA beside the paper's five."""
    statement = "OnlinePCA ends below every curve of the paper"
    rule = f"its final Err_batch is below the least of the five {_SIGN_RULE}"
    panels = {where: trials for where, trials in _panel_trials(rows).items() if ONLINE_PCA.label in trials}
    if not panels:
        return Verdict(statement, OPEN, "no rows of OnlinePCA", rule)
    best = {where: _extreme(trials, _FIVE, min) for where, trials in panels.items()}
    tests = {where: sign_test(trials[ONLINE_PCA.label], best[where]) for where, trials in panels.items()}
    ratios = [median(best[where].values()) / max(median(trials[ONLINE_PCA.label].values()), _TINY) for where, trials in panels.items()]
    exact = sum(median(trials[ONLINE_PCA.label].values()) < EXACT for trials in panels.values())
    outcome, evidence = _ordered(tests)
    span = f"best of the five / OnlinePCA from {number(min(ratios))} to {number(max(ratios))}, median {number(median(ratios))}"
    return Verdict(statement, outcome, f"{span}; batch PCA's own answer, up to rounding, in {exact} of {len(ratios)}; {evidence}", rule)


Recorded = Mapping[tuple[str, int, str, int], float]
"""Recorded errors by (data set, K, label, samples seen)."""


def recordings_reproduced(rows: Sequence[Row], recorded: Recorded) -> Verdict:
    """The authors' package against the runner."""
    statement, rule = "the recorded error curves of the authors' package are reproduced", f"largest difference below {_SAME:g}"
    mine = {(row.data, row.K, row.label, row.t): row.value for row in select(rows, figure="golden", metric="err_batch")}
    if not mine:
        return Verdict(statement, OPEN, "no recordings", rule)
    missing = len(recorded.keys() - mine.keys())
    gaps = {where: abs(value - recorded[where]) for where, value in mine.items()}
    worst = max(gaps, key=gaps.__getitem__)
    evidence = f"largest difference {gaps[worst]:.1e} ({worst[2]} on {worst[0].upper()}, K={worst[1]}) over {len(gaps)} measurements"
    evidence += f"; {missing} recorded ones were not repeated" if missing else ""
    return Verdict(statement, HOLDS if gaps[worst] < _SAME and not missing else FAILS, evidence, rule)


def judge(rows: Sequence[Row], recorded: Recorded | None = None, claims: Claims = CLAIMS) -> list[Verdict]:
    """A verdict on every statement of the paper, and on what goes beyond it, if that was run."""
    verdicts = [claim(rows) for claim in claims.values()]
    if select(rows, label=ONLINE_PCA.label):
        verdicts.append(online_pca_best(rows))
    if recorded:
        verdicts.append(recordings_reproduced(rows, recorded))
    return verdicts


def to_table(verdicts: Sequence[Verdict]) -> Table:
    """Verdicts as a table."""
    lines = tuple((verdict.statement, verdict.outcome, verdict.evidence, verdict.rule, verdict.widened) for verdict in verdicts)
    return Table("Verdicts", ("statement", "verdict", "evidence", "rule", "what was widened or narrowed, and why"), lines)
