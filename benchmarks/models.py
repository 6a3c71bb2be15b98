"""Models that have started, rows that are new to them, and what they are compared with."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from online_psp.algorithms import ALGORITHMS
from online_psp.datasets import SpikedCovariance
from online_psp.engine.types import Floats
from online_psp.experiments.baselines import BASELINES, started

ROWS = 256
SINGLE = 128  # rows of a block that are taken one at a time
_MORE = 64  # rows after the first K that a model is started with


def draw(D: int, K: int, blocks: int = 8) -> Floats:
    """Rows to start a model with, and some blocks that are new to it. (A row that it has seen lies in its subspace, or nearly, if K is
    large: that is another problem, and a harder one.)
    """
    return SpikedCovariance(D, min(K, 32), 0.01, seed=0).draw(K + _MORE + blocks * ROWS)


def running(name: str, X: Floats, K: int, **options: Any) -> Any:
    """A model that has started."""
    model: Any = ALGORITHMS[name](K, X.shape[1], **options)
    model.fit_block(X[: K + _MORE])
    return model


def block_by_block(act: Callable[[Floats], Any], X: Floats, K: int) -> Callable[[], None]:
    """Calls that act on one block after the other."""
    starts = itertools.cycle(range(K + _MORE, len(X) - ROWS + 1, ROWS))

    def some() -> None:
        start = next(starts)
        act(X[start : start + ROWS])

    return some


def row_by_row(act: Callable[[Floats], Any], X: Floats, K: int) -> Callable[[], None]:
    """Calls that act on the rows of one block after the other, a row at a time."""

    def some(block: Floats) -> None:
        for x in block[:SINGLE]:
            act(x)

    return block_by_block(some, X, K)


def two_products(D: int, K: int) -> Callable[[Floats], None]:
    """The floor of a block: X Bᵀ and C X."""
    basis, C = np.ones((K, D)), np.ones((K, ROWS))

    def act(X: Floats) -> None:
        X @ basis.T
        C @ X

    return act


def in_place(name: str, X: Floats, K: int) -> Callable[[Floats], Any]:
    """The published update of one sample, in place: the baseline of every "times faster"."""
    module: Any = importlib.import_module(ALGORITHMS[name].__module__)
    model = started(name, *module.reference_start(np.linalg.qr(X[:K].T)[0]))
    rates = BASELINES[name].rates(1000, 2.0)
    return lambda x: model.step(x, *rates)


def in_place_rows(name: str, X: Floats, K: int, samples: int) -> Callable[[], None]:
    """Calls that learn from a few rows of one block after the other, in place."""
    step = in_place(name, X, K)

    def some(block: Floats) -> None:
        for x in block[:samples]:
            step(x)

    return block_by_block(some, X, K)
