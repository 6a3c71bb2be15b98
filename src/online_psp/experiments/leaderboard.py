"""One page from many evaluations: every algorithm on every track, error against time, ranked, with intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from online_psp.engine.types import Floats
from online_psp.experiments import plots
from online_psp.experiments.measure import SCORE
from online_psp.experiments.report import Section, write_report
from online_psp.experiments.rows import DONE, Row, distinct, read_rows, select
from online_psp.experiments.statistics import Interval, bootstrap, resampled_medians
from online_psp.experiments.tables import Table, memory, number, spent

_PROVENANCE = ("version", "commit", "code", "date", "platform", "cpu", "blas", "threads", "ram_gib")
_EQUAL = 1e-7  # of scores that differ by rounding alone: one algorithm under two names


class Place(NamedTuple):
    """Where an algorithm stands on a board.

    Attributes
    ----------
    score : Interval
        What it is ranked by; not a number where it failed.
    rank : Interval
        Its place, and where it stands when trials are drawn again.
    microseconds : float
        Per sample.
    memory : str
    note : str
        Why it failed, or what was done to the rows for its sake.
    """

    label: str
    score: Interval
    rank: Interval
    microseconds: float
    memory: str
    note: str


@dataclass(frozen=True, eq=False)
class Board:
    """One track on one data set, best first.

    Attributes
    ----------
    ranks : dict of label to (m,)
        The rank of every algorithm in every resampling of the trials.
    """

    name: str
    places: list[Place]
    ranks: dict[str, Floats]


def collect(paths: Iterable[str | Path]) -> tuple[list[Row], list[str]]:
    """The rows of evaluations in several files, and remarks on what was done with them.

    Of a record that is in several files the last file's rows are taken. Algorithms of one label that are not one algorithm are told apart.
    """
    by_key: dict[str, list[Row]] = {}
    twice = 0
    for path in map(Path, paths):
        if not path.exists():
            raise FileNotFoundError(f"{path} does not exist.")
        found: dict[str, list[Row]] = {}
        for row in read_rows(path):
            found.setdefault(row.key, []).append(row)
        scored = {
            key: rows for key, rows in found.items() if any(row.metric in (SCORE, "failed") for row in rows) and rows[-1].metric == DONE
        }
        if not scored:
            raise ValueError(f"{path} has no rows of an evaluation: make some with psp evaluate.")
        twice += len(by_key.keys() & scored.keys())
        by_key |= scored
    rows = _told_apart([row for rows in by_key.values() for row in rows])
    remarks = [f"{twice} records were in several files; the last file's rows were taken."] if twice else []
    cpus = {row.origin.cpu for row in rows}
    if len(cpus) > 1:
        remarks.append(f"Times are of {len(cpus)} different machines, and to be compared within one: {'; '.join(sorted(cpus))}.")
    codes = {row.origin.code for row in rows}
    if len(codes) > 1:
        remarks.append(f"Rows were measured by {len(codes)} states of this package's code ({', '.join(sorted(codes))}).")
    return rows, remarks


def _told_apart(rows: Sequence[Row]) -> list[Row]:
    algorithms: dict[str, set[str]] = {}
    for row in rows:
        algorithms.setdefault(row.label, set()).add(row.algorithm)
    return [replace(row, label=f"{row.label} [{row.algorithm}]") if len(algorithms[row.label]) > 1 else row for row in rows]


def boards(rows: Sequence[Row]) -> list[Board]:
    """A board for every track on every data set."""
    places = dict.fromkeys((row.track, row.data, row.origin.checksum, row.N, row.D, row.rho, row.K) for row in rows)
    made = []
    for track, data, checksum, N, D, rho, K in places:
        mine = [row for row in select(rows, track=track, data=data, N=N, D=D, rho=rho, K=K) if row.origin.checksum == checksum]
        noise = f", ρ = {rho:g}" if rho else ""
        made.append(_board(f"{track or 'plain'}: {Path(data).name}, {N:,} × {D}{noise}, K = {K}", mine))
    return made


def _board(name: str, rows: Sequence[Row]) -> Board:
    labels = [str(label) for label in distinct(rows, "label")]
    values = {label: _by_seed(select(rows, label=label, metric=SCORE)) for label in labels}
    failed = {label for label in labels if not values[label] or select(rows, label=label, metric="failed")}
    drawn = {label: resampled_medians(values[label]) for label in labels if label not in failed}
    ranks: dict[str, Floats] = {label: np.full(_draws(drawn), float(len(labels))) for label in failed}  # a failure is the last place
    ranks |= _ranks(drawn)
    scores = {label: bootstrap(values[label]) if label in drawn else Interval(math.nan, math.nan, math.nan) for label in labels}
    places = _ranks({label: np.array([scores[label].value]) for label in drawn}) | {
        label: np.array([float(len(labels))]) for label in failed
    }
    found = []
    for label in sorted(labels, key=lambda label: (label in failed, scores[label].value)):
        low, high = np.quantile(ranks[label], (0.025, 0.975))
        own = select(rows, label=label)
        note = "; ".join(dict.fromkeys(row.note for row in own if row.note))
        place = Interval(float(places[label][0]), float(low), float(high))
        found.append(Place(label, scores[label], place, 1e6 * spent(own, label), memory(own, label), note))
    return Board(name, found, ranks)


def _ranks(scores: dict[str, Floats]) -> dict[str, Floats]:
    """Places, one for each draw, from scores, (draws,); those whose scores are equal, up to rounding, share the mean of their places."""
    ranks = {}
    for label, mine in scores.items():
        rank = np.ones_like(mine)
        for name, other in scores.items():
            if name != label:
                equal = np.isclose(other, mine, rtol=_EQUAL, atol=_EQUAL**2)
                rank += np.where(equal, 0.5, other < mine)
        ranks[label] = rank
    return ranks


def _by_seed(rows: Sequence[Row]) -> list[float]:
    return [row.value for row in sorted(rows, key=lambda row: row.seed)]


def _draws(drawn: dict[str, Floats]) -> int:
    return len(next(iter(drawn.values()))) if drawn else 1


def overall(found: Sequence[Board]) -> Table:
    """The mean place of every algorithm over the boards that it was run on, best first."""
    lines = []
    for label in dict.fromkeys(place.label for board in found for place in board.places):
        mine = [board for board in found if label in board.ranks]
        mean = float(np.mean([place.rank.value for board in mine for place in board.places if place.label == label]))
        draws = max(len(board.ranks[label]) for board in mine)
        low, high = np.quantile(np.mean([np.resize(board.ranks[label], draws) for board in mine], axis=0), (0.025, 0.975))
        failures = sum(math.isnan(place.score.value) for board in mine for place in board.places if place.label == label)
        lines.append((mean, (label, f"{mean:.2f}", f"{low:.2f} – {high:.2f}", f"{len(mine)} of {len(found)}", str(failures))))
    header = ("algorithm", "mean place", "95 % bootstrap", "boards", "failed on")
    return Table("Mean place over the boards", header, tuple(line for _, line in sorted(lines)))


def table(board: Board) -> Table:
    """A board as a table."""
    lines = tuple(
        (
            f"{place.rank.value:g}",
            place.label,
            number(place.score.value),
            f"{number(place.score.low)} – {number(place.score.high)}",
            f"{place.rank.low:g} – {place.rank.high:g}",
            "–" if math.isnan(place.microseconds) else f"{place.microseconds:,.1f}",
            place.memory,
            place.note,
        )
        for place in board.places
    )
    header = ("place", "algorithm", "error", "95 % bootstrap", "places", "µs per sample", "peak MiB (after the first row)", "note")
    return Table(board.name, header, lines)


def _origins(rows: Sequence[Row]) -> Table:
    found = dict.fromkeys(tuple(getattr(row.origin, name) for name in _PROVENANCE) for row in rows)
    return Table("How the rows were made", _PROVENANCE, tuple(found))


_TEXT = (
    "Places are by the median error over the trials: the last one, and on drifting tracks the mean over time. Intervals are of 2,000 "
    "resamplings of the trials. A failed algorithm has the last place. Memory is the peak resident size of the algorithm's own process; "
    "one that keeps all rows shows there."
)


def write_leaderboard(paths: Sequence[str | Path], page: str | Path, command: str = "") -> Path:
    """Write the page.

    Parameters
    ----------
    paths : sequence of str or Path
        Files of rows that `evaluate` wrote.
    page : str or Path
        The HTML file; it needs nothing else.
    command : str
        What to type to get it again.
    """
    page = Path(page)
    rows, remarks = collect(paths)
    found = boards(rows)
    picture = plots.save(plots.leaderboard(found), page.with_suffix(".svg"))
    sections = [
        Section("All boards", " ".join([_TEXT, *remarks]), None, (overall(found),)),
        Section("Error against time per sample", "Lower left is better. Bars are bootstrap intervals.", picture, ()),
        *(Section(board.name, "", None, (table(board),)) for board in found),
        Section("Provenance", "", None, (_origins(rows),)),
    ]
    facts = {"files": ", ".join(str(path) for path in paths), "trials": f"seeds {', '.join(map(str, sorted({row.seed for row in rows})))}"}
    return write_report(page, "Streaming PCA: leaderboard", "", sections, [], facts, command)
