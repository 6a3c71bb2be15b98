"""Pictures of one size, each a row: those of a folder, in the natural order of their names, or the pages of one file."""

from __future__ import annotations

import contextlib
import itertools
import operator
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from online_psp.engine.types import Array
from online_psp.io.sources.columns import listed
from online_psp.io.sources.options import Options
from online_psp.io.sources.places import Place, check_once, local
from online_psp.io.sources.source import Chunk, Mark, MissingExtraError, Source, SourceError, UnknownSourceError, reason, working_dtype

SUFFIXES = (".png", ".jpg", ".jpeg", ".pgm", ".ppm", ".tif", ".tiff", ".bmp", ".gif", ".webp")
_FORMATS = ("PNG", "JPEG", "PPM", "TIFF", "BMP", "GIF", "WEBP")  # and no others, whatever the name says: some formats run programs
_GREY = ("1", "L", "LA", "I", "I;16", "I;16B", "I;16L", "F")
_AT_ONCE = 32
_Page = tuple[Path, int]


def open_pictures(places: list[Place], options: Options, name: str, root: Path) -> Source:
    """Open pictures as rows: grey ones have one feature per pixel, others three.

    Parameters
    ----------
    root : path
        The folder; files are named by their place in it.
    """
    paths = [place.path for place in places if place.path is not None]
    check_once(map(str, paths), name)
    names = [path.relative_to(root).as_posix() for path in paths]
    files = tuple(local(path, label) for path, label in zip(paths, names, strict=True))
    return _source([(path, 0) for path in paths], names, files, options, name, "pictures")


def open_pages(place: Place, options: Options) -> Source:
    """Open one file of several pages, as TIFF and GIF have them: each page is a row."""
    if place.path is None:
        raise UnknownSourceError(f"{place.name} is a picture inside something else: give the file itself.")
    image = _pillow(place.name)
    with image.open(place.path, formats=_FORMATS) as picture:
        pages = int(getattr(picture, "n_frames", 1))
    if pages == 1:
        raise UnknownSourceError(f"{place.name} is one picture, which is one row; name the folder with all of them.")
    names = [f"page {page}" for page in range(1, pages + 1)]
    return _source([(place.path, page) for page in range(pages)], names, (place,), options, place.name, "pages")


def _pillow(name: str) -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtraError(f"Reading {name}, a picture, needs Pillow: pip install 'online-psp[images]'.") from None
    return Image


def _source(pages: Sequence[_Page], names: list[str], files: tuple[Place, ...], options: Options, name: str, what: str) -> Source:
    if listed(options.wanted.ids) not in (None, ["file"]):
        raise UnknownSourceError(f"{name} holds pictures, and their ids are their file names: --ids file; got {options.wanted.ids}.")
    image = _pillow(name)

    def pixels_of(some: Sequence[_Page], dimensions: int | None) -> Generator[Array | str]:
        for path, group in itertools.groupby(some, operator.itemgetter(0)):
            yield from _pixels(image, path, (page for _, page in group), dimensions, options.max_memory)

    with contextlib.closing(pixels_of(pages, 2 if options.grey else None)) as tried:
        said = first = next(tried)
        while isinstance(first, str):  # the first that can be read tells the size of all
            if (found := next(tried, None)) is None:
                raise SourceError(f"{pages[0][0]} {said}.")
            first = found
    shape, size = first.shape, first.size

    def read(begin: Mark) -> Iterator[Chunk]:
        each = pixels_of(pages[begin.row :], len(shape))
        for at in range(begin.row, len(pages), _AT_ONCE):
            rows, bad = [], {}
            for i, pixels in enumerate(itertools.islice(each, _AT_ONCE)):
                if isinstance(pixels, str):
                    bad[i] = pixels
                elif pixels.shape != shape:
                    bad[i] = f"has {pixels.shape[1]}×{pixels.shape[0]} pixels where {shape[1]}×{shape[0]} are expected"
                else:
                    rows.append(pixels.reshape(-1))
            count = len(rows) + len(bad)
            labels = np.array(names[at : at + count], dtype=object)[:, np.newaxis] if options.wanted.ids else None
            yield Chunk(count, np.array(rows).reshape(len(rows), size), bad, labels)

    return Source(
        name, size, working_dtype(first.dtype, options.dtype, name), read, len(pages), image_shape=shape,
        place=lambda row, mark: names[row],
        notes=[f"{len(pages)} {what} of {shape[1]}×{shape[0]} pixels, {'grey' if len(shape) == 2 else 'in colour'}"],
        kind="pictures", files=files, **options.common(),
    )  # fmt: skip


def _pixels(image: Any, path: Path, pages: Iterable[int], dimensions: int | None, limit: int) -> Iterator[Array | str]:
    """The pixels of some pages of a file, or what is wrong with each."""
    with contextlib.ExitStack() as file:
        opened = cache(lambda: file.enter_context(image.open(path, formats=_FORMATS)))
        for page in pages:  # to find a page, those before it are passed
            yield _page(opened, page, dimensions, limit)


def _page(opened: Callable[[], Any], page: int, dimensions: int | None, limit: int) -> Array | str:
    """The pixels of a page, or what is wrong with it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow's own limit of size; we have ours
            picture = opened()
            if page:
                picture.seek(page)
            if picture.width * picture.height * 4 * 3 > limit:
                raise ValueError(f"its {picture.width}×{picture.height} pixels take more than the memory allowed, max_memory")
            if not (dimensions == 2 if dimensions else picture.mode in _GREY):
                return np.array(picture.convert("RGB"))
            as_stored = picture.mode in ("I", "F") or picture.mode.startswith("I;16")
            return np.array(picture if as_stored else picture.convert("L"))
    except Exception as error:  # Pillow raises nearly anything for damaged pictures
        return f"is not a picture that can be read ({reason(error)})"
