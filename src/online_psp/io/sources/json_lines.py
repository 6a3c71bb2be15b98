"""JSON lines: one object, or one list of numbers, per line; cut as text, and each line parsed by itself."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import numpy as np

from online_psp.io.sources.columns import Choice, choose, listing, text_columns, times_of
from online_psp.io.sources.numerals import NA, POINT
from online_psp.io.sources.options import Options
from online_psp.io.sources.source import Chunk, EmptySourceError, Source, SourceError, UnknownSourceError, reason
from online_psp.io.sources.text import Feed, Reader, Rows, source_of_text


def open_json_lines(feed: Feed, options: Options) -> Source:
    """Open JSON lines."""
    lines, _ = feed.first_lines(options, bool)
    if feed.encoding == "cp1252" and options.text.encoding is None:
        feed.encoding = "utf-8"  # JSON is; other lines are bad rows
    lines = [line for line in lines if line.strip()]
    if not lines:
        raise EmptySourceError(f"{feed.name} is empty.")
    first = [_parsed(line.encode()) for line in lines]
    start = "".join("".join(lines[:2]).split())
    if start.startswith(("[{", "[[")) or lines[0].strip() in ("[", "{") or (len(first) == 1 and _is_table(first[0])):
        raise UnknownSourceError(
            f"{feed.name} is one JSON array or object with all rows in it; write JSON lines, one object or list a line "
            "(pandas: to_json(orient='records', lines=True))."
        )
    good = [cells for cells in first if not isinstance(cells, str)]
    if not good:
        raise SourceError(f"{feed.name}, line 1: it {first[0]}.")
    objects = [cells for cells in good if isinstance(cells, dict)]
    names = list(dict.fromkeys(key for cells in [max(objects, key=len), *objects] for key in cells)) if isinstance(good[0], dict) else None
    width = len(names) if names is not None else max(len(cells) for cells in good if isinstance(cells, list))
    choice = choose(options.wanted, names, width, feed.name)
    shape = _Shape(names, [1] * width, choice, feed.name, NA | frozenset(options.text.na_values or ()))
    rows = [row for row in map(shape.in_order, good) if not isinstance(row, str)]
    for at in range(width):
        shape.widths[at] = next((len(row[at]) for row in rows if isinstance(row[at], list)), 1)
    text = {at: str(rows[0][at]) for at in choice.features if rows and all(isinstance(shape.value(row[at]), str) for row in rows)}
    if text:
        raise SourceError(text_columns(text, choice.features, names, feed.name))
    numbers = [at for at in choice.features for _ in range(shape.widths[at])]
    chosen = names and [
        names[at] if shape.widths[at] == 1 else f"{names[at]}.{i}" for at in choice.features for i in range(shape.widths[at])
    ]  # fmt: skip
    return source_of_text(
        Reader(feed, shape.chunk, options), len(numbers), "jsonl", options, {}, feature_names=chosen, column_numbers=numbers,
        notes=[listing(chosen, len(numbers))],
    )  # fmt: skip


def _is_table(cells: Any) -> bool:
    """Whether the only object of a file is not a row: its values are columns, or objects by row number."""
    if not isinstance(cells, dict):
        return False
    lists = [value for value in cells.values() if isinstance(value, list)]
    nested = any(isinstance(each, list | dict) for value in lists for each in value[:1])
    columns = len(lists) == len(cells) > 1 and len(set(map(len, lists))) == 1
    return nested or columns or all(key.rpartition(".")[2].isdecimal() for key in cells)


def _parsed(line: bytes) -> Any:
    """A list of values, a dict of them by name, or a str that says why there is neither."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        return f"is not JSON ({reason(error)})"
    if isinstance(found, dict):
        return _flat(found) if any(isinstance(value, dict) for value in found.values()) else found
    return found if isinstance(found, list) else f"is {type(found).__name__}, not an object or a list"


def _flat(found: dict[str, Any]) -> dict[str, Any]:
    """An object with the values of objects inside it, named like ``position.x``."""
    flat: dict[str, Any] = {}
    for key, value in found.items():
        flat.update({f"{key}.{name}": each for name, each in _flat(value).items()} if isinstance(value, dict) else {key: value})
    return flat


class _Shape(NamedTuple):
    """What a line must have."""

    names: list[str] | None
    widths: list[int]
    """Number of values of each column: more than one if it has lists."""
    choice: Choice
    name: str
    na: frozenset[str]

    def column(self, at: int) -> str:
        """A column as messages name it."""
        return f"column {at}" + (f" ({self.names[at]!r})" if self.names else "")

    def in_order(self, cells: Any) -> list[Any] | str:
        """The values of a line in the order of the columns, or what is wrong with it."""
        if isinstance(cells, str):
            return cells
        if isinstance(cells, dict):
            if self.names is None:
                return "is an object where lists are expected"
            unknown = [key for key in cells if key not in self.names]
            return f"has {unknown[0][:40]!r}, which the first rows have not" if unknown else [cells.get(key) for key in self.names]
        if len(cells) != len(self.widths):
            return f"has {len(cells)} value{'s' if len(cells) != 1 else ''} where {len(self.widths)} are expected"
        return list(cells)

    def value(self, value: Any) -> float | str | list[Any]:
        """A number, NaN for a missing value, the text if it is neither; lists as they are."""
        if value is None or isinstance(value, bool | int | float):
            try:
                return np.nan if value is None else float(value)
            except OverflowError:  # a whole number too large for any float
                return np.inf
        if isinstance(value, str):
            bare = value.strip()
            found = np.nan if bare in self.na else POINT.number(bare)
            return bare if found is None else found
        return value if isinstance(value, list) else str(value)

    def chunk(self, rows: Rows) -> Chunk:
        """Lines as rows."""
        choice, lines = self.choice, [self.in_order(_parsed(line)) for line in rows.split()]
        labels = [["" if isinstance(cells, str) else _text(cells[at]) for cells in lines] for at in choice.ids]
        times = None
        if choice.time is not None:
            times = times_of(["" if isinstance(cells, str) else _text(cells[choice.time]) for cells in lines], self.name)
        found = [cells if isinstance(cells, str) else self._row(cells) for cells in lines]
        good = [row for row in found if not isinstance(row, str)]
        values = np.array(good, dtype=np.float64).reshape(len(good), sum(self.widths[at] for at in choice.features))
        bad = {at: row for at, row in enumerate(found) if isinstance(row, str)}
        return Chunk(len(lines), values, bad, np.array(labels, dtype=object).T if labels else None, times)

    def _row(self, cells: list[Any]) -> list[float] | str:
        """The numbers of a row, or what is wrong with it."""
        given = [cells[at] for at in self.choice.features]
        if set(map(type, given)) == {float}:
            return given
        values: list[float] = []
        for at, cell in zip(self.choice.features, given, strict=True):
            parts = cell if self.widths[at] > 1 or isinstance(cell, list) else [cell]
            if not isinstance(parts, list) or len(parts) != self.widths[at]:
                count = len(parts) if isinstance(parts, list) else "no"
                return f"has {count} values where {self.widths[at]} are expected in {self.column(at)}"
            for part in parts:
                value = self.value(part)
                if not isinstance(value, float):
                    return f"has the text {str(value)[:40]!r} in {self.column(at)}"
                values.append(value)
        return values


def _text(value: Any) -> str:
    return "" if value is None else str(int(value) if isinstance(value, float) and value.is_integer() else value)
