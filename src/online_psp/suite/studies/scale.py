"""Scale: sparse rows, how their cost grows, rows over workers, torch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from online_psp.engine.types import Array, Floats
from online_psp.metrics import subspace_error
from online_psp.pca import OnlinePCA
from online_psp.suite.measure import Stopwatch, memory_bytes
from online_psp.suite.runner import apart
from online_psp.suite.tables import Table, micro


def tables(out: Path, quick: bool = False) -> Iterator[Table]:
    """All of them."""
    yield sparse(5000 if quick else 200_000, 2000 if quick else 50_000)
    yield growth(2000 if quick else 20_000)
    if find_spec("distributed") is not None:
        yield workers(8 if quick else 128)
    if find_spec("torch") is not None:
        yield torch()


def topics(n: int, D: int, per_row: int, seed: int = 0) -> Any:
    """Positive entries, half of them in the features of the row's topic, half anywhere."""
    rng = np.random.default_rng(seed)
    share = 1.0 / np.arange(5, 38)  # 33 topics: 32 directions once the mean is out
    topic = rng.choice(33, size=(n, 1), p=share / share.sum())
    own, half = topic * (D // 33) + rng.integers(0, D // 33, (n, per_row // 2)), per_row - per_row // 2
    indices = np.sort(np.concatenate([own, rng.integers(0, D, (n, half))], axis=1), axis=1)
    data = 1.0 + rng.standard_exponential((n, per_row))
    X = csr_array((data.ravel(), indices.ravel().astype(np.int32), np.arange(0, n * per_row + 1, per_row)), shape=(n, D))
    X.sum_duplicates()
    return X


def _fit(make: Callable[[], Any], n: int, D: int, most: int | None) -> tuple[float, float, Array]:
    """In a process of its own: seconds a row, megabytes beyond the rows, and components."""
    X = topics(n, D, 50)[:most]
    make().fit(topics(500, 400, 50))  # compiles
    before, watch, model = memory_bytes()[0], Stopwatch(), make()
    with watch:
        model.fit(X)
        components = np.asarray(model.components_)
    return watch.seconds / X.shape[0], (memory_bytes()[1] - before) / 1e6, components


def sparse(n: int, D: int, K: int = 32) -> Table:
    """OnlinePCA beside scikit-learn's on sparse rows; IncrementalPCA on a part, because all of it would take hours."""
    from sklearn.decomposition import PCA, IncrementalPCA, TruncatedSVD

    methods: dict[str, tuple[Callable[[], Any], int | None, str]] = {
        "OnlinePCA": (lambda: OnlinePCA(K), None, "one"),
        "IncrementalPCA": (lambda: IncrementalPCA(K), 4 * 5 * K, "one"),
        "TruncatedSVD": (lambda: TruncatedSVD(K, random_state=0), None, "several"),
        "PCA, arpack": (lambda: PCA(K, svd_solver="arpack", random_state=0), None, "several"),
    }
    found = {name: apart(partial(_fit, make, n, D, most)) for name, (make, most, _) in methods.items()}
    lines = []
    for name, (seconds, grown, components) in found.items():
        error = subspace_error(components.T, found["PCA, arpack"][2].T)
        ratio = f"{seconds / found['OnlinePCA'][0]:.1f}×"
        lines.append((name, f"{methods[name][1] or n:,}", micro(seconds), ratio, f"{grown:.0f}", methods[name][2], f"{error:.4f}"))
    basis, dense = 8e-6 * D * (2 * K + 32), 8e-6 * n * D
    title = f"Sparse rows, {n:,} × {D:,}, 50 entries, K={K}; 2K + 32 directions are {basis:.0f} MB, the dense matrix {dense:,.0f} MB"
    header = ("method", "rows", "µs a row", "against ours", "memory grows by, MB", "passes", "error to PCA of the whole matrix")
    return Table(title, header, tuple(lines))


def growth(n: int) -> Table:
    """The exponents of the time a row in the number of features, and in the entries of a row."""

    def seconds(D: int, per_row: int) -> float:
        X, watch = topics(n + 4000, D, per_row), Stopwatch()
        model = OnlinePCA(32).partial_fit(X[:4000])
        with watch:
            model.partial_fit(X[4000:])
        return watch.seconds / n

    lines = []
    for what, several in {
        "features, 50 entries": [(D, 50) for D in (12_500, 25_000, 50_000, 100_000)],
        "entries, D = 50,000": [(50_000, entries) for entries in (25, 50, 100, 200)],
    }.items():
        times = [seconds(D, entries) for D, entries in several]
        varied = [float(D if what[0] == "f" else entries) for D, entries in several]
        slope = float(np.polyfit(np.log(varied), np.log(times), 1)[0])
        lines.append((what, ", ".join(f"{value:,.0f}" for value in varied), ", ".join(map(micro, times)), f"{slope:.2f}"))
    return Table("Growth with features and entries, OnlinePCA(32)", ("in", "sizes", "µs a row", "exponent"), tuple(lines))


_ROWS, _D, _K = 2048, 1024, 16


def _partition(seed: int) -> Floats:
    """Rows of one partition; all partitions have the same directions."""
    U = np.linalg.qr(np.random.default_rng(0).standard_normal((_D, _K)))[0]
    rng = np.random.default_rng((1, seed))
    signal = rng.standard_normal((_ROWS, _K)) * np.linspace(3.0, 1.0, _K)
    return np.asarray(signal @ U.T + 0.3 * rng.standard_normal((_ROWS, _D)) + 1.0)


def workers(partitions: int) -> Table:
    """Dask workers of half a GiB each, on more rows than they hold."""
    from dask import array, delayed
    from distributed import Client, LocalCluster

    from online_psp.integrations import dask as over_workers

    alone, second, mean = OnlinePCA(_K), np.zeros((_D, _D)), np.zeros(_D)
    for seed in range(partitions):
        X = _partition(seed)
        alone.partial_fit(X)
        second += X.T @ X
        mean += X.sum(axis=0)
    n = _ROWS * partitions
    exact = np.linalg.eigh(second / n - np.outer(mean / n, mean / n))[1][:, -_K:]
    lines = [("one pass, no workers", "–", f"{n:,}", f"{subspace_error(alone.components_.T, exact):.5f}")]
    for several in (1, 2):
        options = {"n_workers": several, "threads_per_worker": 1, "memory_limit": 512 << 20, "dashboard_address": None}
        with LocalCluster(**options) as cluster, Client(cluster):
            pieces = [array.from_delayed(delayed(_partition)(seed), (_ROWS, _D), dtype=float) for seed in range(partitions)]
            over_workers.fit(OnlinePCA(_K), array.concatenate(pieces[:4]))  # warms the workers up
            began = time.perf_counter()
            model = over_workers.fit(OnlinePCA(_K), array.concatenate(pieces))
            seconds = time.perf_counter() - began
        error = f"{subspace_error(model.components_.T, exact):.5f}"
        lines.append((f"{several} worker{'s' * (several > 1)}", f"{seconds:.1f}", f"{model.n_samples_seen_:,}", error))
    size = f"{n:,} × {_D} ({8 * n * _D / 2**30:.1f} GiB), K={_K}"
    return Table(f"Rows over workers of 0.5 GiB: {size}", ("", "seconds, wall-clock", "rows counted", "Err_batch"), tuple(lines))


def torch() -> Table:
    """Tensors on the processor beside NumPy's arrays."""
    import torch as library

    library.set_num_threads(1)
    X = np.random.default_rng(0).standard_normal((4096, 2048)) * np.linspace(3, 0.1, 2048)
    rows, best, components = (X, library.asarray(X)), [np.inf, np.inf], [np.empty(0), np.empty(0)]
    for _ in range(4):
        for i in range(2):
            watch, model = Stopwatch(), OnlinePCA(64)
            with watch:
                model.partial_fit(rows[i])
                components[i] = np.asarray(model.components_)
            best[i] = min(best[i], watch.seconds / len(X))
    error = subspace_error(components[1].T, components[0].T)
    cells = (micro(best[0]), micro(best[1]), f"{best[1] / best[0]:.2f}×", f"{error:.1e}")
    return Table("torch on the processor, OnlinePCA(64), D = 2,048", ("NumPy, µs a row", "torch", "ratio", "distance"), (cells,))
