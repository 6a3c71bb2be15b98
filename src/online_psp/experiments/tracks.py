"""Streams as hard as real ones: data that drifts, has holes, has gross rows, or comes sorted.

A track takes standardised rows and their subspace V, and gives the rows to feed together with the true subspace at every moment. The rows
may be generated (V is then the population's) or real (V is then batch PCA's):

``drift-rotation``
    Row t is turned by an angle that grows evenly from 0 to 90°, in K planes, each spanned by a direction of V and one outside of it. The
    present subspace is V turned by the angle of the last row.
``drift-switch``
    The same turn by 90°, all at once after half of the rows.
``missing``
    Each number is missing (NaN) with the given probability.
``outliers``
    The given share of the rows is replaced by gross ones: twenty times as long as the mean row, each in a random direction.
``sorted``
    Rows come in the order of their coordinate along the first direction of V.

Errors are distances to the present subspace. If an algorithm does not take missing values, they are filled with the mean, zero, and its
results say so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

import numpy as np

from online_psp.engine.types import Floats
from online_psp.experiments.records import Track

_GROSS = 20.0
_CHUNK = 1024


@dataclass(frozen=True, eq=False)
class Stream:
    """Rows to feed, and the true subspace at every moment.

    Attributes
    ----------
    X : (N, D)
    present : callable
        Function from the number of samples seen to the orthonormal basis (D, K) of the true subspace after them.
    over_time : bool
        Whether to rank by the mean error over time, instead of the last error.
    """

    X: Floats
    present: Callable[[int], Floats]
    over_time: bool = False


Make = Callable[[Floats, Floats, float, np.random.Generator], Stream]


def _partners(V: Floats, rng: np.random.Generator) -> Floats:
    """(D, L) orthonormal directions outside of V, one for each of its first L; L is K if there is room for so many."""
    D, K = V.shape
    L = min(K, D - K)
    if L < 1:
        raise ValueError(f"Data with {D} features has no direction outside of a subspace of K={K} to drift to.")
    W = rng.standard_normal((D, L))
    for _ in range(2):
        W -= V @ (V.T @ W)
        W = np.linalg.qr(W)[0]
    return W


def _turn(X: Floats, V: Floats, W: Floats, angles: Floats) -> Floats:
    """Every row of X, (n, D), turned by its own angle, (n,), in the planes (V_l, W_l)."""
    V = V[:, : W.shape[1]]
    along, aside = X @ V, X @ W
    c, s = np.cos(angles)[:, None] - 1.0, np.sin(angles)[:, None]
    return np.asarray(X + (c * along - s * aside) @ V.T + (s * along + c * aside) @ W.T)


def _turned_basis(V: Floats, W: Floats, angle: float) -> Floats:
    return _turn(V.T, V, W, np.full(V.shape[1], angle)).T


def _drift(X: Floats, V: Floats, angles: Floats, rng: np.random.Generator) -> Stream:
    W = _partners(V, rng)
    turned = [_turn(X[i : i + _CHUNK], V, W, angles[i : i + _CHUNK]) for i in range(0, len(X), _CHUNK)]
    return Stream(np.concatenate(turned), lambda t: _turned_basis(V, W, float(angles[t - 1])), over_time=True)


def _rotation(X: Floats, V: Floats, amount: float, rng: np.random.Generator) -> Stream:
    return _drift(X, V, np.linspace(0.0, np.pi / 2, len(X)), rng)


def _switch(X: Floats, V: Floats, amount: float, rng: np.random.Generator) -> Stream:
    return _drift(X, V, np.where(np.arange(len(X)) < len(X) // 2, 0.0, np.pi / 2), rng)


def _missing(X: Floats, V: Floats, amount: float, rng: np.random.Generator) -> Stream:
    holes = rng.random(X.shape) < amount
    return Stream(np.where(holes, np.nan, X), lambda t: V)


def _outliers(X: Floats, V: Floats, amount: float, rng: np.random.Generator) -> Stream:
    rows = X.copy()
    gross = np.flatnonzero(rng.random(len(X)) < amount)
    directions = rng.standard_normal((len(gross), X.shape[1]))
    size = _GROSS * float(np.linalg.norm(X, axis=1).mean())
    rows[gross] = size * directions / np.linalg.norm(directions, axis=1, keepdims=True)
    return Stream(rows, lambda t: V)


def _sorted(X: Floats, V: Floats, amount: float, rng: np.random.Generator) -> Stream:
    return Stream(X[np.argsort(X @ V[:, 0], kind="stable")], lambda t: V)


KINDS: Mapping[str, Make] = MappingProxyType(
    {"drift-rotation": _rotation, "drift-switch": _switch, "missing": _missing, "outliers": _outliers, "sorted": _sorted}
)

TRACKS: Mapping[str, tuple[Track, ...]] = MappingProxyType(
    {
        "drift": (Track("drift-rotation"), Track("drift-switch")),
        "missing": tuple(Track("missing", share) for share in (0.1, 0.2, 0.4, 0.6, 0.8)),
        "outliers": (Track("outliers", 0.01), Track("outliers", 0.1)),
        "sorted": (Track("sorted"),),
    }
)
"""The tracks of ``psp evaluate --track``, by name."""


def make_stream(track: Track, X: Floats, V: Floats, seed: int) -> Stream:
    """The stream of a track over standardised rows, (N, D), in the order of the trial, with their subspace V, (D, K)."""
    make = partial(KINDS[track.kind], X, V, track.amount)
    return make(np.random.default_rng([seed, list(KINDS).index(track.kind), round(1000 * track.amount)]))
