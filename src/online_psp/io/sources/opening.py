"""Opens sources: files, folders, patterns, archives, URLs, pipes, objects."""

from __future__ import annotations

import contextlib
import errno
import numbers
import os
import sys
import weakref
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote

from numpy.typing import DTypeLike

from online_psp.io.sources.columns import Columns, Wanted
from online_psp.io.sources.formats import FORMATS, JSON, RAW, TEXT, ZARR, Format, by_content, by_head, by_name, one_kind
from online_psp.io.sources.json_lines import open_json_lines
from online_psp.io.sources.matrix_market import is_ten_x_folder
from online_psp.io.sources.memory import open_object
from online_psp.io.sources.options import Options, TextOptions
from online_psp.io.sources.pictures import SUFFIXES as PICTURES
from online_psp.io.sources.pictures import open_pages, open_pictures
from online_psp.io.sources.places import (
    PIECE,
    Place,
    expand,
    files_in,
    in_zip,
    is_url,
    local,
    natural_key,
    remote,
    similar,
    some,
    split_member,
    zip_members,
)
from online_psp.io.sources.several import open_several
from online_psp.io.sources.source import Source, SourceError, UnknownSourceError, default_max_memory, reason
from online_psp.io.sources.text import Feed, open_text


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
    grey: bool = False,
    time_axis: int | None = None,
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
        Number of values per row of a raw binary file.
    columns, exclude : names, numbers (from 0), ranges ("3-7") or patterns ("gene_*"), optional
        Columns to learn from, or to leave out.
    header : bool, optional
        Whether text begins with column names; detected by default.
    delimiter, decimal, comment, skip_rows, encoding : optional
        Format of text; detected from the first lines by default. ``delimiter`` may be "tab" or "whitespace".
    thousands : str, optional
        Sign between thousands in text; none by default.
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
    grey : bool
        Whether to turn colour pictures into grey ones.
    time_axis : {0, 2}, optional
        Of an array of three dimensions, the axis along which rows are; the first by default. A movie H×W×T has 2.
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
    missing_texts = [na_values] if isinstance(na_values, str) else na_values
    text = TextOptions(header, delimiter, decimal, missing_texts, comment, skip_rows, encoding, keep_index, thousands)
    wanted = Wanted(columns, exclude, ids, time_column)
    options = Options(dtype, features, wanted, text, None, missing, grey, time_axis, max_memory or default_max_memory())
    try:
        return _open(source, options)
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


def _shown(source: Any) -> str:
    return os.fspath(source) if isinstance(source, str | os.PathLike) else f"the {type(source).__name__}"


