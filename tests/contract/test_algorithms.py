"""The compiled algorithms against the paper's equations, sample by sample, and against what must hold for any data."""

from __future__ import annotations

import copy
import functools
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from online_psp import ALGORITHMS, FSM, IPCA, SM
from online_psp.engine.types import Floats
from online_psp.metrics import subspace_error
from tests.oracle import NAMES, RUNS, Trajectory, is_orthonormal, options, reference_run, spiked

TOLERANCE = dict.fromkeys(NAMES, 1e-9) | {"ccipca": 1e-8}
# CCIPCA's published start, from variances of 1e-8, blows rounding up: at (200, 20) the literal loop itself is 7e-9 from what it gives in
# extended precision. Every end of a block rounds, so that many small blocks add a little to that.
ANY_SPLIT = {"ccipca": 1e-7}
SIZES = [(12, 3), (60, 5), (200, 20)]


def every_algorithm(function: Any) -> Any:
    return pytest.mark.parametrize("name", NAMES)(function)


def outputs_differ(name: str, Y: Floats, expected: Floats) -> float:
    """By how much, up to signs. IPCA's are coordinates in a basis of its own choice, so only their lengths are those of the reference;
    `test_outputs_of_ipca_are_projections` looks at the rest.
    """
    if name == "ipca":
        Y, expected = np.linalg.norm(Y, axis=-1), np.linalg.norm(expected, axis=-1)
    return float(np.abs(np.abs(Y) - np.abs(expected)).max())


@pytest.mark.parametrize("D", [9, 60])
def test_outputs_of_ipca_are_projections(D: int) -> None:
    X, K = spiked(100, D, 5, seed=D), 5
    truth = reference_run("ipca", X, K)
    model = IPCA(K)
    model.fit_block(X[:20])
    for t in range(20, 100):
        before = copy.deepcopy(model).get_components(orthogonalize=False)
        assert is_orthonormal(before)
        U = truth.bases[t - 1]
        assert np.allclose(before @ model.fit_next(X[t]), U @ (U.T @ X[t]), atol=1e-9), f"sample {t + 1}"


@pytest.mark.parametrize(("name", "gamma"), RUNS)
@pytest.mark.parametrize(("D", "K"), SIZES)
def test_fit_next_is_the_reference_after_every_sample(name: str, D: int, K: int, gamma: float) -> None:
    X = spiked(150, D, K, seed=D)
    truth = reference_run(name, X, K, gamma)
    model = ALGORITHMS[name](K, D, **options(name, gamma))
    for t, x in enumerate(X):
        y = model.fit_next(x)
        if t < K - 1:
            continue
        # A copy is asked, so that reading the basis does not close the open block of the model under test.
        error = subspace_error(copy.deepcopy(model).get_components(), truth.bases[t])
        assert error <= TOLERANCE[name], f"sample {t + 1}: subspace error {error:.1e}, at most {TOLERANCE[name]:.0e} expected"
        assert outputs_differ(name, y, truth.outputs[t]) <= 1e-6, f"output of sample {t + 1}"
    for letter in truth.state._fields:
        if letter == "sigma2":
            assert np.allclose(model.sigma2, np.sort(truth.state.sigma2)[::-1], rtol=1e-8)
        elif letter != "U":
            expected = getattr(truth.state, letter)
            assert np.allclose(getattr(model, letter), expected, rtol=1e-7, atol=1e-9 * np.abs(expected).max()), letter


@functools.cache
def known_run(name: str, D: int, K: int) -> tuple[Floats, Trajectory]:
    """Rows, and the trajectory of the reference over them, which takes longer than everything that is compared with it."""
    X = spiked(120, D, K, seed=D)
    return X, reference_run(name, X, K)


@every_algorithm
@settings(max_examples=8)
@given(data=st.data())
def test_any_mix_of_single_samples_and_blocks_is_the_reference(name: str, data: st.DataObject) -> None:
    D, K = data.draw(st.sampled_from(SIZES))
    X, truth = known_run(name, D, K)
    sizes: list[Any] = [1, 7, 32, "auto"]
    model = ALGORITHMS[name](K, D, block_size=data.draw(st.sampled_from(sizes)))
    outputs, t = [], 0
    while t < len(X):
        n = data.draw(st.integers(0, 40))
        outputs.append(model.fit_block(X[t : t + n]) if n != 1 else model.fit_next(X[t])[np.newaxis])
        t += min(n, len(X) - t)
        if t >= K:
            error = subspace_error(model.get_components(), truth.bases[t - 1])
            assert error <= ANY_SPLIT.get(name, TOLERANCE[name]), f"after {t} samples: {error:.1e}"
    assert model.t == len(X)
    Y = np.concatenate(outputs)
    assert outputs_differ(name, Y[K - 1 :], truth.outputs[K - 1 :]) <= 1e-6


