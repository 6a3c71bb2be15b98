"""Sparse rows: the model of the dense path, without ever making them dense."""

from __future__ import annotations

import copy
import pickle
import tracemalloc
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from online_psp import ALGORITHMS, OnlinePCA
from online_psp.engine.sparse import Centre, SparseGramBlock, SparseRows
from online_psp.metrics import subspace_error
from tests.oracle import NAMES


def counts(n: int = 900, D: int = 300, density: float = 0.05, seed: int = 0, index: Any = np.int32) -> Any:
    """Counts with a few topics, some empty rows and columns, and a mean far from zero."""
    rng = np.random.default_rng(seed)
    topics = rng.gamma(0.3, size=(5, D))
    rates = rng.gamma(1.0, size=(n, 5)) @ topics
    X = rng.poisson(rates * density * 20 / rates.mean()) * (rng.random((n, D)) < 0.3)
    X[::17] = 0
    X[:, ::29] = 0
    matrix = sparse.csr_array(X.astype(np.float64))
    matrix.indices, matrix.indptr = matrix.indices.astype(index), matrix.indptr.astype(index)
    return matrix


def distance(one: OnlinePCA, two: OnlinePCA) -> float:
    """Largest difference between two models, relative to their size."""
    parts = (
        subspace_error(one.components_.T, two.components_.T),
        np.abs(one.explained_variance_ / two.explained_variance_ - 1).max(),
        np.abs(one.mean_ - two.mean_).max() / np.abs(two.mean_).max() if two.center else 0.0,
        abs(one.noise_variance_ / two.noise_variance_ - 1),
    )
    return float(max(parts))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_the_same_model_as_from_dense_rows(name: str, center: bool, index: Any) -> None:
    X = counts(index=index)
    dense = OnlinePCA(4, algorithm=name, center=center).fit(X.toarray())
    model = OnlinePCA(4, algorithm=name, center=center)
    for start in (0, 5, 100, 101, 500):
        stop = {0: 5, 5: 100, 100: 101, 101: 500, 500: 900}[start]
        model.partial_fit(X[start:stop])
    assert model._stream.exact is None
    assert model.n_samples_seen_ == 900
    assert distance(model, dense) < 1e-9
    assert np.allclose(model.transform(X), dense.transform(X.toarray()), atol=1e-7)
    assert np.allclose(model.score_samples(X), dense.score_samples(X.toarray()), rtol=1e-9)


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csc_array, sparse.coo_array, sparse.csr_array])
def test_any_sparse_format(kind: Any) -> None:
    X = counts()
    assert distance(OnlinePCA(4).fit(kind(X)), OnlinePCA(4).fit(X)) < 1e-12


def test_duplicate_entries_add_up_and_the_input_is_left_alone() -> None:
    X = counts(600)
    half = X.copy()
    half.data = half.data / 2
    twice = sparse.coo_array((np.tile(half.tocoo().data, 2), (np.tile(half.tocoo().row, 2), np.tile(half.tocoo().col, 2))), shape=X.shape)
    doubled = sparse.csr_array(X.shape)
    doubled.indptr, doubled.indices, doubled.data = 2 * X.indptr, np.repeat(X.indices, 2), np.repeat(half.data, 2)
    kept = doubled.indices.copy()
    assert distance(OnlinePCA(4).fit(doubled), OnlinePCA(4).fit(X)) < 1e-10
    assert distance(OnlinePCA(4).fit(twice), OnlinePCA(4).fit(X)) < 1e-10
    assert np.array_equal(doubled.indices, kept)


@pytest.mark.parametrize("name", NAMES)
def test_weights(name: str) -> None:
    X, weights = counts(), np.random.default_rng(1).integers(0, 4, 900).astype(float)
    dense = OnlinePCA(4, algorithm=name).fit(X.toarray(), sample_weight=weights)
    assert distance(OnlinePCA(4, algorithm=name).fit(X, sample_weight=weights), dense) < 1e-9


@pytest.mark.parametrize("name", NAMES)
def test_few_features_stay_exact(name: str) -> None:
    X = counts(D=60)
    dense = OnlinePCA(8, algorithm=name).fit(X.toarray())
    for center in (True, False):
        model = OnlinePCA(8, algorithm=name, center=center).partial_fit(X[:300]).partial_fit(X[300:])
        assert model._stream.exact is not None
        assert distance(model, OnlinePCA(8, algorithm=name, center=center).fit(X.toarray())) < 1e-9
    mixed = OnlinePCA(8, algorithm=name).partial_fit(X[:300]).partial_fit(X[300:600].toarray()).partial_fit(X[600:])
    assert distance(mixed, dense) < 1e-9


@pytest.mark.parametrize("name", NAMES)
def test_dense_and_sparse_calls_may_alternate(name: str) -> None:
    X = counts()
    rows = X.toarray()
    dense = OnlinePCA(4, algorithm=name).fit(rows)
    model = OnlinePCA(4, algorithm=name).partial_fit(X[:200]).partial_fit(rows[200:400]).partial_fit(X[400:700])
    for x in rows[700:710]:
        model.fit_next(x)
    model = pickle.loads(pickle.dumps(model.partial_fit(X[710:800])))
    model = copy.deepcopy(model).partial_fit(X[800:])
    assert distance(model, dense) < 1e-9


