"""The equations, and what the classes make of them, against figures recorded from the authors' published package."""

from __future__ import annotations

import gzip
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.io import loadmat
from sklearn.datasets import load_digits

from online_psp import ALGORITHMS
from online_psp.engine.types import Floats
from online_psp.metrics import batch_components, subspace_error
from online_psp.suite.baselines import BASELINES
from tests import DATA
from tests.oracle import module_of

HERE = DATA
FILES = {"yale": "YaleB_32x32.mat", "orl": "ATT_faces_112_92.mat", "mnist": "train-images-idx3-ubyte.gz"}
RECORDINGS = ["digits_K8", "digits_K16", "yale_K16", "orl_K16", "mnist_K16"]
IN_THE_REPOSITORY = RECORDINGS[:2]
RUNS = ["FSM_gamma0.6", "FSM_gamma1.5", "FSM_gamma2.0", "SM_gamma0.6", "IPCA", "CCIPCA"]
ARGUMENTS = {"fsm": ("W0", "Minv0"), "sm": ("W0", "M0")}
WITH_GAMMA = [run for run in RUNS if "gamma" in run]


class Recording(NamedTuple):
    """One run of the authors' package, with the rows that it saw."""

    X: Floats
    truth: Floats
    K: int
    errors: Floats
    basis: Floats
    sigma2: Floats | None


def read(path: Path) -> Floats:
    """Rows of a set; written here once more so that the package's own readers are not their own judge."""
    if path.suffix == ".mat":
        return np.asarray(loadmat(path)["fea"], dtype=np.float64)
    with gzip.open(path) as file:
        return np.frombuffer(file.read(), dtype=np.uint8, offset=16).reshape(-1, 784).astype(np.float64)


@cache
def prepared(path: Path | None, N: int, K: int) -> tuple[Floats, Floats]:
    X = np.array(load_digits().data, dtype=np.float64) if path is None else read(path)
    X -= X.mean(axis=0)
    X /= np.linalg.norm(X, axis=1).mean()
    X = X[np.random.default_rng(1).permutation(len(X))][:N]
    return X, batch_components(X, K)


@pytest.fixture
def recorded(recording: str, run: str, request: pytest.FixtureRequest) -> Recording:
    return recording_of(recording, run, request)


def recording_of(recording: str, run: str, request: pytest.FixtureRequest) -> Recording:
    """The digits are in the repository and scikit-learn; the paper's own sets are not, and may be absent."""
    data = recording.partition("_")[0]
    own = data == "digits"
    folder = HERE if own else request.getfixturevalue("golden_home")
    with np.load(folder / f"{recording}.npz") as stored:
        K, N = int(stored["K"]), int(stored["N"])
        errors, basis, sigma2 = stored[f"{run}_err"], stored[f"{run}_basis"], stored.get(f"{run}_sigma2")
    X, truth = prepared(None if own else request.getfixturevalue("data_home") / FILES[data], N, K)
    return Recording(X, truth, K, errors, basis, sigma2)


def name_of(run: str) -> str:
    return run.partition("_")[0].lower()


def recorded_rates(run: str, t: int) -> tuple[float, ...]:
    """The step sizes there: the paper's formula, one step earlier."""
    if "gamma" in run:
        step = 2.0 / (float(run.split("gamma")[1]) * (t - 1) + 5.0)
        return step, step
    return (1.0 / (t + 1.0),) if run == "IPCA" else (min(3.0, t) / (t + 1.0),)


def assert_same_curve(trajectory: list[float], errors: Floats) -> None:
    assert len(trajectory) == len(errors), f"{len(trajectory)} errors where {len(errors)} were recorded"
    worst = float(np.abs(np.array(trajectory) - errors).max())
    assert worst <= 1e-6, f"the error curve is {worst:.1e} away from the recorded one"


@pytest.mark.parametrize("recording", IN_THE_REPOSITORY)
@pytest.mark.parametrize("run", RUNS)
def test_reference_is_the_published_package(run: str, recorded: Recording) -> None:
    check_reference(run, recorded)


