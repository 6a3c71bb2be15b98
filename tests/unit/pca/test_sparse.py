"""Sparse rows: the model of the dense path, without ever making them dense."""

from __future__ import annotations

import itertools
import tracemalloc
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from online_psp import OnlinePCA
from online_psp.metrics import subspace_error
from tests.pairs import Row, pairs, title


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


def split_entries(X: Any) -> Any:
    """Each entry twice at half its value, as sums of sparse matrices leave them."""
    doubled = sparse.csr_array(X.shape)
    doubled.indptr, doubled.indices, doubled.data = 2 * X.indptr, np.repeat(X.indices, 2), np.repeat(X.data / 2, 2)
    return doubled


KINDS: dict[str, Any] = {
    "csr": sparse.csr_array,
    "matrix": sparse.csr_matrix,
    "csc": sparse.csc_array,
    "coo": sparse.coo_array,
    "long indices": lambda X: sparse.csr_array((X.data, X.indices.astype(np.int64), X.indptr.astype(np.int64)), shape=X.shape),
    "split entries": split_entries,
}
TABLE = pairs(
    {
        "kind": tuple(KINDS),
        "center": (True, False),
        "weighted": (False, True),
        "D": (300, 60),
        "offset": (0.0, 300.0),
        "dense": (False, True),
    }
)


@pytest.mark.parametrize("row", TABLE, ids=title)
def test_the_same_model_as_from_dense_rows(row: Row) -> None:
    X = counts(D=row["D"])
    X.data += row["offset"]  # a mean far larger than the deviations
    rows, weights = X.toarray(), np.random.default_rng(1).integers(0, 4, 900).astype(float) if row["weighted"] else np.ones(900)
    dense, model = (OnlinePCA(4, center=row["center"]) for _ in range(2))
    given = KINDS[row["kind"]](X)
    before = given.tocoo().data.copy()
    for start, stop in itertools.pairwise((0, 5, 300, 307, 900)):
        part = KINDS[row["kind"]](X[start:stop]) if not row["dense"] or start != 5 else rows[start:stop]
        model.partial_fit(part, sample_weight=weights[start:stop])
    dense.fit(rows, sample_weight=weights)
    assert model.n_samples_seen_ == dense.n_samples_seen_
    assert distance(model, dense) < 1e-9
    assert np.allclose(model.transform(given), dense.transform(rows), atol=1e-7)
    assert np.allclose(model.score_samples(given), dense.score_samples(rows), rtol=1e-9)
    assert np.array_equal(given.tocoo().data, before), "the input was changed"


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
