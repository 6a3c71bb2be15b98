"""Model files of every kind, and how they are read again."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from online_psp import OnlinePCA
from online_psp.algorithms import ALGORITHMS
from online_psp.io import runs
from online_psp.monitoring import Monitor
from tests.torture._common import rows


class Saved(NamedTuple):
    """A model file, and how to read it."""

    words: str
    load: Callable[[Path], Any]


def _times(n: int) -> Any:
    return np.arange(n) * 2.0 + 1000.0


def _holes(X: Any, seed: int) -> Any:
    return np.where(np.random.default_rng(seed).random(X.shape) < 0.2, np.nan, X)


def _options(chance: random.Random) -> dict[str, Any]:
    """Parameters of an OnlinePCA that go together."""
    found: dict[str, Any] = {"whiten": chance.random() < 0.3}
    found |= {"missing": "impute"} if chance.random() < 0.3 else {}
    found |= {"robust": True} if chance.random() < 0.3 else {}
    found |= {"standardize": True} if chance.random() < 0.25 else {"center": False} if chance.random() < 0.1 else {}
    found |= {"half_life": chance.choice([50, "3min"])} if chance.random() < 0.4 else {}
    found |= {"axes": "stable"} if chance.random() < 0.2 else {}
    found |= {"dtype": "float32"} if chance.random() < 0.2 else {}
    found |= {"block_size": 7} if chance.random() < 0.1 else {}
    return found


def _data(chance: random.Random, D: int, options: dict[str, Any]) -> tuple[Any, Any]:
    """Rows that such a model learns, and their times."""
    X = rows(chance.choice([3, 30, 200]), D, chance.randrange(1000))
    if options.get("missing") and chance.random() < 0.8:
        X = _holes(X, 4)
    elif not options.get("robust") and not options.get("standardize") and chance.random() < 0.2:
        X = sparse.csr_array(np.where(np.abs(X) > 1.5, X, 0.0))
    return X, _times(X.shape[0]) if options.get("half_life") == "3min" else None


def save_pca(path: Path, chance: random.Random) -> Saved:
    """An OnlinePCA with some of its options, a run among them sometimes."""
    options, D = _options(chance), chance.choice([6, 60])
    X, times = _data(chance, D, options)
    if X.shape[0] > 3 and chance.random() < 0.15 and options.get("axes") is None:
        model = OnlinePCA(0.9, **options)
    else:
        model = OnlinePCA(3 if X.shape[0] > 3 else 2, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, times=times)
    model.save(path)
    return Saved(f"OnlinePCA {options}, {X.shape}", OnlinePCA.load)


def save_mat(path: Path, chance: random.Random) -> Saved:
    X = rows(chance.choice([3, 30, 200]), chance.choice([6, 60]), 1)
    model = OnlinePCA(2, whiten=chance.random() < 0.3).fit(X)
    model.save(path)
    return Saved(f"MAT {X.shape}", OnlinePCA.load)


def save_algorithm(path: Path, chance: random.Random) -> Saved:
    """One of the algorithms by itself."""
    name, D = chance.choice(list(ALGORITHMS)), chance.choice([6, 60])
    cls = ALGORITHMS[name]
    model = cls(3, D, dtype=chance.choice([np.float64, np.float32]))
    n = chance.choice([2, 30, 200])
    model.fit_block(rows(n, D, 1))
    if chance.random() < 0.5:
        for x in rows(3, D, 2):
            model.fit_next(x)
    model.save(path)
    return Saved(f"{name} by itself, D={D}, {n} rows", cls.load)


def save_monitor(path: Path, chance: random.Random) -> Saved:
    options = {name: value for name, value in _options(chance).items() if name != "missing"}
    options.setdefault("half_life", 300)
    monitor = Monitor(
        OnlinePCA(2, **options),
        learn_outliers=chance.random() < 0.8,
        run_length=chance.choice([1e5, 1e3, None]),
        on_drift=chance.choice(["flag", "reset"]),
    )
    n, D = chance.choice([3, 100, 450]), chance.choice([6, 60])
    X = rows(n, D, 2)
    monitor.update(X, _times(n) if options["half_life"] == "3min" else None)
    monitor.save(path)
    return Saved(f"Monitor of {options}, {X.shape}", Monitor.load)


def save_run(path: Path, chance: random.Random) -> Saved:
    """The checkpoint of a run."""
    options, D = _options(chance), 6
    options["half_life"] = None
    X = rows(200, D, 3)
    runs.fit_stream(X, path, OnlinePCA(2, **options), block=50)
    return Saved(f"checkpoint, {options}", runs.reopen)


KINDS: dict[str, tuple[float, Callable[[Path, random.Random], Saved]]] = {
    "OnlinePCA": (5.0, save_pca),
    "algorithm": (2.0, save_algorithm),
    "Monitor": (3.0, save_monitor),
    "run": (1.0, save_run),
    "mat": (1.0, save_mat),
}
"""Kinds of files, each with its share of the attacks."""
