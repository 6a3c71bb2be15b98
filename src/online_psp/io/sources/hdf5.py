"""HDF5: tables and sparse matrices inside a file, named after ``::``; AnnData and 10x files with the names of their genes."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csc_array

from online_psp.io.sources.arrays import as_table, axis_doubt, choose_table
from online_psp.io.sources.genes import genes_of, labelled, labels_of
from online_psp.io.sources.options import Options
from online_psp.io.sources.places import Place
from online_psp.io.sources.source import (
    PIECE_BYTES,
    MissingExtraError,
    Source,
    SourceError,
    UnknownSourceError,
    sliced,
    working_dtype,
)
from online_psp.io.sources.sparse import is_sparse_group, open_sparse, open_sparse_group


def open_hdf5(place: Place, options: Options, by_columns: bool = False) -> Source:
    """Open ``file.h5::/dataset``, or the only table in the file; a group with the arrays of a sparse matrix is a table too.

    Parameters
    ----------
    by_columns : bool
        Whether it is a file of MATLAB 7.3, where columns come one after the other.
    """
    try:
        import h5py
    except ImportError:
        raise MissingExtraError(f"Reading {place.name} needs h5py: pip install 'online-psp[hdf5]'.") from None
    tables: dict[str, tuple[int, ...]] = {}
    others: dict[str, tuple[int, ...]] = {}
    records: list[str] = []

    def look(name: str, item: Any) -> None:
        if isinstance(item, h5py.Group):
            if is_sparse_group(item) or "MATLAB_sparse" in item.attrs:
                tables[name] = (0, 0)
        elif item.dtype.names:
            records.append(name)
        elif by_columns and (name.startswith("#") or item.attrs.get("MATLAB_class") == b"char"):
            return
        elif len(item.shape or ()) in (2, 3):
            tables[name] = item.shape
        else:
            others[name] = item.shape or ()

    file = h5py.File(place.path if place.path is not None else place.open(), "r")
    file.visititems(look)
    default = "X" if place.name.lower().endswith(".h5ad") or "encoding-type" in file.attrs else None
    if records and not tables and options.member is None:
        raise UnknownSourceError(
            f"{place.name}::/{records[0]} has records, not a table of numbers: write them as a table, or as Parquet (of pandas, by "
            "read_hdf and to_parquet)."
        )
    return replace(from_group(file, place.name, tables or others, options, default, by_columns), files=(place,))


def from_group(
    group: Any, path: str, tables: dict[str, tuple[int, ...]], options: Options, default: str | None, by_columns: bool = False
) -> Source:
    """Open the table that was asked for, in an open HDF5 file or Zarr group."""
    member = options.member or default
    inner = member.strip("/") if member is not None else choose_table(path, tables, None, "array")
    has = ", ".join(sorted(tables)[:12]) or "no tables"
    if inner not in group:
        raise UnknownSourceError(f"{path} has no array {member!r}; it has {has}.")
    array = group[inner]
    name = f"{path}::/{inner}"
    if hasattr(array, "shape"):
        found = _array_source(array, name, options, by_columns)
    elif "MATLAB_sparse" in array.attrs:
        rows, starts = array["ir"][:] if "ir" in array else np.zeros(0, int), array["jc"][:]
        values = array["data"][:] if "data" in array else np.zeros(0)
        found = open_sparse(csc_array((values, rows, starts), (int(array.attrs["MATLAB_sparse"]), len(starts) - 1)), options, name)
    elif is_sparse_group(array):
        for part in ("data", "indices", "indptr"):
            if hasattr(array.get(part), "shape"):
                check_storage(array[part], f"{name}/{part}", options)
        found = open_sparse_group(array, options, name)
    else:
        raise UnknownSourceError(f"{path}::{member} is a group, not an array; it has {has}.")
    genes = genes_of(group, array, inner, found.features)
    if genes is not None:
        found = replace(found, feature_names=genes, notes=[*found.notes, f"{len(genes)} names: {', '.join(genes[:4])}, …"])
    return labelled(found, labels_of(group, array, found.total or 0), options)


def _array_source(array: Any, name: str, options: Options, by_columns: bool) -> Source:
    shape = tuple(array.shape or ())
    shape = shape[::-1] if by_columns else shape
    (total, features), picture = as_table(shape, name, options.time_axis)
    table, chunks = _Flat(array, (total, features), by_columns, options.time_axis == 2), getattr(array, "chunks", None)
    _refuse_lost_parts(array, name)
    warnings = [*check_storage(array, name, options), *axis_doubt(shape, name, options.time_axis)]
    together = int(chunks[-1 if by_columns != (options.time_axis == 2) else 0]) if chunks else 1
    step = max(1, PIECE_BYTES // (features * table.dtype.itemsize) // together) * together  # no chunk is unpacked twice
    working = working_dtype(table.dtype, options.dtype, name)
    read = sliced(table, total, step)
    return Source(name, features, working, read, total, image_shape=picture, warnings=warnings, kind="table", **options.common())


class _Flat:
    """A stored array as a table; rows that are pictures are flattened."""

    def __init__(self, array: Any, shape: tuple[int, int], by_columns: bool, last: bool) -> None:
        self.array, self.shape, self.by_columns, self.last, self.dtype = array, shape, by_columns, last, np.dtype(array.dtype)

    def __getitem__(self, part: slice) -> Any:
        found = np.asarray(self.array[..., part] if self.by_columns != self.last else self.array[part])
        found = found.T if self.by_columns else found  # as MATLAB has it
        return (np.moveaxis(found, -1, 0) if self.last else found).reshape(-1, self.shape[1])


def check_storage(array: Any, name: str, options: Options) -> list[str]:
    """Check that the chunks in which an array is stored fit into memory; returns a warning if some are missing.

    They read as fill values: they were never written, or are lost.
    """
    chunks = getattr(array, "shards", None) or getattr(array, "chunks", None)
    if chunks:
        options.check(math.prod(map(int, chunks)) * np.dtype(array.dtype).itemsize, "one stored chunk", name)
    expected = math.prod(-(-size // chunk) for size, chunk in zip(array.shape, chunks or array.shape, strict=True) if size)
    try:
        if not hasattr(array, "id"):
            stored = int(array.nchunks_initialized)
        elif chunks:
            stored = array.id.get_num_chunks()
        else:
            stored = int(array.id.get_storage_size() > 0 or array.is_virtual or bool(array.external))
    except (NotImplementedError, AttributeError, OSError):  # storage that cannot be listed, such as http
        return []
    fill = array.fillvalue if hasattr(array, "fillvalue") else array.fill_value
    if stored >= expected:
        return []
    return [f"{expected - stored} of the {expected} chunks of {name} are not stored and read as {fill}: never written, or lost"]


def _refuse_lost_parts(array: Any, name: str) -> None:
    """Refuse a virtual table of which a file is missing: HDF5 would silently read fill values."""
    for source in array.virtual_sources() if getattr(array, "is_virtual", False) else ():
        file = source.file_name
        if file != "." and "%b" not in file and not (Path(array.file.filename).absolute().parent / file).exists():
            raise SourceError(f"{name} is put together from other files, and {file} is not there; its rows would read as fill values.")
