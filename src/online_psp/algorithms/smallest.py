"""The smallest eigenpair of a bordered matrix whose inverse is nearly known, in a few products with a K×K matrix: the core of IPCA's step.

IPCA needs one eigenvector of ``T = keep diag(S, 0) + α w wᵀ``, w = [y; ρ], keep = 1 − α: the one to be dropped. With ``N = (S + δI)⁻¹``
known, ``T + keep δ I`` has the same eigenvectors, and its inverse is applied by the Sherman–Morrison rule with one product with N. The pair
is the *largest* one of that inverse, and Lanczos' method finds it in a few steps, because what a sample adds outside the subspace is small
beside the variances inside it. If it is not, as before anything has been learned, the smallest eigenvalues lie close together and many
steps are needed; then −δ is moved up to just below them, which sets them apart. The pair is checked against T itself, and corrected if N
has drifted.

Of S and N only the lower halves are read and written.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np

from online_psp.engine.compiler import exact_kernel as kernel
from online_psp.engine.symmetric import symmetric_product
from online_psp.engine.types import Floats

_EPS = float(np.finfo(np.float64).eps)
_MOST_STEPS = 160  # about ten are enough if the smallest eigenvalue stands apart; before anything has been learned many are close
_MOST_REPAIRS = 4
NOT_MADE = 0.0
"""Stands in place of δ if there is no N yet."""

Covariance: TypeAlias = tuple[Floats, Floats, Floats]
"""Lower halves of S (K, K) and of ``N = (S + δI)⁻¹``; (2,): δ, or NOT_MADE, and the extra steps that eigenvectors took since N was made."""


class Bordered(NamedTuple):
    """T, and its inverse after a shift: ``(T + keep δ I)⁻¹``."""

    S: Floats
    N: Floats
    y: Floats
    Ny: Floats
    rho: float
    alpha: float
    delta: float
    beta: float
    """``1/α + yᵀ N y / keep``: positive, unless N has lost its definiteness."""
    size: float
    """The trace of T."""


@kernel
def invert_shifted(S: Floats, delta: float, N: Floats) -> None:
    """``N = (S + δI)⁻¹``."""
    K = S.shape[0]
    shifted = np.empty((K, K))
    for i in range(K):
        for j in range(i + 1):
            shifted[i, j] = S[i, j]
            shifted[j, i] = S[i, j]
        shifted[i, i] += delta
    inverse = np.linalg.inv(shifted)
    for i in range(K):
        for j in range(i + 1):
            N[i, j] = 0.5 * (inverse[i, j] + inverse[j, i])


@kernel
def _apply(T: Bordered, g: Floats, out: Floats) -> None:
    """``out = ± size (T + keep δ I)⁻¹ g`` for g of length K+1, with the sign that makes the eigenvalue in question the largest one.

    If −δ is above the smallest eigenvalue of T, that eigenvalue, and no other, is negative in the inverse.
    """
    K, keep = len(T.y), 1.0 - T.alpha
    symmetric_product(T.N, g[:K], out[:K])
    along = 0.0
    for k in range(K):
        along += T.Ny[k] * g[k]
    scale = keep * T.delta * T.beta + T.rho * T.rho
    share = (T.delta * along + T.rho * g[K]) / scale
    factor = T.size if scale > 0.0 else -T.size
    for k in range(K):
        out[k] = factor * (out[k] - share * T.Ny[k]) / keep
    out[K] = factor * ((T.beta * g[K] - T.rho * along / keep) / scale)


@kernel
def _top_of_tridiagonal(a: Floats, b: Floats, n: int, s: Floats) -> float:
    """The largest eigenvalue of the tridiagonal matrix with diagonal a[:n] and off-diagonal b[:n−1]; its vector goes to s[:n].

    Newton's method on the last pivot of ``θI − A``, from above, where it is monotone.
    """
    if n == 1:
        s[0] = 1.0
        return float(a[0])
    theta = -np.inf
    for i in range(n):
        radius = (abs(b[i - 1]) if i > 0 else 0.0) + (abs(b[i]) if i < n - 1 else 0.0)
        theta = max(theta, a[i] + radius)
    for _ in range(100):
        pivot, slope, total = theta - a[0], 1.0, 0.0
        for i in range(n):
            if not pivot > 0.0:  # θ has converged, up to rounding
                break
            total += slope / pivot  # the derivative of log det
            if i < n - 1:
                ratio = b[i] / pivot
                slope = 1.0 + ratio * ratio * slope
                pivot = theta - a[i + 1] - ratio * b[i]
        if not pivot > 0.0 or not 1.0 > 2.0 * _EPS * abs(theta) * total:
            break
        theta -= 1.0 / total
    s[n - 1] = 1.0
    s[n - 2] = (theta - a[n - 1]) / b[n - 2]
    for i in range(n - 2, 0, -1):
        s[i - 1] = ((theta - a[i]) * s[i] - b[i] * s[i + 1]) / b[i - 1]
    norm = 0.0
    for i in range(n):
        norm += s[i] * s[i]
    norm = np.sqrt(norm)
    for i in range(n):
        s[i] /= norm
    return float(theta)


@kernel
def _to_unit_length(v: Floats) -> None:
    length = np.sqrt(np.dot(v, v))
    for k in range(len(v)):
        v[k] /= length


@kernel
def _lanczos(T: Bordered, v: Floats) -> tuple[int, bool]:
    """Write the vector of the largest eigenvalue of the inverse to v; returns the number of steps, and whether they were enough."""
    K, keep = len(T.y), 1.0 - T.alpha
    most = min(_MOST_STEPS, K + 1)
    V, w = np.empty((most, K + 1)), np.empty(K + 1)
    a, b, s = np.empty(most), np.empty(most), np.empty(most)
    # The inverse times the last unit vector is most of the answer. On data aligned with the axes it may be another eigenvector, so a
    # little of everything is added.
    start = V[0]
    for k in range(K):
        start[k] = -T.rho * T.Ny[k] / keep
    start[K] = T.beta
    _to_unit_length(start)
    for k in range(K + 1):
        start[k] += 0.01 * np.cos(1.7 * k * k + 0.3) / np.sqrt(K + 1.0)
    _to_unit_length(start)
    steps, enough = 0, False
    for j in range(most):
        _apply(T, V[j], w)
        a[j] = 0.0
        for again in range(2):
            for i in range(j, max(0, j - 1) - 1 if again else -1, -1):
                c = 0.0
                for k in range(K + 1):
                    c += V[i, k] * w[k]
                for k in range(K + 1):
                    w[k] -= c * V[i, k]
                if i == j:
                    a[j] += c
        square = 0.0
        for k in range(K + 1):
            square += w[k] * w[k]
        b[j] = np.sqrt(square)
        steps = j + 1
        if j < 16 or j % 4 == 0 or j + 1 == most:
            theta = _top_of_tridiagonal(a, b, steps, s)
            enough = b[j] <= _EPS * abs(theta) or b[j] * abs(s[j]) <= _EPS * abs(theta) or j == K
            if enough or j + 1 == most:
                break
        for k in range(K + 1):
            V[j + 1, k] = w[k] / b[j]
    for k in range(K + 1):
        v[k] = 0.0
    for i in range(steps):
        for k in range(K + 1):
            v[k] += s[i] * V[i, k]
    return steps, enough


@kernel
def _residual(T: Bordered, v: Floats, r: Floats) -> tuple[float, float]:
    """Scale v to length one and write ``(T v − λ v)/size`` to r; returns λ and the length of r."""
    K, keep = len(T.y), 1.0 - T.alpha
    _to_unit_length(v)
    symmetric_product(T.S, v[:K], r[:K])
    along = T.rho * v[K]
    for k in range(K):
        along += T.y[k] * v[k]
    value = 0.0
    for k in range(K):
        r[k] = (keep * r[k] + T.alpha * along * T.y[k]) / T.size
        value += v[k] * r[k]
    r[K] = T.alpha * along * T.rho / T.size
    value += float(v[K] * r[K])
    square = 0.0
    for k in range(K + 1):
        r[k] -= value * v[k]
        square += r[k] * r[k]
    return value * T.size, np.sqrt(square)


@kernel
def _dense(T: Bordered, v: Floats) -> None:
    """Write the smallest eigenvector of T, from LAPACK, to v."""
    K, keep = len(T.y), 1.0 - T.alpha
    whole = np.empty((K + 1, K + 1))
    for i in range(K):
        for j in range(i + 1):
            whole[i, j] = keep * T.S[i, j] + T.alpha * T.y[i] * T.y[j]
            whole[j, i] = whole[i, j]
        whole[i, K] = T.alpha * T.rho * T.y[i]
        whole[K, i] = whole[i, K]
    whole[K, K] = T.alpha * T.rho * T.rho
    vectors = np.linalg.eigh(whole)[1]
    for k in range(K + 1):
        v[k] = vectors[k, 0]


@kernel
def smallest(covariance: Covariance, y: Floats, rho: float, alpha: float, Ny: Floats, v: Floats) -> tuple[float, int]:
    """The smallest eigenpair of T.

    Parameters
    ----------
    covariance
        N is recomputed from S, with another δ, if it has drifted too far.
    y, rho, alpha : (K,), float, float
        Coordinates of the sample in the subspace, the length of its part outside, and its step size.
    Ny : (K,), filled
        ``N y``.
    v : (K+1,), filled
        Unit length, the last entry not negative.

    Returns
    -------
    value : float
    steps : int
        How many products with N it took.
    """
    S, N, shift = covariance
    K, keep = len(y), 1.0 - alpha
    size = alpha * rho * rho
    for k in range(K):
        size += keep * S[k, k] + alpha * y[k] * y[k]
    enough = 8.0 * _EPS
    r, correction = np.empty(K + 1), np.empty(K + 1)
    nothing = 4.0 * _EPS * size  # negligible beside T, and enough for a singular S
    value, fresh, steps = 0.0, shift[0] == NOT_MADE, 0
    if fresh:
        shift[0] = nothing
        invert_shifted(S, nothing, N)
    while True:
        symmetric_product(N, y, Ny)
        T = Bordered(S, N, y, Ny, rho, alpha, shift[0], 1.0 / alpha + np.dot(y, Ny) / keep, size)
        if T.beta > 0.0:
            more, long_enough = _lanczos(T, v)
            steps += more
            fresh = fresh or not long_enough  # if there were too few steps, N is not to blame
            value, length = _residual(T, v, r)
            for _ in range(_MOST_REPAIRS):
                if length <= enough:
                    break
                _apply(T, r, correction)
                for k in range(K + 1):
                    v[k] -= correction[k]
                value, length = _residual(T, v, r)
            if length <= enough:
                break
        if fresh:
            _dense(T, v)
            value, length = _residual(T, v, r)
            break
        shift[0] = nothing
        invert_shifted(S, nothing, N)
        fresh = True
    if v[K] < 0.0:
        for k in range(K + 1):
            v[k] = -v[k]
    return value, steps


@kernel
def turn_inverse(covariance: Covariance, y: Floats, rho: float, alpha: float, Ny: Floats, value: float, v: Floats) -> None:
    """Update N after the pair (value, v) was dropped: apply the reflection that turns v into the last unit vector to the inverse of T.

    N is no longer made if S was singular, or if the value is too close to −δ to divide by the difference.
    """
    _, N, shift = covariance
    K, keep, delta, g = len(y), 1.0 - alpha, shift[0], 1.0 + v[len(y)]
    apart = value + keep * delta
    if not (value > delta and abs(apart) > 1e-8 * (abs(value) + abs(keep * delta))):
        shift[0] = NOT_MADE
        return
    shift[0] = keep * delta
    beta = 1.0 / alpha + np.dot(y, Ny) / keep
    scale = keep * delta * beta + rho * rho
    inner = delta / (keep * scale)
    cross = rho / (scale * keep * g)
    outer = (beta / scale - 1.0 / apart) / (g * g)
    for i in range(K):
        on_Ny = cross * v[i] - inner * Ny[i]
        on_p = cross * Ny[i] + outer * v[i]
        for j in range(i + 1):
            N[i, j] = N[i, j] / keep + on_Ny * Ny[j] + on_p * v[j]
