"""The in-place baselines are the published updates, after every sample, and make no array of size D on the way."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from online_psp.algorithms import ALGORITHMS
from online_psp.engine.types import Floats
from online_psp.metrics import subspace_error
from online_psp.suite.baselines import BASELINES
from tests.oracle import module_of, published_rates, spiked


def cold(name: str, X: Floats, K: int) -> Any:
    return module_of(name).reference_start(np.linalg.qr(X[:K].T)[0])


@pytest.mark.parametrize("gamma", [0.6, 2.0])
@pytest.mark.parametrize("name", sorted(BASELINES))
def test_a_baseline_is_the_published_update_after_every_sample(name: str, gamma: float) -> None:
    K, X = 6, spiked(400, 40, 6, rho=0.02, seed=3)
    module, baseline = module_of(name), BASELINES[name](*cold(name, X, K))
    state = module.reference_start(np.linalg.qr(X[:K].T)[0])
    for t, x in enumerate(X, start=1):
        rates = published_rates(name, t, gamma)
        assert BASELINES[name].rates(t, gamma) == pytest.approx(rates, abs=0)
        kept = x.copy()
        state, y = module.reference_step(state, x, *rates)
        output = baseline.step(x, *rates)
        np.testing.assert_array_equal(x, kept, err_msg="the sample must be left alone")
        mine = module.reference_basis(state._make(baseline.state))
        assert subspace_error(mine, module.reference_basis(state)) < 1e-9, f"{name}: the subspaces part at sample {t}"
        for what, own, theirs in zip(("first", "second"), comparable(state, baseline.state), comparable(state, state), strict=True):
            close = 1e-9 * max(1.0, float(np.abs(theirs).max()))
            np.testing.assert_allclose(own, theirs, rtol=0, atol=close, err_msg=f"{name}, {what} array of the state, sample {t}")
        # Outputs along eigenvectors that are tied, or of either sign, agree in their length only.
        one, two = (output, y) if "U" not in state._fields else (np.linalg.norm(output), np.linalg.norm(y))
        np.testing.assert_allclose(one, two, rtol=0, atol=1e-9, err_msg=f"{name}: output of sample {t}")


def comparable(state: Any, arrays: tuple[Floats, ...]) -> tuple[Floats, Floats]:
    """Arrays of a state without what is arbitrary in it: a basis of eigenvectors as the matrix that it stands for."""
    one, two = arrays
    return (one * two @ one.T, two) if "U" in state._fields else (one, two)


@pytest.mark.parametrize("name", sorted(BASELINES))
def test_a_baseline_makes_nothing_large_on_the_way(name: str) -> None:
    K, D = 4, 40_000
    X = spiked(K + 12, D, K)
    baseline = BASELINES[name](*cold(name, X, K))
    baseline.step(X[0], *published_rates(name, 1))
    tracemalloc.start()
    try:
        for t, x in enumerate(X[1:], start=2):
            baseline.step(x, *published_rates(name, t))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * D / 4, f"{name} made {peak} bytes, where a row has {8 * D}"


@pytest.mark.parametrize("name", sorted(BASELINES))
def test_a_steady_state_is_one_that_the_class_starts_from(name: str) -> None:
    K, X = 3, spiked(60, 30, 3, seed=1)
    Q = np.linalg.qr(np.random.default_rng(0).standard_normal((30, K)))[0]
    state = BASELINES[name].steady(Q, np.array([0.5, 0.3, 0.2]))
    model, baseline = ALGORITHMS[name](K, 30, **state), BASELINES[name](*state.values())
    model.fit_block(X)
    for t, x in enumerate(X, start=1):
        baseline.step(x, *BASELINES[name].rates(t, 2.0))
    end = cold(name, X, K)._make(baseline.state)
    assert subspace_error(model.get_components(), module_of(name).reference_basis(end)) < 1e-9, name


def test_the_baselines_are_those_of_the_paper() -> None:
    assert list(BASELINES) == ["sm", "fsm", "ipca", "ccipca"]
