"""Tidy rows, one measurement each, and the CSV file in which they are saved as they come."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from online_psp.experiments.provenance import UNKNOWN, Provenance

DONE = "seconds"
"""The metric of the last row of every record: the time it took. A record without it was interrupted."""

_NOT_TO_KEEP = ("failed", "skipped")


@dataclass(frozen=True)
class Row:
    """One measurement.

    Attributes
    ----------
    key : str
        Key of the record that it belongs to.
    N : int
        Samples of one pass (of the run, for timings).
    t : int
        Samples seen (or the number of the run, for timings).
    metric, value : str, float
    note : str
        What went wrong, if anything did; or how the rows were changed before they were fed.
    track : str
        What makes the stream harder than the data itself; empty if the data is used as it is.
    origin : Provenance
        How the row was made; in a file, one column per field.
    """

    key: str
    figure: str
    data: str
    N: int
    D: int
    rho: float
    label: str
    algorithm: str
    K: int
    seed: int
    t: int
    metric: str
    value: float
    note: str = ""
    track: str = ""
    origin: Provenance = UNKNOWN


_OWN = tuple(field.name for field in fields(Row) if field.name != "origin")
COLUMNS = (*_OWN, *Provenance._fields)
_KINDS: Mapping[str, Callable[[str], Any]] = {**dict.fromkeys(("N", "D", "K", "seed", "t"), int), **dict.fromkeys(("rho", "value"), float)}


def _parse(cells: Sequence[str]) -> Row | None:
    """A row from its cells, or None if the line was cut off while it was written."""
    if len(cells) != len(COLUMNS):
        return None
    own, origin = cells[: len(_OWN)], cells[len(_OWN) :]
    try:
        values: list[Any] = [_KINDS.get(name, str)(cell) for name, cell in zip(_OWN, own, strict=True)]
    except ValueError:
        return None
    return Row(**dict(zip(_OWN, values, strict=True)), origin=Provenance(*origin))


def read_rows(path: str | Path) -> list[Row]:
    """The rows of a CSV file; none if it does not exist."""
    path = Path(path)
    if not path.exists():
        return []
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            lines = list(csv.reader(stream))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} is not a file of rows ({error}).") from error
    if not lines:
        return []
    if tuple(lines[0]) != COLUMNS:
        raise ValueError(f"{path} does not have the columns of this version's rows: move it away or choose another folder.")
    parsed = [_parse(cells) for cells in lines[1:]]
    damaged = next((number for number, row in enumerate(parsed[:-1], start=2) if row is None), None)
    if damaged is not None:  # only the last line may be cut off, by an interruption
        raise ValueError(
            f"{path} is damaged in record {damaged}: {','.join(lines[damaged - 1])[:80]!r} is not a row of {len(COLUMNS)} columns."
        )
    return [row for row in parsed if row is not None]


def finished(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Rows by record, for the records that finished and did not fail."""
    by_key: dict[str, list[Row]] = {}
    for row in rows:
        by_key.setdefault(row.key, []).append(row)
    return {
        key: group for key, group in by_key.items() if group[-1].metric == DONE and not any(row.metric in _NOT_TO_KEEP for row in group)
    }


def write_rows(path: str | Path, rows: Iterable[Row]) -> None:
    """Write a whole file, and replace the old one only when it is complete."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".part")
    with partial.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(COLUMNS)
        writer.writerows(map(_cells, rows))
    os.replace(partial, path)


def append_rows(path: str | Path, rows: Iterable[Row]) -> None:
    """Add rows to a file that `write_rows` began, and flush them to the disk."""
    with Path(path).open("a", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows(map(_cells, rows))
        stream.flush()
        os.fsync(stream.fileno())


def _cells(row: Row) -> list[str]:
    own = (getattr(row, name) for name in _OWN)
    return [*(repr(value) if isinstance(value, float) else str(value) for value in own), *row.origin]


def select(rows: Iterable[Row], **wanted: object) -> list[Row]:
    """Rows whose columns have the given values."""
    return [row for row in rows if all(getattr(row, name) == value for name, value in wanted.items())]


def median(values: Iterable[float]) -> float:
    """The median of the values that are not NaN; NaN if there are none."""
    ordered = sorted(value for value in values if not math.isnan(value))
    if not ordered:
        return math.nan
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else 0.5 * (ordered[middle - 1] + ordered[middle])


def distinct(rows: Iterable[Row], name: str) -> list[object]:
    """The values of a column, in the order in which they first appear."""
    return list(dict.fromkeys(getattr(row, name) for row in rows))
