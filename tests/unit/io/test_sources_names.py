"""Names of genes and cells, columns of every kind of source, and what happens without pyarrow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest
import zarr
from scipy import sparse

from online_psp.io.sources import SourceError, UnknownSourceError, column_list, open_source
from tests.contract.test_sources import MAKERS, N, data, ten_x, write_anndata


def nullable(group: h5py.Group, name: str, values: list[str], missing: tuple[int, ...] = ()) -> None:
    """A column as AnnData writes text since version 0.13."""
    column = group.create_group(name)
    column.attrs["encoding-type"] = "nullable-string-array"
    column["values"], column["mask"] = [value.encode() for value in values], np.isin(np.arange(len(values)), missing)


def test_text_that_may_be_missing_is_read_as_names_and_labels(tmp_path: Path) -> None:
    path = with_names(tmp_path)
    with h5py.File(path, "a") as file:
        del file["var/symbol"], file["obs/_index"], file["obs/batch/categories"]
        nullable(file["var"], "symbol", [f"gene {i}" for i in range(12)])
        nullable(file["obs"], "_index", [f"cell {i}" for i in range(N)])
        nullable(file["obs"], "site", [f"s{i}" for i in range(N)], missing=(6,))
        nullable(file["obs/batch"], "categories", ["one", "two"])
    source = open_source(path, ids=["obs_names", "batch", "site"])
    assert source.feature_names == [f"gene {i}" for i in range(12)]
    block = next(source.blocks(3, start=5))
    assert block.ids is not None
    assert block.ids.tolist() == [["cell 5", "two", "s5"], ["cell 6", "one", ""], ["cell 7", "two", "s7"]]


def with_names(folder: Path) -> Path:
    """An AnnData file with names of cells and genes, one of them twice, and a categorical column."""
    path = folder / "x.h5ad"
    write_anndata(path, "X", sparse.csr_array(data()), "csr_matrix")
    with h5py.File(path, "a") as file:
        file.attrs["encoding-type"] = "anndata"
        for table, key, values in (
            ("var", "symbol", ["A", "B", "A", *(f"g{i}" for i in range(9))]),
            ("obs", "_index", [f"c{i}" for i in range(N)]),
        ):
            group = file.create_group(table)
            group.attrs["_index"] = key
            group[key] = [value.encode() for value in values]
        file["obs/batch/categories"], file["obs/batch/codes"] = [b"one", b"two"], np.arange(N, dtype=np.int8) % 2
    return path


def test_genes_are_the_names_of_features(tmp_path: Path) -> None:
    source = open_source(with_names(tmp_path), ids=["obs_names", "batch"])
    assert source.feature_names is not None
    assert source.feature_names[:4] == ["A", "B", "A-1", "g0"]
    block = next(source.blocks(3, start=5))
    assert block.ids is not None
    assert block.ids.tolist() == [["c5", "two"], ["c6", "one"], ["c7", "two"]]
    np.testing.assert_array_equal(next(open_source(tmp_path / "x.h5ad", columns=["g*"]).blocks()).rows.toarray(), data()[:, 3:])
    source = open_source(ten_x(tmp_path, data()), ids="barcodes")
    assert source.feature_names == [f"ENSG{i}" for i in range(12)]
    assert next(source.blocks(2)).ids.tolist() == [["CELL0-1"], ["CELL1-1"]]  # type: ignore[union-attr]


@pytest.mark.parametrize("layout", ["csr_matrix", "csc_matrix", "array"])
def test_anndata_in_zarr(tmp_path: Path, layout: str) -> None:
    root = zarr.open_group(str(tmp_path / "x.zarr"), mode="w", zarr_format=2)
    root.attrs["encoding-type"] = "anndata"
    if layout == "array":
        root.create_array("X", data=data())
    else:
        matrix = (sparse.csr_array if layout == "csr_matrix" else sparse.csc_array)(data())
        group = root.create_group("X")
        group.attrs.update({"encoding-type": layout, "shape": list(matrix.shape)})
        for part in ("data", "indices", "indptr"):
            group.create_array(part, data=getattr(matrix, part))
    root.create_group("obsm").create_array("X_pca", data=np.zeros((N, 2)))
    var = root.create_group("var")
    var.attrs["_index"] = "_index"
    var.create_array("_index", data=np.array([f"gene{i}" for i in range(12)], dtype="<U8"))
    source = open_source(tmp_path / "x.zarr")
    assert source.feature_names == [f"gene{i}" for i in range(12)]
    found = np.concatenate([block.rows.toarray() if sparse.issparse(block.rows) else block.rows for block in source.blocks(50)])
    np.testing.assert_array_equal(found, data())


@pytest.mark.parametrize("maker", MAKERS, ids=lambda maker: maker.__name__)
def test_columns_of_every_kind_of_source(tmp_path: Path, maker: Any) -> None:
    made = maker(tmp_path, data())
    options: dict[str, Any] = {"features": 12, "dtype": "float64"} if maker.__name__ == "raw" else {}
    if maker.__name__ == "parquet_lists":
        pytest.skip("its twelve features are one column")
    source = open_source(made, columns=["2-4", 0], exclude=3, ids=11, **options)
    assert source.features == 3
    blocks = list(source.blocks(50))
    found = np.concatenate([block.rows.toarray() if sparse.issparse(block.rows) else block.rows for block in blocks])
    np.testing.assert_array_equal(found, data()[:, [2, 4, 0]])
    ids = np.concatenate([block.ids for block in blocks if block.ids is not None])
    np.testing.assert_array_equal(ids[:, 0].astype(float), data()[:, 11])


def test_columns_as_they_are_typed() -> None:
    assert column_list('a, "b, c",3-7 ,d*') == ["a", "b, c", "3-7", "d*"]
    assert column_list(None) is None
    with pytest.raises(UnknownSourceError, match="not a list of columns"):
        column_list('"a')
    for wrong, message in (("7-3", "no columns 7-3"), ("12", "no column 12: it has 12, from 0 to 11"), ("x*", r"no column 'x\*'")):
        with pytest.raises(UnknownSourceError, match=message):
            open_source(data(), columns=wrong)
    with pytest.raises(UnknownSourceError, match="none of them is left"):
        open_source(data(), exclude="0-11")
    frame = pd.DataFrame(data(), columns=[str(2 * i) for i in range(12)])
    assert open_source(frame, columns="4").feature_names == ["4"]  # a name comes before a number


def test_bad_rows_are_named_by_the_number_that_options_use(tmp_path: Path) -> None:
    X = data()
    X[7, 5] = np.nan
    np.save(tmp_path / "x.npy", X)
    for options, number in (({}, 5), ({"columns": "5-7"}, 5), ({"exclude": "0-3"}, 5)):
        (bad,) = [bad for block in open_source(tmp_path / "x.npy", **options).blocks() for bad in block.bad]  # type: ignore[arg-type]
        assert (bad.row, bad.problem) == (8, f"has an empty or NaN value in column {number}")


def test_data_sets_are_read_by_the_same_reader(tmp_path: Path) -> None:
    from online_psp.datasets import load

    X = data()
    pd.DataFrame(X, columns=[f"f{i}" for i in range(12)]).to_csv(tmp_path / "x.csv")
    pd.DataFrame(X, columns=[f"f{i}" for i in range(12)]).to_parquet(tmp_path / "x.parquet")
    np.savez(tmp_path / "x.npz", a=X, b=np.zeros((2, 2)))
    for name in ("x.csv", "x.parquet", "x.npz::a"):
        np.testing.assert_array_equal(load(f"{tmp_path}/{name}").X, X)
    assert load(tmp_path / "x.csv").feature_names == [f"f{i}" for i in range(12)]
    (tmp_path / "x.csv").write_text("a,b\n1,2\n3,x\n")
    with pytest.raises(SourceError, match=r"x\.csv, row 2 \(line 3\): it has the text 'x' in column 1 \('b'\)"):
        load(tmp_path / "x.csv")
