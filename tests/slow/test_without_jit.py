"""The kernels are plain Python too: what they compute does not depend on the compiler, and no index is beyond its array."""

from __future__ import annotations

import os
import subprocess
import sys

from tests import ROOT

CODE = """
import numpy as np
from scipy.sparse import csr_array
from online_psp import ALGORITHMS, OnlinePCA
from online_psp.engine.compiler import kernel
from online_psp.metrics import subspace_error
from tests.oracle import reference_run, spiked

@kernel
def probe(x):
    return x
assert not hasattr(probe, "py_func"), "this process was meant to run without the compiler"

for D, K, n in ((30, 4, 60), (5, 5, 40), (40, 1, 60), (40, 8, 60)):
    X = spiked(n, D, K)
    for name, cls in ALGORITHMS.items():
        model = cls(K, block_size=7)
        for x in X[: n // 2]:
            model.fit_next(x)
        model.fit_block(X[n // 2 :])
        error = subspace_error(model.get_components(), reference_run(name, X, K, keep=False).bases[-1])
        assert error <= 1e-7, f"{name}, D={D}, K={K}: {error:.1e}"
        model.fit_block(np.zeros((9, D)))
for options in ({}, {"missing": "impute"}, {"robust": True}, {"half_life": 20}, {"standardize": True}):
    for D in (6, 90):
        X = spiked(150, D, 4) * (np.random.default_rng(1).random((150, D)) < 0.5)
        if "missing" in options:
            X[3, 2] = np.nan
        for rows in (X, csr_array(X)):
            model = OnlinePCA(2, oversample=2, **options).partial_fit(rows[:70]).partial_fit(rows[70:])
            model.fit_next(X[0])
            C = model.components_
            assert np.abs(C @ C.T - np.eye(2)).max() < 1e-9, f"{options}, D={D}"
print("same without the compiler")
"""


def test_kernels_run_without_the_compiler() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CODE],
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "same without the compiler" in done.stdout
