"""``psp demo``: components form from pictures, a stream drifts, holes are filled; one picture, on data that needs no download."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import eigh
from scipy.ndimage import zoom
from sklearn.datasets import load_digits

from online_psp.engine.threads import suited_threads
from online_psp.engine.types import Array, Floats
from online_psp.metrics import subspace_error
from online_psp.monitoring import Alarm, Monitor
from online_psp.pca import OnlinePCA
from online_psp.suite.pictures import new_figure

SIDE = 32
"""Height and width of a picture."""
SHOWN = 4
"""Components to draw."""
STAGES = (20, 80, 320, 1280, 5120, 12_000)
"""Numbers of pictures after which components are drawn."""
_K, _ROWS = 16, 500
_SENSORS, _CHANGE, _LENGTH, _SLIPS = 12, 1500, 2300, 6
_GONE, _HOLED, _FILLED = 0.7, 2000, 6


class Forming(NamedTuple):
    """Components of a stream of pictures, as they form."""

    strips: list[Floats]
    """The leading components (SHOWN, D) after each of the stages."""
    errors: list[float]
    """Subspace error of each stage against batch PCA."""
    batch: Floats
    """Those of batch PCA."""
    seconds: float
    """Time to learn all pictures."""


class Drifting(NamedTuple):
    """A monitored stream of sensor rows, one of which shifts."""

    ratio: Floats
    """SPE of each row in units of its limit."""
    alarms: list[Alarm]


class Filling(NamedTuple):
    """Pictures with missing pixels, (_FILLED, D) each."""

    seen: Floats
    filled: Floats
    true: Floats
    error: float
    """Root mean square error of all filled pixels, in units of their standard deviation."""


class Demo(NamedTuple):
    """Everything that is shown."""

    forming: Forming
    drifting: Drifting
    filling: Filling


def pictures(count: int, seed: int = 0) -> Array:
    """Handwritten digits, enlarged and shifted a little, in random order: (count, SIDE²), float32, from 0 to 1."""
    rng = np.random.default_rng(seed)
    small = np.pad(load_digits().images / 16.0, ((0, 0), (1, 1), (1, 1)))
    large = np.clip(zoom(small, (1, (SIDE - 2) / 10, (SIDE - 2) / 10), order=3), 0.0, 1.0).astype(np.float32)
    found = np.zeros((count, SIDE, SIDE), dtype=np.float32)
    chosen, corners = rng.integers(len(large), size=count), rng.integers(3, size=(count, 2))
    for i, (number, (top, left)) in enumerate(zip(chosen, corners, strict=True)):
        found[i, top : top + SIDE - 2, left : left + SIDE - 2] = large[number]
    return found.reshape(count, SIDE * SIDE)


def run(tell: Callable[[str], object] = lambda _: None) -> Demo:
    """Learn everything; `tell` is called with what comes next."""
    with suited_threads(0):  # on a busy machine too
        return _run(tell)


def _run(tell: Callable[[str], object]) -> Demo:
    tell("compiling, once after installing")
    X = pictures(STAGES[-1])
    warm = OnlinePCA(_K).partial_fit(X[:_ROWS]).partial_fit(X[_ROWS : 2 * _ROWS])
    assert len(warm.components_) == _K
    tell("components form")
    forming = form(X)
    tell("a stream drifts")
    drifting = drift()
    tell("holes are filled")
    return Demo(forming, drifting, fill(X[:_HOLED]))


def form(X: Array) -> Forming:
    """Learn pictures from a stream, and look at the components on the way."""
    model, seconds, at, found = OnlinePCA(_K), 0.0, 0, []
    for stage in STAGES:
        began = time.perf_counter()
        while at < stage:
            model.partial_fit(X[at : min(at + _ROWS, stage)])
            at = min(at + _ROWS, stage)
        seconds += time.perf_counter() - began
        found.append(np.asarray(model.components_, dtype=np.float64))
    apart = X - X.mean(axis=0)
    batch = np.asarray(eigh(apart.T @ apart, subset_by_index=(X.shape[1] - _K, X.shape[1] - 1))[1].T[::-1], dtype=np.float64)
    errors = [subspace_error(components.T, batch[: len(components)].T) for components in found]
    strips = []
    for components in found:
        signs = np.sign(np.sum(components[:SHOWN] * batch[: len(components)][:SHOWN], axis=1))
        strips.append(components[:SHOWN] * signs[:, np.newaxis])
    return Forming(strips, errors, batch[:SHOWN], seconds)


def drift() -> Drifting:
    """Monitor sensors that follow three hidden causes; one slips by three standard deviations."""
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((_LENGTH, 3)) @ rng.standard_normal((3, _SENSORS)) + 0.5 * rng.standard_normal((_LENGTH, _SENSORS))
    rows[_CHANGE:, _SLIPS] += 3.0 * rows[:_CHANGE, _SLIPS].std()
    monitor = Monitor(OnlinePCA(3), learn_outliers=False)
    found = monitor.update(rows)
    return Drifting(found.spe / found.spe_limit, list(monitor.alarms))


def fill(X: Array) -> Filling:
    """Learn from pictures of which most pixels are missing, and fill these."""
    holed = np.where(np.random.default_rng(1).random(X.shape) < _GONE, np.float32(np.nan), X)
    model = OnlinePCA(_K, missing="impute")
    for start in range(0, len(holed), _ROWS):
        model.partial_fit(holed[start : start + _ROWS])
    last = slice(len(X) - 100, len(X))
    filled, gone = np.asarray(model.impute(holed[last])), np.isnan(holed[last])
    error = float(np.sqrt(np.mean((filled - X[last])[gone] ** 2) / np.var(X[last][gone])))
    seen, made, true = (np.asarray(rows[:_FILLED], dtype=np.float64) for rows in (holed[last], filled, X[last]))
    return Filling(seen, made, true, error)


def sentences(demo: Demo) -> list[str]:
    """The results in three lines."""
    forming, alarms = demo.forming, demo.drifting.alarms
    late = [alarm for alarm in alarms if alarm.row >= _CHANGE]
    drifted = "the sensor that slips was not found"
    if late and late[0].features:
        (sensor, share), after = late[0].features[0], late[0].row - _CHANGE + 1
        drifted = f"a sensor slips: found {after} rows later, {late[0].kind}, {100 * share:.0f} % sensor {sensor}"
        drifted += f"; {len(alarms) - len(late)} false alarms"
    pictures = f"{STAGES[-1]:,} pictures of {SIDE} × {SIDE} in {forming.seconds:.2f} s"
    return [
        f"components  {pictures}; {100 * forming.errors[-1]:.1g} % from batch PCA",
        f"drift       {drifted}",
        f"holes       {100 * _GONE:.0f} % of the pixels missing; filled with an error of {demo.filling.error:.2f} deviations",
    ]


def draw(demo: Demo, path: Path) -> None:
    """Draw the picture."""
    from matplotlib import style

    with style.context("dark_background"):
        figure: Any = new_figure(12, 11)
        figure.suptitle("online-psp: a stream, learned as it passes", fontsize=18, fontweight="bold")
        top, bottom = figure.subfigures(2, height_ratios=(2.2, 1))
        left, right = bottom.subfigures(1, 2, width_ratios=(1.3, 1))
        _draw_forming(top, demo.forming)
        _draw_drifting(left, demo.drifting)
        _draw_filling(right, demo.filling)
        figure.savefig(path, dpi=130)


def _draw_forming(figure: Any, forming: Forming) -> None:
    figure.suptitle(f"Principal components form from {STAGES[-1]:,} handwritten digits, seen once each")
    names = [f"after {stage:,}\n{100 * error:.2g} % error" for stage, error in zip(STAGES, forming.errors, strict=True)]
    grid = figure.subplots(SHOWN, len(STAGES) + 1)
    for column, components, name in zip(grid.T, [*forming.strips, forming.batch], [*names, "batch PCA\nall at once"], strict=True):
        column[0].set_title(name, fontsize=11)
        for axes in column:
            axes.set_axis_off()
        for axes, component in zip(column, components, strict=False):
            most = np.abs(component).max()
            axes.imshow(component.reshape(SIDE, SIDE), cmap="RdBu_r", vmin=-most, vmax=most, interpolation="bicubic")


def _draw_drifting(figure: Any, drifting: Drifting) -> None:
    figure.suptitle("The stream drifts, and says so")
    axes, ratio = figure.subplots(), drifting.ratio
    for chosen, colour in ((ratio <= 1.0, "C0"), (ratio > 1.0, "C1")):
        axes.semilogy(np.flatnonzero(chosen), ratio[chosen], ".", color=colour, markersize=3)
    axes.axvline(_CHANGE, color="0.6", linewidth=0.8, label=f"sensor {_SLIPS} slips by three deviations")
    for alarm in drifting.alarms:
        named = f", {100 * alarm.features[0][1]:.0f} % sensor {alarm.features[0][0]}" if alarm.features else ""
        axes.axvline(alarm.row, color="C1", label=f"alarm {alarm.row - _CHANGE + 1} rows later: {alarm.kind}{named}")
    axes.set(xlabel="row", ylabel="distance from the subspace / its limit")
    axes.legend(loc="upper left", fontsize=9)


def _draw_filling(figure: Any, filling: Filling) -> None:
    figure.suptitle(f"Holes are filled: {100 * _GONE:.0f} % of the pixels missing, in learning too")
    for line, name, rows in zip(figure.subplots(3, _FILLED), ("seen", "filled", "true"), filling[:3], strict=True):
        line[0].set_ylabel(name)
        for axes, row in zip(line, rows, strict=True):
            axes.imshow(row.reshape(SIDE, SIDE), cmap="inferno", vmin=0.0, vmax=1.0)
            axes.set(xticks=[], yticks=[])
