"""The paper's algorithms take arrays of other libraries, which are brought to the host, and sparse rows: same numbers as from NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from online_psp import ALGORITHMS, FSM, OnlinePCA
from online_psp.metrics import subspace_error
from tests.oracle import NAMES, wide


@pytest.fixture(params=["torch", "array_api_strict"])
def xp(request: pytest.FixtureRequest) -> Any:
    return pytest.importorskip(request.param)


@pytest.mark.parametrize("name", NAMES)
def test_equal_to_numpy(xp: Any, name: str) -> None:
    X = wide(700)
    there, here = ALGORITHMS[name](6), ALGORITHMS[name](6)
    parts = [there.fit_block(xp.asarray(part)) for part in (X[:4], X[4:300], X[300:])]
    expected = np.concatenate([here.fit_block(part) for part in (X[:4], X[4:300], X[300:])])
    assert np.array_equal(np.concatenate(parts), expected)
    assert np.array_equal(there.get_components(), here.get_components())


def test_kinds_may_alternate(xp: Any) -> None:
    X = wide(400)
    there, here = FSM(6), FSM(6)
    there.fit_block(xp.asarray(X[:100]))
    there.fit_block(X[100:200])
    there.fit_block(xp.asarray(X[200:300]))
    for x in X[300:310]:
        there.fit_next(x)
    there.fit_block(xp.asarray(X[310:]))
    here.fit_block(X)
    assert subspace_error(there.get_components(), here.get_components()) < 1e-10


def test_float32(xp: Any) -> None:
    X = wide(300).astype(np.float32)
    fsm = FSM(4, dtype=np.float32)
    Y = fsm.fit_block(xp.asarray(X))
    assert Y.dtype == fsm.get_components().dtype == np.float32


def test_bad_rows(xp: Any) -> None:
    X = wide(50)
    fsm = FSM(4)
    fsm.fit_block(xp.asarray(X))
    before = fsm.W
    X[7, 3] = np.inf
    with pytest.raises(ValueError, match="Row 7 has inf in column 3"):
        fsm.fit_block(xp.asarray(X))
    with pytest.raises(ValueError, match="300 features; got 9"):
        fsm.fit_block(xp.asarray(X[:, :9]))
    with pytest.raises(ValueError, match="samples as rows"):
        fsm.fit_block(xp.asarray(X[0]))
    assert np.array_equal(before, fsm.W)


def test_float32_tensors_stay_float32() -> None:
    torch = pytest.importorskip("torch")
    model = OnlinePCA(2).fit(torch.tensor(wide(300).astype(np.float32)))
    assert model.components_.dtype == np.float32


@pytest.mark.parametrize("name", NAMES)
def test_sparse_rows(name: str) -> None:
    dense = np.where(np.random.default_rng(0).random((900, 300)) < 0.1, wide(900), 0.0)
    X = sparse.csr_array(dense)
    one, two, as_it_was = (ALGORITHMS[name](6) for _ in range(3))
    Y = np.concatenate([one.fit_block(X[:3]), one.fit_block(X[3:500]), one.fit_block(X[500:])])
    assert np.allclose(Y, two.fit_block(dense), atol=1e-9 * np.abs(Y).max())
    assert subspace_error(one.get_components(), two.get_components()) < 1e-9
    bad = X[:50].copy()
    bad.data[bad.indptr[7]] = np.inf
    for rows, word in ((bad, "Row 7 has inf in column"), (X[:, :20], "300 features")):
        with pytest.raises(ValueError, match=word):
            one.fit_block(rows)
    as_it_was.fit_block(X[:3])
    as_it_was.fit_block(X[3:500])
    as_it_was.fit_block(X[500:])
    assert np.array_equal(one.get_components(), as_it_was.get_components())
