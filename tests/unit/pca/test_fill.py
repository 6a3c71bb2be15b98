"""Completing rows: against conditional Gaussians, and without bias whatever the model."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from online_psp.engine.types import Floats
from online_psp.metrics import subspace_error
from online_psp.pca.fill import Filled, Gaussian, Mask, expect, fill, first_directions, gaussian, leading_of_filled, no_trust, solve


def model_of(D: int, k: int) -> tuple[Gaussian, Floats, np.random.Generator]:
    rng, noise = np.random.default_rng(0), 0.3
    directions = np.linalg.qr(rng.standard_normal((D, k)))[0].T
    model = Gaussian(directions, np.linspace(3.0, 1.0, k), noise)
    covariance = (directions.T * model.lengths**2) @ directions + noise * np.eye(D)
    return model, covariance, rng


def spiked(n: int, D: int, K: int, seed: int) -> tuple[Floats, Floats, np.random.Generator]:
    rng = np.random.default_rng(seed)
    U = np.linalg.qr(rng.standard_normal((D, K)))[0]
    rows = (rng.standard_normal((n, K)) * np.sqrt(D / 20) * 3.0 * 0.8 ** np.arange(K)) @ U.T + 0.3 * rng.standard_normal((n, D))
    return rows, U, rng


def spoiled(rows: Floats, missing: float | Floats, rng: np.random.Generator) -> tuple[Floats, Mask]:
    observed = rng.random(rows.shape) >= missing
    return np.where(observed, rows, 0.0), observed


@pytest.mark.parametrize("missing", [0.05, 0.5, 0.9])
def test_expected_values_and_likelihoods_are_those_of_the_conditional_gaussian(missing: float) -> None:
    model, covariance, rng = model_of(24, 8)
    rows, observed = spoiled(rng.multivariate_normal(np.zeros(24), covariance, 40), missing, rng)
    found = expect(model, rows, observed, likelihoods=True)
    np.testing.assert_allclose(expect(model, rows, observed).rows, found.rows, atol=1e-5)
    for i in np.flatnonzero(observed.any(axis=1)):
        o = observed[i]
        conditional = covariance[:, o] @ np.linalg.solve(covariance[np.ix_(o, o)], rows[i, o])
        np.testing.assert_allclose(found.rows[i, ~o], conditional[~o], atol=1e-9)
        np.testing.assert_allclose(
            found.log_likelihoods[i], multivariate_normal.logpdf(rows[i, o], cov=covariance[np.ix_(o, o)]), atol=1e-9
        )


def completed(rows: Floats, B: Floats, d: Floats, holed: Floats, observed: Mask, weights: Floats, least: float = 0.0) -> Filled:
    """Rows completed by a model of exact variances, of which nothing was predicted yet."""
    variance = rows.var(axis=0)
    return fill(B, d, float(variance.sum()), np.inf, variance, no_trust(rows.shape[1]), holed, observed, weights, least)


def test_posterior_covariance_is_the_mean_over_rows_with_few_and_with_many_holes() -> None:
    model, _, rng = model_of(24, 8)
    _, observed = spoiled(np.ones((16, 24)), np.linspace(0.0, 0.9, 16)[:, np.newaxis], rng)
    weights = rng.random(16)
    L = np.diag(model.lengths)
    each = [L @ np.linalg.inv(np.eye(8) + L @ model.directions[:, o] @ model.directions[:, o].T @ L / model.noise) @ L for o in observed]
    np.testing.assert_allclose(
        solve(model, np.zeros((16, 24)), observed, weights).posterior, np.average(each, axis=0, weights=weights), atol=1e-9
    )


def test_complete_rows_stay_as_they_are() -> None:
    rows, U, _ = spiked(50, 20, 3, 0)
    made = completed(
        rows,
        U.T,
        np.array([3.0, 2.0, 1.0]),
        rows,
        np.ones(rows.shape, bool),
        np.full(50, 0.02),
    )
    np.testing.assert_array_equal(made.rows, rows)
    np.testing.assert_allclose(made.apart, 0.0, atol=1e-12)


@pytest.mark.parametrize("turned", [False, True], ids=["true model", "wrong model"])
def test_a_wrong_model_adds_no_bias(turned: bool) -> None:
    rows, U, rng = spiked(400, 30, 3, 1)
    d = np.asarray(np.linalg.eigvalsh(rows.T @ rows / 400)[::-1][:3], dtype=np.float64)
    B = np.linalg.qr(rng.standard_normal((30, 3)))[0].T if turned else U.T
    weights, found = np.full(400, 1 / 400), np.zeros((30, 30))
    for _ in range(200):
        holed, observed = spoiled(rows, 0.3, rng)
        made = completed(rows, B, d, holed, observed, weights)
        found += ((made.rows.T * made.weights) @ made.rows - np.diag(made.apart)) / 200
    truth = rows.T @ rows / 400
    assert np.linalg.norm(found - truth) < 0.02 * np.linalg.norm(truth)


def test_a_feature_that_others_do_not_predict_is_filled_with_its_mean() -> None:
    rows, U, rng = spiked(2000, 30, 3, 2)
    rows[:, 0] = 5.0 * rng.standard_normal(2000)
    holed, observed = spoiled(rows, 0.3, rng)
    B = U.T + 0.3 * np.eye(30)[:1]  # a model that takes it for predictable
    B = np.linalg.qr(B.T)[0].T
    made = completed(
        rows,
        B,
        np.array([20.0, 10.0, 5.0]),
        holed,
        observed,
        np.full(2000, 1 / 2000),
    )
    assert made.trust.slopes[0] < 0.1
    assert np.abs(made.rows[~observed[:, 0], 0]).max() < 0.5
    assert np.median(made.trust.slopes[1:]) > 0.9


def test_a_feature_absent_from_the_block_keeps_its_covariances() -> None:
    rows, _, _ = spiked(3000, 30, 3, 3)
    truth = rows.T @ rows / 3000
    d, B = np.linalg.eigh(truth)
    observed = np.ones(rows.shape, bool)
    observed[:, :8] = False
    holed = np.where(observed, rows, 0.0)
    made = completed(
        rows,
        B[:, ::-1].T[:3],
        d[::-1][:3],
        holed,
        observed,
        np.full(3000, 1 / 3000),
    )
    found = (made.rows.T * made.weights) @ made.rows - np.diag(made.apart)
    assert np.linalg.norm(found - truth) < 0.05 * np.linalg.norm(truth)


@pytest.mark.parametrize(("D", "rank"), [(40, 10), (120, 10)], ids=["few features", "many features"])
def test_the_first_rows_give_their_directions_whatever_is_missing(D: int, rank: int) -> None:
    rows, _, rng = spiked(600, D, 3, 4)
    truth = np.linalg.svd(rows, full_matrices=False)[2][:3]
    share = np.full(D, 0.1)
    share[:3] = 0.9
    missing: float | Floats
    for missing, limit in ((0.3, 0.05), (share, 0.2)):
        holed, observed = spoiled(rows, missing, rng)
        directions, variances, _ = first_directions(holed, observed, np.full(600, 1 / 600), rank, rank)
        assert subspace_error(directions[:3].T, truth.T) < limit
        assert (np.diff(variances) <= 0).all()


def test_leading_directions_of_many_features_are_those_of_the_matrix() -> None:
    rows, _, rng = spiked(300, 150, 3, 5)
    holed, observed = spoiled(rows, 0.4, rng)
    weights = np.full(300, 1 / 300)
    made = first_directions(holed, observed, weights, 12, 12)[2]
    directions, variances = leading_of_filled(made, 12, 12, np.zeros((0, holed.shape[1])), np.zeros(0))
    whole = np.linalg.eigvalsh((made.rows.T * made.weights) @ made.rows - np.diag(made.apart))[::-1]
    np.testing.assert_allclose(variances[:3], whole[:3], rtol=1e-6)
    np.testing.assert_allclose(variances, whole[:12], rtol=0.1)
    np.testing.assert_allclose(directions @ directions.T, np.eye(12), atol=1e-10)


def test_rows_without_any_value_and_features_that_do_not_vary() -> None:
    rows, _, rng = spiked(60, 20, 3, 6)
    rows[:, 4] = 0.0
    holed, observed = spoiled(rows, 0.3, rng)
    holed[5], observed[5] = 0.0, False
    directions, _, made = first_directions(holed, observed, np.full(60, 1 / 60), 6, 6)
    assert np.isfinite(made.rows).all()
    assert np.isfinite(directions).all()
    np.testing.assert_array_equal(made.rows[5], 0.0)
    none = first_directions(np.zeros((10, 20)), observed[:10], np.full(10, 0.1), 6, 6)
    assert none[0].shape == (0, 20)
    assert np.isfinite(fill(*none[:2], 0.0, np.inf, np.zeros(20), none[2].trust, holed, observed, np.full(60, 1 / 60)).rows).all()


def test_a_row_with_few_values_is_filled_with_few_directions() -> None:
    assert len(gaussian(np.eye(10, 40), np.arange(10.0, 0.0, -1.0), 60.0, 0.2).directions) == 2


def test_features_that_cease_within_the_block_keep_their_covariances() -> None:
    rows, _, _ = spiked(4000, 30, 3, 7)
    truth = rows.T @ rows / 4000
    d, B = np.linalg.eigh(truth)
    observed = np.ones(rows.shape, bool)
    observed[1500:, :8] = False
    made = completed(
        rows,
        B[:, ::-1].T[:3],
        d[::-1][:3],
        rows * observed,
        observed,
        np.full(4000, 1 / 4000),
    )
    found = (made.rows.T * made.weights) @ made.rows - np.diag(made.apart)
    assert np.linalg.norm(found - truth) < 0.05 * np.linalg.norm(truth)


def test_a_feature_seen_a_few_times_is_divided_by_no_less_than_asked() -> None:
    rows, U, _ = spiked(400, 30, 3, 8)
    observed = np.ones(rows.shape, bool)
    observed[4:, 0] = False
    made = completed(
        rows,
        U.T[:0],
        np.zeros(0),
        rows * observed,
        observed,
        np.full(400, 1 / 400),
        0.1,
    )
    np.testing.assert_allclose(made.rows[:4, 0], 10.0 * rows[:4, 0])
    assert made.rows[:, 1:] == pytest.approx(rows[:, 1:])
