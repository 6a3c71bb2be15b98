"""Chooses which columns of a table are features, which are ids, and which is the time."""

from __future__ import annotations

import csv
import difflib
import fnmatch
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse

from online_psp.engine.types import Array
from online_psp.io.sources.source import Chunk, Mark, Source, SourceError, UnknownSourceError

Columns = Sequence[str | int] | str | int | None
_RANGE = re.compile(r"(\d+)-(\d+)")


class Choice(NamedTuple):
    """Positions of columns, from 0."""

    features: list[int]
    ids: list[int]
    time: int | None


class Wanted(NamedTuple):
    """The user's options about columns."""

    columns: Columns = None
    exclude: Columns = None
    ids: Columns = None
    time_column: str | int | None = None

    def any(self) -> bool:
        """Whether any option was given."""
        return any(each is not None for each in self)


def column_list(text: str | None) -> list[str] | None:
    """Split ``a,b,"c, d",3-7`` into a list of columns; names with commas are quoted."""
    if text is None:
        return None
    try:
        cells = next(csv.reader([text], skipinitialspace=True, strict=True), [])
    except csv.Error as error:
        raise UnknownSourceError(f"{text!r} is not a list of columns ({error}).") from None
    return [cell.strip() for cell in cells if cell.strip()]


def listed(columns: Columns) -> list[str | int] | None:
    """One column or several, as a list."""
    if columns is None:
        return None
    return [columns] if isinstance(columns, str | int) else list(columns)


def choose(wanted: Wanted, names: Sequence[str] | None, width: int, name: str, usable: Sequence[int] | None = None) -> Choice:
    """The columns that the user chose.

    Parameters
    ----------
    names : sequence of str, optional
        Names of all `width` columns.
    usable : places, optional
        Columns that are features unless the user chooses others; all by default.
    """
    ids = places(wanted.ids, names, width, name) or []
    time = places(wanted.time_column, names, width, name)
    if time is not None and len(time) != 1:
        raise UnknownSourceError(f"{name} can have one column of times; {wanted.time_column!r} names {len(time)}.")
    set_apart = {*ids, *(time or [])}
    features = places(wanted.columns, names, width, name)
    if features is None:
        features = list(range(width) if usable is None else usable)
    set_apart.update(places(wanted.exclude, names, width, name) or [])
    features = [at for at in features if at not in set_apart]
    if not features:
        raise UnknownSourceError(f"{name} has {width} columns, and none of them is left to learn from.")
    return Choice(features, ids, time[0] if time else None)


def places(columns: Columns, names: Sequence[str] | None, width: int, name: str) -> list[int] | None:
    """Columns by name, number from 0, range of numbers (``3-7``, both ends included) or pattern (``gene_*``), each once."""
    given = listed(columns)
    if given is None:
        return None
    found: dict[int, None] = {}
    at_name: dict[str, int] = {}
    for at, each in enumerate(names or []):
        at_name.setdefault(each, at)
    for column in given:
        found.update(dict.fromkeys(_places(column, at_name, width, name)))
    return list(found)


def _places(column: str | int, at_name: dict[str, int], width: int, name: str) -> Sequence[int]:
    if isinstance(column, str) and column in at_name:
        return [at_name[column]]
    text = str(column).strip()
    if text.isdecimal() and text.isascii():
        if int(text) < width:
            return [int(text)]
        raise UnknownSourceError(f"{name} has no column {text}: it has {width}, from 0 to {width - 1}.")
    ends = _RANGE.fullmatch(text)
    if ends:
        first, last = int(ends[1]), int(ends[2])
        if first > last or last >= width:
            raise UnknownSourceError(f"{name} has no columns {text}: it has {width}, from 0 to {width - 1}.")
        return range(first, last + 1)
    if re.search(r"[*?\[]", text):
        found = [at for each, at in at_name.items() if fnmatch.fnmatchcase(each, text)]
        if found:
            return sorted(found)
    raise UnknownSourceError(f"{name} has no column {text!r}{_instead(text, list(at_name))}: it has {width}{_known(list(at_name))}.")


def _instead(text: str, names: list[str]) -> str:
    close = difflib.get_close_matches(text, names[:10_000], 1)
    return f" (is {close[0]!r} meant?)" if close else ""


def _known(names: list[str]) -> str:
    if not names:
        return " without names, by number from 0"
    return f" by name ({', '.join(names[:8])}{', …' if len(names) > 8 else ''}) or by number from 0"


