"""Pictures. Every function takes rows and returns a matplotlib Figure; nothing is computed here that the rows do not contain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from online_psp.datasets.images import ImageLayout
from online_psp.suite.methods import MEMORY
from online_psp.suite.rows import Row, by, distinct, median, select
from online_psp.suite.speed import METRIC, WAYS
from online_psp.suite.tables import EXACT, SPREAD, chosen_moments, curves_of, kind_of, scores, spent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS: Mapping[str, str] = {
    "IPCA": "#0072B2",
    "CCIPCA": "#D55E00",
    "FSM γ=0.6": "#009E73",
    "FSM γ=1.5": "#E69F00",
    "FSM γ=2.0": "#CC79A7",
    "FSM": "#009E73",
    "SM": "#56B4E9",
    "SM γ=0.6": "#56B4E9",
    "OnlinePCA": "#000000",
    "IncrementalPCA": "#B2182B",
    "proSVD": "#7B5BA6",
}
_MORE_COLOURS = ("#7F3C8D", "#A5AA99", "#3969AC", "#80BA5A", "#E68310", "#CF1C90", "#8C6D31", "#4B4B8F", "#66C2A5", "#B15928")
_CURVE_MARKERS: Mapping[str, str] = {"IPCA": "s", "CCIPCA": "D", "FSM γ=0.6": "o", "FSM γ=1.5": "^", "FSM γ=2.0": "v", "OnlinePCA": "*"}
_WAY_TITLES = {"published": "as published, one at a time", "fit_next": "fit_next, one at a time", "fit_block": "fit_block, in blocks"}
_FLOOR = 1e-6
_SETTINGS = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "lines.markersize": 4,
}


def style() -> AbstractContextManager[None]:
    """The style of the pictures, as a context manager."""
    from matplotlib import rc_context

    settings: Any = _SETTINGS
    return rc_context(settings)


def new_figure(width: float, height: float) -> Figure:
    """A figure without a window."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save(figure: Figure, path: Path) -> Path:
    """Write a figure; the same figure gives the same bytes."""
    with style():
        figure.savefig(path, dpi=150)
    return path


def colours_of(labels: Iterable[str]) -> dict[str, str]:
    """A colour for each curve: its fixed one, if it has one."""
    more = cycle(_MORE_COLOURS)
    return {label: COLOURS[label] if label in COLOURS else next(more) for label in labels}


def plain(text: str) -> str:
    """A user's name, escaped: a dollar sign begins no formula, and a leading underscore does not hide it from the legend."""
    return f"{' ' if text.startswith('_') else ''}{text}".replace("$", r"\$")


def _legend(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))


# The paper's figures


def fig1(rows: Sequence[Row]) -> Figure:
    """Time per sample against K: a row of panels for each D, a column for each way of running."""
    rows = select(rows, metric=METRIC)
    sizes = distinct(rows, "D")
    with style():
        figure = new_figure(11, 3.2 * len(sizes) + 0.6)
        grid = figure.subplots(len(sizes), len(WAYS), sharex=True, sharey=True, squeeze=False)
        for line, D in zip(grid, sizes, strict=True):
            for axes, way in zip(line, WAYS, strict=True):
                _timing_panel(axes, select(rows, D=D, kind=way))
                axes.set_title(f"D = {D}: {_WAY_TITLES[way]}")
            line[0].set_ylabel("seconds per sample")
        several = sorted(distinct(rows, "K"))
        for axes in grid[-1]:
            axes.set_xlabel("K")
            axes.set_xticks(several, [str(K) for K in several], minor=False)
        _legend(figure, grid[0, 0])
    return figure


