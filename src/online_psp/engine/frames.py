"""A basis and its samples in orthonormal coordinates, for algorithms in which the norms of small residuals matter.

An inner product of two residuals taken from a Gram matrix is only good to ``eps ‖x‖²``; coordinates in an orthonormal frame of ``[B; X]``
are good to ``eps ‖x‖``. IPCA and CCIPCA recur on these.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, NamedTuple

import numpy as np
from scipy.linalg import lapack, qr, solve_triangular

from online_psp.engine.blas import add_product, dot, gram, matmul, turn_lower
from online_psp.engine.stacked_rows import add_to_frame, forward_substitute, over_stack, recombine, tiles
from online_psp.engine.types import Array, Floats

_MOST_DRIFT = 4096.0  # 1e-12 in double precision
_MOST_CARRIED = 8  # blocks over which inner products of the basis are updated, before they are computed anew
_SURE = 10.0  # how much larger pivots must be if those inner products were only updated


class FrameState(NamedTuple):
    """The state of a frame, with the part of its open block that is in use."""

    basis: Annotated[Array, "K", "D"]
    rows: Annotated[Array, "held", "D"]
    Z: Annotated[Floats, "known", "m"]
    coordinates: Annotated[Floats, "n", "m"]
    frame: Annotated[Floats, "f", "f"]
    H: Annotated[Floats, "K", "K"] | None
    drift: float
    carried: int
    triangular: bool
    direct: bool


def check_frame(state: FrameState, orthonormal: bool) -> None:
    """Raise a ValueError if the parts of a state do not fit together."""
    (K, D), (n, m) = state.basis.shape, state.coordinates.shape
    width = D if state.direct else K + n
    held, known = 0 if state.direct else n, K if n and (state.direct or not orthonormal) else 0
    if (m, len(state.rows), len(state.Z), len(state.frame)) != (width, held, known, width if n and not state.direct else 0):
        raise ValueError("its open block does not fit its basis")
    if state.drift < 0:
        raise ValueError("its drift is negative")


class Frame:
    """A basis and a block of samples, as coordinates in an orthonormal frame of their stacked rows.

    Q itself is never formed: row i of the stack is ``frame[i] @ Q`` for some orthonormal Q, with `frame` lower triangular (a Cholesky
    factor of the Gram matrix of the stack), and a vector with coordinates z over Q has coordinates ``z @ inv(frame)`` over the stack. If a
    pivot is too small for the factor to be trusted, the rows themselves are made orthonormal (Householder for a block, Gram–Schmidt twice
    for a single sample), which costs more and loses no digits.

    Parameters
    ----------
    basis : (K, D)
        It is copied.
    capacity : int
        Samples that the open block has room for.
    orthonormal : bool
        Whether the recurrence keeps the rows of the basis orthonormal.

    Attributes
    ----------
    n : int
        Samples in the open block.
    Z : (K, m)
        Coordinates of the basis; the recurrence may change them in place. Empty if the basis is `plain`, that is, the first K coordinates.
    rows : (n, m)
        Coordinates of the samples.
    first : int
        Sample s has no coordinates beyond ``first + s + 1``.
    """

    def __init__(self, basis: Array, capacity: int, orthonormal: bool, direct: bool | None = None) -> None:
        self.K, self.D = basis.shape
        self.capacity, self.n = capacity, 0
        self.stack: Array = np.empty((self.K + capacity, self.D), dtype=basis.dtype)
        self.stack[: self.K] = basis
        self.orthonormal = orthonormal  # by construction; the little that it drifts is removed now and then
        self.direct = self.D <= self.K + capacity if direct is None else direct  # the coordinates are the features: nothing to compress
        m = self.D if self.direct else self.K + capacity
        self.open_Z = np.zeros((self.K if self.direct or not orthonormal else 0, m))
        self.open_coordinates = np.zeros((capacity, m))
        self.open_frame = np.eye(0 if self.direct else m)
        self._known = 0  # rows of the open frame that are rows of the identity
        self.drift = 0.0  # bound on how far the basis is from orthonormal, in units of rounding
        self.H: Floats | None = None  # lower half of B Bᵀ, updated from the coordinates of each block; None for an orthonormal basis
        self.carried = 0  # blocks since it was computed from B
        self._triangular = True  # component k has no coordinates along the old components after k
        self.loaded: tuple[Floats, Floats, int] | None = None
        self.X: Array | None = None
        self._source: Array | None = None
        self._frame: Floats | None = None
        eps = float(np.finfo(basis.dtype).eps)
        self._trust = 10.0 * math.sqrt(eps)  # the smallest squared pivot, relative to the row, of which subtraction keeps half the digits
        self._negligible = 4.0 * eps

    @property
    def basis(self) -> Array:
        """(K, D), as of the last close (a view)."""
        return self.stack[: self.K]

    def load(self, X: Array, G: Array | None = None) -> None:
        """Compress a whole block, (n, D); `G` is the lower half of ``X Xᵀ``, if it is known."""
        n, K, B = len(X), self.K, self.basis
        self.X, self._source, self._triangular = X, None, True
        if self.D <= K + n:
            self._frame = None
            self.loaded = B.astype(np.float64, order="C"), X.astype(np.float64, order="C"), self.D
            return
        P = matmul(X, B.T).astype(np.float64, copy=False)
        frame = self._factor(P, (gram(X) if G is None else G).astype(np.float64, copy=False))
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
        return self.open_coordinates if self.loaded is None else self.loaded[1]

    @property
    def first(self) -> int:
        if self.loaded is not None:
            return self.loaded[2]
        return int(self.D if self.direct else self.K)

    @property
    def plain(self) -> bool:
        """Whether the basis is the first K coordinate vectors of the frame."""
        return self.orthonormal and self.first != self.D

    def _start_from(self, frame: Floats) -> None:
        """Take the coordinates of the stack, (K + n, m), apart into those of the basis and of the samples."""
        K = self.K
        Z = np.zeros((0 if self.orthonormal else K, frame.shape[1]))
        Z[:, :K] = frame[: len(Z), :K]
        self.loaded = Z, frame[K:], K

    def _basis_factor(self) -> Floats | None:
        """The Cholesky factor of ``B Bᵀ``, or None if it cannot be trusted.

        Computing it from the basis costs as much as K/4 samples. So a basis that is orthonormal by construction is taken to be so until
        rounding may have moved it, and the inner products of any other basis are updated from block to block.
        """
        if self.orthonormal and self.drift < max(_MOST_DRIFT, 64 * self.K):
            return np.eye(self.K)
        self.drift = 0.0
        if self.H is None or self.carried >= _MOST_CARRIED:
            self.H, self.carried = gram(self.basis).astype(np.float64, copy=False), 0
        factor, failed = lapack.dpotrf(self.H, lower=1)
        least = 0.0 if failed else float(np.min(np.diag(factor) ** 2 / np.diag(self.H)))
        if least < self._least_pivot:
            return self._look_again(self._basis_factor)
        return np.asarray(np.tril(factor))

    @property
    def _least_pivot(self) -> float:
        """The smallest squared pivot to trust, relative to the row; it is larger if the inner products were only updated."""
        return _SURE * self._trust if self.carried else self._trust

    def _look_again(self, factor: Callable[[], Floats | None]) -> Floats | None:
        """After too small a pivot, factor again with inner products computed from the basis, unless they already were."""
        if not self.carried:
            return None
        self.H = None
        return factor()

    def _factor(self, P: Floats, G: Floats) -> Floats | None:
        """The Cholesky factor of the stack's Gram matrix, or None if it cannot be trusted."""
        K, n = P.shape[1], len(P)
        basis_factor = self._basis_factor()
        if basis_factor is None:
            return None
        within = solve_triangular(basis_factor, P.T, lower=True, check_finite=False).T
        residual_factor, failed = lapack.dpotrf(G - gram(within), lower=1)
        shares = np.zeros(1) if failed else np.diag(residual_factor) ** 2 / np.diag(G)
        if np.min(shares) < self._least_pivot:
            return self._look_again(lambda: self._factor(P, G))
        self.drift += float(np.sum(1.0 / shares))
        frame = np.zeros((K + n, K + n))
        frame[:K, :K] = basis_factor
        frame[K:, :K] = within
        frame[K:, K:] = np.tril(residual_factor)
        return frame

    def _load_carefully(self, X: Array) -> None:
        K = self.K
        Q, R = qr(np.concatenate([self.basis, X]).T, mode="economic", overwrite_a=True, check_finite=False)
        frame: Floats = R.T.astype(np.float64, order="C")
        # Householder signs are arbitrary; a basis that is orthonormal by construction keeps its own.
        signs = np.where(np.diag(frame) < 0, -1.0, 1.0)
        self._frame = None
        self._source, self.X = np.ascontiguousarray((Q[:, :K] * signs[:K]).T, dtype=X.dtype), np.ascontiguousarray(Q[:, K:].T)
        frame[:, :K] *= signs[:K]
        self._start_from(frame)

    def expand(self) -> None:
        """Move the basis to the rows that have coordinates Z; the block in hand is done with."""
        X, frame = self._in_hand()
        B, K = self.basis, self.K
        if self.first == self.D:  # the coordinates are the features
            B[:] = self.Z
            self.H = None
        else:
            self.H, self.carried = gram(self.Z), self.carried + 1
            Z = self.Z if frame is None else over_stack(self.Z[:, : len(frame)], frame)
            if frame is not None and self._triangular:
                turn_lower(Z[:, :K], B)
                add_product(B, 1.0, Z[:, K:], X)
            else:
                recombine(B, Z[:, :K], Z[:, K:], X, self._source)
        self._let_go()

    def expand_by(self, P: Floats, T: Floats) -> None:
        """Move an orthonormal basis B to ``B − Pᵀ T``, T (n, m) in coordinates; the block in hand is done with."""
        X, frame = self._in_hand()
        B, K, n = self.basis, self.K, len(X)
        P, T = P[:n], T[:n]
        if self.first == self.D:
            B -= matmul(P.T, T).astype(B.dtype)
        else:
            T = T[:, : K + n] if frame is None else over_stack(T[:, : K + n], frame)
            as_it_is = frame is None or np.array_equal(np.diag(frame)[:K], np.ones(K))
            if as_it_is and K * K > n * K + n * n // 2:
                self._subtract(P, T, X)
            else:
                A = np.eye(K) if as_it_is or frame is None else over_stack(np.eye(K), frame[:K, :K])
                recombine(B, A - matmul(P.T, T[:, :K]), -matmul(P.T, T[:, K:]), X, self._source)
        self._let_go()

    def _subtract(self, P: Floats, T: Floats, X: Array) -> None:
        """``B ← S − Pᵀ (T₁ S + T₂ X)``, S the source and T₂ lower triangular: 4 D K flops a sample, however large K is."""
        B, K = self.basis, self.K
        if self._source is not None:
            B[:] = self._source
        for columns, part in tiles(B, X):
            moves, old = part.copy(), np.ascontiguousarray(B[:, columns])
            turn_lower(T[:, K:], moves)
            add_product(moves, 1.0, T[:, :K], old)
            add_product(old, -1.0, P.T, moves)
            if not np.shares_memory(old, B):
                B[:, columns] = old

    def _in_hand(self) -> tuple[Array, Floats | None]:
        """The samples of the block in hand, and the frame of the stack."""
        if self.n:
            m = self.K + self.n
            return self.stack[self.K : m], None if self.direct else self.open_frame[:m, :m]
        assert self.X is not None
        return self.X, self._frame

    def _let_go(self) -> None:
        self.n, self.X, self._source, self.loaded = 0, None, None, None

    def _open(self) -> None:
        """Begin an open block: the frame of the basis alone."""
        K, B = self.K, self.basis
        self.open_Z[:] = 0.0
        self.open_coordinates[:] = 0.0
        self._triangular = True
        if self.direct:
            self.open_Z[:] = B
            return
        factor = self._basis_factor()
        if factor is None:
            Q, R = qr(B.T, mode="economic", check_finite=False)
            signs = np.where(np.diag(R) < 0, -1.0, 1.0)
            B[:] = (Q * signs).T
            self.H = None
            self.open_Z[:, :K] = (R.T * signs).astype(np.float64)[: len(self.open_Z)]
            factor = np.eye(K)
        else:
            self.open_Z[:, :K] = factor[: len(self.open_Z)]
        self.open_frame[:] = 0.0
        self.open_frame[:K, :K] = factor
        self._known = self.known()

    def known(self) -> int:
        """How many rows of the open frame are rows of the identity: all K of the basis, or none."""
        return self.K if not self.direct and np.array_equal(self.open_frame[: self.K, : self.K], np.eye(self.K)) else 0

    def add(self, x: Array) -> bool:
        """Compress one more sample of the open block; returns False, and changes nothing, if it is not finite."""
        if not math.isfinite(dot(x, x)):
            return False
        if self.n == 0:
            self._open()
        if self.direct:
            self.open_coordinates[self.n] = x
            self.n += 1
            return True
        at = self.K + self.n
        coordinates, frame = self.open_coordinates[self.n], self.open_frame
        square, pivot = add_to_frame(self.stack, at, x, frame, self._known, coordinates)
        if pivot > self._least_pivot * square:
            self.drift += square / pivot
            coordinates[at] = math.sqrt(pivot)
            frame[at, : at + 1] = coordinates[: at + 1]
        else:
            self._triangular = False
            coordinates[at] = self._orthogonalise(at, coordinates, math.sqrt(square))
            frame[at, : at + 1] = 0.0
            frame[at, at] = 1.0
        self.n += 1
        return True

    def _orthogonalise(self, at: int, coordinates: Floats, norm: float) -> float:
        """Replace the newest row by its unit residual, with coordinates to full precision; returns the norm of the residual."""
        row, stack = self.stack[at], self.stack[:at]
        triangle = self.open_frame[:at, :at]
        correction = coordinates[:at].copy()
        coordinates[:at] = 0.0
        for _ in range(2):
            coordinates[:at] += correction
            row -= matmul(solve_triangular(triangle, correction, trans="T", lower=True, check_finite=False).astype(row.dtype), stack)
            correction = matmul(stack, row).astype(np.float64)
            forward_substitute(triangle, correction, at, self._known)
        residual = math.sqrt(dot(row, row))
        if residual <= self._negligible * norm:
            row[:] = 0.0
            return 0.0
        row /= row.dtype.type(residual)
        return residual

    def state(self) -> FrameState:
        """The whole state, in arrays of its own, no larger than the open block needs."""
        n, K, direct = self.n, self.K, self.direct
        m = self.D if direct else K + n
        held = 0 if direct else n  # the samples of a direct block are not in the stack
        known = len(self.open_Z) if n else 0
        frame = self.open_frame[:m, :m] if n and not direct else np.zeros((0, 0))
        return FrameState(
            self.basis.copy(),
            self.stack[K : K + held].copy(),
            self.open_Z[:known, :m].copy(),
            self.open_coordinates[:n, :m].copy(),
            frame.copy(),
            None if self.H is None else self.H.copy(),
            float(self.drift),
            self.carried,
            self._triangular,
            direct,
        )

    @classmethod
    def from_state(cls, state: FrameState, capacity: int, orthonormal: bool) -> Frame:
        """A frame with this state, and room for more samples."""
        n, m = state.coordinates.shape
        made = cls(state.basis, max(capacity, n + 1), orthonormal, state.direct)
        made.n = n
        made.stack[made.K : made.K + len(state.rows)] = state.rows
        made.open_Z[: len(state.Z), :m] = state.Z
        made.open_coordinates[:n, :m] = state.coordinates
        if len(state.frame):
            made.open_frame[:] = 0.0
            made.open_frame[:m, :m] = state.frame
        made._known = made.known()
        made.H = None if state.H is None else state.H.copy()
        made.drift, made.carried, made._triangular = state.drift, state.carried, state.triangular
        return made
