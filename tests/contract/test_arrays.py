"""Arrays of other libraries: same numbers, same kind out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from online_psp import ALGORITHMS, FSM, SM, OnlinePCA
from online_psp.engine.libraries import to_host
from online_psp.metrics import subspace_error
from tests.oracle import wide


@pytest.fixture(params=["torch", "array_api_strict"])
def xp(request: pytest.FixtureRequest) -> Any:
    return pytest.importorskip(request.param)


@pytest.mark.parametrize("algorithm", [FSM, SM])
def test_equal_to_numpy_and_of_the_same_kind(xp: Any, algorithm: type[FSM]) -> None:
    X = wide(700)
    there, here = algorithm(6), algorithm(6)
    Y = there.fit_block(xp.asarray(X[:4]))
    Y = there.fit_block(xp.asarray(X[4:300]))
    Y = there.fit_block(xp.asarray(X[300:]))
    expected = here.fit_block(X)[300:]
    U, components = there.get_components(), there.principal_components()[0]
    assert type(Y) is type(U) is type(components) is type(xp.asarray(X))
    assert np.allclose(to_host(Y), expected, atol=1e-10 * np.abs(expected).max())
    assert subspace_error(to_host(U), here.get_components()) < 1e-10
    assert np.allclose(to_host(U), here.get_components(), atol=1e-9)
    assert np.allclose(np.abs(to_host(components)), np.abs(here.principal_components()[0]), atol=1e-8)
    raw = to_host(there.get_components(orthogonalize=False))
    assert np.allclose(raw, here.get_components(orthogonalize=False), atol=1e-9 * np.abs(raw).max())
    assert np.allclose(there.W, here.W, atol=1e-10)


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
    assert subspace_error(to_host(there.get_components()), here.get_components()) < 1e-10


def test_float32(xp: Any) -> None:
    X = wide(300).astype(np.float32)
    fsm = FSM(4, dtype=np.float32)
    Y = fsm.fit_block(xp.asarray(X))
    assert Y.dtype == fsm.get_components().dtype == xp.float32


@pytest.mark.parametrize("name", ["ipca", "ccipca"])
def test_the_others_go_through_the_host(xp: Any, name: str) -> None:
    X = wide(200)
    there, here = ALGORITHMS[name](4), ALGORITHMS[name](4)
    assert np.allclose(there.fit_block(xp.asarray(X)), here.fit_block(X))


def test_quick_forgetting_and_unexcited_directions(xp: Any) -> None:
    X = np.zeros((600, 40))
    X[:300] = wide(300, D=40)
    there, here = FSM(5, learning_rate=lambda t: 0.2), FSM(5, learning_rate=lambda t: 0.2)
    there.fit_block(xp.asarray(X))
    here.fit_block(X)
    assert np.allclose(to_host(there.get_components()).T @ to_host(there.get_components()), np.eye(5), atol=1e-10)
    M, expected = there.state().running.M, here.state().running.M
    assert pytest.approx(expected, rel=1e-3, abs=1e-6 * np.abs(expected).max()) == M


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
    with pytest.raises(ValueError, match="two-dimensional array; got 1"):
        fsm.fit_block(xp.asarray(X[0]))
    assert np.array_equal(before, fsm.W)


def test_float32_tensors_stay_float32() -> None:
    torch = pytest.importorskip("torch")
    model = OnlinePCA(2).fit(torch.tensor(wide(300).astype(np.float32)))
    assert model.components_.dtype == np.float32
