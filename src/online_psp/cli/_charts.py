"""Charts of scores: T² and SPE over time, with their limits, outliers and alarms."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from online_psp.engine.types import Floats
    from online_psp.io.alarms import Scores

_COLOURS = {"mean": "#54a24b", "spread": "#b279a2", "direction": "#f58518"}


def read_table(path: Path) -> Scores:
    """Read a table that `psp score` or `psp fit --monitor` has written.

    Raises
    ------
    AlarmFileError, SourceError
        If it is no such table, or has nothing to plot.
    """
    import numpy as np

    from online_psp.io.alarms import read_scores
    from online_psp.io.sources import SourceError

    found = read_scores(path)[0]
    if not np.isfinite(found.t2).any() and not np.isfinite(found.spe).any():
        raise SourceError(f"{path} has no scores to plot: {'all are missing or infinite' if len(found.row) else 'it has no rows'}.")
    return found


def draw_scores(table: Scores, name: str) -> Any:
    """A figure with T² above and SPE below, on logarithmic scales."""
    import numpy as np
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5.5), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(2, 1, sharex=True)
    rows = table.row
    if not (np.diff(rows) > 0).all():  # several tables were appended
        rows = np.arange(1.0, len(rows) + 1.0)
    _chart(panels[0], rows, table.t2, table.t2_limit, table, "T²")
    _chart(panels[1], rows, table.spe, table.spe_limit, table, "SPE")
    outliers = int(np.nansum(table.outlier))
    figure.suptitle(f"{name}: {len(rows):,} rows, {outliers:,} outliers, {len(table.drift):,} drift alarms")
    panels[1].set_xlabel("row")
    return figure


def _chart(axes: Any, rows: Floats, values: Floats, limit: Floats, table: Scores, name: str) -> None:
    import numpy as np

    finite = values[np.isfinite(values) & (values > 0)]
    shown = np.clip(values, finite.min(), 10 * finite.max()) if len(finite) else values  # a logarithmic axis shows neither 0 nor infinity
    axes.plot(rows, shown, color="#4c78a8", linewidth=0.7, label=name)
    axes.plot(rows, limit, color="#333333", linewidth=1.0, linestyle="--", label="limit")
    out = (table.outlier == 1) & (values > limit)
    axes.plot(rows[out], shown[out], ".", color="#e45756", markersize=4, label="outlier")
    for kind in dict.fromkeys(kind for _, kind in table.drift):
        for number, place in enumerate(place for place, each in table.drift if each == kind):
            label = None if number else f"drift: {kind}"
            axes.axvline(rows[place], color=_COLOURS.get(kind, "#333333"), linewidth=1.2, label=label)
    axes.set(ylabel=name, yscale="log" if len(finite) else "linear")
    axes.legend(loc="upper left", fontsize=7, ncols=5)
