"""Arrow's columns as rows: Parquet, Feather and Arrow files, data frames, and whatever else gives Arrow's batches."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from online_psp.engine.types import Array
from online_psp.io.sources.columns import Choice, choose, listing, times_of, unique
from online_psp.io.sources.options import Options
from online_psp.io.sources.places import Place
from online_psp.io.sources.source import Chunk, Mark, Source, SourceError, reason, working_dtype

_BATCH_ROWS, _BATCH_BYTES = 1 << 16, 1 << 24
_TOGETHER = 64  # columns to turn into rows at a time


class Batches(NamedTuple):
    """What gives record batches."""

    schema: Any
    total: int | None
    read: Callable[[list[int], int, int], Iterator[Any]]
    """``read(columns, skip, size)``: record batches of about `size` rows, without the first `skip` rows."""
    once: bool = False


def open_arrow(place: Place, options: Options) -> Source:
    """Open the numeric columns of a file; a column of lists, all of one length, gives one feature per element."""
    parquet = place.head().startswith(b"PAR1")
    batches = _parquet(place, options) if parquet else _ipc(place)
    return source_of_batches(batches, place.name, options, "parquet" if parquet else "arrow", (place,))


def _parquet(place: Place, options: Options) -> Batches:
    import pyarrow.parquet as pq

    def opened(files: ExitStack) -> Any:
        return files.enter_context(pq.ParquetFile(place.path or files.enter_context(place.open()), pre_buffer=False))

    with ExitStack() as files:
        found = opened(files)
        schema, groups = found.schema_arrow, [found.metadata.row_group(i) for i in range(found.num_row_groups)]
        counts = [group.num_rows for group in groups]
        for i, group in enumerate(groups):  # sizes by column are not asked for: Arrow ends the process for some damaged files
            options.check(group.total_byte_size // max(1, group.num_columns), f"a column of row group {i}", place.name)

    def read(columns: list[int], skip: int, size: int) -> Iterator[Any]:
        first = 0
        while first < len(counts) and skip >= counts[first]:
            skip -= counts[first]
            first += 1
        with ExitStack() as files:
            names, rest = [schema.names[at] for at in columns], list(range(first, len(counts)))
            yield from _without(opened(files).iter_batches(min(size, _BATCH_ROWS), rest, names, use_threads=False), skip)

    return Batches(schema, sum(counts), read)


def _ipc(place: Place) -> Batches:
    """An Arrow file, or a stream in a file, which has no index and is read from its beginning."""
    import pyarrow as pa

    indexed = place.head().startswith(b"ARROW1")

    def opened(files: ExitStack) -> Any:
        if not indexed:
            return files.enter_context(pa.ipc.open_stream(files.enter_context(place.open())))
        file = files.enter_context(pa.OSFile(str(place.path)) if place.path is not None else pa.PythonFile(place.open(), mode="r"))
        found = files.enter_context(pa.ipc.open_file(file))
        if place.path is None or (place.size or 0) <= found.num_record_batches * _BATCH_BYTES:
            return found
        return files.enter_context(pa.ipc.open_file(files.enter_context(pa.memory_map(str(place.path)))))  # batches too large to hold

    def batches(found: Any) -> Iterator[Any]:
        return map(found.get_batch, range(found.num_record_batches)) if indexed else iter(found)

    with ExitStack() as files:
        found = opened(files)
        schema, total = found.schema, sum(batch.num_rows for batch in batches(found)) if indexed else None

    def read(columns: list[int], skip: int, size: int) -> Iterator[Any]:
        with ExitStack() as files:
            yield from _sliced((batch.select(columns) for batch in batches(opened(files))), skip, size)

    return Batches(schema, total, read)


def _without(batches: Iterator[Any], skip: int) -> Iterator[Any]:
    for batch in batches:
        if skip < batch.num_rows:
            yield batch.slice(skip)
        skip = max(0, skip - batch.num_rows)


def _sliced(batches: Iterator[Any], skip: int, size: int) -> Iterator[Any]:
    for batch in _without(batches, skip):
        for at in range(0, batch.num_rows, size):
            yield batch.slice(at, size)


def open_frame(frame: Any, options: Options, name: str) -> Source:
    """Open what has columns in Python: a data frame of pandas or polars, lazy or not, an Arrow table or its batches, a DuckDB relation."""
    import pyarrow as pa

    once = isinstance(frame, pa.RecordBatchReader)
    try:
        if hasattr(frame, "collect_batches"):  # a lazy frame of polars
            schema, total = frame.head(0).collect().to_arrow().schema, None
            read = _each_time(lambda: (part.to_arrow().combine_chunks().to_batches()[0] for part in frame.collect_batches()))
        else:
            if hasattr(frame, "iloc"):
                frame = pa.Table.from_pandas(frame, preserve_index=False)
            elif hasattr(frame, "to_arrow"):
                frame = frame.to_arrow()
            first = [pa.RecordBatchReader.from_stream(frame)]  # asked for again, where that is possible
            schema, total = first[0].schema, getattr(frame, "num_rows", None)
            read = _each_time(lambda: first.pop() if first else pa.RecordBatchReader.from_stream(frame))
    except pa.ArrowException as error:
        raise SourceError(f"{name} has a column that is not of one type ({reason(error)}).") from None
    return source_of_batches(Batches(schema, total, read, once), name, options, "frame")


def _each_time(batches: Callable[[], Iterator[Any]]) -> Callable[[list[int], int, int], Iterator[Any]]:
    """Read from the beginning whenever rows are asked for."""
    return lambda columns, skip, size: _sliced((batch.select(columns) for batch in batches()), skip, size)


def source_of_batches(batches: Batches, name: str, options: Options, kind: str, files: tuple[Place, ...] = ()) -> Source:
    """A source of the numeric columns of record batches."""
    schema = batches.schema
    if not schema.names:
        raise SourceError(f"{name} has no columns.")
    names, _ = unique(schema.names)
    index = set() if options.text.keep_index else _index_columns(schema)
    choice = choose(options.wanted, names, len(names), name, [at for at, each in enumerate(schema.names) if each not in index])
    numeric = {at: _numpy_kind(schema.field(at).type) for at in choice.features}
    if wrong := [at for at, each in numeric.items() if each is None]:
        at = wrong[0]
        raise SourceError(
            f"{name}: column {at} ({names[at]!r}) is of {schema.field(at).type}, not numbers: leave it out (--exclude {at}), or pick the "
            "columns to read (--columns); --ids carries text through."
        )
    columns = list(dict.fromkeys([*choice.features, *choice.ids, *([] if choice.time is None else [choice.time])]))
    read = _held(batches, columns) if batches.once else batches.read
    widths = {at: _width(schema.field(at).type, partial(read, [at], 0, 64), name, names[at]) for at in choice.features}
    working = working_dtype(np.result_type(*numeric.values()), options.dtype, name)
    table = _Table(name, names, columns, widths, working, choice)
    size = max(1, min(_BATCH_BYTES, options.max_memory // 8) // (sum(widths.values()) * working.itemsize))
    featured = [names[at] if widths[at] == 1 else f"{names[at]}.{i}" for at in choice.features for i in range(widths[at])]
    notes = [listing([names[at] for at in choice.features], len(choice.features))]
    if index:
        notes.append(f"the row index {', '.join(sorted(index))} of pandas was left out (--set keep_index=yes to learn it)")

    def rows(begin: Mark) -> Iterator[Chunk]:
        yield from map(table.chunk, read(columns, begin.row, size))

    return Source(
        name, len(featured), working, rows, batches.total, once=batches.once, feature_names=featured, notes=notes, kind=kind, files=files,
        foreign=kind == "frame", column_numbers=[at for at in choice.features for _ in range(widths[at])], **options.common(),
    )  # fmt: skip


def _held(batches: Batches, columns: list[int]) -> Callable[[list[int], int, int], Iterator[Any]]:
    """Read a stream of which the first batch has to tell how long lists are."""
    stream = batches.read(columns, 0, _BATCH_ROWS)
    first = [*itertools.islice(stream, 1)]
    return lambda wanted, skip, size: (batch.select([columns.index(at) for at in wanted]) for batch in itertools.chain(first, stream))


def _index_columns(schema: Any) -> set[str]:
    """The columns in which pandas stores the index of a frame."""
    try:
        stored = json.loads((schema.metadata or {}).get(b"pandas", b"{}")).get("index_columns", [])
    except (ValueError, AttributeError):
        return set()
    return {name for name in stored if isinstance(name, str) and name in schema.names}


def _numpy_kind(kind: Any) -> Any:
    """The dtype of a column's numbers; None if it has none."""
    import pyarrow as pa

    kind = kind.value_type if _is_list(kind) else kind
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return np.dtype(kind.to_pandas_dtype())
    return np.dtype(np.float64) if pa.types.is_decimal(kind) else None