@pytest.mark.parametrize(("D", "rank"), [(12, 12), (60, 9)])
@every_algorithm
def test_more_rows_in_a_block_than_dimensions_left(name: str, D: int, rank: int) -> None:
    """Residuals of such rows are rounding: no frame of coordinates may take them for directions."""
    rng, K = np.random.default_rng(3), 4
    X = spiked(200, rank, K, rho=0.05) @ np.linalg.qr(rng.standard_normal((D, rank)))[0].T
    truth, by_row = reference_run(name, X, K), ALGORITHMS[name](K)
    for block_size in (24, 64, 100):
        model = ALGORITHMS[name](K, block_size=block_size)
        model.fit_block(X)
        assert subspace_error(model.get_components(), truth.bases[-1]) <= 1e-7, f"blocks of {block_size}"
    for x, U in zip(X, truth.bases, strict=True):
        by_row.fit_next(x)
        if by_row.t >= K and by_row.t % 7 == 0:
            assert subspace_error(copy.deepcopy(by_row).get_components(), U) <= 1e-7, f"sample {by_row.t}"


@pytest.mark.parametrize(("name", "start"), [("ipca", {}), ("ccipca", {"sigma2_0": "data"})])
def test_errors_do_not_grow_from_block_to_block(name: str, start: dict[str, Any]) -> None:
    """Rows that fill the space, block after block: each frame is a little less exact than the one before, and is not built on it."""
    X = spiked(3000, 64, 32, rho=0.5)
    wide, narrow = (ALGORITHMS[name](32, block_size=size, **start).partial_fit(X) for size in (64, 16))
    assert subspace_error(wide.get_components(), narrow.get_components()) <= 1e-8


@every_algorithm
def test_outputs_before_the_start_are_coordinates_of_the_rows(name: str) -> None:
    X = spiked(20, 30, 8)
    one, many = ALGORITHMS[name](8), ALGORITHMS[name](8)
    singly = np.array([one.fit_next(x) for x in X])
    assert np.allclose(np.abs(singly), np.abs(many.fit_block(X)), atol=1e-9)
    assert np.allclose(np.linalg.norm(singly[:7], axis=1), np.linalg.norm(X[:7], axis=1), atol=1e-12)


@every_algorithm
def test_fewer_rows_than_components_are_spanned_exactly(name: str) -> None:
    X = spiked(5, 30, 8)
    model = ALGORITHMS[name](8)
    for n, x in enumerate(X, start=1):
        model.fit_next(x)
        U = model.get_components()
        assert U.shape == (30, 8)
        assert is_orthonormal(U)
        assert np.abs(X[:n] - X[:n] @ U @ U.T).max() < 1e-14


@every_algorithm
def test_a_given_start_is_the_start(name: str) -> None:
    X, K, D = spiked(50, 20, 4), 4, 20
    Q = np.linalg.qr(X[:K].T)[0]
    starts: dict[str, dict[str, Any]] = {
        "fsm": {"W0": Q.T / 100, "Minv0": 100 * np.eye(K)},
        "sm": {"W0": Q.T / 100, "M0": np.eye(K) / 100},
        "ipca": {"Uhat0": Q, "sigma2_0": np.zeros(K)},
        "ccipca": {"Uhat0": Q, "sigma2_0": np.full(K, 1e-8)},
    }
    given_start, default = ALGORITHMS[name](K, D, **starts[name]), ALGORITHMS[name](K)
    assert given_start.get_components().shape == (D, K)
    given_start.fit_block(X)
    default.fit_block(X)
    assert subspace_error(given_start.get_components(), default.get_components()) < 1e-10


@every_algorithm
def test_learning_rate_takes_the_place_of_the_published_one(name: str) -> None:
    X = spiked(80, 20, 4)
    slow, same = ALGORITHMS[name](4, learning_rate=lambda t: 0.5 / (t + 10)), ALGORITHMS[name](4)
    if name in ("sm", "fsm"):
        same = ALGORITHMS[name](4, learning_rate=lambda t: 2 / (2 * t + 5))
    default = ALGORITHMS[name](4)
    for model in (slow, same, default):
        model.fit_block(X)
    assert subspace_error(same.get_components(), default.get_components()) < 1e-12
    assert subspace_error(slow.get_components(), default.get_components()) > 1e-3


def test_the_papers_own_schedule_of_ipca_is_taken() -> None:
    X = spiked(300, 30, 4)
    model, single = (IPCA(4, learning_rate=lambda t: 1 / t) for _ in range(2))
    model.fit_block(X)
    for x in X:
        single.fit_next(x)
    assert subspace_error(model.get_components(), np.linalg.svd(X)[2][:4].T) < 0.05
    assert subspace_error(model.get_components(), single.get_components()) < 1e-8


