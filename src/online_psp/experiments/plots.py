"""Plots. Every function takes rows and returns a matplotlib Figure; nothing is computed here that the rows do not contain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from online_psp.datasets import ImageLayout
from online_psp.engine.extras import need_matplotlib
from online_psp.experiments.rows import Row, distinct, median, select
from online_psp.experiments.tables import EXACT, SPREAD, chosen_moments, curves_of
from online_psp.experiments.timing import WAYS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from online_psp.experiments.leaderboard import Board

COLOURS: Mapping[str, str] = {
    "IPCA": "#0072B2",
    "CCIPCA": "#D55E00",
    "FSM γ=0.6": "#009E73",
    "FSM γ=1.5": "#E69F00",
    "FSM γ=2.0": "#CC79A7",
    "SM γ=0.6": "#56B4E9",
    "OnlinePCA": "#000000",
}
_MORE_COLOURS = ("#7F3C8D", "#A5AA99", "#3969AC", "#80BA5A", "#E68310", "#CF1C90")
_MARKERS: Mapping[str, str] = {"IPCA": "s", "CCIPCA": "D", "FSM γ=0.6": "o", "FSM γ=1.5": "^", "FSM γ=2.0": "v", "OnlinePCA": "*"}
_TIMED = {"sm": "#56B4E9", "fsm": "#009E73", "ipca": "#0072B2", "ccipca": "#D55E00"}
_WAY_TITLES = {"published": "as published, one at a time", "fit_next": "fit_next, one at a time", "fit_block": "fit_block, in blocks"}
_SETTINGS: Mapping[str, Any] = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "lines.markersize": 4,
    "svg.hashsalt": "online-psp",
}


def style() -> AbstractContextManager[None]:
    """The style of the plots, as a context manager."""
    need_matplotlib("A picture")
    from matplotlib import rc_context

    settings: Any = dict(_SETTINGS)
    return rc_context(settings)


def new_figure(width: float, height: float) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save(figure: Figure, path: Path) -> Path:
    """Write a figure in the format of the file name; the same figure gives the same bytes."""
    with style():
        figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
    return path


def colours_of(labels: Iterable[str]) -> dict[str, str]:
    """A colour for each curve: its fixed one, if it has one."""
    more = cycle(_MORE_COLOURS)
    return {label: COLOURS[label] if label in COLOURS else next(more) for label in labels}


def plain(text: str) -> str:
    """A user's name, escaped: a dollar sign begins no formula, and a leading underscore does not hide it from the legend."""
    return f"{' ' if text.startswith('_') else ''}{text}".replace("$", r"\$")


def _log_ticks(axes: Axes, values: Sequence[int]) -> None:
    axes.set_xticks(values, [str(value) for value in values])
    axes.minorticks_off()


def _plain_numbers(axes: Axes) -> None:
    """Write 0.2, not 2 × 10⁻¹, on an axis of errors that spans little more than a decade."""
    from matplotlib.ticker import NullLocator

    low, high = axes.get_ylim()
    if high < 30 * low:
        shown = [value for value in (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 1.0) if low <= value <= high]
        axes.set_yticks(shown, [f"{value:g}" for value in shown])
        axes.yaxis.set_minor_locator(NullLocator())


def fig1(rows: Sequence[Row]) -> Figure:
    """Time per sample against K: a row of panels for each D, a column for each way of running."""
    rows = select(rows, metric="seconds_per_sample")
    sizes = [int(str(D)) for D in distinct(rows, "D")]
    with style():
        figure = new_figure(11, 3.2 * len(sizes) + 0.6)
        grid = figure.subplots(len(sizes), len(WAYS), sharex=True, sharey=True, squeeze=False)
        for line, D in zip(grid, sizes, strict=True):
            for axes, way in zip(line, WAYS, strict=True):
                _timing_panel(axes, [row for row in select(rows, D=D) if row.label.endswith(way)])
                axes.set_title(f"D = {D}: {_WAY_TITLES[way]}")
            line[0].set_ylabel("seconds per sample")
        for axes in grid[-1]:
            axes.set_xlabel("K")
        _log_ticks(grid[0, 0], sorted({row.K for row in rows}))
        handles, labels = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=6)
    return figure


def _timing_panel(axes: Axes, rows: Sequence[Row]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    for algorithm, colour in _TIMED.items():
        mine = select(rows, algorithm=algorithm)
        several = sorted({row.K for row in mine})
        seconds = [median(row.value for row in select(mine, K=K)) for K in several]
        axes.plot(several, seconds, "o-", color=colour, label=algorithm.upper())
    mine = select(rows, algorithm="fsm")
    if mine:
        K = np.array(sorted({row.K for row in mine}), dtype=float)
        start = median(row.value for row in select(mine, K=int(K[0])))
        for power, style in ((1, ":"), (2, "--")):
            label = "O(K²)" if power == 2 else "O(K)"
            axes.plot(K, 0.5 * start * (K / K[0]) ** power, style, color="0.6", linewidth=1, label=label)


def _curve(axes: Axes, x: Sequence[float], series: Sequence[Sequence[float]], label: str, colour: str, marker: str | None) -> None:
    """The median of several trials, with the range between the quartiles."""
    middle = [median(values) for values in series]
    low, high = ([float(np.quantile(values, q)) for values in series] for q in (0.25, 0.75))
    over = label.endswith("PCA") and label != "OnlinePCA"  # dashed and on top, so that it can be seen on another curve
    axes.plot(x, middle, color=colour, label=plain(label), marker=marker, linestyle="--" if over else "-", zorder=3 if over else 2)
    axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)


