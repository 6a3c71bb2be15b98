"""The tables behind the figures, for HTML, Markdown or the terminal."""

from __future__ import annotations

import html
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from online_psp.experiments.rows import DONE, Row, distinct, median, select
from online_psp.experiments.statistics import Interval, bootstrap
from online_psp.experiments.timing import WAYS

if TYPE_CHECKING:
    from rich.table import Table as RichTable


@dataclass(frozen=True)
class Table:
    """Text in rows and columns."""

    title: str
    header: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]

    def to_html(self) -> str:
        """The table in HTML, with numbers aligned to the right and words to the left."""
        kinds = ['class="number"' if all(map(_is_number, cells)) else 'class="text"' for cells in zip(*self.lines, strict=True)]
        kinds = kinds or ['class="text"'] * len(self.header)
        head = "".join(f"<th {kind}>{html.escape(cell)}</th>" for kind, cell in zip(kinds, self.header, strict=True))
        body = "".join(
            "<tr>" + "".join(f"<td {kind}>{html.escape(cell)}</td>" for kind, cell in zip(kinds, line, strict=True)) + "</tr>"
            for line in self.lines
        )
        return f"<table><caption>{html.escape(self.title)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def to_markdown(self) -> str:
        """A Markdown table under its title."""
        cells = [self.header, ("---",) * len(self.header), *self.lines]
        lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in cells]
        return "\n".join([f"**{self.title}**", "", *lines, ""])

    def to_rich(self) -> RichTable:
        """For the terminal."""
        from rich.table import Table as Rich
        from rich.text import Text

        table = Rich(title=Text(self.title, style="table.title"))  # as text, because brackets in names are not markup
        for name in self.header:
            table.add_column(Text(name))
        for line in self.lines:
            table.add_row(*map(Text, line))
        return table


def _is_number(cell: str) -> bool:
    return cell[:1].isdigit() or cell[:1] in ("-", "–")


def number(value: float) -> str:
    """Three significant figures."""
    if math.isnan(value):
        return "–"
    if value == 0:
        return "0"
    return f"{value:.3g}" if 1e-3 <= abs(value) < 1e4 else f"{value:.1e}"


def between(low: float, high: float) -> str:
    """An interval, or a dash if there is none."""
    return "–" if math.isnan(low) or math.isnan(high) else f"{number(low)} – {number(high)}"


def _microseconds(seconds: float) -> str:
    return "–" if math.isnan(seconds) else f"{1e6 * seconds:,.0f}"


def timings(rows: Sequence[Row]) -> list[Table]:
    """Microseconds per sample, and how many times faster than as published."""
    rows = select(rows, metric="seconds_per_sample")
    tables = []
    for D in distinct(rows, "D"):
        lines = []
        for K, algorithm in dict.fromkeys((row.K, row.algorithm) for row in select(rows, D=D)):
            mine = select(rows, D=D, K=K, algorithm=algorithm)
            taken = [median(row.value for row in mine if row.label.endswith(way)) for way in WAYS]
            gains = [f"{taken[0] / seconds:.1f}×" if seconds > 0 and not math.isnan(taken[0]) else "–" for seconds in taken[1:]]
            extent = " / ".join(_extent([row for row in mine if row.label.endswith(way)]) for way in WAYS)
            lines.append((str(K), algorithm.upper(), *map(_microseconds, taken), *gains, extent))
        header = (
            "K",
            "algorithm",
            "published, µs",
            "fit_next, µs",
            "fit_block, µs",
            "fit_next faster by",
            "fit_block faster by",
            "runs × samples",
        )
        tables.append(Table(f"Time per sample, D = {D}, one thread, median of runs", header, tuple(lines)))
    return tables


def _extent(runs: Sequence[Row]) -> str:
    """What a median is of: how many runs, of how many samples each; a star where a single run took longer than was allowed."""
    sizes = sorted({row.N for row in runs})
    star = "*" if any(row.note for row in runs) else ""
    return f"{len(runs)} × {'–'.join(str(size) for size in (sizes[0], sizes[-1])[: len(sizes)])}{star}" if runs else "–"


CHECK = "SM γ="
"""Prefix of the labels of curves that check FSM."""

SPREAD = " ±1e-15"
"""Suffix of the labels of curves on perturbed data."""


FROM_DATA = ", σ² from data"
"""Suffix of the label of CCIPCA started from variances of the data, which is in the table of spreads, not in a figure."""


