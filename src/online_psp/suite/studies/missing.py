"""Missing values and gross rows: OnlinePCA beside mean filling, batch methods, GROUSE and PETRELS."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from online_psp.engine.types import Array, Floats
from online_psp.pca import OnlinePCA
from online_psp.suite import pictures
from online_psp.suite.data import Data, Track, find, images, problem
from online_psp.suite.evaluation import trials
from online_psp.suite.methods import MEMORY, PEER, Method
from online_psp.suite.studies import measured
from online_psp.suite.tables import Table, across

HERE = __name__
HOLES = (*(Track("missing", share) for share in (0.1, 0.3, 0.5, 0.8)), Track("missing-stretch", 1 / 3))
GROSS = (*(Track(f"outliers{how}", 0.05) for how in ("", "-clump", "-along")), Track("outliers-first", 0.01))
_ONLINE = "online_psp.pca:OnlinePCA"
IMPUTES, ROBUST = Method("OnlinePCA, impute", _ONLINE, (("missing", "impute"),)), Method("OnlinePCA, robust", _ONLINE, (("robust", True),))
_FILLED = (
    Method("mean, PCA", "batch:covariance_eigh", kind=MEMORY),
    Method("mean, IncrementalPCA", "sklearn.decomposition:IncrementalPCA", kind=PEER, batch="5D"),
    Method("pairs", f"{HERE}:Pairs", kind=MEMORY),
)
_RIVALS = (
    Method("GROUSE", "rival:grouse", kind=PEER),
    Method("GROUSE, constant step", "rival:grouse", (("least", 0.1),), PEER),
    Method("PETRELS", "rival:petrels", kind=PEER),
    Method("PETRELS, λ = 0.98", "rival:petrels", (("forgetting", 0.98),), PEER),
)
_PLAIN = (Method("OnlinePCA", _ONLINE), Method("spherical", f"{HERE}:Spherical", kind=MEMORY))


def tables(out: Path, quick: bool = False) -> Iterator[Table]:
    """Errors and times, then means, variances and filled values; and the picture of docs/missing.md."""
    n = 1500 if quick else 10_000
    sets = [(find(f"spiked:N={n},D=200,K=8"), 8), (find(images(1)[0], most=n), 16)]
    records = []
    for data, K in sets:
        records += trials("missing", data, (IMPUTES, *_FILLED), K, HOLES) + trials("missing", data, (ROBUST, *_PLAIN), K, (None, *GROSS))
    for noise in (0.0, 1e-4, 1e-2):  # GROUSE's and PETRELS' own setting
        data = find(f"spiked:N=3000,D=100,K=3,rho={noise}")
        records += trials("missing", data, (IMPUTES, *_RIVALS), 3, HOLES[2:3], range(1 if quick else 5))
    for study in ("missing", "outliers"):
        mine = [
            record for record in records if (record.track is not None and record.track.kind.startswith("missing")) is (study == "missing")
        ]
        yield from across(measured(mine, out / f"{study}.csv"))
    yield beside_directions(sets)
    with pictures.style():
        figure = pictures.new_figure(9, 3.8)
        digits(figure)
    pictures.save(figure, out / "missing.png")


@dataclass
class Pairs:
    """The covariances of pairs of features, each from the rows in which both are observed: a D×D matrix."""

    K: int
    D: int
    handles_missing = True
    rows: list[Floats] = field(default_factory=list)

    def fit_block(self, X: Floats) -> None:
        self.rows.append(X)

    def get_components(self) -> Array:
        H = np.concatenate(self.rows)
        seen, apart = (~np.isnan(H)).astype(np.float64), np.nan_to_num(H - np.nanmean(H, axis=0))
        counts, sums = np.maximum(seen.T @ seen, 1.0), apart.T @ seen
        return np.asarray(np.linalg.eigh(apart.T @ apart / counts - sums * sums.T / counts**2)[1][:, ::-1][:, : self.K])


class Spherical(Pairs):
    """Spherical PCA: rows around their median, each at length one."""

    handles_missing = False

    def get_components(self) -> Array:
        X = np.concatenate(self.rows)
        apart = X - np.median(X, axis=0)
        apart /= np.maximum(np.linalg.norm(apart, axis=1, keepdims=True), np.finfo(np.float64).tiny)
        return np.asarray(np.linalg.eigh(apart.T @ apart)[1][:, ::-1][:, : self.K])


def beside_directions(sets: Sequence[tuple[Data, int]]) -> Table:
    """Variances and noise against those of PCA of the complete or clean rows, and filled values against the mean."""
    lines = []
    for data, K in sets:
        X = np.concatenate(list(problem(data, K, 0).blocks(0, data.used)))
        for track in (*HOLES, *GROSS):
            H = np.concatenate(list(problem(data, K, 0, track).blocks(0, data.used)))
            missing, clean = np.isnan(H), np.isnan(H).any(axis=1) | (H == X).all(axis=1)
            model = OnlinePCA(K, **dict((IMPUTES if missing.any() else ROBUST).options)).fit(H)
            values = np.linalg.eigvalsh(np.cov(X[clean].T))[::-1]
            apart, noise = np.abs(model.explained_variance_ / values[:K] - 1.0).max(), model.noise_variance_ / values[K:].mean() - 1.0
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                told = f"{_rms((model.impute(H) - X)[missing]) / _rms(X[missing]):.3f}" if missing.any() else "–"
            lines.append((data.source, track.name, f"{100 * apart:.1f} %", f"{100 * noise:+.1f} %", told))
    header = ("data", "rows", "variances within", "noise variance", "RMSE of filled values / of the mean")
    return Table("What OnlinePCA learns beside directions", header, tuple(lines))


def _rms(values: Floats) -> float:
    return float(np.sqrt(np.mean(values**2)))


def digits(figure: Any, shown: int = 10) -> float:
    """Draw digits that the model has not seen: with half of their pixels missing, filled, filled with the mean, and whole.

    Returns the root mean square error of filled pixels, as a share of that of the mean.
    """
    from matplotlib import colormaps
    from sklearn.datasets import load_digits

    X, labels = load_digits(return_X_y=True)
    H = np.where(np.random.default_rng(0).random(X.shape) < 0.5, np.nan, X)
    model = OnlinePCA(20, missing="impute")
    for start in range(0, 1500, 100):  # a stream in which half of every picture is missing
        model.partial_fit(H[start : start + 100])
    at = [1500 + int(np.argmax(labels[1500:] == digit)) for digit in range(shown)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pixels at the edge are not predicted by the others, and that is said
        filled = model.impute(H)
    mean = np.where(np.isnan(H), model.mean_, H)
    lines = {"half missing": H[at], "filled": filled[at], "with the mean": mean[at], "the picture": X[at]}
    shades = colormaps["gray"].with_extremes(bad="#D55E00")
    for panels, (name, some) in zip(figure.subplots(4, shown), lines.items(), strict=True):
        for panel, image in zip(panels, some, strict=True):
            panel.imshow(np.ma.masked_invalid(image.reshape(8, 8)), cmap=shades, vmin=0, vmax=16)
            panel.set(xticks=[], yticks=[])
        panels[0].set_ylabel(name, rotation=0, ha="right", va="center")
    return _rms((filled - X)[1500:]) / _rms((mean - X)[1500:])
