"""The equations against figures recorded from the authors' published package, on the paper's real data."""

from __future__ import annotations

import gzip
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import loadmat

from online_psp import ALGORITHMS
from online_psp.engine.types import Floats
from online_psp.metrics import batch_components, subspace_error
from tests.oracle import module_of

FILES = {"yale": "YaleB_32x32.mat", "orl": "ATT_faces_112_92.mat", "mnist": "train-images-idx3-ubyte.gz"}
RUNS = ["FSM_gamma0.6", "FSM_gamma1.5", "FSM_gamma2.0", "SM_gamma0.6", "IPCA", "CCIPCA"]


def read(path: Path) -> Floats:
    """Rows of a set; written here once more so that the package's own readers are not their own judge."""
    if path.suffix == ".mat":
        return np.asarray(loadmat(path)["fea"], dtype=np.float64)
    with gzip.open(path) as file:
        return np.frombuffer(file.read(), dtype=np.uint8, offset=16).reshape(-1, 784).astype(np.float64)


@cache
def prepared(path: Path, N: int, K: int) -> tuple[Floats, Floats]:
    X = read(path)
    X -= X.mean(axis=0)
    X /= np.linalg.norm(X, axis=1).mean()
    X = X[np.random.default_rng(1).permutation(len(X))][:N]
    return X, batch_components(X, K)


def recorded_rates(run: str, t: int) -> tuple[float, ...]:
    """The step sizes there: the paper's formula, one step earlier."""
    if run.startswith(("FSM", "SM")):
        step = 2.0 / (float(run.split("gamma")[1]) * (t - 1) + 5.0)
        return step, step
    return (1.0 / (t + 1.0),) if run == "IPCA" else (min(3.0, t) / (t + 1.0),)


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("data", sorted(FILES))
def test_reference_is_the_published_package(data: str, run: str, data_home: Path, golden_home: Path) -> None:
    name = run.split("_", maxsplit=1)[0].lower()
    with np.load(golden_home / f"{data}_K16.npz") as recording:
        K, N = int(recording["K"]), int(recording["N"])
        errors, basis = recording[f"{run}_err"], recording[f"{run}_basis"]
        sigma2 = recording.get(f"{run}_sigma2")
    X, truth = prepared(data_home / FILES[data], N, K)
    module = module_of(name)
    state = module.reference_start(np.linalg.qr(X[:K].T)[0])
    trajectory = []
    for t, x in enumerate(X, start=1):
        state, _ = module.reference_step(state, x, *recorded_rates(run, t))
        if t % 100 == 0:
            trajectory.append(subspace_error(module.reference_basis(state), truth))
    assert subspace_error(module.reference_basis(state), basis) <= 1e-6
    worst = float(np.abs(np.array(trajectory) - errors).max())
    assert worst <= 1e-6, f"the error curve is {worst:.1e} away from the recorded one"
    if sigma2 is not None:
        assert np.allclose(np.sort(state.sigma2), np.sort(sigma2), rtol=1e-6)

    options: dict[str, Any] = {"learning_rate": lambda t: recorded_rates(run, t)[0]}
    model = ALGORITHMS[name](K, **options)
    model.fit_block(X)
    assert subspace_error(model.get_components(), basis) <= 1e-6, "the fast one ends where the published package ends"
