"""What a fitted OnlinePCA can do: transform rows and back, fill missing values, and give likelihoods."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import diags_array
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from online_psp.engine.blas import matmul
from online_psp.engine.libraries import Library
from online_psp.engine.rows import AnyRows, ArrayRows, DenseRows, SparseRows
from online_psp.engine.sizes import CENTRE_BYTES
from online_psp.engine.types import Array, Floats
from online_psp.pca.checks import check_coordinates, check_rows, check_scores, check_values, rows_dtype
from online_psp.pca.compressed import far_from_zero, less
from online_psp.pca.fill import Gaussian
from online_psp.pca.filling import filled, first_hole, partial_likelihoods, put_back
from online_psp.pca.likelihood import covariance, log_likelihood, precision
from online_psp.pca.notices import unpredicted_notice, warn_never_observed
from online_psp.pca.reading import Learned
from online_psp.pca.robust import far_out
from online_psp.pca.view import View

_LARGE_MEAN = 10.0  # in deviations: a larger mean is subtracted from rows before they are multiplied


class Usable(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Learned):
    """The methods of a fitted OnlinePCA."""

    def transform(self, X: ArrayLike) -> Any:
        """Coordinates of rows along the components, (n, n_components_); or, with ``whiten="zca"``, whitened rows, (n, D).

        For a row with missing values (with ``missing="impute"``), the coordinates that the model expects given the observed values.
        """
        check_is_fitted(self)
        view = self._view()
        rows = self._rows_to_use(X, self._settings.missing == "impute")
        with np.errstate(over="ignore", invalid="ignore"):  # said below
            rows = self._without_holes(rows, view)
            scores = self._zca(rows, view) if self.whiten == "zca" else self._scores(rows, view)
        check_coordinates(scores)
        return scores

    def impute(self, X: ArrayLike) -> Any:
        """Fill in missing values with what the model expects, given the observed values of each row.

        Parameters
        ----------
        X : (n, D)
            An array, a pandas or polars frame, or a sparse matrix. In a sparse matrix only explicit NaN are missing.

        Returns
        -------
        (n, D)
            X with its missing values filled in, of the same type and dtype and with the same labels. Observed values do not change. (A
            column of whole numbers with missing values becomes floating-point.) Features that were never observed are filled with zero.
        """
        check_is_fitted(self)
        view = self._view()
        if view.known is not None and not (view.known > 0).all():
            warn_never_observed(view.known)
        rows = self._rows_to_use(X, holes=True)
        if isinstance(rows, SparseRows) and not np.isnan(rows.data).any():
            return X
        found = rows.dense(rows_dtype(rows))
        if view.trust is not None:
            unpredicted = unpredicted_notice(view.trust.explained, np.asarray(np.isnan(found).any(axis=0)))
            self._said.give("unpredicted", unpredicted, UserWarning, 3)
        return put_back(X, found, filled(view, found))

    def inverse_transform(self, X: ArrayLike) -> Any:
        """Rows with the given coordinates, those of `transform`, (n, D)."""
        check_is_fitted(self)
        view, dtype = self._view(), self._settings.working
        if self.whiten == "zca":
            given, xp = check_scores(X, len(view.mean))
            found = self._turned(given, view, 1.0)
            found = (found if view.deviations is None else found * view.deviations) + view.mean
            found = found.astype(dtype)
            return found if xp is None else Library(xp, X, found.dtype).of(found)
        components = self._shown(view)[0]
        scores, xp = check_scores(X, len(components))
        if self.whiten:
            components = self._scales(view)[:, np.newaxis].astype(components.dtype) * components
        if view.deviations is not None:
            components = (components * view.deviations).astype(components.dtype)
        rows: Array = matmul(scores, components) + view.mean.astype(dtype)
        return rows if xp is None else Library(xp, X, rows.dtype).of(rows)

    def score_samples(self, X: ArrayLike) -> Floats:
        """Log-likelihood of each row under the probabilistic PCA model, (n,); of its observed values, if some are missing."""
        check_is_fitted(self)
        view = self._view()
        holes = self._settings.missing == "impute"
        rows = self._rows_to_use(X, holes)
        found = self._log_likelihoods(rows, view)
        if holes and first_hole(rows) < len(rows):
            components, variances, noise = self._gaussian(view)
            noise = max(noise, 1e-10 * float(variances.max(initial=0.0)), float(np.finfo(np.float64).tiny))
            model = Gaussian(components.astype(np.float64), np.sqrt(np.maximum(variances - noise, 0.0)), noise)
            at, values = partial_likelihoods(view, model, rows.dense(np.dtype(np.float64)))
            found[at] = values
        return found

    def _rows_to_use(self, X: ArrayLike, holes: bool) -> AnyRows:
        rows = check_rows(self, X, self._settings.dtype, reset=False)
        check_values(rows, 1.0, holes)
        return rows

    def _without_holes(self, rows: AnyRows, view: View) -> AnyRows:
        if self._settings.missing != "impute" or first_hole(rows) == len(rows):
            return rows
        full = filled(view, rows.dense(rows_dtype(rows)))
        return ArrayRows(rows.library.of(full), rows.library.dtype) if isinstance(rows, ArrayRows) else DenseRows(full)

    def _log_likelihoods(self, rows: AnyRows, view: View) -> Floats:
        mean: Floats = view.mean
        data: Any
        if isinstance(rows, SparseRows):
            offset = far_from_zero(mean, view.feature_variances)
            mean, data = mean - offset, less(rows.matrix().astype(np.float64), offset)
        else:
            data = rows.dense(np.dtype(np.float64))
        if view.deviations is None:
            return log_likelihood(data, mean, *self._gaussian(view))
        scaled = data @ diags_array(1.0 / view.deviations) if isinstance(rows, SparseRows) else data / view.deviations
        return log_likelihood(scaled, mean / view.deviations, *self._gaussian(view)) - float(np.log(view.deviations).sum())

    def sample_influence(self, X: ArrayLike) -> Floats:
        """The weight that each row would have if it came now, (n,), from 0 to 1: below 1 if it is far from all others.

        Without ``robust=True`` every row has weight 1.
        """
        check_is_fitted(self)
        settings, model = self._settings, self._now()
        rows = self._rows_to_use(X, settings.missing == "impute")
        if model.robust is None:
            return np.ones(len(rows))
        step, found = max(1, CENTRE_BYTES // (8 * rows.D)), [np.zeros(0)]
        for start in range(0, len(rows), step):
            part = (model.unit or 1.0) * rows[start : start + step].dense(np.dtype(np.float64))
            far = far_out(model, np.nan_to_num(part), ~np.isnan(part), settings)
            found.append(model.robust.guard.weights(far))
        return np.concatenate(found)

    def score(self, X: ArrayLike, y: None = None) -> float:
        """Mean log-likelihood of the rows; see `score_samples`."""
        return float(np.mean(self.score_samples(X)))

    def get_covariance(self) -> Floats:
        """The covariance of the probabilistic PCA model, (D, D)."""
        check_is_fitted(self)
        view = self._view()
        found = covariance(*self._gaussian(view))
        return found if view.deviations is None else found * view.deviations * view.deviations[:, np.newaxis]

    def get_precision(self) -> Floats:
        """The inverse of the covariance of the probabilistic PCA model, (D, D)."""
        check_is_fitted(self)
        view = self._view()
        found = precision(*self._gaussian(view))
        return found if view.deviations is None else found / view.deviations / view.deviations[:, np.newaxis]

    def _zca(self, rows: AnyRows, view: View) -> Any:
        """Whitened rows, (n, D)."""
        dtype = rows_dtype(rows)
        apart = rows.dense(np.dtype(np.float64))
        apart = apart - view.mean if self._settings.center else apart
        found = self._turned(apart if view.deviations is None else apart / view.deviations, view, -1.0).astype(dtype)
        return rows.library.of(found) if isinstance(rows, ArrayRows) else found

    def _turned(self, rows: Any, view: View, power: float) -> Floats:
        """Rows, (n, D), times the root of the model's covariance, or of its inverse if the power is −1."""
        components, variances, noise = self._gaussian(view)
        U, rows = components.astype(np.float64), np.asarray(rows, dtype=np.float64)
        sizes = np.append(variances, noise)
        rounding = max(len(view.mean) * np.finfo(np.float64).eps, np.finfo(self._settings.working).eps) * sizes.max()
        factors = np.zeros(len(sizes))
        factors[sizes > rounding] = sizes[sizes > rounding] ** (power / 2.0)
        return np.asarray(factors[-1] * rows + matmul(matmul(rows, U.T) * (factors[:-1] - factors[-1]), U))

    def _scores(self, rows: AnyRows, view: View) -> Any:
        components = self._shown(view)[0]
        if view.deviations is not None:
            components = (components / view.deviations).astype(components.dtype)
        mean = view.mean if self._settings.center else np.zeros(rows.D)
        offset = mean @ components.T.astype(np.float64)
        scaled = mean if view.deviations is None else mean / view.deviations
        first = float(scaled @ scaled) > _LARGE_MEAN**2 * view.total_variance  # a difference of products would be mostly rounding
        scores: Any
        if isinstance(rows, ArrayRows):
            scores = _array_scores(rows, mean, components) if first else rows.scores(components, offset)
            return scores / rows.library.of(self._deviations(rows.library.dtype, view)) if self.whiten else scores
        if isinstance(rows, SparseRows):
            basis = components.T.astype(np.float64) if first else components.T
            scores = (np.asarray(rows.matrix() @ basis) - offset).astype(rows_dtype(rows))
        elif first:
            scores = _dense_scores(rows.X, mean, components.astype(rows.X.dtype, copy=False))
        else:
            scores = matmul(rows.X, components.T.astype(rows.X.dtype, copy=False)) - offset.astype(rows.X.dtype)
        return scores / self._deviations(scores.dtype, view) if self.whiten else scores


def _dense_scores(X: Array, mean: Floats, components: Array) -> Array:
    """``(X − mean) componentsᵀ``, (n, K), with the mean subtracted first, a part of the rows at a time."""
    scores = np.empty((len(X), len(components)), X.dtype)
    step = max(1, CENTRE_BYTES // (X.shape[1] * X.itemsize))
    for start in range(0, len(X), step):
        part = slice(start, start + step)
        scores[part] = matmul(np.subtract(X[part], mean).astype(X.dtype, copy=False), components.T)
    return scores


def _array_scores(rows: ArrayRows, mean: Floats, components: Array) -> Any:
    """The same in the library of the rows."""
    near = mean.astype(rows.library.dtype)  # the rest of the mean is added below
    apart = ArrayRows(rows.X - rows.library.of(near), rows.library.dtype)
    return apart.scores(components, (mean - near) @ components.T.astype(np.float64))
