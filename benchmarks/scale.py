"""Scale: sparse rows, Dask workers, columns over workers, torch. ``python -m benchmarks scale``.

Every method of the sparse table runs in a process of its own, so that the peak of its memory is its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

from online_psp import FSM, OnlinePCA
from online_psp.engine.types import Floats
from online_psp.metrics import subspace_error

SPARSE = {"n": 200_000, "D": 50_000, "per_row": 50, "K": 32}
DASK = {"rows": 2048, "chunks": 128, "D": 1024, "K": 16, "limit": 512 << 20}  # 2 GiB, four times the limit of a worker


def topics(n: int, D: int, per_row: int, seed: int = 0) -> Any:
    """Positive entries, half of them in the features of the row's topic, half anywhere."""
    rng = np.random.default_rng(seed)
    indices, data = np.empty((n, per_row), dtype=np.int32), np.empty((n, per_row))
    share = 1.0 / np.arange(5, 38)  # 33 topics: 32 directions once the mean is out
    for start in range(0, n, 10_000):
        rows = slice(start, min(start + 10_000, n))
        count = rows.stop - start
        topic = rng.choice(33, size=(count, 1), p=share / share.sum())
        own = topic * (D // 33) + rng.integers(0, D // 33, (count, per_row // 2))
        indices[rows] = np.sort(np.concatenate([own, rng.integers(0, D, (count, per_row - per_row // 2))], axis=1), axis=1)
        data[rows] = 1.0 + rng.standard_exponential((count, per_row))
    X = csr_array((data.ravel(), indices.ravel(), np.arange(0, n * per_row + 1, per_row)), shape=(n, D))
    X.sum_duplicates()
    return X


def peak_memory() -> int:
    """Largest resident size of this process in bytes (Linux)."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def run_method(name: str, folder: str) -> dict[str, Any]:
    """Fit one method on the sparse set; the time of a sample, and what the peak of memory grew by. Its components go to `folder`."""
    from sklearn.base import clone
    from sklearn.decomposition import PCA, IncrementalPCA, TruncatedSVD

    K = SPARSE["K"]
    X = topics(SPARSE["n"], SPARSE["D"], SPARSE["per_row"])
    methods: dict[str, Any] = {
        "OnlinePCA": OnlinePCA(K),
        "OnlinePCA, fsm": OnlinePCA(K, algorithm="fsm"),
        "IncrementalPCA": IncrementalPCA(K),
        "TruncatedSVD": TruncatedSVD(K, random_state=0),
        "PCA, arpack": PCA(K, svd_solver="arpack", random_state=0),
    }
    model = methods[name]
    if name.startswith("OnlinePCA"):
        _ = clone(model).fit(topics(3000, 3000, 50)).components_  # compiles
    if name == "IncrementalPCA":
        X = X[: 4 * 5 * K]  # all of it would take hours
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    before = peak_memory()
    start = time.perf_counter()
    model.fit(X)
    components = model.components_
    took = time.perf_counter() - start
    grown = (peak_memory() - before) / 1e6
    np.save(Path(folder) / f"{name}.npy", components)
    return {"microseconds": 1e6 * took / X.shape[0], "megabytes": grown, "rows": X.shape[0]}


def sparse_table(console: Console, folder: str) -> None:
    results = {}
    for name in ("OnlinePCA", "OnlinePCA, fsm", "IncrementalPCA", "TruncatedSVD", "PCA, arpack"):
        done = subprocess.run([sys.executable, "-m", "benchmarks.scale", name, folder], capture_output=True, text=True, check=True)
        results[name] = json.loads(done.stdout.splitlines()[-1])
    n, D, K = SPARSE["n"], SPARSE["D"], SPARSE["K"]
    table = Table(title=f"sparse rows, {n:,} × {D:,}, density {SPARSE['per_row'] / D:g}, K={K}, one thread")
    for column in ("method", "rows", "µs per sample", "against ours", "memory grows by", "passes"):
        table.add_column(column, justify="left" if column == "method" else "right")
    ours = results["OnlinePCA"]["microseconds"]
    for name, result in results.items():
        passes = "one" if name.startswith(("OnlinePCA", "IncrementalPCA")) else "several"
        ratio, memory = f"{result['microseconds'] / ours:.1f}×", f"{result['megabytes']:.0f} MB"
        table.add_row(name, f"{result['rows']:,}", f"{result['microseconds']:.1f}", ratio, memory, passes)
    console.print(table)
    basis = 8 * D * (2 * K + 32) / 1e6
    console.print(f"a basis of K' = {2 * K + 32} directions is {basis:.0f} MB; dense, the matrix would be {8 * n * D / 1e9:.0f} GB")
    whole = np.load(Path(folder) / "PCA, arpack.npy").T
    for name in ("OnlinePCA", "OnlinePCA, fsm"):
        error = subspace_error(np.load(Path(folder) / f"{name}.npy").T, whole)
        console.print(f"Err_batch of {name}, one pass, against PCA of the whole matrix: {error:.4f}")


def slopes(console: Console, algorithm: str = "block") -> tuple[float, float]:
    """Exponents of the time of a sample in the number of features, and in the entries of a row."""

    def sample(D: int, per_row: int) -> float:
        X = topics(24_000, D, per_row)
        model = OnlinePCA(32, algorithm=algorithm).fit(X[:4000])
        start = time.perf_counter()
        model.partial_fit(X[4000:])
        return (time.perf_counter() - start) / 20_000

    features, entries = np.array([12_500, 25_000, 50_000, 100_000, 200_000]), np.array([25, 50, 100, 200, 400])
    by_features = np.array([sample(int(D), 50) for D in features])
    by_entries = np.array([sample(50_000, int(count)) for count in entries])
    slope = [float(np.polyfit(np.log(x), np.log(t), 1)[0]) for x, t in ((features, by_features), (entries, by_entries))]
    console.print(
        f"{algorithm}, µs a row, 50 entries, D = {features.tolist()}: {np.round(1e6 * by_features, 1).tolist()}: D^{slope[0]:.2f}"
    )
    console.print(
        f"{algorithm}, µs a row, D=50,000, entries {entries.tolist()}: {np.round(1e6 * by_entries, 1).tolist()}: nnz^{slope[1]:.2f}"
    )
    return slope[0], slope[1]


def spiked(seed: int, rows: int, D: int, K: int) -> Floats:
    """Rows of one partition; all partitions have the same directions."""
    U = np.linalg.qr(np.random.default_rng(0).standard_normal((D, K)))[0]
    rng = np.random.default_rng((1, seed))
    signal = rng.standard_normal((rows, K)) * np.linspace(3.0, 1.0, K)
    return np.asarray(signal @ U.T + 0.3 * rng.standard_normal((rows, D)) + 1.0)


def dask_workers(console: Console) -> None:
    import dask
    from dask import array, delayed
    from distributed import Client, LocalCluster

    from online_psp.integrations import dask as distributed

    rows, chunks, D, K = (DASK[name] for name in ("rows", "chunks", "D", "K"))
    single, covariance, mean = OnlinePCA(K), np.zeros((D, D)), np.zeros(D)
    for seed in range(chunks):
        X = spiked(seed, rows, D, K)
        single.partial_fit(X)
        covariance += X.T @ X
        mean += X.sum(axis=0)
    n = rows * chunks
    exact = np.linalg.eigh(covariance / n - np.outer(mean / n, mean / n))[1][:, -K:]
    error = subspace_error(single.components_.T, exact)
    times = []
    for workers in (1, 2):
        with (
            dask.config.set({"distributed.worker.memory.terminate": 0.98}),
            LocalCluster(n_workers=workers, threads_per_worker=1, memory_limit=DASK["limit"], dashboard_address=None) as cluster,
            Client(cluster),
        ):
            pieces = [array.from_delayed(delayed(spiked)(seed, rows, D, K), (rows, D), dtype=float) for seed in range(chunks)]
            distributed.fit(OnlinePCA(K), array.concatenate(pieces[:4]))  # warms the workers up
            start = time.perf_counter()
            model = distributed.fit(OnlinePCA(K), array.concatenate(pieces))
            times.append(time.perf_counter() - start)
    merged = subspace_error(model.components_.T, exact)
    console.print(
        f"Dask, {n:,} × {D} ({8 * n * D / 2**30:.1f} GiB), limit of a worker {DASK['limit'] / 2**30:.1f} GiB, K={K}: "
        f"{times[0]:.1f} s on one worker, {times[1]:.1f} s on two ({times[0] / times[1]:.2f}×); "
        f"{model.n_samples_seen_:,} rows counted; Err_batch {merged:.5f}, one pass alone {error:.5f} ({merged / error:.2f}×)"
    )


def torch_overhead(console: Console) -> None:
    try:
        import torch
    except ImportError:
        console.print("torch is not installed: left out")
        return
    torch.set_num_threads(1)
    K, D = 256, 8192
    X = np.random.default_rng(0).standard_normal((1024, D)) * np.linspace(3, 0.1, D)
    rows, models, best = (X, torch.asarray(X)), (FSM(K), FSM(K)), [np.inf, np.inf]
    for repeat in range(5):
        for index in range(2):
            start = time.perf_counter()
            models[index].fit_block(rows[index])
            best[index] = min(best[index], time.perf_counter() - start) if repeat else np.inf
    error = subspace_error(np.asarray(models[1].get_components()), models[0].get_components())
    console.print(
        f"torch, D={D}, K={K}: {1e6 * best[1] / 1024:.0f} µs a sample, NumPy {1e6 * best[0] / 1024:.0f} µs: "
        f"{best[1] / best[0]:.2f}×; distance between the bases {error:.1e}"
    )


def main() -> None:
    console = Console(width=150)
    with threadpool_limits(1), TemporaryDirectory() as folder:
        torch_overhead(console)
        sparse_table(console, folder)
        slopes(console)
        slopes(console, "fsm")
        dask_workers(console)


if __name__ == "__main__":
    with threadpool_limits(1):
        print(json.dumps(run_method(*sys.argv[1:])))
