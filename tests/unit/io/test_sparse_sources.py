"""Sparse files: the same model as from dense rows, without ever making them dense, and errors that say what is wrong."""

from __future__ import annotations

import gzip
import json
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import scipy.io
from scipy import sparse

from online_psp import OnlinePCA
from online_psp.io import runs as streams
from online_psp.io.sources import SourceError, UnknownSourceError, open_source
from tests.command import psp
from tests.contract.test_sources import write_anndata, write_ten_x
from tests.unit.pca.test_sparse import counts, distance


def csr_npz(folder: Path, X: Any) -> Path:
    sparse.save_npz(folder / "x.npz", X)
    return folder / "x.npz"


def csc_npz(folder: Path, X: Any) -> Path:
    sparse.save_npz(folder / "csc.npz", X.tocsc())
    return folder / "csc.npz"


def matrix_market(folder: Path, X: Any) -> Path:
    """Entries in no order."""
    entries = X.tocoo()
    order = np.random.default_rng(0).permutation(entries.nnz)
    shuffled = sparse.coo_array((entries.data[order], (entries.row[order], entries.col[order])), shape=X.shape)
    scipy.io.mmwrite(folder / "x.mtx", shuffled, precision=17 if X.dtype == np.float64 else None)
    return folder / "x.mtx"


def matrix_market_gz(folder: Path, X: Any) -> Path:
    (folder / "x.mtx.gz").write_bytes(gzip.compress(matrix_market(folder, X).read_bytes()))
    return folder / "x.mtx.gz"


def ten_x(folder: Path, X: Any) -> Path:
    write_ten_x(folder / "x.h5", "matrix", X)
    return folder / "x.h5"


def anndata(folder: Path, X: Any) -> Path:
    write_anndata(folder / "x.h5ad", "X", X, "csr_matrix")
    return folder / "x.h5ad"


def anndata_by_columns(folder: Path, X: Any) -> Path:
    write_anndata(folder / "c.h5ad", "X", X.tocsc(), "csc_matrix")
    return folder / "c.h5ad"


Maker = Callable[[Path, Any], Path]
STREAMED: list[Maker] = [csr_npz, ten_x, anndata]
MAKERS: list[Maker] = [*STREAMED, csc_npz, matrix_market, matrix_market_gz, anndata_by_columns]
by_maker = pytest.mark.parametrize("maker", MAKERS, ids=lambda maker: maker.__name__)


