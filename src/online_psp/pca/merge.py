"""Merging two models into one."""

from __future__ import annotations

import numpy as np

from online_psp.engine.types import Floats
from online_psp.pca import few
from online_psp.pca.directions import leading_of_rows
from online_psp.pca.gross import Guard
from online_psp.pca.groups import common
from online_psp.pca.late import carried_over
from online_psp.pca.model import Covariance, Model, Robust
from online_psp.pca.moments import moved
from online_psp.pca.principal import basis_of, deviations
from online_psp.pca.settings import Settings


def merge(one: Model, two: Model, settings: Settings) -> Model:
    """The model of the rows of both.

    Two covariances are added. Otherwise the directions of both are stacked as rows, scaled by their deviations.
    """
    unit = one.unit or two.unit
    if not two.weight or not one.weight:
        return (one if one.weight else _in_unit(two, unit, settings))._replace(seen=one.seen + two.seen)
    two = _in_unit(two, unit, settings)
    one, two, weight = _extended(one, two, settings), _extended(two, one, settings), one.weight + two.weight
    shares = (one.weight / weight, two.weight / weight)
    known = None if one.known is None and two.known is None else _known(one) + _known(two)
    part = shares[1] if known is None else np.divide(_known(two), known, out=np.zeros_like(known), where=known > 0)
    step = (two.mean - one.mean) + (two.low - one.low) if settings.center else np.zeros(settings.D)
    variance = (1.0 - part) * one.variance + part * two.variance + part * (1.0 - part) * step**2
    between = np.sqrt(part * (1.0 - part)) * step
    after = moved(one, part * step)._replace(
        unit=unit,
        seen=one.seen + two.seen,
        weight=weight,
        squares=one.squares + two.squares,
        variance=variance,
        known=known,
        groups=None if one.groups is None and two.groups is None else common(_groups(one), _groups(two)),
        trust=two.trust if one.trust is None else one.trust if two.trust is None else one.trust.plus(two.trust),
        robust=_merged_robust(one, two, shares),
        faintest=min(one.faintest or two.faintest, two.faintest or one.faintest),
    )
    if one.covariance is not None and two.covariance is not None:
        wanted = min(settings.shown, after.seen - 1)
        return after._replace(covariance=few.merged(one.covariance, two.covariance, shares, between, wanted))
    rows = np.concatenate([np.sqrt(shares[0]) * _rows_of(one), np.sqrt(shares[1]) * _rows_of(two), between[np.newaxis]])
    scale = deviations(after) if settings.standardize else None
    basis, variances = leading_of_rows(rows if scale is None else rows / scale, settings.rank)
    if one.covariance is not None:  # the other has kept fewer directions
        root = np.sqrt(variances)[:, np.newaxis] * basis
        return after._replace(covariance=few.with_rows(Covariance(np.zeros((settings.D,) * 2, order="F")), root, 0.0, 0))
    return after._replace(basis=basis.astype(settings.working), turned=None, variances=variances, scale=scale)


def _extended(model: Model, other: Model, settings: Settings) -> Model:
    """A model with the features that only the other has observed: their products with other features are those of the other's rows."""
    fresh = (_known(model) <= 0) & (_known(other) > 0)
    B, d = leading_of_rows(_rows_of(model), settings.rank) if fresh.any() else (np.zeros((0, 0)), np.zeros(0))
    if not len(d):
        return model
    rows = _rows_of(other)
    observed = np.broadcast_to(_known(other) > 0, rows.shape)
    covariance = None if model.covariance is None else few.symmetric(model.covariance)
    B, d, covariance = carried_over(B, d, covariance, model.variance, rows, observed, np.ones(len(rows)), fresh)
    if covariance is not None:
        covariance.flat[:: len(fresh) + 1] = np.maximum(covariance.diagonal(), np.where(fresh, other.variance, 0.0))
        return model._replace(covariance=Covariance(np.asfortranarray(covariance)))
    return model._replace(basis=B.astype(settings.working), turned=None, variances=d, scale=None)


def _known(model: Model) -> Floats:
    return np.full(len(model.mean), model.weight) if model.known is None else model.known


def _groups(model: Model) -> Floats:
    return np.zeros(len(model.mean)) if model.groups is None else model.groups


def _merged_robust(one: Model, two: Model, shares: tuple[float, float]) -> Robust | None:
    """Where ordinary rows of both lie."""
    if one.robust is None or two.robust is None:
        return one.robust or two.robust
    (mine, losses), (other, more) = one.robust, two.robust
    places = (float(np.dot(shares, pair)) for pair in zip(mine[:2], other[:2], strict=True))
    guard = Guard(*places, *(one_sum + two_sum for one_sum, two_sum in zip(mine[2:], other[2:], strict=True)))
    return Robust(guard, losses.plus(more))


def _rows_of(model: Model) -> Floats:
    """Rows whose scatter is the covariance of a model, as far as it is known."""
    if model.covariance is not None:
        return few.whole_root(model.covariance)
    rows = np.sqrt(model.variances)[:, np.newaxis] * basis_of(model).astype(np.float64, copy=False)
    return rows if model.scale is None else rows * model.scale


def weighing(model: Model, left: float) -> Model:
    """A model whose weights have faded."""
    robust = model.robust
    if robust is not None:
        guard, losses = robust
        guard = Guard(*guard[:2], *(left * number for number in guard[2:]))
        losses = losses._replace(**{name: left * getattr(losses, name) for name in ("given", "tail", "lost", "start")})
        robust = Robust(guard, losses)
    known = None if model.known is None else left * model.known
    return model._replace(weight=left * model.weight, squares=left**2 * model.squares, known=known, robust=robust)


def _in_unit(model: Model, unit: float, settings: Settings) -> Model:
    """A model of rows multiplied by another unit, which standardised features do not depend on."""
    factor = unit / model.unit if model.unit else 1.0
    if factor == 1.0:
        return model._replace(unit=unit)
    covariance = model.covariance
    if covariance is not None:
        covariance = covariance._replace(
            matrix=covariance.matrix * (factor if covariance.is_root else factor**2), checked=covariance.checked * factor**2
        )
    raw, robust, trust = not settings.standardize, model.robust, model.trust
    if robust is not None:
        guard, losses = robust
        guard = guard._replace(middle=guard.middle + (2.0 * float(np.log(factor)) if raw else 0.0))
        losses = losses._replace(
            lost=losses.lost * (factor**2 if raw else 1.0), mean=losses.mean * factor, variance=losses.variance * factor**2
        )
        robust = Robust(guard, losses)
    if trust is not None and raw:
        trust = trust.scaled(factor)
    return model._replace(
        robust=robust,
        trust=trust,
        faintest=model.faintest * factor,
        unit=unit,
        mean=model.mean * factor,
        low=model.low * factor,
        variance=model.variance * factor**2,
        variances=model.variances * factor**2 if raw else model.variances,
        scale=None if model.scale is None else model.scale * factor,
        covariance=covariance,
    )
