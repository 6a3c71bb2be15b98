"""The steps of `online_psp.algorithms.block`: a rank-K model and a block of rows become a rank-K model."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import blas, eigh, lapack, qr, solve_triangular, svd

from online_psp.engine.blas import add_product, full_gram, matmul, minus_gram
from online_psp.engine.row_products import centred, combined, products, squares, widened
from online_psp.engine.rows import AnyRows, SparseRows
from online_psp.engine.sparse_store import SparseStore
from online_psp.engine.symmetric import fill_upper, scale_gram
from online_psp.engine.types import Array, Floats

# Constants, chosen on other data than the tests' (docs/adr/0012).
_SAFE = 0.7  # a fast step needs ‖R‖ ≤ this times the smallest eigenvalue kept
_PART = 5 / 3  # rows, in multiples of K, that a fast step takes at a time where all of a block are safe: inner products cost less
_ONCE = 0.1  # below this, one subspace iteration is enough
_POWER = 6  # power iterations for ‖R‖
_IMPLICIT = 64.0  # roundings of a step with sparse rows
_RANGE = 1e-8  # of the variances kept, within which eigenvectors of inner products are trusted
_FAINT = 1e-60
_SMALLEST = float(np.finfo(np.float64).tiny)


class Model(NamedTuple):
    """``Bᵀ M B``: B (k, D) with orthonormal rows, M (k, k); `drift` bounds what rounding has added to ``B Bᵀ − I``.

    While rows are sparse B is in a store of its own kind, which moves in place.
    """

    B: Array | SparseStore
    M: Floats
    drift: float
    total: float | None = None
    """Mean square of the rows, what was left out of them included; None where it is not followed, and no floor is taken."""

    @property
    def k(self) -> int:
        return self.B.K if isinstance(self.B, SparseStore) else len(self.B)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.B.V.dtype if isinstance(self.B, SparseStore) else self.B.dtype

    def basis(self) -> Array:
        """B as an array, (k, D), which is not to be changed."""
        return self.B.read() if isinstance(self.B, SparseStore) else self.B

    def floor(self, D: int) -> float:
        """Variance that rows so far are taken to have along any one direction outside of B: the mean of what was left out."""
        if self.total is None or not self.k < D:
            return 0.0
        lost = self.total - float(self.M.trace())
        return lost / (D - self.k) if lost > math.sqrt(np.finfo(self.dtype).eps) * self.total else 0.0  # or it is rounding

    def own(self, rows: AnyRows) -> tuple[Model, AnyRows]:
        """The same model and the same rows, free to be changed by `advance`."""
        if not isinstance(rows, SparseRows) or rows.sums is None:
            return self._replace(B=self.basis()), rows
        before, after = rows.sums, rows.sums.copy()
        rows = rows[:]
        rows.sums = after
        fits = isinstance(self.B, SparseStore) and self.B.sums is before
        return self._replace(B=self.B.copy(after) if fits and isinstance(self.B, SparseStore) else self.basis()), rows


class Plan(NamedTuple):
    """The first subspace iteration, which needs P only."""

    d: Floats
    """(k,): diagonal scaling of M + Pᵀ P"""
    inverse: Floats
    """(k, k): its inverse, the upper half"""
    T: Floats
    """(b, k): ``P (M + Pᵀ P)⁻¹``"""
    sizes: Floats
    """(b,): lengths of the rows of T"""


class Turn(NamedTuple):
    """What a fast step does: ``B ← A B + C X``, or ``A B + C X₁`` with the residuals X₁ where they are at hand."""

    A: Floats
    C: Floats
    M: Floats
    sizes: Floats


def advance(model: Model, rows: AnyRows, roots: Floats, keep: float, K: int) -> Model:
    """The best rank-K approximation of ``keep Bᵀ M B + X̂ᵀ X̂``, X̂ the rows times their root weights.

    Where the total is followed, ``keep σ² (I − Bᵀ B)`` belongs to it, σ² the mean variance along the directions that were left out.

    Arrays that come in are left alone; but a basis in a store for sparse rows, and their running sum, move past the rows: see `Model.own`.

    Parameters
    ----------
    model : Model
    rows : rows, (b, D)
        Centred, where they are to be.
    roots : (b,)
    keep : float
        What is left of the model.
    K : int
        Directions to keep.
    """
    floor = keep * model.floor(rows.D) if model.k == K else 0.0
    total = None if model.total is None else keep * model.total + float(roots**2 @ squares(rows))
    model = model._replace(M=_faded(model.M, keep))
    if model.k == K:
        model = model._replace(B=_suited(model, rows))
        parts = max(1, round(len(rows) / (_PART * K)))
        step, done = -(-len(rows) // parts), 0
        while done < len(rows):
            part = slice(done, min(done + step, len(rows)))
            found = _try_fast(model, rows[part], roots[part], _SAFE / parts)  # residuals of all parts together are no larger than their sum
            if found is None and done == 0 and parts > 1:
                step, parts = len(rows), 1
                continue
            if found is None:
                break
            model, done = found, part.stop
        rows, roots = rows[done:], roots[done:]
    if len(rows):
        model = _raised(_exactly(_lowered(model, floor), widened(rows), roots, K), floor)
        if isinstance(rows, SparseRows) and rows.sums is not None:
            rows.sums.take(rows)
    return model._replace(total=total)


def _lowered(model: Model, floor: float) -> Model:
    """The model less what it has along every direction: so that a direction that was left out before, and now comes in, is not at a
    disadvantage.
    """
    if not floor:
        return model
    values, vectors = eigh(model.M)
    return model._replace(M=(vectors * np.maximum(values - floor, 0.1 * _RANGE * values[-1])) @ vectors.T)


def _raised(model: Model, floor: float) -> Model:
    """The reverse."""
    return model._replace(M=model.M + floor * np.eye(len(model.M))) if floor else model


def _suited(model: Model, rows: AnyRows) -> Array | SparseStore:
    """The basis, where products with such rows are cheap."""
    if not isinstance(rows, SparseRows):
        return model.basis()
    fits = isinstance(model.B, SparseStore) and model.B.sums is rows.sums
    return model.B if fits else SparseStore(model.basis(), rows.sums)


def _faded(M: Floats, keep: float) -> Floats:
    """``keep M``, but no less than what floating point can tell from nothing: rows of zeros do not move the subspace."""
    largest = float(M.diagonal().max(initial=0.0))
    if 0.0 < keep * largest < _FAINT:
        return np.asarray(M * (_FAINT / largest))
    return np.asarray(keep * M)


def rounding(variances: Floats, dtype: np.dtype[Any]) -> float:
    """Variance along any one direction that may be rounding alone, given those of directions found in double precision, largest first.

    Numbers of the given dtype are off by ``eps/√12`` of their size, root mean square, and all of them together by as much of the total; the
    decomposition is off by some roundings of the largest direction, in double precision.
    """
    if not len(variances):
        return 0.0
    decomposed = (64.0 * np.finfo(np.float64).eps) ** 2 * float(variances[0])
    return max(decomposed, float(np.finfo(dtype).eps) ** 2 / 12.0 * float(variances.sum()))


def principal(model: Model, K: int) -> tuple[Array, Floats]:
    """K ordered directions, (K, D), with their variances; beyond those known, an orthonormal completion without variance."""
    B, M = model.basis(), model.M
    k, D = B.shape
    components, found = B, np.zeros(K)
    if k:
        _, values, directions = svd(
            _root(M), check_finite=False
        )  # and not the eigenvectors of M, whose errors are those of its largest entries
        components, found[:k] = matmul(directions.astype(B.dtype), B), values**2
    if k < K:
        filled = np.zeros((K, D), dtype=B.dtype)
        filled[:k] = components
        Q, R = qr(filled.T, mode="economic", check_finite=False)
        filled = np.ascontiguousarray((Q * np.where(np.diag(R) < 0, -1.0, 1.0)).T, dtype=B.dtype)
        filled[:k] = components
        components = filled
    return components, found


# The fast step


def _try_fast(model: Model, rows: AnyRows, roots: Floats, safe: float) -> Model | None:
    """Subspace iterations on small arrays, or None where these may not be enough, or are not accurate enough."""
    B, M, drift = model.B, model.M, model.drift
    eps = float(np.finfo(model.dtype).eps)
    P, G = products(rows, B)
    lengths = roots * np.sqrt(np.maximum(G.diagonal(), 0.0))
    R = minus_gram(G, P)
    scale_gram(R, roots)
    P = P * roots[:, np.newaxis]
    plan = _plan(M, P)
    if plan is None:
        return None
    leak = eps * float(lengths @ plan.sizes)
    X: Floats | None = None
    if leak * float(lengths @ plan.sizes) > math.sqrt(eps):  # R is not good enough: the residuals themselves, in double precision
        X, P, R = _residuals(model.basis().astype(np.float64, copy=False), _weighted(rows, roots), leak)
        plan, lengths = _plan(M, P), np.sqrt(np.maximum(R.diagonal(), 0.0))
    turn = None if plan is None else _iterate(M, P, R, plan, safe, explicit=X is not None)
    noise = math.inf if turn is None else eps * float(lengths @ turn.sizes) ** 2  # rounding of R_ij is eps ‖x_i‖ ‖x_j‖
    if turn is None or noise >= 100.0 * math.sqrt(eps):
        return None
    new: Array | SparseStore
    if X is None:
        new = combined(rows, B, turn.A, turn.C * roots)
    else:
        new = matmul(turn.A, model.basis().astype(np.float64, copy=False))
        add_product(new, 1.0, turn.C, X)
        new = new.astype(model.dtype, copy=False)
        if isinstance(rows, SparseRows):
            new = _past(rows, new)
    drift += noise + (_IMPLICIT if isinstance(new, SparseStore) else 4.0) * eps
    if drift <= (1e-12 if eps < 1e-12 else 40.0 * eps):
        return Model(new, turn.M, drift)
    if isinstance(new, SparseStore):
        B, M = orthonormal(new.read(), turn.M)
        return Model(SparseStore(B, new.sums), M, 0.0)
    return Model(*orthonormal(new, turn.M), 0.0)


def _past(rows: SparseRows, B: Array) -> SparseStore:
    """A store for a basis that has taken in these rows."""
    if rows.sums is not None:
        rows.sums.take(rows)
    return SparseStore(B, rows.sums)


def _plan(M: Floats, P: Floats) -> Plan | None:
    """None where squares across the block lose digits, as with a row inside the span of B but 1e3 times all before."""
    d, U, pivot = graded_cholesky(blas.dsyrk(1.0, P.T, beta=1.0, c=M.T))  # the upper half, which is all that is read
    if pivot < 1e-6:
        return None
    inverse = lapack.dpotri(U, lower=0, overwrite_c=1)[0]
    inverse *= d
    inverse *= d[:, np.newaxis]
    T: Floats = blas.dsymm(1.0, inverse, P.T).T
    return Plan(d, inverse, T, np.sqrt(np.einsum("ij,ij->i", T, T)))


def _iterate(M: Floats, P: Floats, R: Floats, plan: Plan, safe: float, explicit: bool) -> Turn | None:
    """One or two subspace iterations; D does not appear."""
    d, inverse, T, _ = plan
    least, bound = _smallest(d, inverse), _frobenius(R)  # which is a bound of ‖R‖, and nearly free
    if bound > safe * least and _exceeds(R, safe * least):
        return None
    RT = matmul(R, T)
    Y = P + RT
    if bound > _ONCE * least:
        factor, pivots, failed = lapack.dgetrf(((M + matmul(P.T, Y)) * d * d[:, np.newaxis]).T, overwrite_a=1)
        if failed:
            return None
        T = lapack.dgetrs(factor, pivots, (Y * d).T, overwrite_b=1)[0].T * d
        RT = matmul(R, T)
        Y = P + RT
    return _turned(M, P, T, RT, Y, explicit)


def _turned(M: Floats, P: Floats, T: Floats, RT: Floats, Y: Floats, explicit: bool) -> Turn | None:
    """The rows of ``B + Tᵀ (X − P B)`` made orthonormal, and M in their coordinates."""
    k = len(M)
    H = blas.dgemm(1.0, T.T, RT.T, trans_b=1)
    H.flat[:: k + 1] += 1.0
    V, failed = lapack.dpotrf(H, lower=0, clean=1, overwrite_a=1)  # H = Vᵀ V
    if failed:
        return None
    V = lapack.dtrtri(V, lower=0, overwrite_c=1)[0]
    A = np.eye(k, order="F")
    if not explicit:
        A = blas.dgemm(-1.0, T.T, P.T, trans_b=1, beta=1.0, c=A, overwrite_c=1)
    A = blas.dtrmm(1.0, V, A, trans_a=1, overwrite_b=1)
    C = blas.dtrmm(1.0, V, T.T, trans_a=1)
    M = blas.dsyrk(1.0, Y.T, beta=1.0, c=M.T).T
    fill_upper(M)
    M = blas.dtrmm(1.0, V, M.T, trans_a=1, overwrite_b=1)
    M = blas.dtrmm(1.0, V, M, side=1, overwrite_b=1)
    M = 0.5 * (M + M.T)
    if graded_cholesky(M)[2] < 0.1:  # the coordinates no longer follow the sizes of the directions: turn them
        values, vectors = eigh(M, driver="evd")
        if values[0] < 1e-12 * values[-1]:  # eigenvectors are not graded: leave it to the careful step
            return None
        vectors = vectors[:, ::-1]
        A, C, M = matmul(vectors.T, A), matmul(vectors.T, C), np.diag(values[::-1])
    return Turn(A, C, M, np.sqrt(np.einsum("ij,ij->i", T, T)))


def graded_cholesky(A: Floats) -> tuple[Floats, Floats, float]:
    """Scaling d, the upper Cholesky factor of ``diag(d) A diag(d)``, which has a unit diagonal, and its smallest squared pivot, 0 where
    there is none. Only the upper half of A is read.
    """
    diagonal = A.diagonal()
    if not len(A) or not (diagonal > 0).all():
        return A, A, 0.0
    d: Floats = 1.0 / np.sqrt(diagonal)
    scaled = np.multiply(A, d, order="F")
    scaled *= d[:, np.newaxis]
    U, failed = lapack.dpotrf(scaled, lower=0, clean=1, overwrite_a=1)
    return d, U, 0.0 if failed else float(U.diagonal().min()) ** 2


def _smallest(d: Floats, inverse: Floats) -> float:
    """The smallest eigenvalue of a matrix, by power iterations on the upper half of its inverse: from above, within some per cent."""
    largest = max(float(inverse.diagonal().max()), _SMALLEST)  # so that squares are in range, whatever the units
    x, value = (d / d.max()) ** 2, math.inf  # heavy on the small directions
    for _ in range(4):
        x = x / math.sqrt(x @ x)
        y = blas.dsymv(1.0 / largest, inverse, x)
        value = 1.0 / max(float(x @ y), _SMALLEST)
        x = y
    return min(value, 1.0 / math.sqrt(max(float(x @ x), _SMALLEST))) / largest


def _frobenius(R: Floats) -> float:
    """The Frobenius norm of inner products, whose squares may leave the range of floating point: those of rows of 1e80 or 1e-80 do."""
    total = float(np.vdot(R, R))
    if _SMALLEST / np.finfo(np.float64).eps < total < math.inf:
        return math.sqrt(total)
    largest = float(np.abs(R).max(initial=0.0))
    return largest * math.sqrt(float(((R / largest) ** 2).sum())) if largest > 0.0 else 0.0


def _exceeds(R: Floats, limit: float) -> bool:
    """Whether the largest eigenvalue of the nearly semidefinite R is above the limit.

    Power iteration, from the heaviest row and from a fixed vector that no ordinary data is orthogonal to. It comes from below, hence the
    margin in `_SAFE`.
    """
    diagonal = R.diagonal()
    heavy = int(np.argmax(diagonal))
    if diagonal[heavy] > limit or limit <= 0.0:
        return True
    for x in (R[heavy] / limit, np.cos(1.0 + 2.399963 * np.arange(len(R))) * np.sqrt(np.maximum(diagonal, 0.0))):
        for _ in range(_POWER):
            norm = math.sqrt(x @ x)
            if norm == 0.0:
                break
            x = matmul(R, x / norm) / limit  # noqa: PLW2901
            if x @ x > 1.0:
                return True
    return False


def _residuals(B: Floats, X: Floats, leak: float) -> tuple[Floats, Floats, Floats]:
    """What is left of rows outside the span of B, their coordinates in it, and inner products of what is left.

    Projected twice where once leaves too much: `leak` is what the new basis would be off orthonormal by.
    """
    P = matmul(X, B.T)
    rest = X - matmul(P, B)
    if leak > 1e-12:
        more = matmul(rest, B.T)
        rest -= matmul(more, B)
        P += more
    return rest, P, full_gram(rest)


# The steps that are exact


def _exactly(model: Model, rows: AnyRows, roots: Floats, K: int) -> Model:
    """The same for rows in double precision, by decomposing everything."""
    dtype, eps = model.dtype, float(np.finfo(model.dtype).eps)
    B, M = model.basis().astype(np.float64, copy=False), model.M
    if len(B) and (model.drift > 0 or dtype != np.float64):
        B, M = orthonormal(B, M)
    found = _inside(B, M, rows, roots, eps) if 0 < len(B) < K else None
    diagonal = M.diagonal()
    if found is None and (not len(M) or diagonal.min() >= 0.01 * _RANGE * diagonal.max()):
        found = _from_products(B, M, rows, roots, K)
    if found is None:
        found = _carefully(B, M, _weighted(rows, roots), K, eps)
    return Model(found[0].astype(dtype, copy=False), found[1], 0.0)


def _weighted(rows: AnyRows, roots: Floats) -> Floats:
    return np.asarray(centred(rows, np.dtype(np.float64)) * roots[:, np.newaxis])


def _inside(B: Floats, M: Floats, rows: AnyRows, roots: Floats, eps: float) -> tuple[Floats, Floats] | None:
    """Data of few directions: where nothing of the rows is outside the span of B but rounding, only M moves; None otherwise."""
    X = _weighted(rows, roots)
    P = matmul(X, B.T)
    rest = X - matmul(P, B)
    if not (np.einsum("ij,ij->i", rest, rest) <= (32.0 * eps) ** 2 * np.einsum("ij,ij->i", X, X)).all():
        return None
    same = M + matmul(P.T, P)
    return (B, same) if graded_cholesky(same)[2] > 1e-6 else None


def _from_products(B: Floats, M: Floats, rows: AnyRows, roots: Floats, K: int) -> tuple[Floats, Floats] | None:
    """From the Gram matrix of the stacked rows ``[S B; X]``; None where the range of sizes is too large for it."""
    k, n = len(B), len(B) + len(rows)
    S = _root(M)
    P, G = products(rows, B)
    stacked = np.empty((n, n), order="F")
    stacked[:k, :k] = matmul(S, S.T)
    stacked[k:, :k] = matmul(P * roots[:, np.newaxis], S.T) if k else 0.0
    stacked[k:, k:] = G * roots * roots[:, np.newaxis]
    keep = min(K, n)
    values, vectors = eigh(stacked, check_finite=False, overwrite_a=True, driver="evd")  # all of them take half the time of some
    values, vectors = values[::-1][:keep], vectors[:, ::-1][:, :keep]
    if not values[0] > 0 or values[-1] < _RANGE * values[0]:
        return None
    vectors = vectors / np.sqrt(values)
    new = combined(rows, B, matmul(vectors[:k].T, S), np.ascontiguousarray(vectors[k:].T) * roots)
    M = np.diag(values)
    return orthonormal(new, M) if values[-1] < 1e-3 * values[0] else (new, M)


def _carefully(B: Floats, M: Floats, X: Floats, K: int, eps: float) -> tuple[Floats, Floats]:
    """For any range of sizes: nothing is squared across rows of different size, and rounding does not become a direction."""
    k, (b, D) = len(B), X.shape
    norms = np.sqrt(np.einsum("ij,ij->i", X, X))
    P, rest = np.zeros((b, k)), X
    if k:
        for _ in range(2):
            more = matmul(rest, B.T)
            rest = rest - matmul(more, B)
            P += more
    lengths = np.sqrt(np.einsum("ij,ij->i", rest, rest))
    floor = max(4.0 * np.finfo(np.float64).eps * math.sqrt(D), 8.0 * eps)
    live = np.flatnonzero(lengths > floor * norms)
    L = np.zeros((b, 0))
    if len(live):
        factor = _triangle(rest[live] / lengths[live, np.newaxis], floor)
        L = np.zeros((b, len(factor)))
        L[live] = lengths[live, np.newaxis] * factor.T
    F = np.zeros((k + b, k + L.shape[1]))
    F[:k, :k], F[k:, :k], F[k:, k:] = _root(M), P, L
    if min(F.shape) == 0:
        return B, M
    left, values, right = svd(F, full_matrices=False, check_finite=False)
    kept = int((values[:K] > 1e-14 * math.sqrt(len(F)) * values[0]).sum()) if values[0] > 0 else 0
    T = left[k:, :kept] / values[:kept]
    T[lengths <= floor * norms] = 0.0
    new = matmul(np.ascontiguousarray(T.T), rest)
    if k:
        new += matmul(np.ascontiguousarray(right[:kept, :k]), B)
    return orthonormal(new, np.diag(values[:kept] ** 2))


def _triangle(rows: Floats, floor: float) -> Floats:
    """R of ``rowsᵀ = Q R`` for rows of unit length, without the directions that only rounding has."""
    U, failed = lapack.dpotrf(full_gram(rows), lower=0, clean=1)
    if not failed and U.diagonal().min() >= 1e-4:
        return np.asarray(U)
    R, order = qr(rows.T, mode="r", pivoting=True, check_finite=False)  # nearly dependent rows: nothing squared
    R = R[: min(R.shape)]
    known = int((np.abs(R.diagonal()) > floor * abs(R[0, 0])).sum())
    return np.asarray(R[:known, np.argsort(order)])


def _root(M: Floats) -> Floats:
    """S with ``Sᵀ S = M``, with the grading of M."""
    if not len(M):
        return np.zeros((0, 0))
    d, U, pivot = graded_cholesky(M)
    if pivot > 1e-8:
        return U / d
    values, vectors = eigh(M)
    return np.asarray(np.sqrt(np.maximum(values, 0.0))[:, np.newaxis] * vectors.T)


def orthonormal(B: Array, M: Floats) -> tuple[Array, Floats]:
    """B made orthonormal anew, in order, so that the first rows move least, and M in the new coordinates."""
    exact: Any = B.astype(np.float64, copy=False)
    for _ in range(2):
        H = full_gram(np.ascontiguousarray(exact))
        off = float(np.abs(H - np.eye(len(H))).max(initial=0.0))
        d, U, pivot = graded_cholesky(H)
        if pivot < 1e-6:  # not met by the steps above; Householder is the last resort
            Q, W = np.linalg.qr(exact.T)
            return np.ascontiguousarray(Q.T, dtype=B.dtype), np.asarray(W @ M @ W.T)
        U = U / d  # H = Uᵀ U, B = Uᵀ Q, so that M in the coordinates of Q is U M Uᵀ
        exact = np.ascontiguousarray(solve_triangular(U, exact, trans=1, check_finite=False))
        M = matmul(matmul(U, M), U.T)
        if off < 1e-6:
            break
    return exact.astype(B.dtype, copy=False), 0.5 * (M + M.T)