def wide(n: int, D: int, per_row: int, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    entries = rng.standard_exponential(n * per_row), rng.integers(0, D, n * per_row), np.arange(0, n * per_row + 1, per_row)
    X = sparse.csr_array(entries, shape=(n, D))
    X.sum_duplicates()
    return X


# The command line, end to end


@by_maker
def test_fit_stop_resume_transform(tmp_path: Path, maker: Maker) -> None:
    X = counts()
    path, model = maker(tmp_path, X), tmp_path / "m.psp"
    dense = OnlinePCA(4).fit(X.toarray())
    arguments = ["fit", path, "-k", 4, "-q", "--set", "block=100"]
    found = json.loads(psp(*arguments, "-o", tmp_path / "whole.psp", "--json").stdout)
    assert (found["samples"], found["features"]) == (900, 300)
    whole = OnlinePCA.load(tmp_path / "whole.psp")
    assert distance(whole, dense) < 1e-9
    source = open_source(path)
    run = streams.start(source, OnlinePCA(4, dtype="float64"), block=100)
    for _ in streams.steps(run, source):
        if run.row == 400:
            streams.checkpoint(run, model)
            break
    psp(*arguments, "-o", model, "--resume")
    resumed = streams.reopen(model)
    assert resumed.finished
    assert resumed.row == resumed.model.n_samples_seen_ == 900
    assert distance(resumed.model, dense) < 1e-9
    for name in ("s.npy", "s.csv"):
        psp("transform", model, path, "-o", tmp_path / name)
        (block,) = open_source(tmp_path / name).blocks()
        np.testing.assert_allclose(block.rows, dense.transform(X.toarray()), atol=1e-7)
    shown = psp("info", model).stdout
    assert path.name in shown.replace("\n", "").replace(" ", "")


@by_maker
def test_epochs(tmp_path: Path, maker: Maker) -> None:
    """The rows of a file are learned as those of the same matrix in memory are; dense rows agree as far as the model is exact."""
    X = counts(300)
    options: dict[str, Any] = {"block": 50}
    path = maker(tmp_path, X)
    for epochs in (1, 2):
        in_memory = streams.fit_stream(X, tmp_path / f"x{epochs}.psp", OnlinePCA(4), epochs=epochs, **options)
        model = streams.fit_stream(path, tmp_path / f"m{epochs}.psp", OnlinePCA(4), epochs=epochs, **options)
        assert model.n_samples_seen_ == 300 * epochs
        assert distance(model, in_memory) < 1e-12
        if epochs == 1:
            assert distance(model, streams.fit_stream(X.toarray(), tmp_path / "d.psp", OnlinePCA(4), **options)) < 1e-9


@by_maker
@pytest.mark.parametrize(("kind", "expected"), [("float32", "float32"), ("int32", "float64"), ("int64", "float64")])
def test_types_are_known_and_kept(tmp_path: Path, maker: Maker, kind: str, expected: str) -> None:
    X = counts(200)
    path = maker(tmp_path, X.astype(kind))
    source = open_source(path)
    assert source.dtype == np.dtype("float64" if ".mtx" in path.name else expected)  # text has no precision of its own
    for wanted in (source.dtype, np.dtype("float32")):
        blocks = list(open_source(path, dtype=wanted).blocks())
        assert all(block.rows.dtype == wanted and block.rows.has_canonical_format for block in blocks)
        np.testing.assert_array_equal(np.concatenate([block.rows.toarray() for block in blocks]), X.toarray())
    psp("fit", path, "-k", 2, "-o", tmp_path / "m.psp", "-q", "--set", "dtype=float32")
    assert OnlinePCA.load(tmp_path / "m.psp").components_.dtype == np.float32


# Bad rows


@by_maker
def test_bad_rows_are_named_skipped_or_stopped_at(tmp_path: Path, maker: Maker) -> None:
    X = counts()
    for row, value in ((120, np.nan), (507, -np.inf), (508, 1e200)):
        X.data[X.indptr[row] + 1] = value
    column = int(X.indices[X.indptr[120] + 1])
    path, model = maker(tmp_path, X), tmp_path / "m.psp"
    arguments = ["fit", path, "-k", 4, "-q", "--set", "block=60", "--checkpoint-every", 60, "-o", model]
    said = psp(*arguments, code=1).stderr
    assert re.search(rf"row 121: it has an empty or NaN value in column {column}( \('ENSG{column}'\))?;", said), said
    assert "holds the run up to epoch 1, row 120." in said
    found = json.loads(psp(*arguments, "--resume", "--on-bad-row", "skip", "--json").stdout)
    assert (found["samples"], found["skipped_rows"]) == (897, [121, 508, 509])
    good = X[np.setdiff1d(np.arange(900), [120, 507, 508])]
    assert distance(OnlinePCA.load(model), OnlinePCA(4).fit(good.toarray())) < 1e-9
    assert path.name in psp("transform", model, path, "-o", tmp_path / "s.npy", code=1).stderr
    psp("transform", model, path, "-o", tmp_path / "s.npy", "--on-bad-row", "skip")
    scores = np.load(tmp_path / "s.npy")
    assert scores.shape == (900, 4)
    assert np.flatnonzero(np.isnan(scores).any(axis=1)).tolist() == [120, 507, 508]
    problems = {bad.row: bad.problem for block in open_source(path).blocks() for bad in block.bad}
    assert "infinite" in problems[508]
    assert "overflow" in problems[509]


@by_maker
def test_what_does_not_fit_the_model_or_the_format(tmp_path: Path, maker: Maker) -> None:
    path = maker(tmp_path, counts(100))
    with pytest.raises(UnknownSourceError, match=path.name + ".*has no column 'a': it has 300"):
        open_source(path, columns=["a"])
    said = psp("fit", path, "-k", 2, "-o", tmp_path / "m.psp", "--columns", "a,b", code=2).stderr
    assert path.name in said
    OnlinePCA(2).fit(np.random.default_rng(0).standard_normal((50, 20))).save(tmp_path / "other.psp")
    said = psp("transform", tmp_path / "other.psp", path, "-o", tmp_path / "s.npy", code=1).stderr
    assert re.search(r"has 300 columns, and .*other\.psp has 20 features", said), said
    psp("fit", path, "-k", 2, "-o", tmp_path / "m.psp", "-q")
    (tmp_path / "again").mkdir()
    narrow = maker(tmp_path / "again", counts(100)[:, :40])
    said = psp("fit", narrow, "-k", 2, "-o", tmp_path / "m.psp", "--resume", code=1).stderr
    assert re.search("had 300 features, and now has 40|columns of the source are not what they were", said), said


# Memory


def test_blocks_are_bounded_in_entries_and_in_rows() -> None:
    assert open_source(wide(9000, 10**6, 2)).block_rows() == 8192
    assert open_source(wide(9000, 10**6, 200)).block_rows() == 1024  # 2^18 entries hold 1310 rows
    skewed = sparse.vstack([wide(20_000, 10**6, 2), wide(1000, 10**6, 1000)], format="csr")
    source = open_source(skewed)
    assert max(block.rows.nnz for block in source.blocks()) <= 1 << 18
    assert source.block_rows() == 256
    assert open_source(wide(40, 10**6, 10**5)).block_rows() == 32


# Formats


def test_matrix_market_fields_and_symmetries(tmp_path: Path) -> None:
    def opened(kind: str, body: str) -> Any:
        (tmp_path / "m.mtx").write_text(f"%%MatrixMarket matrix {kind}\n% said by someone\n\n{body}")
        (block,) = open_source(tmp_path / "m.mtx").blocks()
        return block.rows.toarray().tolist() if sparse.issparse(block.rows) else block.rows.tolist()

    assert opened("coordinate pattern general", "2 3 2\n2 1\n1 3\n") == [[0, 0, 1], [1, 0, 0]]
    assert opened("coordinate integer general", "2 2 2\n1 1 -7\n2 2 9\n") == [[-7, 0], [0, 9]]
    assert opened("coordinate real symmetric", "2 2 2\n1 1 0.5\n2 1 1.5e1") == [[0.5, 15], [15, 0]]
    assert opened("coordinate real skew-symmetric", "2 2 1\n2 1 3\n") == [[0, -3], [3, 0]]
    assert opened("coordinate real general", "2 2 3\n1 1 1\n1 1 2\n2 1 0.1000000000000000000000000001\n") == [[3, 0], [0.1, 0]]
    assert opened("coordinate real general", "2 3 0\n") == [[0, 0, 0], [0, 0, 0]]
    assert opened("ARRAY Real General", "2 3\n1\n2\n3\n4\n5\n6\n") == [[1, 3, 5], [2, 4, 6]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "first line"),
        ("1 2 3\n", "first line"),
        ("%%MatrixMarket matrix coordinate complex general\n1 1 1\n1 1 1 2\n", "complex numbers, not real ones; write their real parts"),
        ("%%MatrixMarket matrix coordinate complex hermitian\n1 1 1\n1 1 1 2\n", "complex numbers"),
        ("%%MatrixMarket matrix coordinate quaternion general\n1 1 1\n", "of a kind that is not read here"),
        ("%%MatrixMarket matrix coordinate real general\n", "line 2 should have its sizes"),
        ("%%MatrixMarket matrix coordinate real general\n% x\n3 3\n", "line 3 should have its sizes"),
        ("%%MatrixMarket matrix coordinate real general\n3 3 2\n1 1 1.0\n", "Truncated file"),
        ("%%MatrixMarket matrix coordinate real general\n3 3 1\n1 1 1.0\n1 2 1.0\n", "Too many lines"),
        ("%%MatrixMarket matrix coordinate real general\n3 3 1\n4 1 1.0\n", "Row index out of bounds"),
        ("%%MatrixMarket matrix coordinate real general\n3 3 1\n1 0 1.0\n", "Column index out of bounds"),
        ("%%MatrixMarket matrix coordinate real general\n3 3 1\n1 1.5 1.0\n", "line 3 has '1 1.5 1.0' in place of an entry"),
        ("%%MatrixMarket matrix coordinate real general\n3 3 1\nnan 1 1.0\n", "line 3 has 'nan 1 1.0'"),
        ("%%MatrixMarket matrix coordinate real general\n3 3 2\n1 1 1.0\n2 2 4.4e-", "line 4 has '2 2 4.4e-' in place of an entry"),
        ("%%MatrixMarket matrix coordinate real general\n3 3 2\n1 1 1.0\n2 2 1e", "line 4 has '2 2 1e' in place of an entry"),
        ("%%MatrixMarket matrix coordinate real general\n3 3 2\n1 1 1.0\n2 2\n", "line 4 has '2 2' in place of an entry"),
        ("%%MatrixMarket matrix coordinate integer general\n3 3 1\n1 1 1.5\n", "line 3 has '1 1 1.5' in place of an entry"),
        ("%%MatrixMarket matrix coordinate real symmetric\n3 2 1\n1 1 1.5\n", "symmetric, with 3 rows and 2 columns"),
        ("%%MatrixMarket matrix array real general\n2 2\n1\n2\n3\n", "Truncated file"),
        ("%%MatrixMarket matrix coordinate real general\n3 0 0\n", "table of rows and features"),
    ],
)
def test_matrix_market_files_that_are_wrong(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "m.mtx").write_text(text)
    with pytest.raises(SourceError, match=r"m\.mtx") as raised:
        open_source(tmp_path / "m.mtx")
    assert message in str(raised.value)


