"""OnlinePCA against what scikit-learn has: time per sample and error, one pass, single-threaded.

MNIST where ``ONLINE_PSP_DATA`` points at it, otherwise the digits inside scikit-learn, in random order and sorted (a stream as hard as real
ones are). With so few features OnlinePCA is exact from K=64 on, so there is also a wide set, with a spectrum like that of natural images
(variances that fall as 1/k), where it streams. IncrementalPCA's default batch is five times the number of features; smaller ones, as a
stream has to use when memory is short, cost it accuracy.
"""

from __future__ import annotations

import gzip
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA, IncrementalPCA
from threadpoolctl import threadpool_limits

from benchmarks.timing import seconds
from online_psp import FSM, OnlinePCA
from online_psp.datasets import spiked_covariance
from online_psp.engine.types import Floats
from online_psp.metrics import subspace_error


class Row(NamedTuple):
    order: str
    K: int
    method: str
    microseconds: float
    error: float
    variance_error: float
    """Largest relative error of a variance."""


def load() -> tuple[str, Floats, Any]:
    """Rows, and a group for each to sort them by: the label, or a cluster where the set comes without labels."""
    home = Path(os.environ.get("ONLINE_PSP_DATA", "nowhere"))
    path = home / "train-images-idx3-ubyte.gz"
    if not path.exists():
        digits = load_digits()
        return "digits", digits.data, digits.target
    with gzip.open(path) as file:
        X = np.frombuffer(file.read(), dtype=np.uint8, offset=16).reshape(-1, 784).astype(np.float64) / 255
    # The labels are in another file; clusters of the images do as well to make a stream that drifts.
    from sklearn.cluster import MiniBatchKMeans

    return "MNIST", X, MiniBatchKMeans(10, random_state=0, n_init=3).fit_predict(X)


def wide(n: int = 6000, D: int = 3072) -> Floats:
    """Rows whose k-th variance is 1/k, in a random basis."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((n, D)) / np.sqrt(np.arange(1, D + 1))
    return np.asarray(X @ np.linalg.qr(rng.standard_normal((D, D)))[0] + rng.standard_normal(D))


def fitted(make: Callable[[], Any], X: Floats, repeats: int = 3) -> tuple[Any, float]:
    """The model, and the median time of a fit."""
    make().fit(X[:3000])
    times = []
    for _ in range(repeats):
        model = make()
        start = time.perf_counter()
        model.fit(X)
        _ = model.components_
        times.append(time.perf_counter() - start)
    return model, float(np.median(times))


def opponents(K: int, small_batches: bool) -> dict[str, Callable[[], Any]]:
    """IncrementalPCA as it comes, with small batches, and oversampled, which helps it as well."""
    if small_batches:  # its default batch would be the whole of the wide set
        return {
            "IncrementalPCA, batch 5K": lambda: IncrementalPCA(K, batch_size=5 * K),
            "IncrementalPCA, 2K cut to K, batch 10K": lambda: IncrementalPCA(2 * K, batch_size=10 * K),
        }
    return {
        "IncrementalPCA": lambda: IncrementalPCA(K),
        "IncrementalPCA, batch 5K": lambda: IncrementalPCA(K, batch_size=5 * K),
        "IncrementalPCA, 2K cut to K": lambda: IncrementalPCA(2 * K),
    }


def compare(name: str, X: Floats, order: str, sizes: list[int], progress: Progress, small_batches: bool = False) -> list[Row]:
    rows = []
    task = progress.add_task(f"{name}, {order}", total=len(sizes) * (2 + len(opponents(1, small_batches))))
    for K in sizes:
        batch, batch_time = fitted(lambda K=K: PCA(K, svd_solver="covariance_eigh"), X, repeats=1)  # type: ignore[misc]
        rows.append(Row(order, K, "PCA, whole array", 1e6 * batch_time / len(X), 0.0, 0.0))
        progress.advance(task)
        methods = opponents(K, small_batches) | {"OnlinePCA": lambda K=K: OnlinePCA(K)}
        for label, make in methods.items():
            model, took = fitted(make, X, 3 if label == "OnlinePCA" else 1)
            error = subspace_error(model.components_[:K].T, batch.components_.T)
            variance = np.abs(model.explained_variance_[:K] / batch.explained_variance_ - 1).max()
            rows.append(Row(order, K, label, 1e6 * took / len(X), error, float(variance)))
            progress.advance(task)
    return rows


def overhead() -> tuple[float, float]:
    """Microseconds of `fit_next` at D=64, K=8: OnlinePCA's, and that of FSM with as many directions."""
    X = np.random.default_rng(0).standard_normal((512, 64))
    model, fsm = OnlinePCA(8).fit(X), FSM(24, 64)
    fsm.fit_block(X)
    rows = list(X[:256])
    ours = seconds(lambda: [model.fit_next(x) for x in rows]) / len(rows)
    return 1e6 * ours, 1e6 * seconds(lambda: [fsm.fit_next(x) for x in rows]) / len(rows)


