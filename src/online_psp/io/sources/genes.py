"""Reads the names of genes and of cells in AnnData and 10x files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from online_psp.engine.types import Array
from online_psp.io.sources.columns import listed, picked
from online_psp.io.sources.options import Options
from online_psp.io.sources.source import Chunk, Mark, Source

_MOST_NAMES = 10_000_000


def genes_of(group: Any, array: Any, member: str, features: int) -> list[str] | None:
    """The names of the columns; None if the file has none."""
    try:
        if member == "X" or member.startswith("layers/"):
            return _fitting(_index_of(group, "var"), features)
        if member == "raw/X":
            return _fitting(_index_of(group, "raw/var"), features)
        if not hasattr(array, "shape"):
            for place in ("features/name", "features/id", "gene_names", "genes"):
                if place in array and hasattr(array[place], "shape"):
                    return _fitting(_texts(array[place]), features)
    except Exception:  # names are optional: a file can be read without them
        return None
    return None


def frame_names(group: Any, member: str, features: int) -> list[str] | None:
    """The names of the columns of a frame that pandas wrote (`to_hdf`, format fixed)."""
    try:
        folder, _, block = member.rpartition("/")
        if not block.endswith("_values") or "pandas_type" not in group[folder].attrs:
            return None
        return _fitting(_texts(group[f"{folder}/{block.removesuffix('_values')}_items"]), features)
    except Exception:  # as above
        return None


def _index_of(group: Any, table: str) -> list[str] | None:
    """The index of an AnnData table."""
    if table not in group:
        return None
    frame = group[table]
    if not hasattr(frame, "attrs") or hasattr(frame, "shape"):
        return None
    key = _text(frame.attrs.get("_index", "_index"))
    return _texts(_column(frame[key])) if key in frame else None


def _column(node: Any) -> Any:
    """A column of a table of AnnData, to be read by slices; None if it is of a kind that is not known."""
    if hasattr(node, "shape"):
        return node
    if "codes" in node and "categories" in node:
        return _Categories(node)
    return _Nullable(node) if "values" in node and "mask" in node else None


def _texts(array: Any) -> list[str] | None:
    if array is None or len(array.shape) != 1 or array.shape[0] > _MOST_NAMES:
        return None
    return [_text(value) for value in np.asarray(array[:]).tolist()]


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _fitting(names: list[str] | None, features: int) -> list[str] | None:
    """Unique names, if there are as many as columns; otherwise None."""
    return None if names is None or len(names) != features else numbered(names)


def numbered(names: list[str]) -> list[str]:
    """Unique names of genes: repeated ones are numbered as scanpy does, A, A-1."""
    if len(set(names)) == len(names):
        return names
    taken, found = set(names), []
    seen: dict[str, int] = {}
    for name in names:
        count = seen.get(name, -1) + 1
        new = name if count == 0 else f"{name}-{count}"
        while count and new in taken:
            count += 1
            new = f"{name}-{count}"
        seen[name] = count
        taken.add(new)
        found.append(new)
    return found


def labels_of(group: Any, array: Any, member: str, rows: int) -> dict[str, Any]:
    """Labels of rows that the user may ask for as ids, besides columns: the names of the cells, and the columns of obs."""
    found: dict[str, Any] = {}
    try:
        if not hasattr(array, "shape") and "barcodes" in array and array["barcodes"].shape == (rows,):
            found["barcodes"] = array["barcodes"]
        if "obs" in group and hasattr(group["obs"], "attrs") and not hasattr(group["obs"], "shape"):
            frame = group["obs"]
            key = _text(frame.attrs.get("_index", "_index"))
            for name in frame:
                column = _column(frame[name])
                if getattr(column, "shape", None) == (rows,):
                    found["obs_names" if name == key else name] = column
    except Exception:  # as above
        return found
    return found


class _Categories:
    """A categorical column of AnnData, read by slices."""

    def __init__(self, group: Any) -> None:
        self.codes, self.names = group["codes"], _texts(_column(group["categories"])) or []
        self.shape = self.codes.shape

    def __getitem__(self, part: slice) -> Array:
        return np.array([self.names[code] if code >= 0 else "" for code in np.asarray(self.codes[part]).tolist()], dtype=object)


class _Nullable:
    """A column of AnnData in which values may be missing, as newer versions write all text; read by slices."""

    def __init__(self, group: Any) -> None:
        self.values, self.mask = group["values"], group["mask"]
        self.shape = self.values.shape

    def __getitem__(self, part: slice) -> Array:
        values, mask = np.asarray(self.values[part]).tolist(), np.asarray(self.mask[part]).tolist()
        return np.array(["" if missing else _text(value) for value, missing in zip(values, mask, strict=True)], dtype=object)


def labelled(source: Source, labels: Mapping[str, Any], options: Options) -> Source:
    """A source with the columns that the user chose; ids may also be labels of rows."""
    ids = listed(options.wanted.ids) or []
    ours = [each for each in ids if each in labels]
    if not ours:
        return picked(source, options.wanted)
    rest = [each for each in ids if each not in labels]
    found = picked(source, options.wanted._replace(ids=rest or None))

    def read(begin: Mark) -> Iterator[Chunk]:
        at = begin.row
        for chunk in found.read(begin):
            columns = [[_text(value) for value in np.asarray(labels[str(each)][at : at + chunk.length]).tolist()] for each in ours]
            text = np.array(columns, dtype=object).T
            yield chunk._replace(ids=text if chunk.ids is None else np.concatenate([text, chunk.ids], axis=1))
            at += chunk.length

    return replace(found, read=read)
