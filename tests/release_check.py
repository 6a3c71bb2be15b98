"""``make release-check``: build wheel and sdist, look into them, install them in fresh environments, and use them there.

Needs a package index. Every check that fails is a line; the exit code is 1 if there is one.
"""

from __future__ import annotations

import email
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"
LARGEST_FILE, LARGEST_WHEEL = 200_000, 1_000_000  # bytes
IN_SDIST = (
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    "CITATION.cff",
    "tests/contract/test_pca.py",
    "docs/conf.py",
    "src/online_psp/py.typed",
)
PLAIN = """
import sys
import numpy as np
import online_psp
from online_psp import OnlinePCA

assert not {"matplotlib", "PIL", "pandas", "pyarrow"} & set(sys.modules), "the plain import brought optional packages"
X = np.random.default_rng(0).standard_normal((300, 20)) * np.linspace(3, 0.1, 20)
pca = OnlinePCA(3).partial_fit(X[:100]).partial_fit(X[100:])
assert pca.transform(X).shape == (300, 3)
pca.save("model.psp")
assert OnlinePCA.load("model.psp").n_samples_seen_ == 300
print(online_psp.__version__)
"""


def run(*command: str | Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """A command, in an environment in which this checkout cannot be imported by accident."""
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return subprocess.run([str(part) for part in command], cwd=cwd, env=clean, capture_output=True, text=True, check=False)


def build() -> tuple[Path, Path]:
    """The sdist, and the wheel made from it."""
    shutil.rmtree(DIST, ignore_errors=True)
    done = run(sys.executable, "-m", "build", "--outdir", DIST)
    if done.returncode:
        sys.exit(f"The build failed.\n{done.stdout}\n{done.stderr}")
    return next(DIST.glob("*.whl")), next(DIST.glob("*.tar.gz"))


def wheel_problems(wheel: Path, project: dict[str, object]) -> Iterator[str]:
    if wheel.stat().st_size > LARGEST_WHEEL:
        yield f"{wheel.name} has {wheel.stat().st_size:,} bytes."
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        for name in names:
            top = name.split("/")[0]
            if top != "online_psp" and not top.endswith(".dist-info"):
                yield f"{name} does not belong into the wheel."
            if "test" in Path(name).name.lower() or "__pycache__" in name:
                yield f"{name} does not belong into the wheel."
        for entry in archive.infolist():
            if entry.file_size > LARGEST_FILE:
                yield f"{entry.filename} has {entry.file_size:,} bytes."
        if "online_psp/py.typed" not in names:
            yield "py.typed is not in the wheel."
        sources = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*") if path.is_file()}
        sources = {
            name for name in sources if "__pycache__" not in name and not name.endswith((".nbi", ".nbc")) and ".egg-info" not in name
        }
        for name in sorted(sources - set(names)):
            yield f"{name} is not in the wheel."
        metadata = email.message_from_bytes(archive.read(next(name for name in names if name.endswith("/METADATA"))))
        for field, key in (("Name", "name"), ("Version", "version"), ("Requires-Python", "requires-python")):
            if metadata[field] != project[key]:
                yield f"{field} of the wheel is {metadata[field]}, and {project[key]} in pyproject.toml."
        if metadata["License-Expression"] != "BSD-3-Clause" or "LICENSE" not in metadata.get_all("License-File", []):
            yield "The licence is not in the metadata of the wheel."
        if metadata["Description-Content-Type"] != "text/markdown" or "OnlinePCA" not in str(metadata.get_payload()):
            yield "README.md is not the description of the wheel."


def sdist_problems(sdist: Path) -> Iterator[str]:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for name in IN_SDIST:
        if name not in names:
            yield f"{name} is not in the sdist."
    for name in names:
        if name.startswith(("docs/_build", "docs/gallery", "docs/api/generated", ".venv", "dist")):
            yield f"{name} does not belong into the sdist."


def install_problems(package: Path, expected: str) -> Iterator[str]:
    """Install in a fresh environment, and use it from an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "env"
        venv.create(home, with_pip=True)
        programs = home / ("Scripts" if os.name == "nt" else "bin")
        done = run(programs / "python", "-m", "pip", "install", "--quiet", package)
        if done.returncode:
            yield f"{package.name} cannot be installed: {done.stderr}"
            return
        work = Path(folder) / "work"
        work.mkdir()
        done = run(programs / "python", "-W", "error", "-c", PLAIN, cwd=work)
        if done.returncode or done.stdout.strip() != expected:
            yield f"{package.name}, installed, does not work: {done.stdout} {done.stderr}"
        for arguments in (["--help"], ["--version"], ["fit", "--help"], ["info", "model.psp"]):
            done = run(programs / "psp", *arguments, cwd=work)
            if done.returncode:
                yield f"psp {' '.join(arguments)}: {done.stdout} {done.stderr}"
        done = run(programs / "psp", "demo", cwd=work)
        if done.returncode != 2 or "pip install 'online-psp[plot]'" not in done.stderr:
            yield f"psp demo without matplotlib should name the extra: {done.stdout} {done.stderr}"
        done = run(programs / "python", "-m", "pip", "check")
        if done.returncode:
            yield f"pip check: {done.stdout}"
        size = sum(path.stat().st_size for path in home.rglob("*") if path.is_file() and not path.is_symlink())
        print(f"{package.name}: installed with all that it needs and pip, {size / 1e6:,.0f} MB")


def main() -> int:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wheel, sdist = build()
    found = [*wheel_problems(wheel, project), *sdist_problems(sdist)]
    done = run(sys.executable, "-m", "twine", "check", "--strict", wheel, sdist)
    if done.returncode:
        found.append(f"twine check: {done.stdout} {done.stderr}")
    found += install_problems(wheel, project["version"])
    for problem in found:
        print(problem)
    print(
        f"{wheel.name}, {wheel.stat().st_size:,} bytes; {sdist.name}, {sdist.stat().st_size:,} bytes: {'not ready' if found else 'ready'}"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
