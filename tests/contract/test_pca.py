"""OnlinePCA as a scikit-learn estimator, and against batch PCA."""

from __future__ import annotations

import copy
import functools
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from online_psp import OnlinePCA
from online_psp.metrics import subspace_error
from tests.oracle import check_same, wide

LEAVES_OUT: dict[str, Any] = {"n_components": 1, "oversample": 0}
"""Too few directions to be exact, even on the small data of scikit-learn's checks."""


@parametrize_with_checks(
    [
        OnlinePCA(),
        OnlinePCA(2),
        OnlinePCA(missing="impute"),
        OnlinePCA(2, robust=True),
        *(OnlinePCA(**LEAVES_OUT, missing=m) for m in ("error", "impute")),
    ]
)
def test_scikit_learn_contract(estimator: Any, check: Any) -> None:
    if "sample_weight_equivalence" in check.func.__name__ and (estimator.oversample == 0 or estimator.robust):
        pytest.skip("weights are repeats to the last digit where nothing is left out, and medians do not count weights")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


def test_the_tag_of_missing_values_follows_the_option() -> None:
    assert OnlinePCA(missing="impute").__sklearn_tags__().input_tags.allow_nan
    assert not OnlinePCA().__sklearn_tags__().input_tags.allow_nan


# Against batch PCA


def test_components_and_variances_are_those_of_batch_pca() -> None:
    X = wide(4000)
    model, batch = OnlinePCA(5).fit(X), PCA(5).fit(X)
    assert subspace_error(model.components_.T, batch.components_.T) < 0.002
    assert np.abs(np.sum(model.components_ * batch.components_, axis=1)).min() > 0.9999
    assert (model.components_[np.arange(5), np.argmax(np.abs(model.components_), axis=1)] > 0).all()
    assert np.allclose(model.mean_, X.mean(axis=0), atol=1e-12)
    for name in ("explained_variance_", "explained_variance_ratio_", "singular_values_", "noise_variance_"):
        assert np.allclose(getattr(model, name), getattr(batch, name), rtol=0.01), name
    assert model.n_samples_seen_ == 4000


@pytest.mark.parametrize("kind", ["few features", "few directions", "few rows"])
def test_exact_while_nothing_need_be_left_out(kind: str) -> None:
    rng = np.random.default_rng(5)
    X = {
        "few features": rng.standard_normal((700, 30)) * np.linspace(3, 1, 30),
        "few directions": rng.standard_normal((700, 6)) * np.linspace(3, 1, 6) @ rng.standard_normal((6, 400)),
        "few rows": rng.standard_normal((12, 400)) * np.linspace(3, 1, 400),
    }[kind] + 2.0
    model = OnlinePCA(4)
    for part in np.array_split(X, 11):
        model.partial_fit(part)
    batch = PCA(4, svd_solver="full").fit(X)
    assert subspace_error(model.components_.T, batch.components_.T) < 1e-10
    assert np.allclose(model.explained_variance_, batch.explained_variance_, rtol=1e-10)
    assert np.allclose(model.explained_variance_ratio_, batch.explained_variance_ratio_, rtol=1e-10)
    assert model.noise_variance_ == pytest.approx(batch.noise_variance_, rel=1e-8)
    assert np.allclose(model.score_samples(X), batch.score_samples(X), rtol=1e-6)
    assert np.allclose(model.get_covariance(), batch.get_covariance(), atol=1e-9)
    assert np.allclose(model.get_precision() @ model.get_covariance(), np.eye(X.shape[1]), atol=1e-8)
    assert np.allclose(np.abs(model.transform(X)), np.abs(batch.transform(X)), atol=1e-8)
    assert np.allclose(model.inverse_transform(model.transform(X)), batch.inverse_transform(batch.transform(X)), atol=1e-8)


def test_without_centring_the_origin_is_the_mean() -> None:
    X = wide(800)
    model = OnlinePCA(6, center=False).fit(X)
    expected = np.linalg.svd(X, full_matrices=False)[2][:6]
    assert subspace_error(model.components_.T, expected.T) < 0.01
    assert np.array_equal(model.mean_, np.zeros(300))
    assert np.allclose(model.transform(X), X @ model.components_.T)


