"""One page from many evaluations: every algorithm on every track, error against time, ranked, with intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np

from online_psp.engine.types import Floats
from online_psp.experiments import plots
from online_psp.experiments.measure import SCORE
from online_psp.experiments.records import GENERATED
from online_psp.experiments.report import Section, write_report
from online_psp.experiments.rows import DONE, Row, distinct, read_rows, select
from online_psp.experiments.statistics import INTERVALS, Interval, bootstrap, resampled_medians
from online_psp.experiments.tables import Table, between, memory, number, spent

_PROVENANCE = ("version", "commit", "code", "date", "platform", "cpu", "blas", "threads", "ram_gib")
_SAME = ("figure", "data", "N", "D", "rho", "label", "algorithm", "K", "seed", "track")
"""Columns that all rows of a trial share."""
_LARGEST = math.sqrt(2) + 1e-9  # the error of orthogonal subspaces, and rounding
_EQUAL = 1e-7  # relative difference of scores that is rounding: one algorithm under two names


class Place(NamedTuple):
    """The place of an algorithm on a board.

    Attributes
    ----------
    score : Interval
        The score that it is ranked by; NaN if it failed.
    rank : Interval
        Its place, with the interval over resampled trials.
    microseconds : float
        Time per sample.
    memory : str
    trials : int
        Number of successful trials.
    note : str
        Why it failed, or how the rows were changed for it.
    """

    label: str
    score: Interval
    rank: Interval
    microseconds: float
    memory: str
    trials: int
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


Where: TypeAlias = tuple[str, str, int, int, float, int, int]


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
        found, cut = _scored(path)
        interrupted += cut
        for rows in found:
            trial = (_place(rows), rows[0].label, rows[0].algorithm, rows[0].seed)
            twice += trial in trials
            trials[trial] = rows
    rows = _told_apart([row for rows in trials.values() for row in rows])
    remarks = [f"Measured more than once: {twice} trial{'s' * (twice > 1)}; the last file's rows were taken."] if twice else []
    remarks += [f"Interrupted, and left out: {interrupted} trial{'s' * (interrupted > 1)}."] if interrupted else []
    cpus = {row.origin.cpu for row in rows}
    if len(cpus) > 1:
        remarks.append(f"Times are of {len(cpus)} different machines, and to be compared within one: {'; '.join(sorted(cpus))}.")
    codes = {row.origin.code for row in rows}
    if len(codes) > 1:
        remarks.append(f"Rows were measured by {len(codes)} states of this package's code ({', '.join(sorted(codes))}).")
    return rows, remarks


def _scored(path: Path) -> tuple[list[list[Row]], int]:
    """The rows of a file by record, for records that ended, successfully or not; and the number of interrupted records."""
    found: dict[str, list[Row]] = {}
    for row in read_rows(path):
        found.setdefault(row.key, []).append(row)
    for rows in found.values():
        _check_record(rows, path)
    ended = [rows for rows in found.values() if rows[-1].metric == DONE]
    scored = [rows for rows in ended if _outcomes(rows)]
    if not scored:
        raise ValueError(f"{path} has no rows of an evaluation: make some with psp evaluate.")
    return scored, len(found) - len(ended)


def _outcomes(rows: Sequence[Row]) -> list[Row]:
    """The rows that say how a trial came out."""
    return [row for row in rows if row.metric in (SCORE, "failed")]


def _check_record(rows: Sequence[Row], path: Path) -> None:
    """Raise a ValueError if the rows of one trial cannot have been written by `evaluate`: somebody has edited them."""
    first = rows[0]
    for row in rows:
        if row.metric == SCORE and not 0 <= row.value <= _LARGEST:
            raise ValueError(f"{path} has an error of {row.value} for {row.label}, which is impossible: the file is damaged.")
        if row.metric == DONE and not 0 <= row.value < math.inf:
            raise ValueError(f"{path} has a time of {row.value} s for {row.label}, which is impossible: the file is damaged.")
        other = next((name for name in _SAME if getattr(row, name) != getattr(first, name)), None)
        if other is not None:
            values = f"{getattr(first, other)!r} and {getattr(row, other)!r}"
            raise ValueError(f"{path} is damaged: rows of one trial of {first.label} have the {other} {values}.")
    if min(first.N, first.D, first.K) < 1 or not first.label:
        raise ValueError(f"{path} is damaged: a trial of {first.label!r} has N={first.N}, D={first.D}, K={first.K}.")
    if first.figure == "evaluation" and rows[-1].metric == DONE and not _outcomes(rows):
        raise ValueError(f"{path} is damaged: a trial of {first.label} ended without an error or a failure.")


def _told_apart(rows: Sequence[Row]) -> list[Row]:
    algorithms: dict[str, set[str]] = {}
    for row in rows:
        algorithms.setdefault(row.label, set()).add(row.algorithm)
    return [replace(row, label=f"{row.label} [{row.algorithm}]") if len(algorithms[row.label]) > 1 else row for row in rows]


def _place(rows: Sequence[Row]) -> Where:
    """The board that a record belongs to: track, data (by content, wherever the file is), size, noise, K, passes."""
    row = rows[0]
    data = row.data if row.origin.checksum in ("", GENERATED) else row.origin.checksum
    passes = max(1, -(-max(one.t for one in rows) // row.N))
    return row.track, data, row.N, row.D, row.rho, row.K, passes


def boards(rows: Sequence[Row]) -> list[Board]:
    """A board for every track on every data set."""
    records: dict[str, list[Row]] = {}
    for row in rows:
        records.setdefault(row.key, []).append(row)
    places: dict[Where, list[Row]] = {}
    for mine in records.values():
        places.setdefault(_place(mine), []).extend(mine)
    return [_board(_name(place, mine[0]), mine) for place, mine in places.items()]


def _name(place: Where, row: Row) -> str:
    track, _, N, D, rho, K, passes = place
    noise, times = f", ρ = {rho:g}" if rho else "", f", {passes} passes" if passes > 1 else ""
    return f"{track or 'plain'}: {Path(row.data).name}, {N:,} × {D}{noise}, K = {K}{times}"


def _board(name: str, rows: Sequence[Row]) -> Board:
    labels = [str(label) for label in distinct(rows, "label")]
    values = {label: _by_seed(select(rows, label=label, metric=SCORE)) for label in labels}
    failed = {label for label in labels if not values[label] or select(rows, label=label, metric="failed")}
    drawn = {label: resampled_medians(values[label]) for label in labels if label not in failed}
    ranks: dict[str, Floats] = {label: np.full(_draws(drawn), float(len(labels))) for label in failed}  # a failure takes the last place
    ranks |= _ranks(drawn)
    scores = {label: bootstrap(values[label]) if label in drawn else Interval(math.nan, math.nan, math.nan) for label in labels}
    places = _ranks({label: np.array([scores[label].value]) for label in drawn}) | {
        label: np.array([float(len(labels))]) for label in failed
    }
    found = []
    for label in sorted(labels, key=lambda label: (label in failed, scores[label].value)):
        low, high = (math.nan, math.nan) if len(values[label]) == 1 else np.quantile(ranks[label], (0.025, 0.975))
        own = select(rows, label=label)
        note = "; ".join(dict.fromkeys(row.note for row in own if row.note))
        place = Interval(float(places[label][0]), float(low), float(high))
        found.append(Place(label, scores[label], place, 1e6 * spent(own, label), memory(own, label), len(values[label]), note))
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
    """The mean place of every algorithm over the boards that it was run on, best first.

    Places on few boards are not comparable with places on many: whoever was run on fewer stands below, however good.
    """
    lines = []
    for label in dict.fromkeys(place.label for board in found for place in board.places):
        mine = [board for board in found if label in board.ranks]
        mean = float(np.mean([place.rank.value for board in mine for place in board.places if place.label == label]))
        draws = max(len(board.ranks[label]) for board in mine)
        low, high = np.quantile(np.mean([np.resize(board.ranks[label], draws) for board in mine], axis=0), (0.025, 0.975))
        alone = all(place.trials < 2 for board in mine for place in board.places if place.label == label)
        failures = sum(math.isnan(place.score.value) for board in mine for place in board.places if place.label == label)
        interval, extent = "–" if alone else f"{low:.2f} – {high:.2f}", f"{len(mine)} of {len(found)}"
        lines.append((-len(mine), mean, (label, f"{mean:.2f}", interval, extent, str(failures))))
    header = ("algorithm", "mean place", "95 % bootstrap", "boards", "failed on")
    return Table("Mean place over the boards", header, tuple(line for *_, line in sorted(lines)))


def table(board: Board) -> Table:
    """A board as a table."""
    lines = tuple(
        (
            f"{place.rank.value:g}",
            place.label,
            number(place.score.value),
            between(place.score.low, place.score.high),
            str(place.trials),
            "–" if math.isnan(place.rank.low) else f"{place.rank.low:g} – {place.rank.high:g}",
            "–" if math.isnan(place.microseconds) else f"{place.microseconds:,.1f}",
            place.memory,
            place.note,
        )
        for place in board.places
    )
    header = (
        "place",
        "algorithm",
        "error",
        "95 % bootstrap",
        "trials",
        "places",
        "µs per sample",
        "peak MiB (after the first row)",
        "note",
    )
    return Table(board.name, header, lines)


def _origins(rows: Sequence[Row]) -> Table:
    found = dict.fromkeys(tuple(getattr(row.origin, name) for name in _PROVENANCE) for row in rows)
    return Table("How the rows were made", _PROVENANCE, tuple(found))


_TEXT = (
    "Places are by the median error over the trials: the last one, and on drifting tracks the mean over time. An algorithm that failed in "
    "any of them has the last place. In the mean over the boards, whoever was run on fewer of them stands below. Memory is the peak "
    "resident size of the algorithm's own process; one that keeps all rows shows there. " + INTERVALS
)


def write_leaderboard(paths: Sequence[str | Path], page: str | Path, command: str = "") -> Path:
    """Write the leaderboard to an HTML page.

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
    if page.exists() and any(Path(path).exists() and page.samefile(path) for path in paths):
        raise ValueError(f"{page} is one of the files of rows, and would be overwritten: choose another name for the page.")
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
