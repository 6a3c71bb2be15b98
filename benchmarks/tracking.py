"""Streams that change: how well models follow them, how often limits are exceeded and alarms are false, how soon changes are found.

Thresholds of detectors were chosen on other seeds than these. ``ONLINE_PSP_TRACKING_SEEDS`` sets the number of seeds (20),
``ONLINE_PSP_TRACKING_ROWS`` the number of quiet rows (50000).
"""

from __future__ import annotations

import copy
import inspect
import os
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.changing import FOLLOWERS, UNUSUAL, Follower, autocorrelated, basis, exactly_weighted, less_running_mean, rotating, steady
from online_psp import OnlinePCA
from online_psp.engine.types import Floats
from online_psp.metrics import subspace_error
from online_psp.monitoring import Cusum, Monitor

_HALF_LIFE, _BLOCK = 500.0, 50
_FIRST_SEED = 1000
_WIDE = np.linspace(6.0, 3.0, 8)  # D = 400, K = 8
_NARROW = np.array([6.0, 5.0, 4.0, 3.5, 3.0])  # D = 80, K = 5


# Following


def streams(seed: int) -> Iterator[tuple[str, Floats]]:
    """Streams of 400 features with eight strong directions, each up to where models are looked at."""
    rng, D = np.random.default_rng(seed), 400
    yield "steady", steady(rng, 5000, basis(rng, D, 8), _WIDE)
    yield "rotating, a right angle in 20,000 rows", rotating(rng, 5000, D, _WIDE, np.pi / 8)
    before, after = steady(rng, 5000, basis(rng, D, 8), _WIDE), steady(rng, 500, basis(rng, D, 8), _WIDE) + rng.standard_normal(D)
    yield "500 rows after a switch of subspace and mean", np.vstack([before, after])


def follow(follower: Follower, X: Floats, K: int) -> tuple[Floats, float]:
    """Components at the end of a stream, and microseconds a row."""
    rows = X if follower.centres else less_running_mean(X, _HALF_LIFE)
    model, warm = follower.make(K, X.shape[1], _HALF_LIFE), follower.make(K, X.shape[1], _HALF_LIFE)
    for at in range(0, 1000, _BLOCK):  # kernels are compiled when they are first called
        warm.learn(rows[at : at + _BLOCK])
    warm.components()
    began = time.process_time()
    for at in range(0, len(rows), _BLOCK):
        model.learn(rows[at : at + _BLOCK])
    components = model.components()
    return np.asarray(components, dtype=np.float64), 1e6 * (time.process_time() - began) / len(rows)


def following() -> None:
    print(
        f"\nFollowing: subspace error against exactly weighted PCA, D=400, K=8, half-life {_HALF_LIFE:g}, blocks of {_BLOCK}; CPU µs a row"
    )
    found = {follower.name: [] for follower in FOLLOWERS if "proSVD" not in follower.name or find_spec("proSVD")}  # type: ignore[var-annotated]
    names, extra = [], []
    for name, X in streams(_FIRST_SEED):
        names.append(name)
        expected, variances, mean = exactly_weighted(X, _HALF_LIFE, 8)
        for follower in FOLLOWERS:
            if follower.name in found:
                components, micros = follow(follower, X, 8)
                found[follower.name].append((subspace_error(components.T, expected.T), micros))
        model = OnlinePCA(8, half_life=_HALF_LIFE).fit(X)
        apart = np.abs(model.explained_variance_ / variances - 1).max()
        extra.append(f"{name}: means within {np.abs(model.mean_ - mean).max():.0e}, variances within {100 * apart:.2f} %")
    print(f"{'':28}" + "".join(f"{name.split(',')[0][:24]:>28}" for name in names))
    for name, values in found.items():
        print(f"{name:28}" + "".join(f"{error:14.4f} {micros:10.0f} µs" for error, micros in values))
    print("\n".join(f"  OnlinePCA(half_life), {line}" for line in extra))


def axes() -> None:
    """How far the coordinates of fixed points move where two equal variances swap all the time."""
    if "axes" not in inspect.signature(OnlinePCA).parameters:
        print("\nAxes: this OnlinePCA has no option `axes`")
        return
    rng = np.random.default_rng(_FIRST_SEED)
    directions = basis(rng, 50, 2)
    larger = 1.0 + 0.3 * np.sin(np.arange(6000) / 60.0)
    X = rng.standard_normal((6000, 2)) * np.stack([5.0 * larger, 5.0 / larger], axis=1) @ directions + rng.standard_normal((6000, 50))
    points = X[:100]
    print("\nAxes: median and largest move of the coordinates of fixed points within 100 rows, half-life 400, two variances that swap")
    for kind in ("principal", "stable"):
        model, moves = OnlinePCA(2, half_life=400.0).set_params(axes=kind), []
        before: Floats | None = None
        for at in range(0, len(X), 100):
            model.partial_fit(X[at : at + 100])
            scores = model.transform(points)
            if before is not None and at >= 1000:
                moves.append(np.linalg.norm(scores - before) / np.linalg.norm(before))
            before = scores
        print(f"{kind:12} {100 * np.median(moves):8.1f} % {100 * np.max(moves):8.1f} %")


# Monitoring


def seeds() -> range:
    return range(_FIRST_SEED, _FIRST_SEED + int(os.environ.get("ONLINE_PSP_TRACKING_SEEDS", "20")))


