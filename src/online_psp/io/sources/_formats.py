"""The kinds of files, told by the ends of their names or by their first bytes; and which of many files are data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from online_psp.io.sources._arrow import IPC, PARQUET, open_arrow
from online_psp.io.sources._bytes import COMPRESSED
from online_psp.io.sources._columns import picked
from online_psp.io.sources._contents import check_json, ending_by_content
from online_psp.io.sources._excel import open_excel
from online_psp.io.sources._hdf5 import open_hdf5
from online_psp.io.sources._images import SUFFIXES as PICTURES
from online_psp.io.sources._jsonl import open_jsonl
from online_psp.io.sources._mat import open_mat
from online_psp.io.sources._matrix_market import open_matrix_market
from online_psp.io.sources._numpy import npz_names, open_npy, open_npz
from online_psp.io.sources._options import Options
from online_psp.io.sources._places import Place
from online_psp.io.sources._raw import open_idx, open_raw
from online_psp.io.sources._source import Source, UnknownSourceError
from online_psp.io.sources._sparse import is_sparse_npz, open_sparse_npz
from online_psp.io.sources._text import Feed, open_text
from online_psp.io.sources._zarr import open_zarr

Opener = Callable[[Place, Options], Source]


def _text(usual: str) -> Opener:
    return lambda place, options: open_text(Feed(place.name, place), options, usual)


def _npz(place: Place, options: Options) -> Source:
    names = npz_names(place)
    if options.member is None and is_sparse_npz(names):
        return open_sparse_npz(place, names, options)
    return open_npz(place, options)


def _json(place: Place, options: Options) -> Source:
    check_json(place)
    return open_jsonl(Feed(place.name, place), options)


def _picking(opener: Opener) -> Opener:
    """Let an opener that returns all columns, as numbers, return those that the user chose."""
    return lambda place, options: picked(opener(place, options), options.wanted)


#: Opener for each kind of file, by the end of its name without ``.gz``, ``.bz2``, ``.xz`` or ``.zst``.
FORMATS: dict[str, Opener] = {
    ".npy": _picking(open_npy),
    ".npz": _picking(_npz),
    ".mtx": open_matrix_market,
    ".csv": _text(","),
    **dict.fromkeys((".tsv", ".tab"), _text("\t")),
    ".txt": _text(" "),
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), _json),
    **dict.fromkeys((".xlsx", ".xlsm"), open_excel),
    **dict.fromkeys((*PARQUET, *IPC), open_arrow),
    **dict.fromkeys((".h5", ".hdf5", ".hdf", ".h5ad"), open_hdf5),
    ".zarr": open_zarr,
    **dict.fromkeys((".bin", ".raw", ".dat"), _picking(open_raw)),
    ".mat": _picking(open_mat),
    ".idx": _picking(open_idx),
}
_KINDS = {suffix: suffix for suffix in FORMATS} | {
    **dict.fromkeys((".tsv", ".tab"), ".csv"), ".ndjson": ".jsonl", ".xlsm": ".xlsx", ".pq": ".parquet",
    **dict.fromkeys((".feather", ".ipc"), ".arrow"),
    **dict.fromkeys((".hdf5", ".hdf", ".h5ad"), ".h5"), **dict.fromkeys((".raw", ".dat"), ".bin"), **dict.fromkeys(PICTURES, "picture"),
}  # fmt: skip
_IN_FOLDERS = (".csv", ".txt", ".npy", ".npz", ".jsonl", ".parquet", ".arrow", "picture", ".bin", ".xlsx", ".mat")
SAY_LITTLE = (None, ".bin", ".dat", ".raw")
OF_TEXT = (".csv", ".tsv", ".tab", ".txt")


def suffix_of(name: str) -> str | None:
    """The end of a name that says what is in a file, in lower case and without the ending of a compression."""
    bare = name.lower()
    for ending in COMPRESSED:
        bare = bare.removesuffix(ending)
    found = max((suffix for suffix in FORMATS if bare.endswith(suffix)), key=len, default=None)
    return ".idx" if found in (None, ".idx") and "idx" in Path(bare).name.split("-", 1)[-1] and "idx" in bare else found


def suffix_by_content(place: Place, named: str | None) -> str | None:
    """The ending of a file, or the one that it should have, if the name says little or wrongly says that the file is text."""
    if named not in (*SAY_LITTLE, *OF_TEXT) or (named in OF_TEXT and place.path is None):
        return named
    found = ending_by_content(place)
    if found is None or (found in (".txt", ".json", ".mtx") and named not in (None, ".dat")):
        return named
    return found


def check_copies(names: Sequence[str], where: str) -> None:
    """Refuse a file that lies beside its compressed copy: its rows would count twice."""
    seen: dict[str, str] = {}
    for name in names:
        bare = next((name[: -len(ending)] for ending in COMPRESSED if name.lower().endswith(ending)), name)
        if bare in seen:
            raise UnknownSourceError(f"{where} has both {seen[bare]} and {name}, whose rows would count twice; name those to read.")
        seen[bare] = name


def one_kind(names: list[str], where: str) -> tuple[list[str], str, int]:
    """Pick those of many files that are data, all of one kind; returns them, their kind, and the number of files left out."""
    found: dict[str, list[str]] = {}
    for name in names:
        suffix = suffix_of(name)
        kind = _KINDS.get(suffix or "") or ("picture" if Path(name).suffix.lower() in PICTURES else None)
        if kind in _IN_FOLDERS:
            found.setdefault(kind, []).append(name)
    if len(found) > 1:
        found.pop(".txt", None)  # beside other data, text files are notes
    if len(found) != 1:
        held = f" ({', '.join(names[:5])}{', …' if len(names) > 5 else ''})" if names else ""
        what = f"no files of a kind that is known{held}" if not found else f"files of several kinds ({', '.join(sorted(found))})"
        raise UnknownSourceError(f"{where} has {what}; name those to read, as a list or a pattern.")
    ((kind, chosen),) = found.items()
    return chosen, kind, len(names) - len(chosen)
