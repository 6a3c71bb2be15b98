"""Rows over Dask workers."""

from __future__ import annotations

import functools
import os
import signal
import time
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pandas as pd
import pytest
from dask import array as da
from dask import delayed
from scipy import sparse
from sklearn.decomposition import PCA

from online_psp import OnlinePCA
from online_psp.integrations import dask as distributed
from online_psp.metrics import subspace_error
from tests.oracle import wide

pytestmark = pytest.mark.filterwarnings("default")  # Dask's own warnings are not ours to fail on


@pytest.fixture(autouse=True)
def _in_this_thread() -> Any:
    with dask.config.set(scheduler="synchronous"):
        yield


def test_rows_in_partitions_are_the_rows_of_one_stream() -> None:
    X = wide(4000)
    single, batch = OnlinePCA(5).fit(X), PCA(5).fit(X)
    template = OnlinePCA(5)
    model = distributed.fit(template, da.from_array(X, chunks=(1000, 50)))
    assert not template.__sklearn_is_fitted__()
    assert model.n_samples_seen_ == 4000
    assert np.allclose(model.mean_, X.mean(axis=0), atol=1e-12)
    assert model.explained_variance_ == pytest.approx(batch.explained_variance_, rel=0.01)
    error = subspace_error(single.components_.T, batch.components_.T)
    assert subspace_error(model.components_.T, batch.components_.T) <= 2 * error
    Y = distributed.transform(model, da.from_array(X, chunks=(700, 300)))
    assert isinstance(Y, da.Array)
    assert Y.shape == (4000, 5)
    assert np.allclose(Y.compute(), model.transform(X))


@pytest.mark.parametrize("kind", ["delayed", "sparse", "frame", "sparse array"])
def test_other_collections(kind: str) -> None:
    X = wide(900) * (np.random.default_rng(0).random((900, 300)) < 0.2)
    pieces = [X[start : start + 300] for start in range(0, 900, 300)]
    collection: Any
    if kind == "delayed":
        collection = [delayed(piece) for piece in [*pieces, X[:0]]]
    elif kind == "sparse":
        collection = [delayed(sparse.csr_array(piece)) for piece in pieces]
    elif kind == "sparse array":
        collection = da.from_array(X, chunks=(300, 300)).map_blocks(sparse.csr_matrix)
    else:
        frame = pytest.importorskip("dask.dataframe")
        collection = frame.from_pandas(pd.DataFrame(X, columns=[f"f{i}" for i in range(300)]), npartitions=3)
    model = distributed.fit(OnlinePCA(3), collection)
    expected = functools.reduce(lambda one, two: one.merge(two), [OnlinePCA(3).fit(piece) for piece in pieces])
    assert model.n_samples_seen_ == 900
    assert np.allclose(model.mean_, expected.mean_, atol=1e-12)
    assert subspace_error(model.components_.T, expected.components_.T) < 1e-9
    Y = distributed.transform(model, collection).compute()
    assert np.allclose(Y, model.transform(pd.DataFrame(X, columns=model.feature_names_in_) if kind == "frame" else X))


def test_partitions_in_a_row_for_one_model() -> None:
    X = wide(1200)
    parts = [delayed(part) for part in np.split(X, 12)]
    one = distributed.fit(OnlinePCA(3), [*parts[:5], delayed(X[:0]), *parts[5:]], per_model=20)
    assert subspace_error(one.components_.T, OnlinePCA(3).fit(X).components_.T) < 1e-10  # one model for all of them: the stream itself
    three = distributed.fit(OnlinePCA(3), parts, per_model=4)
    expected = functools.reduce(lambda one, two: one.merge(two), [OnlinePCA(3).fit(part) for part in np.split(X, 3)])
    assert three.n_samples_seen_ == 1200
    assert subspace_error(three.components_.T, expected.components_.T) < 1e-10


def test_results_repeat() -> None:
    X = da.from_array(wide(1000), chunks=(100, 300))
    assert np.array_equal(distributed.fit(OnlinePCA(3), X).components_, distributed.fit(OnlinePCA(3), X, progress=True).components_)


def test_what_cannot_be_learned_from() -> None:
    with pytest.raises(TypeError, match="dask array, a dask dataframe or a list of delayed blocks; got ndarray"):
        distributed.fit(OnlinePCA(3), wide(100))
    with pytest.raises(ValueError, match="no partitions"):
        distributed.fit(OnlinePCA(3), [])
    with pytest.raises(ValueError, match="two dimensions, with samples as rows; got 1"):
        distributed.fit(OnlinePCA(3), da.zeros(10))
    with pytest.raises(ValueError, match="All partitions are empty"):
        distributed.fit(OnlinePCA(3), [delayed(wide(10)[:0])])


BLOCKS = np.split(wide(2400), 8)


def slow_block(seed: int, folder: str, waits: bool) -> Any:
    """A block of rows, and a file that says which process made it; the one that waits stops until it is told to go on."""
    (Path(folder) / f"{seed}-{os.getpid()}").touch()
    while waits and not (Path(folder) / "go").exists():
        time.sleep(0.02)
    return BLOCKS[seed]


def test_a_worker_killed_in_the_middle_costs_no_row(tmp_path: Path) -> None:
    cluster_module = pytest.importorskip("distributed")
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "10s"}),
        cluster_module.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        cluster_module.Client(cluster) as client,
    ):
        blocks = [delayed(slow_block)(seed, str(tmp_path), seed == 5) for seed in range(8)]
        future = client.compute(distributed.fit_lazily(OnlinePCA(3), blocks))
        deadline = time.monotonic() + 60
        while not (held := list(tmp_path.glob("5-*"))) and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(int(held[0].name.split("-")[1]), signal.SIGKILL)
        (tmp_path / "go").touch()
        model = future.result(timeout=120)
    assert len(list(tmp_path.glob("5-*"))) == 2  # it was made again, by another process
    X = np.concatenate(BLOCKS)
    assert model.n_samples_seen_ == len(X) == 2400
    assert np.allclose(model.mean_, X.mean(axis=0), atol=1e-12)
    assert model.explained_variance_ratio_ == pytest.approx(PCA(3).fit(X).explained_variance_ratio_, rel=0.01)
