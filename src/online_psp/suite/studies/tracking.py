"""Streams that change: how well methods of several memories follow them, stable axes, and what a monitor shows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from online_psp.engine.types import Array, Floats
from online_psp.monitoring import Alarm, Monitor
from online_psp.pca import OnlinePCA
from online_psp.suite import pictures
from online_psp.suite.data import TRACKS, find
from online_psp.suite.evaluation import trials
from online_psp.suite.methods import ONLINE_PCA, PEER, Method
from online_psp.suite.rows import select, version
from online_psp.suite.studies import measured
from online_psp.suite.tables import Table, across

_HALF_LIFE = 500.0


def _constant_step(t: int) -> float:
    return 1.0 - float(2.0 ** (-1.0 / _HALF_LIFE))


_MEMORIES = (
    ONLINE_PCA,
    *(Method(f"half-life {half:g}", ONLINE_PCA.algorithm, (("half_life", half),)) for half in (2000.0, _HALF_LIFE, 100.0)),
    Method('Monitor(on_drift="reset")', f"{__name__}:Resets"),
)
_OTHERS = (
    Method("D×D weighted covariance", f"{__name__}:WeightedCovariance", kind=PEER),
    Method("proSVD, decay for half-life 500", "peer:prosvd", (("block", 50), ("half_life", _HALF_LIFE)), PEER),
    Method("CCIPCA, step for half-life 500", "ccipca", (("learning_rate", _constant_step),)),
    Method("IncrementalPCA", "sklearn.decomposition:IncrementalPCA", kind=PEER, batch="5K"),
)


def tables(out: Path, quick: bool = False) -> Iterator[Table]:
    """All of them, and the pictures of docs/tracking.md."""
    data = find(f"spiked:N={3000 if quick else 10_000},D=400,K=8,rho=0.03")
    others = [method for method in _OTHERS if method.algorithm != "peer:prosvd" or version("proSVD")]
    rows = measured(trials("tracking", data, [*_MEMORIES, *others], None, TRACKS["drift"], count=100), out / "tracking.csv")
    yield from across(rows)
    yield axes()
    for track, name in zip(TRACKS["drift"], ("rotation", "switch"), strict=True):
        shown = [row for row in select(rows, track=track.name) if row.label in {method.label for method in _MEMORIES}]
        pictures.save(pictures.evaluation(shown), out / f"tracking_{name}.png")
    with pictures.style():
        figure = pictures.new_figure(7, 4.4)
        alarm(figure)
    pictures.save(figure, out / "tracking_alarm.png")


@dataclass
class WeightedCovariance:
    """A D×D exponentially weighted covariance with an eigendecomposition at every read-out: what one can do without this package."""

    K: int
    D: int
    half_life: float = _HALF_LIFE
    sums: Any = 0.0

    def fit_block(self, X: Floats) -> None:
        decay = 2.0 ** (-1.0 / self.half_life)
        rows, weights = np.column_stack([np.ones(len(X)), X]), decay ** np.arange(len(X) - 1.0, -1.0, -1.0)
        self.sums = decay ** len(X) * self.sums + rows.T @ (rows * weights[:, np.newaxis])

    def get_components(self) -> Floats:
        mean = self.sums[0, 1:] / self.sums[0, 0]
        return np.asarray(np.linalg.eigh(self.sums[1:, 1:] / self.sums[0, 0] - np.outer(mean, mean))[1][:, ::-1][:, : self.K])


class Resets:
    """A monitor that starts its model anew when the stream has changed."""

    def __init__(self, K: int, D: int) -> None:
        self.monitor = Monitor(OnlinePCA(K), on_drift="reset")

    def fit_block(self, X: Floats) -> None:
        self.monitor.update(X)

    def get_components(self) -> Array:
        return np.asarray(self.monitor.model.components_.T)


def basis(rng: np.random.Generator, D: int, K: int) -> Floats:
    """K random orthonormal rows, (K, D)."""
    return np.asarray(np.linalg.qr(rng.standard_normal((D, K)))[0].T)


def axes() -> Table:
    """How far the coordinates of fixed points move where two equal variances swap all the time."""
    rng = np.random.default_rng(1000)
    directions, larger = basis(rng, 50, 2), 1.0 + 0.3 * np.sin(np.arange(6000) / 60.0)
    X = rng.standard_normal((6000, 2)) * np.stack([5.0 * larger, 5.0 / larger], axis=1) @ directions + rng.standard_normal((6000, 50))
    lines = []
    for kind in ("principal", "stable"):
        model, scores = OnlinePCA(2, half_life=400.0, axes=kind), []
        for at in range(0, len(X), 100):
            scores.append(model.partial_fit(X[at : at + 100]).transform(X[:100]))
        moves = [np.linalg.norm(new - old) / np.linalg.norm(old) for old, new in itertools.pairwise(scores)]
        lines.append((kind, f"{100 * np.median(moves):.1f} %", f"{100 * np.max(moves):.1f} %"))
    title = "Axes: move of the coordinates of fixed points within 100 rows, half-life 400, two variances that swap"
    return Table(title, ("axes", "median", "largest"), tuple(lines))


def alarm(figure: Any) -> list[Alarm]:
    """Draw scores, limits and alarms of a stream: gross rows at 600 and 900, another mean from 1,500 on, another basis from 2,500 on."""
    rng, deviations = np.random.default_rng(2), np.array([6.0, 5.0, 4.0, 3.5, 3.0])
    old, new = basis(rng, 80, 5), basis(rng, 80, 5)
    scores, X = rng.standard_normal((3500, 5)) * deviations, rng.standard_normal((3500, 80))
    X[:2500] += scores[:2500] @ old
    X[2500:] += scores[2500:] @ new
    X[1500:] += 0.5 * rng.choice([-1.0, 1.0], 80)
    X[[600, 900]] += 2.5 * rng.standard_normal((2, 80))
    monitor = Monitor(OnlinePCA(5), on_drift="reset")
    found = monitor.update(X)
    top, bottom = figure.subplots(2, sharex=True)
    for axes, score, limit, name in ((top, found.spe, found.spe_limit, "SPE"), (bottom, found.t2, found.t2_limit, "T²")):
        axes.semilogy(score, ".", markersize=1.5, color="0.6")
        axes.semilogy(np.flatnonzero(found.outlier), score[found.outlier], ".", markersize=3, color="C1", label="outlier")
        axes.semilogy(limit, color="C0", linewidth=1, label="limit at 1 %")
        for each in monitor.alarms:
            axes.axvline(each.row, color="C3", linewidth=1)
        axes.set(ylabel=name, xlim=(0, len(X)))
    for each in monitor.alarms:
        top.text(each.row, 1.02, each.kind, color="C3", ha="center", transform=top.get_xaxis_transform())
    bottom.set_xlabel("row")
    top.legend(frameon=False, loc="upper left", ncols=2)
    return list(monitor.alarms)
