"""What algorithms share that are defined on blocks with a fixed number of rows.

Blocks end at fixed places of the stream, so the model does not depend on how the rows are cut into calls. The rows of a block that is not
full are held, at most one block of them. A read in between gives the model of all rows so far, as if the block ended there, and changes
nothing. Every row has a share in a weighted average of all rows, ``1/t`` unless the stream forgets. Averages and sums over rows in a paper
are averages with these weights here, which is the same for equal weights.

Sparse rows are made dense a block at a time.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.linalg import qr

from online_psp.algorithms._base import StreamingAlgorithm
from online_psp.algorithms._provided import BlockSize
from online_psp.engine.blas import matmul
from online_psp.engine.checks import check_rate, checked_step, evaluate_rate, not_finite, sum_of_squares
from online_psp.engine.row_products import centred
from online_psp.engine.rows import AnyRows, SparseRows
from online_psp.engine.sizes import FixedCost
from online_psp.engine.types import Array, Floats, Rate

_LARGEST_VARIANCE = 1e300
_ROWS_AT_A_TIME = 1024  # rows of a call that are converted together if they are of another precision


def orthonormal_rows(rows: Array) -> tuple[Array, Array]:
    """The Gram–Schmidt basis of the rows, (K, D), by Householder reflections: orthonormal even if the rows are dependent.

    Returns
    -------
    basis : (K, D)
    R : (K, K), upper triangular
        Coordinates of the given rows, as columns, up to signs.
    """
    Q, R = qr(rows.T, mode="economic", check_finite=False)
    return np.ascontiguousarray((Q * np.where(np.diag(R) < 0, -1.0, 1.0).astype(rows.dtype)).T), R


class BlockwiseAlgorithm(StreamingAlgorithm):
    """A basis of orthonormal rows, (K, D), that moves once a block.

    Parameters
    ----------
    K, D, dtype
        As in `FSM`.
    learning_rate : callable, optional
        ``t → share`` in [0, 1], t from 1: the share of sample t in the average of all up to it; ``1/t`` by default. A constant makes it
        forget.
    block_size : int or "auto"
        Rows of a block; it is a parameter of the algorithm, and changes results.
    """

    _cost = FixedCost(call=300e-6, passes=4.0)
    most_step = 1.0
    learns_pca = False
    block_changes_results = True

    def __init__(self, K: int, D: int | None, learning_rate: Rate | None, block_size: BlockSize, dtype: DTypeLike) -> None:
        super().__init__(K, D, block_size, dtype)
        self.learning_rate = check_rate(learning_rate, "learning_rate")
        self._n = 0
        self._held: Array = np.zeros((0, 0))
        self._held_shares: Floats = np.zeros(0)

    # What an algorithm provides

    @property
    @abstractmethod
    def block_rows(self) -> int:
        """Rows of a block."""

    @abstractmethod
    def _advance(self, rows: Array, shares: Floats) -> None:
        """Learn from a block, (n, D), that does not leave the basis as it is; the block may be shorter than usual."""

    @abstractmethod
    def _fade(self, keep: float) -> None:
        """Multiply the weight of all that was learned by `keep`, after rows that are all zero."""

    def _block(self) -> int:
        """Total number of rows of the block that is now open."""
        return self.block_rows

    def _says_nothing(self, rows: Array) -> bool:
        """Whether a block leaves the basis as it is."""
        return not rows.any()

    def _outputs(self, rows: Array) -> Array:
        """Coordinates of rows in the present basis, (n, K)."""
        return matmul(rows, self._U.T)

    def _at_once(self, n: int) -> int:
        """How many of n rows to pass to one `_take_whole`: whole blocks, when no rows are held."""
        return self._block() if n >= self._block() else 0

    def _take_whole(self, rows: Array, shares: Floats) -> Array:
        """Learn from as many rows as `_at_once` says, (n, D); returns their outputs, (n, K)."""
        Y = self._outputs(rows)
        self._take_in(rows, shares)
        return Y

    def _most_held(self) -> int:
        """Most rows that a block can have."""
        return self.block_rows

    # Rows in

    def _begin(self, basis: Array) -> None:
        self._U: Array = basis
        most = self._most_held()
        self._held, self._held_shares, self._n = np.zeros((most, self._features()), self.dtype), np.zeros(most), 0

    def _rates(self, t: int, n: int) -> tuple[Floats, ...]:
        if self.learning_rate is None:
            return (self._default_shares(t, n),)
        return (evaluate_rate(self.learning_rate, t, n, "learning_rate", self.most_step),)

    def _default_shares(self, t: int, n: int) -> Floats:
        return 1.0 / np.arange(t + 1.0, t + n + 1.0)

    def _take_open(self, row: Array, step: float | None) -> Array:
        if step is None:
            t, rate = self.t + 1, self.learning_rate
            step = float(self._default_shares(self.t, 1)[0]) if rate is None else rate(t)
            step = checked_step(step, f"learning_rate(t={t})", self.most_step)
        if not np.isfinite(sum_of_squares(row)):
            raise not_finite(row, 0, self.dtype)
        y: Array = self._take_block(row[np.newaxis], [np.array([step])])[0].astype(self.dtype)
        self.t += 1
        return y

    def _take_block(self, rows: Any, rates: list[Floats], G: Array | None = None) -> Floats:
        X, shares = self._dense(rows), rates[0]
        n, done = len(X), 0
        Y = np.empty((n, self.K))
        while done < n:
            at_once = 0 if self._n else self._at_once(n - done)
            stop = done + (at_once or min(n - done, self._block() - self._n))
            part, counts = X[done:stop], shares[done:stop]
            if at_once:
                Y[done:stop] = self._take_whole(part, counts)
            else:
                Y[done:stop] = self._outputs(part)
                self._hold(part, counts)
            done = stop
        return Y

    def _dense(self, rows: Any) -> Array:
        """The rows of a block as a dense array, (n, D); sparse rows are added to their running sum."""
        if not isinstance(rows, SparseRows):
            return np.asarray(rows)
        X: Array = centred(rows, self.dtype)
        if rows.sums is not None:
            rows.sums.take(rows)
        return X

    def _hold(self, rows: Array, shares: Floats) -> None:
        stop = self._n + len(rows)
        self._held[self._n : stop], self._held_shares[self._n : stop] = rows, shares
        self._n = stop
        if stop == self._block():
            self._close()

    def _close(self) -> None:
        n, self._n = self._n, 0
        self._take_in(self._held[:n], self._held_shares[:n])

    def _take_in(self, rows: Array, shares: Floats) -> None:
        if self._says_nothing(rows):
            self._fade(float(np.prod(1.0 - shares)))
        else:
            self._advance(rows, shares)

    def _flush(self) -> None:
        """Does nothing: blocks end at fixed places."""

    def _can_look_ahead(self, rows: NDArray[Any]) -> bool:
        return False  # a block needs no inner products with rows outside of it

    def _rows_for(self, rows: AnyRows) -> int:
        return self.block_rows if isinstance(rows, SparseRows) else max(self.block_rows, _ROWS_AT_A_TIME)

    def _use_store_for(self, rows: AnyRows) -> None:
        """Does nothing: the basis is a NumPy array."""

    # Reading and state

    @property
    def open_capacity(self) -> int:
        return self._most_held()

    def _open_samples(self) -> int:
        return self._n if self._started else 0

    def _raw_basis(self) -> Array:
        return self._U

    def _open_rows(self) -> tuple[Array, Floats]:
        """The rows that are held and their shares, copied."""
        return self._held[: self._n].copy(), self._held_shares[: self._n].copy()

    def _hold_again(self, rows: Array, shares: Floats) -> None:
        """Hold the rows of a restored state, after the rest of it."""
        while len(rows):  # one pass, unless blocks have become shorter since the state was stored
            room = self._block() - self._n
            self._hold(rows[:room], shares[:room])
            rows, shares = rows[room:], shares[room:]

    @classmethod
    def checked(cls, running: Any) -> Any:
        if len(running.rows) != len(running.shares) or not ((running.shares >= 0) & (running.shares <= 1)).all():
            raise ValueError("its open rows do not have a share each")
        variances = getattr(running, "variances", np.zeros(1))
        if (variances < 0).any() or float(variances.max(initial=0.0)) > _LARGEST_VARIANCE:
            raise ValueError("it has variances that are negative, or larger than any")
        return running
