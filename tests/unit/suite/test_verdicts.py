"""Every verdict can fail: for each there is a corruption of the rows, as a broken algorithm would make it, that turns it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from online_psp.suite import verdicts
from online_psp.suite.rows import Row, interval, select
from online_psp.suite.verdicts import CLAIMS, sign_test

TRIALS = range(10)
Rows = Sequence[Row]


def row(**columns: Any) -> Row:
    base = Row("key", "fig", "data", 100, 10, 0.0, "", "label", "algorithm", "online-psp", 4, 0, 100, "err_batch", 1.0)
    return replace(base, **columns)


def noise_rows(errors: dict[str, float], population: dict[str, float], noise: Sequence[float] = (1e-4, 1e-2)) -> list[Row]:
    return [
        row(study="fig2", data="spiked", rho=rho, label=label, value=value * (1 + 0.01 * seed), seed=seed, metric=metric)
        for metric, found in (("err_batch", errors), ("err_pop", population))
        for (label, value), rho, seed in product(found.items(), noise, TRIALS)
    ]


def learning_rows(early: dict[str, float], late: dict[str, float], trials: Sequence[int] = TRIALS) -> list[Row]:
    return [
        row(study="fig3", data=name, K=4, label=label, value=value * (1 + 0.01 * seed), t=t, seed=seed)
        for name, (t, errors), seed in product(("one", "two"), ((16, early), (1000, late)), trials)
        for label, value in errors.items()
    ]


def timing_rows(exponents: dict[str, float], scale: dict[str, float]) -> list[Row]:
    return [
        row(
            study="fig1",
            label=f"{name.upper()}, {way}",
            algorithm=name,
            kind=way,
            K=K,
            D=D,
            t=run,
            metric="seconds_per_sample",
            value=1e-6 * scale[name] * K**power,
        )
        for (name, power), way, K, D, run in product(
            exponents.items(), ("published", "fit_next", "fit_block"), (64, 128, 256), (8192, 32768), (1, 2)
        )
    ]


def picture_rows(name: str, errors: Sequence[float], psnr: Sequence[float]) -> list[Row]:
    values = {"err_batch": errors, "psnr": psnr, "explained": [0.9] * len(errors)}
    return [
        row(study="fig4", data=name, metric=metric, t=50 * (i + 1), value=value)
        for metric, series in values.items()
        for i, value in enumerate(series)
    ]


BATCH = {"IPCA": 0.01, "FSM γ=2.0": 0.012, "CCIPCA": 0.1, "FSM γ=0.6": 0.12, "FSM γ=1.5": 0.02}
POPULATION = {"IPCA": 0.01, "FSM γ=2.0": 0.0101, "CCIPCA": 0.0102, "FSM γ=0.6": 0.0103, "FSM γ=1.5": 0.0101}
FAR_POPULATION = {**BATCH}
EARLY = {"IPCA": 0.7, "FSM γ=2.0": 0.71, "FSM γ=1.5": 0.75, "CCIPCA": 0.9, "FSM γ=0.6": 0.95, "OnlinePCA": 0.3}
LATE = {"FSM γ=0.6": 0.1, "CCIPCA": 0.11, "FSM γ=1.5": 0.2, "IPCA": 0.3, "FSM γ=2.0": 0.31, "OnlinePCA": 0.01}
EXPONENTS = {"sm": 1.9, "fsm": 1.0, "ipca": 2.2, "ccipca": 1.0}
SCALE = {"sm": 2.0, "fsm": 1.0, "ipca": 0.1, "ccipca": 1.5}


def paper(population: dict[str, float] = POPULATION) -> list[Row]:
    """Rows that say what the paper says."""
    checks = [row(label=f"{name} γ=2.0", value=0.5, seed=seed, t=t) for name in ("SM", "FSM") for seed in TRIALS for t in (50, 100)]
    return [
        *checks,
        *noise_rows(BATCH, population),
        *learning_rows(EARLY, LATE),
        *timing_rows(EXPONENTS, SCALE),
        *picture_rows("yale", (0.9, 0.5, 0.19), (15.0, 25.0, 35.0)),
        *picture_rows("orl", (0.8, 0.3, 0.18), (20.0, 28.0, 33.0)),
    ]


# Ways in which an algorithm, or a table of rows, can be broken


def relabelled(source: str, target: str, **where: Any) -> Callable[[Rows], list[Row]]:
    """The rows of one curve in the place of another's."""

    def corrupt(rows: Rows) -> list[Row]:
        mine = {id(found) for found in select(rows, **where)}
        kept = [found for found in rows if not (id(found) in mine and found.label == target)]
        return kept + [replace(found, label=target) for found in rows if id(found) in mine and found.label == source]

    return corrupt


