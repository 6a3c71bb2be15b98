"""A folder of pictures of one size: each picture is a row, in the natural order of their names."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from online_psp.engine.types import Array
from online_psp.io.sources._columns import listed
from online_psp.io.sources._identity import FilePrint
from online_psp.io.sources._options import Options
from online_psp.io.sources._source import Chunk, Deadline, MissingExtraError, Source, SourceError, UnknownSourceError, reason, working_dtype

SUFFIXES = (".png", ".jpg", ".jpeg", ".pgm", ".ppm", ".tif", ".tiff", ".bmp", ".gif", ".webp")
_FORMATS = ("PNG", "JPEG", "PPM", "TIFF", "BMP", "GIF", "WEBP")  # and no others, whatever the name says: some formats run programs
_GREY = ("1", "L", "LA", "I", "I;16", "I;16B", "I;16L", "F")


class _TooLargeError(ValueError):
    """A picture that would take more memory than is allowed."""


def open_images(paths: list[Path], options: Options, name: str, root: Path) -> Source:
    """Open pictures as rows: grey ones have one feature per pixel, others three.

    Parameters
    ----------
    root : path
        The folder; files are named by their place in it.
    """
    ids = listed(options.wanted.ids)
    if ids not in (None, ["file"]):
        raise UnknownSourceError(f"{name} is a folder of pictures, and their ids are their file names: --ids file; got {ids}.")
    if find_spec("PIL") is None:
        raise MissingExtraError(f"Reading {name}, a folder of pictures, needs Pillow: pip install 'online-psp[images]'.")
    first, start = None, ""
    for path in paths:  # the first that can be read tells the size of all
        try:
            first = _pixels(path, 2 if options.grey else None, options.max_memory)
            break
        except Exception as error:  # Pillow raises nearly anything for damaged pictures
            start = start or f"{path} is not a picture that can be read ({reason(error)})"
    if first is None:
        raise SourceError(f"{start}.")
    shape = first.shape
    names = [path.relative_to(root).as_posix() for path in paths]

    def read(start: int, size: int, deadline: Deadline | None = None) -> Iterator[Chunk]:
        for at in range(start, len(paths), size):
            part = paths[at : at + size]
            rows, bad = [], {}
            for i, path in enumerate(part):
                try:
                    pixels = _pixels(path, len(shape), options.max_memory)
                except Exception as error:
                    bad[i] = f"is not a picture that can be read ({reason(error)})"
                    continue
                if pixels.shape == shape:
                    rows.append(pixels.reshape(-1))
                else:
                    bad[i] = f"has {pixels.shape[1]}×{pixels.shape[0]} pixels where {shape[1]}×{shape[0]} are expected"
            labels = np.array(names[at : at + size], dtype=object)[:, np.newaxis] if ids else None
            yield Chunk(len(part), np.array(rows).reshape(len(rows), first.size), bad, labels)

    return Source(
        name,
        first.size,
        working_dtype(first.dtype, options.dtype, name),
        read,
        len(paths),
        image_shape=shape,
        places=lambda row: names[row] if row < len(paths) else "",
        notes=[f"{len(paths)} pictures of {shape[1]}×{shape[0]} pixels, {'grey' if len(shape) == 2 else 'in colour'}"],
        kind="pictures",
        prints=tuple(FilePrint(path, label) for path, label in zip(paths, names, strict=True)),
        schema=options.schema(),
        **options.common(),
    )


def _pixels(path: Path, dimensions: int | None, limit: int) -> Array:
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # we have our own limit
        with Image.open(path, formats=_FORMATS) as picture:
            needed = picture.width * picture.height * 4 * 3
            if needed > limit:
                raise _TooLargeError(f"its {picture.width}×{picture.height} pixels take more than the memory allowed, max_memory")
            grey = dimensions == 2 if dimensions else picture.mode in _GREY
            if grey:
                kept: Any = picture if picture.mode in ("I", "F") or picture.mode.startswith("I;16") else picture.convert("L")
                return np.asarray(kept)
            return np.asarray(picture.convert("RGB"))
