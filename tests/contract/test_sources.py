"""Every format gives the same rows, in any cut, from any row on."""

from __future__ import annotations

import builtins
import gzip
import io
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import scipy.io
import zarr
from PIL import Image
from scipy import sparse

from online_psp import OnlinePCA
from online_psp.engine.types import Array, Floats
from online_psp.io.sources import MissingExtraError, Source, SourceError, UnknownSourceError, open_source

N, D = 203, 12
NAMES = [f"f{i}" for i in range(D)]


def data() -> Floats:
    rng = np.random.default_rng(3)
    return rng.standard_normal((N, D)) * np.linspace(4, 0.5, D) + 7


def npy(folder: Path, X: Floats) -> Any:
    np.save(folder / "x.npy", X)
    return folder / "x.npy"


def npy_fortran(folder: Path, X: Floats) -> Any:
    np.save(folder / "f.npy", np.asfortranarray(X))
    return folder / "f.npy"


def npz(folder: Path, X: Floats) -> Any:
    np.savez_compressed(folder / "x.npz", X=X, labels=np.arange(9))
    return folder / "x.npz"


def npz_fortran(folder: Path, X: Floats) -> Any:
    np.savez(folder / "f.npz", a=np.asfortranarray(X), b=np.zeros((2, 2)))
    return f"{folder / 'f.npz'}::a"


def text(X: Floats, delimiter: str = ",", header: bool = True, end: str = "\n") -> str:
    lines = [delimiter.join(repr(value) for value in row) for row in X.tolist()]
    return end.join(([delimiter.join(NAMES)] if header else []) + lines) + end


def csv(folder: Path, X: Floats) -> Any:
    (folder / "x.csv").write_text(text(X))
    return folder / "x.csv"


def csv_windows(folder: Path, X: Floats) -> Any:
    (folder / "w.csv").write_bytes(b"\xef\xbb\xbf" + text(X, header=False, end="\r\n\r\n").encode())
    return folder / "w.csv"


def tsv_gz(folder: Path, X: Floats) -> Any:
    with gzip.open(folder / "x.tsv.gz", "wt") as file:
        file.write(text(X, "\t"))
    return folder / "x.tsv.gz"


def parquet(folder: Path, X: Floats) -> Any:
    pq.write_table(pa.table(dict(zip(NAMES, X.T, strict=True))), folder / "x.parquet", row_group_size=50)
    return folder / "x.parquet"


def parquet_lists(folder: Path, X: Floats) -> Any:
    column = pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), D)
    pq.write_table(pa.table({"embedding": column}), folder / "lists.parquet")
    return folder / "lists.parquet"


def parquet_folder(folder: Path, X: Floats) -> Any:
    (folder / "many").mkdir()
    for i, part in enumerate(np.array_split(X, 4)):
        pq.write_table(pa.table(dict(zip(NAMES, part.T, strict=True))), folder / "many" / f"part-{i}.parquet", row_group_size=20)
    (folder / "many" / "_SUCCESS").write_text("")
    return folder / "many"


def feather(folder: Path, X: Floats) -> Any:
    pyarrow.feather.write_feather(pa.table(dict(zip(NAMES, X.T, strict=True))), str(folder / "x.feather"), chunksize=37)
    return folder / "x.feather"