def quiet() -> None:
    """Limits and alarms where nothing changes."""
    rows = int(os.environ.get("ONLINE_PSP_TRACKING_ROWS", "50000"))
    print(f"\nQuiet: D=80, K=5, {rows} rows, {len(seeds())} seeds; limits at 1 %")
    for half_life in (None, 1000.0):
        t2, spe, alarmed, micros = [], [], 0, []
        for seed in seeds():
            rng = np.random.default_rng(seed)
            directions, monitor = basis(rng, 80, 5), Monitor(OnlinePCA(5, half_life=half_life))
            for _ in range(0, rows, 2000):
                X = steady(rng, 2000, directions, _NARROW)
                began = time.process_time()
                found = monitor.update(X)
                micros.append(1e6 * (time.process_time() - began) / len(X))
                t2.append(np.mean(found.t2 > found.t2_limit))
                spe.append(np.mean(found.spe > found.spe_limit))
            alarmed += bool(monitor.alarms)
        forgets = "forgets nothing" if half_life is None else f"half-life {half_life:g}"
        shares = f"T² above its limit {100 * np.mean(t2):.2f} %, SPE {100 * np.mean(spe):.2f} %"
        print(f"{forgets:16} {shares}; false alarms in {alarmed} of {len(seeds())} seeds; {np.median(micros):.0f} CPU µs a row")


CHANGES: dict[str, Callable[[np.random.Generator, Floats], Floats]] = {
    "a new basis": lambda rng, old: steady(rng, 1000, basis(rng, 80, 5), _NARROW),
    "mean, 0.3 noise units a feature": lambda rng, old: steady(rng, 1000, old, _NARROW) + 0.3 * rng.choice([-1.0, 1.0], 80),
    "noise 10 % larger": lambda rng, old: steady(rng, 1000, old, _NARROW, 1.1),
    "noise 10 % smaller": lambda rng, old: steady(rng, 1000, old, _NARROW, 0.9),
    "scores half as large again": lambda rng, old: steady(rng, 1000, old, 1.5 * _NARROW),
}


def changes() -> None:
    """Rows until a change is found, and what it is taken for."""
    print(f"\nChanges after 5,000 quiet rows, {len(seeds())} seeds: rows until the alarm (median, largest), and what the alarm says")
    found: dict[str, list[tuple[float, str]]] = {name: [] for name in CHANGES}
    for seed in seeds():
        rng = np.random.default_rng(seed)
        directions, monitor = basis(rng, 80, 5), Monitor(OnlinePCA(5))
        monitor.update(steady(rng, 5000, directions, _NARROW))
        known = len(monitor.alarms)
        for name, rows in CHANGES.items():
            after = copy.deepcopy(monitor)
            after.update(rows(rng, directions))
            alarm = next(iter(after.alarms[known:]), None)
            found[name].append((np.inf, "nothing") if alarm is None else (alarm.row - 4999, alarm.kind))
    for name, values in found.items():
        delays, kinds = [delay for delay, _ in values], [kind for _, kind in values]
        said = ", ".join(f"{kind} {kinds.count(kind)}" for kind in sorted(set(kinds), key=kinds.count, reverse=True))
        print(f"{name:32} {np.median(delays):6.0f} {np.max(delays):6.0f}   {said}")


def dependent(rows: int = 10_000) -> None:
    """Rows that depend on those before them."""
    several = seeds()[: max(1, len(seeds()) // 4)]
    print(
        f"\nAutocorrelated rows: {len(several)} seeds of {rows} rows, D=80, K=5, half-life 2000; each feature a first-order autoregression"
    )
    print(f"{'correlation':>12} {'T² above':>10} {'SPE above':>10}   alarms per 10,000 rows: default, correlated=False, every tenth row")
    for correlation in (0.0, 0.5, 0.8, 0.95):
        above, alarms = [], np.zeros(3)
        for seed in several:
            rng = np.random.default_rng(seed)
            X = autocorrelated(rng, rows, basis(rng, 80, 5), _NARROW, correlation)
            monitors = [
                Monitor(OnlinePCA(5, half_life=2000.0), detector=detector) for detector in (Cusum(), Cusum(correlated=False), Cusum())
            ]
            found = monitors[0].update(X)
            above.append((np.mean(found.t2 > found.t2_limit), np.mean(found.spe > found.spe_limit)))
            monitors[1].update(X)
            monitors[2].update(X[::10])
            alarms += [len(monitor.alarms) for monitor in monitors]
        t2, spe = 100 * np.mean(above, axis=0)
        print(
            f"{correlation:12.2f} {t2:8.2f} % {spe:8.2f} %   " + "".join(f"{each:12.1f}" for each in alarms / len(several) * 10_000 / rows)
        )


def unusual(rows: int = 5000) -> None:
    """Rows that are not Gaussian, and do not change."""
    print(f"\nNot Gaussian: {len(seeds())} seeds of {rows} rows, D=80, K=5, half-life 1000, limits at 1 %")
    print(f"{'':36} {'T² above':>10} {'SPE above':>10}   seeds with a false alarm")
    for name, make in UNUSUAL.items():
        above, alarmed = [], 0
        for seed in seeds():
            rng = np.random.default_rng(seed)
            monitor = Monitor(OnlinePCA(5, half_life=1000.0))
            found = monitor.update(make(rng, rows, basis(rng, 80, 5), _NARROW))
            above.append((np.mean(found.t2 > found.t2_limit), np.mean(found.spe > found.spe_limit)))
            alarmed += bool(monitor.alarms)
        t2, spe = 100 * np.mean(above, axis=0)
        print(f"{name:36} {t2:8.2f} % {spe:8.2f} %   {alarmed:4} of {len(seeds())}", flush=True)


def main() -> None:
    print("\ntracking")
    with threadpool_limits(1):
        following()
        axes()
        changes()
        dependent()
        unusual()
        quiet()