def gamma_ignored(rows: Rows) -> list[Row]:
    """Every FSM runs with γ = 2."""
    return relabelled("FSM γ=2.0", "FSM γ=0.6")(relabelled("FSM γ=2.0", "FSM γ=1.5")(rows))


def scaled(factor: float, **where: Any) -> Callable[[Rows], list[Row]]:
    def corrupt(rows: Rows) -> list[Row]:
        mine = {id(found) for found in select(rows, **where)}
        return [replace(found, value=found.value * factor) if id(found) in mine else found for found in rows]

    return corrupt


def stuck(value: float, **where: Any) -> Callable[[Rows], list[Row]]:
    """An error that does not move."""

    def corrupt(rows: Rows) -> list[Row]:
        mine = {id(found) for found in select(rows, **where)}
        return [replace(found, value=value) if id(found) in mine else found for found in rows]

    return corrupt


def slope(algorithm: str, power: float) -> Callable[[Rows], list[Row]]:
    """Times that grow otherwise with K."""
    return lambda rows: [
        replace(found, value=found.value * found.K**power) if found.study == "fig1" and found.algorithm == algorithm else found
        for found in rows
    ]


CORRUPTIONS: dict[str, list[Callable[[Rows], list[Row]]]] = {
    "same iterates": [scaled(1 + 1e-5, label="FSM γ=2.0", study="fig")],
    "gamma 2 near IPCA, Err_batch": [relabelled("CCIPCA", "IPCA"), relabelled("FSM γ=0.6", "FSM γ=2.0"), stuck(0.5, label="FSM γ=2.0")],
    "gamma 2 near IPCA, Err_pop": [stuck(0.5, label="FSM γ=2.0"), scaled(3.0, label="IPCA", metric="err_pop")],
    "gamma 0.6 near CCIPCA, Err_batch": [gamma_ignored, relabelled("IPCA", "CCIPCA"), stuck(0.5, label="CCIPCA")],
    "gamma 0.6 near CCIPCA, Err_pop": [stuck(0.5, label="CCIPCA"), scaled(3.0, label="FSM γ=0.6", metric="err_pop")],
    "order of magnitude, Err_batch": [gamma_ignored, relabelled("IPCA", "CCIPCA"), scaled(30.0, label="CCIPCA"), stuck(0.5)],
    "order of magnitude, Err_pop": [gamma_ignored, relabelled("IPCA", "CCIPCA"), scaled(30.0, label="CCIPCA"), stuck(0.5)],
    "Err_pop nearly equal": [stuck(0.5, label="CCIPCA"), scaled(2.0, label="FSM γ=1.5", metric="err_pop")],
    "FSM ends best": [gamma_ignored, stuck(0.5, label="FSM γ=0.6"), relabelled("OnlinePCA", "CCIPCA")],
    "CCIPCA close behind": [relabelled("IPCA", "CCIPCA"), relabelled("OnlinePCA", "CCIPCA"), stuck(0.5, label="CCIPCA")],
    "IPCA and gamma 2 worst": [relabelled("FSM γ=0.6", "FSM γ=2.0"), stuck(0.5, label="CCIPCA"), scaled(2.0, label="FSM γ=1.5")],
    "forgetters lag early": [gamma_ignored, relabelled("OnlinePCA", "CCIPCA"), stuck(0.5)],
    "forgetters win late": [
        lambda rows: gamma_ignored(relabelled("IPCA", "CCIPCA")(rows)),
        lambda rows: stuck(0.5, label="CCIPCA")(stuck(0.5, label="FSM γ=0.6")(rows)),
    ],
    "FSM best time": [scaled(100.0, algorithm="fsm"), scaled(0.1, algorithm="ccipca")],
    "FSM much faster than IPCA": [scaled(100.0, algorithm="fsm"), slope("ipca", -1.0)],
    "FSM linear": [slope("fsm", 0.8), slope("fsm", -0.5)],
    "CCIPCA linear": [slope("ccipca", 0.8), slope("ccipca", -0.5)],
    "SM and IPCA quadratic": [slope("sm", -0.9), slope("ipca", -1.2)],
    "0.2 looks like batch": [stuck(0.5, metric="err_batch"), stuck(20.0, metric="psnr"), stuck(0.5, metric="err_batch", data="orl")],
    "0.75 looks poor": [stuck(40.0, metric="psnr"), stuck(40.0, metric="psnr", data="orl")],
}
FAR = ["order of magnitude, Err_pop"]
"""Err_pop cannot both be nearly equal and differ by an order of magnitude: this claim is held against rows of its own."""


