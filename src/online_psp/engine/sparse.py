"""Sparse rows, never made dense: what `blocks.py` does, from CSR arrays, with the mean taken out implicitly.

With ``S`` the sum of the rows before a block and ``T`` their weight, the centred rows of the block are ``X̃ = L X − l Sᵀ``, where L (n×n,
lower triangular) and l (n) follow from the weights alone (`standardize.py` has the formula for one row). So whatever an algorithm asks of
X̃ comes from products with X, which cost its non-zero entries, and from rank-one terms:

====================  =============================================================
``X̃ Wᵀ``             ``L (X Wᵀ) − l (W S)ᵀ``
``X̃ X̃ᵀ``            ``L G Lᵀ − (L X S) lᵀ − l (L X S)ᵀ + ‖S‖² l lᵀ``, ``G = X Xᵀ``
``a W + C X̃``        ``a W + (C L) X − (C l) Sᵀ``
====================  =============================================================

:class:`SparseGramBlock` (SM, FSM)
    A is a scalar, so a block need not move the whole basis: ``W = s Vᵀ + q Sᵀ``, with the scalar s and the vector q kept aside. Only the
    features that occur in the block are touched. V is stored with a feature's K entries side by side.
:class:`SparseFrameBlock` (IPCA, CCIPCA)
    A is a matrix: the whole basis moves, once a block.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from online_psp.engine.blas import matmul
from online_psp.engine.blocks import GramBlock, least_scale
from online_psp.engine.csr import gram, products, scatter_add, scatter_sums
from online_psp.engine.frames import FrameBlock, over_stack
from online_psp.engine.state import WritableState
from online_psp.engine.types import Array, Floats

_REFRESH = 4  # as many times D non-zero entries pass between two exact computations of W S


class Centre(WritableState):
    """The running sum of the rows, from which the mean follows, and what else is needed of it; changed as rows are taken in.

    Attributes
    ----------
    sums : (D,)
        Sum of the rows, each times its weight.
    total : float
        Sum of the weights.
    scatter : float
        Trace of the scatter about the mean.
    """

    def __init__(self, mean: Floats, total: float, scatter: float) -> None:
        self.sums: Floats = mean * total
        self.total, self.scatter = total, scatter

    @property
    def mean(self) -> Floats:
        return self.sums / self.total if self.total > 0 else np.zeros_like(self.sums)


class SparseRows:
    """Rows of a CSR matrix with the way they are centred; a slice of it shares the arrays.

    Parameters
    ----------
    matrix : CSR, (n, D)
    weights : (n,), optional
        Of the rows, in the mean.
    centre : Centre, optional
        The rows before these. Without it, the rows are taken as they are.
    """

    def __init__(self, matrix: Any, weights: Floats | None = None, centre: Centre | None = None) -> None:
        if not matrix.has_canonical_format:
            matrix = matrix.copy()
            matrix.sum_duplicates()
        self.indptr, self.indices, self.data = matrix.indptr, matrix.indices, matrix.data
        self.D: int = matrix.shape[1]
        self.weights = np.ones(matrix.shape[0]) if weights is None else weights
        self.centre = centre

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def __getitem__(self, rows: slice) -> SparseRows:
        start, stop, _ = rows.indices(len(self))
        part = object.__new__(SparseRows)
        part.__dict__.update(self.__dict__)
        part.indptr, part.weights = self.indptr[start : stop + 1], self.weights[start:stop]
        return part

    @property
    def nnz(self) -> int:
        return int(self.indptr[-1] - self.indptr[0])

    def toarray(self) -> Array:
        """(n, D) dense rows, not centred."""
        entries = slice(self.indptr[0], self.indptr[-1])
        arrays = self.data[entries], self.indices[entries], self.indptr - self.indptr[0]
        return np.asarray(csr_array(arrays, shape=(len(self), self.D)).toarray())

    def row_squares(self) -> Floats:
        """``‖x‖²`` of every row, not centred."""
        values = self.data[self.indptr[0] : self.indptr[-1]].astype(np.float64)
        rows = np.repeat(np.arange(len(self)), np.diff(self.indptr))
        return np.asarray(np.bincount(rows, values * values, minlength=len(self)), dtype=np.float64)


def checked_rows(X: Any, D: int | None, dtype: np.dtype[Any]) -> SparseRows:
    """A sparse matrix given by the user, with D features where that is known."""
    if X.dtype.kind not in "fiub":
        raise TypeError(f"A block must be real numbers; got dtype {X.dtype}.")
    if X.ndim != 2 or (D is not None and X.shape[1] != D):
        raise ValueError(f"fit_block takes samples as rows, shape (n, {D or 'D'}); got shape {X.shape}.")
    rows = SparseRows(X.tocsr().astype(dtype, copy=False))
    finite = np.isfinite(rows.row_squares().astype(dtype))
    if not finite.all():
        at = int(np.argmin(finite))
        raise ValueError(f"Row {at} has NaN, infinity or values whose squares overflow; every value must be finite.")
    return rows


class Centring(NamedTuple):
    """L and l of a block, in the form in which they are applied, and the sums that go with them."""

    scale: Floats
    """(n,): ``sqrt(T_{i−1}/T_i)``"""
    share: Floats
    """(n,): ``1/T_{i−1}``, zero where nothing came before"""
    weights: Floats
    """(n,)"""

    @classmethod
    def of(cls, rows: SparseRows) -> Centring:
        n, weights = len(rows), rows.weights
        if rows.centre is None:
            return cls(np.ones(n), np.zeros(n), np.zeros(n))
        after = rows.centre.total + np.cumsum(weights)
        before = np.concatenate([[rows.centre.total], after[:-1]])
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
    """A block of sparse rows in hand, before it has been taken in."""

    rows: SparseRows
    centring: Centring
    XW: Floats
    """(n, K): products of the rows, not centred, with the basis"""
    G: Floats
    """(n, n): products between them"""
    XS: Floats
    """(n,): their products with the running sum"""

    def centred_products(self, WS: Floats) -> Floats:
        """``X̃ Wᵀ``, (n, K), from ``W S``, (K,)."""
        return self.centring.left(self.XW) - np.outer(self.centring.offset, WS)

    def centred_gram(self, square: float) -> Floats:
        """``X̃ X̃ᵀ``, (n, n), from ``‖S‖²``."""
        L, offset = self.centring.left, self.centring.offset
        if self.rows.centre is None:
            return self.G
        cross = np.outer(L(self.XS), offset)
        return L(L(self.G).T) - cross - cross.T + square * np.outer(offset, offset)

    def take_in(self, gram_diagonal: Floats) -> None:
        """Move the running sum past this block."""
        centre, rows, weights = self.rows.centre, self.rows, self.centring.weights
        if centre is not None:
            scatter_sums(rows.indptr, rows.indices, rows.data, weights, centre.sums)
            centre.total += float(weights.sum())
            centre.scatter += float(weights @ np.maximum(gram_diagonal, 0.0))


def compress(rows: SparseRows, V: Array, S: Floats, heads: NDArray[np.int64]) -> Compressed:
    """Products of rows with V (D, K), S (D,) and each other."""
    n, K = len(rows), V.shape[1]
    XW, XS, G = np.empty((n, K)), np.empty(n), np.empty((n, n))
    products(rows.indptr, rows.indices, rows.data, V, S, XW, XS)
    gram(rows.indptr, rows.indices, rows.data, heads, G)
    return Compressed(rows, Centring.of(rows), XW, G, XS)


class SparseGramBlock(GramBlock):
    """``W = s Vᵀ + q Sᵀ``: a block of sparse rows touches only the features that occur in it.

    Attributes
    ----------
    V : (D, K)
    s, q : float, (K,)
    WS, square : (K,), float
        ``W S`` and ``‖S‖²``, followed through the blocks and computed anew now and then.
    """

    def __init__(self, basis: Array, centre: Centre | None) -> None:
        self.K, self.D = basis.shape
        self.n = self.pending = 0
        self.V: Array = np.array(basis.T, order="C")
        self.s, self.q = 1.0, np.zeros(self.K)
        self.centre = centre
        self.S: Floats = np.zeros(self.D) if centre is None else centre.sums
        self.heads: NDArray[np.int64] = np.full(self.D, -1)
        self.loaded: tuple[Floats, Floats] | None = None
        self.block: Compressed | None = None
        self._refresh()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if self.centre is not None:
            self.S = self.centre.sums  # one array, also when both came from read-only memory

    @property
    def basis(self) -> Array:
        """(K, D), formed for the occasion."""
        W = self.V * self.V.dtype.type(self.s)
        if self.q.any():
            W += np.outer(self.S, self.q).astype(W.dtype)
        return np.asarray(W.T)

    def _refresh(self) -> None:
        self.square = float(self.S @ self.S)
        self.WS: Floats = self.s * (self.S @ self.V) + self.square * self.q
        self._entries = 0

    def load(self, X: Any, G: Array | None = None) -> None:
        block = compress(X, self.V, self.S, self.heads)
        block = block._replace(XW=self.s * block.XW + np.outer(block.XS, self.q))
        self.block, self.loaded = block, (block.centred_products(self.WS), block.centred_gram(self.square))

    def expand(self, a: float, C: Floats) -> None:
        assert self.block is not None
        assert self.loaded is not None
        block, (rows, centring, XW, G, XS) = self.block, self.block
        weights = centring.weights
        CL, Cl = centring.right(C)
        # The new sum is S + Xᵀ weights: what W and X̃ make of it follows from the small arrays.
        Gw = matmul(G, weights)
        S_new = self.square + float(weights @ XS)  # S · S_new
        self.WS = a * (self.WS + matmul(weights, XW)) + matmul(CL, XS + Gw) - Cl * S_new
        self.square = S_new + float(weights @ (XS + Gw))
        self.q = a * self.q - Cl
        self.s *= a
        scatter_add(rows.indptr, rows.indices, rows.data, np.ascontiguousarray((CL - np.outer(self.q, weights)).T / self.s), self.V)
        block.take_in(np.diag(self.loaded[1]))
        self.block, self.loaded = None, None
        if not self.s > least_scale(self.V.dtype):
            self.V *= self.V.dtype.type(self.s)
            self.s = 1.0
        self._entries += rows.nnz
        if self._entries > _REFRESH * self.D:
            self._refresh()

    def times(self, A: Floats) -> Array:
        return matmul(A.astype(self.V.dtype, copy=False), self.basis)

    def turn(self, A: Floats) -> None:
        self.V[:] = matmul(self.V, A.T.astype(self.V.dtype))
        self.q, self.WS = A @ self.q, A @ self.WS

    def scale(self, factor: float) -> None:
        self.s, self.q, self.WS = factor * self.s, factor * self.q, factor * self.WS

    def nbytes(self) -> int:
        return self.V.nbytes + self.S.nbytes + self.heads.nbytes


class SparseFrameBlock(FrameBlock):
    """A frame block that takes sparse rows as well; for these it keeps inner products only, where their pivots can be trusted."""

    def __init__(self, basis: Array, pending: int, orthonormal: bool) -> None:
        super().__init__(basis, pending, orthonormal)
        self.heads: NDArray[np.int64] = np.full(self.D, -1)
        self.block: Compressed | None = None
        self._gram: Floats = np.zeros(0)

    def load(self, X: Any, G: Array | None = None) -> None:
        if not isinstance(X, SparseRows):
            super().load(X, G)
            return
        S = np.zeros(self.D) if X.centre is None else X.centre.sums
        block = compress(X, np.ascontiguousarray(self.basis.T), S, self.heads)
        square = float(S @ S)
        G = block.centred_gram(square)
        self.block, self._gram = block, np.diag(G).copy()
        frame = None
        if self.D > self.K + len(X):
            B = self.basis
            P = block.centred_products((B @ S).astype(np.float64))
            frame = self._factor(P, G)
        if frame is None:  # few features, or rows that depend on others so closely that their inner products do not tell by how much
            rows = block.centring.left(X.toarray().astype(np.float64)) - np.outer(block.centring.offset, S)
            super().load(np.ascontiguousarray(rows, dtype=self.basis.dtype))
            return
        self.X, self._source, self._frame = None, None, frame
        self._start_from(frame)

    def expand(self) -> None:
        if self._sparse_in_hand():
            self._move(self.Z)
        else:
            super().expand()
        self._take_in()

    def expand_by(self, P: Floats, T: Floats) -> None:
        if self._sparse_in_hand():
            start = np.zeros((self.K, T.shape[1]))
            start[:, : self.K] = np.eye(self.K)
            self._move(start - matmul(P.T, T))
        else:
            super().expand_by(P, T)
        self._take_in()

    def _sparse_in_hand(self) -> bool:
        return self.block is not None and self.X is None

    def _move(self, Z: Floats) -> None:
        """Move the basis to what has coordinates Z, (K, K + n)."""
        assert self.block is not None
        assert self._frame is not None
        Z = over_stack(Z, self._frame)
        K, B, rows = self.K, self.basis, self.block.rows
        CL, Cl = self.block.centring.right(Z[:, K:])
        V = matmul(B.T, Z[:, :K].T.astype(B.dtype))
        if rows.centre is not None:
            V -= np.outer(rows.centre.sums, Cl).astype(B.dtype)
        V = np.ascontiguousarray(V)
        scatter_add(rows.indptr, rows.indices, rows.data, np.ascontiguousarray(CL.T), V)
        B[:] = V.T
        self.H = None
        self._let_go()

    def _take_in(self) -> None:
        block, self.block = self.block, None
        if block is not None:
            block.take_in(self._gram)


def frame_rows(D: int, K: int) -> int:
    """How many sparse rows IPCA and CCIPCA take at a time: the basis moves once a block, at 2 D K²; a row costs about K² times their
    number.
    """
    return int(np.clip(2 ** round(math.log2(math.sqrt(2 * D))), 32, 1024))


def centred_squares(rows: Any, mean: Floats) -> Floats:
    """``‖x − mean‖²`` of CSR rows, (n,)."""
    squares: Floats = SparseRows(rows).row_squares() - 2.0 * (rows @ mean) + float(mean @ mean)
    return np.maximum(squares, 0.0)
