"""Gross rows, for the benchmark of missing values: the robust model beside the plain one and beside batch methods."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from online_psp import OnlinePCA
from online_psp.datasets.spiked import spiked_covariance
from online_psp.engine.types import Array, Floats
from online_psp.metrics import subspace_error

KINDS = {
    "scattered": "5 % of the rows, scattered",
    "clump": "5 % of the rows, in one clump",
    "first": "the first 100 rows",
    "direction": "5 % along one direction outside",
}


def spoiled(X: Floats, kind: str, seed: int = 1) -> tuple[Floats, NDArray[np.bool_]]:
    """Rows some of which are gross, 20 times the spread, and which of them are."""
    rng, (n, D), X = np.random.default_rng(seed), X.shape, X.copy()
    wrong = np.zeros(n, dtype=bool)
    if kind == "clump":
        wrong[n // 2 : n // 2 + n // 20] = True
    elif kind == "first":
        wrong[:100] = True
    else:
        wrong[rng.choice(n, n // 20, replace=False)] = True
    several, mean, variance = int(wrong.sum()), X.mean(axis=0), X.var(axis=0)
    if kind == "direction":
        way = rng.standard_normal(D)
        X[wrong] = mean + 20.0 * np.sqrt(variance.sum()) * np.outer(rng.standard_normal(several), way / np.linalg.norm(way))
    else:
        X[wrong] = mean + 20.0 * np.sqrt(variance.mean()) * rng.standard_normal((several, D))
    return X, wrong


def spherical(X: Floats, K: int) -> Array:
    """Spherical PCA: rows around their median, each at length one; (D, K)."""
    apart = X - np.median(X, axis=0)
    apart /= np.maximum(np.linalg.norm(apart, axis=1, keepdims=True), np.finfo(np.float64).tiny)
    return np.asarray(np.linalg.eigh(apart.T @ apart)[1][:, ::-1][:, :K])


def rows_until_followed(robust: bool, seed: int) -> int:
    """Rows of a new regime, three times as large, until the error is below 0.1; half-life 500."""
    before, after = spiked_covariance(3000, 200, 5, 0.01, seed=seed).X, 3.0 * spiked_covariance(4000, 200, 5, 0.01, seed=seed + 1).X
    truth = PCA(5).fit(after).components_.T
    model: Any = OnlinePCA(5, robust=robust, half_life=500).fit(before)
    warnings.filterwarnings("ignore", "robust=True has taken")
    for done in range(0, len(after), 25):
        model.partial_fit(after[done : done + 25])
        if subspace_error(model.components_.T, truth) < 0.1:
            return done + 25
    return len(after)


def main(problems: Iterable[tuple[str, Floats, int]]) -> None:
    print("\nGross rows, 20 times the spread: subspace error against PCA of the clean rows")
    print(f"{'':44}{'robust':>9}{'plain':>9}{'spherical':>11}{'variances':>11}   mean influence of clean and gross rows")
    for name, X, K in problems:
        for kind, what in KINDS.items():
            G, wrong = spoiled(X, kind)
            truth = PCA(K, svd_solver="covariance_eigh").fit(X[~wrong])
            model, plain = OnlinePCA(K, robust=True).fit(G), OnlinePCA(K).fit(G)
            bases = (model.components_.T, plain.components_.T, spherical(G, K))
            errors = [subspace_error(basis, truth.components_.T) for basis in bases]
            apart, influence = np.abs(model.explained_variance_ / truth.explained_variance_ - 1.0).max(), model.sample_influence(G)
            print(
                f"{name + ', ' + what:44}{errors[0]:9.4f}{errors[1]:9.4f}{errors[2]:11.4f}{100 * apart:9.1f} %   "
                f"{influence[~wrong].mean():.3f} {influence[wrong].mean():.3f}",
                flush=True,
            )
        truth = PCA(K, svd_solver="covariance_eigh").fit(X)
        bases = (OnlinePCA(K, robust=True).fit(X).components_.T, OnlinePCA(K).fit(X).components_.T, spherical(X, K))
        errors = [subspace_error(basis, truth.components_.T) for basis in bases]
        print(f"{name + ', clean rows':44}{errors[0]:9.4f}{errors[1]:9.4f}{errors[2]:11.4f}", flush=True)
    print("\nA new regime, half-life 500: rows until the error is below 0.1, robust and plain")
    print("  " + ";  ".join(f"{rows_until_followed(True, seed)} and {rows_until_followed(False, seed)}" for seed in (10, 20, 30)))
