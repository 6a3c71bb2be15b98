"""What the pages take for granted: the rows, files and modules of the reader."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

_MINE = """
import numpy as np


class MyPSP:
    def __init__(self, K, D):
        self.K, self.C = K, np.zeros((D, D))

    def fit_next(self, x):
        self.C += np.outer(x, x)

    def get_components(self):
        return np.linalg.eigh(self.C)[1][:, -self.K :]
"""


def _rows(n: int = 600, D: int = 24) -> Any:
    return np.random.default_rng(0).standard_normal((n, D)) * np.linspace(3, 0.1, D) + 1.0


def _streams(names: dict[str, Any]) -> None:
    import pandas as pd

    X = _rows(300, 70)
    table = pd.DataFrame(X, columns=[f"gene_{i}" for i in range(70)])
    table["cell"] = [f"c{i}" for i in range(len(X))]
    table.to_parquet("rows.parquet")
    np.save("rows.npy", X)


def _tracking(names: dict[str, Any]) -> None:
    names["stream"] = np.array_split(_rows(1500), 6)


def _watch(names: dict[str, Any]) -> None:
    names["stream"] = np.array_split(_rows(200, 784), 2)


def _experiments(names: dict[str, Any]) -> None:
    Path("my_module.py").write_text(_MINE, encoding="utf-8")
    np.save("recordings.npy", _rows())
    names["X"] = _rows(300)


_PAGES: Mapping[str, Callable[[dict[str, Any]], None]] = {
    "docs/streams.md": _streams,
    "docs/tracking.md": _tracking,
    "docs/experiments.md": _experiments,
    "docs/watch.md": _watch,
}


def prepare(page: str, names: dict[str, Any]) -> None:
    """Put what a page takes for granted into its namespace and its folder."""
    if page in _PAGES:
        _PAGES[page](names)
