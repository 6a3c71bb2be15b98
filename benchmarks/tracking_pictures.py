"""The pictures of docs/tracking.md: ``python -m benchmarks.tracking_pictures [FOLDER]``; docs/img by default."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.changing import basis, rotating, steady
from online_psp import OnlinePCA
from online_psp.engine.types import Floats
from online_psp.metrics import subspace_error
from online_psp.monitoring import Monitor

_DEVIATIONS = np.array([6.0, 5.0, 4.0, 3.5, 3.0])
_HALF_LIVES: tuple[float | None, ...] = (None, 2000.0, 500.0, 100.0)
_D, _EVERY = 80, 100


def _errors(X: Floats, truth: Floats) -> dict[str, list[float]]:
    """Error against the subspaces that rows come from, (n, K, D), every so many rows, for each half-life."""
    found = {}
    for half_life in _HALF_LIVES:
        model, errors = OnlinePCA(5, half_life=half_life), []
        for at in range(0, len(X), _EVERY):
            model.partial_fit(X[at : at + _EVERY])
            errors.append(subspace_error(model.components_.T, truth[min(at + _EVERY, len(X)) - 1].T))
        found["forgets nothing" if half_life is None else f"half-life {half_life:g}"] = errors
    return found


def _draw_errors(axes: Any, found: dict[str, list[float]], title: str) -> None:
    for name, errors in found.items():
        axes.plot(_EVERY * np.arange(1, len(errors) + 1), errors, label=name)
    axes.set(xlabel="row", ylabel="subspace error", title=title, ylim=(0, None))
    axes.legend(frameon=False)


def rotation(axes: Any) -> None:
    """A subspace that turns, by a right angle in 10,000 rows."""
    n, turn = 10_000, np.pi / 2
    X = rotating(np.random.default_rng(0), n, _D, _DEVIATIONS, turn)
    both = basis(np.random.default_rng(0), _D, 10)  # as `rotating` draws them
    angles = np.linspace(0.0, turn, n)[:, np.newaxis, np.newaxis]
    _draw_errors(axes, _errors(X, np.cos(angles) * both[:5] + np.sin(angles) * both[5:]), "a rotation")


def switch(axes: Any) -> None:
    """A subspace that is another one from row 5,000 on, and a monitor that starts anew."""
    rng = np.random.default_rng(1)
    old, new = basis(rng, _D, 5), basis(rng, _D, 5)
    X = np.vstack([steady(rng, 5000, old, _DEVIATIONS), steady(rng, 5000, new, _DEVIATIONS)])
    truth = np.concatenate([np.broadcast_to(old, (5000, 5, _D)), np.broadcast_to(new, (5000, 5, _D))])
    found = _errors(X, truth)
    monitor, errors = Monitor(OnlinePCA(5), on_drift="reset"), []
    for at in range(0, len(X), _EVERY):
        monitor.update(X[at : at + _EVERY])
        errors.append(subspace_error(monitor.model.components_.T, truth[at].T))
    found['forgets nothing, on_drift="reset"'] = errors
    _draw_errors(axes, found, "a switch")


def alarm(top: Any, bottom: Any) -> None:
    """Scores, limits and alarms: single outliers, a shifted mean, a new basis."""
    rng = np.random.default_rng(2)
    old, new = basis(rng, _D, 5), basis(rng, _D, 5)
    shift = 0.5 * rng.choice([-1.0, 1.0], _D)
    X = np.vstack(
        [
            steady(rng, 1500, old, _DEVIATIONS),
            steady(rng, 1000, old, _DEVIATIONS) + shift,
            steady(rng, 1000, new, _DEVIATIONS) + shift,
        ]
    )
    X[[600, 900]] += 2.5 * rng.standard_normal((2, _D))
    monitor = Monitor(OnlinePCA(5), on_drift="reset")
    found = monitor.update(X)
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


def main(folder: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in (("rotation", rotation), ("switch", switch)):
        figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
        draw(axes)
        figure.savefig(folder / f"tracking_{name}.png", dpi=110)
        plt.close(figure)
    figure, (top, bottom) = plt.subplots(2, figsize=(7, 4.4), sharex=True, layout="constrained")
    alarm(top, bottom)
    figure.savefig(folder / "tracking_alarm.png", dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/img"))