@by_maker
def test_files_cut_short_and_foreign_ones(tmp_path: Path, maker: Maker) -> None:
    path = maker(tmp_path, counts(200))
    whole = path.read_bytes()
    for broken in (whole[: len(whole) // 2], whole[:-3] if path.suffix == ".gz" else b"x", b"", b"something else\n"):
        path.write_bytes(broken)
        with pytest.raises(SourceError, match=path.name):
            list(open_source(path).blocks())
        assert path.name in psp("fit", path, "-k", 2, "-o", tmp_path / "m.psp", code=1).stderr
    assert not (tmp_path / "m.psp").exists()


def parts_of(X: Any) -> dict[str, Any]:
    return {"format": np.array(b"csr"), "shape": np.array(X.shape), "data": X.data, "indices": X.indices, "indptr": X.indptr}


def broken_parts() -> list[tuple[dict[str, Any], str]]:
    """What to put in place of the arrays of ``counts(200)``, and what is said of it; None leaves one out."""
    X = counts(200)
    down, outside, negative = X.indptr.copy(), X.indices.copy(), X.indices.astype(np.int64)
    down[7], outside[X.indptr[60]], negative[X.indptr[61]] = 10**6, 300, -5
    return [
        ({"indptr": down}, "indptr goes down"),
        ({"indptr": X.indptr + 1}, "does not begin at 0"),
        ({"indptr": X.indptr[:-1]}, "for 199 rows, and its shape says 200"),
        ({"indptr": X.indptr.astype(float)}, "indptr as a row of whole numbers"),
        ({"indices": outside}, "row 61: this is not a whole sparse matrix (it has a value in column 300, and there are 300, from 0)"),
        ({"indices": negative}, "row 62: this is not a whole sparse matrix (it has a value in column -5"),
        ({"indices": X.indices[:-1]}, "values in"),
        ({"data": X.data[:-1]}, "values in"),
        ({"data": X.data.astype(complex)}, "not real numbers"),
        ({"data": X.data[:, np.newaxis]}, "data as a row of numbers"),
        ({"indices": None}, "without its indices"),
        ({"indptr": None, "data": X.data}, "without its indptr"),
        ({"shape": np.array([200])}, "its shape is [200]"),
        ({"shape": np.array([200, 0])}, "table of rows and features"),
    ]


def test_columns_without_entries_that_begin_nowhere(tmp_path: Path) -> None:
    """SciPy does not look at them, and ends the process on its way to rows."""
    empty = sparse.csc_array((40, 7))
    empty.indptr[4] = 10**6
    np.savez(tmp_path / "x.npz", **{**parts_of(empty), "format": np.array(b"csc")})
    with pytest.raises(SourceError, match="indptr goes down"):
        open_source(tmp_path / "x.npz")


@pytest.mark.parametrize(("changes", "message"), broken_parts(), ids=[message for _, message in broken_parts()])
def test_arrays_that_do_not_fit_together(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    parts = {name: value for name, value in {**parts_of(counts(200)), **changes}.items() if value is not None}
    np.savez(tmp_path / "x.npz", **parts)
    with h5py.File(tmp_path / "x.h5ad", "w") as file:
        group = file.create_group("X")
        group.attrs["encoding-type"], group.attrs["shape"] = "csr_matrix", parts["shape"]
        for name in ("data", "indices", "indptr"):
            if name in parts:
                group[name] = parts[name]
    for name in ("x.npz", "x.h5ad"):
        with pytest.raises(SourceError, match=name) as raised:
            list(open_source(tmp_path / name).blocks())
        assert message in str(raised.value)
        assert "\n" not in str(raised.value)


def test_matrices_by_columns_are_checked_before_they_are_turned(tmp_path: Path) -> None:
    X = counts(200).tocsc()
    X.indices[5] = 10**6
    np.savez(tmp_path / "x.npz", **{**parts_of(X), "format": np.array(b"csc")})
    write_anndata(tmp_path / "x.h5ad", "X", X, "csc_matrix")
    for name in ("x.npz", "x.h5ad"):
        with pytest.raises(SourceError, match=rf"{name} cannot be read as (npz|hdf5)"):
            open_source(tmp_path / name)


def test_archives_that_are_not_what_they_seem(tmp_path: Path) -> None:
    X = counts(200)
    for changes, message in (
        ({"format": np.array(b"xyz")}, "cannot be read as npz"),
        ({"format": np.array([1, 2])}, "cannot be read as npz"),
        ({"format": None}, "without its format"),
        ({"format": None, "shape": None}, "without its format and shape"),
    ):
        np.savez(tmp_path / "x.npz", **{name: value for name, value in {**parts_of(X), **changes}.items() if value is not None})
        with pytest.raises(SourceError, match=rf"x\.npz.*{message}"):
            open_source(tmp_path / "x.npz")
    np.savez(tmp_path / "x.npz", **parts_of(X))
    with zipfile.ZipFile(tmp_path / "x.npz") as archive:
        place = archive.getinfo("data.npy").header_offset + 2000
    whole = bytearray((tmp_path / "x.npz").read_bytes())
    whole[place] ^= 0xFF
    (tmp_path / "x.npz").write_bytes(whole)
    with pytest.raises(SourceError, match=r"x\.npz.*(CRC|decompressing)"):
        list(open_source(tmp_path / "x.npz").blocks())


def test_hdf5_groups_that_do_not_tell_their_samples(tmp_path: Path) -> None:
    X = counts(200)
    path = tmp_path / "x.h5"

    def written(shape: Any, **more: Any) -> None:
        with h5py.File(path, "w") as file:
            for name in ("data", "indices", "indptr"):
                file[f"m/{name}"] = getattr(X, name)
            for name, value in {"shape": shape, **more}.items():
                if value is not None:
                    file[f"m/{name}"] = value

    written([300, 200], barcodes=[b"a"] * 200)
    np.testing.assert_array_equal(next(open_source(f"{path}::m").blocks()).rows.toarray(), X.toarray())
    for shape, message in (([300, 200], "does not say whether its rows or its columns"), (None, "without its shape")):
        written(shape)
        with pytest.raises(SourceError, match=message):
            open_source(path)
    written([300, 200], table=np.zeros((2, 2)))
    with pytest.raises(UnknownSourceError, match=r"has 2 tables \(m .*, m/table .*\); name the one to read"):
        open_source(path)
    with h5py.File(tmp_path / "none.h5ad", "w") as file:
        file["obs"] = np.zeros(3)
    with pytest.raises(UnknownSourceError, match="no array 'X'"):
        open_source(tmp_path / "none.h5ad")


def test_entries_twice_add_up_and_what_is_given_is_left_alone(tmp_path: Path) -> None:
    X = counts(200)
    doubled = sparse.csr_array((np.repeat(X.data / 2, 2), np.repeat(X.indices, 2), 2 * X.indptr), shape=X.shape)
    kept = doubled.indices.copy()
    for source in (doubled, csr_npz(tmp_path, doubled), ten_x(tmp_path, X)):
        (block,) = open_source(source).blocks()
        np.testing.assert_array_equal(block.rows.toarray(), X.toarray())
    assert np.array_equal(doubled.indices, kept)


def test_a_sparse_file_as_scores(tmp_path: Path) -> None:
    X = counts(100)
    model = OnlinePCA(3).fit(X)
    model.save(tmp_path / "m.psp")
    scores = model.transform(X)
    psp("transform", tmp_path / "m.psp", csr_npz(tmp_path, sparse.csr_array(scores)), "--inverse", "-o", tmp_path / "back.npy")
    np.testing.assert_allclose(np.load(tmp_path / "back.npy"), model.inverse_transform(scores), atol=1e-12)
