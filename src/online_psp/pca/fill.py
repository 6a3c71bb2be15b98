"""Completes rows with missing values, so that the leading directions can be learned from them.

The model of a centred row is a Gaussian: ``x = Bᵀ ℓ z + noise``, with k orthonormal directions B (k, D), z standard normal, ``ℓ² = d − σ²``
for the variances d along B, and the same noise σ² in every feature. Of a row with the observed values Ω it expects::

    A = I + ℓ B_Ω B_Ωᵀ ℓ/σ²      z = A⁻¹ ℓ B_Ω x_Ω/σ²      e = Bᵀ ℓ z

**Unbiased rows.** Let o_j be what the *other* observed values say of a value: for a missing one, e_j; for an observed one, the expectation
with x_j left out, ``x_j − (x_j − e_j)/(1 − h_j)``, where ``h_j = b_j ℓ A⁻¹ ℓ b_j/σ²`` is its leverage. With q_j the share of rows in
which feature j is observed, the completed row is::

    x̃ = o + m (x − o)/q        m_j = 1 where x_j is observed, 0 elsewhere

Whether x_j is observed does not change o_j. So whatever the model, the mean of ``x̃_i x̃_j``, over what happens to be missing, is
``x_i x_j``: a poor model adds noise, not bias, and rows filled early need not be forgotten. Only squares have too large a mean. Those are
known better, from the observed values, and what is too much is to be subtracted from the diagonal of the covariance, feature by feature
(`Filled.apart`). So the noise that the division adds in a rare feature is no direction.

**Features earn their fill.** A regression of x_j on o_j over the observed values tells what o_j is worth. o_j is multiplied by its slope,
between 0 and 1 (`Trust`): a feature that is not predicted is filled with its mean.

**Features that a whole block lacks**, as while sensors are off, have no observed values to correct o with. All depends on the model there,
and errors are the same in all rows. Their part of the covariance is what the model expects, spread included. The model takes what the
directions leave out to be independent from feature to feature, which is not so in real data: a likely multiple of the noise makes up for
it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, qr

from online_psp.engine.blas import matmul
from online_psp.engine.eigen import largest
from online_psp.engine.types import Floats
from online_psp.pca.directions import reach

Mask = NDArray[np.bool_]

# Constants, chosen on other data than the tests'.
_PER_DIRECTION = 4  # values that a row must have for each direction that it is filled with
_PRECISE = 1e-6  # relative error of coordinates
_FEW_LACKING = 0.03  # share of missing values up to which products with these alone are faster
_MOST_STEPS = 40  # of conjugate gradients; rows that need more are solved one by one
_MEMORY = 60  # observed values of a feature after which what is known of its predictions counts half
_SWEEPS = 3  # fillings of the first rows
_SAMPLED = 16  # rows whose posterior covariances are averaged
_PART = 8  # a block is divided where features cease to be observed, unless a part would be less than one over this
_CAREFUL = 1.5  # of the logarithm of the likely noise: what varies with the observed features alone does not show in them
_SHORT = 64  # rows up to which a block is not divided: features may seem to cease by chance
_NOISES = 33  # multiples of the noise that are tried
_LEAST_NOISE = 1e-10  # relative to the largest variance: less noise cannot be told from rounding
_DENSE = 6  # features, in multiples of the directions kept, up to which matrices of all features are formed
_MORE = 16  # directions found beyond those kept
_ROUNDING = 1e-12  # relative to the largest variance
_CHUNK = 1 << 22  # numbers in a temporary array
_TINY = float(np.finfo(np.float64).tiny)


LEAST = 0.1
"""`least` of `fill` for models that leave directions out, chosen on other data than the tests'."""


class Gaussian(NamedTuple):
    """A probabilistic PCA model of centred rows."""

    directions: Floats
    """(k, D), orthonormal rows."""
    lengths: Floats
    """(k,): ℓ."""
    noise: float
    """σ²"""


