"""The river interface under river's own checks."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from tests.oracle import NAMES
from tests.test_pca import wide

river = pytest.importorskip("river", reason="river is not installed: pip install 'online-psp[river]'")

from online_psp.integrations.river import OnlinePCA  # noqa: E402
from online_psp.pca import estimator as sk  # noqa: E402


def checks_of(model: Any) -> list[Any]:
    from river.checks import yield_checks

    return list(yield_checks(model))


@pytest.mark.parametrize("algorithm", NAMES)
@pytest.mark.parametrize("at", range(len(checks_of(OnlinePCA()))), ids=[check.__name__ for check in checks_of(OnlinePCA())])
def test_rivers_own_checks(algorithm: str, at: int) -> None:
    model = OnlinePCA(algorithm=algorithm)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        checks_of(model)[at](model.clone())


def test_it_is_the_same_model() -> None:
    X = wide(400)
    names = [f"f{i:03d}" for i in range(X.shape[1])]
    streamed, batch = OnlinePCA(3), sk.OnlinePCA(3).fit(X)
    for row in X:
        streamed.learn_one(dict(zip(names, row, strict=True)))
    found = streamed.transform_one(dict(zip(names, X[5], strict=True)))
    assert np.allclose(list(found.values()), batch.transform(X[5:6])[0], atol=1e-8)


def test_features_that_come_and_go() -> None:
    model = OnlinePCA(1)
    rng = np.random.default_rng(0)
    for value in rng.standard_normal(50):
        model.learn_one({"a": value, "b": 2 * value + 1})
    before = model.transform_one({"a": 1.0, "b": 3.0})
    model.learn_one({"a": 0.5, "b": 2.0, "later": 7.0})
    model.learn_one({"b": 2.0})
    after = model.transform_one({"b": 3.0, "a": 1.0, "later": 9.0})
    assert abs(before["pc0"]) == pytest.approx(abs(after["pc0"]), rel=0.2)
    assert OnlinePCA(2).transform_one({"a": 1.0}) == {"pc0": 0.0, "pc1": 0.0}