def _spread(axes: Axes, points: Sequence[tuple[float, float]], colour: str) -> None:
    """The range of runs on perturbed data, hatched: within it rounding decides."""
    places = sorted({x for x, _ in points})
    if places:
        ranges = [[y for x, y in points if x == place] for place in places]
        low, high = [min(values) for values in ranges], [max(values) for values in ranges]
        axes.fill_between(places, low, high, facecolor="none", edgecolor=colour, hatch="////", linewidth=0.0, alpha=0.6)


def fig2(rows: Sequence[Row]) -> Figure:
    """Errors against noise: Err_batch above, Err_pop below, a column for each (D, K)."""
    sizes = list(dict.fromkeys((row.D, row.K) for row in rows))
    colours = colours_of(curves_of(rows))
    with style():
        figure = new_figure(3.0 * len(sizes) + 0.6, 6.2)
        grid = figure.subplots(2, len(sizes), sharex=True, sharey="row", squeeze=False)
        for line, metric, name in zip(grid, ("err_batch", "err_pop"), ("Err_batch", "Err_pop"), strict=True):
            for axes, (D, K) in zip(line, sizes, strict=True):
                panel = select(rows, D=D, K=K, metric=metric)
                for label, colour in colours.items():
                    mine = select(panel, label=label)
                    noise = sorted({row.rho for row in mine})
                    series = [[row.value for row in select(mine, rho=rho)] for rho in noise]
                    _curve(axes, noise, series, label, colour, _MARKERS.get(label, "."))
                    _spread(axes, [(row.rho, row.value) for row in select(panel, label=label + SPREAD)], colour)
                axes.set_xscale("log")
                axes.set_yscale("log")
                if metric == "err_batch":
                    axes.set_title(f"D = {D}, K = {K}")
            line[0].set_ylabel(name)
        for axes in grid[-1]:
            axes.set_xlabel("noise ρ")
        handles, labels = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return figure


def error_panel(axes: Axes, rows: Sequence[Row], colours: Mapping[str, str]) -> None:
    """Err_batch against samples seen, the median of the trials of each curve."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    for label, colour in colours.items():
        mine = select(rows, label=label)
        seen = sorted({row.t for row in mine})
        if seen:
            _curve(axes, seen, [[row.value for row in select(mine, t=t)] for t in seen], label, colour, None)
            _spread(axes, [(row.t, row.value) for row in select(rows, label=label + SPREAD)], colour)
        if seen and median(row.value for row in select(mine, t=seen[-1])) < EXACT:
            _remark_exact(axes, label, colour, seen, [median(row.value for row in select(mine, t=t)) for t in seen])
    N, end = rows[0].N, max(row.t for row in rows)
    if end > N:
        axes.axvline(N, color="0.5", linestyle=":", linewidth=1)
        _remark(axes, (N, 0.02), "one pass", "0.4", ha="left")


def _remark_exact(axes: Axes, label: str, colour: str, seen: Sequence[int], errors: Sequence[float]) -> None:
    """Note that a line leaves the plot, where it does so, on the side that has room."""
    last = max((i for i, error in enumerate(errors) if error >= EXACT), default=-1)  # the last error that is not exact
    if last >= 0 and seen[last] ** 2 >= seen[0] * seen[-1]:
        _remark(axes, (seen[last], 0.12), f"{plain(label)}: exact ↓", colour, ha="right")
    else:
        _remark(axes, (seen[last + 1], 0.12), f"↓ {plain(label)}: exact", colour, ha="left")


def _remark(axes: Axes, place: tuple[float, float], text: str, colour: str, ha: Literal["left", "right"]) -> None:
    """A small text beside a place: x in samples, y in fractions of the panel's height."""
    shift = (3 if ha == "left" else -5, 0)
    axes.annotate(
        text, place, xycoords=("data", "axes fraction"), xytext=shift, textcoords="offset points", color=colour, fontsize=7, ha=ha
    )


def _keep_inexact(axes: Axes, rows: Sequence[Row]) -> None:
    """Let lines that reach the batch solution leave the plot, because otherwise the others cannot be seen."""
    inexact = [row.value for row in rows if row.value >= EXACT]
    if inexact and len(inexact) < len(rows):
        axes.set_ylim(0.5 * min(inexact), 1.5 * max(inexact))


