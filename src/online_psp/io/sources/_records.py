"""Rows whose cells already have types: what JSON lines and Excel sheets share."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import date, datetime
from typing import Any, NamedTuple

import numpy as np

from online_psp.engine.types import Array
from online_psp.io.sources._columns import Choice, choose, text_columns, times_of, unique
from online_psp.io.sources._header import Kinds, find_top, row_numbers
from online_psp.io.sources._numerals import NA, Signs, is_number, number
from online_psp.io.sources._options import Options
from online_psp.io.sources._source import (
    Chunk,
    Deadline,
    EmptySourceError,
    Source,
    SourceError,
    UnknownSourceError,
    working_dtype,
)
from online_psp.io.sources._suspects import MOST_SAID, suspicion, warning
from online_psp.io.sources._text import Feed

_SAMPLE = 100
JSON_LINES = "write JSON lines, one object or list a line (pandas: to_json(orient='records', lines=True))"
_PLAIN = {int, float, bool}


class Record(NamedTuple):
    """A row as the file has it."""

    number: int
    """Number of its line or row in the file, from 1."""
    cells: Any
    """A list of values, a dict of them by name, or a str that says why there is neither."""


Records = Callable[[], Iterator[Record | None]]


class Shape(NamedTuple):
    """What a record must have."""

    names: list[str] | None
    widths: list[int]
    """Number of values of each column: more than one if it has lists."""
    choice: Choice
    name: str
    na: frozenset[str]
    signs: Signs
    """How numbers in cells of text are written."""

    def column(self, at: int) -> str:
        """A column as messages name it."""
        return f"column {at}" + (f" ({self.names[at]!r})" if self.names else "")


def open_records(records: Records, name: str, unit: str, options: Options, kind: str, feed: Feed) -> Source:
    """Open a file whose cells have types; `unit` is what messages call a row of the file."""
    once = feed.place is None
    first: list[Record] = []
    stream = records()
    wanted = 2 if once else _SAMPLE
    for record in stream:
        if record is not None:
            first.append(record)
        if len(first) >= wanted:
            break
    if not first:
        raise EmptySourceError(f"{name} is empty.")
    notes: list[str] = []
    warnings: list[str] = []
    if len(first) == 1 and _is_table(first[0].cells, name):
        raise UnknownSourceError(f"{name} is one JSON object with whole columns or tables in it; {JSON_LINES}.")
    shape, before = _shape(first, options, name, notes, warnings)
    numbers: list[tuple[int, int]] = []

    def fresh() -> Iterator[Record | None]:
        if not once:
            stream.close()  # type: ignore[attr-defined]
            yield from records()
        else:
            yield from first
            first.clear()
            yield from stream

    def read(start: int, size: int, deadline: Deadline | None = None) -> Iterator[Chunk]:
        waiting: list[Record] = []
        at, skip = start, start + before
        for record in fresh():
            if record is not None:
                if skip:
                    skip -= 1
                    continue
                waiting.append(record)
            if len(waiting) == size or (waiting and deadline is not None and once and deadline()):
                numbers[:] = [(at + i, each.number) for i, each in enumerate(waiting)]
                at += len(waiting)
                yield _chunk(waiting, shape)
                waiting = []
            elif record is None and deadline is not None:
                yield _chunk([], shape)
        if waiting:
            numbers[:] = [(at + i, each.number) for i, each in enumerate(waiting)]
            yield _chunk(waiting, shape)

    def where(row: int) -> str:
        offset = row - numbers[0][0] if numbers else -1
        return f"{unit} {numbers[offset][1]}" if 0 <= offset < len(numbers) else ""

    widths = [shape.widths[at] for at in shape.choice.features]
    chosen = None
    if shape.names:
        chosen = [shape.names[at] if shape.widths[at] == 1 else f"{shape.names[at]}.{i}"
                  for at in shape.choice.features for i in range(shape.widths[at])]  # fmt: skip
        notes.insert(0, f"{len(chosen)} column{'s' if len(chosen) != 1 else ''}: {', '.join(chosen[:6])}{', …' if len(chosen) > 6 else ''}")
    schema = {name: value for name, value in options.text._asdict().items() if name in ("decimal", "thousands", "skip_rows") and value}
    prints = (feed.place.print(),) if feed.place is not None else (feed.print,) if feed.print is not None else ()
    return Source(
        name, sum(widths), working_dtype(np.float64, options.dtype, name), read, once=once, feature_names=chosen, places=where,
        notes=notes, warnings=warnings, kind=kind, prints=prints, schema={**options.schema(), **schema, "header": before > 0},
        column_numbers=[at for at in shape.choice.features for _ in range(shape.widths[at])], **options.common(),
    )  # fmt: skip


def _is_table(cells: Any, name: str) -> bool:
    """Whether the only object of a file is not a row: it has lists of lists or of objects, or its values are columns of equal length."""
    if not isinstance(cells, dict):
        return False
    lists = [value for value in cells.values() if isinstance(value, list)]
    if any(isinstance(each, list | dict) for value in lists for each in value[:1]):
        return True
    by_number = name.lower().endswith(".json") and all("." in key and key.rpartition(".")[2].isdecimal() for key in cells)
    return by_number or (len(lists) == len(cells) > 1 and len(set(map(len, lists))) == 1 and len(lists[0]) > 1)


def _shape(first: list[Record], options: Options, name: str, notes: list[str], warnings: list[str]) -> tuple[Shape, int]:
    """The shape that records must have, and the number of records before the first row."""
    good = [record.cells for record in first if not isinstance(record.cells, str)]
    if not good:
        raise SourceError(f"{name}, line {first[0].number}: it {first[0].cells}.")
    na = NA | frozenset(options.text.na_values or ())
    signs = Signs(options.text.decimal or ("," if options.text.thousands == "." else "."), options.text.thousands)
    kinds = Kinds(lambda cell: is_number(cell, signs), na)
    names, before = (_keys(good), 0) if isinstance(good[0], dict) else _names(good, kinds, options, notes)
    good = good[before:]
    width = len(names) if names is not None else _width(good)
    rows = [_in_order(cells, names, width) for cells in good]
    rows = [cells for cells in rows if not isinstance(cells, str)]
    left_out = []
    if before and names and rows:
        left_out = row_numbers(names, [list(map(_text, row)) for row in rows], kinds, options.text.keep_index, notes, warnings)
    if names is not None and before:
        names, changed = unique(names)
        if changed := [each for each in changed if names.index(each) not in left_out]:
            notes.append(f"names that come twice were numbered: {', '.join(changed[:5])}")
    widths = [next((len(row[at]) for row in rows if isinstance(row[at], list)), 1) for at in range(width)]
    choice = choose(options.wanted, names, width, name, [at for at in range(width) if at not in left_out])
    shape = Shape(names, widths, choice, name, na, signs)
    text = {at: _text(rows[0][at]) for at in choice.features if rows and all(_is_text(row[at], shape) for row in rows)}
    if text:
        raise SourceError(text_columns(text, choice.features, names, name))
    warnings += _doubts(rows, shape)
    return shape, before


def _doubts(rows: list[Any], shape: Shape) -> list[str]:
    """Warnings about columns that look like row numbers, times or labels, not features, and about columns that are mostly empty."""
    found, empty = [], []
    for at in shape.choice.features:
        column = [row[at] for row in rows]
        missing = sum(value is None for value in column)
        if len(rows) > 1 and 2 * missing > len(rows):
            count = "all" if missing == len(rows) else f"{missing}"
            empty.append(f"{shape.column(at)} is empty in {count} of the first {len(rows)} rows (--exclude {at} to leave it out)")
        elif shape.widths[at] == 1 and all(type(value) in (int, float) for value in column):
            why = suspicion(shape.names[at] if shape.names else None, np.array(list(map(_float, column))))
            if why is not None:
                found.append(warning(shape.column(at), at, why))
    return [*found[:MOST_SAID], *empty[:MOST_SAID]]


def _keys(good: list[Any]) -> list[str]:
    """The keys of the first objects, in the order of the longest one; an object may lack some."""
    objects = [cells for cells in good if isinstance(cells, dict)]
    return list(dict.fromkeys(key for cells in [max(objects, key=len), *objects] for key in cells))


def _names(good: list[Any], kinds: Kinds, options: Options, notes: list[str]) -> tuple[list[str] | None, int]:
    """The names in the first records of cells, and how many records come before the first row."""
    table = [list(map(_text, row)) for row in good if isinstance(row, list) and not any(isinstance(cell, list | dict) for cell in row)]
    if len(table) < len(good):
        return None, 0
    width = _width(good)
    table = [[*row[:width], *[""] * (width - len(row))] for row in table]
    top = find_top(table, kinds, options.text.header, options.text.skip_rows is not None, notes)
    return (None if top.names is None else table[top.names]), top.rows


def _width(rows: list[Any]) -> int:
    """The number of cells per row, without trailing cells that are empty in all rows."""
    return max((at + 1 for row in rows if isinstance(row, list) for at, cell in enumerate(row) if cell is not None), default=0)


def _in_order(cells: Any, names: list[str] | None, width: int) -> Any:
    """A record's values in the order of the columns, or what is wrong with it."""
    if isinstance(cells, str):
        return cells
    if isinstance(cells, dict):
        if names is None:
            return "is an object where lists are expected"
        unknown = [key for key in cells if key not in names]
        if unknown:
            return f"has {unknown[0][:40]!r}, which the first rows have not"
        return [cells.get(key) for key in names]
    values = list(cells)
    while len(values) > width and values[-1] is None:
        values.pop()
    if len(values) != width:
        return f"has {len(values)} value{'s' if len(values) != 1 else ''} where {width} are expected"
    return values


