"""The one eigenvector that IPCA needs, against LAPACK, and IPCA where it is hardest to find."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from online_psp import IPCA
from online_psp.algorithms import ipca
from online_psp.algorithms.smallest import NOT_MADE, invert_shifted, smallest
from online_psp.engine.types import Floats, Rate
from online_psp.metrics import subspace_error

EPS = np.finfo(np.float64).eps


def problem(K: int, decades: float, seed: int) -> tuple[Floats, Floats, float, float]:
    """S with eigenvalues over so many decades, y, rho and alpha."""
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.standard_normal((K, K)))[0]
    S = (Q * 10.0 ** -np.linspace(0, decades, K)) @ Q.T
    return (S + S.T) / 2, rng.standard_normal(K), abs(rng.standard_normal()) * 10.0 ** -rng.uniform(0, 4), 10.0 ** -rng.uniform(0.1, 5)


def bordered(S: Floats, y: Floats, rho: float, alpha: float) -> Floats:
    K = len(S)
    T = np.zeros((K + 1, K + 1))
    T[:K, :K] = (1 - alpha) * S
    w = np.append(y, rho)
    return np.asarray(T + alpha * np.outer(w, w))


def found(S: Floats, y: Floats, rho: float, alpha: float, N: Floats | None = None, delta: float = NOT_MADE) -> tuple[float, Floats]:
    K = len(y)
    v = np.empty(K + 1)
    value, _ = smallest((S, np.empty((K, K)) if N is None else N, np.array([delta, 0.0])), y, rho, alpha, np.empty(K), v)
    return value, v


@settings(max_examples=150)
@given(
    K=st.integers(1, 40),
    decades=st.floats(0, 14),
    seed=st.integers(0, 10_000),
    drift=st.sampled_from([0.0, 1e-9, 1e-3]),
    below=st.sampled_from([0.0, -0.5, -0.997]),
)
def test_the_pair_is_the_smallest_one(K: int, decades: float, seed: int, drift: float, below: float) -> None:
    S, y, rho, alpha = problem(K, decades, seed)
    T = bordered(S, y, rho, alpha)
    exact = np.linalg.eigvalsh(T)
    delta = float(below * exact[0]) or float(4 * EPS * np.trace(T))
    N = np.empty((K, K))
    invert_shifted(S, delta, N)
    N += drift * np.abs(N).max() * np.diag(np.random.default_rng(seed).standard_normal(K))  # an inverse that has gone astray
    value, v = found(S, y, rho, alpha, N, delta)
    size = np.trace(T)
    assert abs(np.linalg.norm(v) - 1.0) < 1e-12
    assert v[K] >= 0
    assert np.linalg.norm(T @ v - value * v) <= 100 * EPS * size, "not an eigenpair"
    assert abs(value - exact[0]) <= 100 * EPS * size, f"eigenvalue {value:.3e}, the smallest is {exact[0]:.3e}"


def test_an_eigenvector_of_the_start_is_not_taken_for_the_answer() -> None:
    """Nothing of the sample lies inside, so [0; 1] is an eigenvector; but the smallest one is inside."""
    value, v = found(np.diag([1.0, 1e-3]), np.zeros(2), 1.0, 0.5)
    assert value == pytest.approx(0.5e-3), "the smallest eigenvalue is that of the second direction"
    assert abs(v[1]) == pytest.approx(1.0)


def test_an_empty_covariance_is_no_obstacle() -> None:
    value, v = found(np.zeros((3, 3)), np.ones(3), 2.0, 0.1)
    assert abs(value) < 1e-14
    assert np.linalg.norm(v) == pytest.approx(1.0)
    assert abs(v @ np.array([1, 1, 1, 2.0])) < 1e-7, "the sample itself must not be dropped"


RNG = np.random.default_rng(0)
N_ROWS, D, K = 400, 60, 6
HARD: dict[str, Floats] = {
    "white noise": RNG.standard_normal((N_ROWS, D)),
    "one feature at a time": np.eye(D)[RNG.integers(0, D, N_ROWS)] * RNG.uniform(0.5, 2, (N_ROWS, 1)),
    "ten decades": RNG.standard_normal((N_ROWS, D)) * 10.0 ** -np.linspace(0, 10, D),
    "low rank": RNG.standard_normal((N_ROWS, 4)) @ RNG.standard_normal((4, D)),
    "a jump": RNG.standard_normal((N_ROWS, D))
    * np.where(np.arange(N_ROWS)[:, None] < N_ROWS // 2, np.arange(D) < K, 100.0 * (np.arange(D) >= D - K)),
    "zeros between": RNG.standard_normal((N_ROWS, D)) * (np.arange(N_ROWS)[:, None] % 200 < 50),
    "large numbers": 1e150 * RNG.standard_normal((N_ROWS, D)),
    "small numbers": 1e-150 * RNG.standard_normal((N_ROWS, D)),
}


def _constant(t: int) -> float:
    return 0.3


@pytest.mark.parametrize("rate", [None, _constant])
@pytest.mark.parametrize("name", HARD)
def test_ipca_is_the_reference_on_hard_data(name: str, rate: Rate | None) -> None:
    X = HARD[name]
    schedule: Callable[[int], float] = rate or (lambda t: 1.0 / (t + 1.0))
    state = ipca.reference_start(np.linalg.qr(X[:K].T)[0])
    for t, x in enumerate(X, start=1):
        state, _ = ipca.reference_step(state, x, schedule(t))
    blocks, singly = IPCA(K, learning_rate=rate), IPCA(K, learning_rate=rate)
    blocks.fit_block(X)
    for x in X:
        singly.fit_next(x)
    # Directions beyond the rank of the data are anybody's.
    rank = min(K, np.linalg.matrix_rank(X / np.abs(X).max()))
    truth = np.linalg.qr(state.U)[0][:, np.argsort(-state.sigma2)][:, :rank]
    for model in (blocks, singly):
        U = model.get_components()
        assert np.abs(U.T @ U - np.eye(K)).max() < 1e-12
        assert subspace_error(U[:, :rank], truth) < 1e-9, "the subspace of the reference"
        assert np.allclose(model.sigma2, np.sort(state.sigma2)[::-1], rtol=0, atol=1e-11 * state.sigma2.max()), (
            "the variances of the reference"
        )


@pytest.mark.parametrize("spread", [0.0, 1e-6, 0.5])
def test_ipca_is_the_reference_when_the_smallest_variances_are_close(spread: float) -> None:
    """From a basis that has nothing to do with the data every sample drops one of many variances that are nearly the same."""
    D, K = 120, 40
    rng = np.random.default_rng(3)
    Q = np.linalg.qr(rng.standard_normal((D, K)))[0]
    variances = np.linspace(1.0 + spread, 1.0, K) + (0.0 if spread else 1e-9 * rng.permutation(K))
    X = rng.standard_normal((2 * K, D)) * np.linspace(1.0, 0.1, D)
    state = ipca.IPCAState(Q, variances)
    for t, x in enumerate(X, start=1):
        state, _ = ipca.reference_step(state, x, 1.0 / (t + 1.0))
    model = IPCA(K, Uhat0=Q, sigma2_0=variances)
    model.fit_block(X)
    # The closer they are the less is known, in double precision, of who is the smallest.
    apart = 1e-10 if spread == 0.5 else 1e-6
    assert np.allclose(model.sigma2, np.sort(state.sigma2)[::-1], rtol=0, atol=apart * state.sigma2.max()), "the variances of the reference"
    if spread == 0.5:
        assert subspace_error(model.get_components(), np.linalg.qr(state.U)[0]) < 1e-8, "the subspace of the reference"
