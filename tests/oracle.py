"""The paper-literal algorithms as an oracle, found through the registry."""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

import numpy as np

from online_psp.algorithms import ALGORITHMS
from online_psp.engine.types import Floats

NAMES = sorted(ALGORITHMS)


def module_of(name: str) -> Any:
    return importlib.import_module(ALGORITHMS[name].__module__)


class Trajectory(NamedTuple):
    bases: list[Floats]
    """After sample t, (D, K), at index t−1."""
    outputs: Floats
    """(n, K)."""
    state: Any


def published_rates(name: str, t: int, gamma: float = 2.0) -> tuple[float, ...]:
    """The step sizes of DESIGN's equations, written once more so that the package's own are checked too."""
    if name in ("sm", "fsm"):
        step = 2.0 / (gamma * t + 5.0)
        return step, step
    return {"ipca": (1.0 / (t + 1.0),), "ccipca": (min(3.0, t) / (t + 1.0),)}[name]


def reference_run(name: str, X: Floats, K: int, gamma: float = 2.0, keep: bool = True) -> Trajectory:
    module = module_of(name)
    state = module.reference_start(np.linalg.qr(X[:K].T)[0])
    bases, outputs = [], []
    for t, x in enumerate(X, start=1):
        state, y = module.reference_step(state, x, *published_rates(name, t, gamma))
        outputs.append(y)
        if keep or t == len(X):
            bases.append(module.reference_basis(state))
    return Trajectory(bases, np.array(outputs), state)


RUNS = [(name, gamma) for name in NAMES for gamma in ((0.6, 2.0) if name in ("sm", "fsm") else (2.0,))]
"""Every algorithm, those with a γ at two of them."""


def options(name: str, gamma: float) -> dict[str, Any]:
    return {"gamma": gamma} if name in ("sm", "fsm") else {}


def spiked(n: int, D: int, K: int, rho: float = 0.01, seed: int = 0) -> Floats:
    """Spiked-covariance rows, drawn here so that the generator under test is not its own judge; mean norm one."""
    rng = np.random.default_rng(seed)
    U = np.linalg.qr(rng.standard_normal((D, K)))[0]
    X = rng.standard_normal((n, K)) * np.sqrt(np.linspace(1.0, 0.5, K)) @ U.T + np.sqrt(rho) * rng.standard_normal((n, D))
    return np.asarray(X / np.linalg.norm(X, axis=1).mean())


def wide(n: int = 1500, D: int = 300, K: int = 5, seed: int = 0) -> Floats:
    """Rows with an offset, wide enough that the streaming phase is reached, with strong directions of distinct variances."""
    rng = np.random.default_rng(seed)
    U = np.linalg.qr(rng.standard_normal((D, K)))[0]
    signal = rng.standard_normal((n, K)) * np.linspace(5, 2, K) @ U.T
    return np.asarray(signal + 0.2 * rng.standard_normal((n, D)) + rng.standard_normal(D) * 3)


def is_orthonormal(U: Floats, tolerance: float = 1e-10) -> bool:
    return bool(np.isfinite(U).all()) and float(np.abs(U.T @ U - np.eye(U.shape[1])).max()) < tolerance


SHOWN = ("n_samples_seen_", "effective_samples_", "mean_", "var_", "components_", "explained_variance_", "noise_variance_")
"""What two models that have learned the same must agree in."""


def check_same(one: Any, two: Any, what: str = "the model", tolerance: float = 0.0) -> None:
    """Two fitted OnlinePCA show the same: to the last bit, or within a part of the largest value."""
    for name in SHOWN:
        found, expected = np.asarray(getattr(one, name), np.float64), np.asarray(getattr(two, name), np.float64)
        assert found.shape == expected.shape, f"{name} of {what} has shape {found.shape}, not {expected.shape}"
        apart, size = np.abs(found - expected).max(), np.abs(expected).max()
        assert apart <= tolerance * size, f"{name} of {what} differs by {apart:.1e} of {size:.1e}"
