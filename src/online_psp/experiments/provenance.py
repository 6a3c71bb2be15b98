"""Where a number comes from: the code, the machine and the day, written into every row."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from online_psp import __version__

PACKAGE = Path(__file__).resolve().parents[1]
_MEASURING = (
    "algorithms",
    "datasets",
    "engine",
    "experiments/baselines.py",
    "experiments/isolation.py",
    "experiments/learners.py",
    "experiments/measure.py",
    "experiments/passes.py",
    "experiments/resources.py",
    "experiments/timing.py",
    "experiments/tracks.py",
    "experiments/worker.py",
    "io/sources",
    "metrics.py",
    "pca",
)
"""Modules that measurements depend on. Plots, tables and commands may change without making old rows stale."""

_PACKAGES = ("online-psp", "numpy", "scipy", "numba", "scikit-learn", "threadpoolctl", "matplotlib")


class Provenance(NamedTuple):
    """How a row was made; the seed is in the row itself.

    Attributes
    ----------
    version, commit, code : str
        Version of this package; its git commit, with a plus if files differ from it, or a digest of the files without git; and a digest of
        the source files that measurements depend on.
    date : str
        The day, in UTC.
    platform, cpu, blas, threads, ram_gib : str
        The machine; the BLAS that products go through, and how many threads it had.
    checksum : str
        Checksum of the data.
    """

    version: str = ""
    commit: str = ""
    code: str = ""
    date: str = ""
    platform: str = ""
    cpu: str = ""
    blas: str = ""
    threads: str = ""
    ram_gib: str = ""
    checksum: str = ""


UNKNOWN = Provenance()


def provenance(checksum: str = "", threads: int = 1) -> Provenance:
    """The provenance of a row made now, with data of this checksum and this many BLAS threads."""
    day = datetime.now(UTC).date().isoformat()
    return _here()._replace(date=day, checksum=checksum, threads=str(threads))


@cache
def _here() -> Provenance:
    system = f"{platform.system()} {platform.release()} {platform.machine()}, Python {platform.python_version()}"
    return Provenance(
        version=__version__,
        commit=commit(),
        code=code_digest(),
        platform=system,
        cpu=f"{processor()}, {os.cpu_count()} cores",
        blas=blas(),
        ram_gib=memory(),
    )


@cache
def code_digest() -> str:
    """A digest of the source files that measurements depend on."""
    return _digest_of(sorted(file for part in _MEASURING for file in _files(PACKAGE / part)), PACKAGE)


def _files(place: Path) -> list[Path]:
    return sorted(place.rglob("*.py")) if place.is_dir() else [place]


def _digest_of(files: list[Path], root: Path) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(str(file.relative_to(root)).encode())
        digest.update(file.read_bytes() if file.exists() else b"")
    return digest.hexdigest()[:12]


@cache
def commit() -> str:
    """The commit of this package's files, with a plus if they differ from it; without git, a digest of all files."""
    tracked = _git("ls-files", "--error-unmatch", "__init__.py")
    head = _git("rev-parse", "--short=12", "HEAD") if tracked else None
    if not head:
        return f"files:{_digest_of(_files(PACKAGE), PACKAGE)}"
    return head + ("+" if _git("status", "--porcelain", "--", ".") else "")


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(PACKAGE), *arguments], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def processor() -> str:
    """The name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown processor"


def memory() -> str:
    """The memory of the machine, in GiB."""
    try:
        return f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.1f}"
    except (AttributeError, ValueError, OSError):
        return "unknown"


def blas() -> str:
    """The BLAS libraries that are loaded: NumPy's and SciPy's."""
    import scipy.linalg  # noqa: F401  (so that its BLAS is loaded, and seen)
    from threadpoolctl import threadpool_info

    pools: list[dict[str, Any]] = [pool for pool in threadpool_info() if pool.get("user_api") == "blas"]
    names = [f"{pool['internal_api']} {pool.get('version') or '?'} {pool.get('architecture') or ''}".strip() for pool in pools]
    return ", ".join(dict.fromkeys(names)) or "unknown"


def machine() -> dict[str, str]:
    """Facts about the machine and the code, for a report."""
    here = provenance()
    return {
        "machine": f"{here.cpu}, {here.ram_gib} GiB, {here.platform.partition(',')[0]}",
        "Python": platform.python_version(),
        "packages": ", ".join(f"{name} {_version(name)}" for name in _PACKAGES),
        "BLAS": here.blas,
        "code": f"online-psp {here.version}, commit {here.commit}, measuring code {here.code}",
        "date": here.date,
    }


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "(not installed)"
