"""Reads several files, one after the other, as one source."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from online_psp.io.sources.names import order_of, ordered
from online_psp.io.sources.places import check_once
from online_psp.io.sources.source import Chunk, EmptySourceError, Mark, Source, SourceError, unreadable


def open_several(openers: Sequence[Callable[[], Source]], name: str) -> Source:
    """Open all files as one table; their column names must be the same, in any order."""
    sources: list[Source] = []
    empty: list[EmptySourceError] = []
    for opener in openers:
        try:
            sources.append(opener())
        except EmptySourceError as error:
            empty.append(error)
    if not sources:
        raise empty[0]
    given = [[source.name] if len(source.files) < 2 else [file.name for file in source.files] for source in sources]
    check_once(itertools.chain(*given), name)
    first = sources[0]
    orders = [_order(source, first) for source in sources]
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
                    yield chunk._replace(rows=ordered(chunk.rows, orders[i]), marks=marks)
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


def _order(source: Source, first: Source) -> Any:
    """The column of a file for each of the first file's; None if they are in order."""
    names = source.feature_names
    if first.feature_names is None and names is not None:
        raise SourceError(
            f"{source.name} begins with names ({', '.join(names[:3])}, …), and {first.name} does not (--header, --no-header)."
        )
    order = order_of(first.feature_names, names, source.name, first.name)
    if source.features != first.features:
        raise SourceError(f"{source.name} has {source.features} columns, and {first.name} has {first.features}: they are not one table.")
    return order
