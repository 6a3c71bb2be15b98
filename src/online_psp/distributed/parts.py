"""What every engine maps over its partitions, and how the results are merged.

A packed part is what became of a partition, or of neighbouring ones: the number of the first, and a model, an error or None. Errors travel
as results, so that they arrive as one sentence and are not tried again.
"""

from __future__ import annotations

import copy
import numbers
import pickle
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from sklearn.base import clone

from online_psp.pca import OnlinePCA

Block = tuple[Any, Any, Any]
"""Rows (n, D), and their weights and times (n,) or None."""
Found = OnlinePCA | ValueError | None
"""A model, or an error whose message follows the number of the partition, or None where there are no rows."""


class Columns(NamedTuple):
    """Where a collection keeps its features, and the weights and times of its rows."""

    features: str | Sequence[str] | None = None
    weights: Any = None
    times: Any = None

    def of(self, names: Sequence[str], new: str | None = None) -> Columns:
        """The same for a table with columns of these names, which must be there; a `new` one must not."""
        beside = [name for name in (self.weights, self.times) if name is not None]
        features = [name for name in names if name not in beside] if self.features is None else self.features
        features = [features] if isinstance(features, str) else list(features)
        for name in (*features, *beside):
            if not isinstance(name, str) or name not in names:
                known = ", ".join([*map(str, names[:20]), *["…"] * (len(names) > 20)])
                raise ValueError(f"The table has no column {name!r}; its columns: {known}.")
        if new in names:
            raise ValueError(f"The table has a column {new!r} already; name another one (column=).")
        return Columns(features, self.weights, self.times)


def check_half_life(model: OnlinePCA) -> None:
    """Raise a ValueError if a model forgets by rows: rows of different partitions have no order."""
    if model.window is not None:
        raise ValueError("Partitions have no order, so there is no window of rows: leave window out, or give half_life a time.")
    if isinstance(model.half_life, numbers.Real):
        raise ValueError("Partitions have no order, so half_life must be a time, such as '10min', and every row needs one (times=).")


def _merged(one: OnlinePCA, two: OnlinePCA) -> OnlinePCA:
    check_half_life(one)
    return copy.deepcopy(one).merge(two)


def reduce(parts: Iterable[Any], merge: Callable[[Any, Any], Any] = _merged) -> Any:
    """Merge models of different rows in a tree, always the same one for as many parts.

    Parameters
    ----------
    parts : iterable of OnlinePCA
        They do not change. At most log2 of their number are held at a time, so they may come from files:
        ``reduce(map(OnlinePCA.load, paths))``.
    merge : callable, optional
        Merges two neighbours; by default `OnlinePCA.merge` on a copy. An engine passes one that makes a task, and its own kind of parts.

    Returns
    -------
    OnlinePCA, or whatever `merge` returns

    Notes
    -----
    Where directions are left out, a merge is as good as those that were kept of each model. In adversarial order, summaries that can be
    merged need a gap between the variances (Price and Xun, Spectral Guarantees for Adversarial Streaming PCA, 2024): shuffle the rows, or
    keep more directions (`oversample`).
    """
    stack: list[tuple[int, Any]] = []  # numbers of parts, decreasing powers of two, and what they are merged to
    for part in parts:
        count = 1
        while stack and stack[-1][0] == count:
            part = merge(stack.pop()[1], part)  # noqa: PLW2901
            count *= 2
        stack.append((count, part))
    if not stack:
        raise ValueError("There are no partitions to learn from.")
    total = stack.pop()[1]
    for _, part in reversed(stack):
        total = merge(part, total)
    return total


# Packed parts


def learn(template: OnlinePCA, blocks: Iterable[Block]) -> Found:
    """What becomes of the blocks of one partition."""
    model, seen = clone(template), 0
    try:
        for X, weights, times in blocks:
            if X.shape[0]:
                model.partial_fit(X, sample_weight=weights, times=times)
            seen += X.shape[0]
    except (TypeError, ValueError) as error:
        return ValueError(f"{f', in the rows from {seen}' if seen else ''}: {error}")
    return model if seen else None


def pack(found: Found, part: int) -> bytes:
    """What became of a partition, with its number."""
    return pickle.dumps((part, found))


def merge(one: bytes, two: bytes) -> bytes:
    """Merge two packed parts; the first error remains."""
    (part, first), (other, second) = pickle.loads(one), pickle.loads(two)
    if isinstance(first, ValueError) or second is None:
        return one
    if isinstance(second, ValueError) or first is None:
        return two
    try:
        return pack(_merged(first, second), part)
    except ValueError as error:
        return pack(ValueError(f" cannot be merged with partition {other}: {error}"), part)


def unpacked(packed: bytes) -> OnlinePCA:
    """The model, or its error raised."""
    part, found = pickle.loads(packed)
    if found is None:
        raise ValueError("All partitions are empty: there is nothing to learn from.")
    if isinstance(found, ValueError):
        raise ValueError(f"Partition {part}{found}")
    model: OnlinePCA = found
    return model
