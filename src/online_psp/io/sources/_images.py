"""A folder of pictures of one size: a row each, in the order of their names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from online_psp.engine.types import Array
from online_psp.io.sources._source import Chunk, Deadline, Source, SourceError, working_dtype

SUFFIXES = (".png", ".jpg", ".jpeg", ".pgm", ".ppm", ".tif", ".tiff", ".bmp", ".gif", ".webp")


def open_images(paths: list[Path], dtype: Any, name: str) -> Source:
    """Grey pictures have a feature for each pixel, others three."""
    try:
        first = _pixels(paths[0], None)
    except (OSError, ValueError) as error:
        raise SourceError(f"{paths[0]} is not a picture that can be read ({error}).") from None
    shape = first.shape

    def read(start: int, size: int, deadline: Deadline | None = None) -> Iterator[Chunk]:
        for at in range(start, len(paths), size):
            part = paths[at : at + size]
            rows, bad = [], {}
            for i, path in enumerate(part):
                try:
                    pixels = _pixels(path, len(shape))
                except (OSError, ValueError) as error:
                    bad[i] = f"is not a picture that can be read ({error})"
                    continue
                if pixels.shape == shape:
                    rows.append(pixels.reshape(-1))
                else:
                    bad[i] = f"has {pixels.shape[1]}×{pixels.shape[0]} pixels where {shape[1]}×{shape[0]} are expected"
            yield Chunk(len(part), np.array(rows).reshape(len(rows), first.size), bad)

    return Source(
        name,
        first.size,
        working_dtype(first.dtype, dtype, name),
        read,
        len(paths),
        image_shape=shape,
        places=lambda row: paths[row].name if row < len(paths) else "",
    )


def _pixels(path: Path, dimensions: int | None) -> Array:
    from PIL import Image

    with Image.open(path) as picture:
        grey = dimensions == 2 if dimensions else picture.mode in ("1", "L", "LA", "I", "I;16", "F")
        if grey:
            return np.asarray(picture if picture.mode in ("I", "I;16", "F") else picture.convert("L"))
        return np.asarray(picture.convert("RGB"))