def test_merging_models_of_sparse_rows() -> None:
    X = counts()
    one, two = OnlinePCA(4).fit(X[:400]), OnlinePCA(4).fit(X[400:])
    one_dense, two_dense = OnlinePCA(4).fit(X[:400].toarray()), OnlinePCA(4).fit(X[400:].toarray())
    assert distance(one.merge(two), one_dense.merge(two_dense)) < 1e-9
    assert np.allclose(one.mean_, X.toarray().mean(axis=0), atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_float32(name: str) -> None:
    X = counts()
    model = OnlinePCA(4, algorithm=name).fit(X.astype(np.float32))
    assert model.components_.dtype == model.transform(X.astype(np.float32)).dtype == np.float32
    assert distance(model, OnlinePCA(4, algorithm=name).fit(X)) < 1e-3


def test_a_mean_far_larger_than_the_deviations() -> None:
    X = counts()
    X.data += 300.0
    rows = X.toarray()
    rows[:, :10] += 1000.0
    matrix = sparse.csr_array(rows)
    assert distance(OnlinePCA(4).fit(matrix), OnlinePCA(4).fit(rows)) < 1e-9


@pytest.mark.parametrize("name", NAMES)
def test_the_algorithms_take_sparse_blocks(name: str) -> None:
    X = counts()
    one, two = ALGORITHMS[name](6), ALGORITHMS[name](6)
    Y = np.concatenate([one.fit_block(X[:3]), one.fit_block(X[3:500]), one.fit_block(X[500:])])
    assert np.allclose(Y, two.fit_block(X.toarray()), atol=1e-9 * np.abs(Y).max())
    assert subspace_error(one.get_components(), two.get_components()) < 1e-9
    bad = X[:50].copy()
    bad.data[bad.indptr[7]] = np.nan
    before = pickle.dumps(one)
    with pytest.raises(ValueError, match="Row 7 has NaN"):
        one.fit_block(bad)
    with pytest.raises(ValueError, match=r"shape \(n, 300\); got shape"):
        one.fit_block(X[:, :20])
    assert pickle.dumps(one) == before


def test_forgetting_does_not_exhaust_the_scale_kept_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    X = counts(3000, seed=4)
    dense, model = (OnlinePCA(3, learning_rate=lambda t: 0.02) for _ in range(2))
    with monkeypatch.context() as patched:
        patched.setattr("online_psp.engine.sparse.least_scale", lambda dtype: 1e-10)
        assert distance(model.fit(X), dense.fit(X.toarray())) < 1e-9
    assert 0.98**3000 < 1e-10 < model._stream.model._block.s  # it was taken into V on the way
    long = OnlinePCA(3, learning_rate=lambda t: 0.3).fit(X)
    assert 0.7**2900 < 1e-100 < long._stream.model._block.s
    assert np.allclose(long.components_ @ long.components_.T, np.eye(3), atol=1e-10)


def test_only_the_columns_that_occur_move() -> None:
    X = counts()
    X = sparse.hstack([X, sparse.csr_array((900, 200))], format="csr")
    model = OnlinePCA(4).fit(X[:500])
    block = model._stream.model._block
    assert isinstance(block, SparseGramBlock)
    before = block.V.copy()
    model.partial_fit(X[500:520])
    touched = np.zeros(500, dtype=bool)
    touched[X[500:520].indices] = True
    assert np.array_equal(np.any(before != block.V, axis=1), touched)


def test_what_is_followed_through_the_blocks_does_not_drift() -> None:
    X = counts(4000, seed=2)
    rng = np.random.default_rng(0)
    centre = Centre(rng.standard_normal(300), 10.0, 0.0)
    block = SparseGramBlock(rng.standard_normal((6, 300)), centre)
    for start in range(0, 4000, 40):
        block.load(SparseRows(X[start : start + 40], np.ones(40), centre))
        block._entries = 0  # no refresh
        block.expand(0.9, 0.01 * rng.standard_normal((6, 40)))
    WS, square = block.WS, block.square
    block._refresh()
    assert np.allclose(WS, block.WS, rtol=1e-10, atol=1e-12 * np.abs(WS).max())
    assert square == pytest.approx(block.square, rel=1e-12)


def test_memory_is_that_of_the_basis() -> None:
    rng = np.random.default_rng(0)
    n, D = 4000, 40_000
    X = sparse.csr_array((rng.standard_normal(n * 20), rng.integers(0, D, n * 20), np.arange(0, n * 20 + 1, 20)), shape=(n, D))
    X.sum_duplicates()
    model = OnlinePCA(2, oversample=2).partial_fit(X[:200])
    model.partial_fit(X[200:400])
    tracemalloc.start()
    model.partial_fit(X[400:])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * D * 8 + 3 * X.data.nbytes  # dense rows would take 4000 × 40000
