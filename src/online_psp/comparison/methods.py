"""The methods to compare: each is a function from rows to a basis, with several settings.

All of them see the same centred float64 rows, once, in the same order. The time of a fit includes reading the basis.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from sklearn.decomposition import PCA, IncrementalPCA
from sklearn.utils import gen_batches

from online_psp.algorithms import ALGORITHMS
from online_psp.comparison.packages import prosvd
from online_psp.engine.types import Array, Floats
from online_psp.experiments.baselines import BASELINES, started
from online_psp.pca import OnlinePCA
from online_psp.suite.rivals import RIVALS, RivalModel

Fit: TypeAlias = Callable[[Floats, int], Array]
"""From rows (N, D) and K to a basis (D, K)."""

LOOP, OURS, PEER, MEMORY = "in-place loop", "online-psp", "peer", "in memory"


@dataclass(frozen=True)
class Setting:
    """One way to run a method."""

    label: str
    fit: Fit


@dataclass(frozen=True)
class Method:
    """One line of the comparison.

    Attributes
    ----------
    family : str
        Points of a family are joined by a line in the picture: one algorithm run in several ways, or one peer at several settings.
    kind : str
        LOOP (the published update, one sample at a time, in place), OURS, PEER or MEMORY.
    settings : tuple of Setting
        All settings to try.
    every : bool
        Whether to show every setting in the table, not only the most accurate and the fastest.
    package : str or None
        Package that must be installed.
    """

    name: str
    family: str
    kind: str
    settings: tuple[Setting, ...]
    every: bool = False
    package: str | None = None


def methods() -> list[Method]:
    """All methods: first this package's algorithms with their defaults, then other methods, each at several settings."""
    return [*_ours(), *_loops(), *_peers(), *_in_memory()]


# This package, and the plain loops it is compared with


def _ours() -> Iterator[Method]:
    for name, make in ALGORITHMS.items():
        yield Method(f"{name.upper()} fit_block", name.upper(), OURS, (Setting("default", _block_fit(make)),))
        yield Method(f"{name.upper()} fit_next", name.upper(), OURS, (Setting("default", _next_fit(make)),))
    yield Method("FSM fit_block, γ = 0.6", "FSM, γ = 0.6", OURS, (Setting("the paper's", _block_fit(ALGORITHMS["fsm"], gamma=0.6)),))
    yield Method("OnlinePCA fit", "OnlinePCA", OURS, (Setting("default", _online_pca),))
    yield Method("OnlinePCA fit_next", "OnlinePCA", OURS, (Setting("default", _online_pca_by_row),))


def _block_fit(make: Callable[..., Any], **options: Any) -> Fit:
    def fit(X: Floats, K: int) -> Array:
        model = make(K, X.shape[1], **options)
        model.fit_block(X)
        return np.asarray(model.get_components())

    return fit


def _next_fit(make: Callable[..., Any]) -> Fit:
    def fit(X: Floats, K: int) -> Array:
        model = make(K, X.shape[1])
        for x in X:
            model.fit_next(x)
        return np.asarray(model.get_components())

    return fit


def _online_pca(X: Floats, K: int) -> Array:
    return np.asarray(OnlinePCA(K).fit(X).components_.T)


def _online_pca_by_row(X: Floats, K: int) -> Array:
    model = OnlinePCA(K).partial_fit(X[:1])
    for x in X[1:]:
        model.fit_next(x)
    return np.asarray(model.components_.T)


def _loops() -> Iterator[Method]:
    for name in BASELINES:
        yield Method(f"{name.upper()} in-place loop", name.upper(), LOOP, (Setting("as published", _loop_fit(name)),))


def _loop_fit(name: str) -> Fit:
    module: Any = importlib.import_module(ALGORITHMS[name].__module__)
    rates = BASELINES[name].rates

    def fit(X: Floats, K: int) -> Array:
        model = started(name, *module.reference_start(np.linalg.qr(X[:K].T)[0]))
        for t, x in enumerate(X, start=1):
            model.step(x, *rates(t, 2.0))
        return np.asarray(model.basis())

    return fit


# Other packages and algorithms


