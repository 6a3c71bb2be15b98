r"""How far components may be from those of the population that the rows were drawn from.

For Gaussian rows, with x the variances of the sample and sums over the directions j that component i may have turned to, the square of the
sine of its angle is expected to be (Anderson 1963, for fixed D and many rows n, where A is all)::

    sin² = A / (1 + s + A)        A = 1/n Σ x_i x_j / (x_i − x_j)²        s = 1/n Σ x_j / (x_i − x_j)

Anderson's A has the variances of the population. The sample's are biased: the population's is about x_i / (1 + s) (El Karoui 2008).
With that, the expression is the limit for D as large as n, of variances that stand out (Paul 2007; Bun, Bouchaud & Potters 2017),
and it goes to 1 where they do not.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from online_psp.engine.types import Floats

_ALIKE = 6.0**0.5  # gaps that 95 % of pairs of equal variances fall short of, in standard errors of their difference: 1 − exp(−6/2)

_ROUNDING = float(np.finfo(np.float64).eps)


class Spectrum(NamedTuple):
    """Variances of a sample, and how many rows it has."""

    variances: Floats
    """(k,), largest first, along the directions kept."""
    rest: float
    """Mean variance along the directions left out."""
    left_out: int
    """Number of these directions that rows can have reached."""
    D: int
    rows: float
    """Effective number of rows, less one if they are centred."""


def effective_rows(weight: float, squares: float, known: Floats | None, centred: bool) -> float:
    """Kish's number of rows that have both of two features, less one if rows are centred.

    Parameters
    ----------
    weight, squares : float
        Sums of the weights of the rows, and of their squares.
    known : (D,), optional
        Weight of the observed values of each feature.
    centred : bool
    """
    if squares <= 0:
        return 0.0
    together = 1.0 if known is None else min(float(known.mean()) / weight, 1.0) ** 2
    return together * weight**2 / squares - centred


def turned_away(spectrum: Spectrum, K: int, alone: bool = False) -> Floats:
    """Expected squared sine of the angle of each of the first K components, (K,).

    The angle is that to the subspace of the population's first K components; or to its own one, if `alone`.
    """
    x, n, worst = spectrum.variances, spectrum.rows, 1.0 - (1 if alone else K) / spectrum.D
    if n <= K or not x.any():
        return np.full(K, worst)
    x = np.where(x > _ROUNDING * spectrum.D * x[0], x, 0.0)
    others = np.append(x, spectrum.rest)
    number = np.append(np.ones(len(x)), spectrum.left_out)
    gap = x[:K, np.newaxis] - others
    with np.errstate(divide="ignore", invalid="ignore"):
        bias = number * others / gap / n
        turn = number * x[:K, np.newaxis] * others / gap**2 / n
    outside = (np.arange(len(others)) >= K) & (number > 0)
    counted = ~np.eye(K, len(others), dtype=bool) & (number > 0) if alone else np.broadcast_to(outside, gap.shape)
    same = (counted & (gap == 0)).any(axis=1)  # nothing tells these directions apart
    A = np.where(counted & (gap != 0), turn, 0.0).sum(axis=1)
    s = np.where(outside & (gap > 0), bias, 0.0).sum(axis=1)
    return np.asarray(np.where(same, worst, np.minimum(A / (1.0 + s + A), worst)))


def subspace_error(spectrum: Spectrum, K: int) -> float:
    """Expected distance of the subspace from the population's, in the units of `online_psp.metrics.subspace_error`."""
    return float(np.sqrt(2.0 * turned_away(spectrum, K).mean())) if K else 0.0


def variance_errors(variances: Floats, spectrum: Spectrum) -> Floats:
    """Standard errors of variances along directions of a sample, for Gaussian rows."""
    return np.asarray(variances * np.sqrt(2.0 / max(spectrum.rows, 1.0)))


def alike(spectrum: Spectrum, K: int) -> list[tuple[int, int]]:
    """Runs (first, last) of the first K components, from 0, whose variances rows do not tell apart: their axes may be any of their span.

    Neighbours are such a pair if equal variances would often be as far apart.
    """
    x = spectrum.variances[:K]
    close = x[:-1] - x[1:] <= _ALIKE * 2.0 * x[:-1] / np.sqrt(max(spectrum.rows, 1.0))
    edges = np.flatnonzero(np.diff(np.concatenate([[False], close, [False]]).astype(int)))
    return [(int(first), int(last)) for first, last in zip(edges[::2], edges[1::2], strict=True)]
