"""Rows as tables, for Markdown, the terminal, and pages."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from online_psp.suite.measure import GROWTH, PEAK
from online_psp.suite.methods import MEMORY
from online_psp.suite.rows import DONE, FAILED, SCORE, Interval, Row, by, distinct, interval, median, medians, select
from online_psp.suite.speed import FLOORS, METRIC, WAYS

if TYPE_CHECKING:
    from rich.table import Table as RichTable

CHECK = "SM γ="
"""Prefix of the labels of curves that check FSM."""
SPREAD = " ±1e-15"
"""Suffix of the labels of curves on perturbed data."""
EXACT = 1e-8
"""Errors below this are batch PCA's own answer, up to rounding."""


@dataclass(frozen=True)
class Table:
    """Text in rows and columns."""

    title: str
    header: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]

    @property
    def numeric(self) -> list[bool]:
        """Which columns are aligned to the right."""
        return [all(line[i][:1] in "-–" or line[i][:1].isdigit() for line in self.lines) for i in range(len(self.header))]

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
        for name, numeric in zip(self.header, self.numeric, strict=True):
            table.add_column(Text(name), justify="right" if numeric else "left", overflow="fold")
        for line in self.lines:
            table.add_row(*map(Text, line))
        return table


def to_markdown(tables: Iterable[Table]) -> str:
    """Several tables, one after the other."""
    return "\n".join(table.to_markdown() for table in tables)


def number(value: float) -> str:
    """Three significant figures."""
    if math.isnan(value):
        return "–"
    if value == 0:
        return "0"
    return f"{value:.3g}" if 1e-3 <= abs(value) < 1e4 else f"{value:.1e}"


def micro(seconds: float) -> str:
    """Microseconds, with a decimal where there are few."""
    return "–" if math.isnan(seconds) else f"{1e6 * seconds:,.{1 if seconds < 1e-4 else 0}f}"


def between(found: Interval) -> str:
    """An interval, or a dash if there is none."""
    return "–" if math.isnan(found.low) else f"{number(found.low)} – {number(found.high)}"


# The paper's figures


def timings(rows: Sequence[Row]) -> list[Table]:
    """Microseconds per sample, how many times faster than as published, and how many times the floor, where that was timed."""
    tables = []
    for (D,), panel in by(select(rows, metric=METRIC), "D").items():
        lines, floored = [], any(row.kind in FLOORS.values() for row in panel)
        for (K, algorithm), mine in by([row for row in panel if row.algorithm], "K", "algorithm").items():
            runs = [select(mine, kind=way) for way in WAYS]
            published, *ours = (median(row.value for row in some) for some in runs)
            gains = [_times(published, seconds) for seconds in ours]
            floors = [median(row.value for row in select(panel, K=K, kind=FLOORS[way])) for way in WAYS[1:]] if floored else []
            gains += [_times(seconds, floor) for seconds, floor in zip(ours, floors, strict=floored)]
            lines.append((str(K), algorithm.upper(), *map(micro, (published, *ours)), *gains, " / ".join(map(_extent, runs))))
        header = ("K", "algorithm", *(f"{way}, µs" for way in WAYS), "fit_next faster by", "fit_block faster by")
        header += ("fit_next, floors", "fit_block, floors") if floored else ()
        tables.append(Table(f"Time per sample, D = {D}, one thread, median of runs", (*header, "runs × samples"), tuple(lines)))
    return tables


def _times(one: float, other: float) -> str:
    return "–" if math.isnan(one / other) else f"{one / other:.1f}×"


def _extent(runs: Sequence[Row]) -> str:
    """What a median is of: how many runs, of how many samples each; a star where a single run took longer than was allowed."""
    sizes = sorted({row.N for row in runs})
    star = "*" if any(row.note for row in runs) else ""
    return f"{len(runs)} × {'–'.join(str(size) for size in (sizes[0], sizes[-1])[: len(sizes)])}{star}" if runs else "–"


def curves_of(rows: Sequence[Row]) -> list[str]:
    """The labels of the figures' lines, without the checks of FSM by SM and the runs that show the effect of rounding."""
    return [label for label in distinct(rows, "label") if not label.startswith(CHECK) and not label.endswith(SPREAD)]


