"""Streams that change: how well methods follow them, how often limits are exceeded and alarms are false, how soon changes are found.

Thresholds of detectors were chosen on other seeds than these.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from online_psp.engine.types import Floats
from online_psp.metrics import subspace_error
from online_psp.monitoring import Monitor
from online_psp.pca import OnlinePCA
from online_psp.suite import pictures
from online_psp.suite.measure import Stopwatch
from online_psp.suite.methods import Method, build
from online_psp.suite.rows import version
from online_psp.suite.studies.changing import (
    UNUSUAL,
    autocorrelated,
    basis,
    exactly_weighted,
    less_running_mean,
    rotating,
    steady,
)
from online_psp.suite.tables import Table

_HALF_LIFE, _BLOCK, _FIRST_SEED = 500.0, 50, 1000
_WIDE = np.linspace(6.0, 3.0, 8)  # D = 400, K = 8
_NARROW = np.array([6.0, 5.0, 4.0, 3.5, 3.0])  # D = 80, K = 5


def tables(out: Path, quick: bool = False) -> Iterator[Table]:
    """All of them, and the pictures of docs/tracking.md."""
    seeds = range(_FIRST_SEED, _FIRST_SEED + (3 if quick else 20))
    yield following()
    yield axes()
    yield changes(seeds)
    yield dependent(seeds[: max(1, len(seeds) // 4)])
    yield unusual(seeds)
    yield quiet(seeds, 4000 if quick else 50_000)
    for name, draw in (("rotation", _rotation), ("switch", _switch), ("alarm", _alarm)):
        pictures.save(draw(), out / f"tracking_{name}.png")


# Following


@dataclass
class WeightedCovariance:
    """A D×D exponentially weighted covariance with an eigendecomposition at every read-out: what one can do without this package."""

    K: int
    D: int
    half_life: float
    weight: float = 0.0
    sums: Any = field(default=None)

    def fit_block(self, X: Floats) -> None:
        decay = 2.0 ** (-1.0 / self.half_life)
        rows, weights = np.column_stack([np.ones(len(X)), X]), decay ** np.arange(len(X) - 1.0, -1.0, -1.0)
        new = rows.T @ (rows * weights[:, np.newaxis])
        self.sums = new if self.sums is None else decay ** len(X) * self.sums + new

    def get_components(self) -> Floats:
        mean = self.sums[0, 1:] / self.sums[0, 0]
        return np.asarray(np.linalg.eigh(self.sums[1:, 1:] / self.sums[0, 0] - np.outer(mean, mean))[1][:, ::-1][:, : self.K])


def _constant_step(t: int) -> float:
    """CCIPCA's step with the half-life, once there are enough rows."""
    return float(max(3.0 / (t + 3.0), 1.0 - 2.0 ** (-1.0 / _HALF_LIFE)))


_SELF_CENTRED = {"OnlinePCA(half_life=500)", "OnlinePCA, forgets nothing", "D×D weighted covariance", "IncrementalPCA"}
_FOLLOWERS = (
    Method("OnlinePCA(half_life=500)", "online_psp.pca:OnlinePCA", (("half_life", _HALF_LIFE),)),
    Method("OnlinePCA, forgets nothing", "online_psp.pca:OnlinePCA"),
    Method("D×D weighted covariance", "", (("half_life", _HALF_LIFE),), made=WeightedCovariance),
    Method("proSVD, decay for that half-life", "peer:prosvd", (("block", _BLOCK), ("half_life", _HALF_LIFE))),
    Method("CCIPCA, constant step", "ccipca", (("learning_rate", _constant_step),)),
    Method("IncrementalPCA", "sklearn.decomposition:IncrementalPCA"),
)


def _streams() -> Iterator[tuple[str, Floats]]:
    """Streams of 400 features with eight strong directions, each up to where methods are looked at."""
    rng, D = np.random.default_rng(_FIRST_SEED), 400
    yield "steady", steady(rng, 5000, basis(rng, D, 8), _WIDE)
    yield "rotating, a right angle in 20,000 rows", rotating(rng, 5000, basis(rng, D, 16), _WIDE, np.pi / 8)
    before, after = steady(rng, 5000, basis(rng, D, 8), _WIDE), steady(rng, 500, basis(rng, D, 8), _WIDE) + rng.standard_normal(D)
    yield "500 rows after a switch of subspace and mean", np.vstack([before, after])


