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

SIDE = 32
"""Height and width of a picture."""
SHOWN = 4
"""Components to draw."""
STAGES = (20, 80, 320, 1280, 5120, 12_000)
"""Numbers of pictures after which components are drawn."""
_K, _ROWS = 16, 500
_SENSORS, _CHANGE, _LENGTH, _SLIPS = 12, 1500, 2300, 6
_GONE, _HOLED, _FILLED = 0.7, 2000, 6

_WIDTH, _HEIGHT = 12.0, 11.3  # of the picture, in inches
_PAPER, _INK, _QUIET, _MARK, _CALM = "#0f1420", "#e8ecf4", "#8b95a9", "#ff8c5a", "#58b4ff"


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
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, _HEIGHT), facecolor=_PAPER)
    FigureCanvasAgg(figure)
    figure.text(0.04, 0.966, "A stream, learned as it passes", color=_INK, fontsize=23, fontweight="bold", va="center")
    figure.text(0.04, 0.939, "online-psp: one pass, constant memory, on a laptop", color=_QUIET, fontsize=12, va="center")
    _draw_forming(figure, demo.forming)
    _draw_drifting(figure, demo.drifting)
    _draw_filling(figure, demo.filling)
    figure.savefig(path, dpi=150, facecolor=_PAPER)


def _draw_forming(figure: Any, forming: Forming) -> None:
    _title(figure, 0.04, 0.897, "Principal components form from pictures", f"{STAGES[-1]:,} handwritten digits, seen once each")
    columns = [
        *zip([f"after {stage:,}" for stage in STAGES], forming.strips, forming.errors, strict=True),
        ("batch PCA", forming.batch, None),
    ]
    across, tall, top = 0.114, 0.114 * _WIDTH / _HEIGHT, 0.84
    for c, (name, components, error) in enumerate(columns):
        left = 0.04 + c * (across + 0.012) + (0.038 if error is None else 0.0)
        figure.text(
            left + across / 2, top + 0.008, name, color=_INK, fontsize=11, ha="center", fontweight="bold" if error is None else None
        )
        for r, component in enumerate(components):
            axes = figure.add_axes((left, top - (r + 1) * (tall + 0.006) + 0.006, across, tall))
            _image(axes, component.reshape(SIDE, SIDE), _signed(), np.abs(component).max())
        what = "all pictures at once" if error is None else f"{100 * error:.0f} % error" if error > 0.1 else f"{100 * error:.1g} % error"
        figure.text(left + across / 2, top - SHOWN * (tall + 0.006) - 0.012, what, color=_QUIET, fontsize=10, ha="center")


def _signed() -> Any:
    """Colours for values of either sign, around those of the paper."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("signed", ["#e4f4ff", _CALM, "#1d4f7c", "#182032", "#803a22", _MARK, "#fff0e6"])


def _draw_drifting(figure: Any, drifting: Drifting) -> None:
    _title(figure, 0.04, 0.262, "The stream drifts, and says so", "distance of each row from the subspace, in units of its limit")
    axes = figure.add_axes((0.065, 0.045, 0.46, 0.175), facecolor=_PAPER)
    ratio, rows = drifting.ratio, np.arange(len(drifting.ratio))
    above = ratio > 1.0
    axes.semilogy(rows[~above], ratio[~above], ".", color=_CALM, markersize=2.2, alpha=0.55, markeredgewidth=0)
    axes.semilogy(rows[above], ratio[above], ".", color=_MARK, markersize=4.5, alpha=0.9, markeredgewidth=0)
    axes.axhline(1.0, color=_QUIET, linewidth=0.8, linestyle=(0, (4, 3)))
    low, high = 0.03, 60.0
    axes.axvline(_CHANGE, color=_QUIET, linewidth=0.8)
    axes.text(_CHANGE - 30, 0.8 * high, f"sensor {_SLIPS} slips by three deviations", color=_QUIET, fontsize=10, ha="right", va="top")
    for alarm in drifting.alarms:
        axes.axvline(alarm.row, color=_MARK, linewidth=1.4)
        named = f", {100 * alarm.features[0][1]:.0f} % sensor {alarm.features[0][0]}" if alarm.features else ""
        words = f"alarm {alarm.row - _CHANGE + 1} rows later:\n{alarm.kind}{named}"
        axes.text(alarm.row + 30, 0.8 * high, words, color=_MARK, fontsize=10, va="top", fontweight="bold", linespacing=1.3)
    axes.set(xlim=(0, len(ratio)), ylim=(low, high))
    axes.tick_params(colors=_QUIET, labelsize=9, which="both", length=0)
    axes.set_yticks([0.1, 1, 10], ["0.1", "limit", "10"])
    axes.minorticks_off()
    axes.xaxis.set_major_formatter("{x:,.0f}")
    for side in axes.spines.values():
        side.set_visible(False)


def _draw_filling(figure: Any, filling: Filling) -> None:
    _title(figure, 0.575, 0.262, "Holes are filled", f"{100 * _GONE:.0f} % of the pixels missing, in learning too")
    across, tall = 0.052, 0.052 * _WIDTH / _HEIGHT
    for r, (name, rows) in enumerate((("seen", filling.seen), ("filled", filling.filled), ("true", filling.true))):
        bottom = 0.163 - r * tall * 1.06
        figure.text(0.62, bottom + tall / 2, name, color=_QUIET, fontsize=10, ha="right", va="center")
        for c, row in enumerate(rows):
            axes = figure.add_axes((0.628 + c * across * 1.06, bottom, across, tall))
            _image(axes, row.reshape(SIDE, SIDE), "inferno", 1.0)


def _title(figure: Any, left: float, top: float, title: str, more: str) -> None:
    figure.text(left, top, title, color=_INK, fontsize=14, fontweight="bold", va="center")
    figure.text(left, top - 0.022, more, color=_QUIET, fontsize=10.5, va="center")


def _image(axes: Any, values: Floats, colours: Any, most: float) -> None:
    """A picture without axes; missing pixels are left dark."""
    low, way = 0.0 if isinstance(colours, str) else -most, "nearest" if np.isnan(values).any() else "bicubic"
    axes.imshow(values, cmap=colours, vmin=low, vmax=most, interpolation=way)
    axes.set_facecolor("#1f2738")
    axes.set_xticks([])
    axes.set_yticks([])
    for side in axes.spines.values():
        side.set_visible(False)
