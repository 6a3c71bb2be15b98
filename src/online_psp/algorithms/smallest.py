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

import numpy as np

from online_psp.engine.compiler import exact_kernel as kernel
from online_psp.engine.symmetric import symmetric_product
from online_psp.engine.types import Floats

_EPS = float(np.finfo(np.float64).eps)
_MOST_STEPS = 160  # about ten are enough if the smallest eigenvalue stands apart; before anything has been learned many are close
_MOST_REPAIRS = 4
NOT_MADE = np.inf
"""Stands in place of δ if there is no N yet."""


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
def _apply(g: Floats, N: Floats, Ny: Floats, keep: float, delta: float, rho: float, beta: float, size: float, out: Floats) -> None:
    """``out = ± size (T + keep δ I)⁻¹ g`` for g of length K+1, with the sign that makes the eigenvalue in question the largest one.

    If −δ is above the smallest eigenvalue of T, that eigenvalue, and no other, is negative in the inverse.
    """
    K = N.shape[0]
    symmetric_product(N, g[:K], out[:K])
    along = 0.0
    for k in range(K):
        along += Ny[k] * g[k]
    scale = keep * delta * beta + rho * rho
    share = (delta * along + rho * g[K]) / scale
    factor = size if scale > 0.0 else -size
    for k in range(K):
        out[k] = factor * (out[k] - share * Ny[k]) / keep
    out[K] = factor * ((beta * g[K] - rho * along / keep) / scale)


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
def _lanczos(N: Floats, Ny: Floats, keep: float, delta: float, rho: float, beta: float, size: float, v: Floats) -> tuple[int, bool]:
    """Write the vector of the largest eigenvalue of the inverse to v; returns the number of steps, and whether they were enough."""
    K = N.shape[0]
    most = min(_MOST_STEPS, K + 1)
    V, w = np.empty((most, K + 1)), np.empty(K + 1)
    a, b, s = np.empty(most), np.empty(most), np.empty(most)
    # The inverse times the last unit vector is most of the answer. On data aligned with the axes it may be another eigenvector, so a
    # little of everything is added.
    start = V[0]
    for k in range(K):
        start[k] = -rho * Ny[k] / keep
    start[K] = beta
    _to_unit_length(start)
    for k in range(K + 1):
        start[k] += 0.01 * np.cos(1.7 * k * k + 0.3) / np.sqrt(K + 1.0)
    _to_unit_length(start)
    steps, enough = 0, False
    for j in range(most):
        _apply(V[j], N, Ny, keep, delta, rho, beta, size, w)
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
def _residual(v: Floats, S: Floats, y: Floats, keep: float, rho: float, alpha: float, size: float, r: Floats) -> tuple[float, float]:
    """Scale v to length one and write ``(T v − λ v)/size`` to r; returns λ and the length of r."""
    K = S.shape[0]
    _to_unit_length(v)
    symmetric_product(S, v[:K], r[:K])
    along = rho * v[K]
    for k in range(K):
        along += y[k] * v[k]
    value = 0.0
    for k in range(K):
        r[k] = (keep * r[k] + alpha * along * y[k]) / size
        value += v[k] * r[k]
    r[K] = alpha * along * rho / size
    value += float(v[K] * r[K])
    square = 0.0
    for k in range(K + 1):
        r[k] -= value * v[k]
        square += r[k] * r[k]
    return value * size, np.sqrt(square)


@kernel
def _dense(S: Floats, y: Floats, keep: float, rho: float, alpha: float, v: Floats) -> None:
    """Write the smallest eigenvector of T, from LAPACK, to v."""
    K = S.shape[0]
    T = np.empty((K + 1, K + 1))
    for i in range(K):
        for j in range(i + 1):
            T[i, j] = keep * S[i, j] + alpha * y[i] * y[j]
            T[j, i] = T[i, j]
        T[i, K] = alpha * rho * y[i]
        T[K, i] = T[i, K]
    T[K, K] = alpha * rho * rho
    vectors = np.linalg.eigh(T)[1]
    for k in range(K + 1):
        v[k] = vectors[k, 0]


@kernel
def smallest(S: Floats, N: Floats, Ny: Floats, y: Floats, rho: float, alpha: float, delta: float, v: Floats) -> tuple[float, float, int]:
    """The smallest eigenpair of T.

    Parameters
    ----------
    S, N : (K, K)
        N is recomputed from S if it has drifted too far.
    Ny : (K,)
        ``N y``, brought up to date with N.
    y, rho, alpha : (K,), float, float
        Coordinates of the sample in the subspace, the length of its part outside, and its step size.
    delta : float
        The shift inside N, or NOT_MADE.
    v : (K+1,), filled
        Unit length, the last entry not negative.

    Returns
    -------
    value, delta : float
    steps : int
        How many products with N it took.
    """
    K = S.shape[0]
    keep = 1.0 - alpha
    size = alpha * rho * rho  # the trace of T
    for k in range(K):
        size += keep * S[k, k] + alpha * y[k] * y[k]
    enough = 8.0 * _EPS
    r, correction = np.empty(K + 1), np.empty(K + 1)
    nothing = 4.0 * _EPS * size  # negligible beside T, and enough for a singular S
    value, fresh, steps = 0.0, delta == NOT_MADE, 0
    if fresh:
        delta = nothing
        invert_shifted(S, delta, N)
    while True:
        symmetric_product(N, y, Ny)
        beta = 1.0 / alpha + np.dot(y, Ny) / keep
        if beta > 0.0:  # otherwise N has lost its definiteness
            more, long_enough = _lanczos(N, Ny, keep, delta, rho, beta, size, v)
            steps += more
            fresh = fresh or not long_enough  # if there were too few steps, N is not to blame
            value, length = _residual(v, S, y, keep, rho, alpha, size, r)
            for _ in range(_MOST_REPAIRS):
                if length <= enough:
                    break
                _apply(r, N, Ny, keep, delta, rho, beta, size, correction)
                for k in range(K + 1):
                    v[k] -= correction[k]
                value, length = _residual(v, S, y, keep, rho, alpha, size, r)
            if length <= enough:
                break
        if fresh:
            _dense(S, y, keep, rho, alpha, v)
            value, length = _residual(v, S, y, keep, rho, alpha, size, r)
            break
        delta = nothing
        invert_shifted(S, delta, N)
        fresh = True
    if v[K] < 0.0:
        for k in range(K + 1):
            v[k] = -v[k]
    return value, delta, steps


@kernel
def turn_inverse(N: Floats, Ny: Floats, y: Floats, rho: float, alpha: float, delta: float, value: float, v: Floats) -> float:
    """Update N after the pair (value, v) was dropped: apply the reflection that turns v into the last unit vector to the inverse of T.

    Returns
    -------
    float
        The new δ; NOT_MADE, and N is useless, if the value is too close to −δ to divide by the difference.
    """
    K = N.shape[0]
    keep, g = 1.0 - alpha, 1.0 + v[K]
    apart = value + keep * delta
    if not abs(apart) > 1e-8 * (abs(value) + abs(keep * delta)):
        return NOT_MADE
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
    return keep * delta
