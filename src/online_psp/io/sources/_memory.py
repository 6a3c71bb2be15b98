"""Sources of rows that are already in Python: arrays, data frames, sparse matrices, iterables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse

from online_psp.engine.types import Array
from online_psp.io.sources._columns import Choice, choose, picked, times_of
from online_psp.io.sources._identity import RowsPrint
from online_psp.io.sources._numpy import rows_of
from online_psp.io.sources._options import Options
from online_psp.io.sources._source import (
    Chunk,
    Deadline,
    Reader,
    Source,
    SourceError,
    UnknownSourceError,
    check_shape,
    joined,
    peek,
    recut,
    sliced,
    sparse_block_rows,
    working_dtype,
)
from online_psp.io.sources._sparse import open_sparse


def open_object(source: Any, options: Options) -> Source:
    """Open anything that is not a path."""
    if isinstance(source, Source):
        return source
    name = f"the {type(source).__name__}"
    if all(hasattr(source, part) for part in ("obs_names", "var_names", "X")):
        raise UnknownSourceError(
            "An AnnData object is a table with names: pass adata.X (or adata.layers[…]), the path of its .h5ad file, or use "
            "online_psp.integrations.anndata.fit(adata, 50)."
        )
    if issparse(source) and source.ndim == 2:
        return picked(open_sparse(source, options, name), options.wanted)
    if hasattr(source, "columns") and len(getattr(source, "shape", ())) == 2:
        return _open_frame(source, options, name)
    if len(getattr(source, "shape", ())) == 2:
        return picked(open_array(source, options, name), options.wanted)
    if isinstance(source, Iterable):
        return picked(_open_iterable(iter(source), options, name), options.wanted)
    raise UnknownSourceError(f"A source is a path, an array or an iterable of rows; got {type(source).__name__}.")


def open_array(array: Any, options: Options, name: str, kind: str = "array") -> Source:
    """Open anything that has two dimensions and can be sliced."""
    total, features = check_shape(tuple(array.shape), name)
    dtype = np.dtype(str(array.dtype).removeprefix("torch.")) if not isinstance(array.dtype, np.dtype) else array.dtype
    read = sliced(array, total)
    prints = (RowsPrint(name, total, features * dtype.itemsize, rows_of(read)),)
    working = working_dtype(dtype, options.dtype, name)
    return Source(name, features, working, read, total, kind=kind, prints=prints, schema=options.schema(), **options.common())


def _open_frame(frame: Any, options: Options, name: str) -> Source:
    """Open a pandas or polars data frame: its columns have names, and some may be text."""
    names = [str(column) for column in frame.columns]
    total, width = check_shape(tuple(frame.shape), name)
    columns = [frame.iloc[:, at] if hasattr(frame, "iloc") else frame[:, at] for at in range(width)]
    numeric = [at for at, column in enumerate(columns) if _is_numeric(column)]
    choice = choose(options.wanted, names, width, name)
    wrong = [at for at in choice.features if at not in numeric]
    if wrong:
        listed = ", ".join(f"{names[at]!r}" for at in wrong[:5])
        raise SourceError(
            f"{name} has {'a column' if len(wrong) == 1 else 'columns'} {listed} of {_dtype_of(columns[wrong[0]])}, not numbers: drop "
            f"{'it' if len(wrong) == 1 else 'them'}, turn {'it' if len(wrong) == 1 else 'them'} into numbers, or name the columns to "
            "learn (columns=[…])."
        )
    kinds = [_numpy_dtype(columns[at]) for at in choice.features]
    working = working_dtype(np.result_type(*kinds), options.dtype, name)
    read = _frame_reader(columns, choice, working, name, total)
    prints = (RowsPrint(name, total, len(choice.features) * working.itemsize, rows_of(read)),)
    return Source(
        name, len(choice.features), working, read, total, feature_names=[names[at] for at in choice.features], kind="frame", prints=prints,
        schema=options.schema(), column_numbers=choice.features, **options.common(),
    )  # fmt: skip


def _dtype_of(column: Any) -> str:
    return "text" if str(column.dtype) in ("object", "str", "string", "String") else str(column.dtype)


def _is_numeric(column: Any) -> bool:
    if hasattr(column.dtype, "is_numeric"):
        return bool(column.dtype.is_numeric()) or str(column.dtype) == "Boolean"
    return _numpy_dtype(column).kind in "fiub"


def _numpy_dtype(column: Any) -> np.dtype[Any]:
    dtype = column.dtype
    inner = getattr(dtype, "numpy_dtype", None) or getattr(dtype, "subtype", None)
    if isinstance(dtype, np.dtype):
        return dtype
    if isinstance(inner, np.dtype):
        return inner
    if hasattr(dtype, "is_numeric"):  # polars
        return (
            np.dtype({"Float32": np.float32, "Boolean": np.bool_}.get(str(dtype), np.float64))
            if _polars_number(dtype)
            else np.dtype(object)
        )
    return np.dtype(object)


def _polars_number(dtype: Any) -> bool:
    return bool(dtype.is_numeric()) or str(dtype) == "Boolean"


def _frame_reader(columns: list[Any], choice: Choice, working: np.dtype[Any], name: str, total: int) -> Reader:
    def values(at: int, start: int, stop: int) -> Array:
        part = columns[at].iloc[start:stop] if hasattr(columns[at], "iloc") else columns[at][start:stop]
        if hasattr(columns[at], "iloc"):
            return np.asarray(part.to_numpy(dtype=working, na_value=np.nan))
        return np.asarray(part.cast(float).to_numpy()).astype(working, copy=False)

    def texts(at: int, start: int, stop: int) -> list[str]:
        part = columns[at].iloc[start:stop].tolist() if hasattr(columns[at], "iloc") else columns[at][start:stop].to_list()
        return ["" if value is None else str(value) for value in part]

    def read(start: int, size: int, deadline: Deadline | None = None) -> Iterator[Chunk]:
        for at in range(start, total, size):
            stop = min(at + size, total)
            rows = np.empty((stop - at, len(choice.features)), dtype=working)
            for place, column in enumerate(choice.features):
                rows[:, place] = values(column, at, stop)
            ids = np.array([texts(i, at, stop) for i in choice.ids], dtype=object).T if choice.ids else None
            times = times_of(texts(choice.time, at, stop), name) if choice.time is not None else None
            yield Chunk(stop - at, rows, {}, ids, times)

    return read


def _open_iterable(items: Iterator[Any], options: Options, name: str) -> Source:
    """Open an iterable of rows, or of blocks of rows of any size; positions in it are counted in rows."""
    first, items = peek(items)
    if first is None:
        raise SourceError(f"{name} is empty, so that not even the number of features is known.")
    shape, sparse = np.shape(first), issparse(first)
    features = shape[-1] if shape else 0
    if len(shape) not in (1, 2) or features < 1:
        raise SourceError(f"{name} must give rows or blocks of rows; its first item has shape {shape}.")
    kind = first.dtype if sparse else np.asarray(first).dtype
    try:
        working = working_dtype(kind, options.dtype, name)
    except TypeError:
        raise SourceError(f"{name} must give numbers; its first item has dtype {kind}.") from None
    block = sparse_block_rows(shape[0], first.nnz) if sparse else None

    def read(start: int, size: int, deadline: Deadline | None = None) -> Iterator[Chunk]:
        arrays = _gathered(items, features, sparse, name, deadline)
        return recut(arrays, size, start, deadline)

    return Source(
        name, features, working, read, once=True, block=block, foreign=True, kind="iterable", schema=options.schema(), **options.common()
    )


def _gathered(items: Iterator[Any], features: int, sparse: bool, name: str, deadline: Deadline | None) -> Iterator[Any]:
    """Items as tables; single rows are joined, so that they do not cost a call each."""
    seen = 0
    gathered: list[Any] = []
    for item in items:
        rows: Any = csr_array(item if issparse(item) else np.atleast_2d(item)) if sparse else np.atleast_2d(np.asarray(item))
        if rows.ndim != 2 or rows.shape[1] != features:
            raise SourceError(f"{name}, row {seen + 1}: rows must have {features} values; this item has shape {np.shape(item)}.")
        seen += rows.shape[0]
        gathered.append(rows)
        if rows.shape[0] > 16 or len(gathered) == 64 or (deadline is not None and deadline()):
            yield joined(gathered)
            gathered = []
    if gathered:
        yield joined(gathered)
