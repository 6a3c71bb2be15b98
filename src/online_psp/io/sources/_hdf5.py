"""HDF5: tables and sparse matrices inside a file, named after ``::``; AnnData and 10x files with the names of their genes."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from online_psp.io.sources._chunks import ahead
from online_psp.io.sources._names import frame_names, genes_of, labelled, labels_of
from online_psp.io.sources._numpy import as_table, table_source
from online_psp.io.sources._options import Options
from online_psp.io.sources._places import Place
from online_psp.io.sources._source import MissingExtraError, Reader, Source, SourceError, UnknownSourceError, reason, sliced
from online_psp.io.sources._sparse import is_sparse_group, open_sparse_group


def open_hdf5(place: Place, options: Options) -> Source:
    """Open ``file.h5::/dataset``, or the only table in the file; a group with the arrays of a sparse matrix is a table too."""
    try:
        import h5py
    except ImportError:
        raise MissingExtraError(f"Reading {place.name} needs h5py: pip install 'online-psp[hdf5]'.") from None
    try:
        file = h5py.File(place.path if place.path is not None else place.open(), "r")
        tables: list[str] = []
        records: list[str] = []

        def look(name: str, item: Any) -> None:
            if getattr(getattr(item, "dtype", None), "names", None) and not isinstance(item, h5py.Group):
                records.append(f"/{name}")
            if is_sparse_group(item) if isinstance(item, h5py.Group) else len(item.shape or ()) == 2:
                tables.append(f"/{name}")

        file.visititems(look)
        default = "/X" if place.name.lower().endswith(".h5ad") or "encoding-type" in file.attrs else None
    except (KeyboardInterrupt, SourceError):
        raise
    except Exception as error:  # h5py may raise anything for a damaged file
        raise SourceError(f"{place.name} is not a whole HDF5 file ({reason(error)}).") from None
    if options.member is None and default is None:
        _refuse_frames(file, place.name, tables, records)
    return from_group(file, place.name, tables, options, default)


def _refuse_frames(file: Any, path: str, tables: list[str], records: list[str]) -> None:
    """Refuse a pandas frame whose columns are stored in several arrays, or in records."""
    of_pandas = any("pandas_type" in file[table.rpartition("/")[0] or "/"].attrs for table in (*tables, *records))
    if of_pandas and (len(tables) > 1 or records):
        raise UnknownSourceError(
            f"{path} is a frame of pandas, whose columns are in several arrays or in records: write it as Parquet "
            f"(pandas.read_hdf({path!r}).to_parquet)."
        )
    if records and not tables:
        raise UnknownSourceError(f"{path}::{records[0]} has records, not a table of numbers: write them as a table, or as Parquet.")


def from_group(group: Any, path: str, tables: list[str], options: Options, default: str | None) -> Source:
    """Open the table that was asked for, in an open HDF5 file or Zarr group."""
    member = options.member or default
    if member is None:
        if not tables:
            raise UnknownSourceError(f"{path} has no table of numbers: a data set of two dimensions, or a sparse matrix, is one.")
        if len(tables) > 1:
            listed = ", ".join(sorted(tables)[:12])
            raise UnknownSourceError(f"{path} has {len(tables)} tables ({listed}); name the one to read: {path}::NAME.")
        member = tables[0]
    inner = member.strip("/")
    has = ", ".join(sorted(tables)[:12]) or "no tables"
    try:
        array = group[inner]
    except KeyError:
        raise UnknownSourceError(f"{path} has no array {member!r}; it has {has}.") from None
    except Exception as error:
        raise SourceError(f"{path}::{member} cannot be opened ({reason(error)}).") from None
    name = f"{path}::/{inner}"
    if hasattr(array, "shape"):
        found = _array_source(array, name, options)
    elif is_sparse_group(array):
        for part in ("data", "indices", "indptr"):
            if hasattr(array.get(part), "shape"):
                check_storage(array[part], f"{name}/{part}", options)
        found = open_sparse_group(array, options, name)
    else:
        raise UnknownSourceError(f"{path}::{member} is a group, not an array; it has {has}.")
    genes = genes_of(group, array, inner, found.features) or frame_names(group, inner, found.features)
    if genes is not None:
        found = replace(found, feature_names=genes, notes=[*found.notes, f"{len(genes)} names: {', '.join(genes[:4])}, …"])
    return labelled(found, labels_of(group, array, inner, found.total or 0), options)


def _array_source(array: Any, name: str, options: Options) -> Source:
    try:
        table, shape = as_table(_Flat(array), name)
        warnings = check_storage(array, name, options)
        found = table_source(table, shape, _ahead(sliced(table, int(table.shape[0])), options.max_memory), name, "table", options)
    except SourceError:
        raise
    except Exception as error:
        raise SourceError(f"{name} cannot be read ({reason(error)}).") from None
    return replace(found, warnings=warnings)


def _ahead(read: Reader, max_memory: int) -> Reader:
    return lambda start, size, deadline: ahead(read(start, size, deadline), max_memory)


class _Flat:
    """A stored array as a table; rows that are pictures are flattened."""

    def __init__(self, array: Any, rows: tuple[int, int] | None = None) -> None:
        self.array, self.dtype = array, np.dtype(array.dtype)
        self.shape: Any = rows or tuple(array.shape or ())

    def reshape(self, *shape: int) -> _Flat:
        return _Flat(self.array, (self.shape[0], int(np.prod(self.shape[1:]))))

    def __getitem__(self, part: Any) -> Any:
        found = np.asarray(self.array[part])
        return found.reshape(len(found), -1)


def check_storage(array: Any, name: str, options: Options) -> list[str]:
    """Check that the chunks in which an array is stored fit into memory; returns warnings about chunks that are missing."""
    dtype = np.dtype(array.dtype)
    chunks = getattr(array, "shards", None) or getattr(array, "chunks", None)
    if chunks:
        options.check(int(np.prod([int(size) for size in chunks], dtype=object)) * dtype.itemsize, "one stored chunk", name)
    if hasattr(array, "is_virtual"):
        return _check_hdf5(array, name)
    return []


def _check_hdf5(array: Any, name: str) -> list[str]:
    """Find what HDF5 silently reads as fill values: files that are missing, and chunks that were never written."""
    if array.is_virtual:
        folder = Path(os.path.dirname(os.path.abspath(array.file.filename)))
        for source in array.virtual_sources():
            file = source.file_name
            if file != "." and "%b" not in file and not (folder / file).exists() and not Path(file).exists():
                raise SourceError(f"{name} is put together from other files, and {file} is not there; its rows would read as fill values.")
            if file != "." and "%b" not in file and not _has_dataset(folder / file, source.dset_name):
                raise SourceError(f"{name} is put together from other files, and {file} has no {source.dset_name}; get it again.")
    for external in array.external or ():
        if not Path(os.path.join(os.path.dirname(os.path.abspath(array.file.filename)), external[0])).exists():
            raise SourceError(f"{name} keeps its values in {external[0]}, which is not there.")
    if array.chunks:
        expected = int(np.prod([-(-size // chunk) for size, chunk in zip(array.shape, array.chunks, strict=True)], dtype=object))
        stored = array.id.get_num_chunks()
        if stored < expected:
            return [missing_chunks(name, expected - stored, expected, array.fillvalue)]
    elif array.size and not array.is_virtual and array.id.get_storage_size() == 0 and not array.external:
        return [f"{name} was never written: all of it reads as {array.fillvalue}"]
    return []


def _has_dataset(path: Path, name: str) -> bool:
    import h5py

    try:
        with h5py.File(path, "r") as file:
            return name in file
    except OSError:
        return False


def missing_chunks(name: str, missing: int, expected: int, fill: Any) -> str:
    """The sentence about chunks that are not stored."""
    return f"{missing} of the {expected} chunks of {name} are not stored and read as {fill}: never written, or lost"
