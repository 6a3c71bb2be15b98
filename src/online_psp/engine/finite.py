"""Learned numbers that are no longer finite: one sentence for them, wherever they are noticed."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from online_psp.engine.types import Array

F = TypeVar("F", bound=Callable[..., Any])

_NOT_FINITE = "The model is no longer finite: its steps are too large, or its file was tampered with; start anew."


def check_learned(*arrays: Array) -> None:
    """Raise a ValueError if learned arrays are not finite: they overflowed, or came from a manipulated file that passed its checks."""
    if not all(np.isfinite(array).all() for array in arrays):
        raise ValueError(_NOT_FINITE)


def in_our_words(error: ValueError | ArithmeticError) -> ValueError | ArithmeticError:
    """The error to raise in place of one from a matrix decomposition, or from arithmetic of ours, which says nothing about the model.

    Any other error stays, such as that of a function that the user gave.
    """
    names = [str(frame.f_globals.get("__name__", "")) for frame, _ in traceback.walk_tb(error.__traceback__)]
    inside = names[1 + max((i for i, name in enumerate(names) if name.startswith("online_psp")), default=-1) :]
    if isinstance(error, ArithmeticError):
        return error if inside else ValueError(_NOT_FINITE)
    library = bool(inside) and inside[0].startswith(("numpy.", "scipy.")) and any("linalg" in name for name in inside)
    compiled = bool(inside) and not inside[0] and isinstance(error, np.linalg.LinAlgError)  # frames of kernels have no name
    return ValueError(_NOT_FINITE) if library or compiled else error


def worded(method: F) -> F:
    """Decorate a method of a model so that it raises errors `in_our_words`."""

    @functools.wraps(method)
    def call(*args: Any, **options: Any) -> Any:
        try:
            return method(*args, **options)
        except (ValueError, ArithmeticError) as error:
            said = in_our_words(error)
            if said is error:
                raise
            raise said from None

    return call  # type: ignore[return-value]