def rows_for(name: str) -> list[Row]:
    return paper(FAR_POPULATION if name in FAR else POPULATION)


def test_every_claim_has_a_corruption() -> None:
    assert set(CORRUPTIONS) == set(CLAIMS), "a verdict that no corruption turns is none"


@pytest.mark.parametrize("name", list(CLAIMS))
def test_a_claim_holds_on_rows_that_say_so(name: str) -> None:
    found = CLAIMS[name](rows_for(name))
    assert found.outcome == verdicts.HOLDS, found.evidence


@pytest.mark.parametrize(("name", "number"), [(name, i) for name, several in CORRUPTIONS.items() for i in range(len(several))])
def test_a_corruption_turns_it(name: str, number: int) -> None:
    found = CLAIMS[name](CORRUPTIONS[name][number](rows_for(name)))
    assert found.outcome not in (verdicts.HOLDS, verdicts.OPEN), f"still {found.outcome}: {found.evidence}"


@pytest.mark.parametrize("name", list(CLAIMS))
def test_nothing_run_nothing_claimed(name: str) -> None:
    assert CLAIMS[name]([]).outcome == verdicts.OPEN


def test_order_of_magnitude_says_by_more_and_by_less() -> None:
    claim = CLAIMS["order of magnitude, Err_batch"]
    outcomes = {
        factor: claim(noise_rows({**BATCH, "CCIPCA": 0.01 * factor, "FSM γ=0.6": 0.012 * factor}, POPULATION)).outcome
        for factor in (0.5, 1.4, 4.9, 5.1, 19.5, 21.0, 319.0)
    }
    assert outcomes == {
        0.5: verdicts.FAILS,
        1.4: verdicts.BY_LESS,
        4.9: verdicts.BY_LESS,
        5.1: verdicts.HOLDS,
        19.5: verdicts.HOLDS,
        21.0: verdicts.BY_MORE,
        319.0: verdicts.BY_MORE,
    }
    assert claim(noise_rows(BATCH, POPULATION, noise=[0.1])).outcome == verdicts.OPEN


def test_the_two_errors_are_never_pooled() -> None:
    rows = noise_rows({**BATCH, "FSM γ=2.0": 0.5}, POPULATION)
    assert CLAIMS["gamma 2 near IPCA, Err_batch"](rows).outcome == verdicts.FAILS
    assert CLAIMS["gamma 2 near IPCA, Err_pop"](rows).outcome == verdicts.HOLDS


def test_a_set_that_never_comes_to_two_tenths_counts_against() -> None:
    one = [*picture_rows("yale", (0.9, 0.19), (15.0, 35.0)), *picture_rows("orl", (0.9, 0.4), (15.0, 35.0))]
    found = CLAIMS["0.2 looks like batch"](one)
    assert found.outcome == verdicts.FAILS, "one of two is not more than half"
    assert "ORL, never below 0.40" in found.evidence


def test_orderings_need_trials_enough_to_tell() -> None:
    few = CLAIMS["FSM ends best"](learning_rows(EARLY, LATE, trials=(0, 1)))
    assert few.outcome == verdicts.OPEN
    assert "2 trials cannot decide: p is at least 0.25" in few.evidence
    enough = CLAIMS["FSM ends best"](learning_rows(EARLY, LATE, trials=range(5)))
    assert enough.outcome == verdicts.HOLDS
    assert "5:0, p = 0.031" in enough.evidence


def test_trials_that_tell_neither_way_decide_nothing() -> None:
    rows = learning_rows(EARLY, LATE, trials=range(6))
    even = [
        replace(found, value=0.05 if found.seed % 2 else 0.2) if found.label == "FSM γ=0.6" and found.t == 1000 else found for found in rows
    ]
    found = CLAIMS["FSM ends best"](even)
    assert found.outcome == verdicts.UNDECIDED, found.evidence
    assert "3:3" in found.evidence


