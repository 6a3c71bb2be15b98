"""PCA of AnnData objects: beside PCA of the dense matrix, in memory and backed by files, and what is wrong said in one sentence."""

from __future__ import annotations

import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.decomposition import PCA

from online_psp import OnlinePCA
from online_psp.engine.types import Array
from online_psp.metrics import subspace_error

anndata = pytest.importorskip("anndata")
pd = pytest.importorskip("pandas")

from online_psp.integrations.anndata import fit  # noqa: E402


def counts(n: int, D: int, K: int = 6, seed: int = 0) -> Array:
    """Counts with a few strong directions, mostly zero."""
    rng = np.random.default_rng(seed)
    rates = rng.gamma(0.5, 1.0, (n, K)) @ rng.gamma(0.3, 1.0, (K, D)) / 2
    return rng.poisson(rates).astype(np.float64)


def cells(X: Any) -> Any:
    """An AnnData object with names."""
    n, D = X.shape
    obs, var = pd.DataFrame(index=[f"cell{i}" for i in range(n)]), pd.DataFrame(index=[f"gene{i}" for i in range(D)])
    return anndata.AnnData(X, obs=obs, var=var)


def check(adata: Any, X: Array, K: int, *, tolerance: float = 1e-8, mask: Array | None = None) -> None:
    """Everything written is what PCA of the dense matrix gives, up to signs."""
    genes = np.ones(X.shape[1], dtype=bool) if mask is None else mask
    batch = PCA(K).fit(X[:, genes])
    loadings, scores = adata.varm["PCs"], adata.obsm["X_pca"]
    assert loadings.shape == (X.shape[1], K)
    assert scores.shape == (len(X), K)
    assert not loadings[~genes].any(), "genes that were not used must have zero loadings"
    signs = np.sign((batch.components_ * loadings[genes].T).sum(axis=1))
    np.testing.assert_allclose(loadings[genes].T * signs[:, np.newaxis], batch.components_, atol=tolerance)
    size = np.abs(batch.transform(X[:, genes])).max()
    np.testing.assert_allclose(scores * signs, batch.transform(X[:, genes]), atol=tolerance * size)
    np.testing.assert_allclose(adata.uns["pca"]["variance"], batch.explained_variance_, rtol=tolerance)
    np.testing.assert_allclose(adata.uns["pca"]["variance_ratio"], batch.explained_variance_ratio_, rtol=tolerance)


