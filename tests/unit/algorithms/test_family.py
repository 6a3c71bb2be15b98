"""Gradient rules and block algorithms from other papers: their options against the published updates, and what their papers promise."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from online_psp.algorithms import GHA, SGA, AdaOja, FrequentDirections, HistoryPCA, IncrementalSVD, Oja, adaoja, history, isvd
from online_psp.algorithms.fd import reference_shrunk
from online_psp.engine.moments import weights_left
from online_psp.engine.types import Floats
from online_psp.metrics import subspace_error
from tests.oracle import is_orthonormal, module_of, sized, spiked

GRADIENT: list[Any] = [Oja, SGA, GHA]
BLOCKWISE: list[Any] = [AdaOja, HistoryPCA, IncrementalSVD, FrequentDirections]


def top(X: Floats, K: int) -> Floats:
    return np.linalg.svd(X, full_matrices=False)[2][:K].T


def fed(model: Any, X: Floats, *cuts: int) -> Any:
    for part in np.split(X, cuts):
        model.fit_block(part)
    return model


# Gradient rules


@pytest.mark.parametrize("cls", GRADIENT)
def test_gradient_rules_with_a_textbook_step(cls: Any) -> None:
    """``variance=1``: α = scale/t, whatever the rows are."""
    X, K = spiked(200, 30, 4), 4
    module = module_of(cls.__name__.lower())
    state = module.reference_start(np.linalg.qr(X[:K].T)[0])
    state = state._replace(pace=state.pace._replace(scale=2.0, variance=0.3))
    for t, x in enumerate(X, start=1):
        state, _ = module.reference_step(state, x, 1.0 / t)
    model = fed(cls(K, scale=2.0, variance=0.3), X, 50, 51)
    assert subspace_error(model.get_components(), module.reference_basis(state)) < 1e-10
    other = fed(cls(K, scale=2.0), X)
    assert subspace_error(model.get_components(), other.get_components()) > 1e-3, "the option has no effect"


@pytest.mark.parametrize("cls", [*GRADIENT, *BLOCKWISE])
@pytest.mark.parametrize("unit", [1e-70, 1e-6, 1e6, 1e70])
def test_units_do_not_matter(cls: Any, unit: float) -> None:
    X = spiked(300, 30, 4)
    one, other = fed(cls(4), X), fed(cls(4), unit * X)
    assert subspace_error(one.get_components(), other.get_components()) < 1e-9
    variances = one.principal_components()[1], other.principal_components()[1] / unit / unit
    np.testing.assert_allclose(variances[1], variances[0], rtol=1e-8)


def test_sga_has_the_span_of_oja_and_the_order_of_pca() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((sized(20_000, 3000), 20)) * np.r_[4.0, 2.0, 1.0, np.full(17, 0.1)]
    oja, sga = (fed(cls(3, scale=1.0, variance=500.0), X) for cls in (Oja, SGA))  # steps so small that none is cut
    assert subspace_error(oja.get_components(), sga.get_components()) < 1e-8
    for cls in (SGA, GHA):
        U = fed(cls(3), X).get_components()
        aligned = np.abs(np.sum(U * top(X, 3), axis=0))
        assert aligned.min() > 0.99, f"{cls.__name__}: components aligned by {aligned}"


@pytest.mark.parametrize("cls", [*GRADIENT, *BLOCKWISE])
@pytest.mark.parametrize("size", [1e2, 1e6])
def test_gross_rows_leave_a_finite_model_that_learns_again(cls: Any, size: float) -> None:
    X = spiked(600, 40, 4)
    gross = X.copy()
    gross[[0, 3, 50, 51, 52, 200]] *= size
    model = fed(cls(4), gross)
    assert is_orthonormal(model.get_components())
    follows = cls(4, learning_rate=lambda t: max(1.0 / t, 0.02))
    follows.fit_block(gross)
    for _ in range(6):
        follows.fit_block(X)
    error = subspace_error(follows.get_components(), top(X, 4))
    assert error < 0.5, f"error {error:.2f} long after the gross rows"


def test_gha_does_not_diverge_from_any_start() -> None:
    rng = np.random.default_rng(5)
    for seed in range(20):
        X = rng.standard_normal((200, 12)) * 10.0 ** rng.uniform(-6, 6, (200, 1))
        model = GHA(5, scale=float(10.0 ** rng.uniform(-2, 4)), learning_rate=lambda t: 1.0)
        model.fit_block(X)
        raw = model.get_components(orthogonalize=False)
        assert np.isfinite(raw).all(), f"seed {seed}"
        assert np.linalg.norm(raw, axis=0).max() < 10.0, f"seed {seed}: rows as long as {np.linalg.norm(raw, axis=0).max():.1f}"


# Block algorithms


@pytest.mark.parametrize("cls", BLOCKWISE)
@pytest.mark.parametrize("size", [1, 3, 16, 50])
def test_any_cut_gives_the_same_blocks(cls: Any, size: int) -> None:
    X, K = spiked(173, 40, 5), 5
    whole = fed(cls(K, block_size=size), X)
    parts = fed(cls(K, block_size=size), X, 1, 2, 30, 31, 47, 120)
    single = cls(K, block_size=size)
    Y = np.array([single.fit_next(x) for x in X])
    for other in (parts, single):
        assert subspace_error(whole.get_components(), other.get_components()) < 1e-9
    again = cls(K, block_size=size)
    np.testing.assert_allclose(Y, again.fit_block(X), atol=1e-8)


@pytest.mark.parametrize(("block", "b0"), [(1, 0.0), (7, 0.0), (40, 0.5)])
def test_adaoja_is_the_papers_update(block: int, b0: float) -> None:
    X, K = spiked(280, 30, 4), 4
    state = adaoja.AdaOjaState(np.linalg.qr(X[:K].T)[0], np.full(K, b0**2), X[:0])
    for start in range(0, len(X), block):
        state = adaoja.reference_block(state.Q, state.squares, X[start : start + block])
    model = fed(AdaOja(K, b0=b0, block_size=block), X, 5, 100)
    U = model.get_components(orthogonalize=False)
    np.testing.assert_allclose(np.abs(np.sum(U * state.Q, axis=0)), 1.0, atol=1e-10, err_msg="every column is the paper's")


def test_adaoja_at_full_length_is_the_recurrence(monkeypatch: pytest.MonkeyPatch) -> None:
    X = spiked(300, 30, 4)
    compressed = fed(AdaOja(4), X, 7)
    monkeypatch.setattr(adaoja, "_LEAST_PIVOT", np.inf)
    full = fed(AdaOja(4), X, 7)
    assert subspace_error(compressed.get_components(), full.get_components()) < 1e-12
    np.testing.assert_allclose(compressed.state().running.gradients, full.state().running.gradients, rtol=1e-10)
    np.testing.assert_allclose(compressed.state().running.M, full.state().running.M, atol=1e-12)


@pytest.mark.parametrize(("block", "m"), [(2, 1), (10, 2), (40, 3)])
def test_history_is_the_papers_update(block: int, m: int) -> None:
    X, K = spiked(280, 30, 4), 4
    Q, variances, t = np.linalg.qr(X[:K].T)[0], np.zeros(K), 0
    while t < len(X):
        stop = min(t + (block if t else max(block, K)), len(X))
        Q, variances = history.reference_block(Q, variances, X[t:stop], 1.0 / np.arange(t + 1.0, stop + 1.0), m)
        t = stop
    model = fed(HistoryPCA(K, block_size=block, iterations=m), X, 5, 100)
    assert subspace_error(model.get_components(), Q) < 1e-10
    learned = model.state().running
    assert not len(learned.rows), "the last block is to be whole"
    np.testing.assert_allclose(learned.variances, variances, rtol=1e-9)


def test_history_of_one_block_is_batch_pca() -> None:
    X = spiked(200, 40, 4)
    model = fed(HistoryPCA(4, block_size=200, iterations=60), X)
    assert subspace_error(model.get_components(), top(X, 4)) < 1e-10


@pytest.mark.parametrize("f", [1.0, 0.9])
@pytest.mark.parametrize("center", [False, True])
def test_incremental_svd_is_the_papers_update(f: float, center: bool) -> None:
    X, K = spiked(203, 30, 5) + (0.3 if center else 0.0), 5
    state = isvd.reference_start(np.linalg.qr(X[:K].T)[0], f, center)
    model = IncrementalSVD(K, forgetting=f, center=center)
    for t, x in enumerate(X, start=1):
        state, expected = isvd.reference_step(state, x, 1.0 / t)
        y = model.fit_next(x)
        if t > K:  # K rows about their mean have K−1 directions
            assert subspace_error(model.get_components(), isvd.reference_basis(state)) < 1e-9, f"sample {t}"
        if t > 2 * K:
            assert np.abs(np.abs(y) - np.abs(expected)).max() < 1e-8, f"output of sample {t}"
    np.testing.assert_allclose(model.mean, state.mean, atol=1e-12)
    blocks = fed(IncrementalSVD(K, forgetting=f, center=center), X, 13, 90)
    assert subspace_error(model.get_components(), blocks.get_components()) < 1e-10
    seen = sum(f ** np.arange(40)) * 5 if f < 1 else 200.0
    np.testing.assert_allclose(model.state().running.variances, state.sigma**2 / seen, rtol=1e-9)


def test_incremental_svd_with_room_for_everything_is_centred_pca() -> None:
    rng = np.random.default_rng(1)
    X = rng.standard_normal((90, 12)) * np.linspace(3, 0.5, 12) + 5.0
    model = fed(IncrementalSVD(12, center=True, block_size=7), X, 20)
    variances = model.principal_components()[1]
    np.testing.assert_allclose(variances, np.linalg.svd(X - X.mean(axis=0))[1] ** 2 / 90, rtol=1e-9)
    U = fed(IncrementalSVD(12, center=True, block_size=7), X[:84]).principal_components()[0]
    truth = np.linalg.svd(X[:84] - X[:84].mean(axis=0))[2]
    np.testing.assert_allclose(np.abs(np.sum(U * truth, axis=1)), 1.0, atol=1e-9)


@pytest.mark.parametrize("order", ["random", "sorted", "a burst at the end"])
@pytest.mark.parametrize("size", [8, 20])
def test_frequent_directions_keeps_its_promise(order: str, size: int) -> None:
    """0 ≤ ‖Av‖² − ‖Bv‖² ≤ ‖A − A_k‖²/(ℓ − k) for every v: all eigenvalues of AᵀA − BᵀB."""
    K, rng = 5, np.random.default_rng(size)
    A = rng.standard_normal((600, 40)) / np.arange(1, 41)
    if order == "sorted":
        A = A[np.argsort(A[:, 0])]
    elif order == "a burst at the end":
        A[-30:, 35] += 2.0
    model = fed(FrequentDirections(K, sketch=size), A, 100)
    running = model.state().running
    t = len(A)
    left, keep = weights_left(running.shares)
    sketch = t * (keep * running.B.T @ running.B + (running.rows.T * left) @ running.rows)
    gaps = np.linalg.eigvalsh(A.T @ A - sketch)
    squares = np.linalg.svd(A)[1] ** 2
    bound = min(squares[k:].sum() / (size - k) for k in range(size))
    assert gaps[0] > -1e-9 * squares[0], "the sketch is never larger than the data"
    assert gaps[-1] <= bound * (1 + 1e-9), f"{gaps[-1]:.4f} is missing in a direction, at most {bound:.4f} promised"


def test_a_sketch_of_its_own_size_is_the_papers() -> None:
    X, K, size = spiked(300, 30, 4), 4, 9
    B = X[:0]
    for x in X:
        B = np.vstack([B, x])
        if len(B) == 2 * size:
            B = reference_shrunk(B, size)
    model = fed(FrequentDirections(K, sketch=size), X, 11)
    assert subspace_error(model.get_components(), top(B, K)) < 1e-10


@pytest.mark.parametrize("cls", [*GRADIENT, *BLOCKWISE])
def test_a_constant_share_follows_a_switch(cls: Any) -> None:
    one, two = spiked(sized(1200, 500), 40, 3, seed=1), spiked(sized(1200, 500), 40, 3, seed=2)
    errors = {}
    for name, rate in (("forgets", lambda t: max(1.0 / t, 0.02)), ("remembers", None)):
        model = cls(3, learning_rate=rate)
        model.fit_block(one)
        model.fit_block(two)
        errors[name] = subspace_error(model.get_components(), top(two, 3))
    assert errors["forgets"] < 0.35, errors
    if cls is not AdaOja:  # whose steps fall like 1/sqrt(t), so that it follows by itself
        assert errors["remembers"] > 0.35, "the option has no effect"


# Options


OPTIONS: list[tuple[Any, dict[str, Any]]] = [
    (Oja, {"scale": 3.0, "variance": 2.0}),
    (AdaOja, {"b0": 0.1, "block_size": 6}),
    (HistoryPCA, {"iterations": 3}),
    (IncrementalSVD, {"center": True, "forgetting": 0.9}),
    (FrequentDirections, {"sketch": 7}),
]


@pytest.mark.parametrize(("cls", "options"), OPTIONS)
def test_options_survive_files_and_pickles(cls: Any, options: dict[str, Any], tmp_path: Path) -> None:
    X = spiked(120, 20, 3) + 0.1
    model = fed(cls(3, **options), X[:77])
    model.save(tmp_path / "m.psp")
    others = [cls.load(tmp_path / "m.psp"), pickle.loads(pickle.dumps(model))]
    expected = model.fit_block(X[77:])
    for other in others:
        assert repr(other) != repr(model)
        assert np.array_equal(other.fit_block(X[77:]), expected)
        assert repr(other) == repr(model)
    assert not np.allclose(fed(cls(3), X).get_components(), model.get_components()), "the options have no effect"


@pytest.mark.parametrize(
    ("cls", "options", "message"),
    [
        (Oja, {"scale": 0.0}, "scale must be positive"),
        (SGA, {"variance": -1.0}, "variance must be positive"),
        (GHA, {"U0": np.zeros((2, 20))}, r"U0 must have shape \(3, 20\)"),
        (AdaOja, {"b0": -1.0}, "b0 must be finite and not negative"),
        (HistoryPCA, {"iterations": 0}, "iterations must be at least 1"),
        (IncrementalSVD, {"forgetting": 0.0}, "forgetting must be above 0"),
        (FrequentDirections, {"sketch": 3}, "sketch must be larger than K"),
    ],
)
def test_bad_options(cls: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cls(3, 20, **options)
