"""Settings of a page, checked before anything starts."""

from __future__ import annotations

import importlib.util
import math
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

PORT = 5006
"""Default port of a page."""
_LONG = 200  # longest name to show, in characters
_TURNS = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"  # characters that change the direction of writing
_UNSEEN = dict.fromkeys((*range(32), *range(127, 160), *map(ord, _TURNS)), "\ufffd") | dict.fromkeys(map(ord, "\t\n\r\u2028\u2029"), " ")
_SHAPE = re.compile(r"(\d{1,6})[x×](\d{1,6})(?:[x×](\d))?", re.IGNORECASE)


class MissingServerError(ImportError):
    """Bokeh, which serves the page, is not installed."""


def check_installed() -> None:
    """Raise a MissingServerError if Bokeh is not installed, without importing it."""
    if importlib.util.find_spec("bokeh") is None:
        raise MissingServerError("Watching needs Bokeh: pip install 'online-psp[watch]'.")


@dataclass(frozen=True)
class PageSettings:
    """What a page is about, and where it is served.

    Parameters
    ----------
    title : str
        Shown at the top: the source or the model.
    host : str
        Address to listen at. If other machines can reach it, the address of the page contains a token.
    port : int
        Port to listen at; if it is busy, the next free one. 0 takes any.
    image : (height, width) or (height, width, channels), optional
        Shape of the pictures, if rows are pictures.
    feature_names : list of str, optional
    id_names : list of str
        Names of the ID columns that rows come with.
    """

    title: str = "OnlinePCA"
    host: str = "127.0.0.1"
    port: int = PORT
    image: tuple[int, ...] | None = None
    feature_names: list[str] | None = None
    id_names: list[str] = field(default_factory=list)
    token: str = ""
    """Part of every path of the page; empty if only this machine can reach it."""

    def __post_init__(self) -> None:
        for name in ("title", "feature_names", "id_names"):
            value = getattr(self, name)
            clean = value if value is None else text(value) if isinstance(value, str) else [text(each) for each in value]
            object.__setattr__(self, name, clean)
        if not 0 <= self.port <= 65535:
            raise ValueError(f"port must be between 0 and 65535; got {self.port}.")
        if self.image is not None and (len(self.image) not in (2, 3) or min(self.image) < 1):
            raise ValueError(f"image must be (height, width) or (height, width, channels); got {self.image!r}.")
        if self.image is not None and len(self.image) == 3 and self.image[2] not in (1, 3):
            raise ValueError(f"A picture has 1 or 3 channels; got {self.image[2]}.")
        if not self.token and not is_loopback(self.host):
            object.__setattr__(self, "token", secrets.token_urlsafe(24))


def text(value: object) -> str:
    """A name as one safe line of text: without control characters or changes of writing direction, and not too long."""
    found = str(value).encode("utf-8", "replace").decode().translate(_UNSEEN)
    return found if len(found) <= _LONG else found[: _LONG // 2] + "…" + found[-(_LONG // 2) :]


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address, under a name that can be checked. ``::1`` cannot be checked, so it gets a token."""
    return host in ("localhost", "127.0.0.1")


def image_shape(text: str) -> tuple[int, ...]:
    """The shape of pictures from what a user typed: ``28x28``, height first, or ``32x32x3``."""
    found = _SHAPE.fullmatch(text.strip())
    if not found:
        raise ValueError(f"The size of pictures is height x width, such as 28x28 or 32x32x3; got {text!r}.")
    return tuple(int(part) for part in found.groups() if part is not None)


def suited_image(shape: Sequence[int] | None, features: int) -> tuple[int, ...] | None:
    """The shape of pictures if it has as many pixels as rows have features, otherwise None."""
    if shape is None or len(shape) not in (2, 3) or math.prod(shape) != features:
        return None
    if len(shape) == 3 and shape[2] not in (1, 3):
        return None
    return tuple(int(length) for length in shape)
