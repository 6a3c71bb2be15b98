"""Rows and weights given to an OnlinePCA, checked before anything changes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array, issparse
from sklearn import get_config
from sklearn.utils.validation import _check_sample_weight, validate_data

from online_psp.engine.checks import sum_of_squares, unmasked
from online_psp.engine.libraries import namespace_of, to_host
from online_psp.engine.rows import AnyRows, ArrayRows, DenseRows, SparseRows
from online_psp.engine.sizes import CHECK_BYTES
from online_psp.engine.types import Array, Floats
from online_psp.pca.units import largest_for, unit_for

_LEAST, _MOST = 1e-150, 1e150  # values whose squares floating point can hold
MOST_WEIGHT = 1e100
"""Largest weight of a row: squares of sums of such weights are in range, however many rows come."""


def foreign_namespace(X: Any) -> Any:
    """The array library of X if X can be used as it is, or None if X goes to NumPy or SciPy."""
    return namespace_of(X) if get_config()["array_api_dispatch"] else None


def check_rows(estimator: Any, X: ArrayLike, dtype: str | None, *, reset: bool) -> AnyRows:
    """Rows of real numbers, (n, D); with `reset` the estimator takes its number of features, and their names, from them.

    `check_values` checks that they are finite.
    """
    kinds = [np.float64, np.float32] if dtype is None else [np.dtype(dtype)]
    _check_no_dates(X)
    xp = foreign_namespace(X)
    if xp is None:
        X = to_host(X) if hasattr(X, "detach") else _plain(X)  # a tensor keeps its precision
        try:
            rows = validate_data(estimator, X, accept_sparse="csr", reset=reset, dtype=kinds, order="C", ensure_all_finite=False)
        except (TypeError, ValueError) as error:
            said = _what_to_do(X)
            if said is None:
                raise
            raise type(error)(said) from error
        if issparse(rows):
            return SparseRows(csr_array(rows))
        dense = DenseRows(rows)
        dense.names = getattr(X, "column_names", getattr(X, "columns", None))
        return dense
    names = [getattr(xp, np.dtype(kind).name) for kind in kinds]
    return ArrayRows(validate_data(estimator, X, reset=reset, dtype=names, ensure_all_finite=False))


def _check_no_dates(X: Any) -> None:
    """Raise a TypeError if an array, or a column of a table, holds dates or times, which NumPy would turn into numbers."""
    arrow = hasattr(X, "column_names")
    kinds: Any = X.schema.types if arrow else np.atleast_1d(getattr(X, "dtypes", getattr(X, "dtype", None)))  # type: ignore[arg-type]
    dates = {kind for kind in set(kinds) if str(kind).lower().startswith(("date", "time", "duration"))}
    if dates:
        names = X.column_names if arrow else getattr(X, "columns", None)
        at = next(i for i, kind in enumerate(kinds) if kind in dates)
        where = "X" if names is None else f"Column {names[at]!r} of the {type(X).__name__}"
        raise TypeError(f"{where} holds dates or times, not numbers: drop it, or turn it into numbers.")


def _what_to_do(X: Any) -> str | None:
    """A sentence about a table that has more than numbers in it."""
    if type(X).__name__ == "AnnData":
        return "An AnnData object is more than a table: pass adata.X, or use online_psp.integrations.anndata.fit(adata, 50)."
    for name in getattr(X, "column_names", getattr(X, "columns", ())):
        try:
            np.asarray(X[name], dtype=np.float64)
        except (TypeError, ValueError):
            return f"Column {name!r} of the {type(X).__name__} is not numbers: drop it, or turn it into numbers."
    return None


def _plain(X: Any) -> Any:
    """X with NaN in place of masked values, and of pandas' NA in columns of objects."""
    pandas = type(X).__module__.partition(".")[0] == "pandas"
    if pandas and any(getattr(kind, "kind", "") == "O" for kind in np.atleast_1d(getattr(X, "dtypes", []))):
        return X.mask(X.isna(), np.nan)
    return unmasked(X)


