"""Compress and expand: the only module that touches arrays of length D.

Over a block of n samples every algorithm here leaves its basis ``B`` (K×D) as a linear combination of the old basis and the samples ``X``
(n×D). So the block is *compressed* into small arrays, the algorithm *recurs* on those alone, sample by sample, and the basis is *expanded*:
``B ← A B + C X``. The iterates are those of one sample at a time; the D-sized work is matrix products.

Two ways to compress:

:class:`GramBlock` (SM, FSM)
    ``P = X Bᵀ`` and ``G = X Xᵀ``: all that a similarity-matching recurrence reads.
:class:`FrameBlock` (IPCA, CCIPCA)
    Coordinates of the basis and of the samples in an orthonormal frame of ``[B; X]``. Norms of small residuals matter there, and an inner
    product of two residuals taken from a Gram matrix is only good to ``eps ‖x‖²``; coordinates are good to ``eps ‖x‖``.

Both hold an *open* block for one sample at a time: the stacked rows ``[B; pending samples]`` are one array, so that a new sample costs one
matrix-vector product with it, and the basis moves only when the block is full or somebody reads it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack, qr, solve_triangular

from online_psp._numba import kernel
from online_psp._state import WritableState
from online_psp.types import Array, Floats

_TILE_BYTES = 1 << 20


def scale_and_add(B: Array, a: float, C: Floats, X: Array) -> None:
    """``B ← a B + C X`` in place, without a temporary of B's size."""
    gemm = blas.dgemm if B.dtype == np.float64 else blas.sgemm
    gemm(1.0, X.T, C.T.astype(B.dtype, order="F", copy=False), beta=a, c=B.T, overwrite_c=1)