def _timing_panel(axes: Axes, rows: Sequence[Row]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    for (algorithm,), mine in by(rows, "algorithm").items():
        seconds = {K: median(row.value for row in some) for (K,), some in by(mine, "K").items()}
        axes.plot(list(seconds), list(seconds.values()), "o-", color=COLOURS[algorithm.upper()], label=algorithm.upper())
        if algorithm == "fsm":
            K = np.array(list(seconds), dtype=float)
            for power, dashes, name in ((1, ":", "O(K)"), (2, "--", "O(K²)")):
                axes.plot(K, 0.5 * seconds[int(K[0])] * (K / K[0]) ** power, dashes, color="0.6", linewidth=1, label=name)


def _curve(axes: Axes, points: Sequence[Row], x: str, label: str, colour: str, marker: str | None = None) -> None:
    """The median of several trials, with the range between the quartiles."""
    series = {place: [row.value for row in some] for (place,), some in sorted(by(points, x).items())}
    if not series:
        return
    low, high = ([float(np.quantile(values, q)) for values in series.values()] for q in (0.25, 0.75))
    over = label in ("IPCA", "CCIPCA")  # dashed and on top, so that they can be seen on another curve
    middle = [median(values) for values in series.values()]
    axes.plot(
        list(series), middle, color=colour, label=plain(label), marker=marker, linestyle="--" if over else "-", zorder=3 if over else 2
    )
    axes.fill_between(list(series), low, high, color=colour, alpha=0.15, linewidth=0)


def _spread(axes: Axes, points: Sequence[Row], x: str, colour: str) -> None:
    """The range of runs on perturbed data, hatched: within it rounding decides."""
    ranges = {place: [row.value for row in some] for (place,), some in sorted(by(points, x).items())}
    if ranges:
        low, high = [min(values) for values in ranges.values()], [max(values) for values in ranges.values()]
        axes.fill_between(list(ranges), low, high, facecolor="none", edgecolor=colour, hatch="////", linewidth=0.0, alpha=0.6)


def fig2(rows: Sequence[Row]) -> Figure:
    """Errors against noise: Err_batch above, Err_pop below, a column for each (D, K)."""
    sizes = list(by(rows, "D", "K"))
    with style():
        figure = new_figure(3.0 * len(sizes) + 0.6, 6.2)
        grid = figure.subplots(2, len(sizes), sharex=True, sharey="row", squeeze=False)
        for line, metric, name in zip(grid, ("err_batch", "err_pop"), ("Err_batch", "Err_pop"), strict=True):
            for axes, (D, K) in zip(line, sizes, strict=True):
                panel = select(rows, D=D, K=K, metric=metric)
                axes.set_xscale("log")
                axes.set_yscale("log")
                for label, colour in colours_of(curves_of(rows)).items():
                    _curve(axes, select(panel, label=label), "rho", label, colour, _CURVE_MARKERS.get(label, "."))
                    _spread(axes, select(panel, label=label + SPREAD), "rho", colour)
                if metric == "err_batch":
                    axes.set_title(f"D = {D}, K = {K}")
            line[0].set_ylabel(name)
        for axes in grid[-1]:
            axes.set_xlabel("noise ρ")
        _legend(figure, grid[0, 0])
    return figure


def error_panel(axes: Axes, rows: Sequence[Row], colours: Mapping[str, str]) -> None:
    """Errors against samples seen, the median of the trials of each curve."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    for label, colour in colours.items():
        mine = select(rows, label=label)
        _curve(axes, mine, "t", label, colour)
        _spread(axes, select(rows, label=label + SPREAD), "t", colour)
        exact = [t for (t,), some in sorted(by(mine, "t").items()) if median(row.value for row in some) < EXACT]
        if exact and exact[-1] == max(row.t for row in mine):
            right = exact[0] ** 2 > mine[0].t * exact[-1]  # of the middle of the panel
            note = f"{plain(label)}: exact ↓" if right else f"↓ {plain(label)}: exact"
            place, side = (exact[0], 0.12), "right" if right else "left"
            axes.annotate(note, place, xycoords=("data", "axes fraction"), color=colour, fontsize=7, ha=side)
    N, end = rows[0].N, max(row.t for row in rows)
    if end > N:  # the end of the first pass
        axes.axvline(N, color="0.5", linestyle=":", linewidth=1)


def _keep_inexact(axes: Axes, rows: Sequence[Row]) -> None:
    """Let lines that reach the batch solution leave the plot, because otherwise the others cannot be seen."""
    inexact = [row.value for row in rows if row.value >= EXACT]
    if inexact and len(inexact) < len(rows):
        axes.set_ylim(0.5 * min(inexact), 1.5 * max(inexact))


def fig3(rows: Sequence[Row]) -> Figure:
    """Err_batch against samples seen: a row of panels for each K, a column for each data set."""
    rows = select(rows, metric="err_batch")
    sets, several, colours = distinct(rows, "data"), sorted(distinct(rows, "K")), colours_of(curves_of(rows))
    with style():
        figure = new_figure(3.7 * len(sets), 2.7 * len(several) + 0.6)
        grid = figure.subplots(len(several), len(sets), sharex="col", sharey=True, squeeze=False)
        for line, K in zip(grid, several, strict=True):
            for axes, name in zip(line, sets, strict=True):
                panel = select(rows, data=name, K=K)
                axes.set_title(f"{name.upper()}, K = {K}{'' if panel else ': not run'}")
                if panel:
                    error_panel(axes, panel, colours)
            line[0].set_ylabel("Err_batch")
        _keep_inexact(grid[0, 0], rows)  # the panels share their axes
        for axes in grid[-1]:
            axes.set_xlabel("samples seen")
        _legend(figure, grid[0, 0])
    return figure


def fig4(rows: Sequence[Row], albums: Mapping[str, Mapping[str, NDArray[Any]]], layouts: Mapping[str, ImageLayout]) -> Figure:
    """The error with reconstructions at several moments, beside batch PCA and the original: a row for each data set.

    Parameters
    ----------
    rows : sequence of Row
    albums : mapping
        Arrays of the pictures, by the key of the record.
    layouts : mapping
        Layout of the images, by the name of the data set.
    """
    panels = by(select(rows, metric="err_batch"), "data")
    with style():
        shown = max(len(chosen_moments(mine)) for mine in panels.values())
        figure = new_figure(13.5, 2.6 * len(panels))
        grid = figure.subplots(len(panels), shown + 3, squeeze=False, width_ratios=[2.4] + [1.0] * (shown + 2))
        for line, ((name,), mine) in zip(grid, panels.items(), strict=True):
            picked, album, first = chosen_moments(mine), albums[mine[0].key], mine[0]
            error_panel(line[0], mine, {first.label: COLOURS.get(first.label, "#009E73")})
            line[0].axhline(0.2, color="0.5", linestyle="--", linewidth=1)
            line[0].plot([row.t for row in picked], [row.value for row in picked], "o", color="#D55E00")
            line[0].set(title=f"{name.upper()}, {first.label}, K = {first.K}", xlabel="samples seen", ylabel="Err_batch")
            titled = {f"t = {row.t}\nErr = {row.value:.2f}": album[f"t{row.t}"] for row in picked}
            titled |= {"batch PCA": album["batch"], "original": album["original"]}
            low, high = float(album["original"].min()), float(album["original"].max())
            for axes in line[1:]:
                axes.set_axis_off()
            for axes, (title, pixels) in zip(line[1:], titled.items(), strict=False):
                axes.imshow(layouts[name].image(pixels), cmap="gray", vmin=low, vmax=high, interpolation="nearest")
                axes.set_title(title, fontsize=8)
    return figure


# Evaluations


def evaluation(rows: Sequence[Row]) -> Figure:
    """Error against samples seen for all methods on one data set; on a track, relative to the present subspace."""
    first, track = rows[0], rows[0].track
    rows = select(rows, metric="err_present" if track else "err_batch")
    with style():
        figure = new_figure(7.5, 4.5)
        axes = figure.subplots()
        error_panel(axes, rows, colours_of(distinct(rows, "label")))
        _keep_inexact(axes, rows)
        if track:
            axes.set_xscale("linear")
        axes.set_title(f"{plain(Path(first.data).name)}{', ' + track if track else ''}: {first.N} × {first.D}, K = {first.K}")
        axes.set_xlabel("samples seen")
        axes.set_ylabel("error to the present subspace" if track else "Err_batch")
        figure.legend(loc="outside right upper")
    return figure


def error_against_time(rows: Sequence[Row]) -> Figure:
    """Error against time per sample on one set and track, lower left is better; names stand at the right, in the order of the errors.

    Each point is a setting of a method. A line joins the settings that none of the same method beats in both; the others are faint.
    Errors below 1e-6 are rounding, and drawn at the lower edge.
    """
    first, families = rows[0], dict[str, list[tuple[float, float]]]()
    for label, score in scores(rows).items():
        family = label.partition(" (")[0] + (", all rows in memory" if kind_of(rows, label) == MEMORY else "")
        families.setdefault(family, []).append((1e6 * spent(rows, label), max(score.value, _FLOOR)))
    with style():
        figure = new_figure(8.0, max(4.2, 0.24 * len(families) + 1.0))
        axes = figure.subplots()
        axes.set_xscale("log")
        axes.set_yscale("log")
        for family, colour in colours_of(families).items():
            points = sorted(families[family])
            best = [point for i, point in enumerate(points) if all(point[1] < other[1] for other in points[:i])]
            axes.plot(*zip(*best, strict=True), "o-", color=colour, linewidth=1.2, markersize=9 if family == "OnlinePCA" else 5)
            axes.plot(*zip(*points, strict=True), "o", color=colour, alpha=0.25, markersize=4)
        low, high = np.log(axes.get_ylim())
        ends = {family: min(points, key=lambda point: point[1]) for family, points in families.items()}
        ends = dict(sorted(ends.items(), key=lambda item: item[1][1]))  # from below
        wanted = [float((np.log(y) - low) / (high - low)) for _, y in ends.values()]
        for (family, end), place in zip(ends.items(), _apart(wanted, 0.055), strict=True):
            colour, arrow = colours_of(families)[family], {"arrowstyle": "-", "linewidth": 0.5, "alpha": 0.6}
            arrow["color"] = colour
            axes.annotate(plain(family), end, (1.03, place), textcoords="axes fraction", color=colour, va="center", arrowprops=arrow)
        track = f", {first.track}" if first.track else ""
        axes.set_title(f"{plain(Path(first.data).name)}{track}: {first.N:,} × {first.D}, K = {first.K}")
        axes.set_xlabel("µs per sample")
        axes.set_ylabel("error")
    return figure


def _apart(places: Sequence[float], least: float) -> list[float]:
    """Ascending places from 0 to 1, moved apart by at least so much."""
    least = min(least, 1.0 / max(1, len(places) - 1))
    found = list[float]()
    for place in places:
        found.append(max(place, found[-1] + least) if found else max(0.0, place))
    top = 1.0
    for i in reversed(range(len(found))):
        found[i] = top = min(found[i], top)
        top -= least
    return found
