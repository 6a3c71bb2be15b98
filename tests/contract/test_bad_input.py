"""Bad input is refused in one sentence, and the model is left as it was."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from online_psp import ALGORITHMS, CCIPCA, FSM, SM
from tests.oracle import NAMES, spiked

D, K = 20, 4


def same(one: Any, two: Any) -> bool:
    """Whether two states are equal in every array and number."""
    return one.keys() == two.keys() and all(np.array_equal(one[name], two[name]) for name in one)


def with_value(value: float, row: int = 17, column: int = 3) -> Any:
    X = spiked(40, D, K, seed=5)
    X[row, column] = value
    return X


BAD_BLOCKS: list[tuple[Any, type[Exception], str]] = [
    (with_value(np.nan), ValueError, r"Row 17 has nan in column 3"),
    (with_value(np.inf), ValueError, r"Row 17 has inf in column 3"),
    (with_value(1e200), ValueError, r"Row 17 has values too large"),
    (np.zeros((5, D + 1)), ValueError, rf"must have {D} features; got {D + 1}"),
    (np.zeros(D), ValueError, r"got shape \(20,\)"),
    (np.zeros((2, 3, D)), ValueError, r"got shape \(2, 3, 20\)"),
    (np.full((3, D), "a"), TypeError, r"real numbers; got dtype <U1"),
    (np.zeros((3, D), dtype=complex), TypeError, r"real numbers; got dtype complex128"),
    ([[1.0] * D, [1.0]], ValueError, r"different lengths"),
]
BAD_ROWS: list[tuple[Any, type[Exception], str]] = [
    (with_value(np.nan)[17], ValueError, r"Row 0 has nan in column 3"),
    (with_value(-np.inf)[17], ValueError, r"Row 0 has -inf in column 3"),
    (np.zeros(D + 1), ValueError, rf"must have {D} features; got {D + 1}"),
    (np.zeros((1, D)), ValueError, r"got shape \(1, 20\)"),
    (np.zeros(()), ValueError, r"got shape \(\)"),
    (["a"] * D, TypeError, r"real numbers"),
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("seen", "pending"), [(0, 0), (2, 0), (0, 3), (30, 3)])
def test_refused_and_unchanged(name: str, seen: int, pending: int) -> None:
    X = spiked(40, D, K, seed=5)
    model = ALGORITHMS[name](K, D)
    model.fit_block(X[:seen])
    for x in X[seen : seen + pending]:
        model.fit_next(x)
    before = model.state()
    for call, cases in ((model.fit_block, BAD_BLOCKS), (model.fit_next, BAD_ROWS)):
        for bad, error, message in cases:
            with pytest.raises(error, match=message):
                call(bad)
            assert same(before, model.state()), f"the model changed on: {message}"
    untouched = ALGORITHMS[name](K, D)
    untouched.fit_block(X[: seen + pending])
    assert np.allclose(model.fit_block(X[33:]), untouched.fit_block(X[33:]), atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_bad_row_in_a_later_block_is_found_before_anything_is_learned(name: str, dtype: Any) -> None:
    wide, rows = 300, 400
    X = spiked(rows + 40, wide, K, seed=6).astype(dtype)
    model = ALGORITHMS[name](K, wide, dtype=dtype)
    model.fit_block(X[:30])
    for x in X[30:33]:
        model.fit_next(x)
    before = model.state()
    for value, message in ((np.nan, "has nan in column 7"), (np.inf, "has inf in column 7"), (np.finfo(dtype).max / 2, "squares overflow")):
        for at in (0, rows - 5):
            bad = X[40:].copy()
            bad[at, 7] = value
            for arrangement in (bad, np.asfortranarray(bad)):
                with pytest.raises(ValueError, match=f"Row {at} .*{message}"):
                    model.fit_block(arrangement)
                assert same(before, model.state()), f"the model changed on {value} in row {at}"


@pytest.mark.parametrize("name", NAMES)
def test_a_bad_first_row_does_not_fix_the_number_of_features(name: str) -> None:
    model = ALGORITHMS[name](K)
    for bad in (np.full(7, np.inf), np.zeros(K - 1)):
        with pytest.raises(ValueError, match=r"inf|K must not be larger than D"):
            model.fit_next(bad)
        with pytest.raises(ValueError, match=r"inf|K must not be larger than D"):
            model.fit_block(bad[np.newaxis])
    assert model.D is None
    model.fit_block(spiked(10, D, K))
    assert model.D == D


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"K": 0}, ValueError, "K must be at least 1; got 0"),
        ({"K": -3}, ValueError, "K must be at least 1; got -3"),
        ({"K": 2.5}, TypeError, "K must be a whole number; got 2.5"),
        ({"K": 21}, ValueError, "K must not be larger than D; got K=21 and D=20"),
        ({"dtype": np.int32}, ValueError, "dtype must be float64 or float32; got int32"),
        ({"block_size": 0}, ValueError, "block_size must be at least 1; got 0"),
    ],
)
def test_bad_arguments(name: str, arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ALGORITHMS[name](**({"K": K, "D": D} | arguments))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("step", [1.5, -0.1, float("nan")])
def test_a_bad_learning_rate_is_named_with_its_sample(name: str, step: float) -> None:
    model = ALGORITHMS[name](K, learning_rate=lambda t: step if t == 30 else 0.1)
    if step <= model.most_step:
        pytest.skip("steps may be as large as they like")
    X = spiked(40, D, K)
    with pytest.raises(ValueError, match=r"learning_rate\(t=30\)"):
        model.fit_block(X)
    assert model.t == 0
    model.fit_block(X[:29])
    with pytest.raises(ValueError, match=r"learning_rate\(t=30\)"):
        model.fit_next(X[29])
    assert model.t == 29


def test_bad_starts() -> None:
    with pytest.raises(ValueError, match=r"W0 must have shape \(4, 20\); got \(3, 20\)"):
        FSM(K, D, W0=np.zeros((3, D)))
    with pytest.raises(ValueError, match="positive definite"):
        SM(K, D, M0=-np.eye(K))
    with pytest.raises(ValueError, match="Minv0 must be finite"):
        FSM(K, D, Minv0=np.full((K, K), np.nan))
    with pytest.raises(ValueError, match="column 0 is zero"):
        CCIPCA(K, D, Uhat0=np.zeros((D, K)))
    with pytest.raises(ValueError, match="sigma2_0 must not be negative"):
        CCIPCA(K, D, sigma2_0=-np.ones(K))
    with pytest.raises(ValueError, match="gamma must be positive"):
        FSM(K, D, gamma=0.0)
    with pytest.raises(ValueError, match="ell must not be negative"):
        CCIPCA(K, D, ell=-1.0)


def test_no_basis_before_the_first_sample() -> None:
    with pytest.raises(ValueError, match="not known before the first sample"):
        FSM(K).get_components()


@pytest.mark.parametrize("name", NAMES)
def test_options_that_are_not_numbers_are_refused_by_name(name: str) -> None:
    cls = ALGORITHMS[name]
    value: Any
    for option in cls.option_names:
        for value in ("1", "a", [], np.ones(2), 1j, b"1"):
            with pytest.raises(TypeError, match=f"{option} must be (a number|True or False); got"):
                cls(K, D, **{option: value})
    for value in (True, 1.5, None, [8]):
        with pytest.raises(TypeError, match="block_size must be a whole number; got"):
            cls(K, D, block_size=value)
    with pytest.raises(ValueError, match=r"block_size .*'foo'"):
        cls(K, D, block_size="foo")
    for value in (0.1, "1/t", np.full(3, 0.1)):
        with pytest.raises(TypeError, match="learning_rate must be a function"):
            cls(K, D, learning_rate=value)
    with pytest.raises(TypeError, match="dtype must be float64 or float32; got 5"):
        cls(K, D, dtype=5)


@pytest.mark.parametrize("name", NAMES)
def test_a_rate_of_the_wrong_type_leaves_the_model_alone(name: str) -> None:
    X = spiked(60, D, K)
    value: Any
    for value in ("0.1", None, True, np.full(2, 0.1), np.array([0.1]), 0.1j):
        model = ALGORITHMS[name](K, learning_rate=lambda t, value=value: value if t == 40 else 0.1)
        model.fit_block(X[:30])
        before = model.state()
        with pytest.raises(TypeError, match=r"learning_rate\(t=40\) must be a number; got"):
            model.fit_block(X[30:])
        assert same(before, model.state())


@pytest.mark.parametrize("name", NAMES)
def test_a_rate_of_zero_learns_nothing_and_stays_finite(name: str) -> None:
    X = spiked(60, D, K)
    model = ALGORITHMS[name](K, learning_rate=lambda t: 0.0)
    for row in X[:10]:
        assert np.isfinite(model.fit_next(row)).all()
    assert np.isfinite(model.fit_block(X[10:])).all()
    assert np.isfinite(model.get_components()).all()