def recombine(B: Array, A: Floats, C: Floats, X: Array, source: Array | None = None) -> None:
    """``B ← A S + C X`` with ``S = B`` unless another `source` is given, a tile of columns at a time."""
    source = B if source is None else source
    A, C = A.astype(B.dtype, copy=False), C.astype(B.dtype, copy=False)
    width = max(64, _TILE_BYTES // (B.itemsize * (len(B) + len(X))))
    for start in range(0, B.shape[1], width):
        columns = slice(start, start + width)
        B[:, columns] = A @ source[:, columns] + C @ X[:, columns]


class Block(WritableState, ABC):
    """The stacked rows ``[B; pending]`` and what both ways of compressing share.

    Parameters
    ----------
    basis : (K, D)
        The basis to start from; it is copied.
    pending : int
        How many samples the open block holds.
    """

    def __init__(self, basis: Array, pending: int) -> None:
        K, D = basis.shape
        self.stack: Array = np.empty((K + pending, D), dtype=basis.dtype)
        self.stack[:K] = basis
        self.K, self.D, self.pending = K, D, pending
        self.n = 0  # samples in the open block
        self._products: Array = np.empty(K + pending, dtype=basis.dtype)

    @property
    def basis(self) -> Array:
        """The K×D basis as of the last close (a view)."""
        return self.stack[: self.K]

    @abstractmethod
    def load(self, X: Array) -> None:
        """Compress a whole block, (n, D)."""

    @abstractmethod
    def add(self, x: Array) -> bool:
        """Compress one more sample of the open block; False, and nothing is changed, where it is not finite."""

    @abstractmethod
    def nbytes(self) -> int:
        """Bytes held."""


@kernel
def _add_to_gram(stack: Array, K: int, n: int, products: Array, P: Floats, G: Floats) -> float:
    """Products of sample n with the stacked rows, itself included; returns ``‖x‖²``."""
    at = K + n
    np.dot(stack[: at + 1], stack[at], products[: at + 1])
    for k in range(K):
        P[n, k] = products[k]
    for j in range(n + 1):
        G[n, j] = products[K + j]
    return float(products[at])


class GramBlock(Block):
    """Inner products with the basis and between samples.

    Attributes
    ----------
    P : (n, K)
    G : (n, n)
        Only the lower triangle is filled for an open block.
    """

    def __init__(self, basis: Array, pending: int) -> None:
        super().__init__(basis, pending)
        self.open_P, self.open_G = np.zeros((pending, self.K)), np.zeros((pending, pending))
        self.loaded: tuple[Floats, Floats] | None = None
        self.X: Array | None = None

    @property
    def P(self) -> Floats:
        return self.open_P if self.loaded is None else self.loaded[0]

    @property
    def G(self) -> Floats:
        return self.open_G if self.loaded is None else self.loaded[1]

    def load(self, X: Array) -> None:
        self.loaded = (X @ self.basis.T).astype(np.float64, copy=False), (X @ X.T).astype(np.float64, copy=False)
        self.X = X

    def add(self, x: Array) -> bool:
        self.stack[self.K + self.n] = x
        square = _add_to_gram(self.stack, self.K, self.n, self._products, self.open_P, self.open_G)
        if not math.isfinite(square):
            return False
        self.n += 1
        return True

    def expand(self, a: float, C: Floats) -> None:
        """``B ← a B + C X`` for the block in hand, which is then let go."""
        X = self.stack[self.K : self.K + self.n] if self.n else self.X
        assert X is not None
        scale_and_add(self.basis, a, C, X)
        self.n, self.X, self.loaded = 0, None, None

    def turn(self, A: Floats) -> None:
        """``B ← A B``."""
        self.basis[:] = A.astype(self.basis.dtype) @ self.basis

    def scale(self, factor: float) -> None:
        """``B ← factor B``."""
        self.basis[:] *= factor

    def nbytes(self) -> int:
        return self.stack.nbytes + self.open_P.nbytes + self.open_G.nbytes + self._products.nbytes


@kernel
def forward_substitute(L: Floats, b: Floats, n: int) -> None:
    """Solve ``L[:n, :n] c = b[:n]`` in place, L lower triangular."""
    for i in range(n):
        total = b[i]
        for j in range(i):
            total -= L[i, j] * b[j]
        b[i] = total / L[i, i]


@kernel
def _add_to_frame(stack: Array, at: int, products: Array, frame: Floats, coordinates: Floats) -> tuple[float, float]:
    """Coordinates of row `at` of the stack in the frame of the rows before it.

    Returns
    -------
    square, pivot : float
        ``‖x‖²``, and what is left of it outside that frame.
    """
    np.dot(stack[: at + 1], stack[at], products[: at + 1])
    for i in range(at):
        coordinates[i] = products[i]
    forward_substitute(frame, coordinates, at)
    square = float(products[at])
    pivot = square
    for i in range(at):
        pivot -= coordinates[i] * coordinates[i]
    return square, pivot


class FrameBlock(Block):
    """Coordinates in an orthonormal frame of the stacked rows.

    Q itself is never formed: row i of the stack is ``frame[i] @ Q`` for some orthonormal Q, with `frame` lower triangular (a Cholesky
    factor of the Gram matrix of the stack), and whatever has coordinates z over Q is ``z @ inv(frame)`` over the stack. Where a pivot is
    too small for the factor to be trusted, the careful way is taken: the rows themselves are made orthonormal (Householder for a block,
    Gram–Schmidt twice for a single sample), which costs more and loses nothing.

    Attributes
    ----------
    Z : (K, m)
        Coordinates of the basis; the recurrence changes them in place.
    rows : (n, m)
        Coordinates of the samples.
    first : int
        Sample s has no coordinates beyond ``first + s + 1``.
    """

    def __init__(self, basis: Array, pending: int, orthonormal: bool) -> None:
        super().__init__(basis, pending)
        self.orthonormal = orthonormal  # the basis is so by construction: what little it drifted is taken out at every block
        self.direct = self.D <= self.K + pending  # nothing to compress
        m = self.D if self.direct else self.K + pending
        self.open_Z, self.open_rows = np.zeros((self.K, m)), np.zeros((pending, m))
        self.open_frame = np.eye(m)
        self.loaded: tuple[Floats, Floats, int] | None = None
        self.X: Array | None = None
        self._source: Array | None = None
        self._frame: Floats | None = None
        eps = float(np.finfo(basis.dtype).eps)
        self._trust = 10.0 * math.sqrt(eps)  # smallest squared pivot, relative to the row, that subtraction gets right to half the digits
        self._negligible = 4.0 * eps

    def load(self, X: Array) -> None:
        n, K, B = len(X), self.K, self.basis
        self.X, self._source = X, None
        if self.D <= K + n:
            self._frame = None
            self.loaded = B.astype(np.float64), X.astype(np.float64), self.D
            return
        H = (B @ B.T).astype(np.float64, copy=False)
        P = (X @ B.T).astype(np.float64, copy=False)
        G = (X @ X.T).astype(np.float64, copy=False)
        frame = self._factor(H, P, G)
        if frame is None:
            self._load_carefully(X)
            return
        self._frame = frame
        self._start_from(frame)

    @property
    def Z(self) -> Floats:
        return self.open_Z if self.loaded is None else self.loaded[0]

    @property
    def rows(self) -> Floats:
        return self.open_rows if self.loaded is None else self.loaded[1]

    @property
    def first(self) -> int:
        if self.loaded is not None:
            return self.loaded[2]
        return int(self.D if self.direct else self.K)

    def _start_from(self, frame: Floats) -> None:
        """Take coordinates of the stack, (K + n, m), as those of the basis and of the samples."""
        K = self.K
        Z = np.zeros((K, frame.shape[1]))
        Z[:, :K] = np.eye(K) if self.orthonormal else frame[:K, :K]
        self.loaded = Z, frame[K:], K

    def _factor(self, H: Floats, P: Floats, G: Floats) -> Floats | None:
        """The Cholesky factor of the stack's Gram matrix, or None where it cannot be trusted."""
        K, n = P.shape[1], len(P)
        basis_factor, failed = lapack.dpotrf(H, lower=1)
        if failed or np.min(np.diag(basis_factor) ** 2 / np.diag(H)) < self._trust:
            return None
        within = solve_triangular(basis_factor, P.T, lower=True, check_finite=False).T
        residual_factor, failed = lapack.dpotrf(G - within @ within.T, lower=1)
        if failed or np.min(np.diag(residual_factor) ** 2 / np.diag(G)) < self._trust:
            return None
        frame = np.zeros((K + n, K + n))
        frame[:K, :K] = np.tril(basis_factor)
        frame[K:, :K] = within
        frame[K:, K:] = np.tril(residual_factor)
        return frame

    def _load_carefully(self, X: Array) -> None:
        K = self.K
        Q, R = qr(np.concatenate([self.basis, X]).T, mode="economic", overwrite_a=True, check_finite=False)
        frame: Floats = R.T.astype(np.float64)
        # Householder signs are arbitrary; a basis that is orthonormal by construction keeps the ones it has.
        signs = np.where(np.diag(frame) < 0, -1.0, 1.0)
        self._frame = None
        self._source, self.X = np.ascontiguousarray((Q[:, :K] * signs[:K]).T, dtype=X.dtype), np.ascontiguousarray(Q[:, K:].T)
        frame[:, :K] *= signs[:K]
        self._start_from(frame)

    def expand(self) -> None:
        """Move the basis to what has coordinates Z; the block in hand is then let go."""
        B, K = self.basis, self.K
        frame: Floats | None
        if self.n:
            m = self.D if self.direct else K + self.n
            X, frame, Z = self.stack[K : K + self.n], self.open_frame[:m, :m], self.open_Z[:, :m]
        else:
            assert self.X is not None
            X, frame, Z = self.X, self._frame, self.Z
        if self.first == self.D:  # the coordinates are the features
            B[:] = Z
        else:
            if frame is not None:
                Z = solve_triangular(frame, Z.T, trans="T", lower=True, check_finite=False).T
            recombine(B, Z[:, :K], Z[:, K:], X, self._source)
        self.n, self.X, self._source, self.loaded = 0, None, None, None

    def _open(self) -> None:
        """Begin an open block: the frame of the basis alone."""
        K, B = self.K, self.basis
        self.open_Z[:] = 0.0
        self.open_rows[:] = 0.0
        if self.direct:
            self.open_Z[:] = B
            return
        factor, failed = lapack.dpotrf((B @ B.T).astype(np.float64, copy=False), lower=1)
        if failed or np.min(np.abs(np.diag(factor))) ** 2 < self._trust:
            Q, R = qr(B.T, mode="economic", check_finite=False)
            signs = np.where(np.diag(R) < 0, -1.0, 1.0)
            B[:] = (Q * signs).T
            self.open_Z[:, :K] = (R.T * signs).astype(np.float64)
            factor = np.eye(K)
        else:
            factor = np.tril(factor)
            self.open_Z[:, :K] = np.eye(K) if self.orthonormal else factor
        self.open_frame[:] = 0.0
        self.open_frame[:K, :K] = factor

    def add(self, x: Array) -> bool:
        if not math.isfinite(float(np.dot(x, x))):
            return False
        if self.n == 0:
            self._open()
        if self.direct:
            self.open_rows[self.n] = x
            self.n += 1
            return True
        at = self.K + self.n
        coordinates, frame = self.open_rows[self.n], self.open_frame
        self.stack[at] = x
        square, pivot = _add_to_frame(self.stack, at, self._products, frame, coordinates)
        if pivot > self._trust * square:
            coordinates[at] = math.sqrt(pivot)
            frame[at, : at + 1] = coordinates[: at + 1]
        else:
            coordinates[at] = self._orthogonalise(at, coordinates, math.sqrt(square))
            frame[at, : at + 1] = 0.0
            frame[at, at] = 1.0
        self.n += 1
        return True

    def _orthogonalise(self, at: int, coordinates: Floats, norm: float) -> float:
        """Put the unit residual of the newest row in its place; what is left of its norm, and its coordinates to full precision."""
        row, stack = self.stack[at], self.stack[:at]
        triangle = self.open_frame[:at, :at]
        correction = coordinates[:at].copy()
        coordinates[:at] = 0.0
        for _ in range(2):
            coordinates[:at] += correction
            row -= (solve_triangular(triangle, correction, trans="T", lower=True, check_finite=False).astype(row.dtype)) @ stack
            correction = (stack @ row).astype(np.float64)
            forward_substitute(triangle, correction, at)
        residual = float(np.linalg.norm(row))
        if residual <= self._negligible * norm:
            row[:] = 0.0
            return 0.0
        row /= row.dtype.type(residual)
        return residual

    def nbytes(self) -> int:
        small = (self.open_Z, self.open_rows, self.open_frame, self._products)
        return self.stack.nbytes + sum(array.nbytes for array in small)


def row_squares(X: NDArray[Any]) -> Floats:
    """``‖x‖²`` of every row: finite exactly where the row is and its square does not overflow."""
    with np.errstate(over="ignore", invalid="ignore"):
        squares: Floats = np.einsum("ij,ij->i", X, X)
    return squares


def sum_of_squares(X: NDArray[Any]) -> float:
    """``‖X‖²``: one quick pass that tells whether everything is finite (if it is not, some row may be, or the sum overflowed)."""
    flat = X.ravel(order="K")
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.dot(flat, flat))