def _check_number(value: Any, said: str) -> None:
    """Raise an UnknownSourceError for what is neither a number nor None."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, numbers.Real)):
        raise UnknownSourceError(f"{said}; got {value!r}.")


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
    stream: Any = sys.stdin.buffer
    with contextlib.suppress(OSError, AttributeError):  # without Python's buffer, on which a thread that waits would keep the lock
        stream = open(stream.fileno(), "rb", buffering=0, closefd=False)  # noqa: SIM115
    return _open_stream(stream, "standard input", options)


def _open_name(name: str, options: Options) -> Source:
    if not name:
        raise UnknownSourceError("An empty name is not a source; the folder that you are in is called . (a point).")
    file, member = split_member(unquote(name[7:]) if name.lower().startswith("file://") else name)
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
    shown = f"{names[0]} … {names[-1]}"
    if all(map(os.path.isfile, names)):
        return _open_places([local(Path(name)) for name in names], options, shown)
    return _open_files(names, options, shown)


def _open_files(files: Sequence[Any], options: Options, name: str) -> Source:
    """Open several files as one table."""
    if "-" in files:
        raise UnknownSourceError("Standard input (-) cannot be one of several sources.")
    return open_several([partial(_open_place if isinstance(file, Place) else _open, file, options) for file in files], name)


def _open_stream(stream: BinaryIO, name: str, options: Options) -> Source:
    """Open standard input, or a named pipe such as ``<(zcat x.csv.gz)``."""
    if options.features is not None:
        raise UnknownSourceError(f"Raw binary is read from files; write {name} to one, or give text or JSON lines.")
    place = Place(name, lambda: stream)
    clear: Any = place.clear()
    feed = Feed(place, clear)
    while len(feed.seen) < 16 and b"\n" not in feed.seen and (piece := some(clear, PIECE)):
        feed.seen += piece
    found = by_head(feed.seen, name) if feed.seen else TEXT
    if isinstance(found, str) or (found is not None and not found.pipe):
        what = found if isinstance(found, str) else found.name
        raise UnknownSourceError(
            f"{name} gives a file of a kind that must be searched ({what}), which a pipe cannot be: give the file itself."
        )
    return open_json_lines(feed, options) if found is JSON else open_text(feed, options, ",")


def _open_places(places: list[Place], options: Options, name: str) -> Source:
    if len(places) == 1:
        return _open_place(places[0], options)
    if all(Path(place.short).suffix.lower() in PICTURES and place.path is not None for place in places):
        return open_pictures(places, options, name, Path(os.path.commonpath([place.path.parent for place in places if place.path])))
    return _open_files(places, options, name)


def _open_place(place: Place, options: Options) -> Source:
    named, zipped = by_name(place.short), place.short.lower().endswith(".zip")
    found: Format | str | None = RAW
    if named is ZARR:
        found = ZARR
    elif options.features is None or zipped:
        looked = by_content(place)
        binary = named is RAW and not place.short.lower().endswith(".dat")
        of_name = looked is None or named not in (None, RAW, TEXT) or (looked in (TEXT, JSON) and (binary or named is TEXT))
        found = named if of_name else looked
    elif named not in (None, RAW):
        raise UnknownSourceError(f"{place.name} is not raw binary, by its name: leave out features, or let it end in .bin.")
    if found == "zip":
        return _open_zip(place, options)
    if not isinstance(found, Format):
        if Path(place.short).suffix.lower() in PICTURES:
            return open_pages(place, options)
        raise UnknownSourceError(
            f"{place.name} is of no known kind, by name or first bytes: {', '.join(each.name for each in FORMATS)} and pictures can be "
            "read; for raw binary give --set features=… and --set dtype=…."
        )
    if options.member is not None and not found.member:
        raise UnknownSourceError(f"{place.name} holds one table; leave out ::{options.member}.")
    source = _opened(found, place, options)
    if found is not named:
        source.notes.append(f"read as {found.name}, by its first bytes")
    return source


def _opened(format_: Format, place: Place, options: Options) -> Source:
    """Open a file of a known format; whatever a library raises for a damaged one becomes one sentence."""
    try:
        return format_.open(place, options)
    except (SourceError, MemoryError, KeyboardInterrupt):
        raise
    except BaseException as error:  # where calamine panics, that is no Exception
        if isinstance(error, OSError) and error.errno == errno.EACCES:
            raise
        raise SourceError(f"{place.name} cannot be read as {format_.name} ({reason(error)}).") from None


def _open_zip(place: Place, options: Options) -> Source:
    members = zip_members(place)
    member = options.member
    if member is not None and member not in members:
        raise UnknownSourceError(
            f"{place.name} has no file {member!r}; it has {', '.join(members[:8])}{', …' if len(members) > 8 else ''}."
        )
    chosen = [member] if member is not None else one_kind(members, place.name, archive=True)[0]
    return _open_places([in_zip(place, each) for each in chosen], replace(options, member=None), place.name)


def _open_folder(path: Path, options: Options) -> Source:
    if path.name.lower().endswith(".zarr") or any((path / mark).exists() for mark in ("zarr.json", ".zarray", ".zgroup")):
        return _opened(ZARR, Place(str(path), lambda: path.open("rb"), path), options)
    files = files_in(path)
    if (matrix := is_ten_x_folder(path)) is not None:
        return _open_place(local(matrix), options)
    relative = [file.relative_to(path).as_posix() for file in files]
    chosen, kind, others = one_kind(relative, str(path), archive=False)
    chosen = sorted(chosen, key=natural_key)
    places = [local(path / each) for each in chosen]
    if kind == "picture":
        found = open_pictures(places, options, str(path), path)
    else:
        found = _open_place(places[0], options) if len(places) == 1 else _open_files(places, options, str(path))
    if others:
        found.notes.append(f"{others} other file{'s' if others != 1 else ''} in {path} left out")
    return found