def arrow_folder(folder: Path, X: Floats) -> Any:
    (folder / "arrows").mkdir()
    for i, part in enumerate(np.array_split(X, 3)):
        table = pa.table(dict(zip(NAMES, part.T, strict=True)))
        with pa.OSFile(str(folder / "arrows" / f"{i}.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=25)
    return folder / "arrows"


def hdf5(folder: Path, X: Floats) -> Any:
    with h5py.File(folder / "x.h5", "w") as file:
        file.create_dataset("deep/rows", data=X, chunks=(31, 5), compression="gzip")
        file["other"] = np.zeros((2, 2))
    return f"{folder / 'x.h5'}::/deep/rows"


def zarr_array(folder: Path, X: Floats) -> Any:
    zarr.save_array(str(folder / "x.zarr"), X)
    return folder / "x.zarr"


def zarr_group(folder: Path, X: Floats) -> Any:
    group = zarr.open_group(str(folder / "group"), mode="w")
    group.create_array("rows", data=X, chunks=(40, D))
    return folder / "group"


def raw(folder: Path, X: Floats) -> Any:
    X.tofile(folder / "x.bin")
    return folder / "x.bin"


def sparse_npz(folder: Path, X: Floats) -> Any:
    sparse.save_npz(folder / "csr.npz", sparse.csr_matrix(X))
    return folder / "csr.npz"


def sparse_npz_stored(folder: Path, X: Floats) -> Any:
    sparse.save_npz(folder / "stored.npz", sparse.csr_array(X), compressed=False)
    return folder / "stored.npz"


def sparse_npz_by_columns(folder: Path, X: Floats) -> Any:
    sparse.save_npz(folder / "csc.npz", sparse.csc_array(X))
    return folder / "csc.npz"


def sparse_npz_coordinates(folder: Path, X: Floats) -> Any:
    sparse.save_npz(folder / "coo.npz", sparse.coo_array(X))
    return folder / "coo.npz"


def matrix_market(folder: Path, X: Floats) -> Any:
    scipy.io.mmwrite(folder / "x.mtx", sparse.csc_array(X), precision=17)
    return folder / "x.mtx"


def matrix_market_gz(folder: Path, X: Floats) -> Any:
    (folder / "x.mtx.gz").write_bytes(gzip.compress(Path(matrix_market(folder, X)).read_bytes()))
    return folder / "x.mtx.gz"


def matrix_market_dense(folder: Path, X: Floats) -> Any:
    scipy.io.mmwrite(folder / "dense.mtx", X, precision=17)
    return folder / "dense.mtx"


def ten_x(folder: Path, X: Floats) -> Any:
    """As Cell Ranger 3 and later write it: features × cells, by columns."""
    write_ten_x(folder / "filtered_feature_bc_matrix.h5", "matrix", X)
    return folder / "filtered_feature_bc_matrix.h5"


def ten_x_old(folder: Path, X: Floats) -> Any:
    """As Cell Ranger 2 writes it: a group for each genome."""
    write_ten_x(folder / "filtered_gene_bc_matrices_h5.h5", "GRCh38", X)
    return folder / "filtered_gene_bc_matrices_h5.h5"


def write_ten_x(path: Path, group: str, X: Any) -> None:
    matrix = sparse.csc_array(sparse.csc_array(X).T if sparse.issparse(X) else X.T)
    with h5py.File(path, "w") as file:
        found = file.create_group(group)
        found["barcodes"] = [f"CELL{i}-1".encode() for i in range(matrix.shape[1])]
        found["features/id"] = [f"ENSG{i}".encode() for i in range(matrix.shape[0])]
        found["shape"] = np.array(matrix.shape, dtype=np.int32)
        for part, kind in (("data", matrix.dtype), ("indices", np.int64), ("indptr", np.int64)):
            found.create_dataset(part, data=getattr(matrix, part).astype(kind), chunks=(100,), compression="gzip")


def anndata(folder: Path, X: Floats) -> Any:
    write_anndata(folder / "x.h5ad", "X", sparse.csr_array(X), "csr_matrix")
    return folder / "x.h5ad"


def anndata_by_columns(folder: Path, X: Floats) -> Any:
    write_anndata(folder / "layers.h5ad", "layers/counts", sparse.csc_array(X), "csc_matrix")
    return f"{folder / 'layers.h5ad'}::/layers/counts"


def anndata_dense(folder: Path, X: Floats) -> Any:
    with h5py.File(folder / "dense.h5ad", "w") as file:
        file["X"], file["obsm/X_pca"] = X, np.zeros((N, 2))
    return folder / "dense.h5ad"


def write_anndata(path: Path, name: str, matrix: Any, kind: str) -> None:
    with h5py.File(path, "w") as file:
        found = file.create_group(name)
        found.attrs["encoding-type"], found.attrs["encoding-version"] = kind, "0.1.0"
        found.attrs["shape"] = matrix.shape
        for part in ("data", "indices", "indptr"):
            found[part] = getattr(matrix, part)
        file["obsm/X_pca"] = np.zeros((matrix.shape[0], 2))


def sparse_in_memory(folder: Path, X: Floats) -> Any:
    return sparse.coo_array(X)


def sparse_blocks(folder: Path, X: Floats) -> Any:
    return iter([sparse.csr_array(X[:1]), sparse.csc_matrix(X[1:60]), X[60], sparse.coo_array(X[61:64]), sparse.csr_array(X[64:])])


def rows_one_by_one(folder: Path, X: Floats) -> Any:
    return (row for row in X)


def blocks_of_any_size(folder: Path, X: Floats) -> Any:
    return iter([X[:1], X[1:60], X[60], X[61:61], X[61:64], X[64:]])


def frame(folder: Path, X: Floats) -> Any:
    return pd.DataFrame(X, columns=NAMES)


def in_memory(folder: Path, X: Floats) -> Any:
    return X


SPARSE: list[Callable[[Path, Floats], Any]] = [
    sparse_npz, sparse_npz_stored, sparse_npz_by_columns, sparse_npz_coordinates, matrix_market, matrix_market_gz, ten_x, ten_x_old,
    anndata, anndata_by_columns, sparse_in_memory, sparse_blocks,
]  # fmt: skip
MAKERS: list[Callable[[Path, Floats], Any]] = [
    npy, npy_fortran, npz, npz_fortran, csv, csv_windows, tsv_gz, parquet, parquet_lists, parquet_folder, feather, arrow_folder, hdf5,
    zarr_array, zarr_group, raw, rows_one_by_one, blocks_of_any_size, frame, in_memory, *SPARSE, matrix_market_dense, anndata_dense,
]  # fmt: skip


def opened(maker: Callable[[Path, Floats], Any], folder: Path, X: Floats) -> Source:
    made = maker(folder, X)
    return open_source(made, features=D, dtype="float64") if maker is raw else open_source(made)


def gathered(source: Source, size: int | None = None, start: int = 0) -> Array:
    blocks = list(source.blocks(size, start))
    assert all(not block.bad and block.length == block.rows.shape[0] for block in blocks)
    assert [block.start for block in blocks] == list(np.cumsum([start] + [block.length for block in blocks[:-1]]))[: len(blocks)]
    assert len({block.length for block in blocks[:-1]}) <= 1
    return np.concatenate([block.rows.toarray() if sparse.issparse(block.rows) else block.rows for block in blocks])


@pytest.mark.parametrize("maker", MAKERS, ids=lambda maker: maker.__name__)
def test_every_format_gives_the_same_rows_and_model(tmp_path: Path, maker: Callable[[Path, Floats], Any]) -> None:
    X = data()
    source = opened(maker, tmp_path, X)
    assert source.features == D
    assert source.dtype == np.float64
    assert source.total == (None if source.once or "csv" in source.name or "tsv" in source.name else N)
    model, expected = OnlinePCA(2, oversample=0), OnlinePCA(2, oversample=0).fit(X)
    for block in source.blocks(64):
        assert block.rows.shape == (min(64, N - block.start), D)
        assert sparse.issparse(block.rows) == (maker in SPARSE)
        model.partial_fit(block.rows)
    np.testing.assert_allclose(model.components_, expected.components_, atol=1e-12)
    np.testing.assert_allclose(model.explained_variance_, expected.explained_variance_, rtol=1e-12)
    assert model.n_samples_seen_ == N


@pytest.mark.parametrize("start", [0, 1, 50, 128, N - 1])
@pytest.mark.parametrize("maker", MAKERS, ids=lambda maker: maker.__name__)
def test_from_any_row_in_any_cut(tmp_path: Path, maker: Callable[[Path, Floats], Any], start: int) -> None:
    X = data()
    np.testing.assert_array_equal(gathered(opened(maker, tmp_path, X), 17, start), X[start:])
    (tmp_path / "again").mkdir()
    np.testing.assert_array_equal(gathered(opened(maker, tmp_path / "again", X), None, start), X[start:])


def test_types_are_known_and_kept(tmp_path: Path) -> None:
    X = data()
    for kind, expected in (
        ("float32", "float32"),
        (">f4", "float32"),
        ("int16", "float64"),
        ("uint8", "float64"),
        (">f8", "float64"),
        (bool, "float64"),
    ):
        np.save(tmp_path / "x.npy", X.astype(kind))
        source = open_source(tmp_path / "x.npy")
        assert source.dtype == np.dtype(expected)
        np.testing.assert_array_equal(gathered(source), X.astype(kind).astype(source.dtype))
    assert open_source(tmp_path / "x.npy", dtype="float32").dtype == np.float32
    np.save(tmp_path / "x.npy", X.astype(complex))
    with pytest.raises(SourceError, match="not real numbers"):
        open_source(tmp_path / "x.npy")


def test_columns_can_be_picked(tmp_path: Path) -> None:
    X = data()
    for maker in (csv, tsv_gz, parquet, feather, parquet_folder):
        source = open_source(maker(tmp_path, X), columns=["f3", "0", "f11"])
        np.testing.assert_array_equal(gathered(source), X[:, [3, 0, 11]])
        assert source.feature_names == ["f3", "f0", "f11"]
        with pytest.raises(UnknownSourceError, match="no column 'f99'"):
            open_source(maker(tmp_path, X) if maker is not parquet_folder else tmp_path / "many", columns=["f99"])
        if maker is parquet_folder:
            break
    with pytest.raises(UnknownSourceError, match="no column 'a': it has 12 without names"):
        open_source(npy(tmp_path, X), columns=["a"])


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_headers_are_told_from_rows(tmp_path: Path, end: str) -> None:
    path = tmp_path / "x.csv"
    path.write_text(f'"a","b, c"{end}1,2{end}3,4{end}')
    assert open_source(path).feature_names == ["a", "b, c"]
    path.write_text(f"1,2{end}3,4")
    assert gathered(open_source(path)).tolist() == [[1, 2], [3, 4]]
    assert gathered(open_source(path, header=True)).tolist() == [[3, 4]]
    path.write_text(f"id,2020{end}3,4{end}")
    assert open_source(path).feature_names == ["id", "2020"]
    assert gathered(open_source(path)).tolist() == [[3, 4]]


def test_bad_rows_are_found_and_named(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a,b\n1,2\n\n3\n4,x\n5,nan\n6,\n7,inf\n8,9,10\n1e200,3\n11,12\n1_0,3\n")
    source = open_source(path)
    (block,) = source.blocks(100)
    assert block.rows.tolist() == [[1, 2], [11, 12]]
    assert block.length == 10
    problems = {bad.row: bad.problem for bad in block.bad}
    assert sorted(problems) == [2, 3, 4, 5, 6, 7, 8, 10]
    assert "1 value where 2" in problems[2]
    assert "text 'x' in column 1 ('b')" in problems[3]
    assert "NaN value in column 1 ('b')" in problems[4]
    assert "empty" in problems[5]
    assert "infinite value in column 1 ('b')" in problems[6]
    assert "3 values where 2" in problems[7]
    assert "overflow" in problems[8]
    assert "text '1_0'" in problems[10]
    assert source.where(block.bad[0]) == f"{path}, row 2 (line 4)"
    first, second = source.blocks(5)
    assert [len(first.bad), len(second.bad)] == [4, 4]


def test_missing_values_in_tables_are_bad_rows(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1.0, None, 3.0], "b": [1, 2, None], "c": [True, False, True]}), tmp_path / "x.parquet")
    (block,) = open_source(tmp_path / "x.parquet").blocks()
    assert block.rows.tolist() == [[1, 1, 1]]
    assert [bad.row for bad in block.bad] == [2, 3]


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    X = data()

    class Pipe(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:  # a pipe gives what it has
            return super().read(min(size, 1000) if size and size > 0 else size)

    for start in (0, 100):
        monkeypatch.setattr(sys, "stdin", type("In", (), {"buffer": Pipe(text(X).encode())}))
        source = open_source("-")
        assert source.once
        np.testing.assert_array_equal(gathered(source, 16, start), X[start:])
    with pytest.raises(UnknownSourceError, match="Raw binary is read from files"):
        open_source("-", features=D)


def test_pictures(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    grey = rng.integers(0, 255, (5, 6, 4), dtype=np.uint8)
    for i, pixels in enumerate(grey):
        Image.fromarray(pixels).save(tmp_path / f"{i}.png")
    source = open_source(tmp_path)
    assert source.image_shape == (6, 4)
    np.testing.assert_array_equal(gathered(source, 2), grey.reshape(5, 24))
    files = sorted(tmp_path.glob("*.png"))
    np.testing.assert_array_equal(gathered(open_source(files), 2), grey.reshape(5, 24))
    with pytest.raises(UnknownSourceError, match="twice"):
        open_source([*files, files[0]])
    Image.fromarray(grey[0][:3]).save(tmp_path / "2.png")
    (tmp_path / "3.png").write_bytes(b"no picture")
    (block,) = source.blocks()
    assert [bad.row for bad in block.bad] == [3, 4]
    assert "4×3 pixels where 4×6" in block.bad[0].problem
    assert source.where(block.bad[1]) == f"{tmp_path}, row 4 (3.png)"
    (tmp_path / "colour").mkdir()
    Image.fromarray(rng.integers(0, 255, (6, 4, 3), dtype=np.uint8)).save(tmp_path / "colour" / "a.png")
    assert open_source(tmp_path / "colour").image_shape == (6, 4, 3)


@pytest.mark.parametrize(
    ("module", "extra", "name"), [("python_calamine", "excel", "x.xlsx"), ("h5py", "hdf5", "x.h5"), ("zarr", "zarr", "x.zarr")]
)
def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, extra: str, name: str) -> None:
    real = builtins.__import__

    def without(wanted: str, *args: Any, **kwargs: Any) -> Any:
        if wanted.partition(".")[0] == module:
            raise ImportError(wanted)
        return real(wanted, *args, **kwargs)

    (tmp_path / name).touch()
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=rf"pip install 'online-psp\[{extra}\]'"):
        open_source(tmp_path / name)