def curves_of(rows: Sequence[Row]) -> list[str]:
    """The labels of the figures' lines, without the checks of FSM by SM and the runs that show the effect of rounding."""
    labels = [str(label) for label in distinct(rows, "label")]
    return [label for label in labels if not label.startswith(CHECK) and not label.endswith((SPREAD, FROM_DATA))]


def spreads(rows: Sequence[Row]) -> list[Table]:
    """The effect of perturbing the data by 1e-15 on the last error of curves that rounding decides."""
    lines = []
    for label in (str(label) for label in distinct(rows, "label") if str(label).endswith(SPREAD)):
        mine = [row for row in rows if row.label == label and row.metric.startswith("err_")]
        for data, D, K, rho, seed, metric in dict.fromkeys((row.data, row.D, row.K, row.rho, row.seed, row.metric) for row in mine):
            place = {"data": data, "D": D, "K": K, "rho": rho, "seed": seed, "metric": metric}
            end = max(row.t for row in select(mine, **place))
            plain = median(row.value for row in select(rows, label=label.removesuffix(SPREAD), t=end, **place))
            values = [row.value for row in select(mine, t=end, **place)]
            where = f"{data.upper()}{f' ρ={rho:.2g}' if rho else ''}"
            span = f"{number(min(values))} – {number(max(values))}"
            lines.append(
                (label.removesuffix(SPREAD), where, str(D), str(K), metric.replace("err", "Err"), number(plain), span, str(len(values)))
            )
    header = ("curve", "data", "D", "K", "error", "unperturbed", "perturbed", "runs")
    return [Table("Last errors over perturbations of the data by 1e-15, first trial", header, tuple(lines))] if lines else []


def skipped(rows: Sequence[Row]) -> list[Table]:
    """What was left out or failed, how often, and why."""
    lost = [row for row in rows if row.metric in ("skipped", "failed")]
    times = Counter((row.label, row.data, row.track, str(row.D), str(row.K), row.note) for row in lost)
    lines = tuple((*what, str(count), why) for (*what, why), count in times.items())
    return [Table("Left out or failed", ("curve", "data", "track", "D", "K", "times", "why"), lines)] if lines else []


def noise(rows: Sequence[Row]) -> list[Table]:
    """Median errors for every noise level."""
    labels = curves_of(rows)
    tables = []
    for metric, name in (("err_batch", "Err_batch"), ("err_pop", "Err_pop")):
        for D, K in dict.fromkeys((row.D, row.K) for row in rows):
            panel = select(rows, D=D, K=K, metric=metric)
            lines = []
            for rho in sorted({row.rho for row in panel}):
                medians = [median(row.value for row in select(panel, rho=rho, label=label)) for label in labels]
                lines.append((f"{rho:.2g}", *map(number, medians)))
            title = f"{name}, D = {D}, K = {K}, median of {len(distinct(panel, 'seed'))} trials"
            tables.append(Table(title, ("ρ", *labels), tuple(lines)))
    return tables


def last_errors(rows: Sequence[Row]) -> dict[tuple[str, int], dict[str, float]]:
    """The median error after the last sample, by (data set, K) and curve."""
    rows = select(rows, metric="err_batch")
    found: dict[tuple[str, int], dict[str, float]] = {}
    for name, K in dict.fromkeys((row.data, row.K) for row in rows):
        panel = select(rows, data=name, K=K)
        end = max(row.t for row in panel)
        last = select(panel, t=end)
        found[name, K] = {str(label): median(row.value for row in select(last, label=label)) for label in distinct(last, "label")}
    return found


def learning(rows: Sequence[Row]) -> list[Table]:
    """Errors after the last sample and time per sample, by data set and K."""
    final = last_errors(rows)
    labels = curves_of(rows)
    trials = len(distinct(rows, "seed"))
    errors = [(name.upper(), str(K), *(number(found.get(label, math.nan)) for label in labels)) for (name, K), found in final.items()]
    times = []
    for name, K in final:
        spent = select(rows, data=name, K=K, metric=DONE)
        taken = [median(row.value / row.t for row in select(spent, label=label) if row.t) for label in labels]
        times.append((name.upper(), str(K), *map(_microseconds, taken)))
    header = ("data", "K", *labels)
    return [
        Table(f"Err_batch after the last sample, median of {trials} permutations", header, tuple(errors)),
        Table("µs per sample, in blocks, one thread (several processes at once: a rough guide)", header, tuple(times)),
    ]


