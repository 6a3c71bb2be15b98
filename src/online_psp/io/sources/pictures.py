"""Pictures of one size: each of a folder is a row, in the natural order of their names, or each page of one file."""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from online_psp.engine.types import Array
from online_psp.io.sources.columns import listed
from online_psp.io.sources.options import Options
from online_psp.io.sources.places import Place, local
from online_psp.io.sources.source import Chunk, Mark, MissingExtraError, Source, SourceError, UnknownSourceError, reason, working_dtype

SUFFIXES = (".png", ".jpg", ".jpeg", ".pgm", ".ppm", ".tif", ".tiff", ".bmp", ".gif", ".webp")
_FORMATS = ("PNG", "JPEG", "PPM", "TIFF", "BMP", "GIF", "WEBP")  # and no others, whatever the name says: some formats run programs
_GREY = ("1", "L", "LA", "I", "I;16", "I;16B", "I;16L", "F")
_AT_ONCE = 32


def open_pictures(places: list[Place], options: Options, name: str, root: Path) -> Source:
    """Open pictures as rows: grey ones have one feature per pixel, others three.

    Parameters
    ----------
    root : path
        The folder; files are named by their place in it.
    """
    paths = [place.path for place in places if place.path is not None]
    ids = listed(options.wanted.ids)
    if ids not in (None, ["file"]):
        raise UnknownSourceError(f"{name} is a folder of pictures, and their ids are their file names: --ids file; got {ids}.")
    if find_spec("PIL") is None:
        raise MissingExtraError(f"Reading {name}, a folder of pictures, needs Pillow: pip install 'online-psp[images]'.")
    first, problem = None, ""
    for path in paths:  # the first that can be read tells the size of all
        first = _pixels(path, 2 if options.grey else None, options.max_memory)
        if not isinstance(first, str):
            break
        problem = problem or f"{path} {first}"
    if first is None or isinstance(first, str):
        raise SourceError(f"{problem}.")
    shape = first.shape
    names = [path.relative_to(root).as_posix() for path in paths]

    def read(begin: Mark) -> Iterator[Chunk]:
        for at in range(begin.row, len(paths), _AT_ONCE):
            rows, bad = [], {}
            for i, path in enumerate(paths[at : at + _AT_ONCE]):
                pixels = _pixels(path, len(shape), options.max_memory)
                if isinstance(pixels, str):
                    bad[i] = pixels
                elif pixels.shape != shape:
                    bad[i] = f"has {pixels.shape[1]}×{pixels.shape[0]} pixels where {shape[1]}×{shape[0]} are expected"
                else:
                    rows.append(pixels.reshape(-1))
            count = len(rows) + len(bad)
            labels = np.array(names[at : at + count], dtype=object)[:, np.newaxis] if ids else None
            yield Chunk(count, np.array(rows).reshape(len(rows), first.size), bad, labels)

    return Source(
        name, first.size, working_dtype(first.dtype, options.dtype, name), read, len(paths), image_shape=shape,
        place=lambda row, mark: names[row],
        notes=[f"{len(paths)} pictures of {shape[1]}×{shape[0]} pixels, {'grey' if len(shape) == 2 else 'in colour'}"],
        kind="pictures", files=tuple(local(path, label) for path, label in zip(paths, names, strict=True)), **options.common(),
    )  # fmt: skip


def open_pages(place: Place, options: Options) -> Source:
    """Open one file of several pages, as TIFF and GIF have them: each page is a row."""
    name = place.name
    if place.path is None:
        raise UnknownSourceError(f"{name} is a picture inside something else: give the file itself.")
    if find_spec("PIL") is None:
        raise MissingExtraError(f"Reading {name} needs Pillow: pip install 'online-psp[images]'.")
    path, dimensions = place.path, 2 if options.grey else None
    first = next(_read(path, [0], dimensions, options.max_memory))
    if isinstance(first, str):
        raise SourceError(f"{name} {first}.")
    shape, pages = first.shape, _count(path)
    if pages == 1:
        raise UnknownSourceError(f"{name} is one picture, which is one row; name the folder with all of them.")

    def read(begin: Mark) -> Iterator[Chunk]:
        found = _read(path, range(begin.row, pages), len(shape), options.max_memory)
        for at in range(begin.row, pages, _AT_ONCE):
            rows, bad = [], {}
            for i, pixels in enumerate(itertools.islice(found, min(_AT_ONCE, pages - at))):
                if isinstance(pixels, str) or pixels.shape != shape:
                    bad[i] = pixels if isinstance(pixels, str) else "is a page of another size"
                else:
                    rows.append(pixels.reshape(-1))
            yield Chunk(len(rows) + len(bad), np.array(rows).reshape(len(rows), first.size), bad)

    return Source(
        name, first.size, working_dtype(first.dtype, options.dtype, name), read, pages, image_shape=shape,
        notes=[f"{pages} pages of {shape[1]}×{shape[0]} pixels, {'grey' if len(shape) == 2 else 'in colour'}"],
        kind="pictures", files=(place,), **options.common(),
    )  # fmt: skip


def _count(path: Path) -> int:
    from PIL import Image

    with Image.open(path, formats=_FORMATS) as picture:
        return int(getattr(picture, "n_frames", 1))


def _pixels(path: Path, dimensions: int | None, limit: int) -> Array | str:
    """The pixels of a picture, or what is wrong with it."""
    return next(_read(path, [0], dimensions, limit))


def _read(path: Path, pages: Iterable[int], dimensions: int | None, limit: int) -> Iterator[Array | str]:
    """The pixels of some pages of a file, in their order, or what is wrong with each."""
    from PIL import Image

    with contextlib.ExitStack() as held:
        picture: Any = None
        for page in pages:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # we have our own limit
                    picture = picture or held.enter_context(Image.open(path, formats=_FORMATS))
                    if page:
                        picture.seek(page)
                    if picture.width * picture.height * 4 * 3 > limit:
                        raise ValueError(f"its {picture.width}×{picture.height} pixels take more than the memory allowed, max_memory")
                    if (dimensions == 2) if dimensions else picture.mode in _GREY:
                        kept: Any = picture if picture.mode in ("I", "F") or picture.mode.startswith("I;16") else picture.convert("L")
                        pixels: Array | str = np.array(kept)
                    else:
                        pixels = np.array(picture.convert("RGB"))
            except Exception as error:  # Pillow raises nearly anything for damaged pictures
                pixels = f"is not a picture that can be read ({reason(error)})"
            yield pixels
