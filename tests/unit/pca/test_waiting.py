"""Rows of `fit_next` wait to be learned together: nobody may be able to tell."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from online_psp import OnlinePCA
from online_psp.engine.types import Floats


def stream(n: int, D: int = 60, seed: int = 5) -> Floats:
    rng = np.random.default_rng(seed)
    scales = 3.0 / np.arange(1.0, D + 1.0)
    return np.asarray(rng.standard_normal((n, D)) * scales @ np.linalg.qr(rng.standard_normal((D, D)))[0] + 5.0 * rng.standard_normal(D))


def same(one: OnlinePCA, two: OnlinePCA) -> None:
    assert one.n_samples_seen_ == two.n_samples_seen_, "rows were lost, or counted twice"
    for name in ("mean_", "var_", "components_", "explained_variance_", "noise_variance_"):
        assert np.array_equal(getattr(one, name), getattr(two, name)), f"{name} differs from that of rows learned in one call"


@pytest.mark.parametrize("side", ["mine", "theirs"])
def test_waiting_rows_are_merged(side: str) -> None:
    X = stream(1000)
    parts = [OnlinePCA(3, oversample=4).partial_fit(X[:400]), OnlinePCA(3, oversample=4).partial_fit(X[500:900])]
    for x in X[400:420]:
        parts[0].fit_next(x)
    for x in X[900:913]:
        parts[1].fit_next(x)
    mine, theirs = parts if side == "mine" else parts[::-1]
    assert mine.merge(theirs).n_samples_seen_ == 833, "rows that waited were lost in the merge"
    expected = np.concatenate([X[:420], X[500:913]]).mean(axis=0)
    assert np.allclose(mine.mean_, expected, rtol=1e-12)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e250])
def test_a_refused_row_leaves_those_that_wait(bad: float) -> None:
    X = stream(640)
    model = OnlinePCA(3, oversample=4).partial_fit(X[:600])
    for x in X[600:610]:
        model.fit_next(x)
    wrong = X[610].copy()
    wrong[-1] = bad
    with pytest.raises(ValueError, match=r"NaN|infinity|too large|beyond|1e\+?250"):
        model.fit_next(wrong)
    for x in X[610:]:
        model.fit_next(x)
    same(model, OnlinePCA(3, oversample=4).fit(X))


def test_the_row_given_may_be_changed_afterwards() -> None:
    X, buffer = stream(700), np.empty(60)
    model = OnlinePCA(3, oversample=4)
    for x in X:
        buffer[:] = x
        model.fit_next(buffer)
        buffer[:] = 1e6
    same(model, OnlinePCA(3, oversample=4).fit(X))


def test_outputs_are_about_the_mean_of_all_rows_up_to_their_own() -> None:
    X = stream(640)
    X[600:] += 100.0
    model = OnlinePCA(3, oversample=4).partial_fit(X[:599])
    model.fit_next(X[599])  # reads out anew
    axes = model.components_
    for i in range(600, 630):
        y, expected = model.fit_next(X[i]), axes @ (X[i] - X[: i + 1].mean(axis=0))
        assert np.allclose(y, expected, rtol=1e-9), f"row {i} has the coordinates {y}; about the mean of all rows they are {expected}"


def test_times_of_waiting_rows_are_checked_and_kept() -> None:
    X, seconds = stream(500), np.cumsum(np.random.default_rng(3).exponential(1.0, 500))
    one_by_one = OnlinePCA(3, oversample=4, half_life="1min")
    for x, time in zip(X, seconds, strict=True):
        one_by_one.fit_next(x, time)
    with pytest.raises(ValueError, match="back"):
        one_by_one.fit_next(X[0], seconds[-2])
    same(one_by_one, OnlinePCA(3, oversample=4, half_life="1min").fit(X, times=seconds))


def test_very_wide_rows_do_not_wait_in_a_large_buffer() -> None:
    X = np.random.default_rng(0).standard_normal((40, 100_000))
    model = OnlinePCA(2, oversample=1)
    for x in X:
        model.fit_next(x)
    same(model, OnlinePCA(2, oversample=1).fit(X))


@pytest.mark.parametrize("every", [7, 10_000])
def test_weight_taken_from_gross_rows_is_said_whoever_has_them_learned(every: int) -> None:
    X = stream(1500, 20)
    X[700::5] += 300.0
    model = OnlinePCA(2, oversample=2, robust=True)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for i, x in enumerate(X):
            model.fit_next(x)
            if i % every == 0:
                _ = model.n_samples_seen_
    taken = [warning for warning in said if "robust=True" in str(warning.message)]
    assert len(taken) == 1, f"{len(taken)} warnings where one was expected, with a read every {every} rows"
    assert taken[0].filename == __file__, "the warning does not point at the call"


@pytest.mark.parametrize("n", [20, 600])
def test_more_components_asked_for_between_rows_are_given_from_then_on(n: int) -> None:
    X = stream(2000)
    model = OnlinePCA(2, oversample=6)
    for x in X[:n]:
        assert model.fit_next(x).shape == (2,)
    model.n_components = 4
    for i, x in enumerate(X[n:]):
        assert model.fit_next(x).shape == (4,), f"after {i} more rows"


@pytest.mark.parametrize("options", [{}, {"whiten": True}, {"dtype": np.float32}], ids=["plain", "whitened", "single"])
def test_rows_are_projected_on_the_components(options: dict[str, Any]) -> None:
    X = stream(3000).astype(options.get("dtype", np.float64))
    model = OnlinePCA(3, oversample=8, **options)
    for x in X:
        y = model.fit_next(x)
    expected, size = model.transform(X[-1:])[0], np.abs(model.transform(X)).mean(axis=0)
    assert (np.abs(y - expected) < 0.05 * size).all(), f"{y} where the components of now give {expected}"


@pytest.mark.parametrize("n", [12, 40, 60])
def test_rows_are_projected_on_components_of_not_long_ago(n: int) -> None:
    X = stream(n)
    model = OnlinePCA(3, oversample=8)
    for x in X:
        y = model.fit_next(x)
    apart = X[-1] - model.mean_
    found = [np.abs(OnlinePCA(3, oversample=8).fit(X[:m]).components_ @ apart - y).max() for m in range(int(n / 1.5), n + 1)]
    assert min(found) < 1e-6 * np.linalg.norm(apart), f"no model of two thirds of the rows or more gives these coordinates: {min(found)}"


@pytest.mark.parametrize(
    "options", [{"half_life": 100}, {"half_life": "100s"}, {"half_life": 100, "missing": "impute"}], ids=["rows", "time", "holes"]
)
def test_rows_of_a_stream_that_forgets_are_projected_on_its_present_components(options: dict[str, Any]) -> None:
    """The weight of all rows stops growing when a model forgets, and the axes of the output must move on all the same."""
    rng, D = np.random.default_rng(9), 120
    axes = np.linalg.qr(rng.standard_normal((D, 4)))[0].T
    before, after = (
        (rng.standard_normal((n, 2)) * [5.0, 3.0]) @ basis + 0.1 * rng.standard_normal((n, D))
        for n, basis in ((1500, axes[:2]), (3000, axes[2:]))
    )
    if "missing" in options:
        before[3, 5] = np.nan
    model = OnlinePCA(2, oversample=4, **options)
    found = []
    for i, x in enumerate(np.concatenate([before, after])):
        found.append(model.fit_next(x, float(i) if options["half_life"] == "100s" else None))
    expected = model.transform(after[-500:])
    sizes = np.abs(found[-500:]).mean(axis=0), np.abs(expected).mean(axis=0)
    assert np.allclose(*sizes, rtol=0.1), f"coordinates have sizes {sizes[0]}, and {sizes[1]} along the components of now"
