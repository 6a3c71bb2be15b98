"""What the four algorithms share: the start, the checks, and the walk from rows to blocks."""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any, ClassVar, Generic, Literal, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike
from scipy.linalg import eigh, qr
from scipy.sparse import issparse

from online_psp.algorithms._checks import as_real, check_count, check_finite, finite_gram, not_finite
from online_psp.engine.arrays import ForeignRows, namespace_of
from online_psp.engine.blas import matmul
from online_psp.engine.blocks import Block, sum_of_squares
from online_psp.engine.frames import forward_substitute
from online_psp.engine.sizes import FixedCost
from online_psp.engine.sparse import SparseRows, checked_rows
from online_psp.engine.state import WritableState
from online_psp.engine.types import Array, Floats, Rate

BlockSize: TypeAlias = int | Literal["auto"]
BlockT = TypeVar("BlockT", bound=Block)

_MOST_AHEAD = 1 << 21  # inner products that are kept at once: 16 MB


class StreamingAlgorithm(WritableState, ABC, Generic[BlockT]):
    """The paper's interface: ``fit_next``, ``fit_block``, ``get_components``.

    Until K rows have arrived they are kept as they are, and the answers are exact for them. The K-th row starts the algorithm from the thin
    QR basis of those rows, and all of them are then fed.
    """

    #: Whether there is a block for arrays of other libraries; where there is none, they are taken to NumPy.
    _foreign: ClassVar[bool] = False
    #: What a block costs, for the choice of its size.
    _cost: ClassVar[FixedCost]
    #: How many kinds of step size there are.
    _kinds: ClassVar[int] = 1
    #: Names of options that `repr` shows.
    _options: ClassVar[tuple[str, ...]] = ()

    def __init__(self, K: int, D: int | None, block_size: BlockSize, dtype: DTypeLike) -> None:
        self.K = check_count(K, "K")
        self.dtype = np.dtype(dtype)
        if self.dtype not in (np.dtype(np.float64), np.dtype(np.float32)):
            raise ValueError(f"dtype must be float64 or float32; got {self.dtype}.")
        if block_size != "auto":
            check_count(block_size, "block_size")
        self.block_size: BlockSize = block_size
        self.D: int | None = None
        self.t = 0
        """Samples seen."""
        self._kept: Array | None = None  # the first rows, until there are K
        self._block: BlockT | None = None
        self._steps: Floats = np.zeros((self._kinds, 0))  # of the samples of the block in hand
        if D is not None:
            self.D = self._check_features(check_count(D, "D"))

    # What an algorithm provides

    @abstractmethod
    def _begin(self, basis: Array) -> None:
        """Start from `basis` (K×D, orthonormal rows)."""

    @abstractmethod
    def _rates(self, t: int, n: int) -> tuple[Floats, ...]:
        """The step sizes of samples t+1 … t+n, one array for each kind that the algorithm has."""

    @abstractmethod
    def _take_open(self, row: Array, step: float | None) -> Array:
        """Learn from one sample, dense and of the right length, with the scheduled step size or a given one; returns its output."""

    @abstractmethod
    def _recur(self, first: int, last: int) -> Floats:
        """Take samples `first` … `last`−1 of the block in hand, with the step sizes in `_steps`; returns their outputs, (last−first, K)."""

    @abstractmethod
    def _close(self) -> None:
        """Bring the basis up to date with the block in hand."""

    @abstractmethod
    def _raw_basis(self) -> Array:
        """(K, D) rows that span the subspace, best known directions first where the algorithm orders them."""

    @abstractmethod
    def _covariance_within(self, R: Floats) -> Floats:
        """(K, K) covariance of the data in the orthonormal basis Q, where the raw basis, as columns, is ``Q R``."""

    # The public interface

    def fit_next(self, x: ArrayLike, step: float | None = None) -> Array:
        """Learn from one sample.

        Parameters
        ----------
        x : (D,)
        step : float, optional
            The step size of this sample, in place of the schedule's.

        Returns
        -------
        y : (K,)
            Its projection, as the algorithm defines it.
        """
        if self._block is not None and type(x) is np.ndarray and x.dtype is self.dtype and x.shape == (self.D,) and x.flags.carray:
            return self._take_open(x, step)  # the usual case, where another call would show
        row = self._check_row(x)
        if self._block is None:
            if not math.isfinite(sum_of_squares(row)):
                raise not_finite(row[np.newaxis], 0)
            return np.asarray(self._start_with(row[np.newaxis], self._rates(0, self.K))[0])
        return self._take_open(row, step)

    def fit_block(self, X: ArrayLike, steps: Floats | None = None) -> Array:
        """Learn from n samples at once; the iterates are those of n calls of `fit_next`.

        Parameters
        ----------
        X : (n, D)
            An array, or a sparse matrix, which is not made dense: it costs its non-zero entries. FSM and SM also take arrays of other
            libraries as they are (array API standard, extra ``array-api``); the outputs, and then the components, are of the same kind.
        steps : (n,), optional
            The step sizes of these samples, in place of the schedule's (once the algorithm has started).

        Returns
        -------
        Y : (n, K)
        """
        rows: Any = X if isinstance(X, SparseRows | ForeignRows) else self._check_rows(X)
        if isinstance(rows, ForeignRows) and not self._foreign:
            rows = rows.toarray()
        sparse, plain = isinstance(rows, SparseRows), isinstance(rows, np.ndarray)
        n = len(rows)
        rates = self._rates(self.t, n) if steps is None else (steps,) * self._kinds
        Y = np.empty((n, self.K), dtype=self.dtype)
        grams = self._check_finite(rows, rates) if plain else []
        done = 0
        if self._block is None:
            done = min(n, self.K - self.t)
            first = rows[:done].astype(self.dtype) if plain else rows[:done].toarray()
            Y[:done] = self._start_with(first, self._rates(0, self.K))
        if done < n:
            self._flush()
            if plain:
                self._use_dense()
            else:
                self._use_block_for(rows)
            cuts = self._cuts(done, n, rates, self._sparse_rows if sparse else self.block_rows)
            for (start, stop), G in zip_longest(cuts, grams):
                block = np.ascontiguousarray(rows[start:stop], dtype=self.dtype) if plain else rows[start:stop]
                Y[start:stop] = self._take_block(block, [rate[start:stop] for rate in rates], G)
                self.t += stop - start
        return rows.kind.of(Y) if isinstance(rows, ForeignRows) else Y

    def get_components(self, orthogonalize: bool = True) -> Array:
        """The basis found so far.

        Parameters
        ----------
        orthogonalize : bool
            False gives the raw basis, as the algorithm keeps it.

        Returns
        -------
        U : (D, K)
            With orthonormal columns, if `orthogonalize`. Before K rows have been seen its first columns span them.
        """
        if self._block is None:
            if self.D is None:
                raise ValueError("There is no basis yet: the number of features is not known before the first sample.")
            kept = np.zeros((self.K, self.D)) if self._kept is None else self._kept
            return np.asarray(qr(kept.T, mode="economic")[0])
        self._flush()
        basis = self._raw_basis()
        if not orthogonalize:
            return np.array(basis.T)
        Q, R = qr(basis.T, mode="economic", check_finite=False)
        signs = np.where(np.diag(R) < 0, -1.0, 1.0).astype(self.dtype)
        U: Array = Q * signs
        return U

    def principal_components(self) -> tuple[Array, Floats]:
        """The basis turned into ordered principal components of the model that the algorithm holds.

        Returns
        -------
        components : (K, D)
            Orthonormal rows, largest variance first; signs are arbitrary.
        variances : (K,)
        """
        if self._block is None:
            raise ValueError(f"There is no model yet: it starts with sample {self.K}, and {self.t} have been seen.")
        self._flush()
        basis = self._raw_basis()
        Q, R = qr(basis.T, mode="economic", check_finite=False)
        variances, vectors = eigh(self._covariance_within(R.astype(np.float64)))
        return matmul(vectors[:, ::-1].T.astype(self.dtype), Q.T), np.maximum(variances[::-1], 0.0)

    @property
    def block_rows(self) -> int:
        """How many samples `fit_block` takes at a time."""
        return self._cost.block_rows(self._features(), self.K) if self.block_size == "auto" else self.block_size

    @property
    def open_rows(self) -> int:
        """How many samples `fit_next` gathers before the basis moves."""
        return self._cost.open_rows(self._features(), self.K) if self.block_size == "auto" else self.block_size

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a file, as it stands; one that is loaded again goes on bit for bit. See `online_psp.io.model_file`."""
        from online_psp.algorithms._snapshot import contents
        from online_psp.io import model_file

        model_file.write(path, contents(self))

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, learning_rate: Rate | None = None, beta: Rate | None = None) -> Self:
        """Read a model; step sizes that were functions cannot be stored, and must be passed again."""
        from online_psp.algorithms._snapshot import from_contents
        from online_psp.io import model_file

        model: Self = from_contents(model_file.read(path), cls, path, {"learning_rate": learning_rate, "beta": beta})
        return model

    def __repr__(self) -> str:
        options = "".join(f", {name}={getattr(self, name)!r}" for name in self._options if getattr(self, name) is not None)
        return f"{type(self).__name__}(K={self.K}, D={self.D}{options}, t={self.t})"

    # Rows in

    def _features(self) -> int:
        if self.D is None:
            raise ValueError("The number of features is not known before the first sample.")
        return self.D

    def _check_features(self, D: int) -> int:
        if self.K > D:
            raise ValueError(f"K must not be larger than D; got K={self.K} and D={D}.")
        return D

    def _check_row(self, x: ArrayLike) -> Array:
        # Kernels are compiled for plain arrays that can be written to, and not once more for others.
        row = np.require(as_real(x, "A sample"), self.dtype, ["C", "A", "W", "E"])
        if row.ndim != 1:
            raise ValueError(f"fit_next takes one sample of shape ({self.D or 'D'},); got shape {row.shape}.")
        if self.D is None:
            self._check_features(len(row))
        elif len(row) != self.D:
            raise ValueError(f"A sample must have {self.D} features; got {len(row)}.")
        return row

    def _check_rows(self, X: Any) -> np.ndarray[Any, Any] | SparseRows | ForeignRows:
        if self._foreign and namespace_of(X) is not None:
            foreign = ForeignRows(X, self.dtype)
            if self.D is not None and foreign.shape[1] != self.D:
                raise ValueError(f"Samples must have {self.D} features; got {foreign.shape[1]}.")
            bad = foreign.bad_row()
            if bad is not None:
                raise ValueError(f"Row {bad} has NaN, infinity or values whose squares overflow; every value must be finite.")
            self._check_features(foreign.shape[1])
            return foreign
        if issparse(X):
            self._check_features(np.shape(X)[-1])
            return checked_rows(X, self.D, self.dtype)
        rows = as_real(X, "A block")
        if rows.ndim != 2:
            raise ValueError(f"fit_block takes samples as rows, shape (n, {self.D or 'D'}); got shape {rows.shape}.")
        if self.D is not None and rows.shape[1] != self.D:
            raise ValueError(f"Samples must have {self.D} features; got {rows.shape[1]}.")
        if self.D is None:
            self._check_features(rows.shape[1])
        return rows

    def _check_finite(self, rows: np.ndarray[Any, Any], rates: tuple[Floats, ...]) -> list[Array]:
        """Before anything is learned from a call, all of its rows are known to be finite.

        Where the inner products of samples that the blocks need anyway can take the place of a pass over the rows, they are returned.
        """
        if rows.dtype.kind != "f":
            return []
        if self._can_look_ahead(rows):
            return [finite_gram(rows, start, stop) for start, stop in self._cuts(0, len(rows), rates, self.block_rows)]
        check_finite(rows, self.dtype)
        return []

    def _can_look_ahead(self, rows: np.ndarray[Any, Any]) -> bool:
        if self._block is None or rows.dtype != self.dtype or not rows.flags.c_contiguous:
            return False
        step = self.block_rows
        return self._features() > self.K + self._most(step) and len(rows) * step <= _MOST_AHEAD

    # The start

    def _start_with(self, rows: Array, rates: tuple[Floats, ...]) -> Array:
        """Keep rows until there are K of them, then start, and feed them with `rates`; outputs as in :meth:`_provisional`."""
        if self._kept is None:
            self.D = rows.shape[1]
            self._kept = np.zeros((self.K, self.D), dtype=self.dtype)
            self._kept_factor = np.zeros((self.K, self.K))
        self._kept[self.t : self.t + len(rows)] = rows
        Y = self._provisional(len(rows))
        self.t += len(rows)
        if self.t == self.K:
            kept, self._kept = self._kept, None
            self._begin(np.ascontiguousarray(qr(kept.T, mode="economic", check_finite=False)[0].T))
            Y[-1] = self._feed_first(kept, rates)
        return Y

    def _feed_first(self, kept: Array, rates: tuple[Floats, ...]) -> Floats:
        """Learn from the K rows that the start was made of; returns the output of the last."""
        for start, stop in self._cuts(0, self.K, rates, self.block_rows):
            fed = self._take_block(kept[start:stop], [rate[start:stop] for rate in rates])
        return np.asarray(fed[-1])

    def _provisional(self, n: int) -> Array:
        """Outputs for the newest n of the kept rows: the coordinates of each in the QR basis of the rows up to it."""
        assert self._kept is not None
        t, L = self.t, self._kept_factor
        Y = np.zeros((n, self.K), dtype=self.dtype)
        products = matmul(self._kept[t : t + n], self._kept[: t + n].T).astype(np.float64)
        for i, row in enumerate(products):
            square = row[t + i]
            forward_substitute(L, row, t + i)
            left = square - float(row[: t + i] @ row[: t + i])
            new = left > 1e-12 * square  # otherwise the row is a combination of earlier ones
            row[t + i] = math.sqrt(left) if new else 0.0
            L[t + i, : t + i] = row[: t + i]
            L[t + i, t + i] = row[t + i] if new else math.inf
            Y[i, : t + i + 1] = row[: t + i + 1]
        return Y

    # Blocks

    def _use_block_for(self, rows: Any) -> None:
        """Make the block one that takes these rows."""
        raise NotImplementedError

    def _use_dense(self) -> None:
        """Make the block one that takes dense rows and single samples; most do."""

    @property
    def _sparse_rows(self) -> int:
        """How many sparse rows `fit_block` takes at a time."""
        return self.block_rows

    def _cuts(self, first: int, last: int, rates: tuple[Floats, ...], step: int) -> Iterator[tuple[int, int]]:
        """Where to cut rows `first` … `last`−1 into blocks of about `step`: several of one size, a multiple of eight."""
        most, n = self._most(step), last - first
        count = max(-(-n // most), round(n / step))
        if count > 1:
            most = min(most, 8 * -(-n // (8 * count)))
        for start in range(first, last, most):
            yield start, min(start + most, last)

    def _most(self, step: int) -> int:
        """How large a block may be where `step` is what it should be: a call is not cut in two for a few rows."""
        return step + step // 2 if self.block_size == "auto" else step

    @property
    def _held_rows(self) -> int:
        """How many samples the small arrays of a block are made for."""
        return max(self._most(self.block_rows), self.open_rows)

    def _take_block(self, X: Array, rates: list[Floats], G: Array | None = None) -> Floats:
        assert self._block is not None
        self._block.load(X, G)
        for steps, rate in zip(self._steps, rates, strict=True):
            steps[: len(X)] = rate
        Y = self._recur(0, len(X))
        self._close()
        return Y

    def _flush(self) -> None:
        if self._block is not None and self._block.n:
            self._close()
