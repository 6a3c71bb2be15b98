"""Parquet and Arrow/Feather files."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from online_psp.engine.types import Array
from online_psp.io.sources._chunks import ahead, recut_chunks
from online_psp.io.sources._columns import Choice, choose, times_of, unique
from online_psp.io.sources._identity import RowsPrint
from online_psp.io.sources._numpy import rows_of
from online_psp.io.sources._options import Options
from online_psp.io.sources._places import Place
from online_psp.io.sources._source import Chunk, Deadline, MissingExtraError, Source, SourceError, reason, working_dtype
from online_psp.io.sources._suspects import MOST_SAID, suspicion, warning

PARQUET = (".parquet", ".pq")
IPC = (".arrow", ".feather", ".ipc")
STREAM = b"\xff\xff\xff\xff"
"""First bytes of Arrow's format for streams."""
_BATCH_ROWS, _BATCH_BYTES = 1 << 16, 1 << 24
_TOGETHER = 64  # columns to turn into rows at a time
_LOOKED_AT = 8  # columns of whole numbers to check for row numbers and labels
_WIDEST = """
import sys
import pyarrow.parquet
found = pyarrow.parquet.read_metadata(sys.argv[1])
for group in (found.row_group(number) for number in range(found.num_row_groups)):
    print(max((group.column(at).total_uncompressed_size for at in range(group.num_columns)), default=0))
"""


class Table(NamedTuple):
    """The parts of a file that are read."""

    place: Place
    parquet: bool
    names: list[str]
    columns: list[int]
    """Positions of all columns that are needed, in order: features, ids, time."""
    widths: list[int]
    """Number of features that each feature column gives."""
    working: np.dtype[Any]
    choice: Choice
    rows: int


