"""JSON lines: one object, or one list of numbers, per line; cut as text, and each line parsed by itself."""

from __future__ import annotations

import json
from datetime import date, datetime
from typing import Any, NamedTuple

import numpy as np

from online_psp.engine.types import Array
from online_psp.io.sources.columns import Choice, choose, text_columns, times_of
from online_psp.io.sources.numerals import NA, Signs, is_number, number
from online_psp.io.sources.options import Options
from online_psp.io.sources.source import Chunk, EmptySourceError, Source, SourceError, UnknownSourceError, reason
from online_psp.io.sources.suspects import doubts
from online_psp.io.sources.text import Feed, Reader, Rows, source_of_text

_SAMPLE = 100
_NOT_LINES = "write JSON lines, one object or list a line (pandas: to_json(orient='records', lines=True))"


def open_json_lines(feed: Feed, options: Options) -> Source:
    """Open JSON lines."""
    head, whole = feed.head(options)
    refuse_array(head, feed.name)
    feed.understand(head, True, options)
    feed.encoding = options.text.encoding or ("utf-8" if feed.encoding == "cp1252" else feed.encoding)  # other lines are bad rows
    lines = [line for line in feed.lines(head, whole) if line.strip()][: 2 if feed.once else _SAMPLE]
    if not lines:
        raise EmptySourceError(f"{feed.name} is empty.")
    first = [_parsed(line.encode()) for line in lines]
    if len(first) == 1 and _is_table(first[0], feed.name):
        raise UnknownSourceError(f"{feed.name} is one JSON object with whole columns or tables in it; {_NOT_LINES}.")
    good = [cells for cells in first if not isinstance(cells, str)]
    if not good:
        raise SourceError(f"{feed.name}, line 1: it {first[0]}.")
    signs = Signs(options.text.decimal or ("," if options.text.thousands == "." else "."), options.text.thousands)
    objects = [cells for cells in good if isinstance(cells, dict)]
    names = list(dict.fromkeys(key for cells in [max(objects, key=len), *objects] for key in cells)) if isinstance(good[0], dict) else None
    width = len(names) if names is not None else max(len(cells) for cells in good if isinstance(cells, list))
    shape = _Shape(names, [1] * width, Choice([], [], None), feed.name, NA | frozenset(options.text.na_values or ()), signs)
    rows = [row for row in map(shape.in_order, good) if not isinstance(row, str)]
    widths = [next((len(row[at]) for row in rows if isinstance(row[at], list)), 1) for at in range(width)]
    choice = choose(options.wanted, names, width, feed.name)
    shape = shape._replace(widths=widths, choice=choice)
    text = {at: str(rows[0][at]) for at in choice.features if rows and all(isinstance(shape.value(row[at]), str) for row in rows)}
    if text:
        raise SourceError(text_columns(text, choice.features, names, feed.name))
    chosen = names and [
        names[at] if widths[at] == 1 else f"{names[at]}.{i}" for at in choice.features for i in range(widths[at])
    ]  # fmt: skip
    notes = [] if chosen is None else [f"{len(chosen)} columns: {', '.join(chosen[:6])}{', …' if len(chosen) > 6 else ''}"]
    if feed.place.packed:
        notes.append(f"compressed by {feed.place.packed}")

    def values(at: int) -> Array | None:
        column = [row[at] for row in rows]
        return np.array(column, dtype=np.float64) if set(map(type, column)) <= {int, float} else None

    empty = [at for at in choice.features if len(rows) > 1 and 2 * sum(row[at] is None for row in rows) > len(rows)]
    warnings = doubts(((at, names[at] if names else None) for at in choice.features if at not in empty), values)
    warnings += [
        f"{shape.column(at)} is empty in {count if (count := sum(row[at] is None for row in rows)) < len(rows) else 'all'} of the first "
        f"{len(rows)} rows (--exclude {at} to leave it out)"
        for at in empty[:3]
    ]
    return source_of_text(
        Reader(feed, shape.chunk, options), sum(widths[at] for at in choice.features), "jsonl", options,
        {name: value for name, value in (("decimal", options.text.decimal), ("thousands", options.text.thousands)) if value},
        feature_names=chosen, notes=notes, warnings=warnings,
        column_numbers=[at for at in choice.features for _ in range(widths[at])],
    )  # fmt: skip