class Trust(NamedTuple):
    """What predictions of each feature are worth: sums over its observed values, faded as it is observed."""

    products: Annotated[Floats, "D"]
    """Of values and their predictions."""
    squares: Annotated[Floats, "D"]
    """Of the predictions."""
    values: Annotated[Floats, "D"]
    """Squares of the values."""
    noises: Annotated[Floats, "D"]
    """Binary logarithm of the multiple of the noise with which the feature is filled, from the last block that lacked it wholly."""

    @property
    def slopes(self) -> Floats:
        """Factors for predictions, (D,), from 0 to 1."""
        some = self.squares > 0
        return np.where(some, np.clip(self.products / np.where(some, self.squares, 1.0), 0.0, 1.0), 1.0)

    @property
    def explained(self) -> Floats:
        """Share of the variance of each feature that predictions explain, (D,); 1 where nothing is known."""
        size = self.squares * self.values
        return np.where(size > 0, np.maximum(self.products, 0.0) ** 2 / np.where(size > 0, size, 1.0), 1.0)

    def plus(self, other: Trust) -> Trust:
        """That of two streams."""
        noises = np.maximum(self.noises, other.noises)
        return Trust(self.products + other.products, self.squares + other.squares, self.values + other.values, noises)

    def scaled(self, factor: float) -> Trust:
        """That of values multiplied by a factor."""
        return Trust(factor**2 * self.products, factor**2 * self.squares, factor**2 * self.values, self.noises)


class Solved(NamedTuple):
    """Coordinates of rows given their observed values."""

    z: Floats
    """(n, k)"""
    log_determinants: Floats
    """(n,): of A."""
    posterior: Floats
    """(k, k): weighted mean of ``ℓ A⁻¹ ℓ``, the covariance of the coordinates ``ℓ z`` given the observed values."""


class Filled(NamedTuple):
    """A block of completed rows: the covariance is ``(rows · weights)ᵀ rows − diag(apart)``."""

    rows: Floats
    """(n + m, D): completed rows, and m rows for the spread of features that the whole block lacks."""
    weights: Floats
    """(n + m,)"""
    apart: Floats
    """(D,)"""
    trust: Trust


def no_trust(D: int) -> Trust:
    """Nothing is known of predictions yet."""
    return Trust(np.zeros(D), np.zeros(D), np.zeros(D), np.zeros(D))


def gaussian(directions: Floats, variances: Floats, total: float, share: float = 1.0, pairs: float = np.inf) -> Gaussian:
    """The model to fill rows with.

    A row with few values cannot tell many directions apart: those beyond a quarter of its values count as noise. A covariance learned from
    n rows cannot be told from noise below about D/n of the mean variance, so the noise is at least this large.

    Parameters
    ----------
    directions : (k, D)
        Orthonormal, in order.
    variances : (k,)
    total : float
        Sum of the variances of all features.
    share : float
        Share of values observed in a typical row.
    pairs : float
        Rows in which two features were both observed.
    """
    D = directions.shape[1]
    if not len(variances):  # nothing has varied
        directions, variances = np.zeros((1, D)), np.zeros(1)
    k = min(len(variances), max(1, int(share * D / _PER_DIRECTION)))
    d = variances[:k]
    least = max(_LEAST_NOISE * float(d.max(initial=0.0)), 1e20 * _TINY, total / (D + pairs))
    noise = max((total - float(d.sum())) / max(D - k, 1), least)
    return Gaussian(directions[:k].astype(np.float64, copy=False), np.sqrt(np.maximum(d - noise, 0.0)), noise)


def both_observed(weight: float, known: Floats | None) -> float:
    """Weight of the rows in which two features were both observed, if values are missing at random, given that of all rows and features."""
    return weight if known is None else float(known.mean()) ** 2 / max(weight, 1.0)


def typical_share(observed: Mask) -> float:
    """Mean share of observed values in rows that have any."""
    shares = observed.mean(axis=1)
    return float(shares[shares > 0].mean()) if shares.any() else 0.0


