"""Whitened rows in the features themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.linalg import sqrtm

from online_psp import OnlinePCA
from tests.command import data, psp, write_csv


@pytest.mark.parametrize("options", [{}, {"standardize": True}, {"axes": "stable"}, {"center": False}])
def test_the_inverse_root_of_the_models_covariance(options: dict[str, Any]) -> None:
    X = data(500, 12)
    model = OnlinePCA(4, whiten="zca", **options).fit(X)
    scale = np.ones(12) if model.scale_ is None else model.scale_
    mean = model.mean_ if options.get("center", True) else np.zeros(12)
    root = np.linalg.inv(np.real(sqrtm(model.get_covariance() / scale / scale[:, np.newaxis])))
    Z = model.transform(X)
    assert np.allclose(Z, ((X - mean) / scale) @ root, atol=1e-8)
    if "center" not in options:
        assert np.allclose(model.inverse_transform(Z), X)
    assert np.allclose(model.transform(sparse.csr_array(X)), Z)
    assert len(model.get_feature_names_out()) == 12


def test_unit_covariance_and_nothing_where_nothing_varies() -> None:
    X = data(500, 12)
    assert np.allclose(np.cov(OnlinePCA(whiten="zca").fit_transform(X).T), np.eye(12), atol=1e-8)
    low = X[:, :3] @ np.random.default_rng(0).standard_normal((3, 12))
    Z = OnlinePCA(5, whiten="zca").fit_transform(low)
    values = np.linalg.eigvalsh(np.cov(Z.T))
    assert np.allclose(values, [0.0] * 9 + [1.0] * 3, atol=1e-8)
    assert not OnlinePCA(2, whiten="zca").fit_transform(np.ones((5, 4))).any()


def test_files_and_the_command(tmp_path: Path) -> None:
    X = data(100, 6)
    model = OnlinePCA(2, whiten="zca").fit(X)
    model.save(tmp_path / "m.psp")
    source = write_csv(tmp_path / "x.csv", X)
    psp("transform", tmp_path / "m.psp", source, "-o", tmp_path / "z.csv")
    Z = np.loadtxt(tmp_path / "z.csv", delimiter=",", skiprows=1)
    assert np.allclose(Z, model.transform(X))
    psp("transform", tmp_path / "m.psp", tmp_path / "z.csv", "--inverse", "-o", tmp_path / "back.csv")
    assert np.allclose(np.loadtxt(tmp_path / "back.csv", delimiter=",", skiprows=1), X)
    with pytest.raises(ValueError, match="zca"):
        model.save(tmp_path / "m.mat")
    with pytest.raises(TypeError, match="zca"):
        OnlinePCA(2, whiten="pca").fit(X)


def test_float32_keeps_its_precision() -> None:
    X = data(500, 40).astype(np.float32)
    Z = OnlinePCA(4, whiten="zca").fit_transform(X)
    assert Z.dtype == np.float32
    assert np.allclose(Z, OnlinePCA(4, whiten="zca").fit_transform(X.astype(np.float64)), atol=1e-3)