def open_arrow(place: Place, options: Options) -> Source:
    """Open the numeric columns of a file; a column of lists, all of one length, gives one feature per element."""
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise MissingExtraError(f"Reading {place.name} needs pyarrow: pip install 'online-psp[arrow]'.") from None
    parquet = place.short.lower().endswith(PARQUET) or (not place.short.lower().endswith(IPC) and _begins(place, b"PAR1"))
    try:
        schema, rows = _schema(place, parquet, options)
    except (SourceError, KeyboardInterrupt):
        raise
    except Exception as error:  # errors of Arrow, of the operating system, and those that absurd sizes cause
        if _begins(place, STREAM):
            raise SourceError(f"{place.name} is an Arrow stream, which has no index: write it as Parquet or as an Arrow file.") from None
        raise SourceError(f"{place.name} is not a whole Parquet or Arrow file ({reason(error)}).") from None
    if not schema.names:
        raise SourceError(f"{place.name} has no columns.")
    names, _ = unique(schema.names)
    index = _index_columns(schema)
    usable = [at for at, name in enumerate(schema.names) if name not in index or options.text.keep_index]
    notes = (
        [f"the row index {', '.join(sorted(index))} of pandas was left out (--set keep_index=yes to learn it)"]
        if len(usable) < len(names)
        else []
    )
    choice = choose(options.wanted, names, len(names), place.name, usable)
    _refuse_text(schema, names, choice, place.name)
    fields = [schema.field(at) for at in choice.features]
    widths = [_width(entry, place, parquet, at) for entry, at in zip(fields, choice.features, strict=True)]
    working = working_dtype(np.result_type(*(_numpy_kind(entry.type) for entry in fields)), options.dtype, place.name)
    columns = list(dict.fromkeys([*choice.features, *choice.ids, *([choice.time] if choice.time is not None else [])]))
    table = Table(place, parquet, names, columns, widths, working, choice, rows)
    chosen = [names[at] for at in choice.features]
    plain = all(width == 1 for width in widths)
    shown = ", ".join(chosen[:6]) + (", …" if len(chosen) > 6 else "")
    notes.insert(0, f"{len(chosen)} column{'s' if len(chosen) != 1 else ''}: {shown}")

    warnings = _doubts(table, schema, options.text.keep_index)
    at_once = max(1, min(_BATCH_BYTES, options.max_memory // 8) // (sum(widths) * working.itemsize))

    def read(start: int, size: int, deadline: Deadline | None = None) -> Iterator[Chunk]:
        return recut_chunks(ahead(_chunks(table, start, max(size, at_once)), options.max_memory), size)

    return Source(
        place.name,
        sum(widths),
        working,
        read,
        rows,
        feature_names=chosen if plain else _list_names(chosen, widths),
        notes=notes,
        warnings=warnings,
        kind="parquet" if parquet else "arrow",
        prints=(RowsPrint(place.short, rows, sum(widths) * working.itemsize, rows_of(read)),),
        schema=options.schema(),
        column_numbers=[at for at, width in zip(choice.features, widths, strict=True) for _ in range(width)],
        **options.common(),
    )


def _doubts(table: Table, schema: Any, keep_index: bool | None) -> list[str]:
    """Warnings about columns of whole numbers that look like row numbers, times or labels, not features."""
    import pyarrow as pa

    whole = [at for at in table.choice.features if pa.types.is_integer(schema.field(at).type)]
    found: list[str] = []
    for at in [] if keep_index else whole[:_LOOKED_AT]:
        first = next(_chunks(table._replace(columns=[at], widths=[1], choice=Choice([at], [], None)), 0, 100), None)
        why = suspicion(table.names[at], np.asarray(first.rows[:, 0], dtype=np.float64)) if first is not None else None
        if why is not None:
            found.append(warning(f"column {at} ({table.names[at]!r})", at, why))
    return found[:MOST_SAID]


def _begins(place: Place, magic: bytes) -> bool:
    with place.open() as file:
        return file.read(len(magic)) == magic


def _list_names(names: list[str], widths: list[int]) -> list[str]:
    """Names of features; those of a column of lists are embedding.0, embedding.1, …"""
    return [name if width == 1 else f"{name}.{i}" for name, width in zip(names, widths, strict=True) for i in range(width)]


def _schema(place: Place, parquet: bool, options: Options) -> tuple[Any, int]:
    """Schema and number of rows; the sizes that the file states are checked before anything is read."""
    import pyarrow.parquet as pq

    if not parquet:
        with _ipc(place) as file:
            return file.schema, sum(file.get_batch(i).num_rows for i in range(file.num_record_batches))
    with place.open() as stream, pq.ParquetFile(place.path or stream) as file:
        sizes = [file.metadata.row_group(group).total_byte_size for group in range(file.num_row_groups)]
        if max(sizes, default=0) > options.max_memory:
            for group, widest in enumerate(_widest_columns(place, file)):
                options.check(widest, f"a column of row group {group}", place.name)
        return file.schema_arrow, file.metadata.num_rows


def _widest_columns(place: Place, file: Any) -> list[int]:
    """Size of the largest column of each row group, unpacked.

    Found in another process where that is possible, because Arrow ends the process that asks for the columns of some damaged files.
    """
    if place.path is None:
        groups = (file.metadata.row_group(group) for group in range(file.num_row_groups))
        return [max((found.column(at).total_uncompressed_size for at in range(found.num_columns)), default=0) for found in groups]
    done = subprocess.run([sys.executable, "-P", "-c", _WIDEST, str(place.path)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SourceError(f"{place.name} is not a whole Parquet file (its list of columns is damaged).")
    return [int(word) for word in done.stdout.split()]


@contextmanager
def _ipc(place: Place) -> Iterator[Any]:
    import pyarrow as pa

    opened: Any = pa.OSFile(str(place.path)) if place.path is not None else pa.PythonFile(place.open(), mode="r")
    with opened, pa.ipc.open_file(opened) as file:
        if place.path is None or (place.size or 0) <= file.num_record_batches * _BATCH_BYTES:
            yield file
            return
    with pa.memory_map(str(place.path)) as mapped, pa.ipc.open_file(mapped) as file:  # batches are too large to hold in memory
        yield file


def _index_columns(schema: Any) -> set[str]:
    """The columns in which pandas stores the index of a frame."""
    try:
        stored = json.loads((schema.metadata or {}).get(b"pandas", b"{}")).get("index_columns", [])
    except (ValueError, AttributeError):
        return set()
    return {name for name in stored if isinstance(name, str) and name in schema.names}


def _numpy_kind(kind: Any) -> Any:
    import pyarrow as pa

    if _is_list(kind):
        kind = kind.value_type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return np.dtype(kind.to_pandas_dtype())
    return np.dtype(np.float64) if pa.types.is_decimal(kind) else None


def _is_list(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _refuse_text(schema: Any, names: list[str], choice: Choice, name: str) -> None:
    wrong = [at for at in choice.features if _numpy_kind(schema.field(at).type) is None]
    if not wrong:
        return
    at = wrong[0]
    leave = ",".join(f'"{names[i]}"' if "," in names[i] else names[i] for i in wrong[:5])
    raise SourceError(
        f"{name}: column {at} ({names[at]!r}) is of {schema.field(at).type}, not numbers: leave it out (--exclude {leave}), or pick the "
        "columns to read (--columns); --ids carries text through."
    )


def _width(entry: Any, place: Place, parquet: bool, at: int) -> int:
    """Number of features that a column gives; for lists without a fixed length, the length of the first one."""
    import pyarrow as pa

    if not _is_list(entry.type):
        return 1
    if pa.types.is_fixed_size_list(entry.type):
        return int(entry.type.list_size)
    for batch in _batches(place, parquet, [at], 0, 64):
        lengths = [len(value) for value in batch.column(0).to_pylist() if value is not None]
        if lengths:
            return max(1, lengths[0])
    raise SourceError(f"{place.name} has no list in its column {at} ({entry.name!r}) that tells how long they are.")


def _batches(place: Place, parquet: bool, columns: list[int], skip: int, size: int) -> Iterator[Any]:
    """Record batches, without the first `skip` rows."""
    import pyarrow.parquet as pq

    if not parquet:
        with _ipc(place) as file:
            for i in range(file.num_record_batches):
                batch = file.get_batch(i)
                for at in range(skip, batch.num_rows, size):
                    yield batch.slice(at, size).select(columns)
                skip = max(0, skip - batch.num_rows)
        return
    with place.open() as stream, pq.ParquetFile(place.path or stream, pre_buffer=False) as file:
        present = file.schema_arrow.names
        names = [present[at] for at in columns]
        groups = list(range(file.num_row_groups))
        while groups and skip >= file.metadata.row_group(groups[0]).num_rows:
            skip -= file.metadata.row_group(groups.pop(0)).num_rows
        for batch in file.iter_batches(min(size, _BATCH_ROWS), row_groups=groups, columns=names, use_threads=False):
            if skip < batch.num_rows:
                yield batch.slice(skip)
            skip = max(0, skip - batch.num_rows)


def _chunks(table: Table, start: int, rows: int) -> Iterator[Chunk]:
    """The rows from `start` on, about `rows` at a time."""
    import pyarrow as pa

    at, groups = start, None
    where = {column: place for place, column in enumerate(table.columns)}
    try:
        for batch in _batches(table.place, table.parquet, table.columns, start, rows):
            groups = groups or _groups(batch.schema.types, [where[column] for column in table.choice.features])
            yield _chunk(batch, groups, table)
            at += batch.num_rows
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, SourceError):
            raise
        raise SourceError(f"{table.place.name}, after row {at}: the file is damaged ({reason(error)}).") from None


def _chunk(whole: Any, groups: list[list[int]], table: Table) -> Chunk:
    where = {at: place for place, at in enumerate(table.columns)}
    widths = dict(zip(table.choice.features, table.widths, strict=True))
    lists_only = len(table.widths) == 1 and table.widths[0] > 1
    rows = np.empty((0 if lists_only else whole.num_rows, sum(table.widths)), dtype=table.working)
    wide: dict[int, Array] = {}
    bad: dict[int, str] = {}
    at = 0
    for columns in groups:
        found, width = whole.column(columns[0]), len(columns)
        if _is_list(found.type):
            column = table.columns[columns[0]]
            width = widths[column]
            wide[at] = _lists(found, width, table, column, bad)
        elif _is_plain(found.type):  # all in one call, during which other threads run
            rows[:, at : at + width] = whole.select(columns).to_tensor(null_to_nan=True, row_major=True).to_numpy()
        else:
            rows[:, at] = _numbers(found, table.working)
        at += width
    rows = wide[0] if lists_only else rows
    for at, values in wide.items():
        if rows is not values:
            rows[:, at : at + values.shape[1]] = values
    if bad:
        rows = rows[[i for i in range(len(rows)) if i not in bad]]
    ids = np.array([_texts(whole.column(where[at])) for at in table.choice.ids], dtype=object).T if table.choice.ids else None
    times = _times(whole.column(where[table.choice.time]), table) if table.choice.time is not None else None
    return Chunk(whole.num_rows, rows, bad, ids, times)


def _groups(kinds: list[Any], columns: list[int]) -> list[list[int]]:
    """Columns that are turned into rows together: plain ones of the same type, so few that what is written stays in the cache."""
    groups = [[columns[0]]]
    for column in columns[1:]:
        if kinds[column] == kinds[groups[-1][0]] and _is_plain(kinds[column]) and len(groups[-1]) < _TOGETHER:
            groups[-1].append(column)
        else:
            groups.append([column])
    return groups


def _is_plain(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind))


def _numbers(column: Any, working: np.dtype[Any]) -> Array:
    """A column as an array, with NaN where a value is missing."""
    import pyarrow as pa

    if not pa.types.is_floating(column.type) and (column.null_count or pa.types.is_decimal(column.type)):
        if pa.types.is_boolean(column.type):
            column = column.cast("int8")
        column = column.cast("float64", safe=False)
    values = column.to_numpy(zero_copy_only=False)
    return np.asarray(values if values.dtype == working else values.astype(working))


def _lists(column: Any, width: int, table: Table, at: int, bad: dict[int, str]) -> Array:
    """A column of lists as an array, (n, width); rows whose list is missing or of another length are bad."""
    import pyarrow.compute as pc

    lengths = np.asarray(pc.fill_null(pc.list_value_length(column), -1).to_numpy()).astype(np.int64)
    whole = lengths == width
    if not whole.all():
        for row in np.flatnonzero(~whole).tolist():
            what = "no list" if lengths[row] < 0 else f"a list of {lengths[row]} values"
            bad[row] = f"has {what} where one of {width} is expected in column {at} ({table.names[at]!r})"
        column = column.filter(np.asarray(whole))
    flat = _numbers(pc.list_flatten(column), table.working).reshape(-1, width)
    if whole.all():
        return flat
    values = np.full((len(lengths), width), np.nan, dtype=table.working)
    values[whole] = flat
    return values


def _texts(column: Any) -> list[str]:
    return ["" if value is None else str(value) for value in column.to_pylist()]


def _times(column: Any, table: Table) -> Array:
    import pyarrow as pa

    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        return np.asarray(column.cast(pa.timestamp("us")).to_numpy()).astype("datetime64[us]")
    if _numpy_kind(column.type) is not None:
        return _numbers(column, np.dtype(np.float64))
    return times_of(_texts(column), table.place.name)