def test_beta_is_the_step_of_the_lateral_weights() -> None:
    X, K = spiked(60, 20, 4), 4
    from online_psp.algorithms import sm as module

    state = module.reference_start(np.linalg.qr(X[:K].T)[0])
    for t, x in enumerate(X, start=1):
        state, _ = module.reference_step(state, x, 1 / (t + 4), 1 / (t + 9))
    for cls in (SM, FSM):
        model = cls(K, learning_rate=lambda t: 1 / (t + 4), beta=lambda t: 1 / (t + 9))
        for x in X[:30]:
            model.fit_next(x)
        model.fit_block(X[30:])
        assert subspace_error(model.get_components(), module.reference_basis(state)) < 1e-9


@every_algorithm
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_precision_in_is_precision_out(name: str, dtype: Any) -> None:
    X = spiked(300, 50, 5)
    exact = ALGORITHMS[name](5)
    exact.fit_block(X)
    model = ALGORITHMS[name](5, dtype=dtype)
    y = model.fit_next(X[0])
    Y = model.fit_block(X[1:])
    U = model.get_components()
    assert y.dtype == Y.dtype == U.dtype == dtype
    assert subspace_error(U, exact.get_components()) < (1e-3 if dtype is np.float32 else 1e-9)


@every_algorithm
def test_rotating_the_data_rotates_the_basis(name: str) -> None:
    X = spiked(200, 30, 4)
    R = np.linalg.qr(np.random.default_rng(7).standard_normal((30, 30)))[0]
    plain, turned = ALGORITHMS[name](4), ALGORITHMS[name](4)
    plain.fit_block(X)
    turned.fit_block(X @ R)
    assert subspace_error(R.T @ plain.get_components(), turned.get_components()) < 1e-8


@settings(max_examples=20)
@given(seed=st.integers(0, 1000), gamma=st.floats(0.3, 4.0), K=st.integers(1, 8))
def test_sm_is_fsm(seed: int, gamma: float, K: int) -> None:
    X = spiked(120, 25, 6, seed=seed)
    sm, fsm = SM(K, gamma=gamma), FSM(K, gamma=gamma)
    sm.fit_block(X)
    fsm.fit_block(X)
    assert subspace_error(sm.get_components(), fsm.get_components()) < 1e-7


@every_algorithm
def test_input_is_left_alone_and_not_kept(name: str) -> None:
    X = spiked(60, 20, 4)
    before = X.copy()
    model, frozen = ALGORITHMS[name](4), ALGORITHMS[name](4)
    X.setflags(write=False)
    frozen.fit_block(X[:50])
    for x in X[50:]:
        frozen.fit_next(x)
    assert np.array_equal(X, before)
    changing = before.copy()
    for row in changing:
        model.fit_next(row)
        row[:] = 0.0
    assert subspace_error(model.get_components(), frozen.get_components()) < 1e-9
    y = model.fit_next(before[0])
    y[:] = np.nan
    U = model.get_components()
    U[:] = np.nan
    assert np.isfinite(model.get_components()).all()


@every_algorithm
def test_layouts_and_number_types_are_taken_as_they_come(name: str) -> None:
    X = np.round(spiked(60, 20, 4) * 100)
    expected = ALGORITHMS[name](4)
    expected.fit_block(X)
    layouts: list[Any] = [np.asfortranarray(X), np.repeat(X, 2, axis=1)[:, ::2], X.tolist()]
    for rows in layouts + [X.astype(kind) for kind in (np.int16, ">f8", np.float32)]:
        model = ALGORITHMS[name](4)
        model.fit_block(rows)
        assert subspace_error(model.get_components(), expected.get_components()) < 1e-10
        single = ALGORITHMS[name](4)
        for row in rows:
            single.fit_next(row)
        assert subspace_error(single.get_components(), expected.get_components()) < 1e-10


@every_algorithm
def test_state_does_not_grow_with_the_stream(name: str) -> None:
    D, K = 3000, 6
    model, rng, sizes = ALGORITHMS[name](K), np.random.default_rng(0), []
    for _ in range(6):
        model.fit_block(rng.standard_normal((200, D)))
        for x in rng.standard_normal((5, D)):
            model.fit_next(x)
        sizes.append(len(pickle.dumps(model)))
    assert max(sizes[1:]) < sizes[1] + 100, f"bytes held after each 205 rows: {sizes}"
    assert sizes[-1] < 8 * (2 * K + 40) * D, f"{sizes[-1]} bytes held, where a basis has {8 * K * D} and a block of rows some more"
