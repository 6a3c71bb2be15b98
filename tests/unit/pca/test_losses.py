"""What weighing rows and missing values have cost is said: heavy tails, gross first rows, features that no row connects."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from online_psp import OnlinePCA
from online_psp.engine.types import Floats


def factors(n: int, D: int, seed: int) -> tuple[Floats, Any]:
    """Rows of three factors and noise, and the generator that made them."""
    rng = np.random.default_rng(seed)
    return np.asarray(rng.standard_normal((n, 3)) * [3.0, 2.0, 1.5] @ rng.standard_normal((3, D)) + rng.standard_normal((n, D))), rng


def sentences(X: Floats, **options: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        OnlinePCA(3, robust=True, **options).fit(X)
    return [str(each.message) for each in said]


@pytest.mark.parametrize("D", [30, 150])
@pytest.mark.parametrize("kind", ["t", "lognormal"])
def test_a_heavy_tail_that_is_cut_is_said(kind: str, D: int) -> None:
    X, rng = factors(2500, D, seed=61)
    sizes = np.sqrt(3.0 / rng.chisquare(3.0, 2500)) if kind == "t" else np.exp(2.0 * rng.standard_normal(2500))
    X *= sizes[:, np.newaxis]
    with pytest.warns(UserWarning, match=r"heavy tail.* lost \d+ %") as said:
        model = OnlinePCA(3, robust=True).fit(X)
    lost = int(re.search(r"lost (\d+) %", str(said[0].message))[1]) / 100.0  # type: ignore[index]
    truth = 1.0 - float(model.var_.sum()) / float(X.var(axis=0).sum())
    assert 0.03 < lost < truth + 0.01, f"said to have lost {lost:.2f}, truly {truth:.2f}: at least, and not more"


@pytest.mark.parametrize("D", [30, 150])
@pytest.mark.parametrize("kind", ["clean", "gross", "five times", "clusters"])
def test_rows_without_a_tail_are_not_said_to_have_one(kind: str, D: int) -> None:
    X, rng = factors(2500, D, seed=62)
    some = rng.random(2500) < 0.05
    if kind == "gross":
        X[some] = 20.0 * X.std() * rng.standard_normal((some.sum(), D))
    elif kind == "five times":
        X[some] *= 5.0
    elif kind == "clusters":
        X[rng.random(2500) < 0.5] += 3.0 * rng.standard_normal(D)
    assert sentences(X) == [], "nothing to be said"


@pytest.mark.filterwarnings("ignore:robust=True has taken")
@pytest.mark.parametrize("how", ["at once", "saved", "merged", "standardised"])
@pytest.mark.parametrize("kind", ["scattered", "one direction", "one place"])
def test_first_rows_of_which_most_are_gross_are_said_when_others_have_come(kind: str, how: str, tmp_path: Path) -> None:
    X, rng = factors(3000, 40, seed=63)
    bad = np.flatnonzero(rng.random(400) < 0.6)
    if kind == "scattered":
        X[bad] = 20.0 * X.std() * rng.standard_normal((len(bad), 40))
    else:
        way = rng.standard_normal(40)
        X[bad] += 20.0 * X.std() * (rng.standard_normal((len(bad), 1)) if kind == "one direction" else 1.0) * way
    model = OnlinePCA(3, robust=True, standardize=how == "standardised").partial_fit(X[:1000])
    if how == "saved":
        model.save(tmp_path / "m.psp")
        model = OnlinePCA.load(tmp_path / "m.psp")
    with pytest.warns(UserWarning, match=r"first rows.* \d\d % of the variance"):
        _ = (model.merge(OnlinePCA(3, robust=True).fit(X[1000:])) if how == "merged" else model.partial_fit(X[1000:])).components_


def test_groups_of_features_that_no_row_connects_are_said() -> None:
    """Even and odd features in turn, more features than covariances of pairs are kept for."""
    X, _ = factors(900, 300, seed=65)
    X[::2, ::2], X[1::2, 1::2] = np.nan, np.nan
    with pytest.warns(UserWarning, match="Features 0 and 1 .*never"):
        _ = OnlinePCA(3, missing="impute", oversample=5).fit(X).components_


def test_features_that_a_third_connects_are_no_strangers() -> None:
    X, _ = factors(900, 300, seed=66)
    X[::2, 1:150], X[1::2, 150:] = np.nan, np.nan  # feature 0 is in all rows
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _ = OnlinePCA(3, missing="impute", oversample=5).fit(X).components_
