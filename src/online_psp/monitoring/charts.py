"""Control charts: what rows are on average lately, against what they were in a reference.

When the charts begin, the axes of the model are frozen. From then on a row is described by *channels*, which do not depend on what the
model learns later: its whitened scores y and their squares, its residuals r in units of the deviations around the model and their squares,
the squares z² of its features in units of their deviations, and its T² and SPE.

Rows are averaged in batches of eight, and batches in two exponentially weighted moving averages, a fast and a slow one. Each channel has
limits. So have the averaged scores together (T²: the multivariate chart of Lowry et al. 1992), the averaged residuals together (SPE), and
the averaged products of scores and residuals, which say where the subspace turns to. All limits follow from the mean, variance, skewness
and autocorrelation that the channels have in the reference: the first 5,000 rows, less the newest 240 to 480 while it grows.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, NamedTuple

import numpy as np
from scipy.special import fdtri, ndtri

from online_psp.engine.rows import AnyRows
from online_psp.engine.types import Floats
from online_psp.monitoring.limits import LEAST_VALUES, SpeMoments
from online_psp.monitoring.scores import Snapshot, centred, completed

_BATCH = 8  # rows of a batch
_RATES = np.array([[0.2], [0.02]])  # of the two averages, per batch: they remember about 70 and 800 rows
_STAGE, _MOST = 30, 630  # batches by which the reference grows, and at most
_CLIP = 5.0  # a row counts in a channel as no further from the mean than this many deviations
_ROWS = 3.0  # so many rows at this distance at once raise no alarm
_LEAST = 1e-3  # smallest deviation of a channel, in its unit: less is rounding error
_CHARTS = 8 * len(_RATES) + 1  # six kinds of channels, T² and SPE of the averages; the turn
_NONE = 1e300  # in place of a limit, as long as too little is known; JSON has no infinity
_LASTING = 0.99  # largest autocorrelation that is corrected for


class Frame(NamedTuple):
    """The frozen axes of the channels."""

    seen: Snapshot
    around: Annotated[Floats, "D"]
    """Deviation of each feature around the model."""
    nominal: Annotated[Floats, "two", "P"]
    """Means and deviations that the channels should have, for as long as there is no reference."""

    @classmethod
    def of(cls, seen: Snapshot, moments: SpeMoments) -> Frame:
        explained = np.einsum("k,kj,kj->j", seen.variances, seen.components, seen.components)
        around = np.sqrt(np.maximum(seen.features - explained, 1e-12 * max(seen.total, np.finfo(np.float64).tiny)))
        K, D = seen.components.shape
        outside = float(around @ around)
        spe = (moments.mean / outside, 2.0 * moments.deviation / outside) if moments.seen >= LEAST_VALUES else (1.0, 1.0)
        means = np.concatenate([np.zeros(K + D), np.ones(K + 2 * D + 1), [spe[0]]])
        deviations = np.concatenate([np.ones(K + D), np.full(K + 2 * D, math.sqrt(2.0)), [math.sqrt(2.0 / K), spe[1]]])
        return cls(seen, around, np.stack([means, deviations]))

    @property
    def parts(self) -> dict[str, slice]:
        """The channels by their kind."""
        K, D = self.seen.components.shape
        ends = np.cumsum([0, K, D, K, D, D, 1, 1]).tolist()
        return {name: slice(ends[i], ends[i + 1]) for i, name in enumerate(("y", "r", "y2", "r2", "z2", "t2", "spe"))}

    def channels(self, rows: AnyRows) -> Floats:
        """The channels of rows, (n, P). A missing value has an ordinary square, and no residual."""
        seen = self.seen
        with np.errstate(over="ignore", invalid="ignore"):
            apart = centred(seen, rows.dense(np.dtype(np.float64)))
            holes = np.isnan(apart)
            apart = completed(seen, apart)
            y = apart @ seen.components.T
            r = (apart - y @ seen.components) / self.around
            y /= np.sqrt(seen.variances)
            y2, r2, z2 = y * y, r * r, apart * apart / np.maximum(seen.features, self.around**2)
            if holes.any():
                r[holes], r2[holes], z2[holes] = 0.0, 1.0, 1.0
            share = self.around**2 / (self.around @ self.around)
            return np.hstack([y, r, y2, r2, z2, y2.mean(axis=1, keepdims=True), (r2 @ share)[:, np.newaxis]])


class Sums(NamedTuple):
    """Sums over some batches."""

    moments: Annotated[Floats, "five", "P"]
    """Of means of values, squares and cubes; of squares of batch means, and products of neighbouring ones."""
    products: Annotated[Floats, "K", "K"]
    """Of mean products of scores."""
    crosses: Annotated[Floats, "K", "D"]
    """Of mean products of scores and residuals."""
    sizes: float = 0.0
    """Of squares of the latter."""
    n: int = 0

    def plus(self, other: Sums) -> Sums:
        moments, products, crosses = self.moments + other.moments, self.products + other.products, self.crosses + other.crosses
        return Sums(moments, products, crosses, self.sizes + other.sizes, self.n + other.n)


class Limits(NamedTuple):
    """What the averages are compared with."""

    center: Annotated[Floats, "P"]
    spread: Annotated[Floats, "P"]
    """Mean and deviation of each channel."""
    deviations: Annotated[Floats, "rates", "P"]
    """Of each average from the mean of the reference."""
    low: Annotated[Floats, "rates", "P"]
    high: Annotated[Floats, "rates", "P"]
    """How far each average may be below and above the mean."""
    whitening: Annotated[Floats, "K", "K"]
    """Inverse correlations of the scores."""
    t2: float
    spe: float
    turn: float
    """Limits of the averages together, in units of what is expected."""


class ChartState(NamedTuple):
    """The state of the charts since they began."""

    frame: Frame
    limits: Limits | None
    """None before there is a reference."""
    pending: Annotated[Floats, "pending", "P"]
    """Channels of the rows of a batch that is not full."""
    averages: Annotated[Floats, "rates", "P"]
    cross: Annotated[Floats, "K", "D"]
    """Slow average of products of scores and residuals."""
    last: Annotated[Floats, "P"]
    """The last batch mean."""
    reference: Sums
    waiting: Sums
    newest: Sums
    """Batches that are in the reference, those that will be next, and those after them."""
    batches: int = 0


class Found(NamedTuple):
    """A change that the charts have found."""

    part: str
    """Kind of the channel that has moved most; "turn" if it is the subspace."""
    number: int
    """Of the component or feature."""
    together: bool
    """Whether it was found in several averages together, not in the channel by itself."""
    only_mean: bool
    """Whether no squares have moved."""
    moved: Floats
    """The averages less the mean of the reference, (P,)."""
    noise: Floats
    """Their deviations."""
    cross: Floats
    """The same of the products of scores and residuals, (K, D)."""


def begin(seen: Snapshot, moments: SpeMoments) -> ChartState:
    """Charts in the axes of a snapshot, without a reference."""
    frame, (K, D) = Frame.of(seen, moments), seen.components.shape
    P, cross = frame.nominal.shape[1], np.zeros((K, D))
    none = Sums(np.zeros((5, P)), np.zeros((K, K)), cross)
    return ChartState(frame, None, np.zeros((0, P)), np.zeros((len(_RATES), P)), cross, np.zeros(P), none, none, none)


def look(state: ChartState, channels: Floats, run_length: float) -> tuple[ChartState, Found | None, int]:
    """Add channels of rows (n, P) up to the first alarm; returns the new state, the alarm, and the number of rows up to it."""
    before, values = len(state.pending), np.concatenate([state.pending, channels])
    full = len(values) // _BATCH * _BATCH
    for start in range(0, full, _BATCH):
        state = _add(state, values[start : start + _BATCH], run_length)
        found = None if state.limits is None else _compare(state, state.limits)
        if found is not None:
            return state, found, start + _BATCH - before
    return state._replace(pending=values[full:].copy()), None, len(channels)


def _add(state: ChartState, rows: Floats, run_length: float) -> ChartState:
    """The state after a batch."""
    parts, batches = state.frame.parts, state.batches + 1
    if state.limits is not None:
        center, far = state.limits.center, _CLIP * state.limits.spread
    else:
        # Since the last alarm rows may lie far from the model, which learns them slowly: around themselves, then.
        center = np.median(rows, axis=0) if batches == 1 else state.averages[-1]
        usual, deviations = state.frame.nominal
        first = parts["y2"].start  # squares of rows around another mean have a larger deviation
        wider = np.sqrt(np.maximum(2.0 * center[first:] / usual[first:] - 1.0, 1.0))
        far = _CLIP * np.concatenate([deviations[:first], deviations[first:] * wider])
    rows = np.clip(rows, center - far, center + far)
    mean, y = rows.mean(axis=0), rows[:, parts["y"]]
    cross = y.T @ (rows[:, parts["r"]] * (state.frame.around / _BATCH))
    rates = np.maximum(_RATES, 1.0 / batches)
    averages, slow = state.averages + rates * (mean - state.averages), state.cross + rates[-1] * (cross - state.cross)
    state = state._replace(averages=averages, cross=slow, batches=batches)
    if state.reference.n >= _MOST:
        return state
    squares = rows * rows
    moments = np.stack([mean, squares.mean(axis=0), (squares * rows).mean(axis=0), mean * mean, mean * state.last])
    newest = state.newest.plus(Sums(moments, y.T @ y / _BATCH, cross, float((cross * cross).sum()), 1))
    state = state._replace(newest=newest, last=mean)
    if newest.n < _STAGE:
        return state
    none = Sums(np.zeros_like(moments), np.zeros_like(newest.products), np.zeros_like(cross))
    reference, waiting = (state.reference.plus(state.waiting), newest) if state.reference.n else (newest, none)
    state = state._replace(reference=reference, waiting=waiting, newest=none)
    return state._replace(limits=_limits(state, run_length))


def _limits(state: ChartState, run_length: float) -> Limits:
    """The limits that follow from the reference, such that all charts together raise one false alarm in `run_length` rows."""
    parts, n, level = state.frame.parts, state.reference.n, _BATCH / run_length / _CHARTS
    mean, square, cube, between, lagged = state.reference.moments / n
    variance = np.maximum(square - mean**2, _LEAST**2)
    skewness = (cube - 3.0 * mean * square + 2.0 * mean**3) / variance**1.5
    between = np.maximum(between - mean**2, variance / _BATCH)
    # Batch means as a first-order autoregression. Its coefficient is taken a standard error larger than it is estimated, after what the
    # estimate is too small by because the mean is estimated too (Kendall 1954).
    rho = np.clip((lagged - mean**2) / between, 0.0, _LASTING)
    rho = np.minimum(rho + np.where(rho > 0.0, 1.0 + 3.0 * rho, 0.0) / n + (1.0 - rho**2) / math.sqrt(n), _LASTING)
    for part, squares, total in (("y", "y2", "t2"), ("r", "r2", "spe")):  # squares are as autocorrelated as rows are, squared
        rho[parts[squares]] = np.maximum(rho[parts[squares]], rho[parts[part]] ** 2)
        rho[parts[total]] = np.maximum(rho[parts[total]], rho[parts[squares]].mean())
    lasting = (1.0 + rho) / (1.0 - rho)
    between = between / (1.0 - np.minimum(lasting / n, 0.5))
    own = between * _faded(rho, _RATES)
    deviations = np.sqrt(own + between * lasting / n)
    degrees = np.maximum(n / lasting / (1.0 + 0.75 * skewness**2 * between / variance), 3.0)
    sizes = np.concatenate([np.full(part.stop - part.start, part.stop - part.start) for part in parts.values()])
    sizes[-2:] = 2  # T² and SPE
    t = _student(-ndtri(level / sizes / 2.0), degrees)
    # The skewness of an average of independent rows; with autocorrelation, of as many rows as tell as much.
    alone = _RATES / (2.0 - _RATES) / _BATCH
    skewed = skewness * _RATES**3 / (1.0 - (1.0 - _RATES) ** 3) / _BATCH**2 / alone**1.5 * np.sqrt(own / (alone * variance))
    # On the side where a distribution ends: squares end at zero, others are taken to have a longer tail than measured.
    ends = np.where(np.arange(len(mean)) < parts["y2"].start, 0.5, 2.0 * deviations / np.maximum(mean, _LEAST))
    least = _ROWS * _CLIP * np.sqrt(variance) * _RATES / _BATCH
    low = np.minimum(-deviations * _gamma(t, -np.minimum(skewed, ends)), -least)
    high = np.maximum(deviations * _gamma(t, np.maximum(skewed, -0.5)), least)

    scores, K = parts["y"], len(state.reference.products)
    scale = np.sqrt(np.outer(variance[scores], variance[scores]))
    correlations = (state.reference.products / n - np.outer(mean[scores], mean[scores])) / scale
    known = n / float(lasting[scores].mean())
    t2 = (known + 1.0) / (known - K) * float(fdtri(K, known - K, 1.0 - level)) if known > K + 2 else _NONE
    h = max(2.0 * mean[-1] ** 2 / variance[-1], 0.1)  # the SPE is about g χ²_h
    spe = float(fdtri(h, max(n / float(lasting[parts["r"]].mean()), 3.0), 1.0 - level))

    both = math.sqrt(float(rho[parts["y2"]].mean() * rho[parts["r2"]].mean()))  # products are as autocorrelated as squares
    kept, crosses = (1.0 + both) / (1.0 - both), state.reference.crosses / n
    rows = 0.125 * float((variance / own[-1])[parts["y2"]].mean())  # directions in time of the slow average
    directions = 1.0 / ((1.0 / rows + 1.0 / h) / K + 1.0 / (rows * h))
    size = (state.reference.sizes / n - float((crosses * crosses).sum())) * (float(_faded(both, _RATES)[-1, 0]) + kept / n)
    size = max(size, 1e-6 * float(state.frame.around @ state.frame.around))
    turn = size * float(fdtri(directions, max(n / kept, 3.0), 1.0 - level))
    whitening = np.asarray(np.linalg.pinv(correlations, hermitian=True), dtype=np.float64)
    return Limits(mean, np.sqrt(variance), deviations, low, high, whitening, t2, spe, turn)


def _faded(rho: Any, rates: Floats) -> Floats:
    """Variance of moving averages of a first-order autoregression of variance one."""
    left = rho * (1.0 - rates)
    return np.asarray(rates / (2.0 - rates) * (1.0 + left) / (1.0 - left))


def _student(z: Floats, degrees: Floats) -> Floats:
    """Quantiles of Student's t from those of the normal distribution (Wallace 1959)."""
    return np.asarray(np.sqrt(degrees * np.expm1(np.minimum((z * (8.0 * degrees + 3.0) / (8.0 * degrees + 1.0)) ** 2 / degrees, 50.0))))