EXACT = 1e-8
"""Errors below this are batch PCA's own answer, up to rounding."""

_LEVELS = (0.6, 0.4, 0.2)


def chosen_moments(rows: Sequence[Row]) -> list[Row]:
    """The first moment, those where the error first comes down to 0.6, 0.4 and 0.2, and the last."""
    ordered = sorted(rows, key=lambda row: row.t)
    below = [next((row for row in ordered if row.value <= level), None) for level in _LEVELS]
    picked = {row.t: row for row in [ordered[0], *(row for row in below if row is not None), ordered[-1]]}
    return [picked[t] for t in sorted(picked)]


def pictures(rows: Sequence[Row]) -> list[Table]:
    """The errors at the moments of figure 4."""
    lines = []
    for row in (picked for name in distinct(rows, "data") for picked in chosen_moments(select(rows, data=name, metric="err_batch"))):
        mine = select(rows, key=row.key, t=row.t)
        explained, psnr = (median(other.value for other in select(mine, metric=metric)) for metric in ("explained", "psnr"))
        lines.append((row.data.upper(), str(row.t), number(row.value), f"{100 * explained:.1f} %", f"{psnr:.1f} dB"))
    header = ("data", "samples seen", "Err_batch", "variance explained, of batch PCA's", "likeness to batch PCA's pictures (PSNR)")
    return [Table("The moments shown", header, tuple(lines))]


def scores(rows: Sequence[Row]) -> dict[str, Interval]:
    """The median score of each algorithm over the trials, with its bootstrap interval, best first."""
    mine = select(rows, metric="score")
    found = {str(label): bootstrap([row.value for row in select(mine, label=label)]) for label in distinct(mine, "label")}
    return dict(sorted(found.items(), key=lambda item: item[1].value))


def spent(rows: Sequence[Row], label: str) -> float:
    """Median seconds per sample of an algorithm."""
    return median(row.value / row.t for row in select(rows, label=label, metric=DONE) if row.t)


def memory(rows: Sequence[Row], label: str) -> str:
    """Peak memory of an algorithm's process, and the part of it that came after the first row, in MiB."""
    peak, growth = ([row.value for row in select(rows, label=label, metric=metric)] for metric in ("peak_mib", "growth_mib"))
    return f"{max(peak):.0f} ({max(growth):.1f})" if peak and growth else "–"


def comparison(rows: Sequence[Row]) -> list[Table]:
    """The outcome of an evaluation, one table per track: error, time and memory of every algorithm, best first, and what failed."""
    tables = []
    for track in distinct(rows, "track"):
        mine = select(rows, track=track)
        first, trials = mine[0], len(distinct(mine, "seed"))
        population = bool(select(mine, metric="err_pop"))
        lines = []
        for label, found in scores(mine).items():
            own = select(mine, label=label)
            end = max(row.t for row in own)
            pop = [number(median(row.value for row in select(own, metric="err_pop", t=end)))] if population else []
            ended = len(select(own, metric="score"))
            notes = list(dict.fromkeys(row.note for row in own if row.note and row.metric != "failed"))
            notes += [f"only {ended} of {trials} trials ended"] if ended < trials else []
            told = f"{label} ({'; '.join(notes)})" if notes else label
            lines.append(
                (
                    told,
                    number(found.value),
                    between(found.low, found.high),
                    *pop,
                    _fine(spent(own, label)),
                    memory(own, label),
                )
            )
        size = f"{first.N} × {first.D}, {8 * first.N * first.D / 2**20:.3g} MiB"
        name = f"{Path(first.data).name}{', ' + str(track) if track else ''}, {size}, K = {first.K}"
        error = "Err_batch, median" if not track else "error, median"
        header = (
            "algorithm",
            error,
            "95 % bootstrap",
            *(["Err_pop"] if population else []),
            "µs per sample",
            "peak MiB (after the first row)",
        )
        tables.append(Table(f"{name}, {trials} trials", header, tuple(lines)))
    return [*tables, *skipped(rows)]


def _fine(seconds: float) -> str:
    return "–" if math.isnan(seconds) else f"{1e6 * seconds:,.1f}"


def to_markdown(tables: Iterable[Table]) -> str:
    """Several tables, one after the other."""
    return "\n".join(table.to_markdown() for table in tables)
