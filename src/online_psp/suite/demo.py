"""``psp demo``: components form from pictures, a stream drifts, missing values are filled; one picture, on data that needs no download."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg import eigh
from scipy.ndimage import zoom
from sklearn.datasets import load_digits

from online_psp.engine.threads import suited_threads
from online_psp.engine.types import Array, Floats
from online_psp.metrics import subspace_error
from online_psp.monitoring import Alarm
from online_psp.pca import OnlinePCA
from online_psp.suite.pictures import new_figure
from online_psp.suite.studies.missing import digits
from online_psp.suite.studies.tracking import alarm

SIDE = 32
"""Height and width of a picture."""
SHOWN = 4
"""Components to draw."""
STAGES = (20, 80, 320, 1280, 5120, 12_000)
"""Numbers of pictures after which components are drawn."""
_K, _ROWS = 16, 500


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
        left.suptitle("The stream changes, and says so: two gross rows, another mean, another basis")
        sentences.append(_told(alarm(left)))
        tell("missing values are filled")
        right.suptitle("Missing values are filled: half of the pixels, in learning too")
        sentences.append(
            f"missing     50 % of the pixels; filled with {100 * digits(right, 5):.0f} % of the error of filling with the mean"
        )
        figure.savefig(path, dpi=130)
    return sentences


def _told(alarms: list[Alarm]) -> str:
    true = {row: next((each for each in alarms if row <= each.row < row + 500), None) for row in (1500, 2500)}
    found = [f"a change at row {row:,} found {each.row - row + 1} rows later, {each.kind}" for row, each in true.items() if each]
    return f"drift       {'; '.join(found)}; {len(alarms) - len(found)} false alarms"


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