def check_values(rows: AnyRows, unit: float, holes: bool = False) -> None:
    """Raise a ValueError that names the first value that is not finite, or too large beside the rows before it.

    Parameters
    ----------
    rows : rows
    unit : float
        Unit of the stream; 0 before its first row that is not zero.
    holes : bool
        Whether NaN, a missing value, is allowed.
    """
    dtype = rows.dtype
    if isinstance(rows, DenseRows):
        step = max(1, CHECK_BYTES // (max(1, rows.D) * dtype.itemsize))
        for start in range(0, len(rows), step):
            unit = _check_part(rows.X[start : start + step], start, unit, dtype, holes, rows.names)
    elif isinstance(rows, SparseRows):
        _check_entries(rows, unit, dtype, holes)
    else:
        bound = float(np.sqrt(rows.squares().sum()))
        if not (math.isfinite(bound) and bound * (unit or 1.0) < largest_for(dtype)):
            _check_part(to_host(rows.X), 0, unit, dtype, holes)


def _check_part(X: Array, start: int, unit: float, dtype: np.dtype[Any], holes: bool, names: Any = None) -> float:
    """Check dense rows, the first of which is row `start`; returns the unit after them."""
    with np.errstate(over="ignore", invalid="ignore"):
        bound = math.sqrt(max(sum_of_squares(X), 0.0)) if X.size else 0.0
    if unit == 1.0 and bound < largest_for(dtype):
        return unit
    largest = np.abs(np.where(np.isnan(X), X.dtype.type(0), X) if holes else X).max(axis=1, initial=0.0)
    finite = np.isfinite(largest)
    if not finite.all():
        at = int(np.argmin(finite))
        raise _not_finite(np.nan_to_num(X[at], posinf=np.inf, neginf=-np.inf) if holes else X[at], start + at, names=names)
    if not unit:
        unit = _unit_of(largest, dtype)
    _check_sizes(largest, start, unit, dtype)
    return unit


def _unit_of(largest: Array, dtype: np.dtype[Any]) -> float:
    """The unit that follows from the largest values of the first rows, (n,); 0 if all are zero."""
    known = largest > 0
    if not known.any():
        return 0.0
    at = int(np.argmax(known))
    size = float(largest[at])
    if not _LEAST < size < _MOST:
        size_of, flow = ("small", "underflow") if size <= _LEAST else ("large", "overflow")
        raise ValueError(f"Input X is too {size_of}: row {at} has values up to {size:.3g}, whose squares {flow}; rescale the data.")
    return unit_for(size, dtype)


def _check_entries(rows: SparseRows, unit: float, dtype: np.dtype[Any], holes: bool) -> None:
    values = rows.data[rows.indptr[0] : rows.indptr[-1]]
    if holes:
        values = np.where(np.isnan(values), values.dtype.type(0), values)
    finite = np.isfinite(values)
    if not finite.all():
        entry = int(np.argmin(finite)) + int(rows.indptr[0])
        at = int(np.searchsorted(rows.indptr, entry, side="right")) - 1
        raise _not_finite(rows.data[entry : entry + 1], at, int(rows.indices[entry]))
    largest = np.zeros(len(rows))
    np.maximum.at(largest, np.repeat(np.arange(len(rows)), np.diff(rows.indptr)), np.abs(values))
    unit = unit or _unit_of(largest, dtype)
    _check_sizes(largest, 0, unit, dtype)


def _check_sizes(largest: Array, start: int, unit: float, dtype: np.dtype[Any]) -> None:
    sizes = largest.astype(np.float64)
    too_large = (sizes * (unit or 1.0) >= largest_for(dtype)) | (sizes >= _MOST)
    if too_large.any():
        at = int(np.argmax(too_large))
        raise ValueError(
            f"Input X has a value of {float(largest[at]):.3g} in row {start + at}, too large next to the first rows for {dtype}: "
            "squares would overflow; leave such rows out, or rescale the data."
        )


def _not_finite(row: Array, at: int, column: int | None = None, names: Any = None) -> ValueError:
    bad = ~np.isfinite(row)
    place = int(np.argmax(bad)) if column is None else column
    value = row[int(np.argmax(bad))]
    what = "NaN" if np.isnan(value) else "infinity"
    named = f" ({names[place]!r})" if names is not None and isinstance(names[place], str) else ""
    hint = "Every value must be finite; OnlinePCA(missing='impute') takes NaN as missing values." if what == "NaN" else ""
    return ValueError(f"Input X contains {what}: row {at}, column {place}{named}. {hint or 'Every value must be finite.'}")


def check_weights(sample_weight: ArrayLike | None, n: int) -> Floats:
    """The weights of n rows, (n,), checked; ones by default."""
    if sample_weight is None:
        return np.ones(n)
    if foreign_namespace(sample_weight) is not None:  # weights are few, and stay on the host
        sample_weight = to_host(sample_weight)
    weights: Floats = _check_sample_weight(sample_weight, np.empty((n, 1)), dtype=np.float64, ensure_non_negative=True)
    if n and weights.max() > MOST_WEIGHT:
        at = int(np.argmax(weights > MOST_WEIGHT))
        raise ValueError(f"The sample_weight of row {at} is {weights[at]:.3g}, and squares of weights would overflow; rescale the weights.")
    return weights


def check_coordinates(scores: Any) -> None:
    """Raise a ValueError that names the first row whose coordinates are beyond the numbers of their type."""
    xp = foreign_namespace(scores)
    good = np.isfinite(scores) if xp is None else xp.isfinite(scores)
    if not bool(np.all(good) if xp is None else xp.all(good)):
        row = int(np.argmin((good if xp is None else to_host(good)).all(axis=1)))
        kind = str(scores.dtype).rpartition(".")[2]
        raise ValueError(
            f"The coordinates of row {row} are not finite: they are too large for {kind}, as where a standardized feature hardly varies. "
            "Use dtype='float64', or rescale the data."
        )


def check_scores(X: Any, K: int) -> tuple[Any, Any]:
    """Coordinates for `inverse_transform`, (n, K), in NumPy, and the library that they came from, or None."""
    if issparse(X):
        raise TypeError("inverse_transform takes a dense array of coordinates; got a sparse matrix (use X.toarray()).")
    xp = foreign_namespace(X)
    scores = np.asarray(X) if xp is None else to_host(X)
    if scores.dtype.kind == "O":
        try:
            scores = scores.astype(np.float64)
        except (TypeError, ValueError):
            raise TypeError("inverse_transform takes real numbers; got an array of objects that are not all numbers.") from None
    if scores.dtype.kind not in "fiub":
        raise TypeError(f"inverse_transform takes real numbers; got dtype {scores.dtype}.")
    if scores.ndim != 2 or scores.shape[1] != K:
        raise ValueError(f"inverse_transform takes coordinates along the {K} components, shape (n, {K}); got shape {scores.shape}.")
    return scores, xp
