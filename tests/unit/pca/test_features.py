"""Features that come later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array

from online_psp import OnlinePCA
from online_psp.engine.types import Array
from online_psp.metrics import subspace_error
from online_psp.monitoring import Monitor
from tests.oracle import check_same

K, STOP = 3, 500


def rows(D: int, more: int, n: int = 1100) -> Array:
    """Rows of D features, and more that are zero at first."""
    rng = np.random.default_rng(50)
    mixing = rng.standard_normal((K, D + more)) * np.linspace(3, 2, K)[:, np.newaxis]
    X = rng.standard_normal((n, K)) @ mixing + 0.5 * rng.standard_normal((n, D + more)) + 1.0
    X[:STOP, D:] = 0.0
    return X


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    "options",
    [{}, {"half_life": 300}, {"window": 600}, {"standardize": True}, {"axes": "stable"}, {"center": False}, {"dtype": "float32"}],
)
@pytest.mark.parametrize(("D", "more"), [(9, 2), (60, 200), (300, 40)])
def test_they_have_been_zero(D: int, more: int, options: dict[str, Any], sparse: bool) -> None:
    X = rows(D, more)
    first, later = (csr_array(part) if sparse else part for part in (X[:STOP, :D], X[STOP:]))
    model = OnlinePCA(K, **options).partial_fit(first)
    variances = model.explained_variance_
    assert model.add_features(more) is model
    assert model.components_.shape == (K, D + more)
    assert np.allclose(model.explained_variance_, variances, rtol=1e-5)
    model.partial_fit(later)
    other = OnlinePCA(K, **options).partial_fit(X)
    assert model.n_samples_seen_ == other.n_samples_seen_
    tolerance = 1e-5 if "dtype" in options else 1e-10
    assert np.allclose(model.mean_, other.mean_, atol=tolerance)
    assert np.allclose(model.var_, other.var_, rtol=tolerance)
    assert subspace_error(model.components_.T, other.components_.T) < (1e-6 if D == 9 else 0.01)


@pytest.mark.parametrize("options", [{}, {"robust": True}, {"window": 800}, {"standardize": True}])
@pytest.mark.parametrize(("D", "more"), [(9, 3), (60, 200), (300, 40)])
def test_they_have_been_missing(D: int, more: int, options: dict[str, Any]) -> None:
    X = rows(D, more)
    model = OnlinePCA(K, missing="impute", **options).partial_fit(X[:STOP, :D])
    before = model.mean_
    model.add_features(more).partial_fit(X[STOP:])
    late = X[STOP:, D:]
    if "robust" not in options:
        assert np.allclose(model.mean_[D:], late.mean(axis=0), atol=1e-9)
        assert np.allclose(model.var_[D:], late.var(axis=0, ddof=1), rtol=1e-6)
    assert not np.allclose(model.mean_[:D], before)
    Z = X[STOP:]
    Z = (Z - Z.mean(axis=0)) / (Z.std(axis=0) if "standardize" in options else 1.0)
    assert subspace_error(model.components_.T, np.linalg.svd(Z, full_matrices=False)[2][:K].T) < 0.2
    holes = X[-100:].copy()
    holes[:, D:] = np.nan
    missed = model.impute(holes)[:, D:] - X[-100:, D:]
    assert (missed**2).mean() < (0.4 if "window" in options else 0.2) * late.var(axis=0).mean(), "filled from the others"


@pytest.mark.parametrize("stop", [0, 1, 40, STOP])
@pytest.mark.parametrize("options", [{}, {"window": 90}, {"missing": "impute"}, {"axes": "stable", "robust": True}])
def test_a_copy_goes_on_bit_for_bit(options: dict[str, Any], stop: int, tmp_path: Path) -> None:
    X = rows(60, 200)
    model = OnlinePCA(K, **options).partial_fit(X[: stop + 1, :60])
    for x in X[stop + 1 : stop + 9, :60]:
        model.fit_next(x)
    model.add_features(150).add_features(50)
    model.save(tmp_path / "m.psp")
    other = OnlinePCA.load(tmp_path / "m.psp")
    for each in (model, other):
        each.partial_fit(X[stop + 9 : stop + 200])
        each.fit_next(X[-1])
    check_same(model, other)


def test_by_name() -> None:
    frame = pd.DataFrame(rows(3, 2), columns=list("abcde"))
    model = OnlinePCA(2).partial_fit(frame.loc[: STOP - 1, ["a", "b", "c"]])
    model.add_features(["d", "e"]).partial_fit(frame[STOP:])
    assert list(model.feature_names_in_) == list("abcde")
    assert model.n_features_in_ == 5
    assert np.allclose(model.components_, OnlinePCA(2).fit(frame).components_)


@pytest.mark.parametrize(
    ("names", "new", "error", "word"),
    [
        (True, ["b"], ValueError, "'b' already"),
        (True, ["x", "x"], ValueError, "'x' already"),
        (True, 2, ValueError, "names"),
        (True, "x", TypeError, "list"),
        (True, [1], TypeError, "list"),
        (False, ["x"], ValueError, "no names"),
        (False, 0, ValueError, "at least 1"),
        (False, True, TypeError, "number"),
        (False, 1.5, TypeError, "number"),
    ],
)
def test_what_is_no_new_feature_is_one_sentence(names: bool, new: Any, error: type[Exception], word: str) -> None:
    X = rows(3, 0)
    model, other = (OnlinePCA(2).fit(pd.DataFrame(X, columns=list("abc")) if names else X) for _ in range(2))
    with pytest.raises(error, match=word):
        model.add_features(new)
    check_same(model, other)


def test_all_directions_grow_with_the_features() -> None:
    X = rows(4, 2)
    model = OnlinePCA().fit(X[:STOP, :4]).add_features(2)
    assert model.n_components_ == 4
    assert model.partial_fit(X[STOP:]).n_components_ == 6


def test_a_monitor_has_to_begin_anew() -> None:
    X = rows(6, 2)
    monitor = Monitor(OnlinePCA(2))
    monitor.update(X[:STOP, :6])
    monitor.model.add_features(2)
    with pytest.raises(ValueError, match="new Monitor"):
        monitor.update(X[STOP:])
    assert np.isfinite(Monitor(monitor.model).update(X[STOP:]).t2[-1])
