"""Cuts chunks of rows to other sizes, and reads them ahead."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from scipy.sparse import issparse

from online_psp.io.sources._source import Chunk, joined

ENOUGH_FOR_THREADS = 1 << 28  # bytes of memory allowed; with less, nothing is read ahead


def ahead(chunks: Iterator[Chunk], max_memory: int) -> Iterator[Chunk]:
    """Read the next chunk in a thread while the last one is worked on; files are read and unpacked without the interpreter's lock."""
    if max_memory < ENOUGH_FOR_THREADS:
        yield from chunks
        return
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(next, chunks, None)
        while (chunk := future.result()) is not None:
            future = pool.submit(next, chunks, None)
            yield chunk


def recut_chunks(chunks: Iterator[Chunk], size: int) -> Iterator[Chunk]:
    """Chunks of exactly `size` rows from chunks that end where files do."""
    waiting: list[Chunk] = []
    have = 0
    for chunk in chunks:
        rest = chunk
        while have + rest.length >= size:
            head, rest = split(rest, size - have)
            yield together([*waiting, head])
            waiting, have = [], 0
        if rest.length:
            waiting.append(rest)
            have += rest.length
    if have:
        yield together(waiting)


def split(chunk: Chunk, rows: int) -> tuple[Chunk, Chunk]:
    """The first `rows` rows of a chunk, and the others."""
    if rows == chunk.length:
        return chunk, Chunk(0, chunk.rows[:0], {})
    good = rows - sum(at < rows for at in chunk.bad)
    one = Chunk(
        rows, chunk.rows[:good], {at: why for at, why in chunk.bad.items() if at < rows},
        None if chunk.ids is None else chunk.ids[:rows], None if chunk.times is None else chunk.times[:rows],
    )  # fmt: skip
    two = Chunk(
        chunk.length - rows, chunk.rows[good:], {at - rows: why for at, why in chunk.bad.items() if at >= rows},
        None if chunk.ids is None else chunk.ids[rows:], None if chunk.times is None else chunk.times[rows:],
    )  # fmt: skip
    return one, two


def together(chunks: list[Chunk]) -> Chunk:
    """Several chunks as one."""
    if len(chunks) == 1:
        return chunks[0]
    bad, at = {}, 0
    for chunk in chunks:
        bad.update({at + place: why for place, why in chunk.bad.items()})
        at += chunk.length
    rows = [chunk.rows for chunk in chunks if chunk.rows.shape[0]] or [chunks[0].rows]
    if not any(issparse(each) for each in rows):
        rows = [np.concatenate(rows)]
    return Chunk(
        at, joined(rows), bad,
        None if chunks[0].ids is None else np.concatenate([chunk.ids for chunk in chunks if chunk.ids is not None]),
        None if chunks[0].times is None else np.concatenate([chunk.times for chunk in chunks if chunk.times is not None]),
    )  # fmt: skip
