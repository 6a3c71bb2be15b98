"""Parquet and Arrow/Feather files, and folders of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from online_psp.engine.types import Array
from online_psp.io.sources._source import MissingExtraError, Source, SourceError, UnknownSourceError, recut, working_dtype

PARQUET = (".parquet", ".pq")
IPC = (".arrow", ".feather", ".ipc")


def open_arrow(paths: list[Path], dtype: Any, name: str, columns: Sequence[str | int] | None) -> Source:
    """The numeric columns of files with one schema; a column of lists of equal length gives as many features."""
    try:
        import pyarrow as pa
        import pyarrow.parquet
    except ImportError:
        raise MissingExtraError(f"Reading {name} needs pyarrow: pip install 'online-psp[arrow]'.") from None
    try:
        opened = [_open(path) for path in paths]
    except (pa.ArrowException, OSError) as error:
        raise SourceError(f"{name} is not a whole Parquet or Arrow file ({_first_line(error)}).") from None
    schema = opened[0][0]
    for path, (other, _) in zip(paths, opened, strict=True):
        if not other.equals(schema):
            raise SourceError(f"{path} has other columns than {paths[0]}.")
    chosen = _columns(schema, columns, name)
    widths = [_width(schema.field(column), name) for column in chosen]
    kinds = [_numpy_kind(schema.field(column).type) for column in chosen]
    working = working_dtype(np.result_type(*kinds), dtype, name)
    names = None
    if all(width == 1 for width in widths) and len(set(chosen)) == len(chosen):
        names = chosen
    counts = [count for _, count in opened]

    def arrays(start: int, size: int) -> Iterator[Array]:
        skip = start
        for path, count in zip(paths, counts, strict=True):
            if skip >= count:
                skip -= count
                continue
            try:
                for batch in _batches(path, chosen, skip, size):
                    yield _rows(batch, widths, working, name)
            except (pa.ArrowException, OSError) as error:
                raise SourceError(f"{path} is damaged ({_first_line(error)}).") from None
            skip = 0

    return Source(
        name, sum(widths), working, lambda start, size, deadline: recut(arrays(start, size), size), sum(counts), feature_names=names
    )


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")


def _open(path: Path) -> tuple[Any, int]:
    """Schema and number of rows."""
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq

    if path.suffix in PARQUET:
        with pq.ParquetFile(path) as file:
            return file.schema_arrow, file.metadata.num_rows
    found = ds.dataset(path, format="ipc")
    return found.schema, found.count_rows()


def _batches(path: Path, columns: list[str], skip: int, size: int) -> Iterator[Any]:
    """Record batches of one file, without the first `skip` rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if path.suffix in PARQUET:
        with pq.ParquetFile(path, pre_buffer=False) as file:
            groups = list(range(file.num_row_groups))
            while groups and skip >= file.metadata.row_group(groups[0]).num_rows:
                skip -= file.metadata.row_group(groups.pop(0)).num_rows
            for batch in file.iter_batches(min(size, 1 << 16), row_groups=groups, columns=columns, use_threads=False):
                if skip < batch.num_rows:
                    yield batch.slice(skip)
                skip = max(0, skip - batch.num_rows)
        return
    with pa.memory_map(str(path)) as mapped, pa.ipc.open_file(mapped) as file:
        for i in range(file.num_record_batches):
            batch = file.get_batch(i)
            for at in range(skip, batch.num_rows, size):
                yield batch.slice(at, size).select(columns)
            skip = max(0, skip - batch.num_rows)


def _columns(schema: Any, columns: Sequence[str | int] | None, name: str) -> list[str]:
    if columns is not None:
        chosen = []
        for column in columns:
            if column not in schema.names and not (str(column).isdecimal() and int(column) < len(schema.names)):
                raise UnknownSourceError(f"{name} has no column {column!r}; it has {', '.join(schema.names[:8])}.")
            chosen.append(str(column) if column in schema.names else schema.names[int(column)])
        return chosen
    for entry in schema:
        if _numpy_kind(entry.type) is None:
            raise SourceError(f"{name} has a column {entry.name!r} of {entry.type}, not numbers; pick the columns to read (--columns).")
    if not schema.names:
        raise SourceError(f"{name} has no columns.")
    return list(schema.names)


def _numpy_kind(kind: Any) -> Any:
    import pyarrow as pa

    if pa.types.is_fixed_size_list(kind):
        kind = kind.value_type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return np.dtype(kind.to_pandas_dtype())
    return None


def _width(entry: Any, name: str) -> int:
    import pyarrow as pa

    if _numpy_kind(entry.type) is None:
        raise SourceError(f"{name} has a column {entry.name!r} of {entry.type}, not numbers.")
    return entry.type.list_size if pa.types.is_fixed_size_list(entry.type) else 1


def _rows(batch: Any, widths: list[int], working: np.dtype[Any], name: str) -> Array:
    """(n, D), with NaN where a value is missing."""
    import pyarrow as pa

    rows = np.empty((batch.num_rows, sum(widths)), dtype=working)
    at = 0
    for column, width in zip(batch.columns, widths, strict=True):
        if pa.types.is_fixed_size_list(column.type):
            if column.null_count:
                raise SourceError(f"{name} has a missing list, and lists are features that must all be there.")
            values = column.flatten()
            rows[:, at : at + width] = _numbers(values, working).reshape(-1, width)
        else:
            rows[:, at] = _numbers(column, working)
        at += width
    return rows


def _numbers(column: Any, working: np.dtype[Any]) -> Array:
    if column.null_count:
        column = column.cast("float64") if str(column.type) == "bool" else column
        return np.array([np.nan if value is None else value for value in column.to_pylist()], dtype=working)
    return np.asarray(column.to_numpy(zero_copy_only=False)).astype(working, copy=False)