def following() -> Table:
    """Errors against exactly weighted PCA, and µs a row."""
    followers = [method for method in _FOLLOWERS if method.algorithm != "peer:prosvd" or version("proSVD")]
    names, cells = list[str](), {method.label: list[str]() for method in followers}
    moments = list[str]()
    for name, X in _streams():
        names.append(name)
        expected, variances, mean = exactly_weighted(X, _HALF_LIFE, 8)
        centred = less_running_mean(X, _HALF_LIFE)
        for method in followers:
            rows = X if method.label in _SELF_CENTRED else centred
            for part in (rows[:1000], rows):  # first to warm up
                learner, watch = build(method, 8, X.shape[1]), Stopwatch()
                with watch:
                    for at in range(0, len(part), _BLOCK):
                        learner.feed(part[at : at + _BLOCK])
                    found = learner.basis()
            cells[method.label].append(f"{subspace_error(found, expected.T):.4f}, {1e6 * watch.seconds / len(rows):.0f} µs")
        model = OnlinePCA(8, half_life=_HALF_LIFE).fit(X)
        apart = np.abs(model.explained_variance_ / variances - 1).max()
        moments.append(f"means within {np.abs(model.mean_ - mean).max():.0e}, variances within {100 * apart:.2f} %")
    lines = [(label, *found) for label, found in cells.items()]
    title = f"Following: error against exactly weighted PCA, D=400, K=8, half-life {_HALF_LIFE:g}, blocks of {_BLOCK}"
    return Table(title, ("", *names), (*lines, ("OnlinePCA(half_life=500), moments", *moments)))


def axes() -> Table:
    """How far the coordinates of fixed points move where two equal variances swap all the time."""
    rng = np.random.default_rng(_FIRST_SEED)
    directions, larger = basis(rng, 50, 2), 1.0 + 0.3 * np.sin(np.arange(6000) / 60.0)
    X = rng.standard_normal((6000, 2)) * np.stack([5.0 * larger, 5.0 / larger], axis=1) @ directions + rng.standard_normal((6000, 50))
    lines = []
    for kind in ("principal", "stable"):
        model, scores = OnlinePCA(2, half_life=400.0, axes=kind), []
        for at in range(0, len(X), 100):
            scores.append(model.partial_fit(X[at : at + 100]).transform(X[:100]))
        moves = [np.linalg.norm(new - old) / np.linalg.norm(old) for old, new in itertools.pairwise(scores)]
        lines.append((kind, f"{100 * np.median(moves):.1f} %", f"{100 * np.max(moves):.1f} %"))
    title = "Axes: move of the coordinates of fixed points within 100 rows, half-life 400, two variances that swap"
    return Table(title, ("axes", "median", "largest"), tuple(lines))


# Monitoring

_CHANGES: Mapping[str, Callable[[np.random.Generator, Floats], Floats]] = MappingProxyType(
    {
        "a new basis": lambda rng, old: steady(rng, 1000, basis(rng, 80, 5), _NARROW),
        "mean, by 0.3 noise units a feature": lambda rng, old: steady(rng, 1000, old, _NARROW) + 0.3 * rng.choice([-1.0, 1.0], 80),
        "noise 10 % larger": lambda rng, old: steady(rng, 1000, old, _NARROW, 1.1),
        "noise 10 % smaller": lambda rng, old: steady(rng, 1000, old, _NARROW, 0.9),
        "scores half as large again": lambda rng, old: steady(rng, 1000, old, 1.5 * _NARROW),
    }
)


