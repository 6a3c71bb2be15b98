"""Identities of sources, which tell whether a resumed run still has the same data.

An identity is a JSON object: kind, names and sizes of the files, how the rows were read, and a digest of the first rows. A file that has
only grown has the same first rows. What stands before the position of a run is compared as the run goes on (`Source.blocks`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from online_psp.io.sources.source import Source

_LISTED = 256


def identity(source: Source, since: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The identity of a source, as JSON; see `different`.

    Parameters
    ----------
    since : identity, optional
        The identity stored when a run was stopped: as many first rows as it has seen are digested again.
    """
    names = source.feature_names
    few = names is None or sum(map(len, names)) <= 8192  # so that a header stays small
    files = source.files
    before = None if since is None else since.get("head")
    rows = before[0] if isinstance(before, list) and before and type(before[0]) is int and 0 < before[0] <= 64 else None
    return {
        "kind": source.kind,
        "names": [each.short for each in files[:_LISTED]] or [source.name],
        "files": max(1, len(files)),
        "listing": _digest("\n".join(f"{each.short}\t{each.size}" for each in files[:-1])),
        "sizes": [each.size for each in files[:_LISTED]] or [source.total],
        "head": source.head(rows),
        "grows": not source.once,
        "schema": {
            "features": source.features,
            "dtype": source.dtype.name,
            "feature_names": names if few else None,
            "names_digest": None if few else _digest("\0".join(names or ())),
            **source.schema,
            "total": source.total,
            "missing": source.missing,
        },
    }


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def different(old: Mapping[str, Any], source: Source, position: int) -> str | None:
    """One sentence that says how a source differs from what it was, or None if it does not.

    Parameters
    ----------
    old : identity
        The stored identity.
    position : int
        Number of rows of the source that were processed.
    """
    new = identity(source, old)
    if old.get("kind") != new["kind"]:
        return f"The source was {old.get('kind')} ({_listed(old.get('names'))}), and is now {new['kind']} ({_listed(new['names'])})."
    found = _other_schema(_mapping(old.get("schema")), new["schema"]) or _other_files(old, new)
    if found is not None:
        return found
    if source.total is not None and source.total < position:
        return f"The source has {source.total} rows, and the run had come to row {position}: it is not the same data."
    head = old.get("head")
    if head is not None and new["head"] is not None and head != new["head"]:
        was, name = _at(old.get("names"), 0), new["names"][0]
        if was != name:
            return f"The source is another file: it was {was}, and is now {name}, which begins differently."
        return f"{name} begins differently: its first rows are not those that were read."
    return None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _listed(values: Any) -> str:
    if isinstance(values, list):
        return ", ".join(map(str, values[:8])) + (", …" if len(values) > 8 else "") or "none"
    return "none" if values is None else str(values)


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
        if key not in ("total", "names_digest") and old.get(key) != new.get(key):
            option, was, now = key.replace("_", " "), _listed(old.get(key)), _listed(new.get(key))
            if was == now or {was, now} & {",", ";", ".", ""}:  # None looks like the text "none", and these signs like punctuation
                was, now = repr(old.get(key)), repr(new.get(key))
            return f"The source was read with {option}: {was}, and now with {option}: {now}."
    return None


def _other_files(old: Mapping[str, Any], new: Mapping[str, Any]) -> str | None:
    files, now = old.get("files"), new["files"]
    was, present = old.get("names"), new["names"]
    if isinstance(files, int) and now < files:
        return f"The source had {files} files ({_listed(was)}), and now has {now} ({_listed(present)})."
    if isinstance(was, list) and len(was) > 1 and was != present[: len(was)]:
        at = next((i for i, (one, two) in enumerate(zip(was, present, strict=False)) if one != two), 0)
        return f"The files of the source are not what they were: number {at + 1} was {was[at]}, and is now {present[at]}."
    if files == now and old.get("listing") != new["listing"]:
        return "The files of the source are not what they were: their sizes are others, and only the last of several may grow."
    sizes = old.get("sizes")
    for i, (before, after) in enumerate(zip(sizes if isinstance(sizes, list) else [], new["sizes"], strict=False)):
        if isinstance(before, int) and isinstance(after, int) and after < before:
            if _at(was, i) != present[i]:
                return f"The source is another file: it was {_at(was, i)}, of {before} bytes, and is now {present[i]}, of {after} bytes."
            return f"{present[i]} has shrunk: it had {before} bytes, and now has {after}."
    return None


def _at(values: Any, i: int) -> str:
    return str(values[i]) if isinstance(values, list) and i < len(values) else "the source"
