"""Fills missing values with what a fitted model expects, and returns rows in the container that they came in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from online_psp.engine.libraries import Library, namespace_of
from online_psp.engine.rows import AnyRows, ArrayRows, DenseRows, first_hole
from online_psp.engine.sizes import CENTRE_BYTES
from online_psp.engine.types import Array, Floats
from online_psp.pca.fill import Expected, Gaussian, both_observed, expect, gaussian, no_trust
from online_psp.pca.view import View


def gaussian_of(view: View) -> Gaussian:
    """The model to fill rows with: all directions that are kept, for centred (and standardised) features."""
    return gaussian(view.directions, view.variances, view.total_variance, 4.0, both_observed(view.weight, view.known))


def with_noise(model: Gaussian, variances: Floats, noise: float) -> Gaussian:
    """The model with another noise."""
    return Gaussian(model.directions, np.sqrt(np.maximum(variances[: len(model.lengths)] - noise, 0.0)), noise)


def expected(view: View, model: Gaussian, rows: Floats, likelihoods: bool = False) -> Expected:
    """What is expected of raw rows, (n, D), with NaN where a value is missing."""
    observed = ~np.isnan(rows)
    return expect(model, np.where(observed, _centred(view, rows), 0.0), observed, likelihoods)


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
    model, full, trust = gaussian_of(view), X.copy(), view.trust or no_trust(X.shape[1])
    for at, rows in _parts(X):
        missing, found = np.isnan(rows), np.empty_like(rows)
        multiples = 2.0 ** np.round(missing @ trust.noises / missing.sum(axis=1))
        for multiple in np.unique(multiples):
            alike = multiples == multiple
            found[alike] = trust.slopes * expected(view, with_noise(model, view.variances, multiple * model.noise), rows[alike]).rows
        if view.deviations is not None:
            found = found * view.deviations
        full[at] = np.where(missing, found + view.mean, rows)
    return full


def filled_rows(view: View, rows: AnyRows) -> AnyRows:
    """The rows themselves, where no value is missing; else rows that are filled."""
    if view.settings.missing != "impute" or first_hole(rows) == len(rows):
        return rows
    full = filled(view, rows.dense(rows.dtype))
    return ArrayRows(rows.library.of(full), rows.library.dtype) if isinstance(rows, ArrayRows) else DenseRows(full)


def partial_likelihoods(view: View, X: Array) -> tuple[NDArray[np.intp], Floats]:
    """Numbers of the rows with missing values, and the log-likelihood of the observed values of each."""
    components, variances, noise = view.gaussian
    noise = max(noise, 1e-10 * float(variances.max(initial=0.0)), float(np.finfo(np.float64).tiny))
    model = Gaussian(components.astype(np.float64), np.sqrt(np.maximum(variances - noise, 0.0)), noise)
    numbers: list[NDArray[np.intp]] = [np.zeros(0, np.intp)]
    values: list[Floats] = [np.zeros(0)]
    for at, rows in _parts(X):
        scaled = 0.0 if view.deviations is None else ~np.isnan(rows) @ np.log(view.deviations)
        numbers.append(at)
        values.append(expected(view, model, rows, True).log_likelihoods - scaled)
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
