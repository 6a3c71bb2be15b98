"""Arrays of other libraries: same numbers, same kind out."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

DISPATCHED = """
import sys
import importlib
import numpy as np
from sklearn import config_context
from online_psp import OnlinePCA
from online_psp.engine.libraries import to_host
from online_psp.metrics import subspace_error
from tests.oracle import wide

xp = importlib.import_module(sys.argv[1])
weights = np.random.default_rng(0).integers(0, 3, 900)
for options, D in (({}, 300), ({"center": False}, 300), ({"whiten": True}, 300), ({}, 30)):
    X = wide(900, D=D)
    here = OnlinePCA(5, **options).fit(X, sample_weight=weights)
    there = OnlinePCA(5, **options)
    with config_context(array_api_dispatch=True):
        for part in (slice(0, 400), slice(400, 900)):
            there.partial_fit(xp.asarray(X[part]), sample_weight=weights[part])
        Y = there.transform(xp.asarray(X))
        back = there.inverse_transform(Y)
        score = there.score(xp.asarray(X))
    assert type(Y) is type(back) is type(xp.asarray(X)), type(Y)
    assert subspace_error(there.components_.T, here.components_.T) < 1e-10
    assert np.allclose(there.explained_variance_, here.explained_variance_, rtol=1e-10)
    assert np.allclose(there.mean_, here.mean_, atol=1e-12)
    assert np.allclose(to_host(Y), here.transform(X), atol=1e-9)
    assert np.allclose(to_host(back), here.inverse_transform(here.transform(X)), atol=1e-9)
    assert abs(score - here.score(X)) < 1e-9 * abs(score)
    assert there.noise_variance_ == __import__("pytest").approx(here.noise_variance_)
print("equal")
"""


@pytest.mark.parametrize("library", ["torch", "array_api_strict"])
def test_online_pca_under_array_api_dispatch(library: str) -> None:
    pytest.importorskip(library)
    environment = {**os.environ, "SCIPY_ARRAY_API": "1"}  # read when scipy is imported
    done = subprocess.run([sys.executable, "-c", DISPATCHED, library], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "equal\n", done.stderr


_IN_ANOTHER_LIBRARY = """
import array_api_strict, numpy as np
from sklearn import set_config
from tests.contract.test_forgetting import check_after_a_pause
set_config(array_api_dispatch=True)
for dtype in (np.float64, np.float32):
    for D in (30, 300):
        check_after_a_pause(array_api_strict.asarray, dtype, D)
"""


def test_rows_of_another_library_after_a_long_pause() -> None:
    environment = {**os.environ, "SCIPY_ARRAY_API": "1"}  # read when scipy is imported
    done = subprocess.run([sys.executable, "-c", _IN_ANOTHER_LIBRARY], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr


_SCORED_IN = """
import numpy as np, LIBRARY as xp
from sklearn import set_config
from online_psp import OnlinePCA
from online_psp.engine.libraries import to_host
from online_psp.monitoring import Monitor, spe, t2
set_config(array_api_dispatch=True)
rng = np.random.default_rng(0)
X = rng.standard_normal((1200, 3)) * [6, 5, 4] @ rng.standard_normal((3, 30)) + rng.standard_normal((1200, 30))
for standardize in (False, True):
    here, there = (OnlinePCA(3, standardize=standardize).fit(rows) for rows in (X, xp.asarray(X)))
    for function in (t2, spe):
        found = function(there, xp.asarray(X[:20]))
        assert type(found) is type(xp.asarray(X)), type(found)
        np.testing.assert_allclose(to_host(found), function(here, X[:20]), rtol=1e-8)
here, there = (Monitor(OnlinePCA(3, oversample=0), on_drift="reset") for _ in range(2))
for part in np.split(np.vstack([X, X[::-1] * 3]), 8):
    a, b = here.update(part), there.update(xp.asarray(part))
    np.testing.assert_allclose(a.spe, b.spe, rtol=1e-8)
    np.testing.assert_allclose(a.t2, b.t2, rtol=1e-8)
    assert (a.drift == b.drift).all() and (a.outlier == b.outlier).all()
assert here.alarms and here.alarms == there.alarms, there.alarms
"""


@pytest.mark.parametrize("library", ["torch", "array_api_strict"])
def test_rows_of_another_library_have_scores_in_it_and_can_be_monitored(library: str) -> None:
    if find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    environment = {**os.environ, "SCIPY_ARRAY_API": "1"}  # read when scipy is imported
    done = subprocess.run(
        [sys.executable, "-c", _SCORED_IN.replace("LIBRARY", library)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
