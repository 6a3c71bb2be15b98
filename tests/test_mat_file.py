"""Models as MAT files: what they hold, what is refused, and the exchange with Octave."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import loadmat, savemat

from online_psp import OnlinePCA
from online_psp.io.model_file import ModelFileError
from tests.test_matlab import run_octave
from tests.test_model_file import rows


def test_mat_files_hold_what_was_learned(tmp_path: Path) -> None:
    X = rows(300, 40)
    model = OnlinePCA(3, whiten=True).fit(X)
    model.save(tmp_path / "m.mat")
    found = loadmat(tmp_path / "m.mat")
    assert found["format"].item() == "online-psp-model"
    assert found["version"].item() == 1
    assert found["components"].shape == (3, 40)
    loaded = OnlinePCA.load(tmp_path / "m.mat")
    np.testing.assert_allclose(loaded.transform(X), model.transform(X), atol=1e-12)
    np.testing.assert_allclose(loaded.explained_variance_, model.explained_variance_, rtol=1e-12)
    assert loaded.noise_variance_ == pytest.approx(model.noise_variance_)
    assert loaded.n_samples_seen_ == 300
    loaded.partial_fit(X)
    assert loaded.n_samples_seen_ == 600
    np.testing.assert_allclose(np.abs(np.sum(loaded.components_ * model.components_, axis=1)), 1.0, atol=1e-3)
    other = OnlinePCA.load(tmp_path / "m.mat").merge(model)
    np.testing.assert_allclose(np.abs(np.sum(other.components_ * model.components_, axis=1)), 1.0, atol=1e-3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "format"),
        ({"version": 2}, "version"),
        ({"components": np.ones((2, 4))}, "orthonormal"),
        ({"components": {"a": 1}}, "struct"),
        ({"mean": np.zeros(3)}, "must have 4"),
        ({"explained_variance": [1.0, -1.0]}, "negative"),
        ({"explained_variance": [1.0, np.nan]}, "finite"),
        ({"n_samples_seen": 2.5}, "whole"),
    ],
)
def test_mat_files_are_checked(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    good = {
        "format": "online-psp-model",
        "version": 1,
        "components": np.eye(2, 4),
        "explained_variance": [2.0, 1.0],
        "mean": np.zeros(4),
        "n_samples_seen": 9,
    }
    savemat(tmp_path / "m.mat", good)
    assert OnlinePCA.load(tmp_path / "m.mat").n_features_in_ == 4
    savemat(tmp_path / "m.mat", good | change)
    with pytest.raises(ModelFileError, match=message):
        OnlinePCA.load(tmp_path / "m.mat")


def test_damaged_mat_files(tmp_path: Path) -> None:
    OnlinePCA(3).fit(rows(30, 6)).save(tmp_path / "m.mat")
    data = (tmp_path / "m.mat").read_bytes()
    for mutated in [data[:100], data[:300], b"", b"x" * 1000]:
        (tmp_path / "m.mat").write_bytes(mutated)
        with pytest.raises(ModelFileError):
            OnlinePCA.load(tmp_path / "m.mat")


@pytest.mark.skipif(not (shutil.which("octave-cli") or shutil.which("octave")), reason="GNU Octave was not found")
def test_octave_reads_ours_and_we_read_its(tmp_path: Path) -> None:
    X = rows(200, 30)
    model = OnlinePCA(3).fit(X)
    model.save(tmp_path / "ours.mat")
    savemat(tmp_path / "rows.mat", {"X": X})
    run_octave(
        f"cd('{tmp_path}'); load('rows.mat'); model = load_model('ours.mat'); "
        "Z = transform_model(model, X); save_model('back.mat', model); "
        "fsm = FSM(3, 30); fsm.fit_block(X - mean(X)); save_model('theirs.mat', fsm); "
        "theirs = load_model('theirs.mat'); T = transform_model(theirs, X); save('-v7', 'results.mat', 'Z', 'T');"
    )
    results = loadmat(tmp_path / "results.mat")
    np.testing.assert_allclose(results["Z"], model.transform(X), atol=1e-10)
    np.testing.assert_allclose(OnlinePCA.load(tmp_path / "back.mat").transform(X), model.transform(X), atol=1e-10)
    theirs = OnlinePCA.load(tmp_path / "theirs.mat")
    np.testing.assert_allclose(np.abs(theirs.transform(X)), np.abs(results["T"]), atol=1e-10)
    assert theirs.n_samples_seen_ == 200
    theirs.merge(theirs).partial_fit(X)
