"""One block: the step from a model to the next. Everything else in this package prepares blocks, or shows what was learned."""

from __future__ import annotations

from typing import Any

import numpy as np

from online_psp.engine.blas import matmul
from online_psp.engine.finite import check_learned
from online_psp.engine.rows import AnyRows, ArrayRows, SparseRows, first_hole
from online_psp.engine.types import Array, Floats
from online_psp.pca import few
from online_psp.pca.axes import nearest_turn
from online_psp.pca.compressed import array_moments, sparse_moments, turned_from, within_frame
from online_psp.pca.directions import leading
from online_psp.pca.fill import LEAST, Mask, both_observed, fill, first_directions, leading_of_filled, no_trust
from online_psp.pca.groups import connect
from online_psp.pca.late import carried_over
from online_psp.pca.model import Block, Covariance, Model, Turned
from online_psp.pca.moments import centred, partly_centred
from online_psp.pca.principal import deviations, directions_for, flip_signs, principal, total_variance, with_signals
from online_psp.pca.robust import judge, noted
from online_psp.pca.settings import Settings

_RESCALE = 0.2
"""Largest difference, in logarithms, of a deviation from the number that the feature is divided by."""
_GROWTH = 16
"""Directions by which a model may grow with a block, where their number follows a share of the variance."""


def learn(model: Model, block: Block, settings: Settings) -> Model:
    """The model after a block of rows, which weigh something, and which are finite but for missing values."""
    rows = block.rows
    if isinstance(rows, SparseRows | ArrayRows) and not (model.few or settings.robust or _has_holes(model, rows, settings)):
        after = _learn_compressed(model, block, rows, settings)
        if after is not None:
            return after
    X = np.require(rows.dense(settings.working), requirements=["C", "A", "W"])
    observed = ~np.isnan(X) if settings.missing == "impute" else np.ones((0, 0), dtype=bool)
    partly = model.known is not None or not observed.all()
    if partly:  # a row without any value is seen, and teaches nothing
        block = block._replace(left=np.where(observed.any(axis=1), block.left, 0.0))
    judged = None
    if settings.robust:
        model, judged = judge(model, block, X, observed if partly else None, settings)
        block = block._replace(left=judged.left)
    if not block.left.any():
        return model._replace(seen=model.seen + len(block.left))
    after = _learn_partly(model, block, X, observed, settings) if partly else _learn_whole(model, block, X, settings)
    if judged is not None:
        after = after._replace(robust=noted(model, after, judged, block.keep, settings))
    return with_axes(with_signals(after, settings) if after.few else after, settings)


def _has_holes(model: Model, rows: SparseRows | ArrayRows, settings: Settings) -> bool:
    """Whether a value is missing, or one was: then features have weights of their own."""
    return settings.missing == "impute" and (model.known is not None or first_hole(rows) < len(rows))


def _learn_whole(model: Model, block: Block, X: Array, settings: Settings) -> Model:
    """As `learn`, for rows without missing values."""
    after, added = centred(model, block, X, settings.center)
    after = after._replace(faintest=_faintest(model, block, after, added.squares))
    if model.covariance is not None:
        wanted = min(settings.shown, after.seen - 1)
        return after._replace(covariance=few.with_rows(model.covariance, added.rows, added.keep, wanted))
    Z, squares = added.rows, added.squares
    after = with_scale(after, settings)
    if after.scale is not None:
        Z = Z / after.scale.astype(Z.dtype)
        squares = np.einsum("ij,ij->i", Z, Z, dtype=np.float64)
    B, d = directions_for(model, after.scale)
    rank, shown = _rank(model, after, settings)
    basis, variances = leading(B, added.keep * d, Z, squares, rank, shown, _noise(model, d, added.keep, settings))
    return _with_basis(after, basis, variances, settings)


