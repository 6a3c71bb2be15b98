"""Reads whole files of rows as data sets, with the readers that stream them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scipy.sparse import issparse

from online_psp.datasets.images import DataSet, ImageLayout
from online_psp.io.sources import Source, SourceError, open_source


def read_file(path: str | Path, key: str | None = None, **options: Any) -> DataSet:
    """Read a whole file, several files, or a folder of pictures.

    Parameters
    ----------
    path : str or Path
        Whatever `online_psp.io.sources.open_source` takes by name: ``x.csv``, ``x.npz::a``, ``parts/*.parquet``, a folder, …
    key : str, optional
        Which array of a .npz, .mat, HDF5 or Zarr file to take; the same as ``::key`` after the name.
    **options
        Options of `open_source`: columns, header, delimiter, …
    """
    name = f"{path}::{key}" if key is not None else path
    return data_set(open_source(name, **{"grey": True, **options}), path)


def data_set(source: Source, path: str | Path) -> DataSet:
    """All rows of a source; sparse rows become dense."""
    rows = source.gather()
    if issparse(rows):
        needed = rows.shape[0] * rows.shape[1] * rows.dtype.itemsize
        if needed > source.max_memory:
            raise SourceError(f"{source.name} is sparse, and would take {needed / 1e9:,.1f} GB as a dense table; read a part of it.")
        rows = rows.toarray()
    if rows.shape[0] == 0:
        raise SourceError(f"{source.name} has no rows.")
    shape = source.image_shape
    layout = ImageLayout(int(shape[0]), int(shape[1])) if shape is not None and len(shape) == 2 else None
    file = Path(str(path).partition("::")[0])
    return DataSet(file.stem, rows, layout, file, source.feature_names)
