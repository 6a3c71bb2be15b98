"""Data on which streaming PCA goes wrong: each function takes a seed and gives a case, and `CASES` has them by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from online_psp.engine.types import Array, Floats

D = 300


class Case(NamedTuple):
    X: Array
    K: int
    weights: Floats | None = None
    center: bool = True


def harmonic(rng: np.random.Generator, n: int = 3000, features: int = D) -> Floats:
    """Standard deviations that fall like 1/k."""
    return np.asarray(rng.standard_normal((n, features)) / np.arange(1, features + 1))


def direction(rng: np.random.Generator) -> Floats:
    u = rng.standard_normal(D)
    return np.asarray(u / np.linalg.norm(u))


def three_strong(rng: np.random.Generator) -> Floats:
    return np.asarray(rng.standard_normal((4000, D)) * np.r_[9.0, 6.0, 4.0, np.full(D - 3, 0.5)])


def row_of_hundreds(rng: np.random.Generator) -> Case:
    X = three_strong(rng)
    X[1700] = 100.0
    return Case(X, 3)


def mean_jump(rng: np.random.Generator) -> Case:
    X = harmonic(rng)
    X[300:] += 10 * direction(rng)
    return Case(X, 8)


def spike(where: int, size: float, dtype: Any = np.float64) -> Callable[[np.random.Generator], Case]:
    def make(rng: np.random.Generator) -> Case:
        X = harmonic(rng)
        X[where] = size * direction(rng)
        return Case(X.astype(dtype), 8)

    return make


def clock(rng: np.random.Generator) -> Case:
    X = harmonic(rng)
    return Case(np.column_stack([X, np.linspace(0, 345600, len(X))]), 8)


def two_regimes(rng: np.random.Generator, factors: tuple[float, float] = (1.0, 1.0)) -> Case:
    parts = []
    for factor in factors:
        Q = np.linalg.qr(rng.standard_normal((D, D)))[0]
        parts.append(factor * (harmonic(rng, 1600) @ Q + 3 * rng.standard_normal(D)))
    return Case(np.concatenate(parts), 8)


def low_rank(rank: int, dtype: Any = np.float64) -> Callable[[np.random.Generator], Case]:
    return lambda rng: Case((rng.standard_normal((3000, rank)) @ rng.standard_normal((rank, D))).astype(dtype), 8)


def disjoint(gain: float, first: float = 1.0) -> Callable[[np.random.Generator], Case]:
    """Features that have never been there before, from the middle on."""

    def make(rng: np.random.Generator) -> Case:
        half = D // 2
        X = np.zeros((4000, D))
        X[:2000, :half] = harmonic(rng, 2000, half)
        X[2000:, half:] = gain * harmonic(rng, 2000, half)
        X[0] *= first
        return Case(X, 8, center=False)

    return make


def one_hot(rng: np.random.Generator) -> Case:
    p = 1.0 / np.arange(1, D + 1)
    return Case(np.eye(D)[rng.choice(D, 5000, p=p / p.sum())], 8)


def drift(rng: np.random.Generator) -> Case:
    X = harmonic(rng, 5000)
    angle = np.linspace(0, np.pi / 2, 5000)[:, np.newaxis]
    strong = X[:, :5].copy()
    X[:, :5] = strong * np.cos(angle)
    X[:, 100:105] += strong * np.sin(angle)
    return Case(X, 8)


def ordered(rng: np.random.Generator) -> Case:
    X = harmonic(rng)
    return Case(X[np.argsort(X[:, 0])], 8)


CASES: dict[str, Callable[[np.random.Generator], Case]] = {
    "one row of 100s": row_of_hundreds,
    "rows of many sizes": lambda rng: Case(three_strong(rng) * np.exp(1.5 * rng.standard_normal((4000, 1))), 3),
    "lognormal": lambda rng: Case(rng.lognormal(0.0, 2.5, (4000, D)), 3),
    "mean jump": mean_jump,
    "first row 1e6": spike(0, 1e6),
    "middle row 1e6": spike(1500, 1e6),
    "last row 1e6": spike(-1, 1e6),
    "middle row 1e10": spike(1500, 1e10),
    "clock column": clock,
    "float32 in 1e-10": lambda rng: Case((harmonic(rng) * 1e-10).astype(np.float32), 8),
    "t with 3 degrees": lambda rng: Case(rng.standard_t(3, (4000, D)) / np.arange(1, D + 1), 5),
    "t with 1.5 degrees": lambda rng: Case(rng.standard_t(1.5, (4000, D)), 5),
    "Cauchy": lambda rng: Case(rng.standard_cauchy((4000, D)), 5),
    "two regimes": two_regimes,
    "1000 times larger": lambda rng: two_regimes(rng, (1.0, 1000.0)),
    "1000 times smaller": lambda rng: two_regimes(rng, (1000.0, 1.0)),
    "weights lognormal": lambda rng: Case(harmonic(rng), 8, rng.lognormal(0.0, 4.0, 3000)),
    "mean 1e8": lambda rng: Case(harmonic(rng) + 1e8, 8),
    "twelve directions": low_rank(12),
    "four directions": low_rank(4),
    "twelve directions in float32": low_rank(12, np.float32),
    "new features": disjoint(1.0),
    "new features, ten times as strong": disjoint(10.0),
    "one hot": one_hot,
    "columns in many units": lambda rng: Case(rng.standard_normal((3000, D)) * 10.0 ** rng.uniform(-6, 6, D), 8),
    "sorted": ordered,
    "drift": drift,
    "float32, first row 1e6": spike(0, 1e6, np.float32),
    "float32, second row 1e5": spike(1, 1e5, np.float32),
    "new features after a row of 1e-100": disjoint(1.0, 1e-100),
    "stronger new features after a row of 1e-100": disjoint(10.0, 1e-100),
    "copies": lambda rng: Case(harmonic(rng, 500)[rng.integers(0, 500, 3000)], 8),
}
