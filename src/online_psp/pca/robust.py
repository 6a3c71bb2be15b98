"""The stage that takes weight from gross rows, before a block is learned. The rules are those of :mod:`online_psp.pca.gross`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from online_psp.engine.types import Array, Floats
from online_psp.pca.fill import Mask
from online_psp.pca.gross import Guard, Losses, distances, first_weights, guard_of
from online_psp.pca.model import Block, Model, Robust
from online_psp.pca.principal import deviations, principal, total_variance
from online_psp.pca.settings import Settings
from online_psp.pca.units import unit_for


class Judged(NamedTuple):
    """A block of rows, weighed."""

    rows: Floats
    """(n, D), times the unit; 0 where nothing is observed."""
    observed: Mask
    given: Floats
    """(n,): weights before."""
    influence: Floats
    """(n,): what is left of them, from 0 to 1."""
    guard: Guard | None
    """After the block; None for the first rows, and while too few differ."""
    judged: bool

    @property
    def left(self) -> Floats:
        return self.given * self.influence


def judge(model: Model, block: Block, X: Array, observed: Mask | None, settings: Settings) -> tuple[Model, Judged]:
    """Weigh the rows of a block by the model before it; the first rows also choose the unit, since the very first may be gross."""
    seen = np.ones(X.shape, dtype=bool) if observed is None else observed
    if model.robust is None and not model.weight:
        sizes = np.abs(np.where(seen, X, 0.0)).max(axis=1, initial=0.0).astype(np.float64)
        if sizes.any():
            model = model._replace(unit=unit_for(float(np.median(sizes[sizes > 0])), settings.working))
    rows = np.where(seen, (model.unit or 1.0) * X.astype(np.float64), 0.0)
    if model.robust is None:
        scale = _middle_deviations(rows, seen) if settings.standardize else 1.0
        at, kind = _kinds(rows, seen)
        weights = np.bincount(kind, block.left).astype(np.float64)
        found = first_weights((rows / scale)[at], seen[at], weights, settings.shown, settings.center)
        # Rows like all before, of which too few differed to judge any.
        idle = (rows == model.full_mean).all(axis=1) if model.weight else np.zeros(len(rows), dtype=bool)
        return model, Judged(rows, seen, block.left, np.where(idle, 1.0, found.weights[kind]), None, found.judged)
    far = far_out(model, rows, seen, settings)
    some = seen.any(axis=1) & (block.left > 0)
    guard = model.robust.guard.after(far[some], block.left[some], block.keep)
    return model, Judged(rows, seen, block.left, guard.weights(far), guard, True)


def noted(before: Model, after: Model, block: Judged, keep: float, settings: Settings) -> Robust | None:
    """What is remembered of a block that has been learned."""
    if not block.judged:
        return None
    if before.robust is None:
        used = block.given > 0
        guard = guard_of(far_out(after, block.rows, block.observed, settings)[used], block.given[used])
        given = keep * before.weight + float(block.given.sum())
        return Robust(guard, Losses(given, 0.0, 0.0, after.weight, after.full_mean, after.variance))
    assert block.guard is not None
    squares = _squares(after, block.rows, block.observed, settings)
    losses = before.robust.losses.after(squares, block.given, block.influence, block.guard.width, keep)
    return Robust(block.guard, losses)


def far_out(model: Model, rows: Floats, observed: Mask, settings: Settings) -> Floats:
    """δ² of rows in units of the stream, (n,), along the directions shown."""
    shown, scale = settings.shown, deviations(model) if settings.standardize else np.ones(settings.D)
    if settings.share is not None and (settings.rule or not model.few):
        shown = settings.rank_for_share(model.variances, total_variance(model, settings), model.signals)[0]
    directions, variances = principal(model, settings, shown)
    apart = np.where(observed, (rows - model.full_mean if settings.center else rows) / scale, 0.0)
    return distances(directions.astype(np.float64, copy=False), variances, model.variance / scale**2, apart, observed)


def _squares(model: Model, rows: Floats, observed: Mask, settings: Settings) -> Floats:
    """Squares of the distances of rows from the mean, (n,)."""
    scale = deviations(model) if settings.standardize else 1.0
    apart = np.where(observed, (rows - model.full_mean if settings.center else rows) / scale, 0.0)
    return np.asarray(np.einsum("ij,ij->i", apart, apart) * settings.D / np.maximum(observed.sum(axis=1), 1))


def _kinds(rows: Floats, observed: Mask) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """One row of each kind, and the kind of each row, (n,): repeats say nothing about how rows vary."""
    values = np.ascontiguousarray(np.where(observed, rows + 0.0, np.nan))
    keys = values.view(np.dtype((np.void, values.itemsize * values.shape[1]))).ravel()
    _, at, kind = np.unique(keys, return_index=True, return_inverse=True)
    return at, kind.reshape(-1)


def _middle_deviations(rows: Floats, observed: Mask) -> Floats:
    """Deviations of the middle half of each feature, (D,); 1 if that does not vary."""
    found = np.ones(rows.shape[1])
    seen = observed.any(axis=0)
    values = np.where(observed, rows, np.nan)[:, seen]
    found[seen] = 1.4826 * np.nanmedian(np.abs(values - np.nanmedian(values, axis=0)), axis=0)
    return np.where(found > 0, found, 1.0)
