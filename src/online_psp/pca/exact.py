"""Principal directions without loss, while that costs no more than streaming.

:class:`Scatter`
    Few features (D ≤ 6 K'): the whole D×D scatter matrix is no larger than a few bases, and adding to it is cheaper than any recurrence.
:class:`Kept`
    Many features: rows that stand for all rows seen, while these have at most K' directions.

Both take centred rows that already carry the square root of their weight.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import blas, eigh, svd

from online_psp.engine.blas import matmul
from online_psp.engine.csr import scatter_squares, scatter_sums
from online_psp.engine.sparse import SparseRows
from online_psp.engine.state import WritableState
from online_psp.engine.types import Array, Floats

_FEW_FEATURES = 6  # bases that the scatter matrix may weigh


class ReadOut(NamedTuple):
    """Ordered principal directions of what was seen."""

    components: Array
    """(K', D), orthonormal rows, largest variance first."""
    scatter: Floats
    """(K',): the sum, not the mean, of squares along them."""


class Exact(WritableState):
    """Rows gathered in a buffer, and taken in when it is full."""

    def __init__(self, rank: int, D: int, rows: int, dtype: np.dtype[Any]) -> None:
        self.rank = rank
        self.rows: Array = np.zeros((rows, D), dtype=dtype)
        self.n = 0

    @property
    def room(self) -> int:
        """How many rows can be added at once."""
        return len(self.rows) - self.n

    def add(self, rows: Array) -> ReadOut | None:
        """Take in rows, no more than there is room for.

        Returns
        -------
        ReadOut or None
            Where going on without loss is not possible, the directions to stream from.
        """
        self.rows[self.n : self.n + len(rows)] = rows
        self.n += len(rows)
        return self.compress() if self.n == len(self.rows) else None

    def compress(self) -> ReadOut | None:
        """Make room."""
        raise NotImplementedError

    def read_out(self) -> ReadOut:
        raise NotImplementedError


class Kept(Exact):
    """Rows that represent all rows seen while their rank allows it; it does for ever where the data has at most `rank` directions."""

    def __init__(self, rank: int, D: int, dtype: np.dtype[Any], room: int | None = None) -> None:
        super().__init__(rank, D, room or 2 * rank, dtype)

    def read_out(self) -> ReadOut:
        """Singular vectors; beyond the rank of the rows, an orthonormal completion with no variance."""
        rows = self.rows[: max(self.n, self.rank)].copy()
        rows[self.n :] = 0.0
        _, values, directions = svd(rows, full_matrices=False, check_finite=False)
        return ReadOut(directions[: self.rank], values[: self.rank].astype(np.float64) ** 2)

    def compress(self) -> ReadOut | None:
        found = self.read_out()
        total = float(np.einsum("ij,ij", self.rows, self.rows, dtype=np.float64))
        lost = total - float(found.scatter.sum())
        if lost > 100.0 * np.finfo(self.rows.dtype).eps * total:
            return found
        self.rows[: self.rank] = np.sqrt(found.scatter)[:, np.newaxis] * found.components
        self.n = self.rank
        return None


class Scatter(Exact):
    """The D×D matrix itself, always in double precision."""

    def __init__(self, rank: int, D: int, dtype: np.dtype[Any]) -> None:
        super().__init__(rank, D, 256, dtype)
        self.matrix: Floats = np.zeros((D, D), order="F")  # lower triangle

    def compress(self) -> None:
        self.matrix, self.n = self._with_pending(self.matrix), 0

    def _with_pending(self, matrix: Floats) -> Floats:
        """`matrix`, changed in place, and the rows in the buffer."""
        X = self.rows[: self.n]
        if X.dtype == np.float64:
            return np.asarray(blas.dsyrk(1.0, X.T, beta=1.0, c=matrix, overwrite_c=1, lower=1))
        matrix += matmul(X.T, X)
        return matrix

    def read_out(self) -> ReadOut:
        """Eigenvectors; the state is left alone, so that when somebody looks makes no difference to what follows."""
        D = len(self.matrix)
        matrix = self._with_pending(self.matrix.copy(order="F"))
        values, vectors = eigh(matrix, lower=True, subset_by_index=(D - self.rank, D - 1), check_finite=False)
        return ReadOut(vectors.T[::-1].astype(self.rows.dtype), np.maximum(values[::-1], 0.0))


def exact_phase(rank: int, D: int, dtype: np.dtype[Any]) -> Exact:
    """The one to begin with."""
    return Scatter(rank, D, dtype) if D <= _FEW_FEATURES * rank else Kept(rank, D, dtype)


def merge_scatter(parts: list[ReadOut], between: Floats, rank: int, dtype: np.dtype[Any]) -> tuple[Exact, ReadOut | None]:
    """The directions of several streams together.

    Parameters
    ----------
    parts : list of ReadOut
    between : (m, D)
        What the differences of their means add to the scatter.

    Returns
    -------
    exact : Exact
        To go on with where nothing had to be left out.
    rest : ReadOut or None
        To stream from, where something had.
    """
    rows = np.concatenate([np.sqrt(part.scatter)[:, np.newaxis] * part.components for part in parts] + [between]).astype(dtype)
    D = rows.shape[1]
    together = Kept(rank, D, dtype, room=max(len(rows), rank + 1))
    rest = None
    if len(rows) < len(together.rows):
        together.add(rows)
    else:
        rest = together.add(rows)
    exact = Kept(rank, D, dtype)
    exact.add(together.rows[: together.n] if rest is None else rows[:0])
    return exact, rest


def add_to_scatter(exact: Scatter, rows: SparseRows) -> None:
    """Take rows into the D×D scatter about the mean, and move the running sum past them."""
    matrix, weights, centre = exact.matrix, rows.weights, rows.centre
    exact.compress()
    before = np.trace(matrix)
    scatter_squares(rows.indptr, rows.indices, rows.data, weights, matrix)
    if centre is None:
        return
    old, old_total = centre.mean, centre.total
    added = np.zeros_like(old)
    scatter_sums(rows.indptr, rows.indices, rows.data, weights, added)
    centre.sums += added
    centre.total += float(weights.sum())
    moved = centre.mean - old
    matrix -= np.outer(added, old) + np.outer(old, added)
    matrix += (centre.total - old_total) * np.outer(old, old) - centre.total * np.outer(moved, moved)
    centre.scatter += np.trace(matrix) - before