@pytest.mark.parametrize("D", [20, 300])
def test_a_weight_of_two_is_the_row_twice(D: int) -> None:
    X = wide(500, D=D)
    weights = np.random.default_rng(1).integers(0, 4, 500)
    weighted = OnlinePCA(4).partial_fit(X[:300], sample_weight=weights[:300]).partial_fit(X[300:], sample_weight=weights[300:])
    repeated = OnlinePCA(4).fit(np.repeat(X, weights, axis=0))
    tolerance = 1e-9 if D == 20 else 5e-3  # exact with few features; else to what one update in place of two differs by
    assert np.allclose(weighted.mean_, repeated.mean_)
    assert subspace_error(weighted.components_.T, repeated.components_.T) < tolerance
    assert np.allclose(weighted.explained_variance_, repeated.explained_variance_, rtol=tolerance)


def test_a_share_of_variance_chooses_the_number() -> None:
    X = wide(1000)
    for share in (0.5, 0.9, 0.99):
        assert OnlinePCA(share).fit(X).n_components_ == PCA(share, svd_solver="full").fit(X).n_components_
    poor = OnlinePCA(0.9999, max_rank=10).fit(X)
    with pytest.warns(UserWarning, match=r"0\.8\d+ of the variance.*0\.9999"):
        assert poor.n_components_ == 10
    wide_rows = wide(4000, D=700)
    grown = OnlinePCA(0.7, max_rank=100).fit(wide_rows)
    assert grown.n_components_ == PCA(0.7, svd_solver="full").fit(wide_rows).n_components_


def test_float32_in_float32_out() -> None:
    X = wide(1500)
    single, double = OnlinePCA(4).fit(X.astype(np.float32)), OnlinePCA(4).fit(X)
    assert single.components_.dtype == single.transform(X.astype(np.float32)).dtype == single.mean_.dtype == np.float32
    assert subspace_error(single.components_.T, double.components_.T) < 1e-3
    assert OnlinePCA(4, dtype=np.float32).fit(X).components_.dtype == np.float32


# Merging


@pytest.mark.parametrize(
    ("n", "D", "parts", "tolerance"), [(2000, 20, 2, 1e-9), (120, 300, 2, 1e-9), (2000, 300, 2, 0.01), (3000, 300, 8, 0.01)]
)
def test_merged_models_have_seen_all_streams(n: int, D: int, parts: int, tolerance: float) -> None:
    X = wide(n, D=D)
    X[n // 2 :] += 1.5  # streams with different means
    batch = PCA(5, svd_solver="full").fit(X)
    models = [OnlinePCA(5).fit(part) for part in np.array_split(X, parts)]
    kept = copy.deepcopy(models)
    merged = functools.reduce(lambda one, two: one.merge(two), copy.deepcopy(models))
    backwards = functools.reduce(lambda one, two: one.merge(two), copy.deepcopy(models[::-1]))
    for one, two in zip(models, kept, strict=True):
        check_same(one, two, "a model that was merged into another")
    assert merged.n_samples_seen_ == backwards.n_samples_seen_ == n
    assert np.allclose(merged.mean_, X.mean(axis=0), atol=1e-12)
    assert np.allclose(merged.var_, X.var(axis=0, ddof=1), rtol=1e-10)
    assert subspace_error(merged.components_.T, backwards.components_.T) < tolerance
    assert subspace_error(merged.components_.T, batch.components_.T) < tolerance
    assert np.allclose(merged.explained_variance_, batch.explained_variance_, rtol=tolerance)
    more = merged.partial_fit(X[:500])
    assert more.n_samples_seen_ == n + len(X[:500])
    assert np.allclose(more.components_ @ more.components_.T, np.eye(5), atol=1e-10)


@pytest.mark.parametrize(
    ("mine", "theirs", "word"),
    [
        ({}, {"center": False}, "centre"),
        ({}, {"standardize": True}, "standardi"),
        ({"robust": True}, {}, "robust"),
        ({"half_life": 60}, {"half_life": 60}, "forget by rows"),
        ({"half_life": 60}, {"half_life": 50}, "half-li"),
        ({"window": 60}, {}, "window"),
        ({}, {"window": 60}, "window"),
    ],
)
def test_models_that_cannot_be_merged(mine: dict[str, Any], theirs: dict[str, Any], word: str) -> None:
    X = wide(100, D=30)
    one, two = OnlinePCA(3, **mine).fit(X), OnlinePCA(3, **theirs).fit(X)
    with pytest.raises(ValueError, match=word):
        one.merge(two)
    assert one.n_samples_seen_ == 100


def test_what_is_merged_is_fitted_to_the_same_features() -> None:
    X = wide(100)
    with pytest.raises(ValueError, match=r"300.*60"):
        OnlinePCA(3).fit(X).merge(OnlinePCA(3).fit(X[:, :60]))
    with pytest.raises(NotFittedError):
        OnlinePCA(3).fit(X).merge(OnlinePCA(3))
    frame = pd.DataFrame(X[:, :3], columns=list("abc"))
    with pytest.raises(ValueError, match=r"feature 1.*'b'.*'c'"):
        OnlinePCA(2).fit(frame).merge(OnlinePCA(2).fit(frame[["a", "c", "b"]]))


# Settings


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("n_components", 0, ValueError),
        ("n_components", 1.5, ValueError),
        ("n_components", 301, ValueError),
        ("n_components", "mle", ValueError),
        ("oversample", -1, ValueError),
        ("oversample", 2.5, TypeError),
        ("max_rank", 0, ValueError),
        ("center", "yes", TypeError),
        ("whiten", 1, TypeError),
        ("missing", "drop", ValueError),
        ("axes", "steady", ValueError),
        ("axes", np.array([1, 2]), ValueError),
        ("reference", np.eye(2, 300), ValueError),
        ("dtype", "int8", ValueError),
        ("half_life", 0, ValueError),
        ("half_life", -1, ValueError),
        ("half_life", float("nan"), ValueError),
        ("half_life", "10 parsecs", ValueError),
        ("window", 1, ValueError),
        ("window", 10.0, TypeError),
        ("half_life", "1M", ValueError),  # months, or minutes?
        ("half_life", np.timedelta64(1, "M"), ValueError),
    ],
)
def test_bad_parameters_are_named_before_anything_is_learned(name: str, value: Any, error: type[Exception]) -> None:
    model = OnlinePCA(**{"n_components": 2, name: value})
    with pytest.raises(error, match=name if name != "reference" else "axes='stable'"):
        model.partial_fit(wide(50))
    assert not hasattr(model, "n_features_in_")


