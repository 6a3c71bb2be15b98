"""OnlinePCA for AnnData objects, with results where scanpy looks for them. Needs anndata: ``pip install online-psp[anndata]``.

>>> import anndata
>>> import numpy as np
>>> from online_psp.integrations.anndata import fit
>>> adata = anndata.AnnData(np.random.default_rng(0).standard_normal((100, 20)))
>>> pca = fit(adata, 5)
>>> adata.obsm["X_pca"].shape, adata.varm["PCs"].shape, sorted(adata.uns["pca"])
((100, 5), (20, 5), ['params', 'variance', 'variance_ratio'])
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.sparse import issparse

from online_psp.engine.types import Array
from online_psp.io.sources import numbered
from online_psp.pca.estimator import OnlinePCA

if TYPE_CHECKING:
    from anndata import AnnData

_HIGHLY_VARIABLE = "highly_variable"
_PIECE = 1 << 22  # bytes of dense rows read at a time
_ENTRIES = 1 << 18  # entries of sparse rows read at a time: with their indices, about as many bytes
_FIRST, _MOST = 64, 8192  # rows of the first piece, when it is not yet known how full rows are, and most rows of any piece


class _Table(NamedTuple):
    """The matrix to learn from, in memory or in a file."""

    values: Any
    """(n, D), dense or CSR; anything that gives rows by slicing."""
    genes: Array | None
    """Indices of the columns to learn from; None for all of them."""
    name: str
    cell_names: Any
    gene_names: Any


class _Keys(NamedTuple):
    """Keys of the results, as in scanpy."""

    obsm: str
    varm: str
    uns: str


def fit(
    adata: AnnData,
    n_components: int | float | None = 50,
    *,
    layer: str | None = None,
    mask_var: Any = "auto",
    key_added: str | None = None,
    **options: Any,
) -> OnlinePCA:
    """Fit an OnlinePCA to the cells of an AnnData object, and write scores and components into it as ``scanpy.pp.pca`` does.

    The matrix is read twice, in pieces of a few megabytes: once to learn, once for the scores. Backed files are never in memory as a whole,
    and sparse matrices are never made dense. If an error is raised, `adata` has not changed.

    Parameters
    ----------
    adata : AnnData
        In memory, or backed by a file. The matrix may be dense, sparse, or a Dask array.
    n_components : int, float or None
        As in `OnlinePCA`.
    layer : str, optional
        Layer to use in place of ``adata.X``.
    mask_var : "auto", str, (n_vars,) of bool, or None
        Genes to use: a column of ``adata.var``, or the mask itself. None uses all genes. "auto" uses the column "highly_variable" if
        there is one, and all genes otherwise.
    key_added : str, optional
        Key for all results, in place of "X_pca", "PCs" and "pca".
    **options
        Options of `OnlinePCA`: ``center``, ``standardize``, ``whiten``, ``oversample``, ``dtype``, …

    Returns
    -------
    OnlinePCA
        The fitted model. Its ``feature_names_in_`` are the names of the genes used; repeated names are numbered (``A``, ``A-1``).

    Notes
    -----
    ``obsm["X_pca"]`` (n_obs, K)
        Scores.
    ``varm["PCs"]`` (n_vars, K)
        Components, as columns; zero for genes that were not used.
    ``uns["pca"]``
        ``variance`` and ``variance_ratio``, (K,), and ``params``.
    """
    _check_object(adata)
    model = OnlinePCA(n_components, **options)
    mask, column = _mask(adata, mask_var)
    table = _table(adata, layer, mask)
    for start, rows in _pieces(table):
        try:
            model.partial_fit(rows)
        except ValueError as error:
            raise ValueError(f"{table.name}, cells {start} to {start + rows.shape[0] - 1}: {error}") from error
    scores = np.concatenate([model.transform(rows) for _, rows in _pieces(table)])
    names = np.array(numbered([str(name) for name in adata.var_names]), dtype=object)
    model.feature_names_in_ = names if mask is None else names[mask]
    keys = _Keys("X_pca", "PCs", "pca") if key_added is None else _Keys(key_added, key_added, key_added)
    _write(adata, model, scores, mask, keys, _parameters(model, layer, mask, column))
    return model


# Input


def _check_object(adata: Any) -> None:
    try:
        from anndata import AnnData
    except ImportError as error:
        raise ImportError("online_psp.integrations.anndata needs anndata; install it with: pip install 'online-psp[anndata]'") from error
    if not isinstance(adata, AnnData):
        raise TypeError(f"fit takes an AnnData object; got {type(adata).__name__} (for arrays and files, use OnlinePCA or psp fit).")
    if adata.is_view and adata.isbacked:
        raise ValueError(
            "adata is a view of a backed file, which cannot hold results: choose genes with mask_var, or copy the view (adata.to_memory())."
        )
    if not adata.n_obs or not adata.n_vars:
        raise ValueError(f"adata has {adata.n_obs} cells and {adata.n_vars} genes; there is nothing to learn from.")


def _mask(adata: Any, mask_var: Any) -> tuple[Array | None, str | None]:
    """The genes to use, (n_vars,) of bool, or None for all; and the column of `var` that selects them."""
    if isinstance(mask_var, str) and mask_var == "auto" and "auto" not in adata.var:
        mask_var = _HIGHLY_VARIABLE if _HIGHLY_VARIABLE in adata.var else None
    if mask_var is None:
        return None, None
    if isinstance(mask_var, str):
        if mask_var not in adata.var:
            hint = " (scanpy.pp.highly_variable_genes makes it)" if mask_var == _HIGHLY_VARIABLE else ""
            raise ValueError(f"adata.var has no column {mask_var!r}{hint}.")
        return _checked_mask(adata.var[mask_var], adata, f"adata.var[{mask_var!r}]"), mask_var
    return _checked_mask(mask_var, adata, "mask_var"), None


def _checked_mask(values: Any, adata: Any, name: str) -> Array:
    if hasattr(values, "index") and not callable(values.index) and not values.index.equals(adata.var_names):
        raise ValueError(f"{name} has another index than adata.var_names, or another order; use {name}.reindex(adata.var_names).")
    mask = np.asarray(values)
    if mask.dtype == object and all(isinstance(value, bool | np.bool_) for value in mask.ravel()):
        mask = mask.astype(bool)  # pandas' own booleans, with none missing
    if mask.dtype != np.bool_ or mask.shape != (adata.n_vars,):
        raise ValueError(
            f"{name} must have True or False for each of the {adata.n_vars} genes; it has dtype {mask.dtype} and shape {mask.shape}."
        )
    if not mask.any():
        raise ValueError(f"{name} is False for every gene; there is nothing to learn from.")
    return mask


def _table(adata: Any, layer: str | None, mask: Array | None) -> _Table:
    if layer is not None and layer not in adata.layers:
        held = ", ".join(repr(name) for name in adata.layers if name is not None) or "none"
        raise ValueError(f"adata has no layer {layer!r}; its layers: {held}.")
    values, name = (adata.X, "adata.X") if layer is None else (adata.layers[layer], f"adata.layers[{layer!r}]")
    if values is None:
        raise ValueError("adata.X is None; name the layer to use (layer=…).")
    if hasattr(values, "iloc"):  # a layer may be a data frame
        values = values.to_numpy()
    if np.dtype(values.dtype).kind not in "fiub":
        raise TypeError(f"{name} must hold real numbers; its dtype is {values.dtype}.")
    if issparse(values):
        values = values.tocsr()
    elif getattr(values, "format", "csr") == "csc":
        raise ValueError(
            f"{name} is backed by a file that stores it by columns (CSC), so that cells cannot be read in pieces: store it as CSR, or read "
            "it into memory (adata.to_memory())."
        )
    genes = None if mask is None else np.flatnonzero(mask)
    return _Table(values, genes, name, adata.obs_names, adata.var_names if genes is None else adata.var_names[genes])


# Rows in pieces


def _pieces(table: _Table) -> Iterator[tuple[int, Any]]:
    """Pieces of rows with the genes to learn from, checked, each with the number of cells before it."""
    start, total, ends = 0, table.values.shape[0], _chunk_ends(table.values)
    size = _FIRST
    while start < total:
        stop = min(total, start + size) if ends is None else ends[int(np.searchsorted(ends, start, side="right"))]
        rows = table.values[start:stop]
        rows = rows.compute() if hasattr(rows, "compute") else rows
        if not issparse(rows):
            rows = np.asarray(rows)
        size = _next_size(rows)
        if table.genes is not None:
            rows = rows[:, table.genes]
        _check_finite(rows, start, table)
        yield start, rows
        start = int(stop)


def _chunk_ends(values: Any) -> Array | None:
    """Row numbers at which the chunks of a Dask array end: a piece across two chunks would read both twice. None for other arrays."""
    if not hasattr(values, "compute") or not hasattr(values, "chunks"):
        return None
    ends = np.cumsum(values.chunks[0])
    return np.unique(ends[ends > 0])


def _next_size(rows: Any) -> int:
    """Number of such rows that make a piece."""
    n, D = rows.shape
    if issparse(rows):
        return int(np.clip(_ENTRIES * n // max(1, rows.nnz), 1, _MOST))
    return int(np.clip(_PIECE // max(1, D * rows.dtype.itemsize), 1, _MOST))


def _check_finite(rows: Any, start: int, table: _Table) -> None:
    values = rows.data if issparse(rows) else rows
    if values.dtype.kind != "f" or np.isfinite(values).all():
        return
    if issparse(rows):
        entry = int(np.argmin(np.isfinite(values)))
        row, gene = int(np.searchsorted(rows.indptr, entry, side="right")) - 1, int(rows.indices[entry])
        value = values[entry]
    else:
        row, gene = (int(place) for place in np.argwhere(~np.isfinite(values))[0])
        value = values[row, gene]
    what = "NaN" if np.isnan(value) else "infinity"
    raise ValueError(
        f"{table.name} has {what} for cell {table.cell_names[start + row]!r} (row {start + row}), gene {table.gene_names[gene]!r}: "
        "every value must be finite."
    )


# Results


def _parameters(model: OnlinePCA, layer: str | None, mask: Array | None, column: str | None) -> dict[str, Any]:
    """Parameters to store: those that scanpy's functions read, and how the fit was done; only values that a file can hold."""
    found: dict[str, Any] = {"zero_center": bool(model.center), "use_highly_variable": column == _HIGHLY_VARIABLE}
    if mask is not None:
        found["mask_var"] = mask if column is None else column
    if layer is not None:
        found["layer"] = layer
    return found | {"method": "online_psp", "standardize": bool(model.standardize)}


def _write(adata: Any, model: OnlinePCA, scores: Array, mask: Array | None, keys: _Keys, parameters: dict[str, Any]) -> None:
    components = model.components_
    loadings = np.zeros((adata.n_vars, len(components)), dtype=components.dtype)
    loadings[slice(None) if mask is None else mask] = components.T
    variance, ratio = model.explained_variance_, model.explained_variance_ratio_
    adata.obsm[keys.obsm] = scores
    adata.varm[keys.varm] = loadings
    adata.uns[keys.uns] = {"params": parameters, "variance": np.array(variance), "variance_ratio": np.array(ratio)}
