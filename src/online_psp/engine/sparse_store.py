"""A basis for sparse rows, which are never made dense: the mean is subtracted implicitly, and only features that occur are touched.

With ``S`` the sum of the rows before a block and ``T`` their weight, the centred rows of the block are ``X̃ = L X − l Sᵀ``, where L (n×n,
lower triangular) and l (n) follow from the weights alone (`moments.py` has the formula for one row). So everything that an algorithm needs
of X̃ comes from products with X, whose cost is its non-zero entries, and from rank-one terms:

====================  =============================================================
``X̃ Bᵀ``             ``L (X Bᵀ) − l (B S)ᵀ``
``X̃ X̃ᵀ``            ``L G Lᵀ − (L X S) lᵀ − l (L X S)ᵀ + ‖S‖² l lᵀ``, ``G = X Xᵀ``
``A B + C X̃``        ``A B + (C L) X − (C l) Sᵀ``
====================  =============================================================
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from online_psp.engine.blas import full_gram, matmul
from online_psp.engine.csr import gram, products, scatter_add
from online_psp.engine.moments import Sums
from online_psp.engine.rows import SparseRows
from online_psp.engine.sizes import REFRESH_ENTRIES
from online_psp.engine.store import least_scale
from online_psp.engine.types import Array, Floats

_MOST_TURNED = 1e3  # condition number of A beyond which it is multiplied into V


class Centring(NamedTuple):
    """L and l of a block, stored as the vectors that they follow from."""

    scale: Floats
    """(n,): ``sqrt(T_{i−1}/T_i)``"""
    share: Floats
    """(n,): ``1/T_{i−1}``, zero where nothing came before"""
    weights: Floats
    """(n,)"""

    @classmethod
    def of(cls, rows: SparseRows) -> Centring:
        n, weights = len(rows), rows.weights
        if rows.sums is None:
            return cls(np.ones(n), np.zeros(n), np.zeros(n))
        after = rows.sums.total + np.cumsum(weights)
        before = np.concatenate([[rows.sums.total], after[:-1]])
        share = np.divide(1.0, before, out=np.zeros(n), where=before > 0)
        return cls(np.sqrt(before / after), share, weights)

    @property
    def offset(self) -> Floats:
        """l, (n,)"""
        return self.scale * self.share

    def left(self, A: Floats) -> Floats:
        """``L A`` for A (n, …)."""
        weighted = np.cumsum(A.T * self.weights, axis=-1)
        result = A.T.copy()
        result[..., 1:] -= self.share[1:] * weighted[..., :-1]
        return np.asarray((result * self.scale).T)

    def right(self, C: Floats) -> tuple[Floats, Floats]:
        """``C L`` and ``C l`` for C (K, n)."""
        scaled = C * self.scale
        tails = np.cumsum((scaled * self.share)[:, ::-1], axis=1)[:, ::-1]
        result = scaled.copy()
        result[:, :-1] -= self.weights[:-1] * tails[:, 1:]
        return result, np.asarray(tails[:, 0])


class Compressed(NamedTuple):
    """A block of sparse rows with its products, before the basis has learned from it."""

    rows: SparseRows
    centring: Centring
    XB: Floats
    """(n, K): products of the rows, not centred, with the basis"""
    G: Floats
    """(n, n): products between them"""
    XS: Floats
    """(n,): their products with the running sum"""

    def centred_products(self, BS: Floats) -> Floats:
        """``X̃ Bᵀ``, (n, K), from ``B S``, (K,)."""
        return self.centring.left(self.XB) - np.outer(self.centring.offset, BS)

    def centred_gram(self, square: float) -> Floats:
        """``X̃ X̃ᵀ``, (n, n), from ``‖S‖²``."""
        L, offset = self.centring.left, self.centring.offset
        if self.rows.sums is None:
            return self.G
        cross = np.outer(L(self.XS), offset)
        return L(L(self.G).T) - cross - cross.T + square * np.outer(offset, offset)

    def centred_rows(self, dtype: np.dtype[Any]) -> Array:
        """X̃ itself, (n, D), for the few blocks whose inner products are not accurate enough."""
        X = self.rows.dense(np.dtype(np.float64))
        if self.rows.sums is None:
            return X.astype(dtype)
        X = self.centring.left(X) - np.outer(self.centring.offset, self.rows.sums.vector)
        return np.ascontiguousarray(X, dtype=dtype)

    def take_in(self) -> None:
        """Add this block to the running sum."""
        if self.rows.sums is not None:
            self.rows.sums.take(self.rows)


def compress(rows: SparseRows, V: Array, heads: NDArray[np.int64]) -> Compressed:
    """Products of rows with V (D, K), the running sum and each other; `heads` is work space, (D,), −1 throughout."""
    n, K = len(rows), V.shape[1]
    XV, XS, G = np.empty((n, K)), np.empty(n), np.empty((n, n))
    S = np.zeros(rows.D) if rows.sums is None else rows.sums.vector
    products(rows.indptr, rows.indices, rows.data, V, S, XV, XS)
    gram(rows.indptr, rows.indices, rows.data, heads, G)
    return Compressed(rows, Centring.of(rows), XV, G, XS)


class StoreState(NamedTuple):
    """The state of a `SparseStore` apart from V and the running sum."""

    s: float
    square: float
    entries: int
    q: Annotated[Floats, "k"]
    BS: Annotated[Floats, "k"]
    A: Annotated[Floats, "k", "k"] | None


class SparseStore:
    """``B = s A Vᵀ + q Sᵀ``: a block of sparse rows changes V only in the features that occur in it.

    V is stored with a feature's K entries side by side. The matrix A, which stays the identity for SM and FSM, is multiplied into V when it
    becomes ill-conditioned.

    Parameters
    ----------
    basis : (K, D)
    sums : Sums, optional
        The running sum of the rows; without it rows are not centred.
    """

    def __init__(self, basis: Array, sums: Sums | None) -> None:
        self.K, self.D = basis.shape
        self.V: Array = np.array(basis.T, order="C")
        self.s, self.q = 1.0, np.zeros(self.K)
        self.A: Floats | None = None
        self.sums = sums
        self._heads: NDArray[np.int64] = np.full(self.D, -1)
        self._block: Compressed | None = None
        self.refresh()

    def copy(self, sums: Sums | None) -> SparseStore:
        """A copy with another running sum, which must be equal to this one's."""
        new = object.__new__(SparseStore)
        new.__dict__.update(self.__dict__)
        new.V, new.sums, new._heads = self.V.copy(), sums, self._heads.copy()
        return new

    def state(self) -> StoreState:
        """The state apart from V and the running sum, in arrays of its own."""
        A = None if self.A is None else np.array(self.A)
        return StoreState(self.s, self.square, self._entries, self.q.copy(), self.BS.copy(), A)

    @classmethod
    def from_state(cls, V: Array, sums: Sums | None, state: StoreState) -> SparseStore:
        """A store of this state, V (D, K) and the running sum."""
        new = cls(V.T, sums)
        new.s, new.square, new._entries = state.s, state.square, state.entries
        new.q, new.BS, new.A = state.q.copy(), state.BS.copy(), None if state.A is None else np.array(state.A)
        return new

    @property
    def _sum(self) -> Floats:
        return np.zeros(self.D) if self.sums is None else self.sums.vector

    def refresh(self) -> None:
        """Compute ``B S`` and ``‖S‖²`` anew; from block to block they are only updated."""
        S = self._sum
        self.square = float(S @ S)
        self.BS: Floats = self._through(self.s * (S @ self.V).astype(np.float64)) + self.square * self.q
        self._entries = 0

    def _through(self, values: Floats) -> Floats:
        """``A values`` for values (K,) or, by rows, (n, K)."""
        return values if self.A is None else np.asarray(values @ self.A.T)

    def compress(self, rows: SparseRows, G: Array | None = None) -> tuple[Floats, Floats]:
        block = compress(rows, self.V, self._heads)
        block = block._replace(XB=self._through(self.s * block.XB) + np.outer(block.XS, self.q))
        self._block = block
        return block.centred_products(self.BS), block.centred_gram(self.square)

    def add(self, a: float, C: Floats) -> None:
        self._expand(a, C)

    def move(self, A: Floats, C: Floats) -> None:
        self._expand(A, C)

    def _expand(self, A: float | Floats, C: Floats) -> None:
        assert self._block is not None
        block, (rows, centring, XB, G, XS) = self._block, self._block
        weights = centring.weights
        CL, Cl = centring.right(C)
        # The new sum is S + Xᵀ weights; its products with B and X̃ follow from the small arrays.
        Gw = matmul(G, weights)
        S_new = self.square + float(weights @ XS)  # S · S_new
        old = self.BS + matmul(weights, XB)
        self.BS = (A * old if isinstance(A, float) else A @ old) + matmul(CL, XS + Gw) - Cl * S_new
        self.square = S_new + float(weights @ (XS + Gw))
        self.q = (A * self.q if isinstance(A, float) else A @ self.q) - Cl
        change = CL - np.outer(self.q, weights)
        if isinstance(A, float):
            self.s *= A
        else:
            self.A = A if self.A is None else A @ self.A
            self._bound()
        change /= self.s
        if self.A is not None:
            change = np.asarray(np.linalg.solve(self.A, change), dtype=np.float64)
        scatter_add(rows.indptr, rows.indices, rows.data, np.ascontiguousarray(change.T), self.V)
        block.take_in()
        self._block = None
        if not self.s > least_scale(self.V.dtype):
            self.V *= self.V.dtype.type(self.s)
            self.s = 1.0
        self._entries += rows.nnz
        if self._entries > REFRESH_ENTRIES * self.D:
            self.refresh()

    def _bound(self) -> None:
        """Multiply A into V before it gets so ill-conditioned that dividing by it loses digits."""
        assert self.A is not None
        factor, _, failed = lapack.dgetrf(self.A)
        norm = np.abs(self.A).sum(axis=0).max()
        inverse_condition = 0.0 if failed else lapack.dgecon(factor, norm)[0]
        if not inverse_condition * _MOST_TURNED > 1.0:
            self.V[:] = matmul(self.V, self.A.T.astype(self.V.dtype))
            self.A = None

    def turn(self, A: Floats) -> None:
        self.A = A if self.A is None else A @ self.A
        self.q, self.BS = A @ self.q, A @ self.BS
        self._bound()

    def scale(self, factor: float) -> None:
        self.s, self.q, self.BS = factor * self.s, factor * self.q, factor * self.BS

    def times(self, A: Floats) -> Array:
        return matmul(A.astype(self.V.dtype, copy=False), self.read())

    def gram(self) -> Floats:
        return full_gram(np.ascontiguousarray(self.read())).astype(np.float64)

    def read(self) -> Array:
        B = self.V * self.V.dtype.type(self.s)
        if self.A is not None:
            B = matmul(B, self.A.T.astype(B.dtype))
        if self.q.any():
            B += np.outer(self._sum, self.q).astype(B.dtype)
        return np.ascontiguousarray(B.T)

    def centred_rows(self) -> Array:
        """The rows in hand, centred and dense, (n, D)."""
        assert self._block is not None
        return self._block.centred_rows(self.V.dtype)


def centred_squares(matrix: Any, mean: Floats) -> Floats:
    """``‖x − mean‖²`` of CSR rows, (n,)."""
    squares: Floats = SparseRows(matrix).squares() - 2.0 * (matrix @ mean) + float(mean @ mean)
    return np.maximum(squares, 0.0)