@pytest.mark.parametrize(
    ("name", "value"),
    [("center", False), ("oversample", 3), ("half_life", 10.0), ("window", 9), ("dtype", "float32"), ("missing", "impute")],
)
def test_what_learning_depends_on_is_fixed_at_the_first_row(name: str, value: Any) -> None:
    X = wide(400)
    model, as_it_was = OnlinePCA(3).partial_fit(X[:50]), OnlinePCA(3).partial_fit(X[:50])
    model.set_params(**{name: value})
    for learn, rows in ((model.partial_fit, X[50:]), (model.fit_next, X[50])):
        with pytest.raises(ValueError, match=f"{name} was .*start anew"):
            learn(rows)
    check_same(model, as_it_was)
    assert model.fit(X).n_samples_seen_ == 400


def test_what_is_only_read_may_change() -> None:
    X = wide(600)
    model = OnlinePCA(3).partial_fit(X[:300])
    model.set_params(whiten=True, n_components=5).partial_fit(X[300:])
    assert np.allclose(model.transform(X).std(axis=0, ddof=1), np.ones(5), rtol=0.01)
    assert model.fit_next(X[0]).shape == (5,)
    model.n_components, model.whiten = 2, False
    y = model.fit_next(X[1])
    assert y.shape == (2,), "a sample's coordinates should follow n_components at once"
    assert np.allclose(y, model.transform(X[1:2])[0], atol=1.0), "and they should no longer be whitened"
    model.set_params(n_components=200)
    with pytest.raises(ValueError, match=r"200.*start anew"):
        model.partial_fit(X)


def test_the_parameters_of_incremental_pca_are_taken() -> None:
    X = wide(300)
    model = OnlinePCA(n_components=3, whiten=False, copy=True, batch_size=50)
    for start in range(0, 300, 100):
        model.partial_fit(X[start : start + 100], check_input=False)
    check_same(model, OnlinePCA(3).fit(X))


# What comes in


@pytest.mark.parametrize("seen", [0, 10, 700])
def test_bad_rows_leave_the_model_as_it_was(seen: int) -> None:
    X = wide(800)
    model, as_it_was = OnlinePCA(4), OnlinePCA(4)
    for each in (model, as_it_was):
        if seen:
            each.partial_fit(X[:seen])
    hole, endless = X[:50].copy(), X[:50].copy()
    hole[7, 3], endless[7, 3] = np.nan, np.inf
    narrow = X[:, :7] if seen else X[:, :0]
    for rows, word in ((hole, "row 7, column 3"), (endless, "row 7, column 3"), (narrow, "feature"), (np.full((3, 300), "a"), "a")):
        with pytest.raises(ValueError, match=word):
            model.partial_fit(rows)
    for weights in ([1.0, -1.0, 1.0], [1.0, np.nan, 1.0], [1.0, 1.0]):
        with pytest.raises(ValueError, match="weight"):
            model.partial_fit(X[:3], sample_weight=weights)
    for row, kind, word in (
        (X[0, :5] if seen else X[:2], ValueError, "one sample of shape"),
        (X[0] * np.nan, ValueError, "NaN|finite"),
        (X[0] + 1j, (TypeError, ValueError), "real|[cC]omplex"),
        (np.full(300, "a"), (TypeError, ValueError), "real|str|a"),
    ):
        with pytest.raises(kind, match=word):
            model.fit_next(row)
    if not seen:
        assert not hasattr(model, "components_")
    for each in (model, as_it_was):
        each.partial_fit(X[seen:])
    check_same(model, as_it_was, "a model that has refused rows")


