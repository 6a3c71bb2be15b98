"""Long and hard streams: nothing drifts, overflows or loses its rank."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from online_psp import ALGORITHMS, CCIPCA, FSM, SM
from online_psp.engine.types import Floats
from online_psp.metrics import subspace_error
from tests.oracle import NAMES, is_orthonormal, reference_run, spiked


def repeated(n: int) -> Floats:
    X = np.tile(spiked(3, 30, 2), (n // 3, 1))
    X[:, 5] = 0.25
    return X


STREAMS: dict[str, tuple[Floats, int]] = {
    "five directions, K=20": (spiked(4000, 40, 5, rho=0.0), 20),
    "one component": (spiked(300, 10, 5), 1),
    "as many components as features": (spiked(300, 10, 5), 10),
    "zeros first": (np.vstack([np.zeros((50, 30)), spiked(2000, 30, 4, rho=1e-4)]), 4),
    "repeated rows and a constant column": (repeated(600), 6),
}


@pytest.mark.parametrize(("dtype", "rate"), [(np.float64, None), (np.float64, 0.95), (np.float32, None), (np.float32, 0.95)])
@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("name", NAMES)
def test_hard_streams_give_an_orthonormal_basis_of_what_is_there(name: str, stream: str, dtype: Any, rate: float | None) -> None:
    """With steps of 0.95 all is forgotten at once, but never the rank."""
    X, K = STREAMS[stream]
    X = X.astype(dtype)
    model = ALGORITHMS[name](K, dtype=dtype, **({} if rate is None else {"learning_rate": lambda t: rate}))
    model.fit_block(X[:-100])
    for x in X[-100:]:
        assert np.isfinite(model.fit_next(x)).all()
    U, tolerance = model.get_components(), 1e-10 if dtype is np.float64 else 1e-4
    assert is_orthonormal(U, tolerance)
    if rate is None and stream in ("five directions, K=20", "repeated rows and a constant column"):
        lost = float(np.linalg.norm(X - X @ U @ U.T) / np.linalg.norm(X))
        assert lost <= 100 * tolerance, f"{lost:.1e} of the data is not in the subspace"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rate", [None, 0.1, 0.5])
def test_thousands_of_zero_rows(name: str, rate: float | None) -> None:
    X = spiked(600, 30, 4)
    chosen: dict[str, Any] = {} if rate is None else {"learning_rate": lambda t: rate}
    model = ALGORITHMS[name](4, **chosen)
    model.fit_block(X[:300])
    before = model.get_components()
    model.fit_block(np.zeros((6000, 30)))
    for _ in range(200):
        model.fit_next(np.zeros(30))
    after = model.get_components()
    assert is_orthonormal(after)
    assert subspace_error(before, after) < 1e-6, "rows of zeros say nothing and must not move the subspace"
    model.fit_block(X[300:])
    assert is_orthonormal(model.get_components())


def test_variances_from_data_do_not_amplify_rounding() -> None:
    rng = np.random.default_rng(3)
    X = rng.standard_normal((400, 300)) / np.arange(1, 301) ** 0.5
    near = X * (1 + 1e-15 * rng.standard_normal(X.shape))
    parted = {}
    for start in (None, "data"):
        one, other = (CCIPCA(64, sigma2_0=start).partial_fit(rows).get_components() for rows in (X, near))
        parted[start] = subspace_error(one, other)
    assert parted["data"] < 1e-6, f"rows that differ by 1e-15 end {parted['data']:.1e} apart"
    assert parted[None] > 1e-3, f"the published start parts them by {parted[None]:.1e}; where it does not, the option has no use"


@pytest.mark.parametrize("unit", [1.0, 1e6])
@pytest.mark.parametrize("cls", [FSM, SM])
def test_long_rows_do_not_cost_digits_at_the_start(cls: Any, unit: float) -> None:
    """One machine against itself: other blocks, and every value moved to the next number up or down."""
    X = unit * spiked(600, 80, 8)
    near = np.nextafter(X, np.where(np.random.default_rng(1).random(X.shape) < 0.5, -np.inf, np.inf))
    bases = []
    for rows, size in ((X, 64), (X, 7), (near, 64)):
        model = cls(8, block_size=size)
        model.fit_block(rows)
        bases.append(model.get_components())
    for other, what in ((bases[1], "other blocks"), (bases[2], "rounding of the data")):
        error = subspace_error(other, bases[0])
        assert error < 1e-12, f"{what} moves the basis by {error:.1e}"


@pytest.mark.parametrize("cls", [FSM, SM])
@pytest.mark.parametrize("rate", [0.3, 0.999])
def test_a_start_that_forgets_quickly_keeps_its_rank(cls: Any, rate: float) -> None:
    X = spiked(400, 60, 40)
    model = cls(40, learning_rate=lambda t: rate)
    model.fit_block(X[:40])
    assert subspace_error(model.get_components(), np.linalg.qr(X[:40].T)[0]) < 1e-6, "the start spans the first K samples"
    model.fit_block(X[40:])
    assert is_orthonormal(model.get_components())


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("cls", [FSM, SM])
def test_the_scale_kept_aside_is_taken_in_before_it_vanishes(cls: Any, dtype: Any) -> None:
    """Of the first weights 0.7^3000 is left, far below what the type holds."""
    X, K, D = spiked(3000, 30, 4), 4, 30
    whole, single = (cls(K, D, learning_rate=lambda t: 0.3, dtype=dtype) for _ in range(2))
    whole.fit_block(X)
    for x in X:
        single.fit_next(x)
    error = subspace_error(whole.get_components(), single.get_components())
    assert error < 1e5 * np.finfo(dtype).eps, f"blocks and single samples are {error:.1e} apart"
    assert np.linalg.norm(whole.W) > 1e-3, "the weights have faded with their scale"


@pytest.mark.parametrize("unit", [1e-9, 1e9])
@pytest.mark.parametrize("cls", [FSM, SM])
def test_units_do_not_matter_when_the_start_is_in_them(cls: Any, unit: float) -> None:
    X, K = spiked(500, 30, 4), 4
    Q = np.linalg.qr(X[:K].T)[0]
    start = "Minv0" if cls is FSM else "M0"
    lateral = np.eye(K) / 100

    def fitted(scale: float) -> Any:
        M = lateral * scale**2
        model = cls(K, 30, gamma=0.6, W0=Q.T * scale**2 / 100, **{start: np.linalg.inv(M) if cls is FSM else M})
        model.fit_block(X * scale)
        return model.get_components()

    assert subspace_error(fitted(unit), fitted(1.0)) < 1e-9


@pytest.mark.parametrize("size", [1, 5, 24])
@pytest.mark.parametrize("noise", [0.0, 1e-9, 1e-3])
def test_ccipca_is_the_reference_where_rows_depend_on_each_other(noise: float, size: int) -> None:
    """Inner products that are followed from block to block, and rows whose coordinates must be found carefully, in turn."""
    K, D, n = 4, 90, 400
    rng = np.random.default_rng(8)
    few = rng.standard_normal((7, 9)) @ rng.standard_normal((9, D)) / 10.0
    X = np.concatenate(
        [spiked(100, D, K, seed=3), few[rng.integers(0, 7, n)] + noise * rng.standard_normal((n, D)), spiked(50, D, K, seed=4)]
    )
    reference = reference_run("ccipca", X, K)
    model = CCIPCA(K, D)
    for start in range(0, len(X), size):
        if size == 1:
            model.fit_next(X[start])
        else:
            model.fit_block(X[start : start + size])
        if start % 120 == 0 and start >= K:
            error = subspace_error(model.get_components(), reference.bases[model.t - 1])
            assert error < 1e-9, f"{error:.1e} from the reference at sample {model.t}"
    np.testing.assert_allclose(model.sigma2, np.sort(reference.state.sigma2)[::-1], rtol=1e-9)
    assert subspace_error(model.get_components(), reference.bases[-1]) < 1e-9
