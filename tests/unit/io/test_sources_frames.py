"""Whatever has columns in Python: data frames, lazy or not, Arrow's tables and batches, DuckDB's relations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from online_psp import OnlinePCA
from online_psp.io.runs import fit_stream, reopen
from online_psp.io.sources import SourceError, open_source
from tests.messy_files import NAMES, clean


def frame() -> pd.DataFrame:
    found = pd.DataFrame(clean(), columns=NAMES)
    found.insert(2, "who", [f"p{i}" for i in range(len(found))])
    return found


def of_pandas() -> Any:
    return frame().set_index(np.arange(60) * 3 + 7)


def of_polars() -> Any:
    return pl.DataFrame(frame().to_dict("list"))


def lazy() -> Any:
    return of_polars().lazy().filter(pl.col("depth") > -1e9)


def table() -> Any:
    return pa.Table.from_pandas(frame())


def batches() -> Any:
    return pa.RecordBatchReader.from_batches(table().schema, table().to_batches(max_chunksize=13))


def relation() -> Any:
    duckdb = pytest.importorskip("duckdb")
    people = table()  # noqa: F841, named in the query
    return duckdb.connect().sql("SELECT * FROM people")


@pytest.mark.parametrize("make", [of_pandas, of_polars, lazy, table, batches, relation], ids=lambda make: make.__name__)
def test_all_of_them_give_the_same_rows_from_any_row_on(make: Callable[[], Any]) -> None:
    for start in (0, 20, 59):
        source = open_source(make(), exclude="who", ids="who")
        assert source.feature_names == NAMES
        blocks = list(source.blocks(7, start))
        np.testing.assert_array_equal(np.concatenate([block.rows for block in blocks]), clean()[start:])
        assert blocks[0].ids is not None
        assert blocks[0].ids[0, 0] == f"p{start}"
    if make is not batches:
        np.testing.assert_array_equal(np.concatenate([block.rows for block in source.blocks()]), clean())
    with pytest.raises(SourceError, match=r"column 2 \('who'\) is of .*string.*, not numbers: leave it out \(--exclude 2\)"):
        open_source(make())


def test_batches_are_fitted_and_resumed(tmp_path: Any) -> None:
    columns = {"exclude": "who"}
    stopped = iter(range(3))

    def stop(_: Any) -> None:
        if next(stopped, None) is None:
            raise StopError

    with pytest.raises(StopError):
        fit_stream(batches(), tmp_path / "m.psp", OnlinePCA(2), block=10, reading=columns, report=stop)
    assert 0 < reopen(tmp_path / "m.psp").row < 60
    model = fit_stream(batches(), tmp_path / "m.psp", resume=True)
    np.testing.assert_allclose(model.components_, OnlinePCA(2).fit(clean()).components_, atol=1e-12)


class StopError(Exception):
    pass
