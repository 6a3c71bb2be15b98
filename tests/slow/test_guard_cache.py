"""The kernel cache: a package that cannot write it, or finds it damaged, works all the same; and results do not depend on it."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from online_psp import ALGORITHMS
from online_psp.engine.compiler import kernel

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
from online_psp import ALGORITHMS, OnlinePCA
# Arrays of every length first, so that what follows lies at other addresses in every process.
junk = [np.empty(int(size)) for size in np.random.default_rng().integers(1, 600, 400)]
del junk[::2]
X = np.random.default_rng(0).standard_normal((700, 90)) * np.linspace(4, 0.2, 90)
for name in sys.argv[2:] or ["fsm", "sm", "ipca", "ccipca"]:
    model = OnlinePCA(5)
    for at in range(0, 700, 64):
        model.partial_fit(X[at : at + 64])
    single = ALGORITHMS[name](7)
    for x in X[:150]:
        single.fit_next(x)
    model.save(sys.argv[1])
    digest = hashlib.sha256(open(sys.argv[1], "rb").read())
    single.save(sys.argv[1])
    digest.update(open(sys.argv[1], "rb").read())
    print(name, digest.hexdigest())
"""

ALL = os.environ.get("ONLINE_PSP_SLOW") == "1"


def test_ten_runs_cold_and_warm_give_the_same_bytes(tmp_path: Path) -> None:
    """Processes with an empty cache and with a full one, for every algorithm: one hash.

    Ten processes, two caches and all algorithms with ONLINE_PSP_SLOW=1, which takes minutes; otherwise IPCA, whose recurrence shows every
    rounding, three times.
    """
    found: dict[str, set[str]] = {}
    for number in range(10 if ALL else 3):
        cache = tmp_path / f"cache{min(number, 1) if ALL else 0}"
        done = subprocess.run(
            [sys.executable, "-c", RUNS, str(tmp_path / "m.psp"), *([] if ALL else ["ipca"])],
            env={**os.environ, "NUMBA_CACHE_DIR": str(cache), "OPENBLAS_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        assert done.returncode == 0, done.stderr
        for line in done.stdout.splitlines():
            name, digest = line.split()
            found.setdefault(name, set()).add(digest)
    assert len(found) >= (4 if ALL else 1)
    assert {name: len(digests) for name, digests in found.items()} == dict.fromkeys(found, 1)


def test_constants_between_kernels_do_not_compile_a_kernel_again() -> None:
    """The compiler would make one more version of `inner` for each constant; a first call would wait for them all."""

    @kernel
    def inner(x: float, times: int, twice: bool) -> float:
        return 2.0 * times * x if twice else times * x

    @kernel
    def outer(x: float) -> float:
        return inner(x, 0, False) + inner(x, 1, True) + inner(x, 3, False)

    assert outer(1.5) == 7.5
    made: Any = inner
    assert len(made.signatures) == 1, f"inner was compiled for {made.signatures}"


@pytest.mark.parametrize("name", ["ipca", "ccipca"])
def test_a_recurrence_is_compiled_for_one_layout(name: str) -> None:
    """However samples get their coordinates: from inner products, from the features themselves, or by Householder's method."""
    rng = np.random.default_rng(5)
    wide = rng.standard_normal((40, 200))
    nearly = wide[:1] + 1e-9 * rng.standard_normal((40, 200))  # inner products do not tell these rows apart
    for X in (wide, nearly, np.asfortranarray(wide[:, :20])):
        model = ALGORITHMS[name](4)
        model.fit_block(X)
        model.fit_next(X[0])
    recur: Any = importlib.import_module(f"online_psp.algorithms.{name}").recur
    layouts = {argument.layout for signature in recur.signatures for argument in signature if hasattr(argument, "layout")}
    assert layouts == {"C"}, f"recur was compiled for layouts {sorted(layouts)}"
