"""Compiles what ``psp demo`` calls, half of it in a second process, which starts before this one has loaded its libraries."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SHAPES = ((1024, 16), (64, 8))
"""D and K of the two problems."""
_HERE, _BESIDE = ("fsm",), ("ipca", "ccipca", "OnlinePCA")  # about as much work each
_COMPILE = "import sys; from online_psp.experiments.demo_kernels import compile_kernels; compile_kernels(*sys.argv[1:])"


@contextmanager
def compiling_beside() -> Iterator[Callable[[], None]]:
    """Start the second process; the function that this gives returns once everything is compiled, in either process.

    The second process hands its half over by the cache on disk. If it cannot, this process compiles that half as well.
    """
    beside = subprocess.Popen(
        [sys.executable, "-P", "-c", _COMPILE, *_BESIDE], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )

    def compile_all() -> None:
        compile_kernels(*_HERE)
        beside.wait()
        compile_kernels(*_BESIDE)

    try:
        yield compile_all
    finally:
        beside.kill()
        beside.wait()


def compile_kernels(*names: str) -> None:
    """Let some methods learn from a few rows in every way that `demo.run` does."""
    import numpy as np

    from online_psp.algorithms import ALGORITHMS
    from online_psp.pca import OnlinePCA

    for D, K in SHAPES:
        X = np.random.default_rng(0).standard_normal((25 * K, D))
        for name in names:
            if name == "OnlinePCA":
                estimator = OnlinePCA(K)
                for start in range(0, len(X), 5 * K):
                    estimator.partial_fit(X[start : start + 5 * K])
                _ = estimator.components_
                continue
            model = ALGORITHMS[name](K, D)
            model.fit_block(X)
            for x in X:
                model.fit_next(x)
            model.get_components()
