"""Rows of samples, wherever they live: in a NumPy array, in a CSR matrix, or in an array of another library.

:func:`as_rows` turns whatever a user passes into one of three classes with one interface. A slice of rows shares their memory, and nothing
is converted before it is needed, block by block.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from online_psp.engine.checks import as_real, check_finite, not_finite, sum_of_squares
from online_psp.engine.libraries import Library, namespace_of, to_host
from online_psp.engine.types import Array, Floats


class DenseRows:
    """Rows of a NumPy array, of any real type and layout."""

    names: Any = None
    """Names of the columns where a table was given, for messages."""

    def __init__(self, X: NDArray[Any]) -> None:
        self.X = X
        self.D: int = X.shape[1]
        self.dtype: np.dtype[Any] = X.dtype

    def __len__(self) -> int:
        return len(self.X)

    def __getitem__(self, part: slice) -> DenseRows:
        return DenseRows(self.X[part])

    def take(self, numbers: NDArray[np.intp]) -> DenseRows:
        """Some of the rows, by number."""
        return DenseRows(self.X[numbers])

    def dense(self, dtype: np.dtype[Any]) -> Array:
        """(n, D) in NumPy, C-contiguous, in this precision; a view if possible."""
        return np.ascontiguousarray(self.X, dtype=dtype)

    def check_finite(self, dtype: np.dtype[Any]) -> None:
        """Raise a ValueError that names the first row with NaN, infinity, or squares that overflow in this precision."""
        if self.X.dtype.kind == "f":
            check_finite(self.X, dtype)


class SparseRows:
    """Rows of a CSR matrix; a slice shares the arrays."""

    def __init__(self, matrix: Any) -> None:
        if not matrix.has_canonical_format:
            matrix = matrix.copy()
            matrix.sum_duplicates()
        self.indptr, self.indices, self.data = matrix.indptr, matrix.indices, matrix.data
        self.D: int = matrix.shape[1]
        self.dtype: np.dtype[Any] = matrix.dtype

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def __getitem__(self, part: slice) -> SparseRows:
        start, stop, _ = part.indices(len(self))
        rows = object.__new__(SparseRows)
        rows.__dict__.update(self.__dict__)
        rows.indptr = self.indptr[start : stop + 1]
        return rows

    def matrix(self) -> Any:
        """(n, D) in CSR, not centred."""
        entries = slice(self.indptr[0], self.indptr[-1])
        return csr_array((self.data[entries], self.indices[entries], self.indptr - self.indptr[0]), shape=(len(self), self.D))

    def take(self, numbers: NDArray[np.intp]) -> SparseRows:
        """Some of the rows, by number."""
        return SparseRows(self.matrix()[numbers])

    @property
    def nnz(self) -> int:
        return int(self.indptr[-1] - self.indptr[0])

    def dense(self, dtype: np.dtype[Any]) -> Array:
        """(n, D), not centred."""
        return np.asarray(self.matrix().toarray(), dtype=dtype)

    def squares(self) -> Floats:
        """``‖x‖²`` of every row, not centred, (n,)."""
        values = self.data[self.indptr[0] : self.indptr[-1]].astype(np.float64)
        rows = np.repeat(np.arange(len(self)), np.diff(self.indptr))
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(np.bincount(rows, values * values, minlength=len(self)), dtype=np.float64)

    def check_finite(self, dtype: np.dtype[Any]) -> None:
        with np.errstate(over="ignore"):
            finite = np.isfinite(self.squares().astype(dtype))
        if not finite.all():
            at = int(np.argmin(finite))
            entries = slice(self.indptr[at], self.indptr[at + 1])
            raise not_finite(self.data[entries], at, dtype, self.indices[entries])


class ArrayRows:
    """Rows in an array of another library that keeps to the array API standard, such as torch.

    Parameters
    ----------
    X : (n, D)
    dtype : float64 or float32, optional
        Precision to convert them to; by default float32 stays and everything else becomes float64.
    """

    def __init__(self, X: Any, dtype: Any = None) -> None:
        xp = namespace_of(X)
        if X.ndim != 2:
            raise ValueError(f"Samples must be the rows of a two-dimensional array; got {X.ndim} dimensions.")
        if dtype is None:
            dtype = np.float32 if X.dtype == xp.float32 else np.float64
        self.library = Library(xp, X, dtype)
        self.dtype: np.dtype[Any] = self.library.dtype
        wanted = getattr(xp, self.dtype.name)
        self.X = X if X.dtype == wanted else xp.astype(X, wanted)
        self.D = int(X.shape[1])

    def __len__(self) -> int:
        return int(self.X.shape[0])

    def __getitem__(self, part: slice) -> ArrayRows:
        start, stop, _ = part.indices(len(self))
        return ArrayRows(self.X[start:stop, :], self.library.dtype)

    def take(self, rows: NDArray[np.intp]) -> ArrayRows:
        """Some of the rows, by number."""
        xp = self.library.xp
        return ArrayRows(xp.take(self.X, xp.asarray(rows, device=self.library.device), axis=0), self.library.dtype)

    def dense(self, dtype: np.dtype[Any]) -> Array:
        return np.ascontiguousarray(to_host(self.X), dtype=dtype)

    def squares(self) -> Floats:
        """``‖x‖²`` of every row, (n,), on the host."""
        return to_host(self.library.xp.sum(self.X * self.X, axis=1)).astype(np.float64)

    def check_finite(self, dtype: np.dtype[Any]) -> None:
        finite = np.isfinite(self.squares())
        if not finite.all():
            at = int(np.argmin(finite))
            raise not_finite(to_host(self.X[at : at + 1, :])[0], at, dtype)

    def scores(self, components: Array, offset: Floats) -> Any:
        """``X componentsᵀ − offset``, in the library of X."""
        of = self.library.of
        return self.X @ of(components).T - of(offset)


AnyRows: TypeAlias = DenseRows | SparseRows | ArrayRows


def first_hole(rows: AnyRows) -> int:
    """Number of rows before the first with NaN, a missing value."""
    if isinstance(rows, SparseRows):
        bad = np.isnan(rows.data[rows.indptr[0] : rows.indptr[-1]])
        return int(np.searchsorted(rows.indptr, int(np.argmax(bad)) + rows.indptr[0], side="right")) - 1 if bad.any() else len(rows)
    values = to_host(rows.X) if isinstance(rows, ArrayRows) else rows.X
    if np.isfinite(sum_of_squares(values)):  # one quick pass
        return len(rows)
    missing = np.isnan(values).any(axis=1)
    return int(np.argmax(missing)) if missing.any() else len(rows)


def as_rows(X: Any, dtype: np.dtype[Any], D: int | None = None, *, foreign: bool = False) -> AnyRows:
    """Rows given by a user, checked for type and shape; call `check_finite` to check their values.

    Parameters
    ----------
    X : (n, D)
        An array, nested lists, a sparse matrix or, if `foreign`, an array of another library, which then stays on its device.
    dtype : float64 or float32
        Precision that sparse and foreign rows are converted to now, and dense ones later.
    D : int, optional
        Number of features, if it is known.
    """
    if foreign and namespace_of(X) is not None:
        rows: AnyRows = ArrayRows(X, dtype)
    elif issparse(X):
        if X.dtype.kind not in "fiub":
            raise TypeError(f"A block must be real numbers; got dtype {X.dtype}.")
        if X.ndim != 2 or (D is not None and X.shape[1] != D):
            raise ValueError(f"fit_block takes samples as rows, shape (n, {D or 'D'}); got shape {X.shape}.")
        rows = SparseRows(X.tocsr().astype(dtype, copy=False))
    else:
        array = as_real(X if namespace_of(X) is None else to_host(X), "A block")
        if array.ndim != 2:
            raise ValueError(f"fit_block takes samples as rows, shape (n, {D or 'D'}); got shape {array.shape}.")
        rows = DenseRows(array)
    if D is not None and rows.D != D:
        raise ValueError(f"Samples must have {D} features; got {rows.D}.")
    return rows
