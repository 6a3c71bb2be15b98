"""The last rows of a stream, kept as they came: dense, sparse, or of another array library."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
from scipy.sparse import csr_array, vstack

from online_psp.engine.libraries import to_host
from online_psp.engine.rows import AnyRows, ArrayRows, DenseRows, SparseRows
from online_psp.engine.types import Array, Floats
from online_psp.io.states import arrays_of


class Recent:
    """A window over a stream.

    Parameters
    ----------
    size : int
        Largest number of rows to keep.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._parts: deque[tuple[AnyRows, Floats | None]] = deque()
        self._held = 0  # rows in all parts; the oldest part may have some too many

    def __len__(self) -> int:
        return min(self.size, self._held)

    def add(self, rows: AnyRows, times: Floats | None = None) -> None:
        """Add copies of rows and their times, (n,), and drop the oldest."""
        self._parts.append((_copied(rows[max(0, len(rows) - self.size) :]), None if times is None else times[-self.size :].copy()))
        self._held += len(self._parts[-1][0])
        while self._held - len(self._parts[0][0]) >= self.size:
            self._held -= len(self._parts.popleft()[0])

    def last(self, n: int) -> AnyRows:
        """The newest n rows, or as many as there are; all of the kind of the newest."""
        n, parts = min(n, len(self)), [rows for rows, _ in self._parts]
        newest = parts[-1]
        if isinstance(newest, SparseRows):
            matrices = [part.matrix() if isinstance(part, SparseRows) else csr_array(part.dense(np.dtype(np.float64))) for part in parts]
            return SparseRows(csr_array(vstack(matrices))[self._held - n :])
        if all(isinstance(part, ArrayRows) for part in parts) and isinstance(newest, ArrayRows):
            return ArrayRows(newest.library.xp.concat([native(part) for part in parts], axis=0)[self._held - n :, :])
        dense = [part.X if isinstance(part, DenseRows) else part.dense(np.dtype(np.float64)) for part in parts]
        whole = np.concatenate(dense)[self._held - n :]
        return ArrayRows(newest.library.of(whole)) if isinstance(newest, ArrayRows) else DenseRows(whole)

    def times(self, n: int) -> Floats | None:
        """Times of the newest n rows; None if rows have none."""
        n, parts = min(n, len(self)), [times for _, times in self._parts if times is not None]
        return np.concatenate(parts)[self._held - n :] if parts else None

    # Files

    def arrays(self) -> dict[str, Array]:
        """The rows kept, as arrays for a model file."""
        if not self._parts:
            return {}
        rows, times = self.last(self.size), self.times(self.size)
        found = arrays_of(rows if not isinstance(rows, ArrayRows) else DenseRows(to_host(rows.X)))
        return found if times is None else found | {"times": times}

    def restore(self, rows: AnyRows | None, times: Floats | None) -> None:
        """Keep these rows, and nothing else."""
        self._parts = deque() if rows is None else deque([(rows, times)])
        self._held = 0 if rows is None else len(rows)


def native(rows: AnyRows) -> Any:
    """Rows in the form in which a user would pass them."""
    return rows.matrix() if isinstance(rows, SparseRows) else rows.X


def _copied(rows: AnyRows) -> AnyRows:
    if isinstance(rows, SparseRows):
        return SparseRows(rows.matrix().copy())
    if isinstance(rows, ArrayRows):
        return ArrayRows(rows.library.xp.asarray(rows.X, copy=True))
    return DenseRows(rows.X.copy())
