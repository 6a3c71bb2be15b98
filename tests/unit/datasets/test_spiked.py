"""The generator gives the covariance that it promises."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from online_psp.datasets import SpikedCovariance, spiked_covariance


def test_sample_covariance_is_the_models() -> None:
    rho = 0.05
    sample = spiked_covariance(200_000, 8, 3, rho=rho, seed=4)
    expected = sample.U @ np.diag([1.0, 0.75, 0.5]) @ sample.U.T + rho * np.eye(8)
    assert np.abs(sample.X.T @ sample.X / len(sample.X) - expected).max() < 0.02
    assert np.allclose(sample.variances, np.array([1.0, 0.75, 0.5]) + rho)
    assert np.allclose(sample.U.T @ sample.U, np.eye(3))


def test_rows_depend_on_the_seed_and_not_on_the_cut() -> None:
    whole = spiked_covariance(50, 20, 4, seed=3).X
    stream = np.concatenate(list(islice(SpikedCovariance(20, 4, seed=3).blocks(10), 5)))
    assert np.array_equal(whole, stream)
    assert not np.array_equal(whole, spiked_covariance(50, 20, 4, seed=5).X)


def test_one_component_has_variance_one() -> None:
    assert spiked_covariance(10, 5, 1, rho=0.0).variances == pytest.approx([1.0])


@pytest.mark.parametrize(("D", "K", "rho"), [(3, 4, 0.1), (3, 0, 0.1), (3, 2, -0.1)])
def test_impossible_models_are_refused(D: int, K: int, rho: float) -> None:
    with pytest.raises(ValueError, match=r"K must be between 1 and D|rho must not be negative"):
        SpikedCovariance(D, K, rho)
