"""The number of components found, over settings and seeds: ``pytest -s tests/slow/test_signals.py`` prints the tables."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from online_psp import OnlinePCA
from online_psp.datasets import load
from tests.unit.pca.test_signals import rows_with


@pytest.mark.parametrize("rule", ["auto", "filter"])
def test_right_in_19_of_20_seeds_at_twice_the_edge(rule: str) -> None:
    for (D, n, signals), times in itertools.product([(100, 400, 5), (100, 2000, 10), (900, 1000, 5), (900, 3000, 20)], [2.0, 1.2]):
        found = [OnlinePCA(rule, max_rank=64).fit(rows_with(signals, n, D, seed, times)).n_components_ for seed in range(20)]
        print(f"{rule} D={D} n={n} {signals} signals at {times} x the edge: {np.bincount(found, minlength=signals + 2)}")
        assert times < 2.0 or sum(each == signals for each in found) >= 19


@pytest.mark.parametrize("D", [100, 900])
def test_signals_that_come_and_go(D: int) -> None:
    right = []
    for seed in range(5):
        model = OnlinePCA("auto", half_life=300, max_rank=64)
        for i, signals in enumerate((3, 12, 2, 6)):
            blocks = np.array_split(rows_with(signals, 4000, D, 10 * seed + i, times=6.0), 8)
            found = [model.partial_fit(block).n_components_ for block in blocks]
            print(f"D={D} {signals} signals, after every 500 rows: {found}")
            right.append(found[-1] == signals)
    assert np.mean(right) >= 0.95


@pytest.mark.usefixtures("data_home")
def test_images() -> None:
    """The noise of images is not equal in all pixels, so that nearly all directions stand out from it."""
    X = load("mnist").X.astype(np.float64)
    for n in (1000, 5000, 20000):
        found = [OnlinePCA(rule, max_rank=784).fit(X[:n]).n_components_ for rule in ("auto", "filter")]
        print(f"{n} images: auto {found[0]}, filter {found[1]}")
        assert 100 < found[1] <= found[0] < 784