def _learn_partly(model: Model, block: Block, X: Array, observed: Mask, settings: Settings) -> Model:
    """As `learn`, for rows with missing values, or after some."""
    after, added = partly_centred(model, block, X, observed, settings.center)
    after = with_scale(after, settings, 0.0)  # filling compares features, and wants them in present units
    scale = deviations(after) if settings.standardize else np.ones(settings.D)
    shares, keep = block.left / after.weight, block.keep * model.weight / after.weight
    rows, variance = added.rows / scale, after.variance / scale**2
    jump, trust = np.sqrt(keep) * added.jump / scale, model.trust or no_trust(settings.D)
    covariance = None if model.covariance is None else few.symmetric(model.covariance) / scale / scale[:, np.newaxis]
    if model.covariance is not None:
        B, d = few.principal(model.covariance, settings.rank, scale)
    else:
        B, d = directions_for(model, after.scale)
        B = B.astype(np.float64, copy=False)
    rank, shown = _rank(model, after, settings)
    known = np.full(settings.D, model.weight) if model.known is None else model.known
    fresh = (known <= 0) & observed.any(axis=0)
    if d.any() and fresh.any():
        B, d, covariance = carried_over(B, d, covariance, variance, rows, observed, shares, fresh)
    if d.any():
        total = float(np.where(known > 0, model.variance / scale**2, variance).sum())
        made = fill(
            B, d, total, both_observed(model.weight, model.known), variance, trust, rows, observed, shares, 0.0 if model.few else LEAST
        )
    else:
        made = first_directions(rows, observed, shares, rank, shown)[2]
    made = made._replace(rows=np.concatenate([made.rows, jump[np.newaxis]]), weights=np.append(made.weights, 1.0))
    groups = np.arange(settings.D, dtype=np.float64) if model.groups is None and not model.seen else model.groups
    after = after._replace(trust=made.trust, groups=None if groups is None else connect(groups, observed[block.left > 0]))
    if covariance is not None:
        scatter = matmul(made.rows.T * made.weights, made.rows) - np.diag(made.apart)
        matrix = (keep * covariance + scatter) * scale * scale[:, np.newaxis]
        return after._replace(covariance=Covariance(np.asfortranarray(matrix), False, float(matrix.diagonal().max())))
    noise = _noise(model, d, keep, settings)
    basis, variances = leading_of_filled(made, rank, shown, B, np.maximum(keep * d - noise, 0.0))
    return _with_basis(after, basis.astype(settings.working), variances + noise, settings)


def _with_basis(after: Model, basis: Array, variances: Floats, settings: Settings) -> Model:
    check_learned(basis, variances)
    return _cut(after._replace(basis=basis, turned=None, variances=variances), settings)


def _learn_compressed(model: Model, block: Block, rows: SparseRows | ArrayRows, settings: Settings) -> Model | None:
    """As `learn`, for rows that are not dense; None where inner products do not tell the directions."""
    into: Any
    if isinstance(rows, SparseRows):
        after, into = sparse_moments(model, block, rows, settings.center)
    else:
        after, into = array_moments(model, block, rows, settings.center)
    after, keep = with_scale(after, settings), block.keep * model.weight / after.weight
    if after.scale is not None:
        into = into.scaled(after.scale)
    basis: Any
    if isinstance(rows, SparseRows) and model.turned is not None and after.scale is model.scale and not _due(model, after, settings):
        basis, d = model.turned, model.variances
    else:
        basis, d = directions_for(model, after.scale)
        basis = turned_from(basis) if isinstance(rows, SparseRows) else basis
    P, G = into.with_basis(basis), into.gram()
    after = after._replace(faintest=_faintest(model, block, after, G.diagonal()))
    rank, shown = _rank(model, after, settings)
    found = within_frame(P, G, keep * d, rank, shown, min(shown, after.seen - 1), _noise(model, d, keep, settings), settings.working)
    if found is None:
        return None
    A, C, variances = found
    check_learned(A, C, variances)
    moved = into.expanded(basis, A, C)
    after = after._replace(basis=None, turned=moved) if isinstance(moved, Turned) else after._replace(basis=moved, turned=None)
    return with_axes(_cut(after._replace(variances=variances), settings), settings)


