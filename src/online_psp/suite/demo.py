"""``psp demo``: components form from pictures, a stream drifts, missing values are filled; one picture, on data that needs no download."""

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


def run(path: Path, tell: Callable[[str], object]) -> list[str]:
    """Learn everything and draw the picture; `tell` is called with what comes next. Returns a sentence for each part."""
    from matplotlib import style

    with suited_threads(0), style.context("dark_background"):  # on a busy machine too
        tell("compiling, once after installing")
        X = pictures(STAGES[-1])
        warm = OnlinePCA(_K).partial_fit(X[:_ROWS]).partial_fit(X[_ROWS : 2 * _ROWS])
        assert len(warm.components_) == _K
        figure: Any = new_figure(12, 11)
        figure.suptitle("online-psp: a stream, learned as it passes", fontsize=18, fontweight="bold")
        top, bottom = figure.subfigures(2, height_ratios=(2.2, 1))
        left, right = bottom.subfigures(1, 2, width_ratios=(1.3, 1))
        tell("components form")
        sentences = [_form(top, X)]
        tell("a stream drifts")
        sentences.append(_draw_drifting(left, drift()))
        tell("missing values are filled")
        sentences.append(_draw_filling(right, fill(X[:_HOLED])))
        figure.savefig(path, dpi=130)
    return sentences


def _form(figure: Any, X: Array) -> str:
    """Learn pictures from a stream, and draw the components on the way."""
    apart = X - X.mean(axis=0)
    batch = eigh(apart.T @ apart, subset_by_index=(X.shape[1] - _K, X.shape[1] - 1))[1].T[::-1]
    figure.suptitle(f"Principal components form from {STAGES[-1]:,} handwritten digits, seen once each")
    grid = figure.subplots(SHOWN, len(STAGES) + 1)
    _draw_components(grid[:, -1], "batch PCA\nall at once", batch[:SHOWN])
    model, seconds, at, error = OnlinePCA(_K), 0.0, 0, 1.0
    for stage, column in zip(STAGES, grid.T, strict=False):
        began = time.perf_counter()
        while at < stage:
            model.partial_fit(X[at : min(at + _ROWS, stage)])
            at = min(at + _ROWS, stage)
        seconds += time.perf_counter() - began
        found = np.asarray(model.components_, dtype=np.float64)
        error = subspace_error(found.T, batch[: len(found)].T)
        signs = np.sign(np.sum(found[:SHOWN] * batch[: len(found)][:SHOWN], axis=1))
        _draw_components(column, f"after {stage:,}\n{100 * error:.2g} % error", found[:SHOWN] * signs[:, np.newaxis])
    return f"components  {STAGES[-1]:,} pictures of {SIDE} × {SIDE} in {seconds:.2f} s; {100 * error:.1g} % from batch PCA"


def _draw_components(column: Any, title: str, components: Floats) -> None:
    column[0].set_title(title, fontsize=11)
    for axes in column:
        axes.set_axis_off()
    for axes, component in zip(column, components, strict=False):
        most = np.abs(component).max()
        axes.imshow(component.reshape(SIDE, SIDE), cmap="RdBu_r", vmin=-most, vmax=most, interpolation="bicubic")


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


def _draw_drifting(figure: Any, drifting: Drifting) -> str:
    figure.suptitle("The stream drifts, and says so")
    axes, ratio = figure.subplots(), drifting.ratio
    for chosen, colour in ((ratio <= 1.0, "C0"), (ratio > 1.0, "C1")):
        axes.semilogy(np.flatnonzero(chosen), ratio[chosen], ".", color=colour, markersize=3)
    axes.axvline(_CHANGE, color="0.6", linewidth=0.8, label=f"sensor {_SLIPS} slips by three deviations")
    late = [alarm for alarm in drifting.alarms if alarm.row >= _CHANGE]
    told = "the sensor that slips was not found"
    if late and late[0].features:
        (sensor, share), after = late[0].features[0], late[0].row - _CHANGE + 1
        told = f"a sensor slips: found {after} rows later, {late[0].kind}, {100 * share:.0f} % sensor {sensor}"
        axes.axvline(late[0].row, color="C1", label=f"alarm {after} rows later: {late[0].kind}, {100 * share:.0f} % sensor {sensor}")
    axes.set(xlabel="row", ylabel="distance from the subspace / its limit")
    axes.legend(loc="upper left", fontsize=9)
    return f"drift       {told}; {len(drifting.alarms) - len(late)} false alarms"


def _draw_filling(figure: Any, filling: Filling) -> str:
    figure.suptitle(f"Missing values are filled: {100 * _GONE:.0f} % of the pixels, in learning too")
    for line, name, rows in zip(figure.subplots(3, _FILLED), ("seen", "filled", "true"), filling[:3], strict=True):
        line[0].set_ylabel(name)
        for axes, row in zip(line, rows, strict=True):
            axes.imshow(row.reshape(SIDE, SIDE), cmap="inferno", vmin=0.0, vmax=1.0)
            axes.set(xticks=[], yticks=[])
    return f"missing     {100 * _GONE:.0f} % of the pixels; filled with an error of {filling.error:.2f} deviations"
