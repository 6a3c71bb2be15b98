"""Reads the names of genes and of cells in AnnData and 10x files."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from online_psp.io.sources.columns import listed, picked, unique
from online_psp.io.sources.options import Options
from online_psp.io.sources.source import Chunk, Mark, Source

Texts = Callable[[slice], list[str]]
"""Gives the texts of some rows."""


def genes_of(group: Any, array: Any, member: str, features: int) -> list[str] | None:
    """The names of the columns, unique; None if the file has none that fit."""
    names = None
    with contextlib.suppress(Exception):  # names are optional: a file can be read without them
        if member == "X" or member.startswith(("layers/", "raw/X")):
            frame = group["raw/var" if member == "raw/X" else "var"]
            names = _texts(frame[_index(frame)], features)
        elif not hasattr(array, "shape"):
            place = next(place for place in ("features/name", "features/id", "gene_names", "genes") if place in array)
            names = _texts(array[place], features)
    return None if names is None else numbered(names(slice(None)))


def labels_of(group: Any, array: Any, rows: int) -> dict[str, Texts]:
    """Labels of rows that the user may ask for as ids, besides columns: the names of the cells, and the columns of obs."""
    found: dict[str, Texts | None] = {}
    with contextlib.suppress(Exception):  # as above
        if not hasattr(array, "shape") and "barcodes" in array:
            found["barcodes"] = _texts(array["barcodes"], rows)
        if "obs" in group:
            frame = group["obs"]
            found.update({"obs_names" if name == _index(frame) else name: _texts(frame[name], rows) for name in frame})
    return {name: texts for name, texts in found.items() if texts is not None}


def _index(frame: Any) -> str:
    """The name of the column with the names of the rows."""
    return _text(frame.attrs.get("_index", "_index"))


def _texts(node: Any, length: int) -> Texts | None:
    """A column of AnnData as texts: plain, of categories, or with missing values; None if it is not one of so many rows."""
    if hasattr(node, "shape"):
        return (lambda part: [_text(value) for value in np.asarray(node[part]).tolist()]) if node.shape == (length,) else None
    codes = node["codes"] if "codes" in node else node["mask"]
    if codes.shape != (length,):
        return None
    if "codes" in node:
        categories = node["categories"]
        names = _texts(categories, (categories if hasattr(categories, "shape") else categories["mask"]).shape[0])
        held = names(slice(None)) if names is not None else []
        return lambda part: [held[code] if code >= 0 else "" for code in np.asarray(codes[part]).tolist()]

    def present(part: slice) -> list[str]:
        values, missing = np.asarray(node["values"][part]).tolist(), np.asarray(codes[part]).tolist()
        return ["" if hole else _text(value) for value, hole in zip(values, missing, strict=True)]

    return present


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def numbered(names: Sequence[str]) -> list[str]:
    """Unique names of genes: repeated ones are numbered as scanpy does, A, A-1."""
    return unique(names, "-")[0]


def labelled(source: Source, labels: Mapping[str, Texts], options: Options) -> Source:
    """A source with the columns that the user chose; ids may also be labels of rows."""
    ids = listed(options.wanted.ids) or []
    ours = [str(each) for each in ids if each in labels]
    if not ours:
        return picked(source, options.wanted)
    found = picked(source, options.wanted._replace(ids=[each for each in ids if each not in labels] or None))

    def read(begin: Mark) -> Iterator[Chunk]:
        at = begin.row
        for chunk in found.read(begin):
            text = np.array([labels[each](slice(at, at + chunk.length)) for each in ours], dtype=object).T
            yield chunk._replace(ids=text if chunk.ids is None else np.concatenate([text, chunk.ids], axis=1))
            at += chunk.length

    return replace(found, read=read)
