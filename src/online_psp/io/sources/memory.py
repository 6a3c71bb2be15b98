"""Sources of rows that are already in Python: arrays, data frames, sparse matrices, iterables."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse

from online_psp.io.sources.arrays import as_table
from online_psp.io.sources.columnar import open_frame
from online_psp.io.sources.columns import picked
from online_psp.io.sources.options import Options
from online_psp.io.sources.source import (
    PIECE_BYTES,
    Chunk,
    Mark,
    Source,
    SourceError,
    UnknownSourceError,
    sliced,
    sparse_block_rows,
    working_dtype,
)
from online_psp.io.sources.sparse import open_sparse


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
    if any(hasattr(source, part) for part in ("__arrow_c_stream__", "iloc", "collect_batches")):
        return open_frame(source, options, name)
    if len(getattr(source, "shape", ())) == 2:
        return picked(_open_array(source, options, name), options.wanted)
    if isinstance(source, Iterable):
        return picked(_open_iterable(iter(source), options, name), options.wanted)
    raise UnknownSourceError(f"A source is a path, an array or an iterable of rows; got {type(source).__name__}.")


def _open_array(array: Any, options: Options, name: str) -> Source:
    """Open anything that has two dimensions and can be sliced."""
    (total, features), _ = as_table(tuple(array.shape), name)
    dtype = np.dtype(str(array.dtype).removeprefix("torch.")) if not isinstance(array.dtype, np.dtype) else array.dtype
    working = working_dtype(dtype, options.dtype, name)
    read = sliced(array, total, max(1, PIECE_BYTES // max(1, features * dtype.itemsize)))
    return Source(name, features, working, read, total, kind="array", foreign=True, **options.common())


def _open_iterable(items: Iterator[Any], options: Options, name: str) -> Source:
    """Open an iterable of rows, or of blocks of rows of any size; positions in it are counted in rows."""
    first = next(items, None)
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

    def read(_: Mark) -> Iterator[Chunk]:
        seen = 0
        for item in itertools.chain([first], items):
            rows: Any = csr_array(item if issparse(item) else np.atleast_2d(item)) if sparse else np.atleast_2d(np.asarray(item))
            if rows.ndim != 2 or rows.shape[1] != features:
                raise SourceError(f"{name}, row {seen + 1}: rows must have {features} values; this item has shape {np.shape(item)}.")
            seen += rows.shape[0]
            yield Chunk(rows.shape[0], rows)

    return Source(name, features, working, read, once=True, block=block, foreign=True, kind="iterable", **options.common())