def changes(seeds: range) -> Table:
    """Rows until a change is found, and what it is taken for."""
    found: dict[str, list[tuple[float, str]]] = {name: [] for name in _CHANGES}
    for seed in seeds:
        rng = np.random.default_rng(seed)
        directions, monitor = basis(rng, 80, 5), Monitor(OnlinePCA(5))
        monitor.update(steady(rng, 5000, directions, _NARROW))
        known = len(monitor.alarms)
        for name, rows in _CHANGES.items():
            after = copy.deepcopy(monitor)
            after.update(rows(rng, directions))
            alarm = next(iter(after.alarms[known:]), None)
            found[name].append((np.inf, "nothing") if alarm is None else (alarm.row - 4999, alarm.kind))
    lines = []
    for name, values in found.items():
        delays, kinds = [delay for delay, _ in values], [kind for _, kind in values]
        said = ", ".join(f"{kind} {kinds.count(kind)}" for kind in sorted(set(kinds), key=kinds.count, reverse=True))
        lines.append((name, f"{np.median(delays):.0f}, {np.max(delays):.0f}", said))
    header = ("change", "rows until the alarm: median, largest", "the alarm says")
    return Table(f"Changes after 5,000 quiet rows, {len(seeds)} seeds", header, tuple(lines))


def _above(found: Any) -> Floats:
    """Shares of T² and of SPE above their limits."""
    return np.array([np.mean(found.t2 > found.t2_limit), np.mean(found.spe > found.spe_limit)])


def _shares(above: list[Floats]) -> tuple[str, str]:
    t2, spe = 100 * np.mean(above, axis=0)
    return f"{t2:.2f} %", f"{spe:.2f} %"


def dependent(seeds: range, rows: int = 10_000) -> Table:
    """Rows that depend on those before them."""
    lines = []
    for correlation in (0.0, 0.5, 0.8, 0.95):
        above, alarms = [], np.zeros(2)
        for seed in seeds:
            rng = np.random.default_rng(seed)
            X = autocorrelated(rng, rows, basis(rng, 80, 5), _NARROW, correlation)
            monitors = [Monitor(OnlinePCA(5, half_life=2000.0)) for _ in range(2)]
            above.append(_above(monitors[0].update(X)))
            monitors[1].update(X[::10])
            alarms += [len(monitor.alarms) for monitor in monitors]
        each = alarms / len(seeds) * 10_000 / rows
        lines.append((f"{correlation:g}", *_shares(above), *(f"{value:.1f}" for value in each)))
    header = ("correlation", "T² above its limit", "SPE above its limit", "alarms in 10,000 rows", "every tenth row")
    return Table(f"Autocorrelated rows, D=80, K=5, half-life 2000, {len(seeds)} seeds", header, tuple(lines))


def unusual(seeds: range, rows: int = 5000) -> Table:
    """Rows that are not Gaussian, and do not change."""
    lines = []
    for name, make in UNUSUAL.items():
        above, alarmed = [], 0
        for seed in seeds:
            rng = np.random.default_rng(seed)
            monitor = Monitor(OnlinePCA(5, half_life=1000.0))
            above.append(_above(monitor.update(make(rng, rows, basis(rng, 80, 5), _NARROW))))
            alarmed += bool(monitor.alarms)
        lines.append((name, *_shares(above), f"{alarmed} of {len(seeds)}"))
    header = ("rows", "T² above its limit", "SPE above its limit", "seeds with a false alarm")
    return Table(f"Rows that do not change, {rows:,} of them, D=80, K=5, half-life 1000, limits at 1 %", header, tuple(lines))


def quiet(seeds: range, rows: int) -> Table:
    """Limits and alarms where nothing changes, for long."""
    lines = []
    for half_life in (None, 1000.0):
        above, alarmed, micros = [], 0, []
        for seed in seeds:
            rng = np.random.default_rng(seed)
            directions, monitor = basis(rng, 80, 5), Monitor(OnlinePCA(5, half_life=half_life))
            for _ in range(0, rows, 2000):
                X, watch = steady(rng, 2000, directions, _NARROW), Stopwatch()
                with watch:
                    found = monitor.update(X)
                micros.append(1e6 * watch.seconds / len(X))
                above.append(_above(found))
            alarmed += bool(monitor.alarms)
        name = "forgets nothing" if half_life is None else f"half-life {half_life:g}"
        lines.append((name, *_shares(above), f"{alarmed} of {len(seeds)}", f"{np.median(micros):.0f}"))
    header = ("", "T² above its limit", "SPE above its limit", "seeds with a false alarm", "µs a row")
    return Table(f"Quiet Gaussian rows, {rows:,} of them, D=80, K=5, limits at 1 %", header, tuple(lines))


