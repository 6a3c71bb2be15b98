"""Rows from Arrow tables, which Spark and Ray hand over."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.sparse import csr_array

from online_psp.distributed.parts import Block, Columns, Found, learn
from online_psp.engine.types import Array
from online_psp.pca import OnlinePCA

_VECTOR = {"type", "size", "indices", "values"}  # fields of Spark's vectors


def learn_tables(template: OnlinePCA, tables: Iterable[pa.Table], columns: Columns) -> Found:
    """What becomes of the tables of one partition."""
    return learn(template, (block_of(table, columns) for table in tables))


def block_of(table: pa.Table, columns: Columns) -> Block:
    """The rows of a table, with their weights and times."""
    beside = [None if name is None else table[name].to_numpy() for name in (columns.weights, columns.times)]
    X = table.select(columns.features)
    if X.num_columns == 1 and pa.types.is_nested(_stored(X.schema.types[0])):
        X = _matrix(X.column(0), X.column_names[0])
    return X, *beside


def column_of(values: Array) -> pa.Array:
    """A column of numbers, or of lists of them."""
    if values.ndim == 1:
        return pa.array(values)
    n, K = values.shape
    return pa.ListArray.from_arrays(pa.array(np.arange(n + 1, dtype=np.int32) * K), pa.array(values.ravel()))


def _stored(kind: pa.DataType) -> pa.DataType:
    return getattr(kind, "storage_type", kind)


def _matrix(column: pa.ChunkedArray, name: str) -> Any:
    """The (n, D) array that a column of vectors is; CSR if some of them are sparse."""
    array = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    array = getattr(array, "storage", array)
    dense = np.ones(len(array), dtype=bool)
    values = array
    if pa.types.is_struct(array.type) and {field.name for field in array.type} == _VECTOR:
        dense, values = array.field("type").to_numpy(zero_copy_only=False) == 1, array.field("values")
    counts = pc.list_value_length(values).to_numpy(zero_copy_only=False)
    sizes = counts if dense.all() else np.where(dense, counts, array.field("size").to_numpy(zero_copy_only=False))
    sizes = np.nan_to_num(sizes)  # no vector has no values
    if len(sizes) and not (sizes == sizes[0]).all():
        row = int(np.argmin(sizes == sizes[0]))
        raise ValueError(f"Vectors of column {name!r} must have the same length; row 0 has {sizes[0]:g} values, row {row} {sizes[row]:g}.")
    data, D = values.flatten().to_numpy(zero_copy_only=False), int(sizes[0]) if len(sizes) else 0
    if dense.all():
        return data.reshape(len(array), D)
    full = np.repeat(dense, counts)
    indices = np.empty(len(data), dtype=np.int32)
    indices[full], indices[~full] = np.tile(np.arange(D), dense.sum()), array.field("indices").flatten().to_numpy()
    return csr_array((data, indices, np.concatenate([[0], np.cumsum(counts)])), shape=(len(array), D))