def test_trials_are_paired_by_their_seed() -> None:
    """One curve is below the other in every trial, though its values overlap with the other's."""
    one, other = {seed: seed + 0.4 for seed in range(8)}, {seed: seed + 0.5 for seed in reversed(range(8))}
    assert sign_test(one, other) == (8, 8, 0, 0.5**8, 1)
    assert sign_test(other, one).decided == -1
    assert sign_test(one, one).decided == 0, "equal trials tell nothing"
    assert sign_test({0: 1.0}, {1: 2.0}).p == 1.0, "nothing is paired"


def test_close_in_most_panels_only_is_in_part_and_few_trials_tell_nothing() -> None:
    """One panel of three in which CCIPCA is far behind."""
    far = {**LATE, "CCIPCA": 0.19}

    def panels(trials: Sequence[int]) -> list[Row]:
        third = [replace(found, data="three") for found in learning_rows(EARLY, far, trials) if found.data == "one"]
        return [*learning_rows(EARLY, LATE, trials), *third]

    assert CLAIMS["CCIPCA close behind"](panels(TRIALS)).outcome == verdicts.PARTLY
    assert CLAIMS["CCIPCA close behind"](panels((0, 1))).outcome == verdicts.OPEN, "two trials decide neither what is near nor what is far"
    assert CLAIMS["CCIPCA close behind"](learning_rows(EARLY, far)).outcome == verdicts.FAILS


def test_panels_that_disagree_are_counted() -> None:
    mixed = [*learning_rows(EARLY, LATE), *(replace(found, data="three", value=0.5) for found in learning_rows(EARLY, LATE))]
    found = CLAIMS["FSM ends best"](mixed)
    assert found.outcome == verdicts.PARTLY
    assert "decided for in 2, against in 0, undecided in 1 of 3 panels" in found.evidence


def test_four_curves_are_not_the_papers_five() -> None:
    rows = [found for found in learning_rows(EARLY, LATE) if found.label != "IPCA"]
    assert CLAIMS["FSM ends best"](rows).outcome == verdicts.OPEN


def test_exponents_are_those_of_the_rows() -> None:
    found = verdicts.slopes(timing_rows(EXPONENTS, SCALE), "sm")
    assert found[8192] == pytest.approx((1.9, 1.9))
    assert math.isclose(verdicts.seconds(timing_rows(EXPONENTS, SCALE))[8192, 64]["fsm"], 64e-6)


def test_one_of_two_algorithms_is_not_both() -> None:
    """IPCA may not fit in memory: SM alone says nothing of the two."""
    rows = [found for found in timing_rows(EXPONENTS, SCALE) if found.algorithm != "ipca"]
    assert CLAIMS["SM and IPCA quadratic"](rows).outcome == verdicts.OPEN


@pytest.mark.parametrize("name", list(CLAIMS))
def test_errors_of_nothing_are_judged_too(name: str) -> None:
    CLAIMS[name](stuck(0.0, metric="err_batch")(stuck(0.0, metric="err_pop")(rows_for(name))))


def test_online_pca_is_judged_where_it_was_run() -> None:
    rows = paper()
    assert verdicts.ONLINE_PCA_BEST(rows).outcome == verdicts.HOLDS
    assert verdicts.ONLINE_PCA_BEST(scaled(20.0, label="OnlinePCA")(rows)).outcome == verdicts.FAILS
    assert verdicts.ONLINE_PCA_BEST([found for found in rows if found.label != "OnlinePCA"]).outcome == verdicts.OPEN
    assert len(verdicts.judge(rows)) == len(CLAIMS) + 1


def test_what_was_widened_is_said() -> None:
    table = verdicts.to_table(verdicts.judge(paper()))
    assert any("pooled once" in line[-1] for line in table.lines)
    assert any("last doubling" in line[-1] for line in table.lines)
    assert any("softer since" in line[-1] for line in table.lines)


def test_intervals_hold_the_median_and_shrink_with_trials() -> None:
    few, many = interval([1.0, 2.0, 3.0]), interval([1.0 + 0.02 * i for i in range(101)])
    assert few.low <= few.value == 2.0 <= few.high
    assert few.high - few.low == 2.0, "three trials say little"
    assert many.high - many.low < 0.7
    assert math.isnan(interval([]).value)
    assert math.isnan(interval([2.0]).low), "one trial has no interval"
