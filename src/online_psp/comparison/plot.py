"""The plot of error against time per sample, with one panel per data set. Lower left is better."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from online_psp.comparison.methods import LOOP, MEMORY, OURS, PEER
from online_psp.comparison.results import Result
from online_psp.engine.types import Floats
from online_psp.experiments.plots import COLOURS, new_figure, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FLOOR = 1e-6
"""Errors below this are rounding: they are drawn at the lower edge, as triangles that point down."""

_OWN: Mapping[str, str] = {
    "FSM": "#009E73",
    "FSM, γ = 0.6": "#00694D",
    "SM": "#56B4E9",
    "IPCA": COLOURS["IPCA"],
    "CCIPCA": COLOURS["CCIPCA"],
    "OnlinePCA": COLOURS["OnlinePCA"],
}
_OTHERS: Mapping[str, str] = {
    "IncrementalPCA": "#B2182B",
    "IncrementalPCA, 2K cut to K": "#D6604D",
    "proSVD": "#7B5BA6",
    "proSVD, 2K cut to K": "#9E86C4",
    "AdaOja": "#8C6D31",
    "History PCA": "#6B6B6B",
}
_MARKERS: Mapping[str, str] = {OURS: "o", LOOP: "x", PEER: "s", MEMORY: "D"}
_SIZES: Mapping[str, float] = {OURS: 46.0, LOOP: 26.0, PEER: 22.0, MEMORY: 22.0}
_KINDS: Mapping[str, str] = {
    OURS: "online-psp",
    LOOP: "the same algorithm, a sample at a time, in place",
    PEER: "another streaming method (faint: settings not in the table)",
    MEMORY: "all rows in memory",
}


def scatter(results: Sequence[Result]) -> Figure:
    """Draw every setting of every method that has figures; those in the table are joined by a line per family."""
    from matplotlib.lines import Line2D

    good = [result for result in results if not result.failed]
    if not good:
        raise ValueError("There is nothing to draw: no method has figures.")
    sets = list(dict.fromkeys(result.data for result in good))
    by_set = [[result for result in good if result.data == name] for name in sets]
    with style():
        figure = new_figure(max(5.2 * len(sets), 7.5), 5.8)
        panels = figure.subplots(1, len(sets), squeeze=False)[0]
        for axes, mine in zip(panels, by_set, strict=True):
            _panel(axes, mine)
        panels[0].set_ylabel("error against batch PCA")
        kinds = [kind for kind in _KINDS if any(result.kind == kind for result in good)]
        handles = [Line2D([], [], linestyle="", color="0.25", marker=_MARKERS[kind], label=_KINDS[kind]) for kind in kinds]
        if any(result.err_batch < floor(mine) for mine in by_set for result in mine):
            handles.append(Line2D([], [], linestyle="", color="0.25", marker="v", label="error below the edge"))
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles) if len(sets) > 1 else 2)
        figure.draw_without_rendering()  # the sizes of the panels, which labels need
        for axes, mine in zip(panels, by_set, strict=True):
            _label(axes, mine)
    return figure


def floor(results: Sequence[Result]) -> float:
    """The lower edge of a panel: a little below the smallest error that is not rounding, and never below FLOOR."""
    return max(FLOOR, 0.2 * min((result.err_batch for result in results if result.err_batch >= FLOOR), default=FLOOR))


def _place(result: Result, edge: float) -> tuple[float, float]:
    return result.microseconds, max(result.err_batch, edge)


def _own_families(results: Sequence[Result]) -> set[str]:
    """The families of this package's own algorithms."""
    return {result.family for result in results if result.kind == OURS}


def _colour(family: str) -> str:
    return _OWN.get(family) or _OTHERS.get(family, "0.45")


