"""One page from many evaluations: every method on every track, error against time, ranked."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import numpy as np

from online_psp.suite import pictures
from online_psp.suite.data import GENERATED
from online_psp.suite.pages import Section, write_page
from online_psp.suite.rows import DONE, FAILED, INTERVALS, SCORE, Row, by, distinct, read_rows, records, select
from online_psp.suite.tables import Table, board_table, scores, skipped

_EQUAL = 1e-7  # relative difference of scores that is rounding: one algorithm under two names
_ORIGIN = ("version", "commit", "code", "date", "platform", "cpu", "blas", "ram_gib")

Board: TypeAlias = list[Row]
"""The rows of one track on one data set."""


def collect(paths: Iterable[str | Path]) -> tuple[list[Row], list[str]]:
    """The rows of evaluations in several files, and remarks on how they were combined.

    A trial that was measured several times, by other code or on another machine, counts once: that of the last file. Different algorithms
    with the same label get different labels.
    """
    trials: dict[tuple[object, ...], list[Row]] = {}
    twice, interrupted = 0, 0
    for path in map(Path, paths):
        if not path.exists():
            raise FileNotFoundError(f"{path} does not exist.")
        found = records(read_rows(path))
        ended = [mine for mine in found.values() if mine[-1].metric == DONE and any(row.metric in (SCORE, FAILED) for row in mine)]
        if not ended:
            raise ValueError(f"{path} has no rows of an evaluation: make some with psp evaluate.")
        interrupted += len(found) - len(ended)
        for mine in ended:
            trial = (_place(mine[0], mine), mine[0].label, mine[0].algorithm, mine[0].seed)
            twice += trial in trials
            trials[trial] = mine
    rows = _told_apart([row for mine in trials.values() for row in mine])
    remarks = [f"Measured more than once: {twice} trial{'s' * (twice > 1)}; the last file's rows were taken."] if twice else []
    remarks += [f"Interrupted, and left out: {interrupted} trial{'s' * (interrupted > 1)}."] if interrupted else []
    cpus, codes = sorted(distinct(rows, "cpu")), sorted(distinct(rows, "code"))
    remarks += [f"Times are of {len(cpus)} different machines, and to be compared within one: {'; '.join(cpus)}."] if len(cpus) > 1 else []
    remarks += [f"Rows were measured by {len(codes)} states of this package's code ({', '.join(codes)})."] if len(codes) > 1 else []
    return rows, remarks


def _told_apart(rows: Sequence[Row]) -> list[Row]:
    algorithms = {label: set(distinct(mine, "algorithm")) for (label,), mine in by(rows, "label").items()}
    return [replace(row, label=f"{row.label} [{row.algorithm}]") if len(algorithms[row.label]) > 1 else row for row in rows]


def _place(row: Row, record: Sequence[Row]) -> tuple[object, ...]:
    """The board that a record belongs to: track, data (by content, wherever the file is), size, noise, K, passes."""
    data = row.data if row.checksum in ("", GENERATED) else row.checksum
    return row.track, data, row.N, row.D, row.rho, row.K, -(-max(one.t for one in record) // row.N)


def boards(rows: Sequence[Row]) -> dict[str, Board]:
    """A board for every track on every data set, by its name."""
    found: dict[tuple[object, ...], Board] = {}
    for mine in records(rows).values():
        found.setdefault(_place(mine[0], mine), []).extend(mine)
    named = {}
    for (track, _, N, D, rho, K, passes), mine in found.items():
        more = (f", ρ = {rho:g}" if rho else "") + f", K = {K}" + (f", {passes} passes" if passes != 1 else "")
        named[f"{track or 'plain'}: {Path(mine[0].data).name}, {N:,} × {D}{more}"] = mine
    return named


def places(board: Board) -> dict[str, float]:
    """The place of every method by its median error, best first; equal ones share theirs, and one that failed in any trial has the last."""
    labels = distinct(board, "label")
    failed = {row.label for row in select(board, metric=FAILED)}
    values = {label: found.value for label, found in scores(board).items() if label not in failed}
    found = {
        label: 1.0 + sum(0.5 if math.isclose(other, mine, rel_tol=_EQUAL) else float(other < mine) for other in values.values()) - 0.5
        for label, mine in values.items()
    }
    return found | dict.fromkeys((label for label in labels if label not in found), float(len(labels)))


def overall(found: dict[str, Board]) -> Table:
    """The mean place of every method over the boards that it was run on, best first; whoever was run on fewer stands below."""
    ranks = [places(board) for board in found.values()]
    lines = []
    for label in dict.fromkeys(label for rank in ranks for label in rank):
        mine = [rank[label] for rank in ranks if label in rank]
        failures = sum(bool(select(board, label=label, metric=FAILED)) for board in found.values())
        lines.append((-len(mine), float(np.mean(mine)), label, failures))
    header = ("method", "mean place", "boards", "failed on")
    cells = ((label, f"{mean:.2f}", f"{-several} of {len(found)}", str(failures)) for several, mean, label, failures in sorted(lines))
    return Table("Mean place over the boards", header, tuple(cells))


_TEXT = (
    "Places are by the median error over the trials: the last one, and on drifting tracks the mean over time. A method that failed in "
    "any of them has the last place. In the mean over the boards, whoever was run on fewer of them stands below. Memory is the peak "
    "resident size of the method's own process; one that keeps all rows shows there. " + INTERVALS
)


def write_leaderboard(paths: Sequence[str | Path], page: str | Path, command: str = "") -> tuple[Path, Table, list[str]]:
    """Write the leaderboard to an HTML page; returns its path, the table over all boards, and remarks on how files were combined.

    Parameters
    ----------
    paths : sequence of str or Path
        CSV files that `evaluate` wrote.
    page : str or Path
        The HTML file to write, which is self-contained.
    command : str
        Command that repeats this.
    """
    page = Path(page)
    if page.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"The page is HTML, and {page} does not end in .html: choose another name for it.")
    if not page.parent.is_dir():
        raise FileNotFoundError(f"The folder {page.parent} does not exist.")
    rows, remarks = collect(paths)
    found = boards(rows)
    origins = Table("How the rows were made", _ORIGIN, tuple(by(rows, *_ORIGIN)))
    drawn = [
        pictures.save(pictures.error_against_time(board), page.with_name(f"{page.stem}_{i}.png")) for i, board in enumerate(found.values())
    ]
    sections = [
        Section("All boards", " ".join([_TEXT, *remarks]), None, (overall(found),)),
        *(
            Section(name, "Lower left is better.", picture, (board_table(board), *skipped(board)))
            for (name, board), picture in zip(found.items(), drawn, strict=True)
        ),
        Section("Provenance", "", None, (origins,)),
    ]
    facts = {"files": ", ".join(map(str, paths)), "seeds": ", ".join(map(str, sorted(distinct(rows, "seed"))))}
    return write_page(page, "Streaming PCA: leaderboard", sections, facts=facts, command=command), overall(found), remarks
