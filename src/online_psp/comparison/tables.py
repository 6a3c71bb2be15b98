"""Tables for the terminal and for Markdown, with comparisons at equal time and at equal error."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from online_psp.comparison.methods import LOOP, MEMORY, OURS
from online_psp.comparison.packages import INSTALL, river_note, version
from online_psp.comparison.problems import Problem
from online_psp.comparison.results import Result
from online_psp.experiments.provenance import machine
from online_psp.experiments.tables import Table, number

if TYPE_CHECKING:
    from rich.table import Table as RichTable

HEADER = ("method", "setting", "µs per sample", "Err_batch", "peak MiB")
_OURS = "OnlinePCA fit"


def _order(results: Iterable[Result]) -> list[Result]:
    """Sort results: streaming before in-memory methods, the most accurate first, those without figures last."""
    return sorted(results, key=lambda result: (result.kind == MEMORY, result.failed, result.rank))


def _cells(result: Result) -> tuple[str, ...]:
    if result.failed:
        return (result.method, result.setting, result.note, "", "")
    return (result.method, result.setting, f"{result.microseconds:.1f}", number(result.err_batch), f"{result.peak_mib:.1f}")


def title(problem: Problem) -> str:
    """The title of a problem's table."""
    N, D = problem.X.shape
    return f"{problem.name}: {problem.about}; {N:,} × {D}, K = {problem.K}"


def to_rich(problem: Problem, results: Sequence[Result]) -> RichTable:
    """The table for the terminal: this package's methods stand out, in-memory methods are below a line."""
    from rich.table import Table as Rich

    table = Rich(title=title(problem), caption="streaming methods above the line, those that need all rows in memory below it")
    for name in HEADER:
        table.add_column(name, justify="left" if name in HEADER[:2] else "right", overflow="fold")
    ordered = _order(result for result in _one_line_if_missing(results) if result.shown)
    for result, following in zip(ordered, [*ordered[1:], None], strict=True):
        last = following is not None and following.kind == MEMORY != result.kind
        style = {OURS: "bold green", LOOP: "dim"}.get(result.kind)
        table.add_row(*_cells(result), style=style, end_section=last)
    return table


def _one_line_if_missing(results: Sequence[Result]) -> list[Result]:
    """Replace all settings of a package that is not installed by one line."""
    seen: set[tuple[str, str]] = set()
    kept = []
    for result in results:
        if result.note.startswith("not installed"):
            if (result.method, result.note) in seen:
                continue
            seen.add((result.method, result.note))
        kept.append(result)
    return kept


def to_markdown(problem: Problem, results: Sequence[Result]) -> str:
    """The table in Markdown, followed by every other setting that was tried."""
    ordered = _order(_one_line_if_missing(results))
    shown = tuple(_marked(result) for result in ordered if result.shown)
    hidden = [result for result in ordered if not result.shown]
    text = Table(title(problem), HEADER, shown).to_markdown()
    if hidden:
        text += (
            "\n"
            + Table(
                "Settings also tried, neither the most accurate nor the fastest of their method", HEADER, tuple(map(_cells, hidden))
            ).to_markdown()
        )
    return text


def _marked(result: Result) -> tuple[str, ...]:
    """Cells of a result: this package's in bold, in-memory methods marked."""
    cells = _cells(result)
    if result.kind == MEMORY:
        return (f"{cells[0]} (in memory)", *cells[1:])
    return tuple(f"**{cell}**" if cell and result.kind == OURS else cell for cell in cells)


def statements(results: Sequence[Result]) -> list[str]:
    """Compare OnlinePCA with every other streaming method at equal time and at equal error, whatever the outcome."""
    ours = next((result for result in results if result.method == _OURS and not result.failed), None)
    if ours is None:
        return []
    others = [result for result in results if result.kind not in (OURS, MEMORY, LOOP) and not result.failed]
    as_fast = [result for result in others if result.microseconds <= ours.microseconds]
    as_good = [result for result in others if result.err_batch <= ours.err_batch]
    mine = f"OnlinePCA ({ours.microseconds:.1f} µs, error {number(ours.err_batch)})"
    lines = [f"Equal time: no peer is as fast as {mine} at any setting tried."]
    if as_fast:
        best = min(as_fast, key=lambda result: result.err_batch)
        ratio = _ratio(best.err_batch, ours.err_batch)
        lines = [f"Equal time: of the peers as fast as {mine}, the most accurate is {_named(best)}: {ratio} its error."]
    if as_good:
        best = min(as_good, key=lambda result: result.microseconds)
        ratio = _ratio(best.microseconds, ours.microseconds)
        lines.append(f"Equal error: of the peers as accurate, the fastest is {_named(best)}: {ratio} its time.")
    elif others:
        best = min(others, key=lambda result: result.err_batch)
        lines.append(f"Equal error: no peer is as accurate at any setting tried; the nearest is {_named(best)}.")
    return lines if others else []


def _named(result: Result) -> str:
    return f"{result.method}, {result.setting} ({result.microseconds:.1f} µs, error {number(result.err_batch)})"


def _ratio(one: float, other: float) -> str:
    return f"{one / other:.2g} times" if other > 0 else "more than"


def peers_note() -> list[str]:
    """The versions of the peers, and a note for those not installed."""
    found = version("proSVD")
    return [f"proSVD {found}" if found else f"proSVD: not installed: {INSTALL}", river_note()]


def page(runs: Sequence[tuple[Problem, Sequence[Result]]], command: str, repeats: int) -> str:
    """The Markdown fragment for the docs: the machine, the tables, and the comparisons."""
    facts = [f"- {name}: {value}" for name, value in machine().items()]
    facts += [f"- peers: {'; '.join(peers_note())}", f"- command: `{command}`; at most {repeats} timed fits a setting, one thread"]
    if hasattr(os, "getloadavg"):
        facts.append(
            f"- other work on the machine: load average {os.getloadavg()[2]:.1f} over the last quarter of an hour; this command is 1 of it"
        )
    parts = ["\n".join(facts)]
    for problem, results in runs:
        parts.append("\n".join([to_markdown(problem, results), *(f"- {line}" for line in statements(results))]))
    return "\n\n".join(parts) + "\n"