def _panel(axes: Axes, results: Sequence[Result]) -> None:
    first, edge, own = results[0], floor(results), _own_families(results)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_title(f"{first.data}, {first.N:,} × {first.D}, K = {first.K}")
    axes.set_xlabel("µs per sample, one thread")
    for family in dict.fromkeys(result.family for result in results):
        mine = sorted((result for result in results if result.family == family), key=lambda result: result.microseconds)
        colour, ours = _colour(family), family in own
        line = [_place(result, edge) for result in mine if result.shown]
        axes.plot(*zip(*line, strict=True), color=colour, linewidth=1.4 if ours else 0.9, alpha=0.7 if ours else 0.45, zorder=2)
        for result in mine:
            marker = "v" if result.err_batch < edge else _MARKERS[result.kind]
            size, alpha = (_SIZES[result.kind], 1.0) if result.shown else (0.5 * _SIZES[result.kind], 0.35)
            axes.scatter(*_place(result, edge), marker=marker, s=size, alpha=alpha, color=colour, linewidths=1.2, zorder=4 if ours else 3)
    times, errors = zip(*(_place(result, edge) for result in results), strict=True)
    axes.set_xlim(min(times) / 2.2, max(times) * 2.2)
    axes.set_ylim(min(errors) / 1.8, max(errors) * 3.0)
    arrow = {"arrowstyle": "->", "color": "0.5"}
    axes.annotate("better", (0.015, 0.015), (0.085, 0.085), "axes fraction", "axes fraction", color="0.5", arrowprops=arrow)


def _label(axes: Axes, results: Sequence[Result]) -> None:
    """Label each family beside its most accurate point, where the label covers no other label, no point and no line if possible."""
    canvas: Any = axes.figure.canvas
    renderer, edge = canvas.get_renderer(), floor(results)
    points = axes.transData.transform([_place(result, edge) for result in results])
    lines, frame = _along_lines(axes), np.array(axes.get_window_extent(renderer).extents)
    taken, own = np.empty((0, 4)), _own_families(results)
    for family in sorted({result.family for result in results}, key=lambda family: (family not in own, family)):
        text: Any = axes.annotate(
            family,
            _place(min((result for result in results if result.family == family), key=lambda result: result.rank), edge),
            xytext=(0, 0),
            textcoords="offset points",
            color=_colour(family),
            fontsize=8.5 if family in own else 7.5,
            fontweight="bold" if family in own else "normal",
            ha="center",
            va="center",
            zorder=5,
            arrowprops={"arrowstyle": "-", "color": _colour(family), "linewidth": 0.5, "shrinkA": 0, "shrinkB": 2},
        )
        text.update_positions(renderer)
        boxes = words(text, renderer) + np.tile(_OFFSETS * axes.figure.dpi / 72.0, 2)
        best = int(np.argmin(_costs(boxes, taken, points, lines, frame)))
        text.set_position(tuple(_OFFSETS[best]))
        taken = np.vstack([taken, boxes[best]])


def words(text: Any, renderer: Any) -> Floats:
    """The box around the words of a label, without its line, in pixels: left, bottom, right, top."""
    from matplotlib.text import Text

    return np.asarray(Text.get_window_extent(text, renderer).padded(1.5).extents)


def _along_lines(axes: Axes) -> Floats:
    """Points on the lines of a panel, (n, 2), so close to each other that no label fits between them."""
    found = [np.empty((0, 2))]
    for line in axes.lines:
        for one, other in pairwise(axes.transData.transform(line.get_xydata())):
            found.append(np.linspace(one, other, 2 + int(np.hypot(*(other - one)) / 4)))
    return np.concatenate(found)


def _candidates() -> Floats:
    """Positions to try for a label around its point, in points."""
    across, up = range(-120, 121, 12), [*range(-110, -10, 10), *range(11, 112, 10)]
    return np.array([(x, y) for x in across for y in up], dtype=np.float64)


_OFFSETS = _candidates()


def _costs(boxes: Floats, taken: Floats, points: Floats, lines: Floats, frame: Floats) -> Floats:
    """Cost of each position: labels must not overlap or leave the panel, should not cover points or lines, and should be near."""
    met = np.sum(np.all((boxes[:, None, :2] < taken[:, 2:]) & (boxes[:, None, 2:] > taken[:, :2]), axis=2), axis=1)
    outside = np.any((boxes[:, :2] < frame[:2]) | (boxes[:, 2:] > frame[2:]), axis=1)
    covered, crossed = _inside(boxes + np.array([-4.0, -4.0, 4.0, 4.0]), points), _inside(boxes, lines)
    distance = np.abs(_OFFSETS) @ np.array([1.0, 1.5])
    return np.asarray(1e6 * met + 1e5 * outside + 1e3 * covered + 3.0 * crossed + distance)


def _inside(boxes: Floats, places: Floats) -> Floats:
    """Number of places that each box covers."""
    return np.asarray(np.sum(np.all((boxes[:, None, :2] <= places) & (places <= boxes[:, None, 2:]), axis=2), axis=1))
