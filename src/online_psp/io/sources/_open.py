"""Opens sources: files, folders, patterns, archives, URLs, objects."""

from __future__ import annotations

import numbers
import os
import sys
import weakref
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import DTypeLike

from online_psp.io.sources._columns import Columns, Wanted, picked
from online_psp.io.sources._contents import ending_by_content, ending_by_head, refuse_array
from online_psp.io.sources._formats import FORMATS, OF_TEXT, SAY_LITTLE, check_copies, one_kind, suffix_by_content, suffix_of
from online_psp.io.sources._images import SUFFIXES as PICTURES
from online_psp.io.sources._images import open_images
from online_psp.io.sources._jsonl import open_jsonl
from online_psp.io.sources._matrix_market import is_ten_x_folder
from online_psp.io.sources._memory import open_object
from online_psp.io.sources._options import Options
from online_psp.io.sources._places import (
    Place,
    expand,
    files_in,
    in_zip,
    is_url,
    local,
    natural_key,
    remote,
    similar,
    split_member,
    zip_members,
)
from online_psp.io.sources._raw import open_raw_stream
from online_psp.io.sources._several import open_several
from online_psp.io.sources._sniff import TextOptions
from online_psp.io.sources._source import Source, SourceError, UnknownSourceError, default_max_memory, reason
from online_psp.io.sources._text import Feed, open_text
from online_psp.io.sources._zarr import open_zarr

_OF_USE = {
    "excel": ("header", "decimal", "thousands", "na_values", "skip_rows", "keep_index"),
    "jsonl": ("header", "decimal", "thousands", "na_values", "encoding", "keep_index"),
    **dict.fromkeys(("parquet", "arrow"), ("na_values", "keep_index")),
}
"""Options for text that other kinds of sources have a use for."""


