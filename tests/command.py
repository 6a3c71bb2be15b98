"""The command `psp`, in this process and as one of its own, and small tables for it."""

from __future__ import annotations

import resource
import sys
from pathlib import Path
from typing import Any

import numpy as np
from typer.testing import CliRunner

from online_psp.cli.main import app
from online_psp.engine.types import Floats

PSP = [sys.executable, "-m", "online_psp.cli"]


def data(n: int = 2000, D: int = 40, seed: int = 0) -> Floats:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, D)) * np.linspace(4, 0.2, D) + 1


def psp(*arguments: Any, code: int = 0, file_size: int | None = None, **options: Any) -> Any:
    """Run the command in this process; its exit code must be `code`, and files may grow to `file_size` only."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limits[0] if file_size is None else file_size, limits[1]))
    try:
        done = CliRunner().invoke(app, [str(argument) for argument in arguments], **options)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert done.exit_code == code, (done.output, done.exception)
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return done


def write_csv(path: Path, X: Floats, changes: dict[int, str] | None = None) -> Path:
    lines = [",".join(f"x{i}" for i in range(X.shape[1]))] + [",".join(map(repr, row)) for row in X.tolist()]
    for row, text in (changes or {}).items():
        lines[row] = text
    path.write_text("\n".join(lines) + "\n")
    return path
