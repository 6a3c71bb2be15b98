"""Scores of rows: distance from the mean within the subspace (Hotelling's T²), and from the subspace (squared prediction error, SPE).

With μ the mean, C (K, D) the components and λ (K,) their variances, a row x has ``y = C (x − μ)``, ``T² = Σ y_k²/λ_k`` and
``SPE = ‖x − μ − Cᵀy‖²``. Both cost O(DK) per row. A component along which the model has seen no variance does not count as part of the
subspace: the part of a row along it goes into the SPE. If the model standardises, x − μ is first divided by the deviations of the features.

Of a row with missing values, y is the mean of what it may be given the observed values, under the model; T² and the SPE of these are scaled
so that an ordinary row has on average what it has when it is complete. They are NaN where too few values are observed to tell.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array, diags_array
from sklearn.utils.validation import check_is_fitted

from online_psp.engine.libraries import Library, to_host
from online_psp.engine.rows import AnyRows, ArrayRows, SparseRows
from online_psp.engine.sizes import CENTRE_BYTES
from online_psp.engine.threads import suited_threads
from online_psp.engine.types import Array, Floats
from online_psp.pca import OnlinePCA
from online_psp.pca.checks import check_rows, check_values

_LEAST_NOISE = 1e-9  # relative to the largest variance: a model without noise knows every row from K of its values
_LEAST_PRIOR = 1e-3  # relative to the variance along a component: some of it is noise
_LEAST_KNOWN = 1e-3  # of y, in dimensions: with less there is no T²


class Snapshot(NamedTuple):
    """The parts of a model that scoring needs, at one moment of its stream."""

    components: Annotated[Floats, "K", "D"]
    """Principal axes that have variance."""
    variances: Annotated[Floats, "K"]
    mean: Annotated[Floats, "D"]
    samples: float
    """Effective number of rows (Kish): this many of equal weight would have taught the model as much."""
    noise: float
    """Mean variance along the other directions."""
    features: Annotated[Floats, "D"]
    """Variances of the features."""
    centred: bool
    scale: Annotated[Floats, "D"] | None = None
    """Divisors of the features, if the model standardises: everything but the mean is then in these units."""

    @property
    def total(self) -> float:
        """Sum of the variances of the features."""
        return float(self.features.sum())


class Contributions(NamedTuple):
    """The contribution of each feature to the scores of a row; each array has the shape of the rows."""

    t2: Floats
    """Contributions to T², which is their sum; they may be negative."""
    spe: Floats
    """Contributions to the SPE, which is their sum."""


def snapshot(model: OnlinePCA) -> Snapshot:
    """A snapshot of a fitted model between two calls, even while another thread trains it."""
    check_is_fitted(model)
    while True:
        before = model.n_samples_seen_, model.effective_samples_
        found = _read(model)
        if (model.n_samples_seen_, model.effective_samples_) == before:
            return found


def _read(model: OnlinePCA) -> Snapshot:
    components = np.asarray(model.components_, dtype=np.float64)
    variances = np.asarray(model.explained_variance_, dtype=np.float64)
    covariance = getattr(model, "scores_covariance_", None)
    if covariance is not None and np.count_nonzero(covariance - np.diag(np.diagonal(covariance))):  # the axes are not the principal ones
        values, turn = np.linalg.eigh(np.asarray(covariance, dtype=np.float64))
        variances, components = values[::-1], turn[:, ::-1].T @ components
    centred = bool(model.center)
    mean = np.asarray(model.mean_, dtype=np.float64) if centred else np.zeros(components.shape[1])
    scale = model.scale_
    features = np.asarray(model.var_ if scale is None else model.var_ / scale**2, dtype=np.float64)
    eps = float(np.finfo(model.components_.dtype).eps)
    known = variances > components.shape[1] * eps * max(float(variances.max(initial=0.0)), np.finfo(np.float64).tiny)
    axes = np.ascontiguousarray(components[known])
    return Snapshot(axes, variances[known], mean, model.kish_samples_, model.noise_variance_, features, centred, scale)


class Scores(NamedTuple):
    """T² and SPE of some rows, each (n,)."""

    t2: Any
    spe: Any


def checked_rows(model: OnlinePCA, X: ArrayLike) -> AnyRows:
    """Check that rows are finite, but for missing values if the model takes them, and have as many features as the model."""
    rows = check_rows(model, X, None, reset=False)
    check_values(rows, 1.0, model.missing == "impute")
    return rows


def t2(model: OnlinePCA, X: ArrayLike) -> Any:
    """Distance of rows from the mean within the subspace, in units of its variances: Hotelling's T².

    Parameters
    ----------
    model : OnlinePCA
        A fitted model.
    X : (n, D)
        Dense, sparse (never made dense) or, with scikit-learn's ``array_api_dispatch``, of another array library such as torch.

    Returns
    -------
    (n,)
        In the library of X.
    """
    return score(snapshot(model), checked_rows(model, X)).t2


def spe(model: OnlinePCA, X: ArrayLike) -> Any:
    """Squared distance of rows from the subspace: the squared prediction error, also called Q.

    For sparse rows it is a difference of squares, so its error is about 1e-16 ‖x‖².

    Parameters
    ----------
    model : OnlinePCA
        A fitted model.
    X : (n, D)
        As for `t2`.

    Returns
    -------
    (n,)
        In the library of X.
    """
    return score(snapshot(model), checked_rows(model, X)).spe


def contributions(model: OnlinePCA, x: ArrayLike) -> Contributions:
    """The contribution of each feature to T² and to the SPE of a row: it shows why a row is far off.

    Parameters
    ----------
    model : OnlinePCA
        A fitted model.
    x : (D,) or (n, D)

    Returns
    -------
    Contributions
        ``t2`` and ``spe``, of the shape of `x`.
    """
    one = getattr(x, "ndim", None) == 1 if hasattr(x, "ndim") else np.ndim(x) == 1
    values: Any = x
    rows = checked_rows(model, values.reshape(1, -1) if one and hasattr(values, "reshape") else [values] if one else values)
    found = contributions_by(snapshot(model), rows)
    return Contributions(found.t2[0], found.spe[0]) if one else found


def contributions_by(seen: Snapshot, rows: AnyRows) -> Contributions:
    """`contributions` of checked rows (n, D), by a snapshot."""
    apart = completed(seen, centred(seen, rows.dense(np.dtype(np.float64))))
    y = apart @ seen.components.T
    return Contributions((y / seen.variances) @ seen.components * apart, (apart - y @ seen.components) ** 2)


def score(seen: Snapshot, rows: AnyRows) -> Scores:
    """T² and SPE of checked rows of any kind."""
    with suited_threads(seen.components.size):
        return _score(seen, rows)


def _score(seen: Snapshot, rows: AnyRows) -> Scores:
    if isinstance(rows, SparseRows):
        found = _score_sparse(seen, rows)
    elif isinstance(rows, ArrayRows):
        found = _score_array(seen, rows)
    else:
        step = max(1, CENTRE_BYTES // (8 * max(1, rows.D)))
        parts = [_score_dense(seen, rows.X[start : start + step]) for start in range(0, len(rows), step)]
        found = parts[0] if len(parts) == 1 else Scores(*(np.concatenate(each) for each in zip(*parts, strict=True)))
    host = Scores(*(np.array(to_host(each), dtype=np.float64) for each in found))
    holes = np.flatnonzero(np.isnan(host.spe))
    if not len(holes):
        return found
    for start in holes:
        row = rows[start : start + 1].dense(np.dtype(np.float64))
        if np.isnan(row).any():
            host.t2[start], host.spe[start] = observed(seen, centred(seen, row)[0])[:2]
    return host if not isinstance(rows, ArrayRows) else Scores(*map(Library(rows.library.xp, rows.X, rows.library.dtype).of, host))


class Observed(NamedTuple):
    """What is known of a row with missing values."""

    t2: float
    spe: float
    row: Floats
    """The row with what the model expects in place of its missing values, (D,), centred."""


def observed(seen: Snapshot, apart: Floats) -> Observed:
    """Scores of a centred row (D,) with missing values, by those that are observed.

    With prior variances Λ of y and noise σ² around the subspace, y has the mean M⁻¹ C_o (x − μ)_o, where M = σ²Λ⁻¹ + C_o C_oᵀ. Its T² and
    the squared distance of (x − μ)_o from C_oᵀ y are on average K − σ² tr(Λ⁻¹M⁻¹) and σ² (n_o − tr(M⁻¹ C_o C_oᵀ)).
    """
    here = ~np.isnan(apart)
    C, K = seen.components[:, here], len(seen.variances)
    noise = max(seen.noise, _LEAST_NOISE * float(seen.variances.max(initial=0.0)))
    prior = np.maximum(seen.variances - noise, _LEAST_PRIOR * seen.variances)
    within = C @ C.T
    inverse = np.linalg.inv(np.diag(noise / prior) + within)
    y = inverse @ (C @ apart[here])
    left = apart[here] - y @ C
    inside, outside = K - noise * float((np.diagonal(inverse) / prior).sum()), len(left) - float((inverse * within).sum())
    t2 = K / inside * float((y * y / prior).sum()) if inside > _LEAST_KNOWN else math.nan
    spe = (len(apart) - K) / outside * float(left @ left) if outside >= 1.0 else math.nan
    return Observed(t2, spe, np.where(here, apart, y @ seen.components))


def completed(seen: Snapshot, apart: Floats) -> Floats:
    """Centred rows (n, D) with what the model expects in place of missing values."""
    for i in np.flatnonzero(np.isnan(apart).any(axis=1)):
        apart[i] = observed(seen, apart[i]).row
    return apart


def centred(seen: Snapshot, X: Array) -> Floats:
    """``x − μ`` of rows (n, D), in the units of the model; float64 as the mean is."""
    apart = X - seen.mean
    if seen.scale is not None:
        apart /= seen.scale
    return np.asarray(apart)


def in_units(seen: Snapshot, rows: SparseRows) -> tuple[Any, Floats]:
    """Sparse rows, not centred, and the mean (D,), both in the units of the model."""
    matrix = rows.matrix().astype(np.float64)
    if seen.scale is None:
        return matrix, seen.mean
    return csr_array(matrix @ diags_array(1.0 / seen.scale)), seen.mean / seen.scale


def _score_dense(seen: Snapshot, X: Array) -> Scores:
    """T² and SPE of rows of a NumPy array."""
    apart = centred(seen, X)
    y = apart @ seen.components.T
    apart -= y @ seen.components
    return Scores(_squares(y, seen), np.einsum("ij,ij->i", apart, apart))


def _squares(y: Floats, seen: Snapshot) -> Floats:
    """T² of coordinates."""
    y = y / np.sqrt(seen.variances)
    return np.asarray(np.einsum("ij,ij->i", y, y))


def _score_sparse(seen: Snapshot, rows: SparseRows) -> Scores:
    matrix, mean = in_units(seen, rows)
    y = matrix @ seen.components.T - seen.components @ mean
    squares = SparseRows(matrix).squares() - 2.0 * (matrix @ mean) + mean @ mean
    along = np.einsum("ij,ij->i", y, y)
    return Scores(_squares(y, seen), np.maximum(squares - along, 0.0))


def _score_array(seen: Snapshot, rows: ArrayRows) -> Scores:
    library = Library(rows.library.xp, rows.X, rows.library.dtype)
    of, total = library.of, library.xp.sum
    components = of(seen.components)
    apart = rows.X - of(seen.mean)
    if seen.scale is not None:
        apart = apart / of(seen.scale)
    y = apart @ components.T
    rest = apart - y @ components
    scaled = y / of(np.sqrt(seen.variances))
    return Scores(total(scaled * scaled, axis=1), total(rest * rest, axis=1))
