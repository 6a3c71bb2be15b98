"""Fills in missing values so that the leading directions can be learned from the rows, and estimates the spread of what is missing.

**Scattered holes.** A filled row is ``x̃ = e + m (x − e)/q``. Here e is the expected row, m is 1 where a value is observed and 0 elsewhere,
and q is the share of such rows in which the feature is observed. Averaged over what happens to be missing, x̃ is the row itself, so the
directions move as they would if nothing were missing. Plain filling, with ``q = 1``, would move them by the observed share only. The
division adds noise, which is subtracted from the covariance again, and the spread of what is missing is added to it. Both are done in the
coordinates of the directions.

**Holes that many rows share**, for example while some sensors are off. Such rows are filled with their expected values. The spread is
learned from extra rows, which are zero wherever these rows are observed. Here the model must not trust itself too far. It takes what the
directions leave out to be independent from feature to feature; in real data it is not, and the error is the same in all of these rows.
The coordinates ``u = B_Ω x_Ω`` of the rows tell how large it is. With G, ℓ and σ² as in `online_psp.pca.holes`, their covariance is
``G ℓ² G + f σ² G``, with f = 1 if the model were right. So f is estimated, as the most likely of a few values, and these rows are filled
as if the noise were ``f σ²``.

**Features that appear late.** Earlier rows could not be filled in such a feature, and count as zero there. So the feature is regressed on
the coordinates of the rows in which it first appears, and the directions are extended to it. They are then what they would be if all
earlier rows had been filled by this regression.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from online_psp.engine.blas import matmul
from online_psp.engine.types import Floats
from online_psp.pca.exact import ReadOut, leading_directions
from online_psp.pca.holes import Gaussian, Mask, expect, inside_of, patterns

# Constants, chosen on other data than the tests' (docs/adr/0013).
_LEAST_OBSERVED = 0.02  # lower bound on the share of a block in which a feature is taken to be observed
_SWEEPS = 3  # rounds of expectation and maximisation over the first rows
_SHARED = 0.5  # rows that lack the same values are filled together if they are at least this many, in multiples of k
_VALUES = 33  # number of values of f to try, from 1 to where the noise is as large as the largest variance
_FAINT = 1e-6  # a smaller part of a direction, observed or missing, is ignored
_TINY = float(np.finfo(np.float64).tiny)


class Completed(NamedTuple):
    """A block of filled rows, and what else is needed to learn from them."""

    rows: Floats
    """(n + m, D): the filled rows, and m extra rows that stand for the spread of values that many rows lack."""
    weights: Floats
    """(n + m,): weights of these rows."""
    added: Floats
    """(k, k): correction to add to the covariance, in the coordinates of the directions."""
    excess: float
    """Geometric mean of f over the rows with holes; scattered holes count as 1."""
    lacking: float
    """Total weight of the rows with holes."""


def complete(model: Gaussian, apart: Floats, rows: Floats, observed: Mask, weights: Floats) -> Completed:
    """Fill rows, and compute the spread of what is missing.

    Parameters
    ----------
    model : Gaussian
    apart, rows : (n, D)
        Centred rows, as the model sees them and as they are learned.
    observed : (n, D)
    weights : (n,)
        Weights of the rows in the covariance.
    """
    k = len(model.directions)
    shared = [at for at in patterns(observed) if len(at) >= max(_SHARED * k, 2.0) and 0 < observed[at[0]].sum() < observed.shape[1]]
    alone = ~observed.all(axis=1)
    lacking, alone_at = float(weights[alone].sum()), np.flatnonzero(alone & ~_among(shared, len(rows)))
    filled, added, extra = rows.copy(), np.zeros((k, k)), []
    if len(alone_at):
        filled[alone_at], added = _scattered(model, apart[alone_at], rows[alone_at], observed[alone_at], weights[alone_at])
    excess, together = _excess(model, apart, observed, weights, shared), 0.0
    for at in shared:
        seen, weight = observed[at[0]], float(weights[at].sum())
        expected, spread = _together(model, apart[at], seen, excess)
        filled[at] = np.where(seen, rows[at], expected)
        extra.append(np.sqrt(weight) * spread)
        together += weight
    average = 1.0 if lacking <= 0.0 else float(excess ** (together / lacking))
    more = np.concatenate([np.zeros((0, rows.shape[1])), *extra])
    return Completed(np.concatenate([filled, more]), np.append(weights, np.ones(len(more))), added, average, lacking)


def first_directions(
    apart: Floats, observed: Mask, weights: Floats, rank: int, total: float, model_of: Callable[[ReadOut], Gaussian]
) -> ReadOut:
    """Find the directions of the first rows: first fill them with the mean, then fill them with the directions found, a few times.

    Parameters
    ----------
    apart, observed, weights
        As in `complete`.
    rank : int
        Number of directions to find.
    total : float
        Total variance of all features.
    model_of : callable
        Returns the model to fill rows with, given directions.
    """
    part = observed_share(observed, weights)
    inflated = np.where(observed, apart, 0.0) / part * np.sqrt(weights)[:, np.newaxis]
    found = leading_directions(inflated, rank)
    if observed.all():
        return found
    noise = max(float((inflated**2).sum()) - total, 0.0) / min(apart.shape)  # variance that the division adds to each direction
    found = found._replace(variances=np.maximum(found.variances - noise, 1e-6 * found.variances[0]))
    for _ in range(_SWEEPS):
        model = model_of(found)
        made = complete(model, apart, apart, observed, weights)
        spread = root_of_positive(made.added) @ model.directions
        found = leading_directions(np.vstack([spread, made.rows * np.sqrt(made.weights)[:, np.newaxis]]), rank)
    return found


def carried_over(found: ReadOut, model: Gaussian, apart: Floats, observed: Mask, weights: Floats, fresh: Mask) -> ReadOut:
    """Extend directions to features that appear for the first time.

    Parameters
    ----------
    found : ReadOut
        Directions so far, zero in those features.
    model : Gaussian
        The leading ones of these directions, to find coordinates with.
    apart, observed, weights
        As in `complete`.
    fresh : (D,)
        Which features appear for the first time.
    """
    k, numbers = len(model.directions), np.flatnonzero(fresh)
    along = expect(model, apart, observed & ~fresh)[0].along
    components = found.components.astype(np.float64)
    for at in patterns(observed[:, numbers].T):
        features = numbers[at]
        counted = weights * observed[:, features[0]]
        inner = matmul((along * counted[:, np.newaxis]).T, along)
        inner.flat[:: k + 1] += float(inner.trace()) / max(int((counted > 0).sum()), 1) + _TINY
        values = np.where(observed[:, features], apart[:, features], 0.0)
        components[:k, features] = np.linalg.solve(inner, matmul((along * counted[:, np.newaxis]).T, values))
    carried = leading_directions(np.sqrt(found.variances)[:, np.newaxis] * components, len(components))
    return carried._replace(components=carried.components.astype(found.components.dtype))


def _among(parts: list[NDArray[np.intp]], n: int) -> Mask:
    """Which of n rows are in any of the parts, (n,)."""
    found = np.zeros(n, dtype=bool)
    for part in parts:
        found[part] = True
    return found


def observed_share(observed: Mask, weights: Floats) -> Floats:
    """Share of the rows in which each feature is observed, (D,), kept away from zero."""
    total = float(weights.sum())
    share = weights @ observed / total if total > 0 else np.ones(observed.shape[1])
    return np.asarray(np.clip(share, _LEAST_OBSERVED, 1.0))


def typical_share(observed: Mask) -> float:
    """Mean share of observed values in rows that have any."""
    shares = observed.mean(axis=1)
    return float(np.mean(shares[shares > 0])) if shares.any() else 0.0


def _scattered(model: Gaussian, apart: Floats, rows: Floats, observed: Mask, weights: Floats) -> tuple[Floats, Floats]:
    """Fill rows with scattered holes; returns them, and the correction (k, k) to add to the covariance."""
    part = observed_share(observed, weights)
    expected, spread = expect(model, apart, observed, weights)
    filled = expected.rows + np.where(observed, (rows - expected.rows) / part, 0.0)
    often = weights @ observed
    noise = float(weights @ expected.noise) / max(float(weights @ expected.counts), _TINY)
    return filled, spread - noise * (model.directions * (often * (part**-2 - 1.0))) @ model.directions.T


def _together(model: Gaussian, apart: Floats, seen: Mask, excess: float) -> tuple[Floats, Floats]:
    """Expected values (n, D) of rows that lack the same values, and extra rows (k, D) whose scatter is the spread of what is missing."""
    directions, lengths, noise = model.directions, model.lengths, excess * model.floor
    k = len(directions)
    inside = inside_of(directions, seen)
    A = inside * lengths * lengths[:, np.newaxis] + noise * np.eye(k)
    values, vectors = eigh(A)
    within = lengths[:, np.newaxis] * vectors / np.sqrt(np.maximum(values, noise))  # W Wᵀ = ℓ A⁻¹ ℓ
    known = np.where(seen, apart, 0.0)
    along = matmul(matmul(matmul(known, directions.T), within), within.T)
    left, ways = eigh(np.eye(k) - inside)  # the missing part of the directions
    own = ways[:, left > _FAINT] / np.sqrt(left[left > _FAINT])
    spread, turns = eigh(noise * matmul(within, within.T) + model.floor * matmul(own, own.T))
    roots = np.sqrt(np.maximum(spread, 0.0))[:, np.newaxis] * turns.T
    return matmul(along, directions), matmul(roots, np.where(seen, 0.0, directions))


def _excess(model: Gaussian, apart: Floats, observed: Mask, weights: Floats, shared: list[NDArray[np.intp]]) -> float:
    """The most likely f for rows that share holes."""
    tried = np.geomspace(1.0, max(float(model.variances.max(initial=0.0)) / model.floor, 2.0), _VALUES)
    likely = np.zeros(_VALUES)
    for at in shared:
        seen = observed[at[0]]
        values, vectors = eigh(inside_of(model.directions, seen))
        seen_of = values > _FAINT
        roots, vectors = np.sqrt(values[seen_of]), vectors[:, seen_of]
        signal = roots[:, np.newaxis] * vectors.T * model.lengths
        variances, turns = eigh(matmul(signal, signal.T))
        known = matmul(np.where(seen, apart[at], 0.0), model.directions.T)
        squares = weights[at] @ matmul(matmul(known, vectors / roots), turns) ** 2 / max(float(weights[at].sum()), _TINY)
        expected = np.maximum(variances, 0.0) + tried[:, np.newaxis] * model.floor
        likely -= len(at) * (np.log(expected) + squares / expected).sum(axis=1)
    return float(tried[int(np.argmax(likely))])


def at_least(M: Floats, least: float) -> Floats:
    """A symmetric matrix with its small eigenvalues raised to a positive limit."""
    values, vectors = eigh(M)
    floor = max(least, 1e-14 * float(values[-1]))
    return M if values[0] >= floor else np.asarray((vectors * np.maximum(values, floor)) @ vectors.T)


def root_of_positive(M: Floats) -> Floats:
    """A matrix R such that ``Rᵀ R`` is the positive part of M."""
    values, vectors = eigh(M)
    return np.asarray(np.sqrt(np.maximum(values, 0.0))[:, np.newaxis] * vectors.T)
