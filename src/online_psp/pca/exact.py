"""Principal directions without loss, while that costs no more than streaming.

:class:`Scatter`
    Few features (D ≤ 6 K'): the whole D×D covariance is no larger than a few bases, and adding to it is cheaper than any recurrence.
:class:`Kept`
    Many features: the first 6 K' rows themselves.

Both take centred rows with their shares in the weighted average of all rows (see `online_psp.engine.moments`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Any, NamedTuple

import numpy as np
from scipy.linalg import blas, eigh, lapack, qr, svd

from online_psp.engine.blas import full_gram, matmul
from online_psp.engine.csr import scatter_squares, scatter_sums
from online_psp.engine.moments import Sums, weights_left
from online_psp.engine.rows import SparseRows
from online_psp.engine.types import Array, Floats

FEW_FEATURES = 6
"""Bases that the covariance matrix may weigh."""
FIRST_ROWS = 6
"""Rows that are kept at first, in multiples of K'."""
_BUFFER = 256
_SMALL = 256  # rows up to which a singular value decomposition costs next to nothing
_JACOBI = 400  # features up to which singular vectors are found pair by pair: it takes ten times as long
_RANGE = 1e-8  # of variances, within which eigenvectors of inner products are good to half the digits at least


class ReadOut(NamedTuple):
    """Ordered principal directions of what was seen."""

    components: Array
    """(K', D), orthonormal rows, largest variance first."""
    variances: Floats
    """(K',), divided by the weight."""


class KeptState(NamedTuple):
    rows: Annotated[Array, "n", "D"]
    shares: Annotated[Floats, "n"]


class ScatterState(NamedTuple):
    rows: Annotated[Array, "n", "D"]
    shares: Annotated[Floats, "n"]
    matrix: Annotated[Floats, "D", "D"]


def leading_directions(rows: Floats, rank: int) -> ReadOut:
    """The top singular directions of rows, (n, D), in double precision; beyond their rank, an orthonormal completion with no variance."""
    n, D = rows.shape
    if min(n, D) > max(_SMALL, rank):
        found = _from_products(rows, rank)
        if found is not None:
            return found
    if n < rank:
        rows = np.concatenate([rows, np.zeros((rank - n, D))])
    _, values, directions = svd(rows, full_matrices=False, check_finite=False)
    return ReadOut(directions[:rank], values[:rank] ** 2)


def _from_products(rows: Floats, rank: int) -> ReadOut | None:
    """The same from inner products of the rows, several times quicker; None where these do not tell the last directions well enough."""
    n = len(rows)
    values, vectors = eigh(full_gram(rows), subset_by_index=(n - rank, n - 1), check_finite=False)
    if not values[0] > _RANGE * values[-1]:
        return None
    directions = matmul(np.ascontiguousarray((vectors / np.sqrt(values)).T[::-1]), rows)
    # What rounding has left of their inner products is taken out; the order stays.
    factor = np.linalg.cholesky(full_gram(directions))
    return ReadOut(matmul(np.asarray(np.linalg.inv(factor), dtype=np.float64), directions), values[::-1].copy())


def _graded_directions(matrix: Floats, rank: int) -> ReadOut:
    """The top eigenvectors of a covariance matrix, (D, D), of features in units that differ by many orders of magnitude.

    An error of the usual decomposition is one of the largest feature, and may be all of a small one. An entry of the matrix is good to the
    sizes of its own two features: so these are divided out, a root is taken of what is left, and its singular vectors are found one pair
    of columns at a time (Jacobi), which the sizes of columns do not disturb.
    """
    sizes = np.sqrt(matrix.diagonal())
    sizes = np.where(sizes > 0, sizes, 1.0)
    values, vectors = eigh(matrix / sizes / sizes[:, np.newaxis], check_finite=False)
    root = np.sqrt(np.maximum(values, 0.0))[:, np.newaxis] * vectors.T * sizes
    if len(matrix) <= _JACOBI:
        found, _, turn, work, _, failed = lapack.dgejsv(root, joba=0, jobu=3, jobv=0, jobr=1, jobt=0, jobp=0)
        if not failed:
            return ReadOut(np.ascontiguousarray(turn.T[:rank]), (found[:rank] * (work[0] / work[1])) ** 2)
    order = np.argsort(-sizes, kind="stable")  # the next best: errors of the largest deviation, not of the largest variance
    directions: Floats = np.empty_like(root)
    _, found, directions[:, order] = svd(qr(root[:, order], mode="r", check_finite=False)[0], check_finite=False)
    return ReadOut(directions[:rank], found[:rank] ** 2)


class Exact(ABC):
    """Rows gathered in a buffer, and taken in when it is full."""

    def __init__(self, rank: int, D: int, room: int, dtype: np.dtype[Any]) -> None:
        self.rank, self.capacity = rank, room
        self.rows: Array = np.zeros((min(room, 64), D), dtype=dtype)
        self.shares: Floats = np.zeros(room)
        self.n = 0

    @property
    def room(self) -> int:
        """How many rows can be added at once."""
        return self.capacity - self.n

    def add(self, rows: Array, shares: Floats) -> bool:
        """Take in rows, no more than there is room for; whether what was kept is full and has to be streamed from."""
        stop = self.n + len(rows)
        if stop > len(self.rows):
            more = min(self.capacity, max(stop, 2 * len(self.rows)))
            self.rows = np.concatenate([self.rows[: self.n], np.zeros((more - self.n, self.rows.shape[1]), dtype=self.rows.dtype)])
        self.rows[self.n : stop], self.shares[self.n : stop] = rows, shares
        self.n = stop
        return self.n == self.capacity and self.full()

    @abstractmethod
    def full(self) -> bool:
        """Make room; True where there is none to be had."""

    @abstractmethod
    def read_out(self, deviations: Floats | None = None) -> ReadOut:
        """The principal directions, of features divided by deviations, (D,), where they are given; the state is left alone."""


