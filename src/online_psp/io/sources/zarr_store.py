"""Zarr arrays and groups, and AnnData in Zarr."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from online_psp.io.sources.hdf5 import from_group
from online_psp.io.sources.options import Options
from online_psp.io.sources.places import Place
from online_psp.io.sources.source import MissingExtraError, Source, SourceError, UnknownSourceError
from online_psp.io.sources.sparse import is_sparse_group


def open_zarr(place: Place, options: Options) -> Source:
    """Open a Zarr array, or one inside a group; for AnnData, X if nothing else is named."""
    try:
        import zarr
    except ImportError:
        raise MissingExtraError(f"Reading {place.name} needs zarr: pip install 'online-psp[zarr]'.") from None
    if place.path is not None:
        for file in (*place.path.rglob(".zarray"), *place.path.rglob("zarr.json")):
            _refuse_pickle(json.loads(file.read_bytes()), place.name)
    opened: Any = zarr.open(str(place.path) if place.path is not None else place.name, mode="r")
    if hasattr(opened, "shape"):
        if options.member is not None:
            raise UnknownSourceError(f"{place.name} is a single Zarr array and has none inside it; leave out ::{options.member}.")
        _refuse_pickle(opened.metadata.to_dict(), place.name)
        found = from_group({"": opened}, place.name, {"": opened.shape}, options, "")
        return replace(found, name=place.name, files=(place,))
    tables: dict[str, tuple[int, ...]] = {}
    for name, item in opened.members(max_depth=None):
        if not hasattr(item, "shape"):
            tables.update({name: (0, 0)} if is_sparse_group(item) else {})
            continue
        _refuse_pickle(item.metadata.to_dict(), place.name)
        if len(item.shape) in (2, 3):
            tables[name] = tuple(item.shape)
    default = "X" if str(opened.attrs.get("encoding-type", "")) == "anndata" else None
    return replace(from_group(opened, place.name, tables, options, default), files=(place,))


def _refuse_pickle(metadata: Any, name: str) -> None:
    """Refuse the one codec that runs code from the file, before anything is decoded."""
    if "pickle" in str(metadata):
        raise SourceError(f"{name} is stored with the codec 'pickle', which is not run here; write it again with zstd, blosc or gzip.")
