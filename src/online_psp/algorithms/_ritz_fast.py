"""The fast step of `online_psp.algorithms.block`: one or two subspace iterations on small arrays, where they are enough."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.linalg import blas, eigh, lapack

from online_psp.algorithms._ritz_model import SMALLEST, Model, graded_cholesky, orthonormal, weighted
from online_psp.engine.blas import add_product, full_gram, matmul, minus_gram
from online_psp.engine.row_products import combined, products
from online_psp.engine.rows import AnyRows, SparseRows
from online_psp.engine.sparse_store import SparseStore
from online_psp.engine.symmetric import fill_upper, scale_gram
from online_psp.engine.types import Array, Floats

# Constants, chosen on other data than the tests' (docs/adr/0012).
_ONCE = 0.1  # below this, one subspace iteration is enough
_POWER = 6  # power iterations for ‖R‖
_IMPLICIT = 64.0  # roundings of a step with sparse rows


class Plan(NamedTuple):
    """The first subspace iteration, which needs P only."""

    S: Floats
    """(k, k): M + Pᵀ P, the upper half"""
    d: Floats
    """(k,): its diagonal scaling"""
    inverse: Floats
    """(k, k): its inverse, the upper half"""
    T: Floats
    """(b, k): ``P (M + Pᵀ P)⁻¹``"""

    @property
    def sizes(self) -> Floats:
        """(b,): lengths of the rows of T."""
        return np.asarray(np.sqrt(np.einsum("ij,ij->i", self.T, self.T)))


class Turn(NamedTuple):
    """What a fast step does: ``B ← A B + C X``, or ``A B + C X₁`` with the residuals X₁ where they are at hand."""

    A: Floats
    C: Floats
    M: Floats
    sizes: Floats


def try_fast(model: Model, rows: AnyRows, roots: Floats, safe: float) -> Model | None:
    """Subspace iterations on small arrays, or None where these may not be enough, or are not accurate enough."""
    M, eps = model.M, float(np.finfo(model.dtype).eps)
    P, G = products(rows, model.B)
    lengths = roots * np.sqrt(np.maximum(G.diagonal(), 0.0))
    R = minus_gram(G, P)
    scale_gram(R, roots)
    P = P * roots[:, np.newaxis]
    plan = plan_for(M, P)
    if plan is None:
        return None
    spread = float(lengths @ plan.sizes)
    leak = eps * spread
    X: Floats | None = None
    if leak * spread > math.sqrt(eps):  # R is not good enough: the residuals themselves, in double precision
        X, P, R = _residuals(model.basis().astype(np.float64, copy=False), weighted(rows, roots), leak)
        plan, lengths = plan_for(M, P), np.sqrt(np.maximum(R.diagonal(), 0.0))
    turn = None if plan is None else _iterate(M, P, R, plan, safe, explicit=X is not None)
    noise = math.inf if turn is None else eps * float(lengths @ turn.sizes) ** 2  # rounding of R_ij is eps ‖x_i‖ ‖x_j‖
    if turn is None or noise >= 100.0 * math.sqrt(eps):
        return None
    if X is None:
        return moved(model, rows, roots, turn, noise)
    new = matmul(turn.A, model.basis().astype(np.float64, copy=False))
    add_product(new, 1.0, turn.C, X)
    new = new.astype(model.dtype, copy=False)
    return _settled(_past(rows, new) if isinstance(rows, SparseRows) else new, turn, model.drift + noise)


def moved(model: Model, rows: AnyRows, roots: Floats, turn: Turn, noise: float) -> Model:
    """The model after ``B ← A B + C X``; `noise` is what rounding may add to ``B Bᵀ − I``."""
    return _settled(combined(rows, model.B, turn.A, turn.C * roots), turn, model.drift + noise)


def _settled(B: Array | SparseStore, turn: Turn, drift: float) -> Model:
    """The model with a new basis, made orthonormal if it may have drifted too far from that."""
    sparse = isinstance(B, SparseStore)
    eps = float(np.finfo(B.V.dtype if isinstance(B, SparseStore) else B.dtype).eps)
    drift += (_IMPLICIT if sparse else 4.0) * eps
    if drift <= (1e-12 if eps < 1e-12 else 40.0 * eps):
        return Model(B, turn.M, drift)
    if isinstance(B, SparseStore):
        basis, M = orthonormal(B.read(), turn.M)
        return Model(SparseStore(basis, B.sums), M, 0.0)
    return Model(*orthonormal(B, turn.M), 0.0)


def _past(rows: SparseRows, B: Array) -> SparseStore:
    """A store for a basis that has taken in these rows."""
    if rows.sums is not None:
        rows.sums.take(rows)
    return SparseStore(B, rows.sums)


def plan_for(M: Floats, P: Floats) -> Plan | None:
    """None where squares across the block lose digits, as with a row inside the span of B but 1e3 times all before."""
    S = blas.dsyrk(1.0, P.T, beta=1.0, c=M.T)  # the upper half, which is all that is read
    d, U, pivot = graded_cholesky(S)
    if pivot < 1e-6:
        return None
    inverse = lapack.dpotri(U, lower=0, overwrite_c=1)[0]
    inverse *= d
    inverse *= d[:, np.newaxis]
    T: Floats = blas.dsymm(1.0, inverse, P.T).T
    return Plan(S, d, inverse, T)


def _iterate(M: Floats, P: Floats, R: Floats, plan: Plan, safe: float, explicit: bool) -> Turn | None:
    """One or two subspace iterations; D does not appear."""
    _, d, inverse, T = plan
    least, bound = smallest(d, inverse), frobenius(R)  # which is a bound of ‖R‖, and nearly free
    if bound > safe * least and norm(R) > safe * least:
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


def smallest(d: Floats, inverse: Floats) -> float:
    """The smallest eigenvalue of a matrix, by power iterations on the upper half of its inverse: from above, within some per cent."""
    largest = max(float(inverse.diagonal().max()), SMALLEST)  # so that squares are in range, whatever the units
    x, value = (d / d.max()) ** 2, math.inf  # heavy on the small directions
    for _ in range(4):
        x = x / math.sqrt(x @ x)
        y = blas.dsymv(1.0 / largest, inverse, x)
        value = 1.0 / max(float(x @ y), SMALLEST)
        x = y
    return min(value, 1.0 / math.sqrt(max(float(x @ x), SMALLEST))) / largest


def frobenius(R: Floats) -> float:
    """The Frobenius norm of inner products, whose squares may leave the range of floating point: those of rows of 1e80 or 1e-80 do."""
    total = float(np.vdot(R, R))
    if SMALLEST / np.finfo(np.float64).eps < total < math.inf:
        return math.sqrt(total)
    largest = float(np.abs(R).max(initial=0.0))
    return largest * math.sqrt(float(((R / largest) ** 2).sum())) if largest > 0.0 else 0.0


def norm(R: Floats) -> float:
    """The largest eigenvalue of the nearly semidefinite R, from below.

    Power iteration, from the heaviest row and from a fixed vector that no ordinary data is orthogonal to.
    """
    diagonal = R.diagonal()
    heavy = int(np.argmax(diagonal))
    largest = float(diagonal[heavy])
    if not largest > 0.0:
        return 0.0
    found = 1.0
    for x in (R[heavy] / largest, np.cos(1.0 + 2.399963 * np.arange(len(R))) * np.sqrt(np.maximum(diagonal / largest, 0.0))):
        size = math.sqrt(x @ x)
        for _ in range(_POWER):
            if size == 0.0:
                break
            x = matmul(R, x / size) / largest  # noqa: PLW2901
            size = math.sqrt(x @ x)
        found = max(found, size)
    return found * largest


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