def _is_list(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _width(kind: Any, first: Callable[[], Iterator[Any]], name: str, column: str) -> int:
    """Number of features that a column gives; for lists without a fixed length, the length of the first one."""
    if not _is_list(kind) or hasattr(kind, "list_size"):
        return int(getattr(kind, "list_size", 1))
    for batch in first():
        for value in batch.column(0).slice(0, 64).to_pylist():
            if value is not None:
                return max(1, len(value))
    raise SourceError(f"{name} has no list in its column {column!r} that tells how long they are.")


def dense(batch: Any, working: Any = np.float64) -> Array:
    """Columns of numbers as rows, (n, D), with NaN where a value is missing."""
    import pyarrow as pa

    kinds = batch.schema.types
    rows = np.empty((batch.num_rows, batch.num_columns), dtype=working)
    at = 0
    while at < len(kinds):
        stop = at + 1
        if pa.types.is_integer(kinds[at]) or pa.types.is_float32(kinds[at]) or pa.types.is_float64(kinds[at]):
            while stop < min(len(kinds), at + _TOGETHER) and kinds[stop] == kinds[at]:
                stop += 1  # so few in one call that what is written stays in the cache
            rows[:, at:stop] = batch.select(list(range(at, stop))).to_tensor(null_to_nan=True, row_major=True).to_numpy()
        else:
            rows[:, at] = _numbers(batch.column(at))
        at = stop
    return rows


def _numbers(column: Any) -> Any:
    """A column as an array, with NaN where a value is missing."""
    import pyarrow as pa

    if not pa.types.is_floating(column.type) and (column.null_count or pa.types.is_decimal(column.type)):
        column = (column.cast("int8") if pa.types.is_boolean(column.type) else column).cast("float64", safe=False)
    return column.to_numpy(zero_copy_only=False)


class _Table(NamedTuple):
    """How batches become rows."""

    name: str
    names: list[str]
    columns: list[int]
    """Positions of all columns that are read, in order: features, ids, time."""
    widths: dict[int, int]
    """Number of features that each feature column gives."""
    working: np.dtype[Any]
    choice: Choice

    def chunk(self, batch: Any) -> Chunk:
        """The rows of a batch."""
        held = dict(zip(self.columns, batch.columns, strict=True))
        bad: dict[int, str] = {}
        if not any(_is_list(held[at].type) for at in self.choice.features):
            rows = dense(batch.select([self.columns.index(at) for at in self.choice.features]), self.working)
        else:
            rows = np.concatenate([self._column(held[at], at, bad) for at in self.choice.features], axis=1)
            rows = np.delete(rows, list(bad), axis=0) if bad else rows
        ids = [_texts(held[at]) for at in self.choice.ids]
        times = None if self.choice.time is None else self._times(held[self.choice.time])
        return Chunk(batch.num_rows, rows, bad, np.array(ids, dtype=object).T if ids else None, times)

    def _column(self, column: Any, at: int, bad: dict[int, str]) -> Array:
        """A column as an array, (n, width); rows whose list is missing or of another length are bad."""
        import pyarrow.compute as pc

        width = self.widths[at]
        if not _is_list(column.type):
            return np.asarray(_numbers(column), dtype=self.working)[:, np.newaxis]
        lengths = np.asarray(pc.fill_null(pc.list_value_length(column), -1).to_numpy()).astype(np.int64)
        whole = lengths == width
        for row in np.flatnonzero(~whole).tolist():
            what = "no list" if lengths[row] < 0 else f"a list of {lengths[row]} values"
            bad[row] = f"has {what} where one of {width} is expected in column {at} ({self.names[at]!r})"
        values = np.full((len(lengths), width), np.nan, dtype=self.working)
        values[whole] = _numbers(pc.list_flatten(column if whole.all() else column.filter(whole))).reshape(-1, width)
        return values

    def _times(self, column: Any) -> Array:
        import pyarrow as pa

        if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
            return np.asarray(column.cast(pa.timestamp("us")).to_numpy(zero_copy_only=False)).astype("datetime64[us]")
        if _numpy_kind(column.type) is not None:
            return np.asarray(_numbers(column), dtype=np.float64)
        return times_of(_texts(column), self.name)


def _texts(column: Any) -> list[str]:
    return ["" if value is None else str(value) for value in column.to_pylist()]