def check_reference(run: str, recorded: Recording) -> None:
    X, module = recorded.X, module_of(name_of(run))
    state = module.reference_start(np.linalg.qr(X[: recorded.K].T)[0])
    trajectory = []
    for t, x in enumerate(X, start=1):
        state, _ = module.reference_step(state, x, *recorded_rates(run, t))
        if t % 100 == 0:
            trajectory.append(subspace_error(module.reference_basis(state), recorded.truth))
    assert subspace_error(module.reference_basis(state), recorded.basis) <= 1e-6
    assert_same_curve(trajectory, recorded.errors)
    if recorded.sigma2 is not None:
        assert np.allclose(np.sort(state.sigma2), np.sort(recorded.sigma2), rtol=1e-6)


@pytest.mark.parametrize("recording", RECORDINGS)
@pytest.mark.parametrize("run", RUNS)
def test_the_fast_one_ends_where_the_published_package_ends(run: str, recorded: Recording) -> None:
    options: dict[str, Any] = {"learning_rate": lambda t: recorded_rates(run, t)[0]}
    model = ALGORITHMS[name_of(run)](recorded.K, **options)
    model.fit_block(recorded.X)
    assert subspace_error(model.get_components(), recorded.basis) <= 1e-6


@pytest.mark.parametrize("recording", IN_THE_REPOSITORY)
@pytest.mark.parametrize("run", RUNS)
def test_the_baseline_ends_there_too(run: str, recorded: Recording) -> None:
    name, X = name_of(run), recorded.X
    start = module_of(name).reference_start(np.linalg.qr(X[: recorded.K].T)[0])
    model = BASELINES[name](*start)
    for t, x in enumerate(X, start=1):
        model.step(x, *recorded_rates(run, t))
    assert subspace_error(module_of(name).reference_basis(start._make(model.state)), recorded.basis) <= 1e-6


@pytest.mark.parametrize("recording", IN_THE_REPOSITORY)
@pytest.mark.parametrize("run", WITH_GAMMA)
def test_gamma_gives_the_recorded_steps_one_sample_on(run: str, recorded: Recording) -> None:
    """`gamma` gives 2/(γ t + 5) to sample t, the recording to sample t + 1: from the state after the first sample on they are one."""
    name, X, gamma = name_of(run), recorded.X, float(run.split("gamma")[1])
    module = module_of(name)
    state = module.reference_start(np.linalg.qr(X[: recorded.K].T)[0])
    state, _ = module.reference_step(state, X[0], *recorded_rates(run, 1))
    start = dict(zip(ARGUMENTS[name], state, strict=True))
    model = ALGORITHMS[name](recorded.K, X.shape[1], gamma=gamma, **start)
    trajectory, done = [], 1
    for t in range(100, len(X) + 1, 100):
        model.fit_block(X[done:t])
        done = t
        trajectory.append(subspace_error(model.get_components(), recorded.truth))
    model.fit_block(X[done:])
    assert_same_curve(trajectory, recorded.errors)
    assert subspace_error(model.get_components(), recorded.basis) <= 1e-6
    other = ALGORITHMS[name](recorded.K, X.shape[1], gamma=1.1 * gamma, **start)
    other.fit_block(X[1:])
    assert subspace_error(other.get_components(), recorded.basis) > 1e-4, "a γ that is a tenth off must show"


@pytest.mark.parametrize("recording", IN_THE_REPOSITORY)
@pytest.mark.parametrize("run", [run for run in RUNS if run not in WITH_GAMMA])
def test_the_default_steps_are_the_recorded_ones(run: str, recorded: Recording) -> None:
    model = ALGORITHMS[name_of(run)](recorded.K)
    trajectory, done = [], 0
    for t in range(100, len(recorded.X) + 1, 100):
        model.fit_block(recorded.X[done:t])
        done = t
        trajectory.append(subspace_error(model.get_components(), recorded.truth))
    model.fit_block(recorded.X[done:])
    assert_same_curve(trajectory, recorded.errors)
    assert subspace_error(model.get_components(), recorded.basis) <= 1e-6