FORMS: dict[str, Any] = {
    "dense": np.asarray, "fortran": np.asfortranarray, "csr_matrix": sparse.csr_matrix, "csr_array": sparse.csr_array,
    "csc_matrix": sparse.csc_matrix, "int": lambda X: X.astype(np.int32),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_exact_in_every_form(form: str) -> None:
    X = counts(500, 40)
    adata = cells(FORMS[form](X))
    model = fit(adata, 5)
    assert isinstance(model, OnlinePCA)
    check(adata, X, 5)
    assert list(model.feature_names_in_) == list(adata.var_names)
    assert model.n_samples_seen_ == 500


@pytest.mark.parametrize("form", ["dense", "csr_matrix"])
def test_streaming_is_close(form: str) -> None:
    """More features than are kept exactly, and many pieces."""
    X = counts(3000, 400)
    adata = cells(FORMS[form](X))
    fit(adata, 5)
    batch = PCA(5).fit(X)
    error = subspace_error(adata.varm["PCs"], batch.components_.T)
    assert error < 1e-2, f"subspace error against PCA of the dense matrix: {error}"
    np.testing.assert_allclose(adata.uns["pca"]["variance"], batch.explained_variance_, rtol=1e-3)
    np.testing.assert_allclose(adata.obsm["X_pca"], (X - X.mean(axis=0)) @ adata.varm["PCs"], atol=1e-8 * X.max() * 400)


def test_backed_files_are_read_in_pieces(tmp_path: Path) -> None:
    X = counts(60_000, 60)
    cells(X).write_h5ad(tmp_path / "x.h5ad")
    adata = anndata.read_h5ad(tmp_path / "x.h5ad", backed="r")
    tracemalloc.start()
    fit(adata, 5)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.8 * X.nbytes, f"{peak:,} bytes for a matrix of {X.nbytes:,}"
    check(adata, X, 5, tolerance=1e-7)
    adata.file.close()


def test_results_survive_a_file(tmp_path: Path) -> None:
    X = counts(200, 30)
    adata = cells(sparse.csr_matrix(X))
    adata.layers["counts"] = sparse.csr_matrix(X)
    fit(adata, 4, layer="counts", mask_var=np.arange(30) < 20)
    adata.write_h5ad(tmp_path / "x.h5ad")
    again = anndata.read_h5ad(tmp_path / "x.h5ad")
    check(again, X, 4, mask=np.arange(30) < 20)
    parameters = again.uns["pca"]["params"]
    assert parameters["layer"] == "counts"
    assert bool(parameters["zero_center"]) is True
    assert bool(parameters["use_highly_variable"]) is False
    assert parameters["mask_var"].sum() == 20


def test_a_layer_that_differs_from_x() -> None:
    X = counts(200, 30)
    adata = cells(X)
    adata.layers["log"] = np.log1p(X)
    fit(adata, 4, layer="log")
    check(adata, np.log1p(X), 4)


@pytest.mark.parametrize("form", ["dense", "csr_matrix"])
def test_masks(form: str) -> None:
    X = counts(300, 40)
    mask = np.random.default_rng(1).random(40) < 0.6
    named = cells(FORMS[form](X))
    named.var["highly_variable"], named.var["mine"] = mask, ~mask
    for arguments in ({}, {"mask_var": "highly_variable"}, {"mask_var": named.var["highly_variable"]}):
        adata = named.copy()
        model = fit(adata, 4, **arguments)
        check(adata, X, 4, mask=mask)
        assert list(model.feature_names_in_) == list(adata.var_names[mask]), f"names of the genes used, for {arguments}"
        assert adata.uns["pca"]["params"]["use_highly_variable"] is (not isinstance(arguments.get("mask_var"), pd.Series))
    adata = named.copy()
    fit(adata, 4, mask_var=None)
    check(adata, X, 4)
    adata = named.copy()
    adata.var["mine"] = pd.array(~mask, dtype="boolean")
    fit(adata, 4, mask_var="mine")
    check(adata, X, 4, mask=~mask)
    assert adata.uns["pca"]["params"]["mask_var"] == "mine"


def test_keys_and_options() -> None:
    X = counts(300, 40)
    adata = cells(X)
    model = fit(adata, 4, key_added="mine", standardize=True, center=True)
    assert not {"X_pca", "PCs", "pca"} & {*adata.obsm, *adata.varm, *adata.uns}
    assert adata.obsm["mine"].shape == (300, 4)
    expected = OnlinePCA(4, standardize=True).fit(X)
    np.testing.assert_allclose(adata.varm["mine"], expected.components_.T, atol=1e-8)
    np.testing.assert_allclose(adata.uns["mine"]["variance"], expected.explained_variance_)
    assert model.standardize
    fit(adata, 0.8)
    assert adata.obsm["X_pca"].shape[1] == adata.varm["PCs"].shape[1] == len(adata.uns["pca"]["variance"])


def test_single_precision_stays() -> None:
    adata = cells(counts(100, 20).astype(np.float32))
    fit(adata, 3)
    assert adata.obsm["X_pca"].dtype == adata.varm["PCs"].dtype == np.float32


def test_dask_arrays() -> None:
    da = pytest.importorskip("dask.array")
    X = counts(300, 30)
    adata = cells(da.from_array(X, chunks=(70, 11)))
    fit(adata, 4)
    check(adata, X, 4)


def test_names_that_come_twice_are_numbered(tmp_path: Path) -> None:
    X = counts(100, 4)
    adata = cells(X)
    adata.var_names = ["A", "A", "B", "A"]
    model = fit(adata, 2)
    assert list(model.feature_names_in_) == ["A", "A-1", "B", "A-2"]
    model.save(tmp_path / "m.psp")
    assert list(OnlinePCA.load(tmp_path / "m.psp").feature_names_in_) == ["A", "A-1", "B", "A-2"]


def test_the_model_takes_the_genes_by_name() -> None:
    adata = cells(counts(100, 20))
    model = fit(adata, 3)
    frame = adata.to_df()
    np.testing.assert_allclose(model.transform(frame), adata.obsm["X_pca"], atol=1e-10)
    with pytest.raises(ValueError, match="feature names"):
        model.transform(frame[frame.columns[::-1]])


def broken(X: Array, value: float, form: str) -> Any:
    X = X.copy()
    X[150, 7] = value
    return cells(FORMS[form](X))


@pytest.mark.parametrize("form", ["dense", "csr_matrix", "fortran"])
@pytest.mark.parametrize(("value", "word"), [(np.nan, "NaN"), (-np.inf, "infinity")])
def test_a_value_that_is_not_finite_is_named(form: str, value: float, word: str) -> None:
    adata = broken(counts(200, 20), value, form)
    with pytest.raises(ValueError, match=rf"adata.X has {word} for cell 'cell150' \(row 150\), gene 'gene7'"):
        fit(adata, 3)
    assert not adata.obsm, "nothing may be written where something is wrong"
    assert not adata.varm
    assert not adata.uns


def test_a_value_in_a_gene_that_is_not_used_does_no_harm() -> None:
    adata = broken(counts(200, 20), np.nan, "csr_matrix")
    fit(adata, 3, mask_var=np.arange(20) != 7)
    assert np.isfinite(adata.obsm["X_pca"]).all()
    adata = broken(counts(200, 20), np.nan, "dense")
    with pytest.raises(ValueError, match="gene 'gene7'"):  # counted among all genes, not among those used
        fit(adata, 3, mask_var=np.arange(20) > 4)


def test_a_huge_value_names_the_cells() -> None:
    with pytest.raises(ValueError, match=r"adata.X, cells \d+ to \d+.*1e\+200"):
        fit(broken(counts(200, 20), 1e200, "dense"), 3)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"layer": "raw"}, "no layer 'raw'; its layers: 'counts'"),
    ({"mask_var": "highly"}, "adata.var has no column 'highly'"),
    ({"mask_var": "highly_variable"}, r"no column 'highly_variable' \(scanpy.pp.highly_variable_genes makes it\)"),
    ({"mask_var": [True, False]}, r"True or False for each of the 20 genes; it has dtype bool and shape \(2,\)"),
    ({"mask_var": np.arange(20)}, "dtype int"),
    ({"mask_var": "score"}, r"adata.var\['score'\] must have True or False"),
    ({"mask_var": np.zeros(20, dtype=bool)}, "False for every gene"),
    ({"mask_var": pd.Series(np.ones(20, dtype=bool))}, "has another index than adata.var_names"),
    ({"n_components": 21}, "n_components must not be larger than the number of features, 20"),
    ({"mask_var": np.arange(20) < 2}, "n_components must not be larger than the number of features, 2"),
    ({"n_components": 0}, "n_components"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_bad_arguments_are_one_sentence(arguments: dict[str, Any], message: str) -> None:
    adata = cells(counts(50, 20))
    adata.layers["counts"] = adata.X.copy()
    adata.var["score"] = np.linspace(0, 1, 20)
    with pytest.raises(ValueError, match=message):
        fit(adata, **({"n_components": 3} | arguments))
    assert not adata.obsm


def test_bad_objects_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="takes an AnnData object; got ndarray"):
        fit(np.eye(3), 2)
    with pytest.raises(ValueError, match="adata has 0 cells and 3 genes"):
        fit(cells(np.zeros((0, 3))), 2)
    with pytest.raises(ValueError, match=r"adata\.X is None"):
        fit(anndata.AnnData(obs=pd.DataFrame(index=["a", "b"]), var=pd.DataFrame(index=["c"])), 1)
    with pytest.raises(TypeError, match="complex128"):
        fit(cells(np.eye(3) * 1j), 2)
    X = counts(60, 20)
    cells(sparse.csc_matrix(X)).write_h5ad(tmp_path / "csc.h5ad")
    backed = anndata.read_h5ad(tmp_path / "csc.h5ad", backed="r")
    with pytest.raises(ValueError, match=r"by columns \(CSC\)"):
        fit(backed, 3)
    with pytest.raises(ValueError, match="view of a backed file"):
        fit(backed[:, :10], 3)
    memory = backed.to_memory()
    fit(memory, 3)
    check(memory, X, 3)
    backed.file.close()


def test_a_view_in_memory_becomes_a_copy_as_anndata_does_it() -> None:
    X = counts(100, 20)
    whole = cells(sparse.csr_matrix(X))
    part = whole[:, :15]
    with pytest.warns(anndata.ImplicitModificationWarning):
        fit(part, 3)
    check(part, X[:, :15], 3)
    assert not whole.obsm, "the object behind the view must stay as it is"


def test_without_anndata(monkeypatch: pytest.MonkeyPatch) -> None:
    adata = cells(counts(10, 4))
    monkeypatch.setitem(sys.modules, "anndata", None)
    with pytest.raises(ImportError, match=r"pip install 'online-psp\[anndata\]'"):
        fit(adata, 2)


def test_tables_with_more_than_numbers_are_refused_in_a_sentence() -> None:
    model = OnlinePCA(1)
    with pytest.raises((TypeError, ValueError), match=r"AnnData.*adata\.X"):
        model.fit(anndata.AnnData(np.eye(4)))
    frame = pd.DataFrame({"a": [1.5, 2.5], "b": ["3", "4"], "name": ["x", "y"]})
    with pytest.raises(ValueError, match=r"'name' .* not numbers"):
        model.fit(frame)
    assert not hasattr(model, "components_")
