"""The results of a run as a part of the documentation: what was run, on what, and what came out. `make experiments-page` puts it there."""

from __future__ import annotations

from collections.abc import Sequence

from online_psp.experiments.figures import FIGURES
from online_psp.experiments.rows import Row, distinct, select
from online_psp.experiments.tables import Table, learning, skipped, spreads, timings
from online_psp.experiments.verdict import Verdict
from online_psp.experiments.verdicts import to_table


def results_page(rows: Sequence[Row], verdicts: Sequence[Verdict]) -> str:
    """Markdown: a table of what was run, the verdicts, times, last errors, and what rounding does to them."""
    parts = [_run_table(rows), to_table(verdicts)]
    times, real = select(rows, figure="fig1"), select(rows, figure="fig3")
    parts += [*timings(times), *skipped(times)] if times else []
    parts += learning(real)[:1] if real else []
    return "\n".join(table.to_markdown() for table in [*parts, *spreads([row for row in rows if row.figure != "golden"])])


def _run_table(rows: Sequence[Row]) -> Table:
    lines = []
    for name in FIGURES:
        mine = select(rows, figure=name)
        lines.append((name, _extent(mine), ", ".join(dict.fromkeys(_machine(row) for row in mine))) if mine else (name, "not run", ""))
    return Table("What was run", ("figure", "how much of it", "commit, day and machine"), tuple(lines))


def _extent(rows: Sequence[Row]) -> str:
    if rows[0].figure == "fig1":
        return f"{len(dict.fromkeys((row.D, row.K) for row in rows))} sizes, up to {max(row.t for row in rows)} runs of each"
    panels = dict.fromkeys((row.data, row.D if row.data == "spiked" else 0, row.K) for row in rows)
    named = ", ".join(f"{data.upper()} {f'D={D} ' if D else ''}K={K}" for data, D, K in panels)
    return f"{named}; {len(distinct(rows, 'seed'))} trials"


def _machine(row: Row) -> str:
    origin = row.origin
    return f"{origin.commit}, {origin.date}, {origin.cpu}, {origin.blas.partition(',')[0]} on {origin.threads} thread"
