"""Single samples are collected into blocks: nobody may be able to tell. Cuts and copies are in `tests/contract/test_continuing.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from online_psp import OnlinePCA
from online_psp.engine.types import Floats
from tests.oracle import check_same


def stream(n: int, D: int = 60, seed: int = 5) -> Floats:
    rng = np.random.default_rng(seed)
    scales = 3.0 / np.arange(1.0, D + 1.0)
    return np.asarray(rng.standard_normal((n, D)) * scales @ np.linalg.qr(rng.standard_normal((D, D)))[0] + 5.0 * rng.standard_normal(D))


@pytest.mark.parametrize("side", ["mine", "theirs"])
def test_rows_of_an_open_block_are_merged(side: str) -> None:
    X = stream(1000)
    parts = [OnlinePCA(3, oversample=4).partial_fit(X[:400]), OnlinePCA(3, oversample=4).partial_fit(X[500:900])]
    for model, rows in zip(parts, (X[400:420], X[900:913]), strict=True):
        for x in rows:
            model.fit_next(x)
    mine, theirs = parts if side == "mine" else parts[::-1]
    assert mine.merge(theirs).n_samples_seen_ == 833, "rows of an open block were lost in the merge"
    assert np.allclose(mine.mean_, np.concatenate([X[:420], X[500:913]]).mean(axis=0), rtol=1e-12)


@pytest.mark.parametrize("bad", [np.nan, -np.inf, 1e250])
def test_a_refused_row_leaves_those_before_it(bad: float) -> None:
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
    check_same(model, OnlinePCA(3, oversample=4).fit(X))


def test_the_row_given_may_be_changed_afterwards() -> None:
    X, buffer = stream(700), np.empty(60)
    model = OnlinePCA(3, oversample=4)
    for x in X:
        buffer[:] = x
        model.fit_next(buffer)
        buffer[:] = 1e6
    check_same(model, OnlinePCA(3, oversample=4).fit(X))


@pytest.mark.parametrize(
    "options",
    [{}, {"whiten": True}, {"dtype": np.float32}, {"half_life": 100}, {"half_life": "100s"}, {"half_life": 100, "missing": "impute"}],
    ids=str,
)
def test_samples_are_projected_on_present_components(options: dict[str, Any]) -> None:
    """Coordinates are of the size of those that `transform` gives now, after a switch that a model which forgets must follow."""
    rng, D = np.random.default_rng(9), 120
    axes = np.linalg.qr(rng.standard_normal((D, 4)))[0].T
    used = (axes[:2], axes[2:]) if "half_life" in options else (axes[:2], axes[:2])
    before, after = (
        rng.standard_normal((n, 2)) * [5.0, 3.0] @ basis + 0.1 * rng.standard_normal((n, D))
        for n, basis in zip((1500, 3000), used, strict=True)
    )
    if "missing" in options:
        before[3, 5] = np.nan
    model = OnlinePCA(2, oversample=4, **options)
    X = np.concatenate([before, after]).astype(options.get("dtype", np.float64))
    found = np.array([model.fit_next(x, float(i) if options.get("half_life") == "100s" else None) for i, x in enumerate(X)])
    assert found.shape == (4500, 2)
    sizes = np.abs(found[-500:]).mean(axis=0), np.abs(model.transform(after[-500:])).mean(axis=0)
    assert np.allclose(*sizes, rtol=0.1), f"coordinates have sizes {sizes[0]}, and {sizes[1]} along the components of now"
