"""Pictures. Every function takes rows and returns a matplotlib Figure; nothing is computed here that the rows do not contain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from online_psp.datasets.images import ImageLayout
from online_psp.suite.methods import LOOP, MEMORY, OURS, PEER, YOURS
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
_MORE_COLOURS = ("#7F3C8D", "#A5AA99", "#3969AC", "#80BA5A", "#E68310", "#CF1C90")
_CURVE_MARKERS: Mapping[str, str] = {"IPCA": "s", "CCIPCA": "D", "FSM γ=0.6": "o", "FSM γ=1.5": "^", "FSM γ=2.0": "v", "OnlinePCA": "*"}
_KIND_MARKERS: Mapping[str, str] = {OURS: "o", LOOP: "x", PEER: "s", MEMORY: "D", YOURS: "*"}
_WAY_TITLES = {"published": "as published, one at a time", "fit_next": "fit_next, one at a time", "fit_block": "fit_block, in blocks"}
_FLOOR = 1e-6
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
    """The style of the pictures, as a context manager."""
    from matplotlib import rc_context

    settings: Any = dict(_SETTINGS)
    return rc_context(settings)


def new_figure(width: float, height: float) -> Figure:
    """A figure without a window."""
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


def _plain_numbers(axes: Axes) -> None:
    """Write 0.2, not 2 × 10⁻¹, on an axis of errors that spans little more than a decade."""
    from matplotlib.ticker import NullLocator

    low, high = axes.get_ylim()
    if high < 30 * low:
        shown = [value for value in (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 1.0) if low <= value <= high]
        axes.set_yticks(shown, [f"{value:g}" for value in shown])
        axes.yaxis.set_minor_locator(NullLocator())


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
        for axes in grid[-1]:
            axes.set_xlabel("K")
        several = sorted(distinct(rows, "K"))
        grid[0, 0].set_xticks(several, [str(K) for K in several])
        grid[0, 0].minorticks_off()
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
        middle = {t: median(row.value for row in some) for (t,), some in sorted(by(mine, "t").items())}
        if middle and list(middle.values())[-1] < EXACT:
            _remark_exact(axes, label, colour, list(middle), list(middle.values()))
    N, end = rows[0].N, max(row.t for row in rows)
    if end > N:
        axes.axvline(N, color="0.5", linestyle=":", linewidth=1)
        _remark(axes, (N, 0.02), "one pass", "0.4", ha="left")


def _remark_exact(axes: Axes, label: str, colour: str, seen: Sequence[int], errors: Sequence[float]) -> None:
    """Note that a line leaves the plot, where it does so, on the side that has room."""
    last = max((i for i, error in enumerate(errors) if error >= EXACT), default=-1)
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
    from matplotlib.patheffects import withStroke

    halo = withStroke(linewidth=2.5, foreground="white")  # keeps letters legible on a line
    panels = by(select(rows, metric="err_batch"), "data")
    with style():
        figure = new_figure(13.5, 2.6 * len(panels))
        shown = max(len(chosen_moments(mine)) for mine in panels.values())
        grid = figure.add_gridspec(len(panels), shown + 3, width_ratios=[2.4] + [1.0] * (shown + 2))
        for line, ((name,), mine) in enumerate(panels.items()):
            picked, album = chosen_moments(mine), albums[mine[0].key]
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
            titled = [
                (f"{letter}: t = {row.t}\nErr = {row.value:.2f}", album[f"t{row.t}"])
                for letter, row in zip("abcdefg", picked, strict=False)
            ]
            titled += [("batch PCA", album["batch"]), ("original", album["original"])]
            low, high = float(album["original"].min()), float(album["original"].max())
            for column, (title, pixels) in enumerate(titled, start=1):
                place = figure.add_subplot(grid[line, column if column <= len(picked) else column + shown - len(picked)])
                place.imshow(layouts[name].image(pixels), cmap="gray", vmin=low, vmax=high, interpolation="nearest")
                place.set_axis_off()
                place.set_title(title, fontsize=8)
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
    """Error against time per sample, lower left is better: one panel for each set and track, one colour for each family of methods.

    Settings of one method are joined by a line: ways of running one algorithm differ in time alone. Errors below 1e-6 are rounding, and
    drawn at the lower edge.
    """
    from matplotlib.lines import Line2D

    panels = by(rows, "data", "track", "N", "D", "rho", "K")
    families = list(dict.fromkeys(family_of(label) for label in distinct(rows, "label")))
    colours, columns = colours_of(families), min(3, len(panels))
    lines = -(-len(panels) // columns)
    with style():
        figure = new_figure(max(4.6 * columns, 7.5), 4.0 * lines + 0.25 * -(-len(families) // 4) + 0.6)
        grid = figure.subplots(lines, columns, squeeze=False).ravel()
        for axes in grid[len(panels) :]:
            axes.set_axis_off()
        for axes, ((data, track, N, D, _, K), mine) in zip(grid, panels.items(), strict=False):
            axes.set_xscale("log")
            axes.set_yscale("log")
            found = {label: (1e6 * spent(mine, label), max(score.value, _FLOOR)) for label, score in scores(mine).items()}
            for family in families:
                points = sorted((place, kind_of(mine, label)) for label, place in found.items() if family_of(label) == family)
                if points:
                    axes.plot(*zip(*(place for place, _ in points), strict=True), color=colours[family], linewidth=0.9, alpha=0.5)
                for (x, y), kind in points:
                    axes.plot([x], [y], _KIND_MARKERS[kind], color=colours[family], markersize=6 if kind == OURS else 4)
            _plain_numbers(axes)
            name = plain(Path(data).name) + (f", {track}" if track else "")
            axes.set_title(f"{name}\n{N:,} × {D}, K = {K}", fontsize=9)
            axes.set_xlabel("µs per sample")
            axes.set_ylabel("error")
        kinds = [kind for kind in _KIND_MARKERS if kind in distinct(rows, "kind")]
        handles = [Line2D([], [], color=colours[family], label=plain(family)) for family in families]
        handles += [Line2D([], [], linestyle="", color="0.25", marker=_KIND_MARKERS[kind], label=kind) for kind in kinds]
        figure.legend(handles=handles, loc="outside lower center", ncols=min(5, len(handles)))
    return figure


def family_of(label: str) -> str:
    """The method without its setting: "FSM" of "FSM fit_block", "AdaOja" of "AdaOja (block 5K)"."""
    return label.partition(" (")[0].partition(" fit")[0].partition(" in-place")[0]
