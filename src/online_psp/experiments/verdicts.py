"""What the paper says, checked against rows: a statement, a rule, and the numbers that the rule was applied to."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from online_psp.experiments.figures import FIVE
from online_psp.experiments.rows import Row, distinct, median, select
from online_psp.experiments.tables import EXACT, Table, chosen_moments, last_errors, number
from online_psp.experiments.timing import WAYS

HOLDS, PARTLY, FAILS, OPEN = "holds", "holds in part", "does not hold", "not tested"
_SAME = 1e-6
_CLOSE = 2.0
_BEHIND = 1.5
_FIVE = tuple(curve.label for curve in FIVE)


@dataclass(frozen=True)
class Verdict:
    """A statement with what the rows say of it."""

    statement: str
    outcome: str
    evidence: str
    rule: str


def _share(hits: int, of: int) -> str:
    """All: holds. More than half: in part."""
    return HOLDS if hits == of else PARTLY if 2 * hits > of else FAILS


def same_iterates(rows: Sequence[Row]) -> Verdict:
    """FSM against SM, wherever both were run on the same samples."""
    place = ("figure", "data", "D", "K", "rho", "seed", "t", "metric")
    by_place = {(row.label, *(getattr(row, name) for name in place)): row.value for row in rows if row.metric.startswith("err_")}
    gaps = [
        abs(value - by_place["F" + label, *where])
        for (label, *where), value in by_place.items()
        if label.startswith("SM") and ("F" + label, *where) in by_place
    ]
    rule = f"errors of FSM and SM on equal samples differ by less than {_SAME:g}"
    if not gaps:
        return Verdict("FSM equals SM", OPEN, "no rows of SM and FSM on equal samples", rule)
    evidence = f"largest difference {max(gaps):.1e} over {len(gaps)} measurements"
    return Verdict("FSM equals SM", HOLDS if max(gaps) < _SAME else FAILS, evidence, rule)


Cells = dict[tuple[int, int, float], dict[str, float]]


def _noise_cells(rows: Sequence[Row], metric: str) -> Cells:
    """The median error by (D, K, ρ) and curve."""
    cells: dict[tuple[int, int, float], dict[str, list[float]]] = {}
    for row in select(rows, figure="fig2", metric=metric):
        cells.setdefault((row.D, row.K, row.rho), {}).setdefault(row.label, []).append(row.value)
    return {where: {label: median(values) for label, values in found.items()} for where, found in cells.items()}


_BOTH = {"err_batch": "Err_batch", "err_pop": "Err_pop"}


def _near(rows: Sequence[Row], one: str, other: str) -> Verdict:
    statement = f"on spiked data {one} is close to {other}"
    rule = f"medians of Err_batch and of Err_pop within a factor of {_CLOSE:g} in every (D, K, ρ)"
    close, of, evidence = 0, 0, []
    for metric, name in _BOTH.items():
        ratios = [found[one] / found[other] for found in _noise_cells(rows, metric).values() if one in found and other in found]
        if ratios:
            within = sum(1 / _CLOSE <= ratio <= _CLOSE for ratio in ratios)
            close, of = close + within, of + len(ratios)
            span = f"{number(min(ratios))} to {number(max(ratios))}, median {number(median(ratios))}"
            evidence.append(f"{name}: within it in {within} of {len(ratios)}, {one}/{other} from {span}")
    if not of:
        return Verdict(statement, OPEN, "figure 2 was not run", rule)
    return Verdict(statement, _share(close, of), "; ".join(evidence), rule)


def gamma2_near_ipca(rows: Sequence[Row]) -> Verdict:
    """The accurate pair."""
    return _near(rows, "FSM γ=2.0", "IPCA")


def gamma06_near_ccipca(rows: Sequence[Row]) -> Verdict:
    """The forgetful pair."""
    return _near(rows, "FSM γ=0.6", "CCIPCA")


def order_of_magnitude(rows: Sequence[Row]) -> Verdict:
    """How much better the accurate pair is where there is little noise."""
    statement = "on spiked data IPCA and FSM γ=2.0 are better than CCIPCA and FSM γ=0.6 by about an order of magnitude at low noise"
    rule = "geometric mean of the ratios of Err_batch at ρ < 1e-3 between 5 and 20 (in part: more than 2, or more than that)"
    means = {metric: _advantage(_noise_cells(rows, metric)) for metric in _BOTH}
    ratio = means["err_batch"][0]
    if math.isnan(ratio):
        return Verdict(statement, OPEN, "figure 2 was not run at low noise", rule)
    evidence = "; ".join(f"{name}: {number(means[metric][0])}× ({means[metric][1]})" for metric, name in _BOTH.items())
    return Verdict(statement, HOLDS if 5 <= ratio <= 20 else PARTLY if ratio > 2 else FAILS, evidence, rule)


def _advantage(cells: Cells) -> tuple[float, str]:
    """How many times smaller the errors of the accurate pair are at low noise: over all sizes, and for each."""
    four = ("CCIPCA", "FSM γ=0.6", "IPCA", "FSM γ=2.0")
    by_size: dict[tuple[int, int], list[float]] = {}
    for (D, K, rho), found in cells.items():
        if rho < 1e-3 and all(label in found for label in four):
            logs = [math.log(found[label]) for label in four]
            by_size.setdefault((D, K), []).append(0.5 * (logs[0] + logs[1] - logs[2] - logs[3]))
    if not by_size:
        return math.nan, ""
    each = ", ".join(f"D={D} K={K}: {number(math.exp(float(np.mean(values))))}×" for (D, K), values in by_size.items())
    return math.exp(float(np.mean([value for values in by_size.values() for value in values]))), each


def _finals(rows: Sequence[Row]) -> dict[tuple[str, int], dict[str, float]]:
    found = last_errors(select(rows, figure="fig3"))
    ours = {where: {label: errors[label] for label in _FIVE if label in errors} for where, errors in found.items()}
    return {where: errors for where, errors in ours.items() if len(errors) == len(_FIVE)}


def _panels(places: Sequence[tuple[str, int]]) -> str:
    return ", ".join(f"{name.upper()} K={K}" for name, K in places)


def forgetful_fsm_ends_best(rows: Sequence[Row]) -> Verdict:
    """Who is first after the last sample."""
    statement, rule = "on real data FSM γ=0.6 ends best", "lowest median Err_batch of the paper's five curves in every panel of figure 3"
    finals = _finals(rows)
    if not finals:
        return Verdict(statement, OPEN, "figure 3 was not run", rule)
    winners = {where: min(errors, key=errors.__getitem__) for where, errors in finals.items()}
    hits = [where for where, label in winners.items() if label == "FSM γ=0.6"]
    others = [
        f"{name.upper()} K={K}: {label} ({number(finals[name, K][label])} against {number(finals[name, K]['FSM γ=0.6'])})"
        for (name, K), label in winners.items()
        if label != "FSM γ=0.6"
    ]
    evidence = f"best in {len(hits)} of {len(finals)} panels" + (f"; elsewhere {'; '.join(others)}" if others else "")
    return Verdict(statement, _share(len(hits), len(finals)), evidence, rule)


def ccipca_close_behind(rows: Sequence[Row]) -> Verdict:
    """Who comes next."""
    statement = "on real data CCIPCA is close behind FSM γ=0.6"
    rule = f"final Err_batch within a factor of {_BEHIND:g} of that of FSM γ=0.6 in every panel of figure 3"
    finals = _finals(rows)
    if not finals:
        return Verdict(statement, OPEN, "figure 3 was not run", rule)
    ratios = {where: errors["CCIPCA"] / errors["FSM γ=0.6"] for where, errors in finals.items()}
    hits = [where for where, ratio in ratios.items() if 1 / _BEHIND <= ratio <= _BEHIND]
    ahead = sum(ratio < 1 for ratio in ratios.values())
    low, high = min(ratios.values()), max(ratios.values())
    evidence = f"CCIPCA/FSM γ=0.6 from {low:.2f} to {high:.2f}; close in {len(hits)} of {len(ratios)}, ahead in {ahead}"
    return Verdict(statement, _share(len(hits), len(ratios)), evidence, rule)


def slow_forgetters_worst(rows: Sequence[Row]) -> Verdict:
    """Who is last."""
    statement, rule = "on real data IPCA and FSM γ=2.0 end worst", "the two highest final errors of the five in every panel of figure 3"
    finals = _finals(rows)
    if not finals:
        return Verdict(statement, OPEN, "figure 3 was not run", rule)
    hits: list[tuple[str, int]] = []
    others: list[tuple[str, int]] = []
    for where, errors in finals.items():
        worst = set(sorted(errors, key=errors.__getitem__)[-2:])
        (hits if worst == {"IPCA", "FSM γ=2.0"} else others).append(where)
    evidence = f"so in {len(hits)} of {len(finals)} panels" + (f"; not in {_panels(others)}" if others else "")
    return Verdict(statement, _share(len(hits), len(finals)), evidence, rule)


def slopes(rows: Sequence[Row], algorithm: str, way: str) -> dict[int, tuple[float, float]]:
    """By D, the exponent of K over all sizes and over the last doubling."""
    found = {}
    mine = [row for row in select(rows, figure="fig1", metric="seconds_per_sample", algorithm=algorithm) if row.label.endswith(way)]
    for D in sorted({row.D for row in mine}):
        several = sorted({row.K for row in select(mine, D=D)})
        if len(several) >= 3:
            K = np.log2(several)
            seconds = np.log2([median(row.value for row in select(mine, D=D, K=size)) for size in several])
            found[D] = (float(np.polyfit(K, seconds, 1)[0]), float((seconds[-1] - seconds[-2]) / (K[-1] - K[-2])))
    return found


def _growth(rows: Sequence[Row], algorithm: str) -> str:
    parts = []
    for way in WAYS:
        found = slopes(rows, algorithm, way)
        parts += [f"{way} D={D}: K^{whole:.2f}, last doubling K^{last:.2f}" for D, (whole, last) in found.items()]
    return f"{algorithm.upper()} ({'; '.join(parts)})"


def fsm_linear(rows: Sequence[Row]) -> Verdict:
    """The cost of FSM."""
    statement = "the time of FSM grows like K"
    rule = "over the last doubling of K, as published, the exponent is between 0.75 and 1.25 for every D"
    found = slopes(rows, "fsm", "published")
    if not found:
        return Verdict(statement, OPEN, "figure 1 was not run with enough sizes", rule)
    hits = sum(0.75 <= last <= 1.25 for _, last in found.values())
    return Verdict(statement, _share(hits, len(found)), _growth(rows, "fsm"), rule)


def others_quadratic(rows: Sequence[Row]) -> Verdict:
    """The cost of SM and IPCA."""
    statement = "the times of SM and IPCA turn towards K² and beyond"
    rule = "over the last doubling of K, as published, the exponent is at least 1.5 for SM and for IPCA, for every D"
    found = {name: slopes(rows, name, "published") for name in ("sm", "ipca")}
    lasts = [last for by_size in found.values() for _, last in by_size.values()]
    if not lasts:
        return Verdict(statement, OPEN, "figure 1 was not run with enough sizes", rule)
    hits = sum(last >= 1.5 for last in lasts)
    largest = max(row.K for row in select(rows, figure="fig1"))
    evidence = f"{_growth(rows, 'sm')}; {_growth(rows, 'ipca')}; largest K {largest}"
    outcome = HOLDS if hits == len(lasts) else PARTLY if hits else FAILS
    return Verdict(statement, outcome, evidence, rule)


def looks_like_batch(rows: Sequence[Row]) -> Verdict:
    """What an error of 0.2 is worth to the eye."""
    statement = "an error of about 0.2 already looks like batch PCA"
    rule = (
        "where Err_batch first comes to 0.2 or below, reconstructions have a PSNR of at least 30 dB against batch PCA's, on every data set"
    )
    mine = select(rows, figure="fig4")
    found = []
    for name in distinct(mine, "data"):
        errors = select(mine, data=name, metric="err_batch")
        reached = next((row for row in chosen_moments(errors) if row.value <= 0.2), None)
        if reached is None:
            found.append((str(name), min(row.value for row in errors), math.nan, math.nan))
            continue
        at = {row.metric: row.value for row in select(mine, data=name, t=reached.t)}
        found.append((str(name), reached.value, at["psnr"], at["explained"]))
    if not found:
        return Verdict(statement, OPEN, "figure 4 was not run", rule)
    evidence = "; ".join(
        f"{name.upper()}: never below {error:.2f}"
        if math.isnan(psnr)
        else f"{name.upper()}: {psnr:.1f} dB and {100 * explained:.1f} % of the variance that batch PCA explains, at {error:.2f}"
        for name, error, psnr, explained in found
    )
    reached_by = [psnr for _, _, psnr, _ in found if not math.isnan(psnr)]
    if not reached_by:
        return Verdict(statement, OPEN, evidence, rule)
    return Verdict(statement, _share(sum(psnr >= 30 for psnr in reached_by), len(reached_by)), evidence, rule)


CLAIMS: Mapping[str, Callable[[Sequence[Row]], Verdict]] = MappingProxyType(
    {
        "same iterates": same_iterates,
        "gamma 2 near IPCA": gamma2_near_ipca,
        "gamma 0.6 near CCIPCA": gamma06_near_ccipca,
        "order of magnitude": order_of_magnitude,
        "FSM ends best": forgetful_fsm_ends_best,
        "CCIPCA close behind": ccipca_close_behind,
        "IPCA and gamma 2 worst": slow_forgetters_worst,
        "FSM linear": fsm_linear,
        "SM and IPCA quadratic": others_quadratic,
        "0.2 looks like batch": looks_like_batch,
    }
)


def online_pca_best(rows: Sequence[Row]) -> Verdict:
    """OnlinePCA beside the paper's five."""
    statement = "OnlinePCA ends below every curve of the paper"
    rule = "lower final Err_batch than the best of the five in every panel of figure 3"
    found = last_errors(select(rows, figure="fig3"))
    ratios = {
        where: min(errors[label] for label in _FIVE if label in errors) / errors["OnlinePCA"]
        for where, errors in found.items()
        if "OnlinePCA" in errors and any(label in errors for label in _FIVE)
    }
    if not ratios:
        return Verdict(statement, OPEN, "no rows of OnlinePCA", rule)
    low, high, middle = (number(value) for value in (min(ratios.values()), max(ratios.values()), median(ratios.values())))
    exact = sum(errors["OnlinePCA"] < EXACT for errors in found.values() if "OnlinePCA" in errors)
    span = f"best of the five / OnlinePCA from {low} to {high}, median {middle}"
    evidence = f"{span}; it is batch PCA's own answer, up to rounding, in {exact} of {len(ratios)}"
    return Verdict(statement, _share(sum(ratio > 1 for ratio in ratios.values()), len(ratios)), evidence, rule)