def spreads(rows: Sequence[Row]) -> list[Table]:
    """The effect of perturbing the data by 1e-15 on the last error of curves that rounding decides."""
    place = ("data", "D", "K", "rho", "seed", "metric")
    lines = []
    perturbed = [row for row in rows if row.label.endswith(SPREAD) and row.metric.startswith("err_")]
    for (label, *where), mine in by(perturbed, "label", *place).items():
        name, end = label.removesuffix(SPREAD), max(row.t for row in mine)
        plain = median(row.value for row in select(rows, label=name, t=end, **dict(zip(place, where, strict=True))))
        values = [row.value for row in select(mine, t=end)]
        data, D, K, rho, _, metric = where
        told = f"{data.upper()}{f' ρ={rho:.2g}' if rho else ''}"
        span = f"{number(min(values))} – {number(max(values))}"
        lines.append((name, told, str(D), str(K), metric.replace("err", "Err"), number(plain), span, str(len(values))))
    header = ("curve", "data", "D", "K", "error", "unperturbed", "perturbed", "runs")
    return [Table("Last errors over perturbations of the data by 1e-15, first trial", header, tuple(lines))] if lines else []


def skipped(rows: Sequence[Row]) -> list[Table]:
    """What was left out or failed, how often, and why."""
    lost = [row for row in rows if row.metric in ("skipped", FAILED)]
    times = Counter((row.label, row.data, row.track, str(row.D), str(row.K), row.note) for row in lost)
    lines = tuple((*what, str(count), why) for (*what, why), count in times.items())
    return [Table("Left out or failed", ("method", "data", "track", "D", "K", "times", "why"), lines)] if lines else []


def noise(rows: Sequence[Row]) -> list[Table]:
    """Median errors for every noise level."""
    labels, tables = curves_of(rows), []
    for metric, name in (("err_batch", "Err_batch"), ("err_pop", "Err_pop")):
        for (D, K), panel in by(select(rows, metric=metric), "D", "K").items():
            lines = tuple((f"{rho:.2g}", *_cells(found, labels)) for (rho,), found in sorted(medians(panel, "rho").items()))
            tables.append(Table(f"{name}, D = {D}, K = {K}, median of {len(distinct(panel, 'seed'))} trials", ("ρ", *labels), lines))
    return tables


def _cells(found: dict[str, float], labels: Sequence[str]) -> list[str]:
    return [number(found.get(label, math.nan)) for label in labels]


def learning(rows: Sequence[Row]) -> list[Table]:
    """Errors after the last sample and time per sample, by data set and K."""
    labels, errors, times = curves_of(rows), [], []
    for (data, K), panel in by(rows, "data", "K").items():
        found = select(panel, metric="err_batch")
        last = medians(select(found, t=max(row.t for row in found)))[()]
        errors.append((data.upper(), str(K), *_cells(last, labels)))
        times.append((data.upper(), str(K), *(micro(spent(panel, label)) for label in labels)))
    header = ("data", "K", *labels)
    return [
        Table(f"Err_batch after the last sample, median of {len(distinct(rows, 'seed'))} permutations", header, tuple(errors)),
        Table("µs per sample, in blocks, one thread (several processes at once: a rough guide)", header, tuple(times)),
    ]


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
    for mine in by(select(rows, metric="err_batch"), "data").values():
        for row in chosen_moments(mine):
            at = select(rows, key=row.key, t=row.t)
            explained, psnr = (median(other.value for other in select(at, metric=metric)) for metric in ("explained", "psnr"))
            lines.append((row.data.upper(), str(row.t), number(row.value), f"{100 * explained:.1f} %", f"{psnr:.1f} dB"))
    header = ("data", "samples seen", "Err_batch", "variance explained, of batch PCA's", "likeness to batch PCA's pictures (PSNR)")
    return [Table("The moments shown", header, tuple(lines))]


# Evaluations


