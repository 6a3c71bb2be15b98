"""The paper's synthetic data: a few strong directions in white noise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from online_psp.engine.types import Floats


class Spiked(NamedTuple):
    """Rows, and the truth from which they were drawn."""

    X: Floats
    """(n, D) samples."""
    U: Floats
    """(D, K) orthonormal: the population's principal subspace."""
    variances: Floats
    """(K,) population variances along U, noise included."""


def spectrum(K: int) -> Floats:
    """(K,) signal variances of the paper's model, which fall evenly from 1 to ½."""
    return np.asarray(1.0 - np.arange(K) / (2.0 * max(K - 1, 1)))


class SpikedCovariance:
    """An endless stream from ``x = U* S^{1/2} z + sqrt(ρ) w`` with z, w standard normal.

    U* is the QR basis of a Gaussian D×K matrix and ``S_kk = 1 − (k−1)/(2(K−1))``: signal variances fall evenly from 1 to ½.

    Parameters
    ----------
    D, K : int
    rho : float
        Noise variance in every direction.
    seed : int
        The same seed gives the same truth and the same rows, whatever the block sizes.
    """

    def __init__(self, D: int, K: int, rho: float = 0.01, seed: int = 0) -> None:
        if not 1 <= K <= D:
            raise ValueError(f"K must be between 1 and D; got K={K} and D={D}.")
        if not rho >= 0:
            raise ValueError(f"rho must not be negative; got {rho!r}.")
        truth, self._signal_rng, self._noise_rng = (np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(3))
        self.D, self.K, self.rho = D, K, rho
        self.U: Floats = np.linalg.qr(truth.standard_normal((D, K)))[0]
        self.signal = spectrum(K)

    @property
    def variances(self) -> Floats:
        """(K,) population variances along U, noise included."""
        return self.signal + self.rho

    def draw(self, n: int) -> Floats:
        """The next n rows, (n, D)."""
        X = self._noise_rng.standard_normal((n, self.D))
        X *= np.sqrt(self.rho)
        X += (self._signal_rng.standard_normal((n, self.K)) * np.sqrt(self.signal)) @ self.U.T
        return X

    def blocks(self, rows: int = 256) -> Iterator[Floats]:
        """Endless blocks of rows, one in memory at a time."""
        while True:
            yield self.draw(rows)


def spiked_covariance(n: int, D: int, K: int, rho: float = 0.01, seed: int = 0) -> Spiked:
    """n rows of the paper's spiked-covariance model; see `SpikedCovariance` for an endless stream."""
    model = SpikedCovariance(D, K, rho, seed)
    return Spiked(model.draw(n), model.U, model.variances)
