"""The last rows of a stream, kept as they came: dense, sparse, or of another array library."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array, vstack

from online_psp.engine.libraries import to_host
from online_psp.engine.rows import AnyRows, ArrayRows, DenseRows, SparseRows
from online_psp.engine.types import Array, Floats
from online_psp.monitoring.scores import Snapshot, centred, completed, in_units


class Recent:
    """A window over a stream.

    Parameters
    ----------
    size : int
        Largest number of rows to keep.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._parts: list[AnyRows] = []
        self._times: Floats | None = None  # times of the rows kept, if they have times

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def add(self, rows: AnyRows, times: Floats | None = None) -> None:
        """Add copies of rows and their times, (n,), and drop the oldest."""
        if times is not None:
            self._times = np.concatenate([np.zeros(0) if self._times is None else self._times, times])[-self.size :]
        rows = rows[max(0, len(rows) - self.size) :]
        if not len(rows):
            return
        if self._parts and type(self._parts[-1]) is not type(rows):  # rows of another kind: convert the old ones to it
            self._parts = [_converted(part, rows) for part in self._parts]
        self._parts.append(_copied(rows))
        excess = len(self) - self.size
        while excess > 0:
            first = self._parts[0]
            if len(first) <= excess:
                self._parts.pop(0)
            else:
                self._parts[0] = _copied(first[excess:]) if 2 * excess > len(first) else first[excess:]
            excess = len(self) - self.size
        if len(self._parts) > 2 * max(16, self.size // 16):  # many single rows: join them into larger parts
            self._parts = [self._joined()]

    def last(self, n: int) -> AnyRows:
        """The newest n rows, or as many as there are."""
        rows = self._joined()
        return rows[max(0, len(rows) - n) :]

    def times(self, n: int) -> Floats | None:
        """Times of the newest n rows; None if rows have none."""
        return None if self._times is None else self._times[max(0, len(self._times) - n) :]

    def _joined(self) -> AnyRows:
        parts = self._parts
        if len(parts) == 1:
            return parts[0]
        first = parts[0]
        if isinstance(first, SparseRows):
            return SparseRows(csr_array(vstack([part.matrix() for part in parts if isinstance(part, SparseRows)])))
        if isinstance(first, ArrayRows):
            return ArrayRows(first.library.xp.concat([part.X for part in parts if isinstance(part, ArrayRows)], axis=0))
        return DenseRows(np.concatenate([part.X for part in parts if isinstance(part, DenseRows)]))

    # Files

    def arrays(self) -> dict[str, Array]:
        """The rows kept, as arrays for a model file."""
        if not self._parts:
            return {}
        rows, times = self._joined(), {} if self._times is None else {"times": self._times}
        if isinstance(rows, SparseRows):
            matrix = rows.matrix()
            return times | {name: np.asarray(getattr(matrix, name), dtype=np.float64) for name in ("data", "indices", "indptr")}
        dense = to_host(rows.X)
        return times | {"rows": dense if dense.dtype == np.float32 else dense.astype(np.float64, copy=False)}

    def restore(self, rows: AnyRows | None, times: Floats | None) -> None:
        """Keep these rows, and nothing else."""
        self._parts, self._times = [] if rows is None else [rows], times


def native(rows: AnyRows) -> Any:
    """Rows in the form in which a user would pass them."""
    return rows.matrix() if isinstance(rows, SparseRows) else rows.X


def gram(rows: AnyRows, seen: Snapshot) -> tuple[Floats, Floats]:
    """``(X − μ)(X − μ)ᵀ`` (n, n) and the coordinates ``(X − μ)Cᵀ`` (n, K), in NumPy; sparse rows are not made dense."""
    if isinstance(rows, SparseRows) and not np.isnan(rows.data).any():
        matrix, mean = in_units(seen, rows)
        along = matrix @ mean
        products = (matrix @ matrix.T).toarray() - along[:, np.newaxis] - along + mean @ mean
        return np.asarray(products), np.asarray(matrix @ seen.components.T - seen.components @ mean)
    apart = completed(seen, centred(seen, rows.dense(np.dtype(np.float64))))
    return apart @ apart.T, apart @ seen.components.T


def _copied(rows: AnyRows) -> AnyRows:
    if isinstance(rows, SparseRows):
        return SparseRows(rows.matrix().copy())
    if isinstance(rows, ArrayRows):
        return ArrayRows(rows.library.xp.asarray(rows.X, copy=True))
    return DenseRows(rows.X.copy())


def _converted(rows: AnyRows, like: AnyRows) -> AnyRows:
    if isinstance(like, SparseRows):
        return SparseRows(csr_array(rows.dense(np.dtype(np.float64))))
    dense = rows.dense(np.dtype(np.float64))
    return ArrayRows(like.library.of(dense)) if isinstance(like, ArrayRows) else DenseRows(dense)