def solve(model: Gaussian, rows: Floats, observed: Mask, weights: Floats | None = None, determinants: bool = False) -> Solved:
    """Coordinates of centred rows, (n, D), which are 0 where nothing is observed.

    Rows with holes of their own are solved together, by conjugate gradients: with values missing at random, and a quarter as many
    directions as values, A is near ``I + q ℓ²/σ²``, q the share observed. Where many rows lack the same values, or A itself is asked for,
    there is one system for all of these.

    Parameters
    ----------
    model : Gaussian
    rows, observed : (n, D)
    weights : (n,), optional
        Of the rows in the posterior covariance.
    determinants : bool
        Whether log-determinants are computed; else they are zero.
    """
    n = len(rows)
    F = model.directions * (model.lengths / np.sqrt(model.noise))[:, np.newaxis]
    inner = matmul(rows, F.T) / np.sqrt(model.noise)
    weights = np.ones(n) if weights is None else weights
    first, which = _patterns(observed)
    if determinants or len(first) <= max(_SAMPLED, n // _SAMPLED):
        z, logs, mean = _systems(F, inner, observed[first], which, weights)
    else:
        z, open_rows = _gradients(F, inner, observed)
        some = np.arange(0, n, -(-n // _SAMPLED))
        _, _, mean = _systems(F, inner[some], observed[some], np.arange(len(some)), weights[some])
        logs, weights = np.zeros(n), weights[some]
        if len(open_rows):
            z[open_rows], _, _ = _systems(F, inner[open_rows], observed[open_rows], np.arange(len(open_rows)), np.ones(len(open_rows)))
    mean /= max(float(weights.sum()), _TINY)
    return Solved(z, logs, mean * model.lengths * model.lengths[:, np.newaxis])


def _patterns(observed: Mask) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The first of the rows that lack the same values, for each such pattern, and the pattern of each row, (n,)."""
    packed = np.packbits(observed, axis=1)
    keys = packed.view(np.dtype((np.void, packed.shape[1]))).ravel()
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    return first, which.reshape(-1)


def _gradients(F: Floats, inner: Floats, observed: Mask) -> tuple[Floats, NDArray[np.intp]]:
    """z of ``(I + F_Ω F_Ωᵀ) z = inner``, (n, k), and the rows that have not converged."""
    lengths, share, lacking = np.einsum("kj,kj->k", F, F), observed.mean(axis=1), _lacking(F, observed)
    scale = 1.0 / (1.0 + share[:, np.newaxis] * lengths)
    z = scale * inner
    rest = inner - (1.0 + lengths) * z + lacking(z)
    step = scale * rest
    energy = np.einsum("ij,ij->i", rest, step)
    enough = _PRECISE**2 * np.einsum("ij,ij->i", inner, scale * inner)
    for _ in range(_MOST_STEPS):
        if not (energy > enough).any():
            break
        image = (1.0 + lengths) * step - lacking(step)
        length = (energy / np.maximum(np.einsum("ij,ij->i", step, image), _TINY))[:, np.newaxis]
        z += length * step
        rest -= length * image
        before, energy = energy, np.einsum("ij,ij->i", rest, scale * rest)
        step = scale * rest + (energy / np.maximum(before, _TINY))[:, np.newaxis] * step
    return z, np.flatnonzero(energy > enough)


def _lacking(F: Floats, observed: Mask) -> Callable[[Floats], Floats]:
    """The function of v, (n, k), that gives ``F_m F_mᵀ v`` for the values m that each row lacks."""
    at, columns = np.nonzero(~observed)
    if len(at) > _FEW_LACKING * observed.size:
        lacks = (~observed).astype(np.float64)
        return lambda v: matmul(matmul(v, F) * lacks, F.T)
    part = F.T[columns]
    rows, first = np.unique(at, return_index=True)

    def product(v: Floats) -> Floats:
        found = np.zeros_like(v)
        if len(rows):
            found[rows] = np.add.reduceat(part * np.einsum("pk,pk->p", part, v[at])[:, np.newaxis], first)
        return found

    return product


def _systems(F: Floats, inner: Floats, patterns: Mask, which: NDArray[np.intp], weights: Floats) -> tuple[Floats, Floats, Floats]:
    """z, log-determinants and the weighted sum of A⁻¹, for rows of these patterns."""
    k, D = F.shape
    columns, whole = np.ascontiguousarray(F.T), matmul(F, F.T) + np.eye(k)
    z, logs, total = np.empty_like(inner), np.empty(len(inner)), np.zeros((k, k))
    weight, order = np.bincount(which, weights, len(patterns)), np.argsort(which, kind="stable")
    ends = np.concatenate([[0], np.cumsum(np.bincount(which, minlength=len(patterns)))])
    size = max(1, _CHUNK // (k * k))
    for start in range(0, len(patterns), size):
        part = patterns[start : start + size]
        A = np.empty((len(part), k, k))
        for p, seen in enumerate(part):  # from the observed or from the missing features, whichever are fewer
            few = columns[seen] if 2 * np.count_nonzero(seen) <= D else columns[~seen]
            A[p] = matmul(few.T, few) + np.eye(k) if 2 * np.count_nonzero(seen) <= D else whole - matmul(few.T, few)
        inverse = np.linalg.inv(A)
        total += np.einsum("p,pij->ij", weight[start : start + size], inverse)
        determinants = np.linalg.slogdet(A)[1]
        for p in range(len(part)):
            at = order[ends[start + p] : ends[start + p + 1]]
            z[at], logs[at] = matmul(inner[at], inverse[p]), determinants[p]
    return z, logs, total


class Expected(NamedTuple):
    """What a model says of rows, given their observed values."""

    along: Floats
    """(n, k): coordinates in the directions."""
    rows: Floats
    """(n, D): expected values, centred."""
    log_likelihoods: Floats
    """(n,): of the observed values, if asked for; zero if there are none."""
    distances: Floats
    """(n,): Mahalanobis distances of the observed values, squared."""


def expect(model: Gaussian, rows: Floats, observed: Mask, likelihoods: bool = False) -> Expected:
    """What is expected of centred rows, (n, D), which are 0 where nothing is observed."""
    solved = solve(model, rows, observed, determinants=likelihoods)
    along = solved.z * model.lengths
    expected = matmul(along, model.directions)
    rest = np.where(observed, rows - expected, 0.0)
    counts = observed.sum(axis=1)
    distances = np.einsum("ij,ij->i", solved.z, solved.z) + np.einsum("ij,ij->i", rest, rest) / model.noise
    likely = -0.5 * (counts * np.log(2.0 * np.pi * model.noise) + solved.log_determinants + distances)
    return Expected(along, expected, np.where(counts > 0, likely, 0.0), distances)


def fill(
    directions: Floats,
    variances: Floats,
    total: float,
    pairs: float,
    variance: Floats,
    trust: Trust,
    rows: Floats,
    observed: Mask,
    weights: Floats,
    least: float = 0.0,
) -> Filled:
    """Complete the rows of a block.

    Parameters
    ----------
    directions : (k, D)
        Orthonormal, in order; of the model before the block.
    variances : (k,)
    total : float
        Sum of the variances of the features, as of the same model.
    pairs : float
        Rows in which two features were both observed, as of that model.
    variance : (D,)
        Of each feature, from its observed values, this block's included.
    trust : Trust
    rows : (n, D)
        Centred; 0 where nothing is observed.
    observed : (n, D)
    weights : (n,)
    least : float
        Least share of rows by which values are divided, in multiples of that of the median feature. Where directions are left out after
        each block, the noise of features that a block observes but a few times is not averaged over blocks: `LEAST`.
    """
    at = _change(observed)
    if at:
        one = fill(directions, variances, total, pairs, variance, trust, rows[:at], observed[:at], weights[:at], least)
        two = fill(directions, variances, total, pairs, variance, one.trust, rows[at:], observed[at:], weights[at:], least)
        return Filled(np.concatenate([one.rows, two.rows]), np.append(one.weights, two.weights), one.apart + two.apart, two.trust)
    weight = float(weights.sum())
    seen, lost = weights @ observed, weights @ ~observed
    some = seen > 0
    share = seen / np.maximum(seen + lost, _TINY)
    model = gaussian(directions, variances, total, typical_share(observed), pairs)
    noises = trust.noises
    if not some.all():
        multiple = _excess(model, rows, some, weights)
        noises = np.where(some, noises, _CAREFUL * np.log2(multiple))
        model = model._replace(noise=model.noise * multiple)
    solved = solve(model, rows, observed, weights)
    along = solved.z * model.lengths
    expected = matmul(along, model.directions)
    leverage = _leverages(model, solved.posterior, share)
    left_out = np.where(observed, (rows - expected) / (1.0 - leverage), 0.0)  # x − o
    predicted = np.where(observed, rows - left_out, 0.0)
    fade = 0.5 ** (observed[weights > 0].sum(axis=0) / _MEMORY)
    squares = weights @ (rows * rows)
    trust = Trust(
        fade * trust.products + weights @ (rows * predicted),
        fade * trust.squares + weights @ (predicted * predicted),
        fade * trust.values + squares,
        noises,
    )
    slopes = np.where(some, trust.slopes, 1.0)
    divided = np.where(some, lost / np.where(some, seen, 1.0), 0.0)  # 1/q − 1
    squares = np.where(some, (1.0 + divided) * squares, weight * variance)
    divided = np.minimum(divided, max(1.0 / max(least * float(np.median(share)), _TINY) - 1.0, 0.0))
    filled = np.where(observed, rows + divided * (rows - slopes * predicted), slopes * expected)
    spread = _spread(model, weight * solved.posterior, ~some)
    apart = weights @ filled**2 + np.einsum("ij,ij->j", spread, spread) - squares
    return Filled(np.concatenate([filled, spread]), np.append(weights, np.ones(len(spread))), apart, trust)


def first_directions(rows: Floats, observed: Mask, weights: Floats, rank: int, shown: int) -> tuple[Floats, Floats, Filled]:
    """Directions and variances of the first rows, and these rows completed; parameters as of `fill`."""
    D, total, nothing = rows.shape[1], float(weights.sum()), no_trust(rows.shape[1])
    pairs = len(rows) * typical_share(observed) ** 2
    dense, share = D <= _DENSE * rank, np.maximum(weights @ observed / total, _TINY)
    least = 0.0 if dense else LEAST
    variance = (weights @ rows**2) / share / total
    inflated = rows / np.maximum(share, least * float(np.median(share)))
    made = Filled(inflated, weights, weights @ inflated**2 - total * variance, nothing)
    if dense:  # holes may be shared: products of two features over the rows that have both
        both = matmul(observed.T * weights, observed.astype(np.float64))
        products = matmul(rows.T * weights, rows)
        directions, variances = _leading(np.where(both > 0, products / np.where(both > 0, both, 1.0), 0.0) * total, rank)
    else:
        directions, variances = leading_of_filled(made, rank, shown, np.zeros((0, D)), np.zeros(0))
    for _ in range(_SWEEPS):
        made = fill(directions, variances / total, float(variance.sum()), pairs, variance, nothing, rows, observed, weights, least)
        directions, variances = leading_of_filled(made, rank, shown, np.zeros((0, D)), np.zeros(0))
    return directions, variances, made


def leading_of_filled(made: Filled, rank: int, shown: int, directions: Floats, variances: Floats) -> tuple[Floats, Floats]:
    """Leading directions, (k, D), and variances, (k,), of completed rows with those of a model; k at most `rank`.

    The matrix has negative eigenvalues too, from what is subtracted on its diagonal. So directions are found within the image of the model
    and of what rows have outside of it; or, where that may overlook a direction, of the leading right singular vectors of all.
    """
    D = made.rows.shape[1]
    rows = made.rows * np.sqrt(made.weights)[:, np.newaxis]
    stacked = np.concatenate([np.sqrt(variances)[:, np.newaxis] * directions, rows])
    if D <= _DENSE * rank:
        return _leading(matmul(stacked.T, stacked) - np.diag(made.apart), rank)
    near = reach(directions, variances, rows, np.einsum("ij,ij->i", rows, rows), rank, shown)
    if near is None:
        values, vectors = largest(matmul(stacked, stacked.T), min(rank + _MORE, len(stacked)))
        span = matmul(vectors[:, values > _ROUNDING * values[-1]].T, stacked)
    else:
        span = np.concatenate([directions, near[0]])
    basis = qr(_image(stacked, made.apart, span.T), mode="economic")[0]
    found, variances = _leading(matmul(basis.T, _image(stacked, made.apart, basis)), rank)
    return matmul(found, basis.T), variances


def _leading(matrix: Floats, rank: int) -> tuple[Floats, Floats]:
    """At most `rank` eigenvectors, (k, D), and eigenvalues, (k,), largest first and positive, of a matrix symmetric but for rounding."""
    D = len(matrix)
    if not D:  # nothing varies
        return np.zeros((0, 0)), np.zeros(0)
    values, vectors = largest(0.5 * (matrix + matrix.T), min(rank, D))
    known = values > max(_ROUNDING * float(values[-1]), _TINY)
    return np.ascontiguousarray(vectors[:, known].T[::-1]), values[known][::-1]


def _change(observed: Mask) -> int:
    """The row at which features begin or cease to be observed for the rest of a block, as when sensors go off; 0 if none do."""
    n = len(observed)
    if n <= _SHORT or observed.all():
        return 0
    changes = observed[1:] != observed[:-1]
    at, counts = np.unique(np.argmax(changes[:, changes.sum(axis=0) == 1], axis=0) + 1, return_counts=True)
    inside = (at >= n // _PART) & (at <= n - n // _PART)
    return int(at[inside][np.argmax(counts[inside])]) if inside.any() else 0


def _image(stacked: Floats, apart: Floats, span: Floats) -> Floats:
    return np.asarray(matmul(stacked.T, matmul(stacked, span)) - apart[:, np.newaxis] * span)


def _leverages(model: Gaussian, posterior: Floats, share: Floats) -> Floats:
    """Leverages of observed values, (D,), from the mean posterior covariance of the coordinates.

    With g the variance that the other values leave to the prediction of a value, over the noise, the leverage is ``g/(1 + g)`` in rows in
    which it is observed. In the others the posterior covariance gives g itself, so the mean is ``q g/(1 + g) + (1 − q) g``, solved for g.
    """
    mean = np.einsum("ij,ij->j", model.directions, matmul(posterior, model.directions)) / model.noise
    slack = 1.0 - mean
    root = np.sqrt(np.maximum(slack * slack + 4.0 * (1.0 - share) * mean, 0.0))
    g = 2.0 * mean / np.maximum(slack + root, 1e-12)
    return np.asarray(g / (1.0 + g))


def _spread(model: Gaussian, posterior: Floats, absent: Mask) -> Floats:
    """Rows, (k, D), whose scatter is the spread of features that no row has; none if there are no such features."""
    if not absent.any():
        return np.zeros((0, len(absent)))
    values, vectors = eigh(posterior)
    return np.asarray(matmul(np.sqrt(np.maximum(values, 0.0))[:, np.newaxis] * vectors.T, np.where(absent, model.directions, 0.0)))


def _excess(model: Gaussian, rows: Floats, seen: Mask, weights: Floats) -> float:
    """The likely multiple of the noise, given rows that lack the same features: with ``G = B_Ω B_Ωᵀ``, the covariance of ``B_Ω x_Ω`` is
    ``G ℓ² G + f σ² G``."""
    largest = float(model.lengths.max(initial=0.0)) ** 2 / model.noise
    tried = np.geomspace(1.0, max(largest, 2.0), _NOISES)
    part = model.directions[:, seen]
    values, vectors = eigh(matmul(part, part.T))
    roots, vectors = np.sqrt(values[values > 1e-6]), vectors[:, values > 1e-6]
    if not len(roots):
        return 1.0
    signal = roots[:, np.newaxis] * vectors.T * model.lengths
    variances, turns = eigh(matmul(signal, signal.T))
    inner = matmul(matmul(matmul(rows, model.directions.T), vectors / roots), turns)
    squares = weights @ inner**2 / max(float(weights.sum()), _TINY)
    expected = np.maximum(variances, 0.0) + tried[:, np.newaxis] * model.noise
    return float(tried[int(np.argmin((np.log(expected) + squares / expected).sum(axis=1)))])
