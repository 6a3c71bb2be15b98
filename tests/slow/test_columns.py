"""Columns over Dask workers: the iterates of one machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from dask import array as da
from scipy import sparse

from online_psp import FSM
from online_psp.integrations.dask import ColumnFSM
from online_psp.metrics import subspace_error
from tests.oracle import wide

pytestmark = pytest.mark.filterwarnings("default")  # Dask's own warnings are not ours to fail on
distributed = pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """Three workers, in threads of this process: each has its own address and its own columns."""
    with (
        distributed.LocalCluster(n_workers=3, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.mark.parametrize("kind", ["array", "dask", "sparse", "dask of sparse"])
def test_equal_to_one_machine(client: Any, kind: str) -> None:
    X = wide(600) * (np.random.default_rng(0).random((600, 300)) < 0.3)
    alone = FSM(6)
    expected = alone.fit_block(X)
    rows: Any = {
        "array": X,
        "dask": da.from_array(X, chunks=(250, 30)),
        "sparse": sparse.csr_array(X),
        "dask of sparse": da.from_array(X, chunks=(250, 40)).map_blocks(sparse.csr_matrix),
    }[kind]
    with ColumnFSM(6, client=client) as fsm:
        Y = fsm.fit_block(rows)
        assert fsm.t == 600
        assert subspace_error(fsm.get_components(), alone.get_components()) < 1e-10
        assert np.allclose(np.abs(fsm.W), np.abs(alone.W), atol=1e-10 * np.abs(alone.W).max())
        assert np.allclose(np.abs(Y), np.abs(expected), atol=1e-10 * np.abs(expected).max())
        components, variances = fsm.principal_components()
        assert isinstance(components, da.Array)
        expected_components, expected_variances = alone.principal_components()
        assert np.allclose(variances, expected_variances, rtol=1e-9)
        assert np.allclose(np.abs(components.compute()), np.abs(expected_components), atol=1e-7)


@pytest.mark.parametrize("unit", [1e-2, 1.0, 1e3])
@pytest.mark.parametrize("K", [6, 40])
def test_equal_to_one_machine_however_long_the_rows_are(client: Any, unit: float, K: int) -> None:
    """The published start is made for rows of length one; with long rows, as those of very many features are, it must not cost digits.

    What rounding alone does to one machine is the measure: 1e-14 for K=6, and 3e-11 for K=40, which is in the noise of this data.
    """
    X = unit * wide(600)
    alone, near = FSM(K), FSM(K)
    expected = alone.fit_block(X)
    near.fit_block(np.nextafter(X, np.where(np.random.default_rng(1).random(X.shape) < 0.5, -np.inf, np.inf)))
    own = subspace_error(near.get_components(), alone.get_components())
    assert own < 1e-10, f"rounding of the data alone moves the basis by {own:.1e}"
    with ColumnFSM(K, client=client, block_size=48) as fsm:  # other blocks than FSM takes by itself
        Y = fsm.fit_block(da.from_array(X, chunks=(250, 30)))
        error = subspace_error(fsm.get_components(), alone.get_components())
        assert error < 10 * own + 1e-13, f"the bases are {error:.1e} apart, and rounding alone makes that {own:.1e}"
        outputs = np.abs(np.abs(Y) - np.abs(expected)).max() / np.abs(expected).max()
        assert outputs < 1e-10, f"the outputs are {outputs:.1e} apart, relative to the largest"


def test_another_step_size_for_m_takes_the_recurrence(client: Any) -> None:
    X = wide(600) / 35  # about as long as the published start has them
    rates: dict[str, Any] = {"learning_rate": lambda t: 2 / (2 * t + 5), "beta": lambda t: 1 / (t + 4)}
    alone = FSM(6, **rates)
    alone.fit_block(X)
    with ColumnFSM(6, client=client, **rates) as fsm:
        assert fsm.fit_block(X).shape == (600, 6)
        assert fsm.t == 600
        assert subspace_error(fsm.get_components(), alone.get_components()) < 1e-10


def test_going_on_with_more_rows_and_other_rates(client: Any) -> None:
    X = wide(500)
    alone = FSM(5, learning_rate=lambda t: 0.1, block_size=128)  # fades quickly: blocks end early
    alone.fit_block(X)
    with ColumnFSM(5, client=client, learning_rate=lambda t: 0.1, block_size=128) as fsm:
        fsm.fit_block(X[:100])
        fsm.fit_block(da.from_array(X[100:], chunks=(77, 50)))
        assert subspace_error(fsm.get_components(), alone.get_components()) < 1e-8  # forgetting blows rounding up, on one machine too


def test_first_rows_that_depend_on_each_other(client: Any) -> None:
    X = wide(400, D=120)
    X[:4] = X[0]
    with ColumnFSM(5, client=client) as fsm:
        fsm.fit_block(X)
        U = fsm.get_components()
    assert np.allclose(U.T @ U, np.eye(5), atol=1e-10)
    assert subspace_error(U, np.linalg.svd(X)[2][:5].T) < 0.5


def test_bad_rows(client: Any) -> None:
    X = wide(100)
    bad = X.copy()
    bad[60, 3] = np.nan
    with ColumnFSM(5, client=client) as fsm:
        with pytest.raises(ValueError, match="at least K=5 rows; it has 3"):
            fsm.fit_block(X[:3])
        fsm.fit_block(X)
        before = fsm.W
        with pytest.raises(ValueError, match="Rows 0 to 99 have NaN or infinity"):
            fsm.fit_block(bad)
        with pytest.raises(ValueError, match=r"shape \(n, 300\); got shape \(100, 7\)"):
            fsm.fit_block(X[:, :7])
        with pytest.raises(TypeError, match="blocks of rows"):
            fsm.fit_next(X[0])
        assert np.array_equal(before, fsm.W)


def test_a_lost_worker_is_an_error_and_not_a_hang() -> None:
    X = wide(200)
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        fsm = ColumnFSM(5, client=client)
        fsm.fit_block(X)
        client.retire_workers([sorted(client.scheduler_info(n_workers=-1)["workers"])[1]])
        with pytest.raises(RuntimeError, match="is gone, and its columns with it"):
            fsm.fit_block(da.from_array(X, chunks=(100, 300)))


@pytest.mark.parametrize("kind", ["array", "dask", "read-out"])
def test_a_lost_worker_is_a_sentence(kind: str) -> None:
    """The columns that it held are gone: said so, with its address, and no error of Dask's."""
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        X = wide(300)
        fsm = ColumnFSM(6, client=client)
        fsm.fit_block(X[:200])
        address = sorted(client.scheduler_info(n_workers=-1)["workers"])[0]
        client.retire_workers([address])
        rows: Any = da.from_array(X[200:], chunks=(50, 40)) if kind == "dask" else X[200:]
        attempt: Any = fsm.get_components if kind == "read-out" else lambda: fsm.fit_block(rows)
        with pytest.raises(RuntimeError, match=f"Worker {address} is gone, and its columns with it; start the fit anew"):
            attempt()
