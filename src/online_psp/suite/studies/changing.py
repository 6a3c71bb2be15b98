"""Generated streams for the studies: steady, turning, unusual, autocorrelated; and exactly weighted PCA to compare with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from online_psp.engine.types import Floats

Rng: TypeAlias = np.random.Generator


def basis(rng: Rng, D: int, K: int) -> Floats:
    """K random orthonormal rows, (K, D)."""
    return np.asarray(np.linalg.qr(rng.standard_normal((D, K)))[0].T)


def steady(rng: Rng, n: int, directions: Floats, deviations: Floats, noise: float = 1.0) -> Floats:
    """Gaussian rows with these deviations along these directions, in noise, (n, D)."""
    K, D = directions.shape
    return np.asarray(rng.standard_normal((n, K)) * deviations @ directions + noise * rng.standard_normal((n, D)))


def rotating(rng: Rng, n: int, both: Floats, deviations: Floats, turn: float) -> Floats:
    """Rows whose subspace turns evenly from the first K directions of (2K, D) to the others, by `turn` radians over all of them."""
    K, angles = len(deviations), np.linspace(0.0, turn, n)[:, np.newaxis]
    values = rng.standard_normal((n, K)) * deviations
    return np.asarray(np.cos(angles) * values @ both[:K] + np.sin(angles) * values @ both[K:] + rng.standard_normal((n, both.shape[1])))


def autocorrelated(rng: Rng, n: int, directions: Floats, deviations: Floats, correlation: float) -> Floats:
    """As `steady`, every score and every noise a first-order autoregression."""
    from scipy.signal import lfilter

    K, D = directions.shape
    steps = rng.standard_normal((n + 500, K + D)) * np.sqrt(1.0 - correlation**2)
    values = lfilter([1.0], [1.0, -correlation], steps, axis=0)[500:]
    return np.asarray(values[:, :K] * deviations @ directions + values[:, K:])


def _mixed(rng: Rng, n: int, directions: Floats, deviations: Floats, draw: Callable[[tuple[int, int]], Floats]) -> Floats:
    """As `steady`, with scores and noise of another distribution."""
    K, D = directions.shape
    return np.asarray(draw((n, K)) * deviations @ directions + draw((n, D)))


def _counts(rng: Rng, n: int, directions: Floats) -> Floats:
    K, D = directions.shape
    return rng.poisson(np.exp(rng.normal(0.0, 0.7, D) + rng.standard_normal((n, K)) @ directions)).astype(np.float64)


def _seasonal(rng: Rng, n: int, directions: Floats, deviations: Floats, period: float) -> Floats:
    season = 1.5 * np.sin(2.0 * np.pi * np.arange(n)[:, np.newaxis] / period + rng.uniform(0.0, 2.0 * np.pi, len(directions)))
    return steady(rng, n, directions, deviations) + season * deviations @ directions


UNUSUAL: Mapping[str, Callable[[Rng, int, Floats, Floats], Floats]] = MappingProxyType(
    {
        "Gaussian": steady,
        "uniform": lambda rng, n, B, s: _mixed(rng, n, B, s, lambda shape: rng.uniform(-1.7, 1.7, shape)),
        "t with 5 degrees, each value": lambda rng, n, B, s: _mixed(rng, n, B, s, lambda shape: rng.standard_t(5, shape)),
        "t with 5 degrees, whole rows": lambda rng, n, B, s: steady(rng, n, B, s) * np.sqrt(5.0 / rng.chisquare(5, (n, 1))),
        "lognormal": lambda rng, n, B, s: _mixed(rng, n, B, s, lambda shape: rng.lognormal(size=shape)),
        "counts (Poisson, means about 1)": lambda rng, n, B, s: _counts(rng, n, B),
        "counts, nearly all zero": lambda rng, n, B, s: rng.poisson(0.02 * rng.lognormal(size=B.shape[1]), (n, B.shape[1])).astype(float),
        "season of 500 rows in the scores": lambda rng, n, B, s: _seasonal(rng, n, B, s, 500.0),
        "season of 5,000 rows in the scores": lambda rng, n, B, s: _seasonal(rng, n, B, s, 5000.0),
    }
)
"""Rows that do not change, of which limits and detectors may think otherwise."""


def exactly_weighted(X: Floats, half_life: float, K: int) -> tuple[Floats, Floats, Floats]:
    """PCA with weights 2^(−age/half_life), from all rows: components (K, D), variances (K,), mean (D,)."""
    weights = 2.0 ** (-np.arange(len(X) - 1.0, -1.0, -1.0) / half_life)
    total = weights.sum()
    mean = weights @ X / total
    rows = (X - mean) * np.sqrt(weights)[:, np.newaxis]
    values, vectors = np.linalg.eigh(rows.T @ rows / (total - (weights**2).sum() / total))
    return vectors[:, ::-1][:, :K].T, values[::-1][:K], mean


def less_running_mean(X: Floats, half_life: float) -> Floats:
    """Rows less the exponentially weighted mean of those before them, for methods that do not centre."""
    decay, weight, mean, found = 2.0 ** (-1.0 / half_life), 0.0, np.zeros(X.shape[1]), np.empty_like(X)
    for row, centred in zip(X, found, strict=True):
        centred[:] = row - mean
        weight = decay * weight + 1.0
        mean += (row - mean) / weight
    return found
