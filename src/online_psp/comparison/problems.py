"""The data of the comparison: rows that are centred and scaled once, the same for all methods."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from online_psp.datasets import KNOWN, SpikedCovariance, load, locate
from online_psp.engine.types import Floats
from online_psp.metrics import batch_components, check_directions, standardize

SPIKED, POWER = "spiked", "power-law"
SYNTHETIC = (SPIKED, POWER)


@dataclass(frozen=True)
class Size:
    """Size of a run: rows and features of the synthetic sets, most rows of the others, and the default K."""

    synthetic_rows: int
    D: int
    rows: int
    K: int


FULL, QUICK = Size(6000, 1024, 20_000, 16), Size(1500, 256, 1500, 8)


@dataclass(frozen=True, eq=False)
class Problem:
    """Rows, with the batch solution.

    Attributes
    ----------
    X : (N, D)
        Standardised: centred, and divided by the mean norm.
    V : (D, K)
        The top-K eigenvectors of their covariance.
    """

    name: str
    about: str
    X: Floats
    V: Floats

    @property
    def K(self) -> int:
        """Number of directions to find."""
        return int(self.V.shape[1])


def default_names() -> tuple[str, ...]:
    """Two synthetic sets, and MNIST if it is present, otherwise scikit-learn's digits."""
    return (*SYNTHETIC, "mnist" if locate("mnist") is not None else "digits")


def prepare(name: str, size: Size, K: int | None = None, rows: int | None = None) -> Problem:
    """Prepare data by name: "spiked", "power-law", a known data set, or a file."""
    X, about = _synthetic(name, size, rows) if name in SYNTHETIC else _stored(name, rows or size.rows)
    K = K or (size.K if X.shape[1] > 8 * size.K else max(1, X.shape[1] // 8))
    if min(X.shape) < 2:
        raise ValueError(f"{name}, {X.shape[0]} × {X.shape[1]}, is too small to compare on: it needs at least 2 rows and 2 features.")
    if not 1 <= 2 * K <= min(X.shape):
        raise ValueError(
            f"K must be between 1 and {min(X.shape) // 2} for {name}, {X.shape[0]} × {X.shape[1]}, with 2K directions kept; got {K}."
        )
    X = standardize(X)
    label = name if name in SYNTHETIC or name in KNOWN else Path(name).stem
    V = batch_components(X, K)
    check_directions(X, V)
    return Problem(label, about, X, V)


def _synthetic(name: str, size: Size, rows: int | None) -> tuple[Floats, str]:
    n, D = rows or size.synthetic_rows, size.D
    if name == SPIKED:
        return SpikedCovariance(D, size.K, 0.01, seed=0).draw(n), f"the paper's model: {size.K} directions in white noise, ρ = 0.01"
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.standard_normal((D, D)))[0]
    return (rng.standard_normal((n, D)) / np.sqrt(np.arange(1, D + 1))) @ turn, "k-th variance 1/k, as in natural images: no gap to find"


def _stored(name: str, most: int) -> tuple[Floats, str]:
    found = load(name)
    chosen = np.random.default_rng(0).permutation(found.N)[:most]
    title = KNOWN[name].title if name in KNOWN else str(Path(name).name)
    about = title + (f", {most:,} of {found.N:,} rows" if most < found.N else "") + ", in random order"
    return np.asarray(found.X[chosen], dtype=np.float64), about
