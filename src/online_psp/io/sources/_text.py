"""Comma- and tab-separated text: plain, compressed, or from a pipe."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from online_psp.engine.types import Floats
from online_psp.io.sources._source import Chunk, Deadline, Source, SourceError, UnknownSourceError, working_dtype


def open_text(
    file: Path | BinaryIO, dtype: Any, name: str, delimiter: str, columns: Sequence[str | int] | None, header: bool | None
) -> Source:
    """Rows of numbers in text.

    Parameters
    ----------
    file : path or binary stream
    columns : names or places (from 0), optional
        The ones to read.
    header : bool, optional
        Whether the first line has names; told from the line itself by default: it has if no cell of it is a number.
    """
    once = not isinstance(file, Path)
    lines = _lines(file, name)
    first = next(lines, None)
    if first is None:
        raise SourceError(f"{name} is empty.")
    cells = split(first[1], delimiter)
    if header is None:
        header = _has_names(cells, name)
    width = len(cells)
    chosen = _places(columns, cells if header else None, width, name)
    names = [cells[i] for i in (range(width) if chosen is None else chosen)] if header else None
    if names is not None and len(set(names)) < len(names):
        names = None  # twice the same: of no use as names
    stream = itertools.chain([] if header else [first], lines) if once else None
    if not once:
        lines.close()  # type: ignore[attr-defined]
    numbers: list[tuple[int, int]] = []  # (row, line) where the two begin to differ otherwise

    def fresh() -> Iterator[tuple[int, str]]:
        if stream is not None:
            return stream
        opened = _lines(file, name)
        return itertools.islice(opened, 1, None) if header else opened

    def read(start: int, size: int, deadline: Deadline | None = None) -> Iterator[Chunk]:
        source = itertools.islice(fresh(), start, None)
        numbers.clear()
        at = start
        while taken := list(itertools.islice(source, size)):
            numbers[:] = [(at, number) for at, (number, _) in enumerate(taken, at)]
            at += len(taken)
            yield _parse([text for _, text in taken], delimiter, width, chosen)

    return Source(
        name,
        width if chosen is None else len(chosen),
        working_dtype(np.float64, dtype, name),
        read,
        once=once,
        feature_names=names,
        places=_line_of(numbers),
    )


def _line_of(numbers: list[tuple[int, int]]) -> Callable[[int], str]:
    def place(row: int) -> str:
        offset = row - numbers[0][0] if numbers else -1
        return f"line {numbers[offset][1]}" if 0 <= offset < len(numbers) else ""

    return place


def _lines(file: Path | BinaryIO, name: str) -> Iterator[tuple[int, str]]:
    """Lines with their numbers, from 1, without the blank ones."""
    number = 0
    try:
        text = io.TextIOWrapper(_binary(file), encoding="utf-8-sig", errors="replace")
        try:
            for line in text:
                number += 1
                if not line.isspace():
                    yield number, line
        finally:
            if isinstance(file, Path):
                text.close()
            else:
                text.detach()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise SourceError(f"{name}, after line {number}: the compressed file is truncated or damaged ({error}).") from None


def _binary(file: Path | BinaryIO) -> Any:
    if not isinstance(file, Path):
        return file
    return gzip.GzipFile(file) if file.suffix.lower() == ".gz" else file.open("rb")


def split(line: str, delimiter: str) -> list[str]:
    """The cells of a line."""
    line = line.rstrip("\r\n")
    return [cell.strip() for cell in (next(csv.reader([line], delimiter=delimiter)) if '"' in line else line.split(delimiter))]


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell


def _has_names(cells: list[str], name: str) -> bool:
    numbers = [_is_number(cell) for cell in cells]
    if any(numbers) and not all(numbers):
        at = numbers.index(False)
        raise SourceError(
            f"{name}, row 1 (line 1): {cells[at]!r} in column {at + 1} is not a number, and others are; "
            "if the first line has names, say so with header=True (--header)."
        )
    return not numbers[0]


def _places(columns: Sequence[str | int] | None, names: list[str] | None, width: int, name: str) -> list[int] | None:
    if columns is None:
        return None
    chosen = []
    for column in columns:
        if names is not None and column in names:
            chosen.append(names.index(str(column)))
        elif str(column).isdecimal() and int(column) < width:
            chosen.append(int(column))
        else:
            has = f"named {', '.join(names[:8])}{', …' if width > 8 else ''}" if names else "without names"
            raise UnknownSourceError(f"{name} has no column {column!r}: it has {width}, {has}, or by number from 0.")
    return chosen


def _parse(lines: list[str], delimiter: str, width: int, chosen: list[int] | None) -> Chunk:
    """All lines at once where they are in order, one by one where they are not."""
    try:
        rows: Floats = np.loadtxt(lines, delimiter=delimiter, ndmin=2, comments=None, quotechar='"', usecols=chosen)
        whole = rows.shape[1] == width if chosen is None else all(line.count(delimiter) == width - 1 for line in lines)
        if whole and len(rows) == len(lines):
            return Chunk(len(lines), rows, {})
    except ValueError:
        pass
    return _parse_each(lines, delimiter, width, chosen)


def _parse_each(lines: list[str], delimiter: str, width: int, chosen: list[int] | None) -> Chunk:
    places = range(width) if chosen is None else chosen
    good: list[list[float]] = []
    bad: dict[int, str] = {}
    for at, line in enumerate(lines):
        cells = split(line, delimiter)
        if len(cells) != width:
            bad[at] = f"has {len(cells)} value{'s' if len(cells) != 1 else ''} where {width} are expected"
            continue
        wrong = next((i for i in places if cells[i] and not _is_number(cells[i])), None)
        if wrong is not None:
            bad[at] = f"has the text {cells[wrong][:40]!r} in column {wrong + 1}"
        else:
            good.append([float(cells[i]) if cells[i] else math.nan for i in places])
    return Chunk(len(lines), np.array(good).reshape(len(good), len(places)), bad)
