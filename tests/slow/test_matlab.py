"""The MATLAB package, run in GNU Octave: its own tests on vectors written here, and the exchange of models through scipy.io."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.io import loadmat, savemat

from online_psp import OnlinePCA
from tests import ROOT
from tests.contract.test_model_file import rows

MATLAB = ROOT / "matlab"
OCTAVE = shutil.which("octave-cli") or shutil.which("octave")

pytestmark = pytest.mark.skipif(OCTAVE is None, reason="GNU Octave was not found: the tests of matlab/ are skipped")


def run_octave(code: str) -> str:
    """Run code with matlab/ on the path; its output, which is shown if it fails."""
    assert OCTAVE is not None
    setup = f"addpath('{MATLAB}', '{MATLAB / 'tests'}'); "
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [OCTAVE, "--norc", "--no-history", "--no-gui", "--eval", setup + code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600, env=environment)
    assert done.returncode == 0, f"Octave failed:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_octave_tests_pass(tmp_path: Path) -> None:
    script = MATLAB / "tests" / "write_vectors.py"
    subprocess.run([sys.executable, str(script), str(tmp_path)], check=True, timeout=300)
    output = run_octave(f"run_tests('{tmp_path}')")
    assert output.rstrip().endswith(" 0 failed"), output


@pytest.mark.parametrize("whiten", [False, True])
@pytest.mark.parametrize("variance_as", ["row", "column"])
def test_models_go_to_octave_and_back(tmp_path: Path, whiten: bool, variance_as: str) -> None:
    rng = np.random.default_rng(0)
    K, D = 3, 8
    components = np.linalg.qr(rng.standard_normal((D, K)))[0].T
    variance, mean, X = np.array([3.0, 2.0, 0.5]), rng.standard_normal(D), rng.standard_normal((20, D))
    model = {
        "format": "online-psp-model",
        "version": 1,
        "components": components,
        "explained_variance": variance,
        "mean": mean,
        "n_samples_seen": 1234,
        "noise_variance": 0.25,
        "whiten": whiten,
    }
    savemat(tmp_path / "there.mat", model, oned_as="row" if variance_as == "row" else "column")
    savemat(tmp_path / "rows.mat", {"X": X})
    run_octave(
        f"cd('{tmp_path}'); model = load_model('there.mat'); load('rows.mat'); "
        "Z = transform_model(model, X); back = inverse_transform_model(model, Z); "
        "save_model('back.mat', model); save('-v7', 'results.mat', 'Z', 'back');"
    )
    found, results = loadmat(tmp_path / "back.mat"), loadmat(tmp_path / "results.mat")
    assert found["format"].item() == "online-psp-model"
    assert found["version"].item() == 1
    assert found["n_samples_seen"].item() == 1234
    assert found["noise_variance"].item() == 0.25
    assert bool(found["whiten"].item()) is whiten
    np.testing.assert_array_equal(found["components"], components)
    np.testing.assert_array_equal(found["explained_variance"].ravel(), variance)
    np.testing.assert_array_equal(found["mean"].ravel(), mean)
    scale = np.sqrt(variance) if whiten else np.ones(K)
    Z = (X - mean) @ components.T / scale
    np.testing.assert_allclose(results["Z"], Z, atol=1e-13)
    np.testing.assert_allclose(results["back"], (Z * scale) @ components + mean, atol=1e-13)


@pytest.mark.parametrize("algorithm", ["FSM", "IPCA", "CCIPCA"])
def test_models_trained_in_octave_are_read_in_python(tmp_path: Path, algorithm: str) -> None:
    rng = np.random.default_rng(1)
    K, D, n = 2, 10, 2000
    scales = np.r_[3.0, 2.0, np.full(D - 2, 0.05)]
    X = rng.standard_normal((n, D)) * scales
    savemat(tmp_path / "rows.mat", {"X": X})
    run_octave(f"cd('{tmp_path}'); load('rows.mat'); model = {algorithm}({K}, {D}); model.fit_block(X); save_model('model.mat', model);")
    found = loadmat(tmp_path / "model.mat")
    assert found["components"].shape == (K, D)
    np.testing.assert_allclose(found["components"] @ found["components"].T, np.eye(K), atol=1e-12)
    np.testing.assert_allclose(np.abs(found["components"]), np.eye(K, D), atol=0.05)
    np.testing.assert_allclose(found["explained_variance"].ravel(), scales[:K] ** 2, rtol=0.15)
    assert found["n_samples_seen"].item() == n


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
