"""Scale: sparse rows, merged models by depth, rows over workers."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from online_psp import distributed
from online_psp.engine.types import Array, Floats
from online_psp.metrics import subspace_error
from online_psp.pca import OnlinePCA
from online_psp.suite.data import images
from online_psp.suite.measure import Stopwatch, memory_bytes
from online_psp.suite.runner import apart
from online_psp.suite.tables import Table, micro


def tables(out: Path, quick: bool = False) -> Iterator[Table]:
    """All of them."""
    yield sparse(5000 if quick else 200_000, 2000 if quick else 50_000)
    yield depth(2000 if quick else None)
    if find_spec("distributed") is not None:
        yield workers(10 if quick else 1000)


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


def depth(n: int | None, K: int = 16) -> Table:
    """Error of merged models by the number of parts, shuffled and in clusters, and what a part sends."""
    from sklearn.cluster import MiniBatchKMeans

    X = images(n)[1]
    exact = np.linalg.eigh(np.cov(X.T))[1][:, -K:]
    clusters = MiniBatchKMeans(10, n_init=1, random_state=0).fit_predict(X)
    orders = {"shuffled": np.random.default_rng(0).permutation(len(X)), "by cluster": np.argsort(clusters, kind="stable")}
    counts, lines = (1, 4, 16, 128, 1024), []
    for oversample, (order, rows) in product((K + 32, 2 * (K + 32)), orders.items()):
        errors, sent = [], 0
        for count in counts:
            parts = [OnlinePCA(K, oversample=oversample).fit(part) for part in np.array_split(X[rows], count)]
            model = distributed.reduce(parts)
            errors.append(f"{subspace_error(model.components_.T, exact):.4f}")
            sent = max(sent, *(len(pickle.dumps(part)) for part in parts))
        lines.append((str(K + oversample), order, *errors, f"{sent / 1e6:.2f}", f"{len(pickle.dumps(model)) / 1e6:.2f}"))
    header = ("directions kept", "rows", *(f"{count:,} parts" for count in counts), "MB of a part, at most", "MB of the merged model")
    return Table(f"Error by the number of parts, {len(X):,} × {X.shape[1]}, K={K}", header, tuple(lines))


_ROWS, _D, _K = 100_000, 20, 2


def _partition(seed: int) -> Floats:
    """Rows of one partition; all partitions have the same directions."""
    rng = np.random.default_rng((1, seed))
    X = 0.3 * rng.standard_normal((_ROWS, _D))
    X[:, :_K] += rng.standard_normal((_ROWS, _K)) * np.linspace(3.0, 1.0, _K)
    return X + 1.0


def workers(partitions: int) -> Table:
    """One Dask worker of one GiB, on more rows than it holds."""
    from dask import delayed
    from distributed import Client, LocalCluster

    lines = []
    for several in (partitions // 10, partitions):
        options = {"n_workers": 1, "threads_per_worker": 1, "memory_limit": 1 << 30, "dashboard_address": None}
        with LocalCluster(**options) as cluster, Client(cluster) as client:
            began = time.perf_counter()
            model = distributed.fit([delayed(_partition)(seed) for seed in range(several)], OnlinePCA(_K, oversample=_K))
            seconds = time.perf_counter() - began
            (peak,) = client.run(lambda: memory_bytes()[1]).values()
        error = subspace_error(model.components_.T, np.eye(_D)[:, :_K])
        lines.append((f"{model.n_samples_seen_:,}", f"{several:,}", f"{seconds:.0f}", f"{peak / 2**20:.0f}", f"{error:.5f}"))
    size = f"{8 * _ROWS * _D * partitions / 2**30:.1f} GiB in all, D={_D}, K={_K}, {2 * _K} directions kept"
    header = ("rows counted", "partitions", "seconds", "peak of the worker, MiB", "Err_pop")
    return Table(f"A worker of 1 GiB: {size}", header, tuple(lines))
