"""Reads several files, one after the other, as one source."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from online_psp.io.sources.source import Chunk, EmptySourceError, Mark, Source, SourceError, unreadable

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
    totals = [source.total for source in sources if source.total is not None]
    counted = len(totals) == len(sources)
    warnings = [said for source in sources for said in source.warnings]

    def read(begin: Mark) -> Iterator[Chunk]:
        file, inner = begin.file, begin._replace(row=begin.inner)
        if counted and not file:  # a row by its number
            inner = Mark(begin.row)
            while file < len(totals) and inner.row >= totals[file]:
                inner, file = Mark(inner.row - totals[file]), file + 1
        for i, source in enumerate(sources[file:], file):
            told = len(source.warnings)
            try:
                for chunk in source.read(inner):
                    marks = np.zeros((chunk.length, 5), dtype=np.int64) if chunk.marks is None else chunk.marks
                    marks[:, 0], marks[:, 1] = i, inner.row + 1 + np.arange(chunk.length)
                    inner = inner._replace(row=inner.row + chunk.length)
                    yield chunk._replace(marks=marks)
            except SourceError:
                raise
            except Exception as error:
                raise unreadable(source.name, inner.row, error) from None
            warnings.extend(source.warnings[told:])
            inner = Mark()

    def place(row: int, mark: Any) -> str:
        source = sources[mark[0]]
        return f"{source.name}, {source.place(mark[1] - 1, mark) if source.place is not None else f'row {mark[1]}'}"

    return replace(
        first,
        name=name,
        read=read,
        total=sum(totals) if counted else None,
        place=place,
        block=min((source.block for source in sources if source.block is not None), default=None),
        notes=[f"{len(sources)} files, from {first.name} to {sources[-1].name}", *first.notes],
        warnings=warnings,
        files=tuple(file for source in sources for file in source.files),
        dtype=np.result_type(*(source.dtype for source in sources)),
    )


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
