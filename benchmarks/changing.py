"""Streams that change, for the benchmark of tracking and its pictures, and models that follow them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.decomposition import IncrementalPCA

from online_psp import CCIPCA, OnlinePCA
from online_psp.engine.types import Array, Floats


def basis(rng: np.random.Generator, D: int, K: int) -> Floats:
    """K random orthonormal rows, (K, D)."""
    return np.asarray(np.linalg.qr(rng.standard_normal((D, K)))[0].T)


def steady(rng: np.random.Generator, n: int, directions: Floats, deviations: Floats, noise: float = 1.0) -> Floats:
    """Gaussian rows with these deviations along these directions, in noise, (n, D)."""
    K, D = directions.shape
    return np.asarray(rng.standard_normal((n, K)) * deviations @ directions + noise * rng.standard_normal((n, D)))


def rotating(rng: np.random.Generator, n: int, D: int, deviations: Floats, turn: float) -> Floats:
    """Rows whose subspace turns evenly towards another at a right angle to it, by `turn` radians over all of them."""
    K = len(deviations)
    both = basis(rng, D, 2 * K)
    angles = np.linspace(0.0, turn, n)[:, np.newaxis]
    scores = rng.standard_normal((n, K)) * deviations
    return np.asarray(np.cos(angles) * scores @ both[:K] + np.sin(angles) * scores @ both[K:] + rng.standard_normal((n, D)))


def autocorrelated(rng: np.random.Generator, n: int, directions: Floats, deviations: Floats, correlation: float) -> Floats:
    """As `steady`, every score and every noise a first-order autoregression."""
    from scipy.signal import lfilter

    K, D = directions.shape
    steps = rng.standard_normal((n + 500, K + D)) * np.sqrt(1.0 - correlation**2)
    values = lfilter([1.0], [1.0, -correlation], steps, axis=0)[500:]
    return np.asarray(values[:, :K] * deviations @ directions + values[:, K:])


def _mixed(rng: np.random.Generator, directions: Floats, deviations: Floats, draw: Callable[[tuple[int, int]], Floats], n: int) -> Floats:
    """As `steady`, with scores and noise of another distribution."""
    K, D = directions.shape
    return np.asarray(draw((n, K)) * deviations @ directions + draw((n, D)))


def _counts(rng: np.random.Generator, n: int, directions: Floats) -> Floats:
    K, D = directions.shape
    return rng.poisson(np.exp(rng.normal(0.0, 0.7, D) + rng.standard_normal((n, K)) @ directions)).astype(np.float64)


def _seasonal(rng: np.random.Generator, n: int, directions: Floats, deviations: Floats, period: float) -> Floats:
    K = len(directions)
    season = 1.5 * np.sin(2.0 * np.pi * np.arange(n)[:, np.newaxis] / period + rng.uniform(0.0, 2.0 * np.pi, K))
    return steady(rng, n, directions, deviations) + season * deviations @ directions


UNUSUAL: dict[str, Callable[[np.random.Generator, int, Floats, Floats], Floats]] = {
    "Gaussian": steady,
    "uniform": lambda rng, n, B, s: _mixed(rng, B, s, lambda shape: rng.uniform(-1.7, 1.7, shape), n),
    "t with 5 degrees, each value": lambda rng, n, B, s: _mixed(rng, B, s, lambda shape: rng.standard_t(5, shape), n),
    "t with 5 degrees, whole rows": lambda rng, n, B, s: steady(rng, n, B, s) * np.sqrt(5.0 / rng.chisquare(5, (n, 1))),
    "lognormal": lambda rng, n, B, s: _mixed(rng, B, s, lambda shape: rng.lognormal(size=shape), n),
    "counts (Poisson, means about 1)": lambda rng, n, B, s: _counts(rng, n, B),
    "counts, nearly all zero": lambda rng, n, B, s: rng.poisson(0.02 * rng.lognormal(size=B.shape[1]), (n, B.shape[1])).astype(np.float64),
    "season of 500 rows in the scores": lambda rng, n, B, s: _seasonal(rng, n, B, s, 500.0),
    "season of 5,000 rows in the scores": lambda rng, n, B, s: _seasonal(rng, n, B, s, 5000.0),
}
"""Rows that do not change, of which limits and detectors may think otherwise."""


def exactly_weighted(X: Floats, half_life: float, K: int) -> tuple[Floats, Floats, Floats]:
    """PCA with weights 2^(−age/half_life), from all rows: components (K, D), variances (K,), mean (D,)."""
    weights = 2.0 ** (-np.arange(len(X) - 1.0, -1.0, -1.0) / half_life)
    total = weights.sum()
    mean = weights @ X / total
    rows = (X - mean) * np.sqrt(weights)[:, np.newaxis]
    values, vectors = np.linalg.eigh(rows.T @ rows / (total - (weights**2).sum() / total))
    return vectors[:, ::-1][:, :K].T, values[::-1][:K], mean


# Models that follow a stream: each takes blocks of rows and gives its components, (K, D), when asked


@dataclass(frozen=True)
class Follower:
    """A way to follow a stream."""

    name: str
    make: Callable[[int, int, float], Any]
    """From K, D and a half-life to an object with ``learn(rows)`` and ``components()``."""
    centres: bool
    """Whether it centres by itself; others get rows less their exponentially weighted mean."""


class Online:
    def __init__(self, K: int, half_life: float | None) -> None:
        self.model = OnlinePCA(K, half_life=half_life)

    def learn(self, rows: Floats) -> None:
        self.model.partial_fit(rows)

    def components(self) -> Array:
        return self.model.components_


class Incremental:
    def __init__(self, K: int) -> None:
        self.model = IncrementalPCA(K)

    def learn(self, rows: Floats) -> None:
        self.model.partial_fit(rows)

    def components(self) -> Array:
        return np.asarray(self.model.components_)


class Amnesic:
    """CCIPCA with the step that has this half-life, once there are enough rows."""

    def __init__(self, K: int, D: int, half_life: float) -> None:
        least = 1.0 - 2.0 ** (-1.0 / half_life)
        self.model = CCIPCA(K, D, learning_rate=lambda t: max(3.0 / (t + 3.0), least))

    def learn(self, rows: Floats) -> None:
        self.model.fit_block(rows)

    def components(self) -> Array:
        return np.asarray(self.model.get_components().T)


class Pro:
    """proSVD; its decay, once a block, is that of the half-life for the blocks given."""

    def __init__(self, K: int, half_life: float) -> None:
        self.K, self.half_life = K, half_life
        self.model: Any = None

    def learn(self, rows: Floats) -> None:
        from proSVD import proSVD

        if self.model is None:
            self.model = proSVD(k=self.K, w_len=len(rows), decay_alpha=2.0 ** (-len(rows) / self.half_life / 2.0), track_prev=False)
            self.model.initialize(rows.T)
        else:
            self.model.updateSVD(rows.T)

    def components(self) -> Array:
        return np.asarray(self.model.Q.T)


class FullCovariance:
    """A D×D exponentially weighted covariance with an eigendecomposition at every block."""

    def __init__(self, K: int, D: int, half_life: float) -> None:
        self.K, self.decay = K, 2.0 ** (-1.0 / half_life)
        self.weight, self.mean, self.scatter, self.found = 0.0, np.zeros(D), np.zeros((D, D)), np.zeros((K, D))

    def learn(self, rows: Floats) -> None:
        weights = self.decay ** np.arange(len(rows) - 1.0, -1.0, -1.0)
        left, added = self.decay ** len(rows) * self.weight, weights.sum()
        mean = weights @ rows / added
        apart, between = (rows - mean) * np.sqrt(weights)[:, np.newaxis], mean - self.mean
        self.scatter = self.decay ** len(rows) * self.scatter + apart.T @ apart
        self.scatter += left * added / (left + added) * np.outer(between, between)
        self.weight = left + added
        self.mean = self.mean + added / self.weight * between
        self.found = np.linalg.eigh(self.scatter)[1][:, ::-1][:, : self.K].T

    def components(self) -> Array:
        return self.found


FOLLOWERS = (
    Follower("OnlinePCA(half_life)", lambda K, D, h: Online(K, h), True),
    Follower("OnlinePCA, forgets nothing", lambda K, D, h: Online(K, None), True),
    Follower("D×D weighted covariance", FullCovariance, True),
    Follower("proSVD, decay", lambda K, D, h: Pro(K, h), False),
    Follower("CCIPCA, constant step", Amnesic, False),
    Follower("IncrementalPCA", lambda K, D, h: Incremental(K), True),
)


def less_running_mean(X: Floats, half_life: float) -> Floats:
    """Rows less the exponentially weighted mean of those before them, for models that do not centre."""
    import pandas as pd

    before = pd.DataFrame(X, copy=False).ewm(halflife=half_life).mean().shift(fill_value=0.0)
    return np.asarray(X - before.to_numpy())
