"""Rows with missing values: what is learned of them, beside what people do and what others publish."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA, IncrementalPCA

from online_psp.datasets.spiked import spiked_covariance
from online_psp.engine.types import Array, Floats
from online_psp.metrics import subspace_error
from online_psp.pca import OnlinePCA
from online_psp.suite import pictures
from online_psp.suite.data import images
from online_psp.suite.measure import in_turn
from online_psp.suite.methods import Method, build
from online_psp.suite.tables import Table, number

_SHARES = (0.1, 0.3, 0.5, 0.8, None)


class Rows(NamedTuple):
    """A set to spoil."""

    name: str
    X: Floats
    K: int


def sets(quick: bool) -> Iterator[Rows]:
    """Spiked rows of 200 features, and images."""
    n = 1500 if quick else 10_000
    yield Rows("spiked", spiked_covariance(n, 200, 8, 0.01, seed=11).X, 8)
    yield Rows(*images(n), 16)


def tables(out: Path, quick: bool = False) -> Iterator[Table]:
    """All of them, and the picture of docs/missing.md."""
    several = list(sets(quick))
    yield errors(several)
    yield published(1 if quick else 5)
    yield times(several)
    pictures.save(digits(), out / "missing.png")


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
    """PCA of all rows."""
    return PCA(K, svd_solver="covariance_eigh").fit(X)


def pairwise(H: Floats, K: int) -> Array:
    """Leading directions, (D, K), of the covariances of pairs, each from the rows in which both are observed."""
    seen = (~np.isnan(H)).astype(np.float64)
    apart = np.nan_to_num(H - np.nanmean(H, axis=0))
    counts = np.maximum(seen.T @ seen, 1.0)
    sums = apart.T @ seen
    return np.asarray(np.linalg.eigh(apart.T @ apart / counts - sums * sums.T / counts**2)[1][:, ::-1][:, :K])


def _rms(values: Floats) -> float:
    return float(np.sqrt(np.mean(values**2)))


def _what(share: float | None) -> str:
    return "a stretch" if share is None else f"{100 * share:.0f} %"


def errors(several: list[Rows]) -> Table:
    """Subspace error against PCA of the complete rows, one pass; filled values, variances and noise."""
    lines = []
    for name, X, K in several:
        truth = batch(X, K)
        for share in _SHARES:
            H = holed(X, share)
            filled, missing = np.where(np.isnan(H), np.nanmean(H, axis=0), H), np.isnan(H)
            model = OnlinePCA(K, missing="impute").fit(H)
            found = (model.components_.T, batch(filled, K).components_.T, IncrementalPCA(K).fit(filled).components_.T, pairwise(H, K))
            cells = [f"{subspace_error(each, truth.components_.T):.4f}" for each in found]
            ratio = _rms((model.impute(H) - X)[missing]) / _rms((filled - X)[missing])
            apart = np.abs(model.explained_variance_ / truth.explained_variance_ - 1.0).max()
            noise = model.noise_variance_ / truth.noise_variance_ - 1.0
            lines.append((name, _what(share), *cells, f"{ratio:.3f}", f"{100 * apart:.1f} %", f"{100 * noise:+.1f} %"))
    header = ("data", "missing", "OnlinePCA", "mean, PCA", "mean, IncrementalPCA", "pairs", "RMSE of filled values / of the mean")
    return Table("Missing values: error to PCA of the complete rows", (*header, "variances within", "noise variance"), tuple(lines))


def published(seeds: int) -> Table:
    """Beside GROUSE and PETRELS on their own setting."""
    D, K, n = 100, 3, 3000
    methods = (
        Method("OnlinePCA", "online_psp.pca:OnlinePCA", (("missing", "impute"), ("center", False))),
        Method("GROUSE", "rival:grouse"),
        Method("GROUSE, constant step", "rival:grouse", (("least", 0.1),)),
        Method("PETRELS", "rival:petrels"),
        Method("PETRELS, λ = 0.98", "rival:petrels", (("forgetting", 0.98),)),
    )
    lines = []
    for noise in (0.0, 0.01, 0.1):
        found = []
        for seed in range(seeds):
            rng = np.random.default_rng(seed)
            U = np.linalg.qr(rng.standard_normal((D, K)))[0]
            X = rng.standard_normal((n, K)) @ U.T + noise * rng.standard_normal((n, D))
            H, learners = np.where(rng.random(X.shape) < 0.5, np.nan, X), [build(method, K, D) for method in methods]
            for learner in learners:
                learner.feed(H)
            found.append([subspace_error(learner.basis(), U) for learner in learners])
        lines.append((f"{noise:g}", *map(number, np.median(found, axis=0))))
    title = f"GROUSE's and PETRELS' own setting: d={D}, k={K}, half of the values, error to the true subspace after {n:,} rows"
    return Table(title, ("deviation of the noise", *(method.label for method in methods)), tuple(lines))


def times(several: list[Rows]) -> Table:
    """Processor time a row, the best of three in turn."""

    def learn(K: int, rows: Floats) -> None:
        _ = OnlinePCA(K, missing="impute").fit(rows).components_

    lines, shares = [], (0.1, 0.5, 0.8, None)
    for name, X, K in several:
        patterns = {"complete": X[:4000], **{_what(share): holed(X[:4000], share) for share in shares}}
        found = in_turn({what: partial(learn, K, rows) for what, rows in patterns.items()}, 3)
        lines.append((name, *(f"{1e6 * min(seconds) / len(patterns['complete']):.0f}" for seconds in found.values())))
    return Table("Processor time, µs a row", ("data", "complete", *map(_what, shares)), tuple(lines))


def digits() -> Any:
    """Ten digits that the model has not seen: with half of their pixels missing, filled, filled with the mean, and whole."""
    from matplotlib import colormaps

    X, labels = load_digits(return_X_y=True)
    H = np.where(np.random.default_rng(0).random(X.shape) < 0.5, np.nan, X)
    model = OnlinePCA(20, missing="impute")
    for start in range(0, 1500, 100):  # a stream in which half of every picture is missing
        model.partial_fit(H[start : start + 100])
    at = [1500 + int(np.argmax(labels[1500:] == digit)) for digit in range(10)]
    lines = {
        "half missing": H[at],
        "filled": model.impute(H[at]),
        "with the mean": np.where(np.isnan(H[at]), model.mean_, H[at]),
        "the picture": X[at],
    }
    with pictures.style():
        figure = pictures.new_figure(9, 3.8)
        shades = colormaps["gray"].copy()
        shades.set_bad("#D55E00")
        for panels, (name, images) in zip(figure.subplots(4, 10), lines.items(), strict=True):
            for panel, image in zip(panels, images, strict=True):
                panel.imshow(np.ma.masked_invalid(image.reshape(8, 8)), cmap=shades, vmin=0, vmax=16)
                panel.set(xticks=[], yticks=[])
            panels[0].set_ylabel(name, rotation=0, ha="right", va="center")
    return figure
