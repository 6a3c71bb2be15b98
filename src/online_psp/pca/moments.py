"""Weights, mean and variances of a model after a block: exact, in one pass; and the block's rows about its own mean.

With W₀ and V the weights of everything before and of the block, m the mean of the block and μ that before it::

    μ ← μ + V/W (m − μ)                                W = W₀ + V
    C ← W₀/W C + V/W C_block + jump jumpᵀ              jump = sqrt(W₀ V)/W (m − μ)

So a block adds the scatter of its rows about m, each times the root of its share in W, and of one more row, the jump of the mean.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from online_psp.engine.compiler import exact_kernel, kernel
from online_psp.engine.types import Array, Floats
from online_psp.pca.model import Block, Model


class Centred(NamedTuple):
    """What a block adds to the covariance."""

    rows: Array
    """(n + 1, D): rows about the mean of the block times the roots of their shares, and the jump of the mean."""
    squares: Floats
    """(n + 1,): their squares."""
    keep: float
    """Share of the past in the average."""


@exact_kernel
def _sum_apart(X: Array, unit: float, place: Floats, weights: Floats, total: Floats) -> None:
    """``total = Σ w_i (unit x_i − place)``."""
    for i in range(X.shape[0]):
        row, weight = X[i], weights[i]
        for j in range(row.shape[0]):
            total[j] += weight * (unit * row[j] - place[j])


@exact_kernel
def _apart(X: Array, unit: float, place: Floats, step: Floats, roots: Floats, Z: Array) -> None:
    """``z_i = r_i ((unit x_i − place) − step)``: far from zero, rounding would otherwise destroy a small difference."""
    for i in range(X.shape[0]):
        row, out, root = X[i], Z[i], roots[i]
        for j in range(row.shape[0]):
            out[j] = root * ((unit * row[j] - place[j]) - step[j])


@kernel
def _add_squares(Z: Array, columns: Floats) -> None:
    for i in range(Z.shape[0]):
        row = Z[i]
        for j in range(row.shape[0]):
            columns[j] += np.float64(row[j]) * np.float64(row[j])


@kernel
def row_squares(Z: Array, squares: Floats) -> None:
    """``‖z_i‖²``, in double precision."""
    for i in range(Z.shape[0]):
        row, total = Z[i], 0.0
        for j in range(row.shape[0]):
            total += np.float64(row[j]) * np.float64(row[j])
        squares[i] = total


def _place(X: Array, weights: Floats, unit: float) -> Floats:
    """A point among the rows, (D,), to count from: constant features then do not vary at all. One gross row of three does not move it."""
    heavy = np.flatnonzero(weights >= 0.5 * weights.max())
    three = X[heavy[[0, len(heavy) // 2, -1]]].astype(np.float64)
    return np.asarray(unit * np.sort(three, axis=0)[1])


def weighed(model: Model, block: Block) -> Model:
    """The model with the block's rows counted and weighed."""
    weight = block.keep * model.weight + float(block.left.sum())
    squares = block.keep**2 * model.squares + float(block.left @ block.left)
    return model._replace(seen=model.seen + len(block.left), weight=weight, squares=squares)


def moved(model: Model, step: Floats) -> Model:
    """The model with its mean moved; the two parts of the mean keep what rounding would lose."""
    low = model.low + step
    mean = model.mean + low
    part = mean - model.mean
    return model._replace(mean=mean, low=(model.mean - (mean - part)) + (low - part))


def centred(model: Model, block: Block, X: Array, center: bool) -> tuple[Model, Centred]:
    """The moments after a block of dense rows X, (n, D), and what these add to the covariance.

    Parameters
    ----------
    model : Model
        Before the block.
    block : Block
    X : (n, D)
        Its rows, C-contiguous and writable, as kernels are compiled for.
    center : bool
    """
    after, unit = weighed(model, block), model.unit or 1.0
    n, D = X.shape
    added = float(block.left.sum())
    keep = block.keep * model.weight / after.weight
    Z = np.zeros((n + 1, D), X.dtype)
    step = np.zeros(D)
    place = _place(X, block.left, unit) if center else step
    if center:
        _sum_apart(X, unit, place, block.left / added, step)
    _apart(X, unit, place, step, np.sqrt(block.left / after.weight), Z)
    if center:
        between = ((place - model.mean) - model.low) + step
        Z[n] = np.sqrt(keep * (1.0 - keep)) * between
        after = moved(after, (1.0 - keep) * between)
    squares, variance = np.empty(n + 1), keep * model.variance
    row_squares(Z, squares)
    _add_squares(Z, variance)
    return after._replace(variance=variance), Centred(Z, squares, keep)


class PartlyCentred(NamedTuple):
    """Rows with missing values about the mean after them."""

    rows: Floats
    """(n, D): 0 where nothing is observed."""
    jump: Floats
    """(D,): by how much the mean of what was known before has moved."""


def partly_centred(model: Model, block: Block, X: Array, observed: NDArray[np.bool_], center: bool) -> tuple[Model, PartlyCentred]:
    """As `centred`, for rows of which only some values are observed: every feature has weights of its own."""
    after, unit = weighed(model, block), model.unit or 1.0
    added = block.left @ observed
    before = block.keep * (np.full(len(added), model.weight) if model.known is None else model.known)
    known = before + added
    share = np.divide(added, known, out=np.zeros_like(known), where=known > 0)
    after = after._replace(known=known)
    if not center:
        rows = np.where(observed, unit * X, 0.0)
        variance = (1.0 - share) * model.variance + np.divide(block.left @ rows**2, known, out=np.zeros_like(known), where=known > 0)
        return after._replace(variance=variance), PartlyCentred(rows, np.zeros_like(known))
    some = observed.any(axis=0)
    heavy = observed & (block.left >= 0.5 * block.left.max())[:, np.newaxis]
    at = np.where(heavy.any(axis=0), np.argmax(heavy, axis=0), np.argmax(observed, axis=0))
    place = np.where(some, unit * X[at, np.arange(X.shape[1])].astype(np.float64), 0.0)
    apart = np.where(observed, unit * X - place, 0.0)
    step = np.divide(block.left @ apart, added, out=np.zeros_like(known), where=added > 0)
    between = np.where(added > 0, ((place - model.mean) - model.low) + step, 0.0)
    within = np.divide(block.left @ np.where(observed, apart - step, 0.0) ** 2, known, out=np.zeros_like(known), where=known > 0)
    after = moved(after, share * between)
    variance = (1.0 - share) * model.variance + within + share * (1.0 - share) * between**2
    rows = np.where(observed, (unit * X - after.mean) - after.low, 0.0)
    return after._replace(variance=variance), PartlyCentred(rows, np.where(before > 0, share * between, 0.0))


def beyond_rounding(variance: Floats, mean: Floats) -> Floats:
    """Variances, (D,), of which those that are rounding of the mean are 0: constant features do not vary at all."""
    return np.where(variance > (8.0 * np.finfo(np.float64).eps * mean) ** 2, variance, 0.0)