def _value(value: Any, shape: Shape) -> float | str:
    """A number, NaN for a missing value, or the text if it is neither."""
    if value is None:
        return np.nan
    if isinstance(value, bool | int | float):
        return _float(value)
    if isinstance(value, str):
        bare = value.strip()
        return np.nan if bare in shape.na else number(bare, shape.signs) if is_number(bare, shape.signs) else bare
    return value.isoformat() if isinstance(value, datetime | date) else json.dumps(value, default=str)[:60]


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # a whole number too large for any float
        return np.inf


def _is_text(value: Any, shape: Shape) -> bool:
    return not isinstance(value, list) and isinstance(_value(value, shape), str)


def _chunk(records: list[Record], shape: Shape) -> Chunk:
    choice = shape.choice
    total = sum(shape.widths[at] for at in choice.features)
    plain = _plain(records, shape)
    if plain is not None:
        return Chunk(len(records), plain, {})
    good: list[list[float]] = []
    bad: dict[int, str] = {}
    ids = np.full((len(records), len(choice.ids)), "", dtype=object) if choice.ids else None
    times = [""] * len(records)
    for row, record in enumerate(records):
        cells = _in_order(record.cells, shape.names, len(shape.widths))
        if isinstance(cells, str):
            bad[row] = cells
            continue
        if ids is not None:
            ids[row] = [_text(cells[at]) for at in choice.ids]
        if choice.time is not None:
            times[row] = _text(cells[choice.time])
        values, problem = _row(cells, shape)
        if problem is None:
            good.append(values)
        else:
            bad[row] = problem
    found = np.array(good, dtype=np.float64).reshape(len(good), total)
    return Chunk(len(records), found, bad, ids, times_of(times, shape.name) if choice.time is not None else None)


