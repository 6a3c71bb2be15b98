"""What to learn from: generated families, known sets, files and arrays, as they are or made harder by a track.

`Data` says which rows, `problem` makes them: standardised, in the order of a trial, with the subspaces that bases are compared with.

Tracks take standardised rows and the basis V of batch PCA, and say what the true subspace is at every moment:

``drift-rotation``
    Row t is turned by an angle that grows evenly from 0 to 90°, in K planes, each spanned by a direction of V and one outside of it.
``drift-switch``
    The same turn by 90°, all at once after half of the rows.
``missing``, ``missing-stretch``
    Each number is missing (NaN) with the given probability; or the first features are, in the middle half of the rows. Methods that do not
    take NaN get zero, the mean; their rows say so.
``outliers``, ``outliers-clump``, ``outliers-first``, ``outliers-along``
    The given share of the rows is replaced by gross ones, twenty times as long as the mean row: scattered, in the middle, the first rows,
    each in a random direction; or scattered, all along one. The truth is batch PCA of the other rows.
``sorted``
    Rows come in the order of their coordinate along the first direction of V.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike, NDArray

from online_psp.datasets.registry import KNOWN, checksum, load, locate
from online_psp.datasets.spiked import SpikedCovariance
from online_psp.engine.types import Array, Floats
from online_psp.metrics import batch_components, gram_matrix, orthonormal, standardize
from online_psp.suite.rows import installed_bytes

_CHUNK_BYTES = 4_000_000
_PROBES = 256
_GROSS = 20.0
GENERATED = "generated"
"""In place of a checksum where sizes and seed say everything."""


@dataclass(frozen=True)
class Data:
    """Rows to learn from: of a generated family, a known set, a file, or an array.

    Attributes
    ----------
    source : str
        A key of `FAMILIES`, a name that `online_psp.datasets.registry.load` knows, a path, or "data" for an array of the caller.
    N, D : int
    K : int
        Directions that a generated family has; 0 for others.
    rho : float
        Its parameter: noise, or how fast variances fall.
    most : int or None
        Use only so many rows, the first in the order of the trial.
    checksum : str
        Of the contents, so that rows of other contents are not reused.
    """

    source: str
    N: int
    D: int
    K: int = 0
    rho: float = 0.0
    most: int | None = None
    checksum: str = ""

    @property
    def generated(self) -> bool:
        """Whether every seed draws new rows."""
        return self.checksum == GENERATED

    @property
    def used(self) -> int:
        """Rows of one pass."""
        return self.N if self.most is None else min(self.most, self.N)


# Generated families: from a `Data` and a seed to rows (N, D), and the population's subspace (D, K) where it is known


def _spiked(data: Data, seed: int) -> tuple[Floats, Floats | None]:
    model = SpikedCovariance(data.D, data.K, data.rho, seed)
    return model.draw(data.N), model.U


def _power_law(data: Data, seed: int) -> tuple[Floats, Floats | None]:
    """The k-th variance is 1/k, as in natural images: no gap to find."""
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.standard_normal((data.D, data.D)))[0]
    return np.asarray((rng.standard_normal((data.N, data.D)) / np.sqrt(np.arange(1, data.D + 1))) @ turn), turn[: data.K].T


def _of_values(data: Data, seed: int, values: Floats) -> tuple[Floats, Floats | None]:
    """A matrix with these singular values, between random orthonormal bases: the published one is diagonal, which is no stream."""
    rng, r = np.random.default_rng(seed), len(values)
    left, right = (np.linalg.qr(rng.standard_normal((size, r)))[0] for size in (data.N, data.D))
    return (left * values) @ right.T, None


def _tail(data: Data) -> Floats:
    """1, 2, …: places of the singular values after the K leading ones, which are 1."""
    return np.arange(1.0, min(data.N, data.D) - data.K + 1)


def _poly_decay(data: Data, seed: int) -> tuple[Floats, Floats | None]:
    return _of_values(data, seed, np.r_[np.ones(data.K), (1.0 + _tail(data)) ** -data.rho])


def _exp_decay(data: Data, seed: int) -> tuple[Floats, Floats | None]:
    return _of_values(data, seed, np.r_[np.ones(data.K), 10.0 ** (-data.rho * _tail(data))])


def _low_rank(data: Data, seed: int) -> tuple[Floats, Floats | None]:
    """Published as ``diag(1, …, 1, 0, …, 0) + ξ G Gᵀ/n`` with G standard normal, (n, n)."""
    n = min(data.N, data.D)
    G = np.random.default_rng([seed, 1]).standard_normal((n, n))
    values = np.linalg.eigvalsh(np.diag(np.arange(n) < data.K) + data.rho / n * G @ G.T)[::-1]
    return _of_values(data, seed, np.asarray(values, dtype=np.float64))


FAMILIES: Mapping[str, tuple[Callable[[Data, int], tuple[Floats, Floats | None]], str, float]] = MappingProxyType(
    {
        "spiked": (_spiked, "the paper's model: K directions in white noise of variance ρ", 0.01),
        "power-law": (_power_law, "k-th variance 1/k, as in natural images: no gap to find", 0.0),
        "low-rank": (_low_rank, "SKETCH: rank K and Wishart noise ρ (1e-4, 1e-2, 1e-1)", 1e-2),
        "poly-decay": (_poly_decay, "SKETCH: K ones, then k-th singular value (k+1)^-ρ (0.5, 1, 2)", 1.0),
        "exp-decay": (_exp_decay, "SKETCH: K ones, then k-th singular value 10^-ρk (0.01, 0.1, 0.5)", 0.1),
    }
)
"""Function, what it is, and the usual ρ. SKETCH: Tropp, Yurtsever, Udell and Cevher, "Streaming low-rank matrix approximation", 2019."""


def parse(text: str) -> Data:
    """Generated data from ``spiked:D=1024,K=16,rho=0.01,N=6000``; what is left out is as in this example, ρ as usual for the family."""
    family, _, settings = text.partition(":")
    values: dict[str, float] = {"D": 1024, "K": 16, "rho": FAMILIES[family][2], "N": 6000}
    for setting in filter(None, settings.split(",")):
        name, _, value = setting.strip().partition("=")
        try:
            values[name] = type(values[name])(float(value) if name == "rho" else int(value))
        except (KeyError, ValueError):
            raise ValueError(f"{setting!r} in {text!r} is not right: write {family}:D=1024,K=16,rho=0.01,N=6000.") from None
    D, K, N, rho = int(values["D"]), int(values["K"]), int(values["N"]), values["rho"]
    if not (1 <= K <= min(D, N) and 0 <= rho < np.inf):
        raise ValueError(f"{text!r} must have 1 ≤ K ≤ D, K ≤ N and rho ≥ 0.")
    return Data(family, N, D, K, rho, checksum=GENERATED)


_arrays: dict[Data, Array] = {}
"""Rows that the caller has in memory, of the last evaluation."""


def find(data: ArrayLike | str | Path, data_home: str | Path | None = None, most: int | None = None) -> Data:
    """The data that a text, a path or an array names; raises an error that says what is wrong with it.

    Parameters
    ----------
    data : (N, D) or str or Path
    most : int, optional
        Use only so many rows, in random order.
    """
    if isinstance(data, str) and data.partition(":")[0] in FAMILIES:
        made = parse(data)
        _check_memory(made)
        return made if most is None else replace(made, N=min(most, made.N))
    if isinstance(data, str | Path):
        X = load(data, data_home).X
    else:
        X = np.asarray(data)
        if X.ndim != 2 or X.dtype.kind not in "fiub" or X.size == 0:
            raise ValueError(f"The data must be real numbers with samples as rows, shape (N, D); got shape {X.shape} of {X.dtype}.")
    finite = np.isfinite(X).all(axis=1)
    if not finite.all():
        raise ValueError(f"Row {int(np.argmin(finite))} of the data has a value that is not finite.")
    largest = float(np.abs(X.astype(np.float64, copy=False)).max())
    if not (largest == 0 or 1e-150 < largest < 1e150):
        raise ValueError(f"The largest value of the data is {largest:.3g}, and squares overflow or vanish: scale the data.")
    contents = hashlib.sha256(np.ascontiguousarray(X).tobytes()).hexdigest()[:12]
    found = Data(str(data) if isinstance(data, str | Path) else "data", len(X), X.shape[1], most=most, checksum=contents)
    _check_memory(found)
    _arrays.clear()
    _arrays[replace(found, most=None)] = X
    return found


def known(name: str, data_home: str | Path | None = None) -> Data:
    """A data set known by name, with the checksum of its file where there is one; nothing is read yet."""
    path = locate(name, data_home)
    contents = checksum(path)[:12] if path is not None and path.is_file() else ""
    return Data(name, KNOWN[name].N, KNOWN[name].D, checksum=contents)


def images(most: int | None = None) -> tuple[str, Floats]:
    """MNIST where it is found, otherwise the digits of scikit-learn: the name, and so many rows as they come in the file."""
    name = "mnist" if locate("mnist") is not None else "digits"
    return name, np.asarray(load(name).X[:most], dtype=np.float64)


def _check_memory(data: Data) -> None:
    """Raise an error if two copies of the rows and their Gram matrix do not fit into the memory of the machine."""
    needed = 8.0 * (2.0 * data.used * data.D + min(data.used, data.D) ** 2)
    if needed > installed_bytes():
        raise ValueError(f"{data.used:,} × {data.D:,} rows need about {needed / 1e9:,.0f} GB of memory, more than this machine has.")


# Tracks


@dataclass(frozen=True)
class Track:
    """What makes a stream harder, and how much."""

    kind: str
    amount: float = 0.0

    @property
    def name(self) -> str:
        """How tables call it."""
        return f"{self.kind} {100 * self.amount:.3g} %" if self.amount else self.kind


TRACKS: Mapping[str, tuple[Track, ...]] = MappingProxyType(
    {
        "drift": (Track("drift-rotation"), Track("drift-switch")),
        "missing": tuple(Track("missing", share) for share in (0.1, 0.2, 0.4, 0.6, 0.8)),
        "outliers": (Track("outliers", 0.01), Track("outliers", 0.1)),
        "sorted": (Track("sorted"),),
    }
)
"""The tracks of ``psp evaluate --track``, by name."""


def tracked(track: Track, X: Floats, V: Floats, seed: int) -> tuple[Floats, Callable[[int], Floats]]:
    """Rows (N, D) of a track, and the true subspace, (D, K), after t samples as a function of t."""
    rng, (N, D) = np.random.default_rng([seed, sum(track.kind.encode()), round(1000 * track.amount)]), X.shape
    kind, _, way = track.kind.partition("-")
    if kind == "drift":
        half = np.where(np.arange(N) < N // 2, 0.0, np.pi / 2)
        angles = np.linspace(0.0, np.pi / 2, N) if way == "rotation" else half
        W = _partners(V, rng)
        turned = [_turn(X[i : i + 1024], V, W, angles[i : i + 1024]) for i in range(0, N, 1024)]
        return np.concatenate(turned), lambda t: _turn(V.T, V, W, np.full(V.shape[1], angles[t - 1])).T
    if kind == "sorted":
        return X[np.argsort(X @ V[:, 0], kind="stable")], lambda t: V
    rows, count = X.copy(), round(track.amount * N)
    if kind == "missing":
        if way:
            rows[N // 4 : 3 * N // 4, : round(track.amount * D)] = np.nan
        else:
            rows[rng.random(X.shape) < track.amount] = np.nan
        return rows, lambda t: V
    gross = np.zeros(N, dtype=bool)
    gross[{"clump": slice(N // 2, N // 2 + count), "first": slice(count)}.get(way, rng.permutation(N)[:count])] = True
    directions = rng.standard_normal((count, 1)) * rng.standard_normal(D) if way == "along" else rng.standard_normal((count, D))
    lengths = np.abs(rng.standard_normal((count, 1))) if way == "along" else 1.0
    size = _GROSS * float(np.linalg.norm(X, axis=1).mean())
    rows[gross] = size * lengths * directions / np.linalg.norm(directions, axis=1, keepdims=True)
    clean = orthonormal(batch_components(X[~gross], V.shape[1]))
    return rows, lambda t: clean


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
    c, s = np.cos(angles)[:, np.newaxis] - 1.0, np.sin(angles)[:, np.newaxis]
    return np.asarray(X + (c * along - s * aside) @ V.T + (s * along + c * aside) @ W.T)


# Problems


def _nothing() -> Array:
    return np.empty((0, 0))


@dataclass(frozen=True, eq=False)
class Problem:
    """The rows of a trial, and what bases are compared with.

    Attributes
    ----------
    X : (N, D) or Path
        Standardised rows, or a file of float64.
    order : (n,)
        Rows of X in the order in which they come.
    D : int
    V : (D, K)
        The batch solution, orthonormal.
    truth : (D, K) or None
        The population's subspace, orthonormal.
    present : callable or None
        On a track: from the number of samples seen to the true subspace, (D, K).
    holes : bool
        Whether values are missing.
    raw : (N, D)
        The data as it was before it was standardised.
    """

    X: Array | Path
    order: NDArray[np.intp]
    D: int
    V: Floats
    truth: Floats | None
    present: Callable[[int], Floats] | None = None
    holes: bool = False
    raw: Array = field(default_factory=_nothing)

    def blocks(self, start: int, stop: int) -> Iterator[Floats]:
        """The rows of samples `start` … `stop`−1, pass after pass, a few megabytes at a time."""
        n, most = len(self.order), max(1, _CHUNK_BYTES // (8 * self.D))
        while start < stop:
            within = start % n
            size = min(stop - start, n - within, most)
            yield self._rows(within, size)
            start += size

    def _rows(self, first: int, size: int) -> Floats:
        if isinstance(self.X, Path):  # read, not mapped: pages of a mapped file count as memory of the process
            return np.fromfile(self.X, count=size * self.D, offset=8 * first * self.D).reshape(size, self.D)
        return np.asarray(self.X[self.order[first : first + size]])

    def stored(self, path: Path) -> Problem:
        """The same problem with its rows in a file, so that the process that learns does not hold them."""
        with path.open("wb") as stream:
            for block in self.blocks(0, len(self.order)):
                block.tofile(stream)
        return replace(self, X=path, order=np.arange(len(self.order)), raw=_nothing())

    @cached_property
    def probes(self) -> Array:
        """(m, D) some rows to reconstruct."""
        X = np.asarray(self.X)
        return X[np.sort(np.random.default_rng(0).permutation(len(X))[:_PROBES])]

    @cached_property
    def scale(self) -> float:
        """What `standardize` divided the rows by."""
        return float(np.linalg.norm(self.raw - self.raw.mean(axis=0)) / np.linalg.norm(np.asarray(self.X)))

    @property
    def span(self) -> float:
        """The range of the raw numbers, in standardised units."""
        return (float(self.raw.max()) - float(self.raw.min())) / self.scale

    def first(self, Q: Floats | None = None) -> Array:
        """The first row of the data, (D,), as it was, or rebuilt from its projection on a basis, (D, K), in the units of the file."""
        if Q is None:
            return np.asarray(self.raw[0])
        return np.asarray(self.raw.mean(axis=0) + self.scale * (Q @ (Q.T @ np.asarray(self.X)[0])))


@lru_cache(maxsize=1)
def _rows_of(data: Data, data_home: str | Path | None) -> tuple[Array, Array, Floats]:
    """Rows as they are and standardised, and their Gram matrix."""
    raw = _arrays[data] if data in _arrays else load(data.source, data_home).X
    X = standardize(raw)
    return raw, X, gram_matrix(X)


@lru_cache(maxsize=1)
def problem(data: Data, K: int, seed: int, track: Track | None = None, data_home: str | Path | None = None) -> Problem:
    """The rows of a trial and their references; the last one is kept.

    Parameters
    ----------
    seed : int
        Draws the rows of generated data, and the order of others.
    """
    truth, gram, order = None, None, np.arange(data.used)
    if data.generated:
        raw, U = FAMILIES[data.source][0](data, seed)
        X, truth = standardize(raw), None if U is None else orthonormal(U[:, :K])
    else:
        raw, X, gram = _rows_of(replace(data, most=None), data_home)
        order = np.random.default_rng(seed).permutation(data.N)[: data.used]
        if data.used < data.N:  # standardised by themselves, so that methods that centre and those that do not have the same reference
            raw, gram = raw[order], None
            X, order = standardize(raw), np.arange(data.used)
    made = Problem(X, order, data.D, orthonormal(batch_components(X, K, gram)), truth, raw=raw)
    if track is None:
        return made
    rows, present = tracked(track, X[order], made.V, seed)
    return replace(made, X=rows, order=np.arange(len(rows)), present=present, holes=bool(np.isnan(rows).any()))
