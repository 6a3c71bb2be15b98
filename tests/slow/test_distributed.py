"""One reducer, three engines: each learns the model that one pass does, whatever becomes of its workers."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from online_psp import OnlinePCA, distributed
from online_psp.datasets import load
from online_psp.engine.types import Array
from online_psp.metrics import subspace_error
from tests.oracle import wide

pytestmark = pytest.mark.filterwarnings("default")  # the engines' own warnings are not ours to fail on


def at_part(parts: list[Array], killed_at: Path | None) -> Callable[[int], dict[str, Any]]:
    """A function, pickled by value, that makes the columns of a partition: rows x, weights w and times t."""

    def columns(part: int) -> dict[str, Any]:
        import os
        import signal

        if part == 5 and killed_at is not None and not killed_at.exists():
            killed_at.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        n = len(parts[part])
        return {"x": parts[part], "w": np.arange(n) % 3 + 1.0, "t": np.arange(n) * 1.0}

    return columns


class Dask:
    """An array with blocks of unknown length, in this thread."""

    features: ClassVar[dict[str, Any]] = {}

    def rows(self, parts: list[Array], killed_at: Path | None = None) -> Any:
        array, delayed = pytest.importorskip("dask.array"), pytest.importorskip("dask").delayed
        made, D = delayed(at_part(parts, killed_at)), parts[0].shape[1]
        blocks = [made(part)["x"] for part in range(len(parts))]
        return array.concatenate([array.from_delayed(block, (np.nan, D), float) for block in blocks], allow_unknown_chunksizes=True)

    def beside(self, parts: list[Array], name: str) -> dict[str, Any]:
        array = pytest.importorskip("dask.array")
        blocks = [array.from_array(at_part(parts, None)(part)[name]) for part in range(len(parts)) if len(parts[part])]
        return {"weights" if name == "w" else "times": array.concatenate(blocks)}

    def values(self, lazy: Any, column: str) -> Array:
        return np.asarray(lazy.compute())


class Spark:
    """A DataFrame with one column of arrays."""

    features: ClassVar[dict[str, Any]] = {"features": ["x"]}

    def __init__(self, session: Any) -> None:
        self.session = session

    def rows(self, parts: list[Array], killed_at: Path | None = None) -> Any:
        made = at_part(parts, killed_at)

        def batches(ids: Any) -> Any:
            import pyarrow as pa

            for batch in ids:
                for part in batch.column(0).to_pylist():
                    found = made(part)
                    yield pa.RecordBatch.from_pydict({**found, "x": pa.array(list(found["x"]), pa.list_(pa.float64()))})

        return self.session.range(0, len(parts), 1, len(parts)).mapInArrow(batches, "x array<double>, w double, t double")

    def beside(self, parts: list[Array], name: str) -> dict[str, Any]:
        return {"weights" if name == "w" else "times": name}

    def values(self, lazy: Any, column: str) -> Array:
        return np.array([row[column] for row in lazy.select(column).collect()])


class Ray(Spark):
    """A Dataset with a column of tensors."""

    def rows(self, parts: list[Array], killed_at: Path | None = None) -> Any:
        made = at_part(parts, killed_at)
        numbers = self.session.data.range(len(parts), override_num_blocks=len(parts))
        return numbers.map_batches(lambda batch: made(int(batch["id"][0])), batch_size=None)

    def values(self, lazy: Any, column: str) -> Array:
        return np.concatenate([np.asarray(list(batch[column])) for batch in lazy.iter_batches(batch_format="numpy")])


@pytest.fixture(scope="module", params=["dask", "spark", "ray"])
def engine(request: pytest.FixtureRequest) -> Iterator[Any]:
    if importlib.util.find_spec({"spark": "pyspark"}.get(request.param, request.param)) is None:
        pytest.skip(f"{request.param} is not installed")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    if request.param == "dask":
        import dask

        with dask.config.set(scheduler="synchronous"):
            yield Dask()
    elif request.param == "spark":
        if shutil.which("java") is None:
            pytest.skip("Spark needs Java, which is not installed")
        from pyspark.sql import SparkSession

        options = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", "spark.driver.host": "127.0.0.1"}
        session = SparkSession.builder.master("local[2, 4]").config(map=options).getOrCreate()
        yield Spark(session)
        session.stop()
    else:
        import ray

        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
        ray.data.DataContext.get_current().enable_progress_bars = False
        yield Ray(ray)
        ray.shutdown()


def same(model: OnlinePCA, expected: OnlinePCA, most: float) -> None:
    assert model.n_samples_seen_ == expected.n_samples_seen_
    assert np.allclose(model.mean_, expected.mean_, rtol=1e-10, atol=1e-10)
    assert np.allclose(model.var_, expected.var_, rtol=1e-10, atol=1e-10)
    assert subspace_error(model.components_.T, expected.components_.T) < most


def split(X: Array) -> list[Array]:
    """Eight partitions: one empty, one with fewer rows than components."""
    return np.split(X, [200, 200, 203, 400, 500, 600, 800])


@pytest.mark.parametrize("options", [{}, {"missing": "impute"}, {"robust": True}, {"standardize": True}, {"dtype": "float32"}], ids=str)
def test_the_model_of_one_pass(engine: Any, options: dict[str, Any]) -> None:
    X = wide(1000, 30)
    if "missing" in options:
        X[np.random.default_rng(1).random(X.shape) < 0.2] = np.nan
    template, whole = OnlinePCA(5, **options), OnlinePCA(5, **options).fit(X)
    model = distributed.fit(engine.rows(split(X)), template, **engine.features)
    assert not template.__sklearn_is_fitted__()
    if options in ({}, {"standardize": True}):
        same(model, whole, 1e-10)
    else:
        assert model.n_samples_seen_ == 1000
        assert np.allclose(model.mean_, whole.mean_, rtol=1e-2 if "robust" in options else 1e-5, atol=1e-5)
        most = {"missing": 1e-2, "robust": 1e-2, "dtype": 1e-4}[next(iter(options))]
        assert subspace_error(model.components_.T, whole.components_.T) < most


def test_weights_and_times(engine: Any) -> None:
    X = wide(1000, 30)
    parts = split(X)
    made = [at_part(parts, None)(part) for part in range(8)]
    rows = engine.rows([part for part in parts if len(part)] if isinstance(engine, Dask) else parts)
    weighted = distributed.fit(rows, OnlinePCA(5), **engine.features, **engine.beside(parts, "w"))
    same(weighted, OnlinePCA(5).fit(X, sample_weight=np.concatenate([part["w"] for part in made])), 1e-10)
    forgets = distributed.fit(rows, OnlinePCA(5, half_life="50s"), **engine.features, **engine.beside(parts, "t"))
    times = np.concatenate([part["t"] for part in made])
    order = np.argsort(times, kind="stable")
    same(forgets, OnlinePCA(5, half_life="50s").fit(X[order], times=times[order]), 1e-9)


def test_images_in_16_parts(engine: Any, data_home: Path) -> None:
    X = np.asarray(load("mnist", data_home, download=False).X, dtype=np.float64)
    batch = np.linalg.eigh(np.cov(X.T))[1][:, -16:]
    model = distributed.fit(engine.rows(np.array_split(X, 16)), OnlinePCA(16), **engine.features)
    assert model.n_samples_seen_ == len(X)
    assert np.allclose(model.mean_, X.mean(axis=0), rtol=1e-10)
    assert np.allclose(model.var_, X.var(axis=0, ddof=1), rtol=1e-10)
    assert subspace_error(model.components_.T, batch) <= 0.003


def test_rows_are_transformed_and_scored_where_they_are(engine: Any) -> None:
    X = wide(1000, 30)
    rows, model = engine.rows(split(X)), OnlinePCA(5).fit(X)
    assert np.allclose(engine.values(distributed.transform(rows, model, **engine.features), "pca"), model.transform(X))
    assert np.allclose(engine.values(distributed.score(rows, model, **engine.features), "score"), model.score_samples(X))


def test_a_killed_worker_costs_no_row(engine: Any, tmp_path: Path) -> None:
    X, killed = wide(1000, 30), tmp_path / "killed"
    rows = engine.rows(split(X), killed)
    if isinstance(engine, Dask):
        from distributed import Client, LocalCluster

        with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster, Client(cluster):
            model = distributed.fit(rows, OnlinePCA(5))
    else:
        model = distributed.fit(rows, OnlinePCA(5), **engine.features)
    assert killed.exists()
    same(model, OnlinePCA(5).fit(X), 1e-10)


def test_an_error_is_a_sentence_that_names_the_partition(engine: Any) -> None:
    X = wide(1000, 30)
    X[650, 7] = np.nan  # in partition 6
    with pytest.raises(ValueError, match=r"^Partition 6: .*NaN.*row 50, column 7") as caught:
        distributed.fit(engine.rows(split(X)), OnlinePCA(5), **engine.features)
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="half_life must be a time"):
        distributed.fit(engine.rows(split(X)), OnlinePCA(5, half_life=100), **engine.features)
    with pytest.raises(ValueError, match="empty"):
        distributed.fit(engine.rows([X[:0], X[:0]]), OnlinePCA(5), **engine.features)


def test_results_do_not_depend_on_timing(engine: Any) -> None:
    X = wide(2000)
    one, two = (distributed.fit(engine.rows(np.array_split(X, 7)), OnlinePCA(5), **engine.features) for _ in range(2))
    assert np.array_equal(one.components_, two.components_)


# What one engine has and others have not


@pytest.mark.parametrize("engine", ["dask"], indirect=True)
@pytest.mark.parametrize("kind", ["sparse", "frame", "bag", "sparse bag", "list", "list of frames", "wide chunks"])
def test_collections_of_dask(engine: Any, kind: str) -> None:
    import dask.array as da
    from dask import bag, dataframe, delayed

    X = wide(900, 30) * (np.random.default_rng(0).random((900, 30)) < 0.2)
    table = pd.DataFrame(X, columns=[f"f{i}" for i in range(30)])
    made: dict[str, Callable[[], Any]] = {
        "sparse": lambda: da.from_array(X, chunks=(300, 30)).map_blocks(sparse.csr_matrix),
        "frame": lambda: dataframe.from_pandas(table.assign(w=1.0), npartitions=3),
        "bag": lambda: bag.from_sequence(list(X), npartitions=4).filter(lambda row: True),
        "sparse bag": lambda: bag.from_sequence(list(sparse.csr_matrix(X)), npartitions=4),
        "list": lambda: [delayed(part) for part in np.split(X, 3)],
        "list of frames": lambda: [delayed(part) for part in (table[:300], table[300:])],
        "wide chunks": lambda: da.from_array(X, chunks=(200, 7)),
    }
    rows = made[kind]()
    model = distributed.fit(rows, OnlinePCA(3), weights="w" if kind == "frame" else None)
    same(model, OnlinePCA(3).fit(X), 1e-10)
    expected = model.transform(table if "frame" in kind else X)
    assert np.allclose(distributed.transform(rows, model).compute(), expected)
    if "frame" in kind:
        assert list(model.feature_names_in_) == list(table.columns)


@pytest.mark.parametrize("engine", ["spark", "ray"], indirect=True)
def test_one_column_a_feature(engine: Any) -> None:
    table = pd.DataFrame(wide(400, 4, 2), columns=list("abcd")).assign(w=2.0, name="text")
    if isinstance(engine, Ray):
        rows: Any = engine.session.data.from_pandas([table[:100], table[100:300], table[300:]])
    else:
        rows = engine.session.createDataFrame(table.values.tolist(), list(table.columns)).repartition(3)
    model = distributed.fit(rows, OnlinePCA(2), features=list("abcd"), weights="w")
    X = table[list("abcd")]
    expected = OnlinePCA(2).fit(X, sample_weight=table["w"])
    same(model, expected, 1e-10)
    assert list(model.feature_names_in_) == list("abcd")
    assert np.allclose(np.sort(engine.values(distributed.score(rows, model), "score")), np.sort(expected.score_samples(X)))
    with pytest.raises(ValueError, match="no column 'weight'"):
        distributed.fit(rows, OnlinePCA(2), weights="weight")
    with pytest.raises(ValueError, match=r"Partition \d: .*'name'.*not numbers"):
        distributed.fit(rows, OnlinePCA(2))


@pytest.mark.parametrize("engine", ["spark"], indirect=True)
@pytest.mark.parametrize("dense", [0, 2, 1])
def test_vectors_of_spark(engine: Any, dense: int) -> None:
    from pyspark.ml.linalg import Vectors

    X = wide(300, 30) * (np.random.default_rng(0).random((300, 30)) < 0.2)
    made = [Vectors.sparse(30, np.flatnonzero(row), row[row != 0]) if dense == 0 or (dense == 2 and i % 2) else Vectors.dense(row)
            for i, row in enumerate(X)]  # fmt: skip
    rows = engine.session.createDataFrame([(vector,) for vector in made], ["x"])
    model = distributed.fit(rows, OnlinePCA(3))
    same(model, OnlinePCA(3).fit(X), 1e-10)
    assert np.allclose(engine.values(distributed.transform(rows, model), "pca"), model.transform(X))


@pytest.mark.parametrize("engine", ["spark", "ray"], indirect=True)
def test_vectors_of_different_lengths(engine: Any) -> None:
    X = wide(100, 30)
    if isinstance(engine, Ray):
        rows: Any = engine.session.data.from_items([{"x": [1.0, 2.0]}, {"x": [1.0]}], override_num_blocks=1)
    else:
        rows = engine.session.createDataFrame([([1.0, 2.0],), ([1.0],)], "x array<double>").coalesce(1)
    with pytest.raises(ValueError, match=r"^Partition 0: .*'x'.*length.*row 1"):
        distributed.fit(rows, OnlinePCA(1))
    with pytest.raises(ValueError, match=r"^Partition 0 cannot be merged with partition 1: .*features"):
        distributed.fit(engine.rows([X, X[:, :20]]), OnlinePCA(3), features="x")
    with pytest.raises(ValueError, match="'x' already"):
        distributed.transform(engine.rows([X]), OnlinePCA(3).fit(X), features="x", column="x")


def test_what_cannot_be_learned_from() -> None:
    with pytest.raises(TypeError, match=r"Dask.*Spark.*Ray.*ndarray"):
        distributed.fit(wide(100), OnlinePCA(3))
    with pytest.raises(TypeError, match="list"):
        distributed.fit([], OnlinePCA(3))
    with pytest.raises(ValueError, match="no columns"):
        distributed.fit(pytest.importorskip("dask.array").zeros((10, 4)), OnlinePCA(3), features=["x"])
    with pytest.raises(ValueError, match=r"Partition 0: .*inhomogeneous"):
        distributed.fit(pytest.importorskip("dask.bag").from_sequence([[1.0, 2.0], [3.0]], npartitions=1), OnlinePCA(1))
    with pytest.raises(ValueError, match="no partitions"):
        distributed.reduce([])
    parts = [OnlinePCA(3, half_life=100).fit(wide(100)) for _ in range(2)]
    with pytest.raises(ValueError, match="half_life"):
        distributed.reduce(parts)


def test_reduce_leaves_its_models_alone() -> None:
    X = wide(700, 30)
    parts = [OnlinePCA(3).fit(part) for part in np.split(X, 7)]
    same(distributed.reduce(iter(parts)), OnlinePCA(3).fit(X), 1e-10)
    assert [part.n_samples_seen_ for part in parts] == [100] * 7
    assert distributed.reduce(parts[:1]).n_samples_seen_ == 100
