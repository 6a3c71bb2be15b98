"""Exact principal directions, for as long as they cost no more than streaming.

:class:`Scatter`
    For few features (D ≤ 6 K'): the D×D covariance. It is no larger than a few bases, and adding to it is cheaper than any recurrence.
:class:`Kept`
    For many features: the first 6 K' rows themselves.

Both take centred rows with their shares in the weighted average of all rows (see `online_psp.engine.moments`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Any, NamedTuple

import numpy as np
from scipy.linalg import blas, eigh, svd

from online_psp.engine.blas import full_gram, matmul
from online_psp.engine.csr import scatter_squares, scatter_sums
from online_psp.engine.moments import Sums, weights_left
from online_psp.engine.rows import SparseRows
from online_psp.engine.types import Array, Floats
from online_psp.pca.roots import directions_of, graded_root, root_of, told_by_squares, with_rows

FEW_FEATURES = 6
"""Largest covariance matrix, in multiples of the size of a basis."""
FIRST_ROWS = 6
"""Rows kept at first, in multiples of K'."""
_BUFFER = 256
_SMALL = 256  # rows up to which a singular value decomposition costs almost nothing
_GROWN = 4.0  # factor by which a covariance matrix may grow or fade before its accuracy is checked again
_RANGE = 1e-8  # range of variances within which eigenvectors of inner products have at least half their digits


class ReadOut(NamedTuple):
    """Principal directions of the rows so far, in order."""

    components: Array
    """(K', D), orthonormal rows, largest variance first."""
    variances: Floats
    """(K',), divided by the weight."""
    total: float | None = None
    """Of the variances along all directions, from the same rounded numbers as these; None where some have been left out."""


class KeptState(NamedTuple):
    rows: Annotated[Array, "n", "D"]
    shares: Annotated[Floats, "n"]


class ScatterState(NamedTuple):
    rows: Annotated[Array, "n", "D"]
    shares: Annotated[Floats, "n"]
    matrix: Annotated[Floats, "D", "D"]
    root: Annotated[Floats, "D", "D"] | None = None
    """Used in place of the matrix, which is then zero."""
    taken: int | None = None
    largest: float | None = None
    left: float | None = None


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
    """The same from inner products of the rows, several times quicker; None if these do not give the last directions well enough."""
    n = len(rows)
    values, vectors = eigh(full_gram(rows), subset_by_index=(n - rank, n - 1), check_finite=False)
    if not values[0] > _RANGE * values[-1]:
        return None
    directions = matmul(np.ascontiguousarray((vectors / np.sqrt(values)).T[::-1]), rows)
    # Remove the rounding errors from their inner products, without changing the order.
    factor = np.linalg.cholesky(full_gram(directions))
    return ReadOut(matmul(np.asarray(np.linalg.inv(factor), dtype=np.float64), directions), values[::-1].copy())


class Exact(ABC):
    """Base class: gathers rows in a buffer, which is emptied when it is full."""

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
        """Add rows, no more than there is room for; returns True when nothing more can be kept, and streaming has to begin."""
        stop = self.n + len(rows)
        if stop > len(self.rows):
            more = min(self.capacity, max(stop, 2 * len(self.rows)))
            self.rows = np.concatenate([self.rows[: self.n], np.zeros((more - self.n, self.rows.shape[1]), dtype=self.rows.dtype)])
        self.rows[self.n : stop], self.shares[self.n : stop] = rows, shares
        self.n = stop
        return self.n == self.capacity and self.full()

    @abstractmethod
    def full(self) -> bool:
        """Make room; returns True if there is none to be made."""

    @abstractmethod
    def read_out(self, deviations: Floats | None = None) -> ReadOut:
        """The principal directions, of features divided by `deviations`, (D,), if these are given; the state does not change."""


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
        rows = self.weighted() if deviations is None else self.weighted() / deviations
        found = leading_directions(rows, self.rank)
        return ReadOut(found.components.astype(self.rows.dtype, copy=False), found.variances, float(np.vdot(rows, rows)))

    def glance(self, count: int) -> ReadOut:
        """As `read_out`, to half of its digits, and at least the first `count` directions."""
        rows = np.asarray(self.weighted(), dtype=np.float64)
        found = _from_products(rows, count) if count < self.n else leading_directions(rows, count)
        return self.read_out() if found is None else found

    def state(self) -> KeptState:
        return KeptState(self.rows[: self.n].copy(), self.shares[: self.n].copy())