def recordings_reproduced(rows: Sequence[Row], recorded: Mapping[tuple[str, str, int], float]) -> Verdict:
    """The authors' package against the runner."""
    statement, rule = "the recorded error curves of the authors' package are reproduced", f"largest difference below {_SAME:g}"
    mine = select(rows, figure="golden", metric="err_batch")
    gaps = {(row.data, row.label, row.t): abs(row.value - recorded[row.data, row.label, row.t]) for row in mine}
    if not gaps:
        return Verdict(statement, OPEN, "no recordings", rule)
    worst = max(gaps, key=gaps.__getitem__)
    evidence = f"largest difference {gaps[worst]:.1e} ({worst[1]} on {worst[0].upper()}) over {len(gaps)} measurements"
    return Verdict(statement, HOLDS if gaps[worst] < _SAME else FAILS, evidence, rule)


def judge(rows: Sequence[Row], recorded: Mapping[tuple[str, str, int], float] | None = None) -> list[Verdict]:
    """A verdict on every statement, and on what goes beyond the paper where it was run."""
    verdicts = [claim(rows) for claim in CLAIMS.values()]
    if select(rows, label="OnlinePCA"):
        verdicts.append(online_pca_best(rows))
    if recorded:
        verdicts.append(recordings_reproduced(rows, recorded))
    return verdicts


def to_table(verdicts: Sequence[Verdict]) -> Table:
    """Verdicts as a table."""
    lines = tuple((verdict.statement, verdict.outcome, verdict.evidence, verdict.rule) for verdict in verdicts)
    return Table("Verdicts", ("statement", "verdict", "evidence", "rule"), lines)
