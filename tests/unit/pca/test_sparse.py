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


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_the_same_model_as_from_dense_rows(center: bool, index: Any) -> None:
    X = counts(index=index)
    dense = OnlinePCA(4, center=center).fit(X.toarray())
    model = OnlinePCA(4, center=center)
    for start in (0, 5, 100, 101, 500):
        stop = {0: 5, 5: 100, 100: 101, 101: 500, 500: 900}[start]
        model.partial_fit(X[start:stop])
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


def test_weights() -> None:
    X, weights = counts(), np.random.default_rng(1).integers(0, 4, 900).astype(float)
    dense = OnlinePCA(4).fit(X.toarray(), sample_weight=weights)
    assert distance(OnlinePCA(4).fit(X, sample_weight=weights), dense) < 1e-9


def test_few_features_stay_exact() -> None:
    X = counts(D=60)
    dense = OnlinePCA(8).fit(X.toarray())
    for center in (True, False):
        model = OnlinePCA(8, center=center).partial_fit(X[:300]).partial_fit(X[300:])
        assert distance(model, OnlinePCA(8, center=center).fit(X.toarray())) < 1e-9
    mixed = OnlinePCA(8).partial_fit(X[:300]).partial_fit(X[300:600].toarray()).partial_fit(X[600:])
    assert distance(mixed, dense) < 1e-9


def test_dense_and_sparse_calls_may_alternate() -> None:
    X = counts()
    rows = X.toarray()
    dense = OnlinePCA(4).fit(rows)
    model = OnlinePCA(4).partial_fit(X[:200]).partial_fit(rows[200:400]).partial_fit(X[400:700])
    for x in rows[700:710]:
        model.fit_next(x)
    model = pickle.loads(pickle.dumps(model.partial_fit(X[710:800])))
    model = copy.deepcopy(model).partial_fit(X[800:])
    assert distance(model, dense) < 1e-9


def test_many_passes_are_those_of_dense_rows() -> None:
    """Long enough that blocks are taken in parts, each centred by all rows before it."""
    X = counts(1500)
    rows = X.toarray()
    one, two = OnlinePCA(4), OnlinePCA(4)
    for _ in range(3):
        one.partial_fit(X)
        two.partial_fit(rows)
        assert distance(one, two) < 1e-9


def test_merging_models_of_sparse_rows() -> None:
    X = counts()
    one, two = OnlinePCA(4).fit(X[:400]), OnlinePCA(4).fit(X[400:])
    one_dense, two_dense = OnlinePCA(4).fit(X[:400].toarray()), OnlinePCA(4).fit(X[400:].toarray())
    assert distance(one.merge(two), one_dense.merge(two_dense)) < 1e-9
    assert np.allclose(one.mean_, X.toarray().mean(axis=0), atol=1e-12)


def test_float32() -> None:
    X = counts()
    model = OnlinePCA(4).fit(X.astype(np.float32))
    assert model.components_.dtype == model.transform(X.astype(np.float32)).dtype == np.float32
    assert distance(model, OnlinePCA(4).fit(X)) < 1e-3


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
    bad.data[bad.indptr[7]] = np.inf
    before = pickle.dumps(one)
    with pytest.raises(ValueError, match="Row 7 has inf in column"):
        one.fit_block(bad)
    with pytest.raises(ValueError, match="300 features"):
        one.fit_block(X[:, :20])
    assert pickle.dumps(one) == before


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
    assert peak < 30 * D * 8 + 3 * X.data.nbytes  # a few bases of four directions; dense rows would take 4000 × 40000
