"""Compiled functions that SM and FSM share: how a block is compressed and expanded, and when the guard has to act."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from online_psp.engine.compiler import inlined_kernel, kernel
from online_psp.engine.store import put_and_multiply
from online_psp.engine.tiles import add_matrix_product, add_product, add_strips, into_strips, multiply_strips, strips_for
from online_psp.engine.types import Array, Floats

FAINT = 1e-4
"""The inverse of M is recomputed once no more than this share of the old M is left."""
ILL = 1e6
"""Condition number of M from which its inverse is recomputed every K samples."""

Ends: TypeAlias = NDArray[np.int64]
Learned: TypeAlias = tuple[int, float, float, float, float]
"""Samples learned, the new s, the share of the old M in the new one, the largest trace of M on the way, and the last."""


class Scale(NamedTuple):
    """The factor s of the stored basis."""

    s: float
    least: float
    """The smallest s before it is multiplied into the basis."""


class Work(NamedTuple):
    """Work space for one block of n rows."""

    strips: Array
    """The rows, as of `tiles.strips_for`."""
    P: Floats
    """(n, K)"""
    G: Floats
    """(n, n)"""
    w: Floats
    """(n,): weight of each sample in W."""
    Y: Floats
    """(n, K)"""
    C: Array
    """(K, n): ``B ← B + C X``, in the precision of B."""


def work_for(rows: int, K: int, D: int, dtype: np.dtype[Any]) -> Work:
    """Work space for blocks of up to `rows` rows."""
    P, G, w, Y = np.empty((rows, K)), np.empty((rows, rows)), np.empty(rows), np.empty((rows, K))
    return Work(strips_for(rows, D, dtype), P, G, w, Y, np.empty((K, rows), dtype=dtype))


class Watch(NamedTuple):
    """What the guard knows about M."""

    since: int
    """Samples since its inverse was recomputed."""
    kept: float
    """The share that is left of M as it was then."""
    level: float
    """The largest trace so far."""
    floor: float
    """The smallest eigenvalue, relative to the largest, that can be told from rounding."""


@inlined_kernel
def is_due(watch: Watch, learned: int, keep: float, level: float, trace: float, condition: float, K: int) -> bool:
    """Whether the guard has to act after some samples; the other arguments are as in `Learned`.

    `condition` is an upper estimate of the condition number of M.
    """
    if trace < watch.floor * max(level, watch.level) or not condition < min(ILL, 1.0 / watch.floor):
        return True
    return watch.since + learned >= max(256, 4 * K) or watch.kept * keep < FAINT


@inlined_kernel
def compress_block(X: Array, first: int, last: int, B: Array, work: Work) -> None:
    """P and G of rows `first` … `last`−1 of X."""
    into_strips(X, first, last, work.strips)
    multiply_strips(work.strips, last - first, B, work.P, work.G)


@inlined_kernel
def expand_block(betas: Floats, B: Array, scale: Scale, M: Floats, work: Work) -> tuple[float, float, float]:
    """Update the weights, s times B, and M for the block in `work`; returns tr M, the share of the old M in it, and the new s."""
    n = len(betas)
    trace, keep = settle(work.Y[:n], betas, M)
    s = multiplied_in(B, scale)
    weigh(work.Y, work.w, 1.0 / s, n, work.C)
    add_strips(B, work.C, work.strips, n)
    return trace, keep, s


@kernel
def expand_open(stack: Array, scale: Scale, w: Floats, betas: Floats, Y: Floats, M: Floats) -> tuple[float, float, float]:
    """As `expand_block`, for an open block: the rows of the stack after the first K. w, betas and Y belong to its n samples."""
    n, K = Y.shape
    trace, keep = settle(Y, betas, M)
    s = multiplied_in(stack[:K], scale)
    C = np.empty((K, n), dtype=stack.dtype)
    weigh(Y, w, 1.0 / s, n, C)
    add_product(stack[:K], C, stack[K : K + n])
    return trace, keep, s


@inlined_kernel
def multiplied_in(B: Array, scale: Scale) -> float:
    """Multiply s into the basis if it has become too small; returns the new s."""
    if scale.s > scale.least:
        return scale.s
    factor = B.dtype.type(scale.s)
    for i in range(B.shape[0]):
        for k in range(B.shape[1]):
            B[i, k] *= factor
    return 1.0


@inlined_kernel
def weigh(Y: Floats, w: Floats, factor: float, n: int, C: Array) -> None:
    """``C = factor (w Y)ᵀ`` for n samples."""
    for k in range(Y.shape[1]):
        for j in range(n):
            C[k, j] = factor * w[j] * Y[j, k]


@inlined_kernel
def hand_out(outputs: Floats, first: int, last: int, Y: Array) -> None:
    """Copy the outputs of a block to rows `first` … `last`−1 of Y, in the precision of Y."""
    for i in range(last - first):
        for k in range(Y.shape[1]):
            Y[first + i, k] = outputs[i, k]


@kernel
def settle(Y: Floats, betas: Floats, M: Floats) -> tuple[float, float]:
    """``M ← (1−β_t) M + β_t y_t y_tᵀ`` for each of n outputs in turn; returns tr M and the share of the old M in it.

    Parameters
    ----------
    Y : (n, K)
    betas : (n,)
    M : (K, K), changed in place
    """
    n, K = Y.shape
    weighted = np.empty((K, n))
    keep = 1.0
    for s in range(n - 1, -1, -1):
        share = betas[s] * keep
        for k in range(K):
            weighted[k, s] = share * Y[s, k]
        keep *= 1.0 - betas[s]
    for k in range(K):
        for j in range(K):
            M[k, j] *= keep
    add_matrix_product(M, weighted, Y)
    trace = 0.0
    for k in range(K):
        trace += M[k, k]
    return trace, keep


@inlined_kernel
def open_input(stack: Array, row: Array, n: int, s: float, a: float, w: Floats, Y: Floats, h: Floats) -> bool:
    """The weights times sample n of an open block: ``h = a s B x + Σ_{j<n} w_j (x_j·x) y_j``; returns False if it is not finite."""
    K = h.shape[0]
    products = np.empty(K + n + 1, dtype=stack.dtype)
    put_and_multiply(stack, K + n, row, products)
    if not np.isfinite(products[K + n]):
        return False
    for k in range(K):
        h[k] = a * s * products[k]
    for j in range(n):
        c = w[j] * products[K + j]
        for k in range(K):
            h[k] += c * Y[j, k]
    return True


@inlined_kernel
def fade(n: int, alpha: float, a: float, w: Floats) -> float:
    """Update the weights after a step of alpha with sample n: those of the samples, w, in place; that of the old W, `a`, is returned."""
    for j in range(n):
        w[j] *= 1.0 - alpha
    w[n] = alpha
    return a * (1.0 - alpha)
