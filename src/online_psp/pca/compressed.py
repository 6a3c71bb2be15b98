"""Sparse rows, and rows of other array libraries, in coordinates that are small dense arrays.

Over a block, directions only ever move within the span of the basis B and the rows Z of the block. So both are written in an orthonormal
frame of that span; :mod:`online_psp.pca.directions` finds the leading directions there, and these are
expanded to ``A B + C Z``. Only the products ``Z Bᵀ`` and ``Z Zᵀ`` and this expansion touch the rows themselves: for sparse rows that costs
their entries, and rows of other libraries stay on their device.

Sparse rows are centred implicitly: with X the rows of a block, r the roots of their shares, m the mean of the block and μ that before it,
``Z = [r (X − 1 mᵀ); c (m − μ)ᵀ]``. The basis is kept as ``turn Vᵀ + along μᵀ``, and V (D, k) changes only in the features of the block.
Principal components do not depend on an offset, so features far from zero are taken about their mean first.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import lapack, solve_triangular
from scipy.sparse import csr_array

from online_psp.engine.blas import matmul
from online_psp.engine.csr import gram, products, scatter_add
from online_psp.engine.libraries import to_host
from online_psp.engine.rows import ArrayRows, SparseRows
from online_psp.engine.types import Array, Floats
from online_psp.pca.directions import leading
from online_psp.pca.model import Block, Model, Turned
from online_psp.pca.moments import beyond_rounding, moved, weighed

_FAR = 5.0  # deviations from zero: nearly all entries of such a feature are there
_MOST_TURNED = 1e3  # condition number of `turn` beyond which it is multiplied into V
_RANGE = 1e-9  # of variances, within which inner products of rows tell the directions shown


def within_frame(
    P: Floats, G: Floats, d: Floats, rank: int, shown: int, wanted: int, noise: float, dtype: np.dtype[Any]
) -> tuple[Floats, Floats, Floats] | None:
    """The leading directions as combinations of a basis and rows.

    Parameters
    ----------
    P : (n, k)
        Products of the rows with the basis, which is orthonormal and has the variances d, (k,).
    G : (n, n)
        Products of the rows.
    wanted : int
        Directions that have to be told, if there are as many.

    Returns
    -------
    A, C, variances : (K, k), (K, n), (K,)
        The directions are ``A B + C Z``. None where inner products cannot tell those shown.
    """
    n, k = P.shape
    least = max(1e-12, 500.0 * np.finfo(dtype).eps) * float(G.diagonal().max(initial=0.0))
    factor, order, count, _ = lapack.dpstrf(G - matmul(P, P.T), tol=least, lower=1)
    order, factor = order - 1, np.tril(factor[:, :count])
    # Residuals of the rows taken as pivots span all of them: Z − P B = factor frame, for the frame factor₁⁻¹ (Z₁ − P₁ B).
    Z = np.empty((n, k + count))
    Z[:, :k] = P
    Z[order, k:] = factor
    B = np.eye(k, k + count)
    found, variances = leading(B, d, Z, np.einsum("ij,ij->i", Z, Z), rank, shown, noise)
    if not len(variances) or len(variances) < min(wanted, n + k - 1) or not variances[:shown][-1] > _RANGE * variances[0]:
        return None
    C = np.zeros((len(found), n))
    C[:, order[:count]] = solve_triangular(factor[:count], found[:, k:].T, lower=True, trans=1, check_finite=False).T
    return found[:, :k] - C @ P, C, variances


class ArrayBlock(NamedTuple):
    """A block in another array library: rows centred and weighed, and the jump of the mean, (n + 1, D)."""

    Z: ArrayRows

    def scaled(self, divisors: Floats) -> ArrayBlock:
        return ArrayBlock(ArrayRows(self.Z.X / self.Z.library.of(divisors), self.Z.library.dtype))

    def gram(self) -> Floats:
        return to_host(self.Z.X @ self.Z.X.T).astype(np.float64)

    def with_basis(self, basis: Array) -> Floats:
        return to_host(self.Z.X @ self.Z.library.of(basis).T).astype(np.float64)

    def expanded(self, basis: Array, A: Floats, C: Floats) -> Array:
        of = self.Z.library.of
        return np.asarray(to_host(of(A) @ of(basis) + of(C) @ self.Z.X), dtype=basis.dtype)


def array_moments(model: Model, block: Block, rows: ArrayRows, center: bool) -> tuple[Model, ArrayBlock]:
    """As `online_psp.pca.moments.centred`, for rows of another library."""
    after, library = weighed(model, block), rows.library
    xp, of = library.xp, library.of
    added = float(block.left.sum())
    keep = block.keep * model.weight / after.weight
    X, shares = rows.X * (model.unit or 1.0), of((block.left / added)[:, np.newaxis])
    between = np.zeros(rows.D)
    if center:
        near = xp.sum(shares * X, axis=0)
        X = X - near
        rest = xp.sum(shares * X, axis=0)  # the digits that rounding took from the mean
        X = X - rest
        between = (to_host(near).astype(np.float64) - model.mean) + (to_host(rest).astype(np.float64) - model.low)
    Z = X * of(np.sqrt(block.left / after.weight)[:, np.newaxis])
    Z = xp.concat([Z, of(np.sqrt(keep * (1.0 - keep)) * between)[np.newaxis, :]], axis=0)
    variance = keep * model.variance + to_host(xp.sum(Z * Z, axis=0)).astype(np.float64)
    after = moved(after, (1.0 - keep) * between)._replace(variance=variance)
    return after, ArrayBlock(ArrayRows(Z, library.dtype))


class SparseBlock(NamedTuple):
    """A block of sparse rows, and how it is centred and weighed."""

    X: SparseRows
    """Times the unit, and less an offset in features far from zero."""
    roots: Floats
    """(n,): roots of the shares of the rows."""
    own: Floats
    """(D,): mean of X."""
    mean: Floats
    """(D,): mean of the block; the same but for the offset."""
    before: Floats
    """(D,): mean of the model before the block."""
    keep: float
    """Share of the past in the average."""

    @property
    def between(self) -> Floats:
        return self.mean - self.before

    @property
    def jump(self) -> float:
        """What ``mean − before`` is multiplied by to be a row."""
        return float(np.sqrt(self.keep * (1.0 - self.keep)))

    def scaled(self, divisors: Floats) -> SparseBlock:
        """The block with its features divided by numbers, (D,)."""
        X = self.X[:]
        X.data = (X.data / divisors[X.indices]).astype(X.data.dtype)
        return self._replace(X=X, own=self.own / divisors, mean=self.mean / divisors, before=self.before / divisors)

    def gram(self) -> Floats:
        """``Z Zᵀ``, (n + 1, n + 1)."""
        n, r, between, X = len(self.X), self.roots, self.between, self.X
        G, matrix = np.empty((n, n)), X.matrix()
        gram(X.indptr, X.indices, X.data, np.full(X.D, -1), G)
        on_own, on_between = matrix @ self.own, matrix @ between
        whole = np.empty((n + 1, n + 1))
        whole[:n, :n] = r * r[:, np.newaxis] * (G - on_own - on_own[:, np.newaxis] + self.own @ self.own)
        whole[n, :n] = whole[:n, n] = self.jump * r * (on_between - self.own @ between)
        whole[n, n] = self.jump**2 * (between @ between)
        return whole

    def with_basis(self, basis: Turned) -> Floats:
        """``Z Bᵀ``, (n + 1, k)."""
        n, X = len(self.X), self.X
        XV, on_before = np.empty((n, basis.V.shape[1])), np.empty(n)
        products(X.indptr, X.indices, X.data, basis.V, self.before, XV, on_before)
        means = np.stack([self.own, self.between])
        of_means = matmul(means.astype(basis.V.dtype), basis.V) @ basis.turn.T + np.outer(means @ self.before, basis.along)
        rows = XV @ basis.turn.T + np.outer(on_before, basis.along) - of_means[0]
        return np.vstack([self.roots[:, np.newaxis] * rows, self.jump * of_means[1]])

    def expanded(self, basis: Turned, A: Floats, C: Floats) -> Turned:
        """``A B + C Z`` as a basis for the mean after the block."""
        n, keep = len(self.X), self.keep
        on_rows, on_jump = C[:, :n] * self.roots, self.jump * C[:, n]
        turn, along = A @ basis.turn, A @ basis.along - on_jump  # of V, and of the mean before
        on_own, on_mean = -on_rows.sum(axis=1), on_jump
        if keep > 0.5 and turn.shape[0] == turn.shape[1] and np.linalg.cond(turn) < _MOST_TURNED:
            V = basis.V.copy()
            along = along / keep  # the mean before is (after − (1 − keep) mean)/keep
            on_mean = on_mean - (1.0 - keep) * along
        else:
            V = matmul(basis.V, turn.T.astype(basis.V.dtype)) + np.outer(self.before, along).astype(basis.V.dtype)
            turn, along = np.eye(len(turn)), np.zeros(len(turn))
        change = np.linalg.solve(turn, np.column_stack([on_rows, on_own, on_mean]))
        scatter_add(self.X.indptr, self.X.indices, self.X.data, np.ascontiguousarray(change[:, :n].T), V)
        used = np.flatnonzero(self.mean)
        V[used] += (np.outer(self.own[used], change[:, n]) + np.outer(self.mean[used], change[:, n + 1])).astype(V.dtype)
        return Turned(V, turn, along)


def turned_from(basis: Array) -> Turned:
    """A basis, (k, D), in the form for sparse rows."""
    return Turned(np.array(basis.T, order="C"), np.eye(len(basis)), np.zeros(len(basis)))


def dense_basis(turned: Turned, mean: Floats) -> Array:
    """The basis itself, (k, D), of a model with this mean in the coordinates of the basis."""
    dtype = turned.V.dtype
    basis = matmul(turned.turn.astype(dtype), np.ascontiguousarray(turned.V.T)) + np.outer(turned.along, mean).astype(dtype)
    return np.ascontiguousarray(basis)


def sparse_moments(model: Model, block: Block, rows: SparseRows, center: bool) -> tuple[Model, SparseBlock]:
    """As `online_psp.pca.moments.centred`, for sparse rows."""
    after = weighed(model, block)
    added = float(block.left.sum())
    keep = block.keep * model.weight / after.weight
    matrix, shares = (model.unit or 1.0) * rows.matrix().astype(np.float64), block.left / added
    mean = own = before = np.zeros(rows.D)
    if center:
        mean = own = shares @ matrix
        before = model.full_mean
        offset = far_from_zero(mean, shares @ matrix.power(2) - mean**2)
        if offset.any():
            matrix = less(matrix, offset)
            own = shares @ matrix
            mean = offset + own
        del offset
    within = beyond_rounding(np.maximum(shares @ matrix.power(2) - own**2, 0.0), mean)
    block_of = SparseBlock(
        SparseRows(csr_array(matrix.astype(rows.data.dtype))), np.sqrt(block.left / after.weight), own, mean, before, keep
    )
    variance = keep * model.variance + (1.0 - keep) * within + keep * (1.0 - keep) * beyond_rounding(block_of.between**2, mean)
    return moved(after, (1.0 - keep) * block_of.between)._replace(variance=variance), block_of


def far_from_zero(mean: Floats, variance: Floats) -> Floats:
    """The mean of features that are far from zero, and 0 for the others, (D,)."""
    return np.where(mean**2 > _FAR**2 * variance, mean, 0.0)


def less(matrix: Any, offset: Floats) -> Any:
    """CSR rows minus an offset, (D,): in features that have an entry in nearly every row, so that they stay as sparse as they were."""
    columns, n = np.flatnonzero(offset), matrix.shape[0]
    k = len(columns)
    if not k:
        return matrix
    off = csr_array((np.tile(offset[columns], n), np.tile(columns, n), np.arange(0, n * k + 1, k)), shape=matrix.shape)
    return csr_array(matrix - off)
