"""Reads several files, one after the other, as one source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from online_psp.io.sources._chunks import recut_chunks
from online_psp.io.sources._identity import FilePrint
from online_psp.io.sources._source import Chunk, Deadline, EmptySourceError, Source, SourceError

_COMPARED = 1 << 16  # bytes to compare at either end of files that may be copies of each other
Open = Callable[[list[str] | None], Source]
"""Opens a file, with its columns in the given order, if one is given."""


def open_several(openers: Sequence[Open], name: str) -> Source:
    """Open all files as one table; their column names must be the same, in any order."""
    sources: list[Source] = []
    empty: list[EmptySourceError] = []
    for opener in openers:
        try:
            sources.append(_like(opener, sources[0]) if sources else opener(None))
        except EmptySourceError as error:
            empty.append(error)
    if not sources:
        raise empty[0]
    first = sources[0]
    first.warnings.extend(str(error).rstrip(".") for error in empty)
    if len(sources) == 1:
        return first
    counts: list[int | None] = [source.total for source in sources]
    known: list[int] = []
    for count in counts:
        if count is None:
            break
        known.append(count)
    total = sum(known) if len(known) == len(sources) else None
    warnings = [*_twins(sources), *(said for source in sources for said in source.warnings)]
    place: dict[str, Any] = {"starts": [0], "warnings": warnings}

    def read(start: int, size: int, deadline: Deadline | None = None) -> Iterator[Chunk]:
        return recut_chunks(_chunks(sources, counts, start, size, deadline, place), size)

    return replace(
        first,
        name=name,
        read=read,
        total=total,
        places=lambda row: _where(sources, place["starts"], row),
        block=min((source.block for source in sources if source.block is not None), default=None),
        notes=[f"{len(sources)} files, from {first.name} to {sources[-1].name}", *first.notes],
        warnings=warnings,
        prints=tuple(each for source in sources for each in source.prints),
        dtype=np.result_type(*(source.dtype for source in sources)),
    )


def _twins(sources: list[Source]) -> list[str]:
    """A warning if two files look like copies, as after two downloads: they have the same size, and begin and end with the same bytes."""
    seen: dict[tuple[int, str], Source] = {}
    sizes = Counter(_size(source) for source in sources)
    for source in sources:
        size = _size(source)
        if not size or sizes[size] < 2:
            continue
        (file,) = source.prints
        key = size, f"{file.digest(0, min(size, _COMPARED))} {file.digest(max(0, size - _COMPARED), size)}"
        if key in seen and seen[key].name != source.name:
            return [f"{seen[key].name} and {source.name} begin and end with the same bytes; if one is a copy, its rows count twice"]
        seen[key] = source
    return []


def _size(source: Source) -> int | None:
    """Bytes of a local file; None for other sources."""
    return source.prints[0].size() if len(source.prints) == 1 and isinstance(source.prints[0], FilePrint) else None


def _like(opener: Open, first: Source) -> Source:
    """Open the next file, with its columns in the order of the first."""
    found = opener(None)
    names, others = first.feature_names, found.feature_names
    if names is None and others is not None:
        raise SourceError(
            f"{found.name} begins with names ({', '.join(others[:3])}, …), and {first.name} does not (--header, --no-header)."
        )
    if names is not None and others is not None and names != others:
        missing = [name for name in names if name not in others]
        extra = [name for name in others if name not in names]
        if missing or extra:
            what = f"no column {missing[0]!r}" if missing else f"a column {extra[0]!r}"
            raise SourceError(f"{found.name} has {what}, and {first.name} has {'one' if missing else 'none'}: they are not one table.")
        found = opener(list(names))
    if found.features != first.features:
        raise SourceError(f"{found.name} has {found.features} columns, and {first.name} has {first.features}: they are not one table.")
    return found


def _chunks(
    sources: list[Source], counts: list[int | None], start: int, size: int, deadline: Deadline | None, place: dict[str, Any]
) -> Iterator[Chunk]:
    """Chunks of each file in turn, without the first `start` rows; the rows of skipped files are counted, not parsed."""
    at = 0
    starts: list[int] = []
    place["starts"] = starts
    for i, source in enumerate(sources):
        starts.append(at)
        begin = max(0, start - at)
        if begin and counts[i] is None:
            counts[i] = _count(source)
        count = counts[i]
        if count is not None and begin and count <= begin:
            at += count
            continue
        seen, told = begin, len(source.warnings)
        for chunk in source.read(begin, size, deadline):
            seen += chunk.length
            yield chunk
        place["warnings"].extend(source.warnings[told:])
        at += seen
        if counts[i] is None:
            counts[i] = seen


def _count(source: Source) -> int:
    return source.count() if source.count is not None else sum(chunk.length for chunk in source.read(0, 8192, None))


def _where(sources: list[Source], starts: list[int], row: int) -> str:
    """The file of a row (from 0), its number there, and its line."""
    for source, start in zip(reversed(sources[: len(starts)]), reversed(starts), strict=True):
        if row >= start:
            inner = source.places(row - start) if source.places is not None else ""
            return f"{source.name}, {inner or f'row {row - start + 1}'}"
    return ""
