"""Zarr arrays and groups, and AnnData in Zarr. Only codecs that are on a list are run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from online_psp.io.sources.hdf5 import from_group, missing_chunks
from online_psp.io.sources.options import Options
from online_psp.io.sources.places import Place
from online_psp.io.sources.source import MissingExtraError, Source, SourceError, UnknownSourceError, reason
from online_psp.io.sources.sparse import is_sparse_group

#: Codecs that only turn numbers into other numbers. Others may run code that the file brings along ("pickle"), or programs.
CODECS = frozenset(
    [
        "adler32", "astype", "base64", "bitround", "blosc", "bytes", "bz2", "cast_value", "crc32", "crc32c", "delta", "endian",
        "fixedscaleoffset", "fletcher32", "gzip", "jenkins_lookup3", "lz4", "lzma", "packbits", "pcodec", "quantize", "sharding_indexed",
        "shuffle", "transpose", "vlen-bytes", "vlen-utf8", "zfpy", "zlib", "zstd",
    ]
)  # fmt: skip
_COUNTED_CHUNKS = 200_000


def open_zarr(place: Place, options: Options) -> Source:
    """Open a Zarr array, or one inside a group; for AnnData, X if nothing else is named."""
    try:
        import zarr
    except ImportError:
        raise MissingExtraError(f"Reading {place.name} needs zarr: pip install 'online-psp[zarr]'.") from None
    if place.path is not None:
        _check_stored(place.path, (options.member or "X").strip("/"), place.name)
    where: Any = str(place.path) if place.path is not None else place.name
    try:
        opened: Any = zarr.open(where, mode="r")
        if hasattr(opened, "shape"):
            if options.member is not None:
                raise UnknownSourceError(f"{place.name} is a single Zarr array and has none inside it; leave out ::{options.member}.")
            return _whole(opened, place.name, options)
        tables = {}
        for name, item in opened.members(max_depth=None):
            if is_sparse_group(item) if not hasattr(item, "shape") else len(item.shape) in (2, 3):
                tables[name] = tuple(getattr(item, "shape", (0, 0)))
        default = "X" if str(opened.attrs.get("encoding-type", "")) == "anndata" else None
        member = (options.member or default or (next(iter(tables)) if len(tables) == 1 else "")).strip("/")
        warnings = _checked(opened, member, place.name) if member else []
    except (KeyboardInterrupt, SourceError):
        raise
    except Exception as error:  # each kind of storage has its own errors
        raise SourceError(f"{place.name} is not a Zarr array or group ({type(error).__name__}: {reason(error)}).") from None
    found = from_group(opened, place.name, tables, options, default)
    return replace(found, files=(place,), warnings=[*found.warnings, *warnings])


def _check_stored(root: Path, member: str, name: str) -> None:
    """Check the codecs that the files themselves name, before any library reads them."""
    for folder in (root, *(root / member / part for part in ("", "data", "indices", "indptr"))):
        for file in (folder / ".zarray", folder / "zarr.json"):
            if not file.is_file():
                continue
            try:
                metadata = json.loads(file.read_bytes())
            except (ValueError, OSError, RecursionError) as error:
                raise SourceError(f"{name} is not a Zarr array or group ({file.name}: {reason(error)}).") from None
            if isinstance(metadata, dict):
                _refuse(_codecs(metadata), name)


def _refuse(codecs: list[str], name: str) -> None:
    for codec in codecs:
        if codec.removeprefix("numcodecs.") not in CODECS:
            raise SourceError(f"{name} is stored with the codec {codec!r}, which is not run here; write it again with zstd, blosc or gzip.")


def _whole(array: Any, name: str, options: Options) -> Source:
    check_codecs(array, name)
    found = from_group({"": array}, name, {"": array.shape}, replace(options, member=None), "/")
    return replace(found, name=name, warnings=[*found.warnings, *_lost(array, name)])


def _checked(group: Any, member: str, path: str) -> list[str]:
    """Check the codecs of all arrays that will be read, names included; returns warnings about chunks that are missing."""
    if member not in group:
        return []
    found = group[member]
    arrays = [found] if hasattr(found, "shape") else [item for _, item in found.members(max_depth=2) if hasattr(item, "shape")]
    for table in ("var", "obs"):
        if table in group and not hasattr(group[table], "shape"):
            arrays += [item for _, item in group[table].members(max_depth=2) if hasattr(item, "shape")]
    for array in arrays:
        check_codecs(array, f"{path}::/{array.path}")
    if hasattr(found, "shape"):
        return _lost(found, f"{path}::/{member}")
    return [said for part in ("data", "indices", "indptr") if part in found for said in _lost(found[part], f"{path}::/{member}/{part}")]


def check_codecs(array: Any, name: str) -> None:
    """Refuse an array with a codec that is not on the list, before anything of it is decoded."""
    _refuse(_codecs(array.metadata.to_dict()), name)


def _codecs(metadata: Any) -> list[str]:
    """The names of all codecs, including those inside shards."""
    found: list[str] = []
    for entry in [*(metadata.get("codecs") or ()), metadata.get("compressor"), *(metadata.get("filters") or ())]:
        described = entry if isinstance(entry, dict) else _described(entry)
        if not described:
            continue
        found.append(str(described.get("name", described.get("id", ""))))
        inner = described.get("configuration") or {}
        found += _codecs({"codecs": [*(inner.get("codecs") or ()), *(inner.get("index_codecs") or ())]})
    return found


def _described(codec: Any) -> dict[str, Any]:
    if codec is None:
        return {}
    if hasattr(codec, "get_config"):
        return dict(codec.get_config())
    return dict(codec.to_dict()) if hasattr(codec, "to_dict") else {"name": str(codec)}


def _lost(array: Any, name: str) -> list[str]:
    """A warning about chunks that are not stored, and read as the fill value: they were never written, or are lost."""
    try:
        expected = int(array.nchunks)
        if not 0 < expected <= _COUNTED_CHUNKS:
            return []
        stored = int(array.nchunks_initialized)
    except (NotImplementedError, AttributeError, OSError):  # storage that cannot be listed, such as http
        return []
    return [missing_chunks(name, expected - stored, expected, array.fill_value)] if stored < expected else []