def one_by_one(X: Floats, K: int) -> list[tuple[float, float]]:
    """Microseconds of `fit_next` with its output, and of `partial_fit` of as many rows: from the first row on, and for the rows after."""
    halves, times = (X[:20_000], X[20_000:40_000]), []
    for _ in range(3):
        model, other = OnlinePCA(K), OnlinePCA(K)
        times.append([(_over(model.fit_next, half), _over(other.partial_fit, [half])) for half in halves if len(half)])
    return [tuple(1e6 * np.median([each[i] for each in times], axis=0) / len(halves[i])) for i in range(len(times[0]))]


def _over(function: Callable[[Any], Any], arguments: Any) -> float:
    """Seconds of a function over all arguments."""
    start = time.perf_counter()
    for each in arguments:
        function(each)
    return time.perf_counter() - start


def noise_variances() -> str:
    """What each makes of the noise variance of spiked data, where the truth is known."""
    sample = spiked_covariance(5000, 100, 5, rho=0.01)
    theirs = ", ".join(f"{IncrementalPCA(5, batch_size=batch).fit(sample.X).noise_variance_:.4f} (batch {batch})" for batch in (500, 25, 5))
    return f"noise variance, truth 0.0100: IncrementalPCA {theirs}; OnlinePCA {OnlinePCA(5).fit(sample.X).noise_variance_:.4f}"


def main(only: list[int] | None = None) -> list[Row]:
    """Everything, or random order alone for some numbers of components."""
    console = Console(width=150)
    name, X, labels = load()
    sizes = only or ([16, 64, 128] if name == "MNIST" else [4, 8, 16])
    shuffled = X[np.random.default_rng(0).permutation(len(X))]
    with threadpool_limits(1), Progress(console=console) as progress:
        rows = compare(name, shuffled, "random order", sizes, progress)
        if not only:
            sorted_by = "sorted by label" if name == "digits" else "sorted by cluster"
            rows += compare(name, X[np.argsort(labels, kind="stable")], sorted_by, sizes, progress)
            rows += compare("wide", wide(), "wide, D=3072", [16, 64], progress, small_batches=True)
        single, alone = overhead()
        single_rows = one_by_one(shuffled, sizes[0])
    table = Table(title=f"{name}, {X.shape[0]} × {X.shape[1]}, one pass, one thread")
    for column in ("order", "K", "method", "µs per sample", "faster", "Err_batch", "variances within"):
        table.add_column(column, justify="left" if column in ("order", "method") else "right")
    base, previous = 1.0, ""
    for row in rows:
        base = row.microseconds if row.method.startswith("IncrementalPCA") and previous == "PCA, whole array" else base
        previous = row.method
        faster = f"{base / row.microseconds:.1f}×" if row.method != "PCA, whole array" else ""
        table.add_row(
            row.order,
            str(row.K),
            row.method,
            f"{row.microseconds:.1f}",
            faster,
            f"{row.error:.4f}",
            f"{100 * row.variance_error:.2f} %",
            end_section=row.method == "OnlinePCA",
        )
    console.print(table)
    console.print(f"fit_next at D=64, K=8: OnlinePCA {single:.1f} µs, FSM with as many directions {alone:.1f} µs")
    for part, (alone, together) in zip(("first", "next"), single_rows, strict=False):
        of = f"the {part} {min(len(X), 20_000):,} rows of {name}, D={X.shape[1]}, K={sizes[0]}"
        console.print(f"fit_next over {of}: {alone:.1f} µs a row, partial_fit of all of them {together:.1f} µs")
    console.print(noise_variances())
    return rows


if __name__ == "__main__":  # python -m benchmarks.pca 16: random order alone, for so many components
    main([int(word) for word in sys.argv[1:]])
