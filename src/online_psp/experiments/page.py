"""The results of each figure as a part of the documentation, where `docs/put_results.py` puts them: what was run, and what came out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from online_psp.experiments.rows import Row, distinct
from online_psp.experiments.tables import Table, learning, pictures, skipped, spreads, timings
from online_psp.experiments.verdicts import FIGURE_CLAIMS, judge, to_table

PICTURES: Mapping[str, str] = MappingProxyType(
    {
        "fig1": "Figure 1: time per sample against K",
        "fig2": "Figure 2: error against noise on spiked data",
        "fig3": "Figure 3: error against samples seen on real data",
        "fig4": "Figure 4: what the errors look like",
    }
)
"""What the picture of each figure shows."""


def figure_results(name: str, rows: Sequence[Row], command: str) -> str:
    """Markdown: what was run and where, the picture, the verdicts on the figure, and the numbers behind it."""
    found = [to_table(judge(rows, claims=FIGURE_CLAIMS[name])), *_numbers(name, rows), *spreads(rows), *skipped(rows)]
    machines = "; ".join(dict.fromkeys(map(_machine, rows)))
    parts = [f"`{command}`: {_extent(rows)}. Commit {machines}.", "", f"![{PICTURES[name]}](img/{name}.png)", ""]
    return "\n".join([*parts, *(table.to_markdown() for table in found)])


def _numbers(name: str, rows: Sequence[Row]) -> list[Table]:
    """The tables that fit on a page; the report has those of figure 2, by noise level, and the times of processes beside each other."""
    made = {"fig1": timings, "fig3": lambda found: learning(found)[:1], "fig4": pictures}
    return made[name](rows) if name in made else []


def _extent(rows: Sequence[Row]) -> str:
    if rows[0].figure == "fig1":
        return f"{len(dict.fromkeys((row.D, row.K) for row in rows))} sizes, up to {max(row.t for row in rows)} runs of each"
    panels = dict.fromkeys((row.data, row.D if row.data == "spiked" else 0, row.K) for row in rows)
    named = ", ".join(f"{data.upper()} {f'D={D} ' if D else ''}K={K}" for data, D, K in panels)
    seeds = len(distinct(rows, "seed"))
    return f"{named}; {seeds} trial{'s' if seeds > 1 else ''}"


def _machine(row: Row) -> str:
    origin = row.origin
    return f"{origin.commit}, {origin.date}, {origin.cpu}, {origin.blas.partition(',')[0]} on {origin.threads} thread"
