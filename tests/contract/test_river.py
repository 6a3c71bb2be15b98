"""The river interface under river's own checks."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.oracle import wide

river = pytest.importorskip("river", reason="river is not installed: pip install 'online-psp[river]'")

from online_psp.integrations.river import OnlinePCA, SubspaceAnomaly  # noqa: E402
from online_psp.pca import estimator as sk  # noqa: E402


def checks_of(model: Any) -> list[Any]:
    from river.checks import yield_checks

    return list(yield_checks(model))


@pytest.mark.parametrize("at", range(len(checks_of(OnlinePCA()))), ids=[check.__name__ for check in checks_of(OnlinePCA())])
def test_rivers_own_checks(at: int) -> None:
    model = OnlinePCA()
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


def labelled(n: int) -> list[tuple[dict[str, float], int]]:
    """Samples along two directions of eight, every fiftieth of them off; river's own set for anomalies has to be downloaded."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 2)) @ rng.standard_normal((2, 8)) + 0.2 * rng.standard_normal((n, 8))
    X[49::50] += 2 * rng.standard_normal((len(X[49::50]), 8))
    return [({f"f{j}": float(value) for j, value in enumerate(row)}, int(i % 50 == 49)) for i, row in enumerate(X)]


def anomaly_checks() -> list[Any]:
    return checks_of(SubspaceAnomaly())


@pytest.fixture
def _no_download(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("river.checks._yield_datasets", lambda model, scale=1: [labelled(300 * scale)])


@pytest.mark.usefixtures("_no_download")
@pytest.mark.parametrize("at", range(len(anomaly_checks())), ids=[check.__name__ for check in anomaly_checks()])
def test_rivers_own_checks_of_anomaly_detectors(at: int) -> None:
    model = SubspaceAnomaly()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        anomaly_checks()[at](model.clone())


def test_anomalies_have_the_highest_scores() -> None:
    from sklearn.metrics import roc_auc_score

    model, scores, labels = SubspaceAnomaly(2, half_life=200, learn_outliers=False), [], []
    for x, y in labelled(800):
        scores.append(model.score_one(x))
        labels.append(y)
        model.learn_one(x)
    assert scores[:20] == [0.0] * 20, "nothing is known of the first samples"
    assert roc_auc_score(labels[100:], scores[100:]) > 0.98
    assert np.mean(np.array(scores[100:])[np.array(labels[100:]) == 0] > 1) < 0.05


def test_an_absent_feature_of_any_type_is_a_missing_value() -> None:
    """Features need not be text: numbers and tuples are names as well."""
    rng = np.random.default_rng(0)
    values = rng.standard_normal((200, 1)) * [[1.0, 2.0, -1.0]] + 0.1 * rng.standard_normal((200, 3))
    frame = pd.DataFrame(values, columns=pd.Index([1, ("a", 2), "c"], tupleize_cols=False))
    model = OnlinePCA(n_components=1)
    model.learn_many(frame)
    without, full = model.transform_many(frame[[1, "c"]]), model.transform_many(frame)
    assert np.corrcoef(without["pc0"], full["pc0"])[0, 1] > 0.98, "the others tell the one that is absent"
    assert np.std(without["pc0"]) > 0.9 * np.std(full["pc0"]), "it counted as its mean"
    model.learn_one({1: 1.0, "c": -1.0, ("a", 2): None})
    model.learn_one({1: 1.0})
    assert np.isfinite(list(model.transform_one({"c": 1.0}).values())).all()
