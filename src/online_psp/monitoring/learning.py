"""Teaches the rows of a call to the two models of a monitor: the model itself, and the one that forgets faster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing

from online_psp.engine.rows import AnyRows
from online_psp.engine.types import Floats
from online_psp.monitoring.recent import native
from online_psp.pca import OnlinePCA
from online_psp.pca.forgetting import check_half_life


class Given(NamedTuple):
    """The checked rows of one call."""

    X: Any
    """The rows as they were given; None for a single row."""
    rows: AnyRows
    seconds: Floats | None
    """Times of the rows, (n,), if the model forgets by time."""
    label: Callable[[int], str] | None = None
    """Gives what a row is known by."""


def learn(
    model: OnlinePCA,
    fast_of: Callable[[], OnlinePCA | None],
    given: Given,
    part: AnyRows,
    start: int,
    kept: NDArray[np.bool_],
) -> None:
    """Let both models learn from a part of the rows.

    Parameters
    ----------
    model : OnlinePCA
        Learns the rows in `kept` only.
    fast_of : callable
        Returns the model that forgets faster, which learns all rows; None if there is none. Once `model` is fitted, it may be created here.
    given : Given
    part : rows
        Rows ``start, start + 1, …`` of those given.
    start : int
    kept : (n,)
        Which rows of the part `model` learns.
    """
    numbers = np.flatnonzero(kept)
    seconds = None if given.seconds is None else given.seconds[start : start + len(part)]
    fast = fast_of() if model.__sklearn_is_fitted__() else None
    if given.X is None:
        row, time = native(part)[0], None if seconds is None else seconds[0]
        if len(numbers):
            model.fit_next(row, time)
        if fast is not None:
            fast.fit_next(row, time if in_time(fast) else None)
        return
    if len(numbers):  # keep a data frame, whose column names the model checks
        named = hasattr(given.X, "columns")
        taken = _safe_indexing(given.X, start + numbers) if named else native(part if kept.all() else part.take(numbers))
        model.partial_fit(taken, times=None if seconds is None else seconds[numbers])
    fast = fast_of()
    if fast is not None:
        fast.partial_fit(native(part), times=seconds if in_time(fast) else None)


def in_time(model: OnlinePCA) -> bool:
    """Whether a model forgets by time, not by numbers of rows."""
    half_life = check_half_life(model.half_life)
    return half_life is not None and half_life.in_time
