"""JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from online_psp.io.sources._lines import Cut, Lines, transcoded
from online_psp.io.sources._options import Options
from online_psp.io.sources._records import Record, open_records
from online_psp.io.sources._sniff import encoding_of
from online_psp.io.sources._source import Source, reason
from online_psp.io.sources._text import Feed, longest_line

_HEAD = 1 << 12


def open_jsonl(feed: Feed, options: Options) -> Source:
    """Open JSON lines: one object, or one list of numbers, per line."""
    kept: list[Lines] = []
    encoding = options.text.encoding or "utf-8"
    if feed.place is not None and options.text.encoding is None:
        head = next(feed.clear(), b"") or b""
        encoding, _ = encoding_of(head[:_HEAD], None, feed.name, False)
        encoding = "utf-8" if encoding == "cp1252" else encoding  # lines that are not UTF-8 are bad rows

    def records() -> Iterator[Record | None]:
        if not kept or feed.place is not None:
            text = transcoded(feed.clear(), encoding, feed.name)
            kept[:] = [Lines(text, Cut(longest_line(options)), feed.name, lambda: options.final is not False)]
            kept[0].quotes = False
        for batch in kept[0].batches(0, 256, lambda: True):
            if batch is None:
                yield None
                continue
            for line, at in zip(batch.text.split(b"\n"), batch.numbers, strict=False):
                yield Record(int(at), _parsed(line))

    return open_records(records, feed.name, "line", options, "jsonl", feed)


class _TwiceError(ValueError):
    """A name comes twice in an object."""


def _parsed(line: bytes) -> Any:
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
