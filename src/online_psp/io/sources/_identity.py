"""Identities of sources, which tell whether a resumed run still has the same data.

An identity is a JSON object. It holds the names and sizes of the files, digests of the first and the last megabyte of each, and how the
rows were read. A file that has only grown has the same beginning and, where it used to end, the same end: so digests are stored with the
range that they cover, and the new file is digested over the *old* ranges (`identity(since=old)`).

Formats that are read as bytes (text, raw binary, pictures) are digested as bytes. Formats that rewrite their header as they grow (NumPy,
HDF5, Parquet, …) are digested as rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

MEGABYTE = 1 << 20
_EACH = 64  # if there are more files, all but the first and last few are identified by name and size only
_ENDS = 8
_LISTED = 256


class Print(Protocol):
    """One file, or one array, that can be digested by ranges."""

    name: str
    unit: str
    """Unit of the ranges: "bytes" or "rows"."""

    def size(self) -> int | None:
        """Present size, in units; None if it is not known."""

    def span(self) -> int:
        """Number of units that make about a megabyte."""

    def digest(self, start: int, stop: int) -> str | None:
        """SHA-256 of a range; None if it is not all there, or not known yet."""


class FilePrint:
    """A local file, as bytes."""

    unit = "bytes"

    def __init__(self, path: Path, name: str | None = None) -> None:
        self.path, self.name = path, name or path.name

    def size(self) -> int | None:
        try:
            return self.path.stat().st_size
        except OSError:
            return None

    def span(self) -> int:
        return MEGABYTE

    def digest(self, start: int, stop: int) -> str | None:
        try:
            with self.path.open("rb") as file:
                file.seek(start)
                data = file.read(stop - start)
        except OSError:
            return None
        return hashlib.sha256(data).hexdigest() if len(data) == stop - start else None


class HeadPrint:
    """A stream that can be read only once, identified by its first megabyte, once that has passed."""

    unit = "bytes"

    def __init__(self, name: str) -> None:
        self.name = name
        self.head = bytearray()

    def saw(self, data: bytes) -> None:
        """Remember what has passed, up to a megabyte."""
        if len(self.head) < MEGABYTE:
            self.head += data[: MEGABYTE - len(self.head)]

    def size(self) -> int | None:
        return None

    def span(self) -> int:
        return MEGABYTE

    def digest(self, start: int, stop: int) -> str | None:
        return hashlib.sha256(self.head[start:stop]).hexdigest() if 0 <= start < stop <= len(self.head) else None


class RowsPrint:
    """A table that can be read from any row on, identified by its values."""

    unit = "rows"

    def __init__(self, name: str, total: int, row_bytes: int, read: Callable[[int, int], Any]) -> None:
        self.name, self.total, self.row_bytes, self.read = name, total, row_bytes, read

    def size(self) -> int | None:
        return self.total

    def span(self) -> int:
        return max(1, min(65536, MEGABYTE // max(1, self.row_bytes)))

    def digest(self, start: int, stop: int) -> str | None:
        if stop > self.total:
            return None
        found = hashlib.sha256()
        try:
            rows: Any = self.read(start, stop) if stop > start else ()
        except Exception:  # damage is reported when the rows are read for learning
            return None
        for part in (rows.indptr - rows.indptr[0], rows.indices, rows.data) if hasattr(rows, "indptr") else (rows,):
            found.update(np.ascontiguousarray(part).tobytes())
        return found.hexdigest()


def identify(kind: str, prints: Sequence[Print], schema: Mapping[str, Any], grows: bool, since: Mapping[str, Any] | None) -> dict[str, Any]:
    """The identity of a source.

    Parameters
    ----------
    since : identity, optional
        An older identity. The ranges that it covers, if they still exist, are digested again, under "then".
    """
    sizes = [each.size() for each in prints]
    chosen = _chosen(len(prints))
    found: dict[str, Any] = {
        "kind": kind,
        "names": [each.name for each in prints[:_LISTED]],
        "files": len(prints),
        "listing": _listing(prints, sizes, len(prints)),
        "sizes": sizes[:_LISTED],
        "digests": {str(i): _ends(prints[i], sizes[i]) for i in chosen},
        "schema": dict(schema),
        "grows": grows,
    }
    if since is not None:
        found["then"] = _then(prints, sizes, since)
    return found


def _chosen(files: int) -> list[int]:
    return list(range(files)) if files <= _EACH else [*range(_ENDS), *range(files - _ENDS, files)]


def _listing(prints: Sequence[Print], sizes: Sequence[int | None], count: int) -> str:
    text = "\n".join(f"{each.name}\t{size}" for each, size in zip(prints[:count], sizes[:count], strict=True))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _ends(each: Print, size: int | None) -> dict[str, Any]:
    span = each.span()
    if size is None:
        head = len(getattr(each, "head", b""))
        return {"unit": each.unit, "first": [0, head, each.digest(0, head)] if head else None, "last": None}
    first, last = (0, min(span, size)), (max(0, size - span), size)
    return {"unit": each.unit, **{name: [*ends, each.digest(*ends)] for name, ends in (("first", first), ("last", last))}}


def _then(prints: Sequence[Print], sizes: Sequence[int | None], old: Mapping[str, Any]) -> dict[str, Any]:
    """The old ranges, digested now."""
    again: dict[str, Any] = {}
    for key, ends in _mapping(old.get("digests")).items():
        if not key.isdecimal() or int(key) >= len(prints):
            continue
        each = prints[int(key)]
        again[key] = {
            name: [*ends[name][:2], each.digest(*ends[name][:2])]
            for name in ("first", "last")
            if isinstance(ends, Mapping) and _is_range(ends.get(name)) and ends.get("unit") == each.unit
        }
        if isinstance(each, FilePrint) and _is_range(_mapping(ends).get("last")):
            stop = ends["last"][1]
            again[key]["next"] = _byte(each.path, stop)
    files = old.get("files")
    listing = _listing(prints, sizes, files - 1) if isinstance(files, int) and 1 <= files <= len(prints) else None
    return {"digests": again, "listing": listing}


def _byte(path: Path, at: int) -> int | None:
    """One byte of a file; after a last line without a newline, it tells whether that line was whole."""
    try:
        with path.open("rb") as file:
            file.seek(at)
            found = file.read(1)
    except OSError:
        return None
    return found[0] if found else None


def _is_range(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 3 and all(type(part) is int and part >= 0 for part in value[:2])


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def different(old: Mapping[str, Any], new: Mapping[str, Any], position: int) -> str | None:
    """One sentence that says how a source differs from what it was, or None if it does not.

    Parameters
    ----------
    old : identity
        The stored identity.
    new : identity
        ``source.identity(since=old)``.
    position : int
        Number of rows of the source that were processed.
    """
    schema, now = _mapping(old.get("schema")), _mapping(new.get("schema"))
    return (
        _other_kind(old, new)
        or _other_schema(schema, now)
        or _other_files(old, new)
        or _other_sizes(old, new)
        or _too_short(schema, now, position)
        or _other_bytes(old, new, schema)
    )


def _listed(values: Any) -> str:
    if isinstance(values, list):
        return ", ".join(map(str, values[:8])) + (", …" if len(values) > 8 else "") or "none"
    return "none" if values is None else str(values)


def _named(identity: Mapping[str, Any]) -> str:
    return _listed(identity.get("names"))


def _other_kind(old: Mapping[str, Any], new: Mapping[str, Any]) -> str | None:
    if old.get("kind") != new.get("kind"):
        return f"The source was {old.get('kind')} ({_named(old)}), and is now {new.get('kind')} ({_named(new)})."
    return None


def _other_schema(old: Mapping[str, Any], new: Mapping[str, Any]) -> str | None:
    names, now = old.get("feature_names"), new.get("feature_names")
    if isinstance(names, list) and isinstance(now, list) and names != now:
        if sorted(names) == sorted(now):
            at = next(i for i, (one, two) in enumerate(zip(names, now, strict=True)) if one != two)
            return f"The columns of the source are in another order: column {at} was {names[at]!r}, and is now {now[at]!r}."
        gone, come = [name for name in names if name not in now], [name for name in now if name not in names]
        parts = [f"{_listed([repr(name) for name in some])} {what}" for some, what in ((gone, "missing"), (come, "new")) if some]
        return f"The columns of the source are not what they were ({', and '.join(parts)}): {_listed(names)}; now {_listed(now)}."
    if old.get("features") != new.get("features"):
        return f"The source had {old.get('features')} features, and now has {new.get('features')}."
    if old.get("names_digest") != new.get("names_digest"):
        return f"The names or the order of the {new.get('features')} columns of the source are not what they were."
    for key in old.keys() | new.keys():
        if key not in ("total", "open_end", "names_digest") and old.get(key) != new.get(key):
            option, was, now = key.replace("_", " "), _listed(old.get(key)), _listed(new.get(key))
            if was == now or {was, now} & {",", ";", ".", ""}:  # None looks like the text "none", and these signs like punctuation
                was, now = repr(old.get(key)), repr(new.get(key))
            return f"The source was read with {option}: {was}, and now with {option}: {now}."
    return None


def _other_files(old: Mapping[str, Any], new: Mapping[str, Any]) -> str | None:
    files, now = old.get("files"), new.get("files")
    if not isinstance(files, int) or not isinstance(now, int):
        return None
    if now < files:
        return f"The source had {files} files ({_named(old)}), and now has {now} ({_named(new)})."
    if files > 1 and old.get("names") != _first(new.get("names"), old.get("names")):
        names, present = old.get("names") or [], new.get("names") or []
        at = next((i for i, (one, two) in enumerate(zip(names, present, strict=False)) if one != two), 0)
        return f"The files of the source are not what they were: number {at + 1} was {names[at]}, and is now {present[at]}."
    return None


def _first(values: Any, like: Any) -> Any:
    return values[: len(like)] if isinstance(values, list) and isinstance(like, list) else values


def _other_sizes(old: Mapping[str, Any], new: Mapping[str, Any]) -> str | None:
    sizes, now = old.get("sizes") or [], new.get("sizes") or []
    for i, (before, after) in enumerate(zip(sizes, now, strict=False)):
        name, unit = _at(new.get("names"), i), _mapping(_mapping(new.get("digests")).get(str(i))).get("unit", "bytes")
        if isinstance(before, int) and isinstance(after, int) and after < before:
            was = _at(old.get("names"), i)
            if was != name:
                return f"The source is another file: it was {was}, of {before} {unit}, and is now {name}, of {after} {unit}."
            return f"{name} has shrunk: it had {before} {unit}, and now has {after}."
        if i < len(sizes) - 1 and before != after:
            return f"{name} is not what it was: it had {before} {unit}, and now has {after}, and only the last file of several may grow."
    return None


def _at(values: Any, i: int) -> str:
    return str(values[i]) if isinstance(values, list) and i < len(values) else "the source"


def _too_short(old: Mapping[str, Any], new: Mapping[str, Any], position: int) -> str | None:
    total = new.get("total")
    if isinstance(total, int) and total < position:
        return f"The source has {total} rows, and the run had come to row {position}: it is not the same data."
    return None


def _other_bytes(old: Mapping[str, Any], new: Mapping[str, Any], schema: Mapping[str, Any]) -> str | None:
    then = _mapping(new.get("then"))
    again = _mapping(then.get("digests"))
    for key, ends in _mapping(old.get("digests")).items():
        now = _mapping(again.get(key))
        was, name = _at(old.get("names"), int(key)), _at(new.get("names"), int(key))
        for part, words in (("first", "begins differently"), ("last", "has changed before its end")):
            before, after = _mapping(ends).get(part), now.get(part)
            if before is None or after is None or not (_is_range(before) and _is_range(after)) or None in (before[2], after[2]):
                continue
            if before[2] == after[2]:
                continue
            if was != name:
                return f"The source is another file: it was {was}, and is now {name}, which {words}."
            unit = _mapping(ends).get("unit", "bytes")
            return f"{name} {words}: its {unit} {before[0]} to {before[1]} are not those that were read."
        if schema.get("open_end") and now.get("next") not in (None, 10, 13):
            return f"{name} was read while its last line was being written: the row learned from it was not whole, and cannot be unlearned."
    return None
