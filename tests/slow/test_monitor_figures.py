"""What the monitor finds and how often it is wrong: twenty seeds of each stream, on which nothing was tuned.

``python tests/slow/test_monitor_figures.py`` prints the tables of docs/tracking.md.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np
import pytest

from online_psp import OnlinePCA
from online_psp.engine.types import Floats
from online_psp.monitoring import Alarm, Monitor

D, K, QUIET, SEEDS = 40, 5, 6000, 20
Rng = np.random.Generator


def basis(rng: Rng) -> Floats:
    """Components (K, D), times the deviations along them."""
    deviations = 3.0 * 0.8 ** np.arange(K)
    return np.asarray(np.linalg.qr(rng.standard_normal((D, K)))[0].T * deviations[:, np.newaxis])


def gaussian(rng: Rng, n: int) -> Floats:
    return np.asarray(rng.standard_normal((n, K)) @ basis(rng) + 0.7 * rng.standard_normal((n, D)) + 3.0)


def autoregressive(rng: Rng, n: int) -> Floats:
    B, innovations = basis(rng), rng.standard_normal((n, K + D)) * np.sqrt(1.0 - 0.95**2)
    for i in range(1, n):
        innovations[i] += 0.95 * innovations[i - 1]
    return np.asarray(innovations[:, :K] @ B + 0.7 * innovations[:, K:])


def counts(rng: Rng, n: int) -> Floats:
    return rng.poisson(np.exp(0.2 * rng.standard_normal((n, K)) @ basis(rng))).astype(float)


def heavy(rng: Rng, n: int) -> Floats:
    return np.asarray(rng.standard_t(5, (n, K)) @ basis(rng) + 0.7 * rng.standard_t(5, (n, D)))


def garch(rng: Rng, n: int) -> Floats:
    """GARCH(1, 1), 0.1 and 0.85, of the scores; each has its own."""
    B, y, variance = basis(rng), rng.standard_normal((n, K)), np.ones(K)
    for i in range(n):
        y[i] *= np.sqrt(variance)
        variance = 0.05 + 0.1 * y[i] ** 2 + 0.85 * variance
    return np.asarray(y @ B + 0.7 * rng.standard_normal((n, D)))


def season(period: int) -> Callable[[Rng, int], Floats]:
    def rows(rng: Rng, n: int) -> Floats:
        X = gaussian(rng, n)
        return np.asarray(
            X + 2.0 * np.sin(2 * np.pi * np.arange(n) / period)[:, np.newaxis] * np.linalg.qr(rng.standard_normal((D, 1)))[0].T
        )

    return rows


def changed(kind: str, rng: Rng) -> Floats:
    """Rows that change after QUIET of them."""
    after, X = 4000, gaussian(rng, QUIET + 4000)
    axes = np.linalg.svd(np.cov(X[:QUIET].T))[2][:K]
    if kind.startswith("step"):
        along = axes[int(kind[-1]) - 1]
        X[QUIET:] += along * (X[:QUIET] @ along).std()
    elif kind == "drift":
        X[QUIET:] += np.arange(after)[:, np.newaxis] / 1000 * 0.1 * X[:QUIET].std(axis=0)
    else:  # a sensor that repeats its last value
        j = int(rng.integers(D))
        X[QUIET:, j] = X[QUIET - 1, j]
    return X


def alarms(X: Floats) -> list[Alarm]:
    monitor = Monitor(OnlinePCA(K))
    monitor.update(X)
    return monitor.alarms


def delays(kind: str, seeds: int = SEEDS) -> tuple[list[int], int]:
    """Rows from the change to the alarm, sorted, -1 where there was none; and false alarms before."""
    found, false = [], 0
    for seed in range(seeds):
        rows = [alarm.row for alarm in alarms(changed(kind, np.random.default_rng([seed, 7])))]
        false += sum(row < QUIET for row in rows)
        found.append(next((row - QUIET + 1 for row in rows if row >= QUIET), -1))
    return sorted(found), false


def false_alarms(rows: Callable[[Rng, int], Floats], seeds: int = SEEDS, n: int = 10_000) -> int:
    return sum(len(alarms(rows(np.random.default_rng([seed, 8]), n))) for seed in range(seeds))


CHANGES = {**{f"step {k}": 80 for k in range(1, K + 1)}, "drift": 1500, "stuck": 300}
QUIETS: dict[str, Callable[[Rng, int], Floats]] = {"Gaussian": gaussian, "AR(0.95)": autoregressive, "Poisson": counts, "t(5)": heavy}
OTHERS: dict[str, Callable[[Rng, int], Floats]] = {"GARCH": garch, "season of 500": season(500), "season of 5,000": season(5000)}


@pytest.mark.parametrize("kind", CHANGES)
def test_changes_are_found_soon(kind: str) -> None:
    found, _ = delays(kind)
    assert found[0] > 0, f"all changes are found: {found}"
    assert found[-2] <= CHANGES[kind], f"nearly all within {CHANGES[kind]} rows: {found}"


@pytest.mark.parametrize("name", QUIETS)
def test_quiet_streams_raise_few_alarms(name: str) -> None:
    assert false_alarms(QUIETS[name]) <= 4, "no more than one in 50,000 rows"


if __name__ == "__main__":
    for kind in CHANGES:
        began = time.process_time()
        found, false = delays(kind)
        print(kind, found, "median", np.median(found), "false", false, f"{time.process_time() - began:.0f} s", flush=True)
    for name, rows in {**QUIETS, **OTHERS}.items():
        began = time.process_time()
        print(name, false_alarms(rows), "alarms in 200,000 rows", f"{time.process_time() - began:.0f} s", flush=True)
    sys.exit()