def unique(names: Sequence[str], sign: str = ".") -> tuple[list[str], list[str]]:
    """Unique names, and those that had to be changed: ``a, a`` becomes ``a, a.1``, unless that is the name of another."""
    taken, counts = set(names), dict[str, int]()
    found, changed = [], []
    for at, given in enumerate(names):
        stem = given or f"unnamed_{at}"
        count = counts.get(stem, -1) + 1
        while count and f"{stem}{sign}{count}" in taken:
            count += 1
        counts[stem] = count
        found.append(f"{stem}{sign}{count}" if count else stem)
        taken.add(found[-1])
        changed += found[-1:] if count else []
    return found, changed


def listing(names: Sequence[str] | None, count: int) -> str:
    """The number of features and the first names, for notes."""
    shown = f": {', '.join(names[:6])}{', …' if len(names) > 6 else ''}" if names else ""
    return f"{count} column{'s' if count != 1 else ''}{shown}"


def text_columns(examples: Mapping[int, str], features: list[int], names: Sequence[str] | None, name: str, hint: str = "") -> str:
    """A sentence about text columns, given an example from each, and what to do about them."""
    wrong = list(examples)
    named = ", ".join(f"{at} ({names[at]!r})" if names else str(at) for at in wrong[:5]) + (", …" if len(wrong) > 5 else "")
    one = len(wrong) == 1
    said = f"column{'' if one else 's'} {named} {'is' if one else 'are'} text ({examples[wrong[0]][:40]!r}, …){hint}"
    if len(wrong) == len(features):
        return f"{name} has no numbers in its first rows: {said}."
    return (
        f"{name}: {said}: leave {'it' if one else 'them'} out (--exclude {','.join(map(str, wrong))}), or pick the columns of numbers "
        "(--columns); --ids carries text through."
    )


def times_of(cells: Sequence[str], name: str) -> Array:
    """Parse times: seconds as numbers, or dates and times (ISO 8601) as datetime64[us] in UTC; empty cells become NaN or NaT."""
    try:
        return np.array([float(cell) if cell else np.nan for cell in cells], dtype=np.float64)
    except ValueError:
        pass
    found = np.empty(len(cells), dtype="datetime64[us]")
    wrong = None
    for at, cell in enumerate(cells):
        try:
            moment = datetime.fromisoformat(cell)
            found[at] = np.datetime64(moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment)
        except ValueError:
            found[at] = np.datetime64("NaT")
            wrong = wrong or cell
    if wrong is not None and np.isnat(found).all():
        raise SourceError(f"{name}: the column of times has {wrong[:40]!r}, neither a number of seconds nor a date as 2026-01-31T12:00:00.")
    return found


def picked(source: Source, wanted: Wanted) -> Source:
    """A source with the columns that the user chose, for readers that return all columns as numbers."""
    if not wanted.any():
        return source
    choice = choose(wanted, source.feature_names, source.features, source.name)
    names = source.feature_names

    def read(begin: Mark) -> Iterator[Chunk]:
        for chunk in source.read(begin):
            yield _picked(chunk, choice)

    return replace(
        source,
        features=len(choice.features),
        read=read,
        feature_names=None if names is None else [names[at] for at in choice.features],
        column_numbers=choice.features,
        image_shape=None,
    )


def _picked(chunk: Chunk, choice: Choice) -> Chunk:
    rows = chunk.rows
    good = [at for at in range(chunk.length) if at not in chunk.bad] if chunk.bad else slice(None)
    ids, times = chunk.ids, chunk.times
    if choice.ids:
        ids = np.full((chunk.length, len(choice.ids)), "", dtype=object)
        ids[good] = _as_text(rows[:, choice.ids])
    if choice.time is not None:
        times = np.full(chunk.length, np.nan)
        column = rows[:, [choice.time]]
        times[good] = np.asarray(column.toarray() if issparse(column) else column, dtype=np.float64)[:, 0]
    return Chunk(chunk.length, rows[:, choice.features], chunk.bad, ids, times, chunk.marks)


def _as_text(values: Any) -> Array:
    """Numbers as IDs: whole numbers without a decimal point."""
    dense = np.asarray(values.toarray() if issparse(values) else values)
    texts = [[str(int(value)) if float(value).is_integer() else repr(value) for value in row] for row in dense.tolist()]
    return np.array(texts, dtype=object).reshape(dense.shape)
