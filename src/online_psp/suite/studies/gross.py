"""Gross rows: the robust model beside the plain one and beside batch methods."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from online_psp.datasets.spiked import spiked_covariance
from online_psp.engine.types import Array, Floats
from online_psp.metrics import subspace_error
from online_psp.pca import OnlinePCA
from online_psp.suite.studies.holes import batch, sets
from online_psp.suite.tables import Table

_KINDS = {
    "scattered": "5 %, scattered",
    "clump": "5 %, in one clump",
    "first": "the first 100",
    "direction": "5 %, along one direction outside",
    "none": "none",
}


def tables(out: Path, quick: bool = False) -> Iterator[Table]:
    """Errors, and how soon a new regime is believed."""
    lines = []
    for name, X, K in sets(quick):
        for kind, what in _KINDS.items():
            G, wrong = spoiled(X, kind)
            truth = batch(X[~wrong], K)
            model = OnlinePCA(K, robust=True).fit(G)
            bases = (model.components_.T, OnlinePCA(K).fit(G).components_.T, spherical(G, K))
            cells = [f"{subspace_error(basis, truth.components_.T):.4f}" for basis in bases]
            apart, influence = np.abs(model.explained_variance_ / truth.explained_variance_ - 1.0).max(), model.sample_influence(G)
            told = f"{influence[wrong].mean():.3f}" if wrong.any() else "–"
            lines.append((name, what, *cells, f"{100 * apart:.1f} %", f"{influence[~wrong].mean():.3f}", told))
    header = ("data", "gross rows", "robust", "plain", "spherical", "variances within", "influence of clean rows", "of gross rows")
    yield Table("Gross rows, 20 times the spread: error to PCA of the clean rows", header, tuple(lines))
    regimes = [(f"{rows_until_followed(True, seed)}", f"{rows_until_followed(False, seed)}") for seed in ((10,) if quick else (10, 20, 30))]
    yield Table("A new regime, half-life 500: rows until the error is below 0.1", ("robust", "plain"), tuple(regimes))


def spoiled(X: Floats, kind: str, seed: int = 1) -> tuple[Floats, NDArray[np.bool_]]:
    """Rows some of which are gross, 20 times the spread, and which of them are."""
    rng, (n, D), X = np.random.default_rng(seed), X.shape, X.copy()
    wrong = np.zeros(n, dtype=bool)
    if kind == "clump":
        wrong[n // 2 : n // 2 + n // 20] = True
    elif kind == "first":
        wrong[:100] = True
    elif kind != "none":
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
    truth = batch(after, 5).components_.T
    model: Any = OnlinePCA(5, robust=robust, half_life=500).fit(before)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for done in range(0, len(after), 25):
            model.partial_fit(after[done : done + 25])
            if subspace_error(model.components_.T, truth) < 0.1:
                return done + 25
    return len(after)
