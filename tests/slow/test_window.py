"""A window against PCA of the last n rows: ``pytest -s tests/slow/test_window.py`` prints the table."""

from __future__ import annotations

import numpy as np
import pytest

from online_psp import OnlinePCA
from online_psp.datasets import load
from online_psp.engine.types import Array, Floats
from online_psp.metrics import subspace_error
from online_psp.pca.window import PIECES
from tests.unit.pca.test_uncertainty import spiked

READINGS = 37  # which fall into all parts of a piece


def directions(X: Floats, K: int) -> Floats:
    return np.linalg.eigh(np.cov(X.T))[1][:, ::-1][:, :K]


def errors(X: Array, switch: int, K: int, n: int) -> tuple[Floats, Floats, int]:
    """Errors while nothing changes, and from n rows after the switch on; and the most models held."""
    model, most = OnlinePCA(K, window=n), 0
    found: list[float] = []
    steady, later = np.linspace(n, switch, READINGS).astype(int), np.linspace(switch + n, len(X), READINGS).astype(int)
    for start, stop in zip([0, *steady, *later], [*steady, *later, len(X)], strict=True):
        if len(found) == 2 * READINGS:
            break
        model.partial_fit(X[start:stop])
        found.append(subspace_error(model.components_.T, directions(X[stop - n : stop], K)))
        window = model._state.model.window
        most = max(most, 1 if window is None else 1 + len(window.old) + len(window.new) + len(window.total))
    return np.array(found[:READINGS]), np.array(found[READINGS:]), most


def check(name: str, X: Array, switch: int, K: int, n: int, steady_most: float = 0.02, later_most: float = 0.03) -> None:
    steady, later, most = errors(X, switch, K, n)
    of = f"{steady.mean():.4f} (most {steady.max():.4f}), after the switch {later.mean():.4f} (most {later.max():.4f})"
    print(f"{name}, window={n}: steady {of}; {most} models")
    assert steady.mean() <= steady_most
    assert later.max() <= later_most
    assert most <= PIECES + 2


@pytest.mark.parametrize(
    ("D", "K", "n", "rho", "least"),
    [(400, 8, 4000, 0.01, 0), (40, 8, 4000, 0.1, 0), (1000, 16, 10000, 0.01, 0), (400, 8, 4000, 0.1, 0.015)],
)
def test_spiked(D: int, K: int, n: int, rho: float, least: float) -> None:
    """The last is so noisy that a model which forgets nothing is at 0.026 from batch PCA."""
    X = np.concatenate([spiked(D, K, 2 * n, rho, seed)[0] for seed in (0, 1)])
    check(f"spiked D={D} K={K} rho={rho}", X, 2 * n, K, n, 0.02 + least, 0.03 + least)


@pytest.mark.usefixtures("data_home")
@pytest.mark.parametrize("n", [4000, 8000])
def test_images(n: int) -> None:
    X = load("mnist").X[np.random.default_rng(3).permutation(60000)[: 4 * n]].astype(np.float64)
    X[2 * n :] = X[2 * n :].reshape(-1, 28, 28).transpose(0, 2, 1).reshape(-1, 784)
    check("MNIST, then its pictures turned", X, 2 * n, 16, n)
