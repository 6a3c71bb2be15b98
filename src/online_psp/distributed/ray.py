"""Ray Datasets. A block becomes one row with a packed model where it is; a tree of tasks merges these, and rows never travel."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import ray

from online_psp.distributed.arrow import block_of, column_of, learn_tables
from online_psp.distributed.parts import Columns, merge, pack, reduce
from online_psp.pca import OnlinePCA


def fit(data: Any, model: OnlinePCA, columns: Columns) -> bytes:
    """The packed model of all blocks."""
    columns = columns.of(data.columns() or [])

    def learned(table: pa.Table) -> pa.Table:
        return pa.table({"found": [pickle.dumps(learn_tables(model, [table], columns))]})

    def of_block(table: pa.Table, part: int) -> Any:
        found = [pickle.loads(each) for each in table["found"].to_pylist()] if table.num_rows else [None]
        return reduce([pack(each, part) for each in found], merge)

    models = data.map_batches(learned, batch_size=None, batch_format="pyarrow")
    options, before = models.context.execution_options, models.context.execution_options.preserve_order
    options.preserve_order = True  # for these models only: the options are those of `data`
    try:
        tables = models.to_arrow_refs()
    finally:
        options.preserve_order = before
    first, both = ray.remote(of_block), ray.remote(merge)
    packed: bytes = ray.get(reduce([first.remote(table, part) for part, table in enumerate(tables)], both.remote))
    return packed


def apply(data: Any, model: OnlinePCA, method: str, columns: Columns, column: str) -> Any:
    """The dataset with one more column: what a method of the model returns for every row."""
    columns = columns.of(data.columns() or [], column)

    def applied(table: pa.Table) -> pa.Table:
        return table.append_column(column, column_of(getattr(model, method)(block_of(table, columns)[0])))

    return data.map_batches(applied, batch_size=None, batch_format="pyarrow")