def refuse_array(head: bytes, name: str) -> None:
    """Refuse what is one JSON array: each row must have its own line, so that rows can be read one after the other."""
    start = b"".join(head[:4096].lstrip(b"\xef\xbb\xbf \t\r\n").split())
    if start.startswith((b"[{", b"[[")) or start in (b"[", b"{"):
        raise UnknownSourceError(f"{name} is one JSON array; {_NOT_LINES}.")


def _is_table(cells: Any, name: str) -> bool:
    """Whether the only object of a file is not a row: it has lists of lists or of objects, or its values are columns of equal length."""
    if not isinstance(cells, dict):
        return False
    lists = [value for value in cells.values() if isinstance(value, list)]
    if any(isinstance(each, list | dict) for value in lists for each in value[:1]):
        return True
    by_number = name.lower().endswith(".json") and all("." in key and key.rpartition(".")[2].isdecimal() for key in cells)
    return by_number or (len(lists) == len(cells) > 1 and len(set(map(len, lists))) == 1 and len(lists[0]) > 1)


class _TwiceError(ValueError):
    """A name comes twice in an object."""


def _parsed(line: bytes) -> Any:
    """A list of values, a dict of them by name, or a str that says why there is neither."""
    try:
        found = json.loads(line)
        if isinstance(found, dict) and line.count(b":") != len(found):  # objects in it, colons in texts, or a name that comes twice
            found = json.loads(line, object_pairs_hook=_object)
    except _TwiceError as error:
        return str(error)
    except (ValueError, RecursionError) as error:
        return f"is not JSON ({reason(error)})"
    if isinstance(found, dict):
        return _flat(found) if any(isinstance(value, dict) for value in found.values()) else found
    return found if isinstance(found, list) else f"is {type(found).__name__}, not an object or a list"


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; of two values with the same name, the parser by itself would keep the second."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise _TwiceError(f"has {name[:40]!r} twice")
        found[name] = value
    return found


def _flat(found: dict[str, Any]) -> dict[str, Any] | str:
    """An object with the values of objects inside it, named like ``position.x``; or what is wrong, if two have the same name."""
    flat: dict[str, Any] = {}
    for key, value in found.items():
        inner = _flat(value) if isinstance(value, dict) else {"": value}
        if isinstance(inner, str):
            return inner
        for name, each in inner.items():
            whole = f"{key}.{name}" if isinstance(value, dict) else key
            if whole in flat:
                return f"has {whole[:40]!r} twice"
            flat[whole] = each
    return flat


class _Shape(NamedTuple):
    """What a line must have."""

    names: list[str] | None
    widths: list[int]
    """Number of values of each column: more than one if it has lists."""
    choice: Choice
    name: str
    na: frozenset[str]
    signs: Signs
    """How numbers in texts are written."""

    def column(self, at: int) -> str:
        """A column as messages name it."""
        return f"column {at}" + (f" ({self.names[at]!r})" if self.names else "")

    def in_order(self, cells: Any) -> Any:
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
        return cells

    def value(self, value: Any) -> float | str | list[Any]:
        """A number, NaN for a missing value, the text if it is neither; lists as they are."""
        if value is None:
            return np.nan
        if isinstance(value, bool | int | float):
            try:
                return float(value)
            except OverflowError:  # a whole number too large for any float
                return np.inf
        if isinstance(value, str):
            bare = value.strip()
            return np.nan if bare in self.na else number(bare, self.signs) if is_number(bare, self.signs) else bare
        return value if isinstance(value, list) else str(value)

    def chunk(self, rows: Rows) -> Chunk:
        """Lines as rows."""
        choice, lines = self.choice, [self.in_order(_parsed(line)) for line in rows.split()]
        ids = np.full((len(lines), len(choice.ids)), "", dtype=object) if choice.ids else None
        times = [""] * len(lines)
        good: list[list[Any]] = []
        bad: dict[int, str] = {}
        for at, cells in enumerate(lines):
            if not isinstance(cells, str):
                if ids is not None:
                    ids[at] = [_text(cells[i]) for i in choice.ids]
                if choice.time is not None:
                    times[at] = _text(cells[choice.time])
                cells = self._row(cells)  # noqa: PLW2901
            if isinstance(cells, str):
                bad[at] = cells
            else:
                good.append(cells)
        width = sum(self.widths[at] for at in choice.features)
        found = np.array(good, dtype=np.float64).reshape(len(good), width)
        return Chunk(len(lines), found, bad, ids, times_of(times, self.name) if choice.time is not None else None)

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
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value.isoformat() if isinstance(value, datetime | date) else str(value)