def _peers() -> Iterator[Method]:
    plain = [
        Setting(f"batch {label}", _incremental(1, rows)) for label, rows in (("K", _times(1)), ("5K", _times(5)), ("5D (default)", _5D))
    ]
    twice = [
        Setting(f"batch {label}", _incremental(2, rows)) for label, rows in (("2K", _times(2)), ("5K", _times(5)), ("5D (default)", _5D))
    ]
    yield Method("IncrementalPCA", "IncrementalPCA", PEER, tuple(plain), every=True)
    yield Method("IncrementalPCA, 2K cut to K", "IncrementalPCA, 2K cut to K", PEER, tuple(twice), every=True)
    yield Method("proSVD", "proSVD", PEER, tuple(_blocks(_prosvd, 1, (1, 5, 20))), package="proSVD")
    yield Method("proSVD, 2K cut to K", "proSVD, 2K cut to K", PEER, tuple(_blocks(_prosvd, 2, (1, 2, 5))), package="proSVD")
    yield Method("AdaOja", "AdaOja", PEER, tuple(_adaoja()))
    yield Method("History PCA", "History PCA", PEER, tuple(_history()))
    yield Method("Frequent Directions", "Frequent Directions", PEER, tuple(_sketches()))
    yield Method("Incremental SVD", "Incremental SVD", PEER, tuple(_blocks_of_svd()))


Rows: TypeAlias = Callable[[int, int], int]
"""From K and D to a number of rows."""


def _times(several: int) -> Rows:
    return lambda K, D: several * K


def _rows(number: int) -> Rows:
    return lambda K, D: number


def _5D(K: int, D: int) -> int:
    return 5 * D


def _incremental(oversampling: int, batch: Rows) -> Fit:
    def fit(X: Floats, K: int) -> Array:
        rank = oversampling * K
        model = IncrementalPCA(rank)
        for rows in gen_batches(len(X), batch(K, X.shape[1]), min_batch_size=rank):
            model.partial_fit(X[rows])
        return np.asarray(model.components_[:K].T)

    return fit


def _blocks(make: Callable[[int, Rows], Fit], oversampling: int, several: tuple[int, ...]) -> Iterator[Setting]:
    for n in several:
        yield Setting(f"block {n if n > 1 else ''}K", make(oversampling, _times(n)))


def _prosvd(oversampling: int, block: Rows) -> Fit:
    return lambda X, K: prosvd(X, K, oversampling * K, block(K, X.shape[1]))


def _family(name: str, rank: Rows = lambda K, D: K, **options: Rows) -> Fit:
    """A registered algorithm that keeps `rank` directions, of which the leading K are read, with options that depend on K."""

    def fit(X: Floats, K: int) -> Array:
        D = X.shape[1]
        model = RivalModel(RIVALS[name], rank(K, D), D, **{option: value(K, D) for option, value in options.items()})
        model.fit_block(X)
        return np.asarray(model.get_components()[:, :K])

    return fit


def _adaoja() -> Iterator[Setting]:
    yield Setting("B = 10 (the paper's)", _family("adaoja"))
    for n in (1, 5, 20):
        yield Setting(f"B = {n if n > 1 else ''}K", _family("adaoja", block=_times(n)))
    yield Setting("B = 5K, 2K cut to K", _family("adaoja", _times(2), block=_times(5)))


def _history() -> Iterator[Setting]:
    yield Setting("B = 10 (the paper's), m = 1", _family("history_pca", block=_rows(10)))
    for n, m in ((5, 1), (20, 1), (5, 3), (20, 3)):
        yield Setting(f"B = {n}K, m = {m}", _family("history_pca", block=_times(n), iterations=_rows(m)))
    for n in (5, 20):
        yield Setting(f"B = {n}K, m = 3, 2K cut to K", _family("history_pca", _times(2), block=_times(n), iterations=_rows(3)))


def _sketches() -> Iterator[Setting]:
    for n in (2, 4, 8):
        yield Setting(f"ℓ = {n}K", _family("frequent_directions", sketch=_times(n)))


def _blocks_of_svd() -> Iterator[Setting]:
    for n in (1, 5):
        yield Setting(f"block {n if n > 1 else ''}K", _family("isvd", block=_times(n)))
    yield Setting("block 2K, 2K cut to K", _family("isvd", _times(2), block=_times(2)))


def _in_memory() -> Iterator[Method]:
    for solver in ("randomized", "covariance_eigh"):
        name = f"PCA, {solver}"
        yield Method(name, name, MEMORY, (Setting("default", _batch(solver)),))


def _batch(solver: str) -> Fit:
    return lambda X, K: np.asarray(PCA(K, svd_solver=solver, random_state=0).fit(X).components_.T)