def _gamma(z: Floats, skewness: Floats) -> Floats:
    """Quantiles of a standardised gamma distribution of this skewness from those of the normal (Wilson and Hilferty 1931)."""
    g = np.where(np.abs(skewness) < _LEAST, _LEAST, skewness)
    return np.asarray(2.0 / g * (np.maximum(1.0 + g * z / 6.0 - g * g / 36.0, 0.0) ** 3 - 1.0))


def _compare(state: ChartState, limits: Limits) -> Found | None:
    """The largest excess over a limit, in units of the limit."""
    parts, reference = state.frame.parts, state.reference
    moved = state.averages - limits.center
    units, cross = moved / limits.deviations, state.cross - reference.crosses / reference.n
    y, r = units[:, parts["y"]], units[:, parts["r"]]
    share = (state.frame.around * limits.spread[parts["r"]]) ** 2
    t2 = np.einsum("ik,kl,il->i", y, limits.whitening, y) / y.shape[1]
    spe = r * r @ share / share.sum()
    turned = (cross * cross).sum(axis=1)
    channels = np.maximum(moved / limits.high, moved / limits.low)
    together = np.sqrt([t2 / limits.t2, spe / limits.spe, [0.0, turned.sum() / limits.turn]]).T
    excess = np.hstack([channels, together])
    if not (excess > 1.0).any():
        return None
    rate, chart = (int(each) for each in np.unravel_index(np.argmax(excess), excess.shape))
    noise = limits.deviations[rate]
    P, squares = channels.shape[1], bool((channels[:, parts["y2"].start :] > 1.0).any())
    if chart == P + 2:
        return Found("turn", int(np.argmax(turned)), True, False, moved[rate], noise, cross)
    if chart >= P:
        within = parts["y" if chart == P else "r"]
        return Found("y" if chart == P else "r", int(np.argmax(np.abs(units[rate, within]))), True, not squares, moved[rate], noise, cross)
    part = next(name for name, within in parts.items() if chart < within.stop)
    return Found(part, chart - parts[part].start, False, not squares, moved[rate], noise, cross)