def open_source(
    source: Any,
    *,
    dtype: DTypeLike | None = None,
    features: int | None = None,
    columns: Columns = None,
    exclude: Columns = None,
    header: bool | None = None,
    delimiter: str | None = None,
    decimal: str | None = None,
    thousands: str | None = None,
    na_values: Sequence[str] | str | None = None,
    comment: str | None = None,
    skip_rows: int | None = None,
    encoding: str | None = None,
    ids: Columns = None,
    time_column: str | int | None = None,
    keep_index: bool | None = None,
    missing: str = "error",
    final: bool | None = None,
    grey: bool = False,
    max_memory: int | None = None,
) -> Source:
    """Open a source of rows.

    Parameters
    ----------
    source : path, URL, pattern, "-", array, or iterable; or a list of the first four
        A file (`FORMATS`; ``file.h5::/dataset``, ``file.npz::name``, ``archive.zip::member`` and ``book.xlsx::sheet`` pick what is inside
        it), several of them (a list, a pattern such as ``logs/*.csv.gz``, a folder), in natural order as one table, ``-`` for standard
        input, a two-dimensional array, sparse matrix or data frame, or an iterable of rows or blocks of rows. Sparse files (SciPy's
        ``.npz``, Matrix Market, 10x and AnnData) and matrices give blocks of CSR rows, and are never made dense.
    dtype : dtype, optional
        Working precision, float32 or float64; by default float32 data stays float32 and everything else becomes float64. For raw binary
        data, its dtype.
    features : int, optional
        Number of values per row of raw binary data. If given, standard input is read as raw binary, otherwise as text.
    columns, exclude : names, numbers (from 0), ranges ("3-7") or patterns ("gene_*"), optional
        Columns to learn from, or to leave out.
    header : bool, optional
        Whether text begins with column names; detected by default.
    delimiter, decimal, thousands, comment, skip_rows, encoding : optional
        Format of text; detected from the first lines by default. ``delimiter`` may be "tab" or "whitespace".
    na_values : sequence of str, optional
        Texts that stand for missing values, besides the usual ones.
    ids : columns, optional
        ID columns, which are not learned, but passed on as strings in `Block.ids`. For AnnData, also "obs_names" or a column of obs; for
        10x files, "barcodes"; for folders of pictures, "file".
    time_column : column, optional
        Column of times, which is not learned, but passed on in `Block.times`.
    keep_index : bool, optional
        Whether to learn an unnamed first column of row numbers; it is left out by default.
    missing : {"error", "keep"}
        "keep" leaves missing values in the rows, as NaN.
    final : bool, optional
        Whether a last line without a line end is a row. By default it is, unless the file changes while it is read.
    grey : bool
        Whether to turn colour pictures into grey ones.
    max_memory : int, optional
        Largest number of bytes that one block may take; a quarter of the machine's memory by default.

    Raises
    ------
    SourceError
        If the data cannot be used. Its subclasses: `UnknownSourceError`, if something is not recognised as a source, and
        `MissingExtraError`, if the library for a format is not installed.
    """
    _check_number(max_memory, "max_memory is a number of bytes")
    _check_number(features, "features is a number of columns")
    if features is not None and features < 1:
        raise UnknownSourceError(f"A row must have at least 1 feature; got {features}.")
    if missing not in ("error", "keep"):
        raise UnknownSourceError(f"Missing values are an error or to keep (missing='error' or 'keep'); got {missing!r}.")
    if max_memory is not None and max_memory < 1 << 16:
        raise UnknownSourceError(f"At least 64 kB must be allowed for a block; got max_memory={max_memory}.")
    _check_dtype(dtype, features)
    missing_texts = [na_values] if isinstance(na_values, str) else na_values
    text = TextOptions(header, delimiter, decimal, missing_texts, comment, skip_rows, encoding, keep_index, thousands)
    wanted = Wanted(columns, exclude, ids, time_column)
    options = Options(dtype, features, wanted, text, None, missing, final, grey, max_memory or default_max_memory())
    try:
        found = _open(source, options)
        found.warnings.extend(_without_effect(found, options.text))
        return found
    except SourceError:
        raise
    except MemoryError:
        raise SourceError(f"{_shown(source)} cannot be opened: there is not enough memory.") from None
    except OSError as error:
        raise SourceError(f"{error.filename or _shown(source)} cannot be read: {error.strerror or reason(error)}.") from None
    except Exception as error:
        if isinstance(source, str | os.PathLike | list | tuple):  # a library has failed on a damaged file
            raise SourceError(f"{_shown(source)} cannot be read ({type(error).__name__}: {reason(error)}).") from error
        raise


def _without_effect(source: Source, given: TextOptions) -> list[str]:
    """Warnings of options for text that the reader of another kind of file does not look at."""
    idle = [] if source.kind == "text" else [name for name, value in given._asdict().items() if value not in (None, 0, [])]
    names = [name for name in idle if name not in _OF_USE.get(source.kind, ("na_values",))]
    return [f"{name} is for text, and has no effect on {source.name}" for name in names]


def _shown(source: Any) -> str:
    return os.fspath(source) if isinstance(source, str | os.PathLike) else f"the {type(source).__name__}"


