"""Components and rows as the page shows them: as small pictures if rows are pictures, otherwise by their largest loadings."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from online_psp.engine.types import Floats

BLUE, ORANGE, GREEN, VERMILION, SKY, PURPLE, BROWN, GREY = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#8C6D1F", "#8A8A8A",
)  # fmt: skip
"""Okabe and Ito's colours, which the colour-blind can tell apart; brown in place of their yellow, which is hard to see on a white page."""
_NEGATIVE, _MIDDLE, _POSITIVE = (np.array(colour, dtype=np.float64) for colour in ((0, 114, 178), (247, 247, 247), (213, 94, 0)))
_PIXELS = 64  # largest length of the longer side


def component_picture(values: Floats, shape: tuple[int, ...]) -> str:
    """A component as a picture: blue for negative, white for zero, vermilion for positive; as a data URL of a PNG image."""
    pixels = np.nan_to_num(np.asarray(values, dtype=np.float64).reshape(shape))
    share = pixels / (np.abs(pixels).max() or 1.0)
    if len(shape) == 3 and shape[2] == 3:
        return _png(255.0 * (0.5 + 0.5 * share))
    share = share.reshape(shape[:2])[..., np.newaxis]
    return _png(np.where(share < 0, _MIDDLE + share * (_MIDDLE - _NEGATIVE), _MIDDLE - share * (_MIDDLE - _POSITIVE)))


def row_picture(values: Floats, shape: tuple[int, ...], low: float | None = None, high: float | None = None) -> str:
    """A row as a picture, from its smallest value in black to its largest in white."""
    pixels = np.nan_to_num(np.asarray(values, dtype=np.float64).reshape(shape))
    low, high = float(pixels.min()) if low is None else low, float(pixels.max()) if high is None else high
    grey = 255.0 * np.clip((pixels - low) / ((high - low) or 1.0), 0.0, 1.0)
    if len(shape) == 2 or shape[2] == 1:
        grey = np.repeat(grey.reshape(shape[:2])[..., np.newaxis], 3, axis=2)
    return _png(grey)


def _png(colours: NDArray[np.float64]) -> str:
    from PIL import Image

    image = Image.fromarray(np.round(colours).astype(np.uint8))
    if max(image.size) > _PIXELS:
        image.thumbnail((_PIXELS, _PIXELS))
    out = io.BytesIO()
    image.save(out, "PNG")
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode("ascii")


def feature_name(names: Sequence[str] | None, number: int, shape: tuple[int, ...] | None = None) -> str:
    """What the page calls a feature: its name, its place in a picture, or its number from 0."""
    if names is not None and number < len(names) and names[number].strip():
        return names[number]
    if shape is None:
        return f"feature {number}"
    row, column, *channel = (int(place) for place in np.unravel_index(number, shape))
    return f"pixel {row}, {column}" + (f", channel {channel[0]}" if channel else "")


def largest(values: Floats, names: Sequence[str] | None, count: int) -> list[dict[str, Any]]:
    """The entries of largest absolute value, with the names of their features."""
    order = np.argsort(-np.abs(values), kind="stable")[:count] if len(values) <= 4 * count else _top(np.abs(values), count)
    return [{"name": feature_name(names, int(i)), "value": float(values[i])} for i in order]


def _top(sizes: Floats, count: int) -> NDArray[np.int64]:
    some = np.argpartition(-sizes, count)[:count]
    return np.asarray(some[np.argsort(-sizes[some], kind="stable")])
