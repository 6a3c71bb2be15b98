"""Spark DataFrames. A partition is read in batches and becomes one row with a packed model; workers merge the rows of neighbours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import functions
from pyspark.sql.types import ArrayType, DoubleType, FloatType, StructField, StructType

from online_psp.distributed.arrow import block_of, column_of, learn_tables
from online_psp.distributed.parts import Columns, merge, pack, reduce
from online_psp.pca import OnlinePCA

_MODELS = "part long, model binary"
_FAN_IN, _LEVELS = 16, 2  # models that one task merges, and how often, before the rest are merged where the call was made


def fit(frame: Any, model: OnlinePCA, columns: Columns) -> bytes:
    """The packed model of all partitions."""
    columns = columns.of(frame.columns)

    def learned(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        part = TaskContext.get().partitionId()
        found = learn_tables(model, (pa.Table.from_batches([batch]) for batch in batches), columns)
        yield pa.record_batch({"part": [part], "model": [pack(found, part)]})

    def merged(table: pa.Table) -> pa.Table:
        parts = table.sort_by("part").to_pydict()
        return pa.table({"part": [parts["part"][0] // _FAN_IN], "model": [reduce(parts["model"], merge)]})

    models = frame.mapInArrow(learned, _MODELS)
    for _ in range(_LEVELS):
        models = models.groupBy(functions.floor(models["part"] / _FAN_IN)).applyInArrow(merged, _MODELS)
    return bytes(reduce([row.model for row in sorted(models.collect())], merge))


def apply(frame: Any, model: OnlinePCA, method: str, columns: Columns, column: str) -> Any:
    """The frame with one more column: what a method of the model returns for every row."""
    columns = columns.of(frame.columns, column)
    number = DoubleType() if method != "transform" or model.components_.dtype == "float64" else FloatType()
    schema = StructType([*frame.schema.fields, StructField(column, ArrayType(number) if method == "transform" else number)])

    def applied(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            table = pa.Table.from_batches([batch])
            if table.num_rows:
                values = getattr(model, method)(block_of(table, columns)[0])
                yield from table.append_column(column, column_of(values)).combine_chunks().to_batches()

    return frame.mapInArrow(applied, schema)
