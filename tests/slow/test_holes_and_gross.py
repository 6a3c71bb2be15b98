"""Missing values never cost more than filling with means does, and gross rows stay outside however long they come."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.decomposition import IncrementalPCA

from online_psp import OnlinePCA
from online_psp.datasets.registry import load, locate
from online_psp.engine.types import Floats
from online_psp.metrics import subspace_error

ROOM = 1.1
"""Times the error of mean filling, and 0.005 more, that is allowed."""
WORSE_FILL = 1.05
"""Times the error of the mean that filled values may have."""


def spiked(n: int, D: int, K: int, size: float, noise: Floats | float, seed: int) -> Floats:
    rng = np.random.default_rng(seed)
    U = np.linalg.qr(rng.standard_normal((D, K)))[0]
    return np.asarray((rng.standard_normal((n, K)) * size * 0.8 ** np.arange(K)) @ U.T + noise * rng.standard_normal((n, D)) + 3.0)


def signal(n: int, seed: int) -> Floats:
    return spiked(n, 150, 3, 3.0 * np.sqrt(7.5), 0.7, seed)


def uneven(D: int, K: int, seed: int) -> Floats:
    noise = np.random.default_rng(seed + 1).lognormal(-1.0, 1.0, D)
    return spiked(6000, D, K, 3.0 * np.sqrt(D / 20), noise, seed)


def mnist(n: int) -> Floats:
    if locate("mnist") is None:
        pytest.skip("MNIST is not here")
    return np.asarray(load("mnist").X[-n:], dtype=np.float64)


def holed(X: Floats, missing: float, few: int = 0, rare: float = 0.0, seed: int = 0) -> Floats:
    """Rows with values missing at random: a share of all, and another share of some columns, taken from those that vary most."""
    rng = np.random.default_rng(seed)
    share = np.full(X.shape[1], missing)
    varying = np.argsort(-X.var(axis=0))[: X.shape[1] // 2]
    share[rng.choice(varying, few, replace=False)] = rare
    return np.where(rng.random(X.shape) < share, np.nan, X)


def halves(X: Floats, seed: int = 0) -> Floats:
    H, u, D = X.copy(), np.random.default_rng(seed).random(len(X)), X.shape[1]
    H[u < 0.45, : D // 2] = np.nan
    H[u > 0.55, D // 2 :] = np.nan
    return H


def stretch(X: Floats) -> Floats:
    H, (n, D) = X.copy(), X.shape
    H[n // 4 : 3 * n // 4, : D // 3] = np.nan
    return H


Case = tuple[Callable[[], Floats], Callable[[Floats], Floats], int, dict[str, Any]]

HOLES: dict[str, Case] = {
    "5 columns 99 %": (lambda: signal(3000, 21), lambda X: holed(X, 0.0, 5, 0.99), 3, {}),
    "5 columns 98 %, 30,000 rows": (lambda: signal(30_000, 22), lambda X: holed(X, 0.0, 5, 0.98), 3, {}),
    "20 columns 90 %, the rest 10 %": (lambda: signal(3000, 23), lambda X: holed(X, 0.1, 20, 0.9), 3, {}),
    "images, 40 pixels 98 %": (lambda: mnist(6000), lambda X: holed(X, 0.0, 40, 0.98), 10, {}),
    "images standardised, 1 %": (lambda: mnist(6000), lambda X: holed(X, 0.01), 5, {"standardize": True}),
    "images standardised, 10 %": (lambda: mnist(6000), lambda X: holed(X, 0.1), 5, {"standardize": True}),
    "images standardised, 30 %": (lambda: mnist(6000), lambda X: holed(X, 0.3), 5, {"standardize": True}),
    "uneven noise, 400 features, 30 %": (lambda: uneven(400, 12, 24), lambda X: holed(X, 0.3), 12, {}),
    "uneven noise, 150 features, 10 %": (lambda: uneven(150, 3, 26), lambda X: holed(X, 0.1), 3, {}),
    "two halves in turn": (lambda: signal(3000, 27), halves, 3, {}),
    "90 % everywhere": (lambda: signal(3000, 28), lambda X: holed(X, 0.9), 3, {}),
    "30 % everywhere": (lambda: signal(3000, 29), lambda X: holed(X, 0.3), 3, {}),
    "spiked, 50 %": (lambda: spiked(10_000, 200, 8, 1.0, 0.1, 30), lambda X: holed(X, 0.5), 8, {}),
    "spiked, a stretch": (lambda: spiked(10_000, 200, 8, 1.0, 0.1, 31), stretch, 8, {}),
    "images, 10 %": (lambda: mnist(10_000), lambda X: holed(X, 0.1), 16, {}),
    "images, 50 %": (lambda: mnist(10_000), lambda X: holed(X, 0.5), 16, {}),
    "images, 80 %": (lambda: mnist(10_000), lambda X: holed(X, 0.8), 16, {}),
    "images, a stretch": (lambda: mnist(10_000), stretch, 16, {}),
}


def leading(X: Floats, K: int) -> Floats:
    apart = X - X.mean(axis=0)
    return np.asarray(np.linalg.eigh(apart.T @ apart)[1][:, ::-1][:, :K])


def rms(values: Floats) -> float:
    return float(np.sqrt(np.mean(values**2)))


@pytest.mark.filterwarnings("ignore:The standard deviations of the features have changed", "ignore:.*are not predicted by the others")
@pytest.mark.parametrize("name", HOLES)
@pytest.mark.filterwarnings("ignore:.* are not predicted by the others:UserWarning")
def test_holes_cost_no_more_than_filling_with_means(name: str) -> None:
    make, spoil, K, options = HOLES[name]
    X = make()
    H = spoil(X)
    mean, deviations = np.nanmean(H, axis=0), np.nanstd(H, axis=0)
    deviations = np.where(deviations > 0, deviations, 1.0) if options else np.ones(X.shape[1])
    truth = leading(X / np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0) if options else X, K)
    filled = np.nan_to_num((H - mean) / deviations)
    rival = IncrementalPCA(2 * K + 32, batch_size=6 * (2 * K + 32)).fit(filled).components_[:K].T
    model = OnlinePCA(K, missing="impute", **options).fit(H)
    error, allowed = subspace_error(model.components_.T, truth), ROOM * subspace_error(rival, truth) + 0.005
    assert error <= allowed, f"error {error:.4f}, allowed {allowed:.4f}"
    missing = np.isnan(H)
    worse = rms((model.impute(H) - X)[missing]) / rms((X - mean)[missing])
    assert worse <= WORSE_FILL, f"filled values are {worse:.2f} times as far off as the mean"


def faces() -> Floats:
    if locate("yale") is None:
        pytest.skip("YALE is not here")
    return np.asarray(load("yale").X, dtype=np.float64)


def in_order(X: Floats, of: Floats) -> Floats:
    return X[np.argsort(of)]


ORDERS: dict[str, Callable[[Floats], Floats]] = {
    "images": lambda X: X,
    "images by norm": lambda X: in_order(X, (X**2).sum(axis=1)),
    "images by first component": lambda X: in_order(X, X @ leading(X, 1)[:, 0]),
}
WITH = ("standardize", "half_life", "merge", "weights")


def learned(X: Floats, options: tuple[str, ...], **more: Any) -> tuple[OnlinePCA, Floats]:
    """A model of the rows with these options, and what the rows weigh in it."""
    n = len(X)
    given = np.random.default_rng(5).integers(1, 4, n).astype(float) if "weights" in options else np.ones(n)
    ages = (n - 1.0 - np.arange(n)) / (n // 4)
    fading: dict[str, Any] = {"half_life": f"{n // 4}s"} if "half_life" in options else {}
    model = OnlinePCA(8, standardize="standardize" in options, **fading, **more)

    def of(rows: Any) -> OnlinePCA:
        one: OnlinePCA = clone(model)
        return one.fit(X[rows], sample_weight=given[rows], times=np.arange(n)[rows] if fading else None)

    found = of(slice(0, None, 2)).merge(of(slice(1, None, 2))) if "merge" in options else of(slice(None))
    return found, given * 0.5**ages if fading else given


@pytest.mark.filterwarnings("ignore:The standard deviations of the features have changed")
@pytest.mark.parametrize("options", [*itertools.combinations(WITH, 1), *itertools.combinations(WITH, 2)], ids="+".join)
@pytest.mark.parametrize("name", [*ORDERS, "faces"])
def test_holes_with_other_options_cost_no_more_than_filling_with_means(name: str, options: tuple[str, ...]) -> None:
    X = faces() if name == "faces" else ORDERS[name](mnist(4000))
    H = holed(X, 0.1)
    model, weights = learned(H, options, missing="impute")
    rival, _ = learned(np.where(np.isnan(H), np.nan_to_num(np.nanmean(H, axis=0)), H), options)
    apart = X - np.average(X, axis=0, weights=weights)
    if "standardize" in options:
        deviations = np.sqrt(np.average(apart**2, axis=0, weights=weights))
        apart /= np.where(deviations > 0, deviations, 1.0)
    truth = np.linalg.eigh(apart.T @ (apart * weights[:, np.newaxis]))[1][:, ::-1][:, :8]
    error, allowed = subspace_error(model.components_.T, truth), 1.3 * subspace_error(rival.components_.T, truth) + 0.01
    assert error <= allowed, f"error {error:.4f}, allowed {allowed:.4f}"


def gross(kind: str, n: int, seed: int) -> tuple[Floats, Any]:
    """Rows of which some are gross, and which."""
    rng, D = np.random.default_rng(seed), 400 if kind == "bursts" else 200
    X = spiked(n, D, 5, 1.0, 0.1, seed) - 3.0
    bad, u = rng.random(n) < (0.1 if kind.startswith("10 %") else 0.05), rng.standard_normal(D)
    u, along = u / np.linalg.norm(u), rng.standard_normal((n, 1))
    if kind == "bursts":
        at = np.arange(n)
        bad = (at >= 500) & ((at - 500) % 1000 < 300)
        X[bad] = 10.0 * rng.standard_normal((int(bad.sum()), D))
    elif kind == "a sensor spikes":
        X[bad, 7] += 20.0 * along[bad, 0]
    elif kind == "dropouts":
        X += 0.3
        X[bad] = 0.0
    else:
        X[bad] = float(kind.rsplit(maxsplit=1)[-1]) * along[bad] * u
    return X, bad


@pytest.mark.parametrize("kind", ["5 % of size 100", "10 % of size 100", "5 % of size 20", "a sensor spikes", "dropouts", "bursts"])
def test_gross_rows_stay_outside_for_60000_rows(kind: str) -> None:
    X, bad = gross(kind, 60_000, 41)
    model, done = OnlinePCA(5, robust=True), 0
    for upto in (5000, 20_000, 60_000):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.partial_fit(X[done:upto])
        done = upto
        error = subspace_error(model.components_.T, leading(X[:upto][~bad[:upto]], 5))
        assert error <= 0.1, f"error {error:.3f} after {upto} rows"


def test_a_third_of_the_rows_along_one_direction_from_the_first() -> None:
    rng = np.random.default_rng(42)
    X = spiked(5000, 200, 5, 1.0, 0.1, 42) - 3.0
    bad, u = rng.random(5000) < 0.3, rng.standard_normal(200)
    X[bad] = 100.0 * rng.standard_normal((int(bad.sum()), 1)) * u / np.linalg.norm(u)
    with pytest.warns(UserWarning, match="robust=True"):
        model = OnlinePCA(5, robust=True).fit(X)
    assert subspace_error(model.components_.T, leading(X[~bad], 5)) <= 0.2