def fig3(rows: Sequence[Row]) -> Figure:
    """Err_batch against samples seen: a row of panels for each K, a column for each data set."""
    rows = select(rows, metric="err_batch")
    sets, several = [str(name) for name in distinct(rows, "data")], sorted({row.K for row in rows})
    colours = colours_of(curves_of(rows))
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
        handles, labels = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
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
    from matplotlib.patheffects import withStroke

    halo = withStroke(linewidth=2.5, foreground="white")  # keeps letters legible on a line
    errors = select(rows, metric="err_batch")
    sets = [str(name) for name in distinct(errors, "data")]
    with style():
        figure = new_figure(13.5, 2.6 * len(sets))
        shown = max(len(chosen_moments(select(errors, data=name))) for name in sets)
        grid = figure.add_gridspec(len(sets), shown + 3, width_ratios=[2.4] + [1.0] * (shown + 2))
        for line, name in enumerate(sets):
            mine = select(errors, data=name)
            picked = chosen_moments(mine)
            axes = figure.add_subplot(grid[line, 0])
            error_panel(axes, mine, {mine[0].label: COLOURS.get(mine[0].label, "#009E73")})
            axes.axhline(0.2, color="0.5", linestyle="--", linewidth=1)
            axes.margins(0.1, 0.12)  # room for the letters
            axes.plot([row.t for row in picked], [row.value for row in picked], "o", color="#D55E00")
            _plain_numbers(axes)
            for letter, row in zip("abcdefg", picked, strict=False):
                axes.annotate(letter, (row.t, row.value), xytext=(4, 4), textcoords="offset points", color="#D55E00", path_effects=[halo])
            axes.set_title(f"{name.upper()}, {mine[0].label}, K = {mine[0].K}")
            axes.set_ylabel("Err_batch")
            axes.set_xlabel("samples seen")
            album = albums[mine[0].key]
            at = {int(t): picture for t, picture in zip(album["moments"], album["pictures"], strict=True)}
            titled = [(f"{letter}: t = {row.t}\nErr = {row.value:.2f}", at[row.t]) for letter, row in zip("abcdefg", picked, strict=False)]
            titled += [("batch PCA", album["batch"]), ("original", album["original"])]
            low, high = float(album["original"].min()), float(album["original"].max())
            for column, (title, pixels) in enumerate(titled, start=1):
                place = figure.add_subplot(grid[line, column if column <= len(picked) else column + shown - len(picked)])
                place.imshow(layouts[name].image(pixels), cmap="gray", vmin=low, vmax=high, interpolation="nearest")
                place.set_axis_off()
                place.set_title(title, fontsize=8)
    return figure


def evaluation(rows: Sequence[Row]) -> Figure:
    """Error against samples seen for all algorithms on one data set; on a track, relative to the present subspace."""
    track = rows[0].track
    rows = select(rows, metric="err_present" if track else "err_batch")
    colours = colours_of(str(label) for label in distinct(rows, "label"))
    with style():
        figure = new_figure(7.5, 4.5)
        axes = figure.subplots()
        error_panel(axes, rows, colours)
        _keep_inexact(axes, rows)
        if track:
            axes.set_xscale("linear")
        first = rows[0]
        axes.set_title(f"{plain(Path(first.data).name)}{', ' + track if track else ''}: {first.N} × {first.D}, K = {first.K}")
        axes.set_xlabel("samples seen")
        axes.set_ylabel("error to the present subspace" if track else "Err_batch")
        figure.legend(loc="outside right upper")
    return figure


def leaderboard(boards: Sequence[Board]) -> Figure:
    """Error against time per sample: one panel per board, one colour and marker per algorithm."""
    labels = list(dict.fromkeys(place.label for board in boards for place in board.places))
    colours, markers = colours_of(labels), dict(zip(labels, cycle("os^vDP*Xh<>"), strict=False))
    columns = min(3, len(boards))
    lines = -(-len(boards) // columns)
    with style():
        figure = new_figure(4.2 * columns, 3.1 * lines + 0.3 * (-(-len(labels) // 4)) + 0.4)
        grid = figure.subplots(lines, columns, squeeze=False).ravel()
        for axes in grid[len(boards) :]:
            axes.set_axis_off()
        for axes, board in zip(grid, boards, strict=False):
            for place in board.places:
                if not np.isnan(place.score.value):
                    low, high = place.score.value - place.score.low, place.score.high - place.score.value
                    bars = np.nan_to_num([[max(low, 0.0)], [max(high, 0.0)]])  # one trial has none
                    look: dict[str, Any] = {"color": colours[place.label], "marker": markers[place.label], "linestyle": ""}
                    axes.errorbar([place.microseconds], [max(place.score.value, 1e-16)], yerr=bars, elinewidth=1, **look)
            axes.set_xscale("log")
            axes.set_yscale("log")
            _plain_numbers(axes)
            axes.set_title(plain(board.name).replace(": ", ":\n", 1), fontsize=8)
            axes.set_xlabel("µs per sample")
            axes.set_ylabel("error")
        from matplotlib.lines import Line2D

        handles = [Line2D([], [], linestyle="", color=colours[label], marker=markers[label], label=plain(label)) for label in labels]
        figure.legend(handles=handles, loc="outside lower center", ncols=min(4, len(handles)))
    return figure
