"""Identities of sources, which tell whether a resumed run still has the same data.

An identity is a JSON object: kind, names and sizes of the files, how the rows were read, and a digest of the first rows. A file that has
only grown has the same first rows. What stands before the position of a run is compared as the run goes on (`Source.blocks`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from online_psp.io.sources.source import Source


def identity(source: Source, since: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The identity of a source, as JSON; see `different`.

    Parameters
    ----------
    since : identity, optional
        The identity stored when a run was stopped: as many first rows as it has seen are digested again.
    """
    head = None if since is None else since["head"]
    return {
        "kind": source.kind,
        "names": [each.short for each in source.files] or [source.name],
        "sizes": [each.size for each in source.files] or [source.total],
        "head": source.head(None if head is None else head[0]),
        "grows": not source.once,
        "schema": {
            "features": source.features,
            "dtype": source.dtype.name,
            "feature_names": source.feature_names,
            "missing": source.missing,
            **source.schema,
        },
    }


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
    if old["kind"] != new["kind"]:
        return f"The source was {old['kind']} ({_listed(old['names'])}), and is now {new['kind']} ({_listed(new['names'])})."
    found = _other_schema(old["schema"], new["schema"]) or _other_files(old, new)
    if found is not None:
        return found
    if source.total is not None and source.total < position:
        return f"The source has {source.total} rows, and the run had come to row {position}: it is not the same data."
    if old["head"] is not None and new["head"] is not None and old["head"] != new["head"]:
        was, name = old["names"][0], new["names"][0]
        if was != name:
            return f"The source is another file: it was {was}, and is now {name}, which begins differently."
        return f"{name} begins differently: its first rows are not those that were read."
    return None


def _listed(values: Any) -> str:
    if isinstance(values, list):
        return ", ".join(map(str, values[:8])) + (", …" if len(values) > 8 else "") or "none"
    return "none" if values is None else str(values)


def _other_schema(old: Mapping[str, Any], new: Mapping[str, Any]) -> str | None:
    names, now = old["feature_names"], new["feature_names"]
    if names is not None and now is not None and names != now:
        if sorted(names) == sorted(now):
            at = next(i for i, (one, two) in enumerate(zip(names, now, strict=True)) if one != two)
            return f"The columns of the source are in another order: column {at} was {names[at]!r}, and is now {now[at]!r}."
        gone, come = [name for name in names if name not in now], [name for name in now if name not in names]
        parts = [f"{_listed([repr(name) for name in some])} {what}" for some, what in ((gone, "missing"), (come, "new")) if some]
        return f"The columns of the source are not what they were ({', '.join(parts)}): {_listed(names)}; now {_listed(now)}."
    if old["features"] != new["features"]:
        return f"The source had {old['features']} features, and now has {new['features']}."
    for key in old.keys() | new.keys():
        if old.get(key) != new.get(key):
            option, was, now = key.replace("_", " "), _listed(old.get(key)), _listed(new.get(key))
            if was == now or {was, now} & {",", ";", ".", ""}:  # None looks like the text "none", and these signs like punctuation
                was, now = repr(old.get(key)), repr(new.get(key))
            return f"The source was read with {option}: {was}, and now with {option}: {now}."
    return None


def _other_files(old: Mapping[str, Any], new: Mapping[str, Any]) -> str | None:
    was, now = old["names"], new["names"]
    if len(now) < len(was):
        return f"The source had {len(was)} files ({_listed(was)}), and now has {len(now)} ({_listed(now)})."
    if len(was) > 1 and was != now[: len(was)]:
        at = next(i for i, (one, two) in enumerate(zip(was, now, strict=False)) if one != two)
        return f"The files of the source are not what they were: number {at + 1} was {was[at]}, and is now {now[at]}."
    for i, (before, after) in enumerate(zip(old["sizes"], new["sizes"], strict=False)):
        if before is None or after is None or after == before:
            continue
        if after < before and was[i] != now[i]:
            return f"The source is another file: it was {was[i]}, of {before} bytes, and is now {now[i]}, of {after} bytes."
        if after < before:
            return f"{now[i]} has shrunk: it had {before} bytes, and now has {after}."
        if i < len(was) - 1:
            return f"{now[i]} has grown from {before} to {after} bytes, and only the last of several files may grow."
    return None
