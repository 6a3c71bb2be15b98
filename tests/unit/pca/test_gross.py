"""Weights of gross rows: what the guard lets pass, block by block, and what it notes."""

import numpy as np
import pytest

from online_psp.engine.types import Floats
from online_psp.pca.fill import Mask
from online_psp.pca.gross import Guard, Losses, distances, first_weights, guard_of


def spiked(n: int, D: int, seed: int) -> tuple[Floats, Floats, np.random.Generator]:
    rng = np.random.default_rng(seed)
    U = np.linalg.qr(rng.standard_normal((D, 3)))[0]
    return (rng.standard_normal((n, 3)) * [3.0, 2.0, 1.5]) @ U.T + 0.3 * rng.standard_normal((n, D)), U, rng


def spoiled(X: Floats, kind: str, share: float, rng: np.random.Generator) -> tuple[Floats, Mask]:
    X, gross = X.copy(), rng.random(len(X)) < share
    way = rng.standard_normal(X.shape[1])
    along = rng.standard_normal((len(X), 1)) if kind == "direction" else np.ones((len(X), 1))
    noise = rng.standard_normal(X.shape) if kind == "scattered" else along * way
    X[gross] += 10.0 * noise[gross]
    return X, gross


@pytest.mark.parametrize("kind", ["scattered", "direction", "place"])
@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_gross_rows_among_the_first_have_no_weight(kind: str, missing: float) -> None:
    X, _, rng = spiked(400, 60, 0)
    X, gross = spoiled(X + 5.0, kind, 0.3, rng)
    found = first_weights(X, rng.random(X.shape) >= missing, np.ones(400), 3)
    assert found.judged
    assert np.median(found.weights[gross]) < 0.01
    assert found.weights[~gross].mean() > 0.98


@pytest.mark.parametrize("rows", [np.ones((50, 10)), np.eye(5, 10), np.zeros((0, 10))], ids=["alike", "few", "none"])
def test_rows_that_cannot_be_judged_count_fully(rows: Floats) -> None:
    found = first_weights(rows, np.ones(rows.shape, bool), np.ones(len(rows)), 3)
    assert not found.judged
    assert (found.weights == 1.0).all()


@pytest.mark.parametrize("missing", [0.0, 0.4])
def test_distances_know_the_shape_of_a_model_and_not_its_size(missing: float) -> None:
    X, U, rng = spiked(300, 60, 1)
    observed = rng.random(X.shape) >= missing
    X = np.where(observed, X, 0.0)
    variances, variance = np.array([9.0, 4.0, 2.2]), X.var(axis=0) / (1.0 - missing)
    found = distances(U.T, variances, variance, X, observed)
    np.testing.assert_allclose(distances(U.T, 4.0 * variances, 4.0 * variance, X, observed), found, rtol=1e-9)
    assert np.median(distances(U.T, variances, variance, 5.0 * X, observed)) == pytest.approx(25.0 * np.median(found))
    assert distances(U.T[:0], variances[:0], 0.0 * variance, X, observed) == pytest.approx(np.ones(300))


def in_blocks(guard: Guard, logs: Floats, keep: float = 1.0) -> tuple[Guard, Floats]:
    weights = []
    for block in np.array_split(np.exp(logs), len(logs) // 100):
        guard = guard.after(block, np.ones(len(block)), keep)
        weights.append(guard.weights(block))
    return guard, np.concatenate(weights)


def test_a_burst_after_the_first_rows_is_no_new_regime() -> None:
    """Counts begin with the first rows: 300 gross rows after 400 others are not most of what is remembered."""
    rng = np.random.default_rng(2)
    guard = guard_of(np.exp(0.1 * rng.standard_normal(400)), np.ones(400))
    guard, weights = in_blocks(guard, np.concatenate([5.0 + 0.1 * rng.standard_normal(300), 0.1 * rng.standard_normal(700)]))
    assert weights[:300].max() < 0.01
    assert weights[300:].mean() > 0.95


def test_a_new_regime_is_believed_once_it_is_most_of_what_is_remembered() -> None:
    rng = np.random.default_rng(3)
    guard = guard_of(np.exp(0.1 * rng.standard_normal(400)), np.ones(400))
    _, weights = in_blocks(guard, 5.0 + 0.1 * rng.standard_normal(2000), keep=0.8)
    assert weights[:100].max() < 0.01
    assert weights[-1000:].mean() > 0.95


def test_rows_that_are_repeated_are_never_beyond_the_limit_if_they_are_half() -> None:
    rng = np.random.default_rng(4)
    logs = np.where(np.arange(1000) % 3 > 0, 4.0, 0.1 * rng.standard_normal(1000))
    guard = guard_of(np.exp(logs[:400]), np.ones(400))
    _, weights = in_blocks(guard, logs)
    assert weights.min() > 0.99


def nothing_lost(D: int, start: float = 0.0) -> Losses:
    return Losses(start, 0.0, 0.0, start, np.zeros(D), np.ones(D))


def test_a_tail_is_what_single_rows_just_beyond_the_limit_have_lost() -> None:
    ones, squares = np.ones(10), np.full(10, 4.0)
    influence = np.array([1.0, 0.5, 1.0, 1.0, 0.5, 0.5, 0.5, 1.0, 1e-6, 1.0])  # one in a tail, a clump, one far out
    found = nothing_lost(3).after(squares, ones, influence, 0.3, 1.0)
    assert (found.given, found.tail, found.lost) == (10.0, 1.0, 2.0)
    assert found.tail_shares(8.0, 0.25) == pytest.approx((0.1, 0.5))
    assert found.gross_share(7.5) == pytest.approx(0.25)
    twice = found.plus(found)
    assert (twice.given, twice.lost) == (20.0, 4.0)


def test_first_rows_that_differ_from_all_others_are_told_by_their_part_in_the_variance() -> None:
    found = nothing_lost(4, 100.0)
    alike = found.start_shares(1000.0, np.zeros(4), np.ones(4), False)
    assert alike == pytest.approx((0.1, 0.1))
    gross = found._replace(variance=np.full(4, 50.0)).start_shares(1000.0, np.zeros(4), np.full(4, 6.0), True)
    assert gross == pytest.approx((0.1, 5.0 / 6.0))
    apart = found._replace(mean=np.full(4, 9.0)).start_shares(1000.0, np.full(4, 0.9), np.full(4, 8.29 + 1.0), False)
    assert apart[1] > 0.7
