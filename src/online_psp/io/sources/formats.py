"""The one table of formats: how each is known, where it may be, and what opens it. A new format is one entry and one opener."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from online_psp.io.sources.arrays import looks_like_idx, open_idx, open_npy, open_npz, open_raw
from online_psp.io.sources.columnar import open_arrow
from online_psp.io.sources.columns import picked
from online_psp.io.sources.content import is_text, refuse_foreign
from online_psp.io.sources.hdf5 import open_hdf5
from online_psp.io.sources.json_lines import open_json_lines
from online_psp.io.sources.matlab import open_mat
from online_psp.io.sources.matrix_market import open_matrix_market
from online_psp.io.sources.options import Options
from online_psp.io.sources.pictures import SUFFIXES as PICTURES
from online_psp.io.sources.places import COMPRESSED, Place
from online_psp.io.sources.sheets import open_sheet
from online_psp.io.sources.source import Source, UnknownSourceError
from online_psp.io.sources.text import Feed, open_text
from online_psp.io.sources.zarr_store import open_zarr

Opener = Callable[[Place, Options], Source]
_USUAL = {".tsv": "\t", ".tab": "\t", ".txt": " "}


class Format(NamedTuple):
    """A kind of files."""

    name: str
    suffixes: tuple[str, ...]
    """Ends of names, without ``.gz``, ``.bz2``, ``.xz`` or ``.zst``."""
    open: Opener
    magic: tuple[bytes, ...] = ()
    """First bytes."""
    pipe: bool = False
    """Whether it may come from a pipe."""
    archive: bool = True
    """Whether it may be a member of a zip archive: it can be read forward."""
    folder: bool = True
    """Whether a folder of such files is a table."""
    member: bool = False
    """Whether there may be several tables in it, named after ``::``."""


def _picking(opener: Opener) -> Opener:
    """Let an opener that returns all columns, as numbers, return those that the user chose."""
    return lambda place, options: picked(opener(place, options), options.wanted)


def _text(place: Place, options: Options) -> Source:
    return open_text(Feed(place), options, _USUAL.get(suffix_of(place.short), ","))


TEXT = Format("text", (".csv", ".tsv", ".tab", ".txt"), _text, pipe=True)
JSON = Format("jsonl", (".jsonl", ".ndjson", ".json"), lambda place, options: open_json_lines(Feed(place), options), pipe=True)
RAW = Format("raw binary", (".bin", ".raw", ".dat"), _picking(open_raw))
EXCEL = Format("excel", (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods"), open_sheet, (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",), member=True)
NPZ = Format("npz", (".npz",), _picking(open_npz), archive=False, member=True)
ZARR = Format("zarr", (".zarr",), open_zarr, archive=False, folder=False, member=True)
IDX = Format("idx", (".idx",), _picking(open_idx), folder=False)
FORMATS: tuple[Format, ...] = (
    TEXT,
    JSON,
    EXCEL,
    Format("npy", (".npy",), _picking(open_npy), (b"\x93NUMPY",)),
    NPZ,
    Format("parquet", (".parquet", ".pq"), open_arrow, (b"PAR1",), archive=False),
    Format("arrow", (".arrow", ".feather", ".ipc", ".arrows"), open_arrow, (b"ARROW1", b"\xff" * 4), archive=False),
    Format("hdf5", (".h5", ".hdf5", ".hdf", ".h5ad"), open_hdf5, (b"\x89HDF\r\n\x1a\n",), archive=False, folder=False, member=True),
    ZARR,
    Format("matlab", (".mat",), _picking(open_mat), (b"MATLAB 5.0", b"MATLAB 7.3"), member=True),
    Format("matrix market", (".mtx",), open_matrix_market, (b"%%MatrixMarket",), folder=False),
    IDX,
    RAW,
)  # fmt: skip
_BY_SUFFIX = {suffix: each for each in FORMATS for suffix in each.suffixes}


def suffix_of(name: str) -> str:
    """The end of a name that says what is in a file, in lower case and without the ending of a compression; empty if none is known."""
    bare = name.lower()
    for ending in COMPRESSED:
        bare = bare.removesuffix(ending)
    return max((suffix for suffix in (*_BY_SUFFIX, ".zip") if bare.endswith(suffix)), key=len, default="")


def by_name(name: str) -> Format | None:
    """The format that a name tells."""
    found = _BY_SUFFIX.get(suffix_of(name))
    return IDX if found is None and "idx" in Path(name.lower()).name.split("-", 1)[-1] else found


def by_content(place: Place) -> Format | str | None:
    """The format that the first bytes tell, or "zip"; None if they do not tell."""
    found = by_head(place.head(), place.name)
    if found != "zip":
        return found
    try:
        with place.open() as file, zipfile.ZipFile(file) as archive:
            names = archive.namelist()
            kind = archive.read("mimetype")[:100] if "mimetype" in names else b""
    except (zipfile.BadZipFile, OSError, ValueError):
        return "zip"
    if "xl/workbook.xml" in names or "xl/workbook.bin" in names or b"opendocument.spreadsheet" in kind:
        return EXCEL
    return NPZ if names and all(name.endswith(".npy") for name in names) else "zip"


def by_head(head: bytes, name: str) -> Format | str | None:
    """The same, for the first bytes alone."""
    refuse_foreign(head, name)
    if head.startswith(b"PK\x03\x04"):
        return "zip"
    known = IDX if looks_like_idx(head) else next((each for each in FORMATS if each.magic and head.startswith(each.magic)), None)
    if not is_text(head) or (known is not None and known.name in ("matrix market", "matlab")):  # names of columns may begin with PAR1
        return known
    return JSON if head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[") else TEXT


def one_kind(names: list[str], where: str, archive: bool) -> tuple[list[str], str, int]:
    """Pick those of many files that are data, all of one kind; returns them, their kind, and the number of files left out."""
    found: dict[str, list[str]] = {}
    for name in names:
        known = by_name(name)
        if known is not None and (known.archive if archive else known.folder):
            found.setdefault(".txt" if suffix_of(name) == ".txt" else known.name, []).append(name)
        elif known is None and Path(name).suffix.lower() in PICTURES:
            found.setdefault("picture", []).append(name)
    if len(found) > 1:
        found.pop(".txt", None)  # beside other data, text files are notes
    if len(found) != 1:
        held = f" ({', '.join(names[:5])}{', …' if len(names) > 5 else ''})" if names else ""
        what = f"no files of a kind that is known{held}" if not found else f"files of several kinds ({', '.join(sorted(found))})"
        raise UnknownSourceError(f"{where} has {what}; name those to read, as a list or a pattern.")
    ((kind, chosen),) = found.items()
    return chosen, kind, len(names) - len(chosen)
