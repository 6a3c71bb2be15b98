"""SubspaceOutlierDetector under scikit-learn's own checks, and what they do not look at."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.utils.estimator_checks import parametrize_with_checks

from online_psp.engine.types import Floats
from online_psp.monitoring import SubspaceOutlierDetector


@parametrize_with_checks([SubspaceOutlierDetector(), SubspaceOutlierDetector(1, half_life=50.0)])
def test_scikit_learn_contract(estimator: Any, check: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


def rows_with_outliers(n: int = 2000) -> tuple[Floats, NDArray[np.bool_]]:
    """Rows near a plane, and every fortieth off it or far out within it."""
    rng = np.random.default_rng(0)
    plane = np.linalg.qr(rng.standard_normal((30, 2)))[0].T
    X = rng.standard_normal((n, 2)) * [5, 4] @ plane + rng.standard_normal((n, 30)) + 3.0
    odd = np.arange(n) % 40 == 39
    X[odd] += np.where(np.arange(n)[odd, np.newaxis] % 80 == 39, 3.0 * rng.standard_normal((odd.sum(), 30)), 40 * plane[0])
    return X, odd


def test_outliers_of_both_kinds_are_found_and_few_others() -> None:
    X, odd = rows_with_outliers()
    found = SubspaceOutlierDetector(2, alpha=0.01, learn_outliers=False).fit(X).predict(X) < 0
    assert found[odd].mean() > 0.98
    assert found[~odd].mean() < 0.03


def test_ordinary_rows_are_flagged_at_the_level_asked_for() -> None:
    rng = np.random.default_rng(1)
    X = rng.standard_normal((8000, 40)) * np.concatenate([[6, 5, 4], np.ones(37)])
    detector = SubspaceOutlierDetector(3, alpha=0.05).fit(X[:4000])
    assert 0.035 < np.mean(detector.predict(X[4000:]) < 0) < 0.065


def test_contamination_is_the_share_of_rows_flagged() -> None:
    X, odd = rows_with_outliers()
    detector = SubspaceOutlierDetector(2, contamination=0.025).fit(X)
    assert np.sum(detector.predict(X) < 0) == 50
    assert (detector.predict(X)[odd] < 0).mean() > 0.85
    with pytest.raises(ValueError, match="contamination needs all rows at once"):
        detector.partial_fit(X)


def test_a_stream_in_parts_gives_the_same_detector() -> None:
    X, _ = rows_with_outliers(600)
    whole, parts, sparse = SubspaceOutlierDetector(2).fit(X), SubspaceOutlierDetector(2), SubspaceOutlierDetector(2)
    for part in np.split(X, [1, 7, 50, 333]):
        parts.partial_fit(part)
        sparse.partial_fit(csr_array(part))
        assert np.isfinite(parts.decision_function(X[:20])).all(), "there are limits from the first row on"
    np.testing.assert_allclose(parts.score_samples(X), whole.score_samples(X), rtol=1e-9)
    np.testing.assert_allclose(sparse.score_samples(csr_array(X)), whole.score_samples(X), rtol=1e-7)


@pytest.mark.parametrize("contamination", [0.0, 0.6, "many", True, float("nan")])
def test_impossible_contamination(contamination: Any) -> None:
    with pytest.raises(ValueError, match="contamination must be in"):
        SubspaceOutlierDetector(1, contamination=contamination).fit(np.eye(5))


def test_options_do_not_change_half_way() -> None:
    X, _ = rows_with_outliers(200)
    detector = SubspaceOutlierDetector(2).partial_fit(X)
    before = detector.score_samples(X)
    with pytest.raises(ValueError, match="has changed since learning began"):
        detector.set_params(alpha=0.2).partial_fit(X)
    with pytest.raises(ValueError, match="NaN"):
        detector.set_params(alpha=0.05).partial_fit(np.full((3, 30), np.nan))
    np.testing.assert_array_equal(detector.score_samples(X), before)
