"""Rows: one measurement each, with where it comes from, in a CSV file that survives an interruption."""

from __future__ import annotations

import csv
import hashlib
import math
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from online_psp import __version__

PACKAGE = Path(__file__).resolve().parents[1]
_MEASURING = ("algorithms", "datasets", "engine", "pca", "metrics.py", *(f"suite/{name}" for name in ("rivals", "baselines.py", "data.py")))
_MEASURING += tuple(f"suite/{name}.py" for name in ("measure", "methods", "speed"))
_PACKAGES = ("numpy", "scipy", "numba", "scikit-learn", "threadpoolctl", "proSVD")

DONE = "seconds"
"""The metric of the last row of every record, its processor time: a record without it was interrupted."""
FAILED = "failed"
SCORE = "score"
"""What methods are ranked by: the last error, or its mean over time where the truth moves."""


@dataclass(frozen=True)
class Row:
    """One measurement.

    Attributes
    ----------
    key : str
        The record that it belongs to; it depends on the code that measured it.
    N : int
        Samples of one pass (of the run, for timings).
    t : int
        Samples seen (the number of the run, for timings).
    note : str
        What went wrong; or what was done to the rows before they were fed.
    version, commit, code, date, platform, cpu, blas, ram_gib, checksum : str
        Version and commit of this package, digest of the files that measure, the day, the machine, BLAS with its kernels, and the data.
    """

    key: str
    study: str
    data: str
    N: int
    D: int
    rho: float
    track: str
    label: str
    algorithm: str
    kind: str
    K: int
    seed: int
    t: int
    metric: str
    value: float
    note: str = ""
    version: str = ""
    commit: str = ""
    code: str = ""
    date: str = ""
    platform: str = ""
    cpu: str = ""
    blas: str = ""
    ram_gib: str = ""
    checksum: str = ""


COLUMNS = tuple(field.name for field in fields(Row))
_KINDS: Mapping[str, Any] = {**dict.fromkeys(("N", "D", "K", "seed", "t"), int), "rho": float, "value": float}


# Where rows come from


@cache
def origin() -> dict[str, str]:
    """How rows that are made now are made."""
    return {
        "version": __version__,
        "commit": _commit(),
        "code": code_digest(),
        "date": datetime.now(UTC).date().isoformat(),
        "platform": f"{platform.system()} {platform.release()} {platform.machine()}, Python {platform.python_version()}",
        "cpu": f"{_processor()}, {os.cpu_count()} cores",
        "blas": _blas(),
        "ram_gib": f"{installed_bytes() / 2**30:.1f}",
    }


def machine() -> dict[str, str]:
    """The machine and the code, for a report."""
    here = origin()
    versions = ", ".join(f"{name} {version(name) or '(not installed)'}" for name in _PACKAGES)
    return {
        "machine": f"{here['cpu']}, {here['ram_gib']} GiB; {here['platform']}",
        "BLAS": here["blas"],
        "packages": versions,
        "code": f"online-psp {here['version']}, commit {here['commit']}, measuring code {here['code']}",
        "date": here["date"],
    }


@cache
def code_digest() -> str:
    """Digest of the files that measurements depend on: tables and pictures may change without making rows stale."""
    digest = hashlib.sha256(__version__.encode())
    for part in _MEASURING:
        place = PACKAGE / part
        for file in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            digest.update(file.relative_to(PACKAGE).as_posix().encode() + file.read_bytes())
    return digest.hexdigest()[:12]


def _commit() -> str:
    """The commit of this package, with a plus if files differ from it."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", str(PACKAGE), *words], capture_output=True, text=True, timeout=10, check=True)
        return done.stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "__init__.py")
        return git("rev-parse", "--short=12", "HEAD") + ("+" if git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.SubprocessError):
        return "not in git"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor() or "unknown")


def _blas() -> str:
    """The BLAS of NumPy and of SciPy, with the kernels that each chose for this processor."""
    import scipy.linalg  # noqa: F401  (so that its BLAS is loaded, and seen)
    from threadpoolctl import threadpool_info

    pools: list[dict[str, Any]] = [pool for pool in threadpool_info() if pool.get("user_api") == "blas"]
    names = [f"{pool['internal_api']} {pool.get('version') or '?'}, {pool.get('architecture') or '?'} kernels" for pool in pools]
    return "; ".join(dict.fromkeys(names)) or "unknown"


def installed_bytes() -> float:
    """The memory of the machine; infinite if the system does not say."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):
        return math.inf


