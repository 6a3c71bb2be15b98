"""What all algorithms share: the public interface, checks of rows, the start, the lock, the state, and cutting rows into blocks."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike
from scipy.linalg import eigh, qr

from online_psp.algorithms._first_rows import FirstRows, KeptRows
from online_psp.algorithms._provided import BlockSize, Provided
from online_psp.engine.blas import matmul
from online_psp.engine.checks import (
    as_real,
    check_block_size,
    check_count,
    check_dtype,
    checked_step,
    checked_steps,
    finite_gram,
    not_finite,
    sum_of_squares,
)
from online_psp.engine.finite import check_learned, in_our_words, worded
from online_psp.engine.libraries import Library
from online_psp.engine.locks import InterruptsWait, model_lock
from online_psp.engine.moments import Sums
from online_psp.engine.rows import AnyRows, ArrayRows, DenseRows, as_rows
from online_psp.engine.sizes import GRAM_AHEAD
from online_psp.engine.types import Array, Floats, Rate


class State(NamedTuple):
    """Everything that an algorithm has learned. An algorithm rebuilt from it, with the same options, continues bit for bit."""

    t: int
    """Samples seen."""
    kept: KeptRows | None
    """The first rows, before the start; None after it."""
    running: Any
    """The state after the start, a `Running` of the class; None before it."""
    start: Floats | None = None
    """(r, K): a start given by the user, until it is used."""


class StreamingAlgorithm(Provided):
    """A streaming algorithm, with the paper's interface: ``fit_next``, ``fit_block``, ``get_components``.

    The first K rows are kept as they are, and until then answers are exact. The K-th row starts the algorithm from the thin QR basis of
    these rows, and then all of them are fed to it.

    One thread learns or reads at a time; others wait. Reading changes nothing.
    """

    def __init__(self, K: int, D: int | None, block_size: BlockSize, dtype: DTypeLike) -> None:
        self.K = check_count(K, "K")
        self.dtype = check_dtype(dtype)
        self.block_size = check_block_size(block_size)
        self.D: int | None = None
        self.t = 0
        """Samples seen."""
        self.learning_rate: Rate | None = None
        self._lock = model_lock()
        self._first: FirstRows | None = None
        self._started = False
        self._library: Library | None = None  # of the last rows, if it was not NumPy
        if D is not None:
            self.D = self._check_features(check_count(D, "D"))

    # Learning

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
        with self._lock:  # and interrupts do not wait, which would take a third of the time of a sample
            if step is not None:
                step = checked_step(step, "step", self.most_step)
            try:
                if self._started and type(x) is np.ndarray and x.dtype == self.dtype and x.shape == (self.D,) and x.flags.carray:
                    return self._take_open(x, step)  # the usual case, in which even one more call would cost time
                row = self._check_row(x)
                if self._started:
                    return self._take_open(row, step)
                self._check_first(row)
                return np.asarray(self._start_with(row[np.newaxis], self._rates(0, self.K))[0])
            except (ValueError, ArithmeticError) as error:
                raise in_our_words(error) from None

    @worded
    def fit_block(self, X: Any, steps: ArrayLike | None = None) -> Any:
        """Learn from n samples at once; the iterates are those of n calls of `fit_next`.

        Parameters
        ----------
        X : (n, D)
            An array or a sparse matrix. A sparse matrix is not made dense: its cost is that of its non-zero entries. Some algorithms, such
            as FSM and SM, leave arrays of other libraries on their device (array API standard, extra ``array-api``); outputs and components
            are then arrays of the same library.
        steps : (n,), optional
            The step sizes of these samples, in place of the schedule's. They apply once the algorithm has started.

        Returns
        -------
        Y : (n, K)
        """
        with self._lock, InterruptsWait():
            rows = as_rows(X, self.dtype, self.D, foreign=self.takes_arrays)
            if self.D is None:
                self._check_features(rows.D)
            n = len(rows)
            rates = self._rates(self.t, n) if steps is None else (checked_steps(steps, n, self.most_step),) * len(self.rate_names)
            grams = self._check_finite(rows, rates)
            return self._learn(rows, rates, grams)

    @worded
    def feed(self, rows: AnyRows, shares: Floats) -> None:
        """Learn from finite samples, given their shares in a weighted average of all samples; only after the start."""
        with self._lock:
            rows = DenseRows(rows.dense(self.dtype)) if isinstance(rows, ArrayRows) and not self.takes_arrays else rows
            self._learn(rows, (self.steps_of(shares),) * len(self.rate_names), [])

    def _learn(self, rows: AnyRows, rates: tuple[Floats, ...], grams: list[Array]) -> Any:
        n = len(rows)
        Y = np.empty((n, self.K), dtype=self.dtype)
        done = 0
        if not self._started and n:
            done = min(n, self.K - self.t)
            Y[:done] = self._start_with(rows[:done].dense(self.dtype), self._rates(0, self.K))
        self._library = rows.library if isinstance(rows, ArrayRows) else None
        if done < n:
            self._flush()
            self._use_store_for(rows)
            self._take_rows(rows[done:], tuple(rate[done:] for rate in rates), grams, Y[done:])
        return Y if self._library is None else self._library.of(Y)

    def _take_rows(self, rows: AnyRows, rates: tuple[Floats, ...], grams: list[Array], Y: Array) -> None:
        """Learn from rows, block by block, and fill in their outputs; only after the start, with no open block."""
        dense = isinstance(rows, DenseRows)
        for (start, stop), G in zip_longest(self._cuts(0, len(rows), rates, self._rows_for(rows)), grams):
            part: Any = rows[start:stop].dense(self.dtype) if dense else rows[start:stop]
            Y[start:stop] = self._take_block(part, [rate[start:stop] for rate in rates], G)
            self.t += stop - start

    # Reading

    @worded
    def get_components(self, orthogonalize: bool = True) -> Any:
        """The basis found so far.

        Parameters
        ----------
        orthogonalize : bool
            Whether to make the columns orthonormal; if not, the basis is returned as the algorithm keeps it.

        Returns
        -------
        U : (D, K)
            Until K rows have been seen, its first columns span them.
        """
        with self._lock:
            if not self._started:
                if self.D is None:
                    raise ValueError("There is no basis yet: the number of features is not known before the first sample.")
                kept = np.zeros((self.K, self.D), dtype=self.dtype)
                if self._first is not None:
                    kept[: self.t] = self._first.rows[: self.t]
                return np.asarray(qr(kept.T, mode="economic")[0])
            U = self._settled()._components(orthogonalize)
            check_learned(U)
            return U if self._library is None else self._library.of(U)

    def _components(self, orthogonalize: bool) -> Array:
        basis = self._raw_basis()
        if not orthogonalize:
            return np.array(basis.T)
        Q, R = qr(basis.T, mode="economic", check_finite=False)
        return np.asarray(Q * np.where(np.diag(R) < 0, -1.0, 1.0).astype(self.dtype))

    @worded
    def principal_components(self) -> tuple[Any, Floats]:
        """The principal components of the model, in order, with their variances.

        Returns
        -------
        components : (K, D)
            Orthonormal rows, largest variance first; signs are arbitrary.
        variances : (K,)
        """
        with self._lock:
            if not self._started:
                raise ValueError(f"There is no model yet: it starts with sample {self.K}, and {self.t} samples have been seen.")
            components, variances = self._settled()._principal()
            check_learned(components, variances)
            return components if self._library is None else self._library.of(components), variances

    def glance(self, count: int) -> tuple[Any, Floats]:
        """As `principal_components`, at least the first `count` of them, but without the rows of an open block if these would cost much."""
        return self.principal_components()

    def _principal(self) -> tuple[Array, Floats]:
        Q, R = qr(self._raw_basis().T, mode="economic", check_finite=False)
        within = self._covariance_within(R.astype(np.float64))
        check_learned(within)
        variances, vectors = eigh(within)
        return matmul(vectors[:, ::-1].T.astype(self.dtype), Q.T), np.maximum(variances[::-1], 0.0)

    def _settled(self) -> Self:
        """This model if it has no open samples, otherwise a copy that has learned from them, so that reading changes nothing."""
        if not self._open_samples():
            return self
        twin = self.from_state(self.options(), self.state())
        twin._close()
        return twin

    @property
    def block_rows(self) -> int:
        """How many samples `fit_block` takes at a time."""
        return self._cost.block_rows(self._features(), self.K) if self.block_size == "auto" else self.block_size

    @property
    def open_capacity(self) -> int:
        """How many samples `fit_next` gathers before the basis moves."""
        if self.block_size == "auto":
            return self._cost.open_rows(self._features(), self.K)
        return min(self.block_size, max(64, 4 * self.K))

    # State

    def options(self) -> dict[str, Any]:
        """The arguments that the model was made with, except the start."""
        names = ("K", "D", "block_size", "dtype", *self.option_names, *self.rate_names)
        return {name: getattr(self, name) for name in names}

    @property
    def running_sum(self) -> Sums | None:
        """The running sum by which sparse rows are centred, if it is part of the state; later rows must continue from it."""
        return None

    def state(self) -> State:
        """Everything learned, in arrays of its own; the model does not change, and its open block stays open."""
        with self._lock:
            kept = None if self._first is None else self._first.state(self.t)
            return State(self.t, kept, self._running_state() if self._started else None, None if self._started else self._given_start())

    @classmethod
    def from_state(cls, options: dict[str, Any], state: State) -> Self:
        """A model with these options and this state."""
        K, D, rest = options["K"], options["D"], {name: options[name] for name in options if name not in ("K", "D")}
        model: Self = cls(K, D, **rest)
        model._set_state(state)
        return model

    def _set_state(self, state: State) -> None:
        self.t = state.t
        if state.kept is not None:
            self._first = FirstRows.from_state(state.kept, self.K)
        if state.running is not None:
            self._started = True
            self._restore(state.running)
        elif state.start is not None:
            self._take_start(np.array(state.start))

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self.options(), "state": self.state()}

    def __setstate__(self, saved: dict[str, Any]) -> None:
        self.__dict__.update(vars(type(self).from_state(saved["options"], saved["state"])))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a file; a model loaded from it continues bit for bit. See `online_psp.io.model_file`."""
        from online_psp.algorithms._files import save

        save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, learning_rate: Rate | None = None, beta: Rate | None = None) -> Self:
        """Read a model from a file. Functions cannot be stored: pass `learning_rate` and `beta` again if the model had them."""
        from online_psp.algorithms._files import load

        model: Self = load(cls, path, {"learning_rate": learning_rate, "beta": beta})
        return model

    def __repr__(self) -> str:
        options = "".join(f", {name}={getattr(self, name)!r}" for name in self.option_names)
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
        # Kernels are compiled for plain writable arrays only; others would be compiled for again.
        row = np.require(as_real(x, "A sample"), self.dtype, ["C", "A", "W", "E"])
        if row.ndim != 1:
            raise ValueError(f"fit_next takes one sample of shape ({self.D or 'D'},); got shape {row.shape}.")
        if self.D is None:
            self._check_features(len(row))
        elif len(row) != self.D:
            raise ValueError(f"A sample must have {self.D} features; got {len(row)}.")
        return row

    def _check_first(self, row: Array) -> None:
        """Raise a ValueError if a sample before the start, (D,), is not finite."""
        if not math.isfinite(sum_of_squares(row)):
            raise not_finite(row, 0, self.dtype)

    def _check_finite(self, rows: AnyRows, rates: tuple[Floats, ...]) -> list[Array]:
        """Raise a ValueError if any row of a call is not finite, before anything is learned from it.

        If the inner products that the blocks need anyway can tell, they are computed instead of a pass over the rows, and returned.
        """
        if isinstance(rows, DenseRows) and self._can_look_ahead(rows.X):
            return [finite_gram(rows.X, start, stop) for start, stop in self._cuts(0, len(rows), rates, self.block_rows)]
        rows.check_finite(self.dtype)
        return []

    def _can_look_ahead(self, rows: np.ndarray[Any, Any]) -> bool:
        if not self._started or rows.dtype != self.dtype or not rows.flags.c_contiguous:
            return False
        step = self.block_rows
        return self._features() > self.K + self._most(step) and len(rows) * step <= GRAM_AHEAD

    # The start

    def _start_with(self, rows: Array, rates: tuple[Floats, ...]) -> Array:
        """Keep rows until there are K of them, then start, and feed them with `rates`; returns outputs as in `FirstRows.add`."""
        first = self._first if self._first is not None else FirstRows(self.K, rows.shape[1], self.dtype)
        Y, t = first.add(rows, self.t), self.t + len(rows)
        self.D = rows.shape[1]
        if t == self.K:
            self._begin(first.basis())
            self._started = True
        self.t, self._first = t, None if self._started else first  # not before: a start that needs too much memory changes nothing
        if self._started:
            Y[-1] = self._feed_first(first.rows, rates)
        return Y

    def _feed_first(self, kept: Array, rates: tuple[Floats, ...]) -> Floats:
        """Learn from the K rows that the start was made of; returns the output of the last."""
        for start, stop in self._cuts(0, self.K, rates, self.block_rows):
            fed = self._take_block(kept[start:stop], [rate[start:stop] for rate in rates])
        return np.asarray(fed[-1])

    # Blocks

    def _rows_for(self, rows: AnyRows) -> int:
        """Number of such rows to take at a time."""
        return self.block_rows

    def _cuts(self, first: int, last: int, rates: tuple[Floats, ...], step: int) -> Iterator[tuple[int, int]]:
        """Cut rows `first` … `last`−1 into blocks of about `step` rows, all of one size, a multiple of eight."""
        most, n = self._most(step), last - first
        count = max(-(-n // most), round(n / step))
        if count > 1:
            most = min(most, 8 * -(-n // (8 * count)))
        for start in range(first, last, most):
            yield start, min(start + most, last)

    def _most(self, step: int) -> int:
        """The largest block where `step` is the best size: a call is not cut in two for a few rows."""
        return step + step // 2 if self.block_size == "auto" else step

    def _flush(self) -> None:
        if self._open_samples():
            self._close()
