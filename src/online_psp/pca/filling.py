"""Fills missing values with what a fitted model expects, and returns rows in the container that they came in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from online_psp.engine.libraries import Library, namespace_of
from online_psp.engine.sizes import CENTRE_BYTES
from online_psp.engine.types import Array, Floats
from online_psp.pca.holes import Expected, Gaussian, expect, log_likelihoods, observed_in
from online_psp.pca.view import View

_RIDGE = 1.0  # factor of the noise that directions learned from few rows are taken to have; chosen in docs/adr/0013


def gaussian_of(view: View) -> Gaussian:
    """The model to fill rows with: all directions that are kept, for centred (and standardised) features.

    Below about D/n of the mean variance, a covariance learned from n rows cannot be told from noise. So the noise is at least this large.
    """
    D, total = len(view.mean), view.total_variance
    rest = max(total - float(view.variances.sum()), 0.0) / max(D - len(view.variances), 1)
    pairs = view.weight if view.known is None else float(np.mean(view.known)) ** 2 / max(view.weight, 1.0)
    return Gaussian(view.components.astype(np.float64), view.variances, max(view.excess * rest, _RIDGE * total / (D + pairs)))


def _parts(X: Array) -> Iterator[tuple[NDArray[np.intp], Floats]]:
    """The rows with missing values, a bounded part at a time: their numbers, and the rows in double precision."""
    step = max(1, CENTRE_BYTES // (8 * max(1, X.shape[1])))
    for start in range(0, len(X), step):
        part = X[start : start + step]
        at = np.flatnonzero(np.isnan(part).any(axis=1))
        if len(at):
            yield at + start, part[at].astype(np.float64)


def _centred(view: View, rows: Floats) -> Floats:
    apart = rows - view.mean
    return apart if view.deviations is None else apart / view.deviations


def filled(view: View, X: Array) -> Array:
    """Rows, (n, D), with what the model expects in place of NaN; observed values do not change."""
    model, full = gaussian_of(view), X.copy()
    for at, rows in _parts(X):
        expected: Floats = expect(model, _centred(view, rows), observed_in(rows))[0].rows
        if view.deviations is not None:
            expected = expected * view.deviations
        full[at] = np.where(np.isnan(rows), expected + view.mean, rows)
    return full


def partial_likelihoods(view: View, model: Gaussian, X: Array) -> tuple[NDArray[np.intp], Floats]:
    """Numbers of the rows with missing values, and the log-likelihood of the observed values of each."""
    numbers: list[NDArray[np.intp]] = [np.zeros(0, np.intp)]
    values: list[Floats] = [np.zeros(0)]
    for at, rows in _parts(X):
        seen = observed_in(rows)
        found: Expected = expect(model, _centred(view, rows), seen)[0]
        scaled = 0.0 if view.deviations is None else seen @ np.log(view.deviations)
        numbers.append(at)
        values.append(np.where(found.counts > 0, log_likelihoods(found) - scaled, 0.0))
    return np.concatenate(numbers), np.concatenate(values)


# Containers


def put_back(X: Any, rows: Array, full: Array) -> Any:
    """X with its missing values filled: of the same kind, with the same labels, and its other values unchanged.

    Parameters
    ----------
    X : array, data frame, sparse matrix or nested lists
    rows, full : (n, D)
        Its values with NaN where one is missing, and with these filled.
    """
    missing = np.isnan(rows)
    if issparse(X):
        made = X.tocsr().astype(rows.dtype)
        made.sum_duplicates()
        row_of = np.repeat(np.arange(made.shape[0]), np.diff(made.indptr))
        holes = np.isnan(made.data)
        made.data[holes] = full[row_of[holes], made.indices[holes]]
        return made
    module = type(X).__module__.partition(".")[0]
    if module == "pandas":
        return _in_pandas(X, missing, full)
    if module == "polars":
        return _in_polars(X, missing, full)
    library = namespace_of(X)
    return full if library is None else Library(library, X, full.dtype).of(full)


def _in_pandas(X: Any, missing: NDArray[np.bool_], full: Array) -> Any:
    made = X.copy()
    for j in np.flatnonzero(missing.any(axis=0)):
        kind = made.dtypes.iloc[j]
        values = full[:, j]
        whole = kind.kind not in "fc" if hasattr(kind, "kind") else True  # filled values are not whole numbers
        column = type(made.iloc[:, j])(values, index=made.index, name=made.columns[j])
        made.isetitem(j, column.astype(np.float64) if whole else column.astype(kind))
    return made


def _in_polars(X: Any, missing: NDArray[np.bool_], full: Array) -> Any:
    made = X.clone()
    for j in np.flatnonzero(missing.any(axis=0)):
        column = X.get_columns()[j]
        found = type(column)(column.name, full[:, j])
        made = made.with_columns(found.cast(column.dtype) if column.dtype.is_float() else found)
    return made
