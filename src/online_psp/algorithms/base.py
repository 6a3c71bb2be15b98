"""What the paper's algorithms share: rows in, blocks, the start, reading, state.

Read literally, every one of them touches its K×D basis several times for each sample. But over a block of n samples X (n, D) each only ever
leaves the basis B (K, D) as a linear combination of the old basis and the samples. So a block is *compressed* into inner products; the
published update *recurs* on those alone, sample by sample; and the basis is *expanded*, ``B ← A B + C X``. The iterates are those of one
sample at a time, and all work of length D is matrix products.

`fit_block` takes a block as a whole. `fit_next` adds one sample to an *open* block, whose samples the basis has not learned yet, and runs
the same recurrence over it; the basis moves when the block is full or somebody reads it.
"""

from __future__ import annotations

import copy
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, ClassVar, Literal, Self, TypeAlias, get_type_hints

import numpy as np
from numpy.typing import ArrayLike, DTypeLike
from scipy.linalg import qr
from scipy.sparse import issparse

from online_psp.engine.checks import (
    as_real,
    check_block_size,
    check_count,
    check_dtype,
    evaluate_rate,
    not_finite,
    row_squares,
    sum_of_squares,
)
from online_psp.engine.finite import check_learned, in_our_words, worded
from online_psp.engine.libraries import namespace_of, to_host
from online_psp.engine.locks import InterruptsWait, model_lock
from online_psp.engine.threads import suited_threads
from online_psp.engine.types import Array, Floats, Rate

BlockSize: TypeAlias = int | Literal["auto"]

BELOW_ONE = float(np.nextafter(1.0, 0.0))
_DENSE_BYTES = 1 << 24  # rows that are converted at a time