def _plain(records: list[Record], shape: Shape) -> Array | None:
    """Convert all records at once, if they contain nothing but numbers and all columns are features; otherwise None."""
    choice, names = shape.choice, shape.names
    if choice.ids or choice.time is not None or any(width != 1 for width in shape.widths):
        return None
    rows = []
    for record in records:
        cells = record.cells
        if names is not None and isinstance(cells, dict) and len(cells) == len(names):
            cells = list(map(cells.get, names))  # a name that is missing gives None, which is not a plain number
        if not isinstance(cells, list) or len(cells) != len(shape.widths) or not set(map(type, cells)) <= _PLAIN:
            return None
        rows.append(cells)
    try:
        values = np.array(rows, dtype=np.float64)
    except OverflowError:  # a whole number too large for a float
        return None
    values = values.reshape(len(rows), len(shape.widths))
    return values if choice.features == list(range(len(shape.widths))) else values[:, choice.features]


def _row(cells: list[Any], shape: Shape) -> tuple[list[float], str | None]:
    values: list[float] = []
    for at in shape.choice.features:
        given = cells[at] if shape.widths[at] > 1 or isinstance(cells[at], list) else [cells[at]]
        if not isinstance(given, list) or len(given) != shape.widths[at]:
            count = len(given) if isinstance(given, list) else "no"
            return [], f"has {count} values where {shape.widths[at]} are expected in {shape.column(at)}"
        for each in given:
            value = _value(each, shape)
            if isinstance(value, str):
                return [], f"has the text {value[:40]!r} in {shape.column(at)}"
            values.append(value)
    return values, None


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value.isoformat() if isinstance(value, datetime | date) else str(value)