def version(package: str) -> str | None:
    """The installed version of a package, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


# Files of rows


def read_rows(path: str | Path) -> list[Row]:
    """The rows of a CSV file; none if it does not exist. A last line that was cut off by an interruption is left out."""
    path = Path(path)
    if not path.exists():
        return []
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            header, *lines = list(csv.reader(stream)) or [[]]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} is not a file of rows ({error}).") from error
    if tuple(header) != COLUMNS:
        raise ValueError(f"{path} does not have the columns of this version's rows: move it away or choose another folder.")
    rows = []
    for number, cells in enumerate(lines, start=2):
        try:
            rows.append(Row(**{name: _KINDS.get(name, str)(cell) for name, cell in zip(COLUMNS, cells, strict=True)}))
        except ValueError as error:
            if number <= len(lines):
                raise ValueError(f"{path} is damaged in line {number}: {','.join(cells)[:80]!r} is not a row.") from error
    return rows


def write_rows(path: str | Path, rows: Iterable[Row]) -> None:
    """Write a whole file, and replace the old one only when it is complete."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".part")
    with partial.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(COLUMNS)
        writer.writerows(asdict(row).values() for row in rows)
    os.replace(partial, path)


def append_rows(path: str | Path, rows: Iterable[Row]) -> None:
    """Add rows to a file that `write_rows` began, and flush them to the disk."""
    with Path(path).open("a", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows(asdict(row).values() for row in rows)
        stream.flush()
        os.fsync(stream.fileno())


def records(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Rows by record."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.key, []).append(row)
    return found


def finished(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Rows by record, for the records that ended, and did not fail."""
    return {key: mine for key, mine in records(rows).items() if mine[-1].metric == DONE and not select(mine, metric=FAILED)}


def stamped(key: str, rows: Sequence[Row]) -> list[Row]:
    """Rows with where they come from; their key is that of the process that runs, because files may change while others start."""
    here: Any = {**origin(), "key": key}
    return [replace(row, **here) for row in rows]


# What is asked of rows


def select(rows: Iterable[Row], **wanted: object) -> list[Row]:
    """Rows whose columns have the given values."""
    return [row for row in rows if all(getattr(row, name) == value for name, value in wanted.items())]


def distinct(rows: Iterable[Row], name: str) -> list[Any]:
    """The values of a column, in the order in which they first appear."""
    return list(dict.fromkeys(getattr(row, name) for row in rows))


def by(rows: Iterable[Row], *names: str) -> dict[tuple[Any, ...], list[Row]]:
    """Rows in groups of equal values of these columns."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(getattr(row, name) for name in names), []).append(row)
    return found


def median(values: Iterable[float]) -> float:
    """The median of the values that are not NaN; NaN if there are none."""
    found = [value for value in values if not math.isnan(value)]
    return float(np.median(found)) if found else math.nan


def medians(rows: Iterable[Row], *where: str, which: str = "label") -> dict[tuple[Any, ...], dict[str, float]]:
    """The median value by place (these columns), and by another column."""
    found: dict[tuple[Any, ...], dict[str, float]] = {}
    for (*place, name), mine in by(rows, *where, which).items():
        found.setdefault(tuple(place), {})[name] = median(row.value for row in mine)
    return found


class Interval(NamedTuple):
    """A median over the trials with its 95 % bootstrap interval, which is NaN for a single trial."""

    value: float
    low: float
    high: float


def interval(values: Sequence[float]) -> Interval:
    """The median, with SciPy's percentile bootstrap."""
    from scipy.stats import bootstrap

    if len(values) < 2:
        return Interval(median(values), math.nan, math.nan)
    found = bootstrap((values,), np.median, n_resamples=2000, method="percentile", rng=np.random.default_rng(0)).confidence_interval
    return Interval(median(values), float(found.low), float(found.high))


INTERVALS = (
    "Intervals are 95 % bootstrap intervals of the median over the trials. With fewer than six trials, whose whole range covers the median "
    "less often than that, they are no more than a hint; one trial has none."
)
"""Text about the intervals, for reports."""