def with_scale(after: Model, settings: Settings, most: float = _RESCALE) -> Model:
    """The model after a block, with the numbers that its features are divided by: as before, unless a deviation has moved too far."""
    if not settings.standardize:
        return after
    now = deviations(after)
    if after.scale is not None and np.abs(np.log(now / after.scale)).max() <= most:
        return after
    known = np.where(after.variance > 0, now, 0.0)
    first = known if after.first_scale is None else np.where(after.first_scale > 0, after.first_scale, known)
    return after._replace(scale=now, first_scale=first)


def _faintest(model: Model, block: Block, after: Model, squares: Floats) -> float:
    """Size of a typical row of the faintest block so far."""
    some = (block.left > 1e-9 * block.left.max()) & (squares[:-1] > 0)
    size = float(np.sqrt(np.median(squares[:-1][some] * (after.weight / block.left[some])))) if some.any() else 0.0
    return min(model.faintest or size, size or model.faintest)


def _due(model: Model, after: Model, settings: Settings) -> bool:
    """Whether rounding in the basis of sparse rows is removed with this block; seldom, because it costs as much as a dense basis."""
    every = max(8 * settings.rank, len(model.mean) // 8)
    return model.seen // every != after.seen // every


def _noise(model: Model, d: Floats, keep: float, settings: Settings) -> float:
    """Variance of the past along each direction left out, where the stream forgets: new directions compete with kept ones on equal terms.

    A direction that is given no share of the past is too small beside those that are known: by 3 % of its variance 500 rows after a switch,
    at a half-life of 500.
    """
    left_out = len(model.mean) - len(d)
    if settings.half_life is None or not len(d) or not left_out:
        return 0.0
    return keep * max(0.0, min((total_variance(model, settings) - float(d.sum())) / left_out, float(d[-1])))


def _rank(model: Model, after: Model, settings: Settings) -> tuple[int, int]:
    """Directions to keep after a block, and how many of them matter."""
    if settings.share is None or not len(model.variances):
        return settings.rank, settings.shown
    shown, wanted = settings.rank_for_share(model.variances, total_variance(model, settings), model.signals)
    kept = len(model.variances)
    return (kept if wanted <= kept else min(kept + _GROWTH, settings.rank)), shown


def _cut(after: Model, settings: Settings) -> Model:
    """The model without the directions that a share of the variance does not need."""
    if settings.share is None:
        return after
    after = with_signals(after, settings)
    wanted = settings.rank_for_share(after.variances, total_variance(after, settings), after.signals)[1]
    if wanted >= len(after.variances):
        return after
    basis = None if after.basis is None else after.basis[:wanted]
    turned = after.turned and after.turned._replace(turn=after.turned.turn[:wanted], along=after.turned.along[:wanted])
    return after._replace(basis=basis, turned=turned, variances=after.variances[:wanted])


def with_axes(after: Model, settings: Settings) -> Model:
    """The model with its stable axes carried along, where these are asked for."""
    if settings.axes == "principal":
        return after
    found = flip_signs(principal(after, settings, settings.shown)[0]).astype(np.float64)
    if after.axes is None or len(after.axes) != len(found):
        return after._replace(axes=found if after.axes is None else after.axes)
    return after._replace(axes=nearest_turn(found, after.axes) @ found)


def unit_of(rows: AnyRows) -> float:
    """The size of the first row that is not zero; 0 if there is none."""
    for start in range(0, len(rows), 64):
        part = rows[start : start + 64].dense(np.dtype(np.float64))
        sizes = np.abs(np.nan_to_num(part)).max(axis=1, initial=0.0)
        if sizes.any():
            return float(sizes[np.argmax(sizes > 0)])
    return 0.0