def _check_number(value: Any, said: str) -> None:
    """Raise an UnknownSourceError for what is neither a number nor None."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, numbers.Real)):
        raise UnknownSourceError(f"{said}; got {value!r}.")


def _check_dtype(dtype: Any, features: int | None) -> None:
    if dtype is None:
        return
    try:
        kind = np.dtype(dtype)
    except TypeError:
        raise UnknownSourceError(f"There is no type {dtype!r}: the working precision must be float32 or float64.") from None
    if features is None and kind not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise UnknownSourceError(f"The working precision must be float32 or float64; got {kind}.")


def _open(source: Any, options: Options) -> Source:
    if isinstance(source, list | tuple) and source and all(isinstance(each, str | os.PathLike) for each in source):
        if len(source) > 1:
            return _open_list([os.fspath(each) for each in source], options)
        source = source[0]
    if not isinstance(source, str | os.PathLike):
        return open_object(source, options)
    name = os.fspath(source)
    return _open_standard_input(options) if name == "-" else _open_name(name, options)


def _open_standard_input(options: Options) -> Source:
    if sys.stdin is None:
        raise UnknownSourceError("Standard input is closed, so there is nothing to read from it.")
    return _open_stream(sys.stdin.buffer, "standard input", options)


def _open_name(name: str, options: Options) -> Source:
    if not name:
        raise UnknownSourceError("An empty name is not a source; the folder that you are in is called . (a point).")
    file, member = split_member(name)
    options = replace(options, member=member)
    if is_url(file):
        return _open_places(remote(file), options, file)
    paths = expand(file)
    if paths is not None:
        return _open_places([local(path) for path in paths], options, file)
    path = Path(file if os.path.exists(file) else os.path.expanduser(file))
    if not path.exists():
        nowhere = " is a symbolic link that leads nowhere" if path.is_symlink() else f" does not exist{similar(path)}"
        raise UnknownSourceError(f"{file}{nowhere}.")
    if path.is_dir():
        return _open_folder(path, options)
    if not path.is_file():
        stream = path.open("rb", buffering=0)
        found = _open_stream(stream, file, options)
        weakref.finalize(found, stream.close)
        return found
    return _open_place(local(path, file), options)


def _open_list(names: list[str], options: Options) -> Source:
    """Open files that were listed, in the order given; those of a pattern or a folder are in natural order."""
    if "-" in names:
        raise UnknownSourceError("Standard input (-) cannot be one of several sources.")
    found = _open_files(names, options, f"{names[0]} … {names[-1]}")
    twice = next((name for at, name in enumerate(names) if name in names[:at]), None)
    if twice is not None:
        found.warnings.append(f"{twice} is given more than once; its rows count as often")
    return found


def _open_files(files: Sequence[Any], options: Options, name: str) -> Source:
    """Open several files as one table. A column to leave out must be in at least one of them."""
    wanted = options.wanted
    if wanted.exclude is None or wanted.absent is not None:
        return open_several([partial(_with_columns, file, options) for file in files], name)
    absent: list[set[str | int]] = []
    options = replace(options, wanted=wanted._replace(absent=absent))
    found = open_several([partial(_with_columns, file, options) for file in files], name)
    nowhere = set.intersection(*absent) if absent else set()
    if nowhere:
        raise UnknownSourceError(f"None of the files of {name} has a column {min(map(str, nowhere))!r} to leave out (--exclude).")
    return found


def _with_columns(source: Any, options: Options, names: list[str] | None) -> Source:
    """Open one of several files, with its columns in the order of `names`, if given."""
    if names is not None:
        options = replace(options, wanted=options.wanted._replace(columns=names, exclude=None))
    return _open_place(source, options) if isinstance(source, Place) else _open(source, options)


def _open_stream(stream: BinaryIO, name: str, options: Options) -> Source:
    """Open standard input, or a named pipe such as ``<(zcat x.csv.gz)``."""
    if options.features is not None:
        return picked(open_raw_stream(stream, name, options), options.wanted)
    feed = Feed(name, stream=stream)
    first = next((piece for piece in _peeked(feed)), b"")
    ending = ending_by_head(first, name)
    if first.lstrip()[:1] in (b"{", b"["):
        refuse_array(first, name)
        return open_jsonl(feed, options)
    if ending == ".mtx":
        raise UnknownSourceError(f"{name} is in Matrix Market format, which cannot be read from a pipe: give the file itself.")
    if ending not in (None, ".txt"):
        raise UnknownSourceError(
            f"{name} gives a binary file ({ending}), which must be searched: give the file itself, or raw rows with "
            "--set features=… and --set dtype=…."
        )
    return open_text(feed, options, ",")


def _peeked(feed: Feed) -> list[bytes]:
    """The first piece of a stream; it is put back, to be read again."""
    for piece in feed.clear():
        if piece:
            feed.seen.insert(0, piece)
            return [piece]
    return []


def _open_places(places: list[Place], options: Options, name: str) -> Source:
    if len(places) == 1:
        return _open_place(places[0], options)
    check_copies([place.name for place in places], name)
    if all(Path(place.short).suffix.lower() in PICTURES for place in places) and all(place.path is not None for place in places):
        paths = [place.path for place in places if place.path is not None]
        return open_images(paths, options, name, Path(os.path.commonpath([path.parent for path in paths])))
    return _open_files(places, options, name)


def _open_place(place: Place, options: Options) -> Source:
    named = ".zip" if place.name.lower().endswith(".zip") else suffix_of(place.short)
    if options.features is not None:
        if named not in (*SAY_LITTLE, ".zip"):
            raise UnknownSourceError(f"{place.name} is not raw binary, by its name: leave out features, or let it end in .bin.")
        named = named or ".bin"
    suffix = suffix_by_content(place, named) if options.features is None else named
    if suffix == ".zip":
        return _open_zip(place, options)
    if suffix is None:
        if Path(place.short).suffix.lower() in PICTURES:
            raise UnknownSourceError(f"{place.name} is one picture, which is one row; name the folder with all of them.")
        raise UnknownSourceError(
            f"{place.name} is of no known kind, by name or first bytes: text, JSON lines, Excel, NumPy, Parquet, Arrow, HDF5, Zarr, "
            "Matrix Market, MATLAB and pictures can be read; for raw binary give --set features=… and --set dtype=…."
        )
    if options.member is not None and suffix not in (".npz", ".h5", ".hdf5", ".hdf", ".h5ad", ".zarr", ".xlsx", ".xlsm", ".mat"):
        raise UnknownSourceError(f"{place.name} holds one table; leave out ::{options.member}.")
    if suffix == named:
        return _open_as_named(place, suffix, options)
    found = FORMATS[suffix](place, options)
    found.notes.append(f"read as {'text' if suffix == '.txt' else suffix}, by its first bytes")
    return found


def _open_as_named(place: Place, suffix: str, options: Options) -> Source:
    try:
        return FORMATS[suffix](place, options)
    except UnknownSourceError:
        raise
    except SourceError:
        wrong = (
            suffix not in (*OF_TEXT, *SAY_LITTLE, ".jsonl", ".ndjson", ".json", ".mtx") and place.path is not None and place.path.is_file()
        )
        if wrong and ending_by_content(place) in (".txt", ".json"):
            raise SourceError(f"{place.name} is text, and its name says otherwise: let it end in .csv, .txt or .jsonl.") from None
        raise


def _open_zip(place: Place, options: Options) -> Source:
    members = zip_members(place)
    member = options.member
    if member is not None and member not in members:
        raise UnknownSourceError(
            f"{place.name} has no file {member!r}; it has {', '.join(members[:8])}{', …' if len(members) > 8 else ''}."
        )
    chosen = [member] if member is not None else one_kind(members, place.name)[0]
    return _open_places([in_zip(place, each) for each in chosen], replace(options, member=None), place.name)


def _open_folder(path: Path, options: Options) -> Source:
    if path.name.lower().endswith(".zarr") or any((path / mark).exists() for mark in ("zarr.json", ".zarray", ".zgroup")):
        place = Place(str(path), lambda: path.open("rb"), None, path)
        return open_zarr(place, options)
    files = files_in(path)
    if (matrix := is_ten_x_folder(path)) is not None:
        return _open_place(local(matrix), options)
    relative = [file.relative_to(path).as_posix() for file in files]
    chosen, kind, others = one_kind(relative, str(path))
    chosen = sorted(chosen, key=natural_key)
    check_copies(chosen, str(path))
    if kind == "picture":
        found = open_images([path / each for each in chosen], options, str(path), path)
    elif len(chosen) == 1:
        found = _open_place(local(path / chosen[0]), options)
    else:
        found = _open_files([local(path / each) for each in chosen], options, str(path))
    if others:
        found.notes.append(f"{others} other file{'s' if others != 1 else ''} in {path} left out")
    return found
