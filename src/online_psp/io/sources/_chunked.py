"""HDF5 and Zarr: arrays, and in HDF5 sparse matrices, inside a file or a folder, named after ``::``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from online_psp.io.sources._source import (
    Chunk,
    Deadline,
    MissingExtraError,
    Source,
    SourceError,
    UnknownSourceError,
    check_shape,
    sliced,
    working_dtype,
)
from online_psp.io.sources._sparse import is_sparse_group, open_sparse_group


def open_hdf5(path: Path, dtype: Any, member: str | None) -> Source:
    """``file.h5::/dataset``, or the only table in the file; a group with the arrays of a sparse matrix is a table too."""
    try:
        import h5py
    except ImportError:
        raise MissingExtraError(f"Reading {path} needs h5py: pip install 'online-psp[hdf5]'.") from None
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise SourceError(f"{path} is not a whole HDF5 file ({error}).") from None
    tables: list[str] = []

    def look(name: str, item: Any) -> None:
        if is_sparse_group(item) if isinstance(item, h5py.Group) else len(item.shape or ()) == 2:
            tables.append(f"/{name}")

    file.visititems(look)
    return _source(file, str(path), tables, member, dtype)


def open_zarr(path: Path, dtype: Any, member: str | None) -> Source:
    """A Zarr array, or one inside a group."""
    try:
        import zarr
    except ImportError:
        raise MissingExtraError(f"Reading {path} needs zarr: pip install 'online-psp[zarr]'.") from None
    try:
        opened: Any = zarr.open(str(path), mode="r")
    except Exception as error:  # many kinds, from the many kinds of storage
        raise SourceError(f"{path} is not a Zarr array or group ({type(error).__name__}).") from None
    if hasattr(opened, "shape"):
        if member is not None:
            raise UnknownSourceError(f"{path} is a single Zarr array and has none inside it; leave out ::{member}.")
        return _array_source(opened, str(path), dtype)
    tables = [f"/{name}" for name, item in opened.members(max_depth=None) if len(getattr(item, "shape", ())) == 2]
    return _source(opened, str(path), tables, member, dtype)


def _source(group: Any, path: str, tables: list[str], member: str | None, dtype: Any) -> Source:
    if member is None:
        if len(tables) != 1:
            raise UnknownSourceError(f"{path} has {len(tables)} tables ({', '.join(sorted(tables))}); name the one to read: {path}::NAME.")
        member = tables[0]
    try:
        array = group[member.lstrip("/")]
    except KeyError:
        raise UnknownSourceError(f"{path} has no array {member!r}; it has {', '.join(sorted(tables)) or 'no tables'}.") from None
    if not hasattr(array, "shape") and f"/{member.strip('/')}" in tables:
        return open_sparse_group(array, dtype, f"{path}::/{member.strip('/')}")
    if not hasattr(array, "shape"):
        raise UnknownSourceError(f"{path}::{member} is a group, not an array; it has {', '.join(sorted(tables)) or 'no tables'}.")
    return _array_source(array, f"{path}::/{member.lstrip('/')}", dtype)


def _array_source(array: Any, name: str, dtype: Any) -> Source:
    total, features = check_shape(tuple(array.shape), name)
    read = sliced(array, total)

    def guarded(start: int, size: int, deadline: Deadline | None = None) -> Iterator[Chunk]:
        at = start
        try:
            for chunk in read(start, size, deadline):
                yield chunk
                at += chunk.length
        except (OSError, RuntimeError) as error:
            raise SourceError(f"{name}, after row {at}: the data cannot be read ({error}).") from None

    return Source(name, features, working_dtype(array.dtype, dtype, name), guarded, total)