def scores(rows: Sequence[Row]) -> dict[str, Interval]:
    """The median score of each method over the trials, with its bootstrap interval, best first."""
    mine = by(select(rows, metric=SCORE), "label")
    found = {label: interval([row.value for row in some]) for (label,), some in mine.items()}
    return dict(sorted(found.items(), key=lambda item: item[1].value))


def spent(rows: Sequence[Row], label: str) -> float:
    """Median seconds per sample of a method."""
    return median(row.value / row.t for row in select(rows, label=label, metric=DONE) if row.t)


def memory(rows: Sequence[Row], label: str) -> str:
    """Peak memory of a method's process, and the part of it that came after the first row, in MiB."""
    peak, growth = ([row.value for row in select(rows, label=label, metric=metric)] for metric in (PEAK, GROWTH))
    return f"{max(peak):.0f} ({max(growth):.1f})" if peak and growth else "–"


def notes(rows: Sequence[Row], label: str) -> str:
    """What was done to the rows of a method, and how many of its trials ended."""
    mine = select(rows, label=label)
    trials, ended = len(distinct(mine, "key")), len(select(mine, metric=SCORE))
    told = list(dict.fromkeys(row.note for row in mine if row.note and row.metric != FAILED))
    return "; ".join([*told, *([f"only {ended} of {trials} trials ended"] if ended < trials else [])])


def comparison(rows: Sequence[Row]) -> list[Table]:
    """Error, time and memory of every method, best first, one table for each set and track; and what failed."""
    return [*map(board_table, by(rows, "data", "track", "D", "K").values()), *skipped(rows)]


def across(rows: Sequence[Row]) -> list[Table]:
    """Errors, and times, of every method on all tracks and at all levels of noise: a table each for each set that has several."""
    found = []
    for (data, N, D, K), mine in by(rows, "data", "N", "D", "K").items():
        places, several = by(mine, "rho", "track"), len(distinct(mine, "rho")) > 1
        if len(places) == 1:
            continue
        header = ("method", *(", ".join([*[f"ρ={rho:g}"] * several, track or "plain"]) for rho, track in places))
        errors = medians(select(mine, metric=SCORE), "rho", "track")
        title, labels = f"{Path(data).name}, {N:,} × {D}, K = {K}", distinct(mine, "label")
        lines = [(label, *(number(errors.get(place, {}).get(label, math.nan)) for place in places)) for label in labels]
        times = [(label, *(micro(spent(some, label)) for some in places.values())) for label in labels]
        found += [Table(f"{title}: error", header, tuple(lines)), Table(f"{title}: µs per sample", header, tuple(times))]
    return found


def board_table(mine: Sequence[Row]) -> Table:
    """Error, time and memory of every method on one set and track, best first, what has all rows in memory last."""
    first, track, trials = mine[0], mine[0].track, len(distinct(mine, "seed"))
    total = max(row.t for row in mine)
    population = medians(select(mine, metric="err_pop", t=total)).get((), {})
    lines = []
    for label, found in sorted(scores(mine).items(), key=lambda item: kind_of(mine, item[0]) == MEMORY):  # a stable sort
        told = "; ".join(filter(None, [notes(mine, label), "all rows in memory" if kind_of(mine, label) == MEMORY else ""]))
        more = [*([between(found)] if trials > 1 else []), *(_cells(population, [label]) if population else [])]
        lines.append((f"{label} ({told})" if told else label, number(found.value), *more, micro(spent(mine, label)), memory(mine, label)))
    more = [*(["95 % bootstrap"] if trials > 1 else []), *(["Err_pop"] if population else [])]
    header = ("method", "error" if track else "Err_batch", *more, "µs per sample", "peak MiB (after the first row)")
    name = f"{Path(first.data).name}{', ' + track if track else ''}, {first.N:,} × {first.D}, {8 * first.N * first.D / 2**20:.3g} MiB"
    return Table(f"{name}, K = {first.K}, {f'median of {trials} trials' if trials > 1 else '1 trial'}", header, tuple(lines))


def kind_of(rows: Sequence[Row], label: str) -> str:
    """Whose a method is."""
    return next(row.kind for row in rows if row.label == label)
