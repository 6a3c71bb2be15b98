"""Rows with holes and gross rows: what is learned of them, beside what people do and what others publish.

``ONLINE_PSP_MISSING_ROWS`` sets the number of rows of each data set (10000). MNIST is left out where it cannot be found.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA, IncrementalPCA
from threadpoolctl import threadpool_limits

from benchmarks import gross
from online_psp import OnlinePCA
from online_psp.datasets import load
from online_psp.datasets.spiked import spiked_covariance
from online_psp.engine.types import Array, Floats
from online_psp.metrics import subspace_error
from online_psp.suite.rivals import RIVALS, RivalModel

SHARES = (0.1, 0.3, 0.5, 0.8)


class Problem(NamedTuple):
    name: str
    X: Floats
    K: int


def problems() -> Iterator[Problem]:
    """Spiked data of 200 features, and MNIST."""
    n = int(os.environ.get("ONLINE_PSP_MISSING_ROWS", "10000"))
    yield Problem("spiked", spiked_covariance(n, 200, 8, 0.01, seed=11).X, 8)
    try:
        yield Problem("MNIST", np.asarray(load("mnist").X[:n], dtype=np.float64), 16)
    except FileNotFoundError as error:
        print(f"MNIST is left out: {error}")


def holed(X: Floats, share: float | None) -> Floats:
    """Rows of which a share of the values is missing at random, or, without one, a third of the columns in the middle half of the rows."""
    n, D = X.shape
    H = X.copy()
    if share is None:
        H[n // 4 : 3 * n // 4, : D // 3] = np.nan
    else:
        H[np.random.default_rng(5).random(X.shape) < share] = np.nan
    return H


def batch(X: Floats, K: int) -> PCA:
    return PCA(K, svd_solver="covariance_eigh").fit(X)


def mean_filled(H: Floats) -> Floats:
    return np.where(np.isnan(H), np.nanmean(H, axis=0), H)


def pairwise(H: Floats, K: int) -> Array:
    """Leading directions, (D, K), of the covariances of pairs, each from the rows in which both are observed."""
    seen = (~np.isnan(H)).astype(np.float64)
    apart = np.nan_to_num(H - np.nanmean(H, axis=0))
    counts = np.maximum(seen.T @ seen, 1.0)
    sums = apart.T @ seen
    return np.asarray(np.linalg.eigh(apart.T @ apart / counts - sums * sums.T / counts**2)[1][:, ::-1][:, :K])


def root_mean_square(values: Floats) -> float:
    return float(np.sqrt(np.mean(values**2)))


# Holes


def holes() -> None:
    print("\nHoles: subspace error against PCA of the complete rows, one pass")
    print(
        f"{'':18}{'OnlinePCA':>11}{'mean, PCA':>11}{'mean, Incr.':>12}{'pairwise':>10}   {'RMSE':>6} {'variances':>10} {'noise':>8}   "
        "(RMSE of filled values over that of the mean; variances, at most, and noise variance against PCA of the complete rows)"
    )
    for name, X, K in problems():
        truth = batch(X, K)
        for share in (*SHARES, None):
            H = holed(X, share)
            filled, missing = mean_filled(H), np.isnan(H)
            model = OnlinePCA(K, missing="impute").fit(H)
            bases = [
                model.components_.T,
                batch(filled, K).components_.T,
                IncrementalPCA(K).fit(filled).components_.T,
                pairwise(H, K),
            ]
            errors = [subspace_error(basis, truth.components_.T) for basis in bases]
            ratio = root_mean_square((model.impute(H) - X)[missing]) / root_mean_square((filled - X)[missing])
            apart = np.abs(model.explained_variance_ / truth.explained_variance_ - 1.0).max()
            noise = model.noise_variance_ / truth.noise_variance_ - 1.0
            what = "a stretch" if share is None else f"{100 * share:.0f} %"
            print(
                f"{name + ', ' + what:18}{errors[0]:11.4f}{errors[1]:11.4f}{errors[2]:12.4f}{errors[3]:10.4f}   "
                f"{ratio:6.3f} {100 * apart:8.1f} % {100 * noise:+6.1f} %",
                flush=True,
            )


def linear_bound() -> None:
    """How well missing values can be told at all: by the best linear rule, and by as many directions as the model keeps.

    The rule is the conditional mean of a Gaussian with the covariance of these very rows, complete: nothing linear has less error on them.
    """
    for name, X, K in problems():
        (n, D), mean, rng = X.shape, X.mean(axis=0), np.random.default_rng(0)
        C = np.cov(X.T, bias=True)
        values, vectors = (each[..., ::-1] for each in np.linalg.eigh(C))
        kept = min(2 * K + 32, D)
        noise = float(values[kept:].sum()) / max(D - kept, 1)
        few = (vectors[:, :kept] * (values[:kept] - noise)) @ vectors[:, :kept].T + noise * np.eye(D)
        for share in (*SHARES, None):
            holes = np.isnan(holed(X, share))
            rows = rng.choice(np.flatnonzero(holes.any(axis=1)), min(200, n // 4), replace=False)
            apart = X[rows] - mean
            wrong = [_conditional(matrix, apart, holes[rows]) for matrix in (C + 1e-9 * np.trace(C) / D * np.eye(D), few)]
            of_mean = root_mean_square(apart[holes[rows]])
            best, by_few = (root_mean_square(each) / of_mean for each in wrong)
            what = "a stretch" if share is None else f"{100 * share:.0f} %"
            print(
                f"  {name}, {what}: RMSE of the best linear rule {best:.3f}; "
                f"of the {kept} leading directions of the complete rows {by_few:.3f}"
            )


def _conditional(covariance: Floats, apart: Floats, holes: NDArray[np.bool_]) -> Floats:
    """Errors of the conditional means of what is missing of centred rows, (number of values missing,)."""
    found = []
    for row, hole in zip(apart, holes, strict=True):
        rule = np.linalg.solve(covariance[np.ix_(~hole, ~hole)], row[~hole])
        found.append(covariance[np.ix_(hole, ~hole)] @ rule - row[hole])
    return np.concatenate(found)


def published() -> None:
    """Beside GROUSE and PETRELS on their own setting."""
    D, K, n, seeds = 100, 3, 3000, 5
    print(f"\nGROUSE and PETRELS: d={D}, k={K}, half of the values observed; error to the true subspace, median of {seeds} seeds")
    print(f"{'noise deviation':18}{'rows':>6}{'OnlinePCA':>12}{'GROUSE':>12}{'constant':>12}{'PETRELS':>12}{'λ = 0.98':>12}")
    for noise in (0.0, 0.01, 0.1):
        found = []
        for seed in range(seeds):
            rng = np.random.default_rng(seed)
            U = np.linalg.qr(rng.standard_normal((D, K)))[0]
            X = rng.standard_normal((n, K)) @ U.T + noise * rng.standard_normal((n, D))
            H = np.where(rng.random(X.shape) < 0.5, np.nan, X)
            models = [
                RivalModel(RIVALS["grouse"], K),
                RivalModel(RIVALS["grouse"], K, least=0.1),
                RivalModel(RIVALS["petrels"], K),
                RivalModel(RIVALS["petrels"], K, forgetting=0.98),
            ]
            own, errors, done = OnlinePCA(K, missing="impute", center=False), [], 0
            for stop in (300, 1000, n):
                bases = [own.partial_fit(H[done:stop]).components_.T]
                for model in models:
                    model.fit_block(H[done:stop])
                    bases.append(model.get_components())
                errors.append([subspace_error(basis, U) for basis in bases])
                done = stop
            found.append(errors)
        for stop, values in zip((300, 1000, n), np.median(found, axis=0), strict=True):
            print(f"{noise:<18g}{stop:6d}" + "".join(f"{value:12.2g}" for value in values), flush=True)


def times() -> None:
    print("\nProcessor time a row, µs: complete rows, then with holes, best of three in turn")
    for name, X, K in problems():
        rows_of = partial(holed, X[:4000])
        patterns = {"complete": X[:4000], "10 %": rows_of(0.1), "50 %": rows_of(0.5), "80 %": rows_of(0.8), "a stretch": rows_of(None)}
        best = dict.fromkeys(patterns, np.inf)
        for _ in range(3):
            for what, rows in patterns.items():
                began = time.process_time()
                _ = OnlinePCA(K, missing="impute").fit(rows).components_
                best[what] = min(best[what], 1e6 * (time.process_time() - began) / len(rows))
        print(f"{name:10}" + "".join(f"  {what} {value:.0f}" for what, value in best.items()), flush=True)


def main() -> None:
    print("\nmissing")
    with threadpool_limits(1):
        holes()
        linear_bound()
        published()
        times()
        gross.main(problems())