class Kept(Exact):
    """The first rows."""

    def __init__(self, rank: int, D: int, dtype: np.dtype[Any]) -> None:
        super().__init__(rank, D, FIRST_ROWS * rank, dtype)

    def full(self) -> bool:
        return True

    def weighted(self) -> Array:
        """Rows whose scatter is the covariance, (n, D)."""
        left, _ = weights_left(self.shares[: self.n])
        return np.asarray(self.rows[: self.n] * np.sqrt(left)[:, np.newaxis])

    def read_out(self, deviations: Floats | None = None) -> ReadOut:
        rows = self.weighted()
        found = leading_directions(rows if deviations is None else rows / deviations, self.rank)
        return found._replace(components=found.components.astype(self.rows.dtype, copy=False))

    def state(self) -> KeptState:
        return KeptState(self.rows[: self.n].copy(), self.shares[: self.n].copy())


class Scatter(Exact):
    """The D×D covariance itself, always in double precision."""

    def __init__(self, rank: int, D: int, dtype: np.dtype[Any]) -> None:
        super().__init__(rank, D, _BUFFER, dtype)
        self.matrix: Floats = np.zeros((D, D), order="F")  # lower triangle

    def full(self) -> bool:
        self.matrix, self.n = self._with_pending(self.matrix), 0
        return False

    def _with_pending(self, matrix: Floats) -> Floats:
        """`matrix`, changed in place, and the rows in the buffer."""
        if not self.n:
            return matrix
        left, keep = weights_left(self.shares[: self.n])
        X = self.rows[: self.n] * np.sqrt(left)[:, np.newaxis]
        return np.asarray(blas.dsyrk(1.0, X.T, beta=keep, c=matrix, overwrite_c=1, lower=1))

    def covariance(self) -> Floats:
        """(D, D), its lower triangle, with the rows in the buffer."""
        return self._with_pending(self.matrix.copy(order="F"))

    def read_out(self, deviations: Floats | None = None) -> ReadOut:
        D, matrix = len(self.matrix), self.covariance()
        if deviations is not None:
            matrix = np.asfortranarray(matrix / deviations / deviations[:, np.newaxis])
        values, vectors = eigh(matrix, lower=True, subset_by_index=(D - self.rank, D - 1), check_finite=False)
        if len(values) < self.rank:  # LAPACK gives none of a matrix that is not finite, which only a forged file can lead to
            raise ValueError("The covariances of the model are not finite, so it has no directions: its file is not one that was saved.")
        found = ReadOut(vectors.T[::-1], np.maximum(values[::-1], 0.0))
        variances = matrix.diagonal()
        if len(values) and values[0] < _RANGE * values[-1] and variances[variances > 0].min(initial=np.inf) < _RANGE * variances.max():
            found = _graded_directions(np.tril(matrix) + np.tril(matrix, -1).T, self.rank)
        return found._replace(components=found.components.astype(self.rows.dtype))

    def add_sparse(self, rows: SparseRows, before: float, sums: Sums | None) -> None:
        """Take in CSR rows whose weights follow on a total of `before`, with the mean of those in `sums`, which is left alone."""
        self.full()
        matrix, weights = self.matrix, rows.weights
        total = before + float(weights.sum())
        matrix *= before
        scatter_squares(rows.indptr, rows.indices, rows.data, weights, matrix)
        if sums is not None:
            old, added = sums.mean, np.zeros(len(matrix))
            scatter_sums(rows.indptr, rows.indices, rows.data, weights, added)
            moved = (added - (total - before) * old) / total
            matrix -= np.outer(added, old) + np.outer(old, added)
            matrix += (total - before) * np.outer(old, old) - total * np.outer(moved, moved)
        matrix /= total

    def state(self) -> ScatterState:
        return ScatterState(self.rows[: self.n].copy(), self.shares[: self.n].copy(), np.tril(self.matrix))


def exact_phase(rank: int, D: int, dtype: np.dtype[Any]) -> Kept | Scatter:
    """The one to begin with."""
    return Scatter(rank, D, dtype) if D <= FEW_FEATURES * rank else Kept(rank, D, dtype)


def exact_from_state(state: KeptState | ScatterState, rank: int) -> Kept | Scatter:
    """The phase again, with arrays of its own."""
    D, dtype = state.rows.shape[1], state.rows.dtype
    phase: Kept | Scatter = Kept(rank, D, dtype) if isinstance(state, KeptState) else Scatter(rank, D, dtype)
    if len(state.rows) >= phase.capacity:  # where the room has become less since
        phase.capacity = len(state.rows) + 1
        phase.shares = np.zeros(phase.capacity)
    phase.add(state.rows, state.shares)
    if isinstance(phase, Scatter) and isinstance(state, ScatterState):
        phase.matrix = np.array(state.matrix, order="F")
    return phase
