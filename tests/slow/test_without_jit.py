"""The kernels are plain Python too: what they compute does not depend on the compiler."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests import ROOT

CODE = """
import numpy as np
from online_psp import ALGORITHMS
from online_psp.engine.compiler import kernel
from online_psp.metrics import subspace_error
from tests.oracle import reference_run, spiked

@kernel
def probe(x):
    return type(x).__name__ if False else x
assert not hasattr(probe, "py_func"), "this process was meant to run without the compiler"

X = spiked(60, 30, 4)
for name, cls in ALGORITHMS.items():
    model = cls(4)
    for x in X[:30]:
        model.fit_next(x)
    model.fit_block(X[30:])
    error = subspace_error(model.get_components(), reference_run(name, X, 4, keep=False).bases[-1])
    assert error <= (5e-3 if name == "block" else 1e-7), f"{name}: {error:.1e}"  # as in the oracle tests
print("same without the compiler")
"""


def test_kernels_run_without_the_compiler() -> None:
    if os.environ.get("NUMBA_DISABLE_JIT") == "1":
        pytest.skip("the whole suite is running without the compiler")
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "same without the compiler" in done.stdout