def test_names_frames_and_pipelines() -> None:
    X = wide(300, D=20)
    frame = pd.DataFrame(X, columns=[f"gene{i}" for i in range(20)])
    model = OnlinePCA(3).set_output(transform="pandas").fit(frame)
    out = model.transform(frame)
    assert list(out.columns) == ["onlinepca0", "onlinepca1", "onlinepca2"]
    assert list(model.feature_names_in_) == list(frame.columns)
    assert make_pipeline(StandardScaler(), OnlinePCA(2)).fit_transform(X).shape == (300, 2)
    polars = pytest.importorskip("polars", reason="polars is not installed")
    table = polars.DataFrame(X, schema=list(frame.columns))
    assert np.allclose(OnlinePCA(3).set_output(transform="polars").fit(table).transform(table).to_numpy(), out.to_numpy())
    whitened = OnlinePCA(3, whiten=True).fit(X)
    assert np.allclose(np.std(whitened.transform(X), axis=0, ddof=1), 1.0)
    assert np.allclose(whitened.inverse_transform(whitened.transform(X)), model.inverse_transform(out.to_numpy()))


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_what_a_table_holds_besides_numbers_is_named(library: str) -> None:
    turns = {"pandas": lambda: pd.DataFrame, "polars": lambda: pytest.importorskip("polars").from_pandas}
    turn = turns.get(library, lambda: pytest.importorskip("pyarrow").Table.from_pandas)()
    frame = pd.DataFrame(wide(50, D=30), columns=[f"gene{i}" for i in range(30)])
    dates, hole = frame.assign(when=pd.date_range("2024", periods=50, tz="UTC")), frame.copy()
    hole.loc[7, "gene2"] = np.nan
    for table in (dates, dates.assign(when=dates["when"] - dates["when"][0]), dates[["when"]]):
        with pytest.raises(TypeError, match=r"'when'.* dates"):
            OnlinePCA(1).fit(turn(table))
    for learn in (OnlinePCA(2).fit, OnlinePCA(2).partial_fit(frame).partial_fit):
        with pytest.raises(ValueError, match=r"row 7, column 2" + (r" \('gene2'\)" if library != "pyarrow" else "")):
            learn(turn(hole))


def test_not_fitted() -> None:
    for ask in ("components_", "mean_", "explained_variance_", "noise_variance_", "n_samples_seen_"):
        with pytest.raises(NotFittedError, match="fit"):
            getattr(OnlinePCA(2), ask)
    with pytest.raises(NotFittedError):
        OnlinePCA(2).transform(np.zeros((2, 3)))


@pytest.mark.parametrize("options", [{}, {"center": False}, {"missing": "impute"}, {"robust": True}], ids=str)
def test_whitening_where_nothing_varies_is_finite(options: dict[str, Any]) -> None:
    """Nothing is known of the scale: coordinates stay as they are, and are not divided by zero."""
    model = OnlinePCA(2, whiten=True, **options).fit(np.zeros((3, 6)))
    Z = model.transform(np.ones((2, 6)))
    assert np.isfinite(Z).all(), f"coordinates in a stream without variance: {Z[0]}"
    assert np.isfinite(model.inverse_transform(Z)).all()


def test_inverse_transform_takes_real_numbers_of_the_right_width_only() -> None:
    model = OnlinePCA(3).fit(wide(50, D=12))
    Z = np.ones((5, 3))
    bad: Any
    for bad in (Z.astype(str), Z + 0j, [["a", 1.0, 2.0]], sparse.csr_array(Z)):
        with pytest.raises(TypeError, match=r"real numbers|sparse"):
            model.inverse_transform(bad)
    for bad in (Z[:, :2], np.ones((5, 12)), Z[0], np.ones((2, 2, 3)), None):
        with pytest.raises((ValueError, TypeError), match="inverse_transform"):
            model.inverse_transform(bad)
    assert np.array_equal(model.inverse_transform(Z.astype(object)), model.inverse_transform(Z.astype(int)))
