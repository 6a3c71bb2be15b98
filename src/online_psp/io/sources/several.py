"""Reads several files, one after the other, as one source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from online_psp.io.sources.source import Chunk, EmptySourceError, Mark, Source, SourceError

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
    totals = [source.total for source in sources]
    known = [total for total in totals if total is not None]
    warnings = [*_twins(sources), *(said for source in sources for said in source.warnings)]
    told = [len(source.warnings) for source in sources]

    def read(begin: Mark) -> Iterator[Chunk]:
        at, file, inner = begin.row, begin.file, begin
        if by_number and not begin.file:  # a row by its number
            while file < len(known) and inner.row >= known[file]:
                inner, file = Mark(inner.row - known[file]), file + 1
        else:
            inner = begin._replace(row=begin.inner)
        for i, source in enumerate(sources[file:], file):
            for chunk in source.read(inner):
                yield chunk._replace(marks=_marks(chunk, i, inner.row))
                inner = inner._replace(row=inner.row + chunk.length)
                at += chunk.length
            warnings.extend(source.warnings[told[i] :])
            told[i], inner = len(source.warnings), Mark()

    by_number = len(known) == len(sources) and all(source.by_number for source in sources)

    def place(row: int, mark: Any) -> str:
        source = sources[mark[0]]
        inside = source.place(mark[1] - 1, mark) if source.place is not None else ""
        return f"{source.name}, {inside or f'row {mark[1]}'}"

    return replace(
        first,
        name=name,
        read=read,
        total=sum(known) if len(known) == len(sources) else None,
        by_number=by_number,
        place=place,
        block=min((source.block for source in sources if source.block is not None), default=None),
        notes=[f"{len(sources)} files, from {first.name} to {sources[-1].name}", *first.notes],
        warnings=warnings,
        files=tuple(file for source in sources for file in source.files),
        dtype=np.result_type(*(source.dtype for source in sources)),
    )


def _marks(chunk: Chunk, file: int, before: int) -> Any:
    """The places after the rows of a file."""
    marks = np.zeros((chunk.length, 5), dtype=np.int64) if chunk.marks is None else chunk.marks
    marks[:, 0], marks[:, 1] = file, before + 1 + np.arange(chunk.length)
    return marks


def _twins(sources: list[Source]) -> list[str]:
    """A warning if two files look like copies, as after two downloads: they have the same size, and begin and end with the same bytes."""
    seen: dict[tuple[int, bytes], Source] = {}
    sizes = Counter(_size(source) for source in sources)
    for source in sources:
        size = _size(source)
        if not size or sizes[size] < 2:
            continue
        with source.files[0].path.open("rb") as file:
            ends = file.read(_COMPARED)
            file.seek(max(0, size - _COMPARED))
            key = size, ends + file.read()
        if key in seen and seen[key].name != source.name:
            return [f"{seen[key].name} and {source.name} begin and end with the same bytes; if one is a copy, its rows count twice"]
        seen[key] = source
    return []


def _size(source: Source) -> int | None:
    """Bytes of a local file; None for other sources."""
    return source.files[0].size if len(source.files) == 1 and source.files[0].path is not None else None


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