class StreamingAlgorithm(ABC):
    """A streaming algorithm with the paper's interface: ``fit_next``, ``fit_block``, ``get_components``.

    The first K rows are kept as they are, and until then answers are exact. The K-th row starts the algorithm from the thin QR basis of
    these rows, and then all of them are fed to it. Rows are taken as given: nothing is centred.

    One thread learns or reads at a time; others wait. Reading changes nothing.
    """

    # What an algorithm provides

    #: A dataclass of arrays, with room for a block of samples, and of numbers; `axes_of` tells the axes of each.
    State: ClassVar[type]
    #: Parameters that are functions of t and give step sizes; one that is not given is as the first.
    rate_names: ClassVar[tuple[str, ...]] = ("learning_rate",)
    #: Other parameters of the class, all numbers.
    option_names: ClassVar[tuple[str, ...]] = ()
    #: The largest step size allowed.
    most_step: ClassVar[float] = BELOW_ONE

    @abstractmethod
    def _start(self, Q: Array) -> Any:
        """The state that starts from Q (K, D), orthonormal rows."""

    @abstractmethod
    def _default_step(self, t: Any) -> Any:
        """The published step sizes of samples t, a number or an array."""

    @abstractmethod
    def _add(self, row: Array) -> bool:
        """Compress one more sample into the open block; returns False, and changes nothing, if it is not finite."""

    @abstractmethod
    def _load(self, X: Array) -> None:
        """Compress a whole block."""

    @abstractmethod
    def _recur(self, first: int, last: int) -> bool:
        """The published update over samples `first` … `last`−1 of the block, with their `steps`; fills in their rows of `Y`.

        Returns whether the block must end here, because little is left of what it started from.
        """

    @abstractmethod
    def _expand(self) -> None:
        """Move the basis by the block."""

    @abstractmethod
    def _read(self) -> Array:
        """(K, D) rows that span the subspace, in order if the algorithm has one; only without open samples."""

    # What it may provide

    def _raw(self) -> Array:
        """(K, D): the basis as the algorithm keeps it; only without open samples."""
        return self._read()

    def _learn_first(self, rows: Array, steps: Floats) -> Array:
        """Learn from the K rows that the start was made of; returns the output of the last."""
        return np.asarray(self._learn(rows, steps)[-1])

    def _ends(self, steps: Floats) -> Iterable[int]:
        """Where the blocks end into which samples with these steps, (r, n), are cut."""
        return range(self.block_rows, steps.shape[1] + self.block_rows, self.block_rows)

    def _suited_rows(self) -> tuple[int, int]:
        """Samples that `fit_block` takes at a time and `fit_next` gathers: the more, the dearer their products, the cheaper a block."""
        return min(max(8 * (self.K // 16) + 16, 32), 128), min(max(self.K, 16), 32)

    # Learning

    def __init__(self, K: int, D: int | None, block_size: BlockSize, dtype: DTypeLike, given: Mapping[str, Floats]) -> None:
        """`given` holds arrays of the state that are known before the basis is."""
        self.K = check_count(K, "K")
        self.dtype = check_dtype(dtype)
        self.block_size = check_block_size(block_size)
        self.block_rows, self.open_rows = self._suited_rows() if self.block_size == "auto" else (self.block_size, min(self.block_size, 64))
        self.D: int | None = None
        self.t = 0
        """Samples seen."""
        self._lock = model_lock()
        self._given = dict(given)
        self._first: list[Array] = []  # the rows before the start
        self._spanned: list[Array] = []  # their Gram–Schmidt basis
        self._state: Any = None
        self._n = 0  # samples of the block in hand
        self._published = all(getattr(self, name) is None for name in self.rate_names)
        if D is not None:
            self._set_features(check_count(D, "D"))

    def fit_next(self, x: ArrayLike) -> Array:
        """Learn from one sample.

        Parameters
        ----------
        x : (D,)

        Returns
        -------
        y : (K,)
            Its projection, as the algorithm defines it.
        """
        with self._lock:  # and interrupts do not wait, which would take a third of the time of a sample
            try:
                if type(x) is np.ndarray and x.dtype == self.dtype and x.shape == (self.D,) and x.flags.carray:
                    row = x
                else:
                    row = self._check_row(x)
                state, n, t = self._state, self._n, self.t + 1
                if state is None:
                    return np.array(self._keep(self._check_values(row[np.newaxis]))[0])
                state.steps[:, n] = self._default_step(t) if self._published else self._rates(t - 1, 1)[:, 0]
                if not self._add(row):
                    raise not_finite(row, 0, self.dtype)
                full = self._recur(n, n + 1) or n + 1 == self.open_rows
                self._n, self.t = n + 1, t
                y: Array = state.Y[n].astype(self.dtype)
                if full:
                    self._close()
                return y
            except (ValueError, ArithmeticError) as error:
                raise in_our_words(error) from None

    @worded
    def fit_block(self, X: Any) -> Array:
        """Learn from n samples at once; the iterates are those of n calls of `fit_next`.

        Parameters
        ----------
        X : (n, D)
            An array, a sparse matrix, which is made dense a block at a time, or an array of another library, which is brought to the host.

        Returns
        -------
        Y : (n, K)
        """
        with self._lock, InterruptsWait():
            rows = self._check_values(self._check_rows(X))
            n, D = rows.shape
            steps = self._rates(self.t, n)
            Y, done = np.empty((n, self.K), dtype=self.dtype), 0
            if self._state is None and n:
                done = min(n, self.K - self.t)
                Y[:done] = self._keep(rows[:done])
            many = max(self.block_rows, _DENSE_BYTES // (8 * D) // self.block_rows * self.block_rows)
            with suited_threads(self.K * D):
                for first in range(done, n, many):
                    part = slice(first, first + many)
                    Y[part] = self._learn(self._dense(rows[part]), steps[:, part])
            return Y

    def partial_fit(self, X: Any, times: Any = None) -> Self:
        """Learn from rows, (n, D), as `fit_block`; for code that feeds models of any kind. Times are not used."""
        self.fit_block(X)
        return self

    @property
    def n_features_in_(self) -> int:
        """D, once a row has been seen."""
        if not self.t:
            raise AttributeError("No row has been seen yet.")
        return self._features()

    def _learn(self, X: Array, steps: Floats) -> Floats:
        """Learn from dense rows, block by block; only after the start. Returns their outputs."""
        self._close()
        Y, first, state = np.empty((len(X), self.K)), 0, self._state
        for end in self._ends(steps):
            rows = slice(first, min(end, len(X)))
            n = rows.stop - first
            state.steps[:, :n] = steps[:, rows]
            self._load(X[rows])
            self._recur(0, n)
            Y[rows] = state.Y[:n]
            self._n, self.t, first = n, self.t + n, rows.stop
            self._close()
        return Y

    def _close(self) -> None:
        if self._n:
            self._expand()
            self._n = 0

    def _rates(self, t: int, n: int) -> Floats:
        """The step sizes of samples t+1 … t+n, a row for each of `rate_names`."""
        rows: list[Floats] = []
        for name in self.rate_names:
            rate: Rate | None = getattr(self, name)
            if rate is not None:
                rows.append(evaluate_rate(rate, t, n, name, self.most_step))
            else:
                rows.append(rows[0] if rows else self._default_step(np.arange(t + 1.0, t + n + 1.0)))
        return np.array(rows)

    # The start

    def _keep(self, rows: Any) -> Array:
        """Keep rows until there are K of them, then start, and feed them all.

        Returns their outputs; before the start these are coordinates in the Gram–Schmidt basis of the rows so far.
        """
        X = self._dense(rows)
        Y = np.zeros((len(X), self.K), dtype=self.dtype)
        kept, spanned = list(self._first), list(self._spanned)
        for x, y in zip(X, Y, strict=True):
            y[: len(kept)], unit = _apart(x, np.array(spanned).reshape(-1, len(x)))
            y[len(kept)] = unit @ x
            kept.append(x.copy())
            spanned.append(unit)
        if len(kept) == self.K:
            first, steps = np.array(kept), self._rates(0, self.K)
            try:
                self._state = self._start(np.ascontiguousarray(qr(first.T, mode="economic", check_finite=False)[0].T))
                Y[-1] = self._learn_first(first, steps)
            except BaseException:
                self._state = None
                raise
            kept, spanned = [], []
        self._set_features(X.shape[1])
        self._first, self._spanned = kept, spanned
        self.t = len(kept) or self.K
        return Y

    # Reading

    @worded
    def get_components(self, orthogonalize: bool = True) -> Array:
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
            if self._state is None:
                if self.D is None:
                    raise ValueError("There is no basis yet: the number of features is not known before the first sample.")
                kept = np.zeros((self.K, self.D), dtype=self.dtype)
                for place, row in zip(kept, self._first, strict=False):
                    place[:] = row
                return np.asarray(qr(kept.T, mode="economic")[0])
            model = self._settled()
            U: Array = (model._read() if orthogonalize else model._raw()).T
            check_learned(U)
            if not orthogonalize:
                return U.copy()
            Q, R = qr(U, mode="economic", check_finite=False)
            return np.asarray(Q * np.where(np.diag(R) < 0, -1.0, 1.0).astype(self.dtype))

    def _settled(self) -> Self:
        """This model if it has no open samples, otherwise a copy that has learned from them, so that reading changes nothing."""
        if not self._n:
            return self
        twin = copy.copy(self)
        twin._close()
        return twin

    # State

    def options(self) -> dict[str, Any]:
        """The arguments that the model was made with, except the start."""
        names = ("K", "D", "block_size", "dtype", *self.option_names, *self.rate_names)
        return {name: getattr(self, name) for name in names}

    def state(self) -> dict[str, Array]:
        """Everything learned, in arrays of its own, by name; the open block stays open."""
        with self._lock:
            found = {"counts": np.array([self.t, self._n, self._state is not None], dtype=np.float64)}
            if self._state is None:
                first = {"first": np.array(self._first)} if self._first else {}
                return found | first | {name: array.copy() for name, array in self._given.items()}
            arrays = {name: (np.atleast_1d(getattr(self._state, name)), axes) for name, axes in axes_of(self.State).items()}
            return found | {name: array[self._used(axes)].copy() for name, (array, axes) in arrays.items()}

    @classmethod
    def from_state(cls, options: dict[str, Any], state: Mapping[str, Array]) -> Self:
        """A model with these options and this state."""
        make: Any = cls
        model: Self = make(**options)
        t, n, started = (int(count) for count in state["counts"])
        model._given |= {name: np.array(state[name]) for name in model._given if name in state}
        if "first" in state:
            model._keep(state["first"])
        model.t, model._n = t, n
        if started:
            model._state = model._start(np.array(state["stack"][: model.K]))
            for name, axes in axes_of(cls.State).items():
                if axes:
                    getattr(model._state, name)[model._used(axes)] = state[name]
                else:
                    setattr(model._state, name, float(state[name][0]))
        return model

    def _used(self, axes: str) -> tuple[slice, ...]:
        """The part of an array with these axes that is in use."""
        sizes = {"n": self._n, "m": self.K + self._n}
        return tuple(slice(sizes.get(axis)) for axis in axes)

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            return copy.deepcopy({name: value for name, value in vars(self).items() if name != "_lock"})

    def __setstate__(self, saved: dict[str, Any]) -> None:
        self.__dict__.update(saved, _lock=model_lock())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a file; a model loaded from it continues bit for bit. See `online_psp.io.model_file`."""
        from online_psp.algorithms.files import save

        save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, learning_rate: Rate | None = None, beta: Rate | None = None) -> Self:
        """Read a model from a file. Functions cannot be stored: pass `learning_rate` and `beta` again if the model had them."""
        from online_psp.algorithms.files import load

        model: Self = load(path, {"learning_rate": learning_rate, "beta": beta}, cls)[0]
        return model

    def __repr__(self) -> str:
        options = "".join(f", {name}={getattr(self, name)!r}" for name in self.option_names)
        return f"{type(self).__name__}(K={self.K}, D={self.D}{options}, t={self.t})"

    # Rows in

    def _set_features(self, D: int) -> None:
        if self.K > D:
            raise ValueError(f"K must not be larger than D; got K={self.K} and D={D}.")
        self.D = D

    def _features(self) -> int:
        if self.D is None:
            raise ValueError("The number of features is not known before the first sample.")
        return self.D

    def _check_row(self, x: ArrayLike) -> Array:
        # Kernels are compiled for plain writable arrays only; others would be compiled for again.
        row = np.require(as_real(x, "A sample"), self.dtype, ["C", "A", "W", "E"])
        if row.ndim != 1:
            raise ValueError(f"fit_next takes one sample of shape ({self.D or 'D'},); got shape {row.shape}.")
        self._check_width(len(row))
        return row

    def _check_rows(self, X: Any) -> Any:
        """Rows (n, D): an array, or a sparse matrix by rows."""
        if issparse(X):
            if X.dtype.kind not in "fiub":
                raise TypeError(f"A block must be real numbers; got dtype {X.dtype}.")
            rows: Any = X.tocsr() if X.ndim == 2 else X
        else:
            rows = as_real(X if namespace_of(X) is None else to_host(X), "A block")
        if rows.ndim != 2:
            raise ValueError(f"fit_block takes samples as rows, shape (n, {self.D or 'D'}); got shape {rows.shape}.")
        self._check_width(rows.shape[1])
        return rows

    def _check_width(self, D: int) -> None:
        if self.D is None and self.K > D:
            raise ValueError(f"K must not be larger than D; got K={self.K} and D={D}.")
        if self.D is not None and self.D != D:
            raise ValueError(f"Samples must have {self.D} features; got {D}.")

    def _check_values(self, rows: Any) -> Any:
        """Raise a ValueError if any row is not finite in the model's precision, before anything is learned; returns the rows."""
        step = max(1, _DENSE_BYTES // (8 * max(1, rows.shape[1])))
        for first in range(0, rows.shape[0], step):
            part = self._dense(rows[first : first + step])
            if not math.isfinite(sum_of_squares(part)):
                finite = np.isfinite(row_squares(part))
                if not finite.all():
                    at = int(np.argmin(finite))
                    raise not_finite(part[at], first + at, self.dtype)
        return rows

    def _dense(self, rows: Any) -> Array:
        """Rows as a plain array in the model's precision."""
        with np.errstate(over="ignore"):
            return np.require(rows.toarray() if issparse(rows) else rows, self.dtype, ["C", "A", "W", "E"])


@cache
def axes_of(state: type) -> dict[str, str]:
    """The axes of each field of a `State`: K, D, r for the rates, n for samples of the block, m for K + n; none for a number."""
    hints = get_type_hints(state, include_extras=True)
    return {name: hint.__metadata__[0] if hasattr(hint, "__metadata__") else "" for name, hint in hints.items()}


def _apart(x: Array, Q: Array) -> tuple[Array, Array]:
    """Coordinates of x in orthonormal rows Q, and the unit vector of what is outside of them: zero if that is rounding."""
    y = Q @ x
    rest = x - y @ Q
    again = Q @ rest
    rest -= again @ Q
    length = float(np.linalg.norm(rest))
    return y + again, rest / length if length > 1e-6 * float(np.linalg.norm(x)) else np.zeros_like(rest)