class Scatter(Exact):
    """The D×D covariance itself, always in double precision; or its root, once squares are too inaccurate."""

    def __init__(self, rank: int, D: int, dtype: np.dtype[Any]) -> None:
        super().__init__(rank, D, _BUFFER, dtype)
        self.matrix: Floats = np.zeros((D, D), order="F")  # lower triangle
        self.root: Floats | None = None  # upper triangle
        self._taken = 0  # rows
        self._largest = 0.0  # largest variance of a feature when the matrix was last checked
        self._left = 1.0  # share that is left of the matrix as it was then

    def full(self) -> bool:
        if self.n:
            self.take(*self._pending())
            self.n = 0
        return False

    def _pending(self) -> tuple[Floats, float]:
        """The rows in the buffer, scaled so that their scatter adds to the matrix, and the share of the matrix that is left."""
        left, keep = weights_left(self.shares[: self.n])
        return np.asarray(self.rows[: self.n] * np.sqrt(left)[:, np.newaxis], dtype=np.float64), keep

    def take(self, rows: Floats, keep: float) -> None:
        """Add the scatter of rows, (n, D), to `keep` times the covariance."""
        if self.root is None:
            largest = float((keep * self.matrix.diagonal() + np.einsum("ij,ij->j", rows, rows)).max(initial=0.0))
            before = self.matrix.copy(order="F") if self._is_due(largest, keep) else self.matrix
            if self._accept(_added(before, rows, keep), len(rows), keep):
                return
            self._to_root()
        assert self.root is not None
        self.root = with_rows(self.root, rows, keep)

    def _to_root(self) -> None:
        self.root, self.matrix = root_of(self.matrix), np.zeros_like(self.matrix)

    @classmethod
    def of_two(cls, one: Scatter, two: Scatter, parts: tuple[float, float], scale: float, between: Floats) -> Scatter:
        """The average of two by their shares, the second with its rows multiplied by `scale`, plus ``between betweenᵀ``."""
        both = cls(one.rank, len(between), one.rows.dtype)
        both._taken = one._taken + one.n + two._taken + two.n
        if one.root is None and two.root is None:
            matrix = parts[0] * one.covariance() + parts[1] * scale**2 * two.covariance() + np.outer(between, between)
            if both._accept(np.asfortranarray(matrix), 0, 1.0):
                return both
        stacked = np.concatenate([np.sqrt(parts[1]) * scale * two.whole_root(), between[np.newaxis]])
        both.root = with_rows(one.whole_root(), stacked, parts[0])
        return both

    def _is_due(self, largest: float, keep: float) -> bool:
        """Whether to check the covariance, given its largest entry and the share `keep` that is left of its old value."""
        return largest > _GROWN * self._largest or self._left * keep * _GROWN < 1.0

    def _tells(self, matrix: Floats) -> bool:
        """Whether the covariance with the rows in the buffer, one of which may be larger than all before, still tells the directions."""
        keep = weights_left(self.shares[: self.n])[1]
        if not self._is_due(0.999 * float(matrix.diagonal().max(initial=0.0)), keep):
            return True
        return told_by_squares(matrix, min(self.rank, self._taken + self.n - 1))

    def _accept(self, matrix: Floats, added: int, keep: float) -> bool:
        """Make a matrix, to which `added` rows were added, the covariance; returns False if squares are too inaccurate for it."""
        taken, left, largest = self._taken + added, self._left * keep, float(matrix.diagonal().max(initial=0.0))
        if self._is_due(0.999 * largest, keep):
            if not told_by_squares(matrix, min(self.rank, taken - 1)):
                return False
            left, self._largest = 1.0, largest
        self.matrix, self._taken, self._left = matrix, taken, left
        return True

    def covariance(self) -> Floats:
        """The lower triangle of the covariance, (D, D), including the rows in the buffer."""
        if self.root is not None:
            root = self.whole_root()
            return np.asfortranarray(matmul(root.T, root))
        return _added(self.matrix.copy(order="F"), *self._pending()) if self.n else self.matrix.copy(order="F")

    def whole_root(self) -> Floats:
        """The root, (D, D), including the rows in the buffer."""
        root = root_of(self.matrix) if self.root is None else self.root
        return with_rows(root, *self._pending()) if self.n else root

    def read_out(self, deviations: Floats | None = None) -> ReadOut:
        if self.root is not None:
            found = self._from_root(self.whole_root(), deviations)
        elif not self._taken:
            found = self._from_root(self._pending()[0], deviations)
        else:
            found = self._from_matrix(deviations)
        return found._replace(components=found.components.astype(self.rows.dtype, copy=False))

    def _from_root(self, root: Floats, deviations: Floats | None) -> ReadOut:
        """Directions from rows, (n, D), whose scatter is the covariance."""
        root = root if deviations is None else root / deviations
        found, total = leading_directions(root, self.rank), float(np.vdot(root, root))
        if len(root) == root.shape[1] and found.variances[-1] < _RANGE**2 * found.variances[0]:
            return ReadOut(*directions_of(root, self.rank), total)
        return found._replace(total=total)

    def _from_matrix(self, deviations: Floats | None) -> ReadOut:
        D, matrix = len(self.matrix), self.covariance()
        if self.n and not self._tells(matrix):
            return self._from_root(self.whole_root(), deviations)
        if deviations is not None:
            matrix = np.asfortranarray(matrix / deviations / deviations[:, np.newaxis])
        values, vectors = eigh(matrix, lower=True, subset_by_index=(D - self.rank, D - 1), check_finite=False)
        if len(values) < self.rank:  # LAPACK finds none for a matrix that is not finite, which only a forged file can hold
            raise ValueError("The covariances of the model are not finite, so it has no directions: its file was not written by save.")
        variances = matrix.diagonal()
        total = float(variances.sum())
        if len(values) and values[0] < _RANGE * values[-1] and variances[variances > 0].min(initial=np.inf) < _RANGE * variances.max():
            return ReadOut(*directions_of(graded_root(np.tril(matrix) + np.tril(matrix, -1).T), self.rank), total)
        return ReadOut(vectors.T[::-1], np.maximum(values[::-1], 0.0), total)

    def add_sparse(self, rows: SparseRows, before: float, sums: Sums | None) -> bool:
        """Add CSR rows whose weights follow a total of `before`, centred by the mean in `sums`, which does not change.

        Returns False, and adds nothing, if squares are too inaccurate: from then on rows have to be dense.
        """
        self.full()
        if self.root is not None:
            return False
        weights = rows.weights
        total = before + float(weights.sum())
        matrix = self.matrix * before
        scatter_squares(rows.indptr, rows.indices, rows.data, weights, matrix)
        if sums is not None:  # centred by the mean of these rows: if everything before has faded, the old mean does not matter
            added, mean = total - before, np.zeros(len(matrix))
            scatter_sums(rows.indptr, rows.indices, rows.data, weights, mean)
            mean /= added
            apart = mean - sums.mean
            matrix += before * added / total * np.outer(apart, apart) - added * np.outer(mean, mean)
        matrix /= total
        if not self._accept(matrix, len(rows), before / total):
            self._to_root()
        return self.root is None

    def state(self) -> ScatterState:
        held = self.rows[: self.n].copy(), self.shares[: self.n].copy()
        root = None if self.root is None else self.root.copy()
        return ScatterState(*held, np.tril(self.matrix), root, self._taken, self._largest, self._left)

    def restore(self, state: ScatterState) -> None:
        """Restore the covariance; the rows of the buffer have been restored already."""
        self.matrix = np.array(state.matrix, order="F")
        self.root = None if state.root is None else np.array(state.root, order="F")
        self._taken = self.rank + 1 if state.taken is None else state.taken
        self._largest = float(self.matrix.diagonal().max(initial=0.0)) if state.largest is None else state.largest
        self._left = 1.0 if state.left is None else state.left


def _added(matrix: Floats, rows: Floats, keep: float) -> Floats:
    """The lower triangle of `keep` times a matrix plus the scatter of rows (n, D); the matrix may be changed in place."""
    return np.asarray(blas.dsyrk(1.0, rows.T, beta=keep, c=matrix, overwrite_c=1, lower=1))


def exact_phase(rank: int, D: int, dtype: np.dtype[Any]) -> Kept | Scatter:
    """The exact phase to begin with, for D features."""
    return Scatter(rank, D, dtype) if D <= FEW_FEATURES * rank else Kept(rank, D, dtype)


def exact_from_state(state: KeptState | ScatterState, rank: int) -> Kept | Scatter:
    """A phase with this state, in arrays of its own."""
    D, dtype = state.rows.shape[1], state.rows.dtype
    phase: Kept | Scatter = Kept(rank, D, dtype) if isinstance(state, KeptState) else Scatter(rank, D, dtype)
    if len(state.rows) >= phase.capacity:  # it may have less room than when the state was stored
        phase.capacity = len(state.rows) + 1
        phase.shares = np.zeros(phase.capacity)
    phase.add(state.rows, state.shares)
    if isinstance(phase, Scatter) and isinstance(state, ScatterState):
        phase.restore(state)
    return phase