def test_damaged_and_foreign_files(tmp_path: Path) -> None:
    X = data()
    for maker in (npy, npz, parquet, feather, hdf5):
        made = str(maker(tmp_path, X))
        path = Path(made.partition("::")[0])
        whole = path.read_bytes()
        for broken in (whole[: len(whole) // 2], whole[:-1] if maker is not hdf5 else b"x", b"", b"something else"):
            path.write_bytes(broken)
            with pytest.raises(SourceError, match=path.name):
                list(open_source(made).blocks())
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("a.npy", b"nothing")
    with pytest.raises(SourceError):
        open_source(tmp_path / "x.npz")
    np.save(tmp_path / "o.npy", np.array([{"a": 1}], dtype=object))
    np.save(tmp_path / "one.npy", np.zeros(4))
    for name in ("o.npy", "one.npy"):
        with pytest.raises(SourceError):
            open_source(tmp_path / name)


def test_what_is_no_source(tmp_path: Path) -> None:
    (tmp_path / "x.doc").touch()
    (tmp_path / "x.raw").write_bytes(b"12345")
    np.savez(tmp_path / "two.npz", a=np.zeros((2, 2)), b=np.zeros((2, 2)))
    for wrong in (
        tmp_path / "none.npy",
        tmp_path / "x.doc",
        tmp_path,
        3,
        tmp_path / "x.raw",
        tmp_path / "two.npz",
        f"{tmp_path / 'two.npz'}::c",
    ):
        with pytest.raises(UnknownSourceError):
            open_source(wrong)
    with pytest.raises(SourceError, match="row 1: the file ends in the middle"):
        open_source(tmp_path / "x.raw", features=2)
    for items in ([], [np.zeros((2, 2, 2))], ["text"]):
        with pytest.raises(SourceError):
            open_source(iter(items))
    with pytest.raises(SourceError, match="row 3"):
        list(open_source(iter([np.zeros(2), np.zeros(2), np.zeros(3)])).blocks())


def test_memory_stays_at_a_few_blocks(tmp_path: Path) -> None:
    import tracemalloc

    np.save(tmp_path / "x.npy", np.ones((40_000, 200)))  # 64 MB
    np.savez(tmp_path / "x.npz", x=np.load(tmp_path / "x.npy", mmap_mode="r"))
    for name in ("x.npy", "x.npz"):
        tracemalloc.start()
        rows = sum(len(block.rows) for block in open_source(tmp_path / name).blocks())
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert rows == 40_000
        assert peak < 30e6