# Pictures

_EVERY = 100


def _errors_over_time(X: Floats, truth: Callable[[int], Floats], title: str, monitor: Monitor | None = None) -> Any:
    """A picture of the errors of several memories against the subspace, (K, D), that row t comes from."""
    with pictures.style():
        figure = pictures.new_figure(7, 3.2)
        axes = figure.subplots()
        learners: dict[str, Any] = {
            "forgets nothing" if half_life is None else f"half-life {half_life:g}": OnlinePCA(5, half_life=half_life)
            for half_life in (None, 2000.0, 500.0, 100.0)
        }
        if monitor is not None:
            learners['forgets nothing, on_drift="reset"'] = monitor
        for name, learner in learners.items():
            errors = []
            for at in range(0, len(X), _EVERY):
                rows = X[at : at + _EVERY]
                (learner.update if isinstance(learner, Monitor) else learner.partial_fit)(rows)
                model = learner.model if isinstance(learner, Monitor) else learner
                errors.append(subspace_error(model.components_.T, truth(at + _EVERY - 1).T))
            axes.plot(np.arange(_EVERY, len(X) + 1, _EVERY), errors, label=name)
        axes.set(xlabel="row", ylabel="subspace error", title=title, ylim=(0, None))
        axes.legend(frameon=False)
    return figure


def _rotation() -> Any:
    """A subspace that turns, by a right angle in 10,000 rows."""
    rng, n = np.random.default_rng(0), 10_000
    both, angles = basis(rng, 80, 10), np.linspace(0.0, np.pi / 2, n)
    X = rotating(rng, n, both, _NARROW, np.pi / 2)
    return _errors_over_time(X, lambda t: np.cos(angles[t]) * both[:5] + np.sin(angles[t]) * both[5:], "a rotation")


def _switch() -> Any:
    """A subspace that is another one from row 5,000 on, and a monitor that starts anew."""
    rng = np.random.default_rng(1)
    old, new = basis(rng, 80, 5), basis(rng, 80, 5)
    X = np.vstack([steady(rng, 5000, old, _NARROW), steady(rng, 5000, new, _NARROW)])
    return _errors_over_time(X, lambda t: old if t < 5000 else new, "a switch", Monitor(OnlinePCA(5), on_drift="reset"))


def _alarm() -> Any:
    """Scores, limits and alarms: single outliers, a shifted mean, a new basis."""
    rng = np.random.default_rng(2)
    old, new = basis(rng, 80, 5), basis(rng, 80, 5)
    shift = 0.5 * rng.choice([-1.0, 1.0], 80)
    parts = [steady(rng, 1500, old, _NARROW), steady(rng, 1000, old, _NARROW) + shift, steady(rng, 1000, new, _NARROW) + shift]
    X = np.vstack(parts)
    X[[600, 900]] += 2.5 * rng.standard_normal((2, 80))
    monitor = Monitor(OnlinePCA(5), on_drift="reset")
    found = monitor.update(X)
    with pictures.style():
        figure = pictures.new_figure(7, 4.4)
        top, bottom = figure.subplots(2, sharex=True)
        for axes, score, limit, name in ((top, found.spe, found.spe_limit, "SPE"), (bottom, found.t2, found.t2_limit, "T²")):
            axes.semilogy(score, ".", markersize=1.5, color="0.6")
            axes.semilogy(np.flatnonzero(found.outlier), score[found.outlier], ".", markersize=3, color="C1", label="outlier")
            axes.semilogy(limit, color="C0", linewidth=1, label="limit at 1 %")
            for each in monitor.alarms:
                axes.axvline(each.row, color="C3", linewidth=1)
            axes.set(ylabel=name, xlim=(0, len(X)))
        for each in monitor.alarms:
            top.text(each.row, 1.02, each.kind, color="C3", ha="center", transform=top.get_xaxis_transform())
        bottom.set_xlabel("row")
        top.legend(frameon=False, loc="upper left", ncols=2)
    return figure
