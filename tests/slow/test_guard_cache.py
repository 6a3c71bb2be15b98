"""The kernel cache: a package that cannot write it, or finds it damaged, works all the same; and results do not depend on it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROBE = """
import sys, warnings
import numpy as np
warnings.simplefilter("always")
from online_psp.engine.compiler import kernel
from online_psp.engine.symmetric import symmetric_product
S, x = np.tril(np.ones((9, 9))), np.arange(9.0)
result = np.empty(9)
symmetric_product(S, x, result)
assert (result == 36.0).all(), result
print("hits", sum(symmetric_product.stats.cache_hits.values()), "misses", sum(symmetric_product.stats.cache_misses.values()))
"""


def probe(cache: Path, **environment: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", PROBE],
        env={**os.environ, "NUMBA_CACHE_DIR": str(cache), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done


pytestmark = pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="the whole suite is running without the compiler")


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    """No folder at all, as with a read-only installation and no home: one warning, and it works."""
    nowhere = tmp_path / "file"
    nowhere.touch()
    done = probe(
        nowhere / "cache",
        NUMBA_CACHE_LOCATOR_CLASSES="UserProvidedCacheLocator",  # neither beside the package nor in the home
    )
    assert done.stderr.count("NUMBA_CACHE_DIR") == 1
    assert "every process compiles them anew" in done.stderr


def test_a_damaged_cache_is_compiled_anew(tmp_path: Path) -> None:
    assert "hits 0" in probe(tmp_path).stdout
    assert "hits 1" in probe(tmp_path).stdout, "the cache is not used at all, so this test shows nothing"
    files = list(tmp_path.rglob("symmetric.symmetric_product*"))
    assert {path.suffix for path in files} == {".nbi", ".nbc"}
    damages: dict[str, Any] = {".nbi": lambda data: data[: len(data) // 2], ".nbc": lambda data: data[:-9] + bytes(9)}
    for path in sorted(files):
        path.write_bytes(damages[path.suffix](path.read_bytes()))
        done = probe(tmp_path)
        assert "hits 0" in done.stdout
        assert "Warning" not in done.stderr
    assert "hits 1" in probe(tmp_path).stdout


CALLEE = """
from online_psp.engine.compiler import kernel

@kernel
def inner(x):
    return x + {}
"""

CALLER = """
from online_psp.engine.compiler import kernel
from callee import inner

@kernel
def outer(x):
    return 2.0 * inner(x)

print(outer(1.0))
"""


def test_a_kernel_is_compiled_anew_when_one_that_it_calls_has_changed(tmp_path: Path) -> None:
    """The compiler's own cache looks at the calling module alone, and would go on with the old code."""
    (tmp_path / "caller.py").write_text(CALLER)
    for constant, expected in (("1.0", "4.0"), ("2.0", "6.0")):
        (tmp_path / "callee.py").write_text(CALLEE.format(constant))
        done = subprocess.run(
            [sys.executable, str(tmp_path / "caller.py")],
            env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.stdout.strip() == expected, done.stderr


RUNS = """
import hashlib, sys
import numpy as np
from online_psp import IPCA, OnlinePCA
# Arrays of every length first, so that what follows lies at other addresses in every process.
junk = [np.empty(int(size)) for size in np.random.default_rng().integers(1, 600, 400)]
del junk[::2]
X = np.random.default_rng(0).standard_normal((700, 90)) * np.linspace(4, 0.2, 90)
pca, ipca = OnlinePCA(5), IPCA(7)  # whose recurrence shows every rounding
for at in range(0, 700, 64):
    pca.partial_fit(X[at : at + 64])
for x in X[:150]:
    ipca.fit_next(x)
for model in (pca, ipca):
    model.save(sys.argv[1])
    print(hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest())
"""


def test_runs_with_a_cold_and_with_a_warm_cache_give_the_same_bytes(tmp_path: Path) -> None:
    found = set()
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", RUNS, str(tmp_path / "m.psp")],
            env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache"), "OPENBLAS_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        assert done.returncode == 0, done.stderr
        found.add(done.stdout)
    assert len(found) == 1, f"{len(found)} results of the same rows"
