"""Frames for sparse rows: the whole basis moves once a block; a block is made dense only if its inner products are too inaccurate."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from online_psp.engine.blas import matmul
from online_psp.engine.csr import scatter_add
from online_psp.engine.frames import Frame
from online_psp.engine.rows import SparseRows
from online_psp.engine.sparse_store import Compressed, compress
from online_psp.engine.stacked_rows import over_stack
from online_psp.engine.types import Array, Floats


class SparseFrame(Frame):
    """A frame that takes sparse rows as well; it keeps only their inner products, as long as the pivots can be trusted."""

    def __init__(self, basis: Array, capacity: int, orthonormal: bool) -> None:
        super().__init__(basis, capacity, orthonormal)
        self.heads: NDArray[np.int64] = np.full(self.D, -1)
        self.block: Compressed | None = None

    def load(self, X: Any, G: Array | None = None) -> None:
        if not isinstance(X, SparseRows):
            super().load(X, G)
            return
        S = np.zeros(self.D) if X.sums is None else X.sums.vector
        block = compress(X, np.ascontiguousarray(self.basis.T), self.heads)
        square = float(S @ S)
        G = block.centred_gram(square)
        self.block = block
        frame = None
        if self.D > self.K + len(X):
            B = self.basis
            P = block.centred_products((B @ S).astype(np.float64))
            frame = self._factor(P, G)
        if frame is None:  # few features, or rows so nearly dependent that their inner products do not tell by how much
            super().load(block.centred_rows(self.basis.dtype))
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
        """Move the basis to the rows that have coordinates Z, (K, K + n)."""
        assert self.block is not None
        assert self._frame is not None
        Z = over_stack(Z, self._frame)
        K, B, rows = self.K, self.basis, self.block.rows
        CL, Cl = self.block.centring.right(Z[:, K:])
        V = matmul(B.T, Z[:, :K].T.astype(B.dtype))
        if rows.sums is not None:
            V -= np.outer(rows.sums.vector, Cl).astype(B.dtype)
        V = np.ascontiguousarray(V)
        scatter_add(rows.indptr, rows.indices, rows.data, np.ascontiguousarray(CL.T), V)
        B[:] = V.T
        self.H = None
        self._let_go()

    def _take_in(self) -> None:
        block, self.block = self.block, None
        if block is not None:
            block.take_in()
