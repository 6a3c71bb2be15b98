"""Arrays of other libraries, through the array API standard: D-sized products run where the array is, the small recurrence on the host.

What crosses over for a block of n rows is ``P = X Wᵀ`` and ``G = X Xᵀ`` one way and C (K×n) the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from online_psp.engine.blocks import GramBlock
from online_psp.engine.types import Array, Floats


def namespace_of(X: Any) -> Any:
    """The array API namespace of X; None for NumPy's and for what is no array of such a library."""
    if isinstance(X, np.ndarray | list | tuple) or not (hasattr(X, "__array_namespace__") or type(X).__module__.split(".")[0] == "torch"):
        return None
    try:
        import array_api_compat
    except ImportError as error:
        message = f"To learn from {type(X).__module__.split('.')[0]} arrays as they are: pip install 'online-psp[array-api]'."
        raise ImportError(message) from error
    xp = array_api_compat.array_namespace(X)
    return None if array_api_compat.is_numpy_namespace(xp) else xp


def to_host(X: Any) -> Array:
    """A NumPy array with the same values; no copy where that can be had."""
    if hasattr(X, "detach"):  # torch
        return np.asarray(X.detach().cpu().numpy())
    return np.asarray(X.get() if hasattr(X, "get") else X)


class Kind:
    """A library, a device and a precision."""

    def __init__(self, xp: Any, like: Any, dtype: np.dtype[Any]) -> None:
        from array_api_compat import device

        self.xp, self.device, self.dtype = xp, device(like), np.dtype(dtype)

    def of(self, values: Array) -> Any:
        """NumPy values as an array of this kind."""
        return self.xp.asarray(np.ascontiguousarray(values, dtype=self.dtype), device=self.device)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kind) and (self.xp, self.device, self.dtype) == (other.xp, other.device, other.dtype)

    def __hash__(self) -> int:
        return hash((str(self.xp), str(self.device), self.dtype))


class ForeignRows:
    """Rows in an array of another library.

    Parameters
    ----------
    X : (n, D)
    dtype : float64 or float32, optional
        What to take them to; theirs by default, where it is one of these.
    """

    def __init__(self, X: Any, dtype: Any = None) -> None:
        xp = namespace_of(X)
        if X.ndim != 2:
            raise ValueError(f"Samples must be rows, two dimensions; got {X.ndim}.")
        if dtype is None:
            dtype = np.float32 if X.dtype == xp.float32 else np.float64
        self.kind = Kind(xp, X, dtype)
        wanted = getattr(xp, self.kind.dtype.name)
        self.X = X if X.dtype == wanted else xp.astype(X, wanted)
        self.shape: tuple[int, int] = tuple(X.shape)
        self.dtype = self.kind.dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | NDArray[np.intp]) -> ForeignRows:
        if isinstance(rows, slice):
            start, stop, _ = rows.indices(len(self))
            return ForeignRows(self.X[start:stop, :], self.dtype)
        xp = self.kind.xp
        return ForeignRows(xp.take(self.X, xp.asarray(rows, device=self.kind.device), axis=0), self.dtype)

    def toarray(self) -> Array:
        return to_host(self.X)

    def bad_row(self) -> int | None:
        """The first row that is not finite, or whose square overflows."""
        xp = self.kind.xp
        squares = to_host(xp.sum(self.X * self.X, axis=1))
        finite = np.isfinite(squares)
        return None if finite.all() else int(np.argmin(finite))

    def centred(self, weights: Floats, mean: Floats, weight: float) -> tuple[ForeignRows, Floats, float]:
        """As `standardize.center_rows`, but with the rows left alone.

        Returns
        -------
        rows : ForeignRows
        mean : (D,)
            Moved past these rows.
        scatter : float
            What they add to the trace of the scatter.
        """
        xp, of = self.kind.xp, self.kind.of
        after = weight + np.cumsum(weights)
        before = np.concatenate([[weight], after[:-1]])
        share = np.divide(1.0, before, out=np.zeros(len(before)), where=before > 0)
        apart = self.X - of(mean)
        weighted = xp.cumulative_sum(apart * of(weights[:, np.newaxis]), axis=0)
        earlier = xp.concat([xp.zeros_like(weighted[:1, :]), weighted[:-1, :]], axis=0)
        rows = (apart - earlier * of(share[:, np.newaxis])) * of(np.sqrt(before / after)[:, np.newaxis])
        moved = mean + to_host(weighted[-1, :]).astype(np.float64) / after[-1]
        centred = ForeignRows(rows, self.dtype)
        return centred, moved, centred.scatter(weights)

    def scatter(self, weights: Floats) -> float:
        """``Σ w ‖x‖²``"""
        return float(weights @ to_host(self.kind.xp.sum(self.X * self.X, axis=1)).astype(np.float64))

    def scores(self, components: Array, offset: Floats) -> Any:
        """``X componentsᵀ − offset``, of the kind of X."""
        return self.X @ self.kind.of(components).T - self.kind.of(offset)


class ForeignBlock(GramBlock):
    """The weights in an array of another library."""

    def __init__(self, basis: Array, kind: Kind) -> None:
        self.K, self.D = basis.shape
        self.n = self.pending = 0
        self.kind = kind
        self.B: Any = kind.of(basis)
        self.loaded: tuple[Floats, Floats] | None = None
        self.X: Any = None

    @property
    def basis(self) -> Array:
        """(K, D), on the host."""
        return to_host(self.B)

    def load(self, X: Any, G: Array | None = None) -> None:
        self.X = X.X
        products = self.X @ self.B.T, self.X @ self.X.T
        P, G = (to_host(each).astype(np.float64, copy=False) for each in products)
        self.loaded = P, G

    def expand(self, a: float, C: Floats) -> None:
        C_there = self.kind.of(C)
        if hasattr(self.B, "addmm_"):  # torch has it in one, without temporaries of the size of the weights
            self.B.addmm_(C_there, self.X, beta=a)
        else:
            self.B = self.B * a + C_there @ self.X
        self.X, self.loaded = None, None

    def times(self, A: Floats) -> Array:
        return to_host(self.kind.of(A) @ self.B)

    def turn(self, A: Floats) -> None:
        self.B = self.kind.of(A) @ self.B

    def scale(self, factor: float) -> None:
        self.B = self.B * factor

    def orthonormal(self, A: Floats) -> tuple[Any, Floats]:
        """Q (D, K) and R (K, K) with ``Q R = (A B)ᵀ``; Q stays where the weights are."""
        Q, R = self.kind.xp.linalg.qr((self.kind.of(A) @ self.B).T)
        return Q, to_host(R).astype(np.float64)

    def nbytes(self) -> int:
        return int(self.K * self.D * self.kind.dtype.itemsize)


def components_of(block: ForeignBlock, A: Floats) -> Any:
    """(D, K): the orthonormal basis of the rows of ``A B``, with the signs of its QR factor positive."""
    Q, R = block.orthonormal(A)
    return Q * block.kind.of(np.where(np.diag(R) < 0, -1.0, 1.0))


def ordered(block: ForeignBlock, A: Floats, covariance: Any) -> tuple[Any, Floats]:
    """Ordered principal components (K, D) and their variances; `covariance` takes R to the covariance within Q."""
    Q, R = block.orthonormal(A)
    variances, vectors = eigh(covariance(R))
    return (Q @ block.kind.of(vectors[:, ::-1])).T, np.maximum(variances[::-1], 0.0)
