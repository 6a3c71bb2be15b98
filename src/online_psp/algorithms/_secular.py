"""Eigenpairs of a diagonal matrix plus a rank-one term, the step inside IPCA.

``diag(d) + rho z zᵀ`` with ``rho >= 0`` has eigenvalues that interlace ``d``; each is a root of the secular equation
``1 + rho Σ z_j²/(d_j − λ) = 0`` and costs O(K), so all of them cost O(K²) where a dense solver pays O(K³). The recipe is the one behind
divide-and-conquer solvers: deflate what does not move (Bunch, Nielsen, Sorensen 1978), find each root as an offset from its nearest
pole, then rebuild ``z`` from the roots so that the vectors come out orthogonal to working precision (Gu and Eisenstat 1994).
"""

from __future__ import annotations

import numpy as np

from online_psp._numba import kernel
from online_psp.types import Floats

_EPS = float(np.finfo(np.float64).eps)
_MAX_ITERATIONS = 100


@kernel
def _root(d: Floats, z2: Floats, rho: float, i: int, offsets: Floats) -> float:
    """The i-th root; ``offsets[j] = d[j] − λ_i``, each to high relative accuracy.

    The origin is moved to the nearer pole, and the offset ``mu`` from it found by a rational interpolation that is exact for two poles,
    with bisection whenever that leaves the bracket.
    """
    k = d.shape[0]
    if i < k - 1:
        gap = d[i + 1] - d[i]
        middle = 0.5 * gap
        value = 1.0
        for j in range(k):
            value += rho * z2[j] / ((d[j] - d[i]) - middle)
        origin = i if value >= 0.0 else i + 1
        low, high = (0.0, middle) if value >= 0.0 else (-middle, 0.0)
    else:
        total = 0.0
        for j in range(k):
            total += z2[j]
        origin = i
        low, high = 0.0, rho * total
    for j in range(k):
        offsets[j] = d[j] - d[origin]
    mu = 0.5 * (low + high)
    for _ in range(_MAX_ITERATIONS):
        left, left_slope, right, right_slope = 0.0, 0.0, 0.0, 0.0
        for j in range(i + 1):
            ratio = z2[j] / (offsets[j] - mu)
            left += ratio
            left_slope += ratio / (offsets[j] - mu)
        for j in range(i + 1, k):
            ratio = z2[j] / (offsets[j] - mu)
            right += ratio
            right_slope += ratio / (offsets[j] - mu)
        value = 1.0 + rho * (left + right)
        if abs(value) <= _EPS * k * (1.0 + rho * (abs(left) + abs(right))):
            break
        if value < 0.0:
            low = mu
        else:
            high = mu
        # Interpolate the poles on the left by one at offsets[i], those on the right by one at offsets[i+1], each matching value and slope.
        near = offsets[i] - mu
        slope_left = rho * left_slope
        if i < k - 1:
            far = offsets[i + 1] - mu
            slope_right = rho * right_slope
            constant = value - near * slope_left - far * slope_right
            # constant·η² − b·η + near·far·value = 0
            b = (near + far) * value - near * far * (slope_left + slope_right)
            c = near * far * value
            discriminant = max(b * b - 4.0 * constant * c, 0.0)
            step = 2.0 * c / (b + np.sqrt(discriminant)) if b > 0.0 else (b - np.sqrt(discriminant)) / (2.0 * constant)
        else:
            # One pole: value + slope·η·near/(near − η) = 0 with the sum at infinity kept.
            constant = value - near * slope_left
            step = near * value / constant if constant != 0.0 else 0.0
        proposal = mu + step
        if not (low < proposal < high):
            proposal = 0.5 * (low + high)
        if proposal == mu or high - low <= _EPS * max(abs(low), abs(high)):
            mu = proposal
            break
        mu = proposal
    for j in range(k):
        offsets[j] -= mu
    return float(d[origin] + mu)


@kernel
def deflate(d: Floats, z: Floats, rho: float, rows: Floats, active: Floats) -> int:
    """Rotate away what the rank-one term does not move.

    Parameters
    ----------
    d : (k,) ascending
    z : (k,), changed in place
    rho : float
    rows : (k, m)
        The vectors that belong to ``d``; a plane rotation that zeroes an entry of ``z`` is applied to them too.
    active : (k,)
        On return, 1 where the eigenvalue still has to be found, 0 where ``d`` is one already.

    Returns
    -------
    int
        The number of active entries.
    """
    k = d.shape[0]
    norm2 = 0.0
    largest = 0.0
    for j in range(k):
        norm2 += z[j] * z[j]
        largest = max(largest, abs(d[j]))
    tolerance = 8.0 * _EPS * max(largest, rho * norm2)
    scale = np.sqrt(norm2)
    count = 0
    previous = -1
    for j in range(k):
        active[j] = 0.0
        if rho * abs(z[j]) * scale <= tolerance:
            continue
        if previous >= 0:
            radius = np.hypot(z[previous], z[j])
            cosine, sine = z[j] / radius, z[previous] / radius
            if abs((d[j] - d[previous]) * cosine * sine) <= tolerance:
                # Nearly equal: turn the pair so that z vanishes on the first of them.
                first, second = d[previous], d[j]
                d[previous] = first * cosine * cosine + second * sine * sine
                d[j] = first * sine * sine + second * cosine * cosine
                z[previous], z[j] = 0.0, radius
                for column in range(rows.shape[1]):
                    one, two = rows[previous, column], rows[j, column]
                    rows[previous, column] = cosine * one - sine * two
                    rows[j, column] = sine * one + cosine * two
                active[previous] = 0.0
                count -= 1
        active[j] = 1.0
        count += 1
        previous = j
    return count


@kernel
def secular_eigh(d: Floats, z: Floats, rho: float) -> tuple[Floats, Floats]:
    """All eigenpairs of ``diag(d) + rho z zᵀ`` for strictly ascending ``d`` and nonzero ``z`` (see :func:`deflate`).

    Returns
    -------
    eigenvalues : (k,) ascending
    vectors : (k, k)
        Row i is the eigenvector of eigenvalue i.
    """
    k = d.shape[0]
    z2 = z * z
    eigenvalues = np.empty(k)
    offsets = np.empty((k, k))
    for i in range(k):
        eigenvalues[i] = _root(d, z2, rho, i, offsets[i])
    vectors = np.empty((k, k))
    # The z for which the computed roots are exact: then the vectors are orthogonal however close the roots are.
    exact = np.empty(k)
    for j in range(k):
        product = -offsets[j, j] / rho
        for i in range(j):
            product *= offsets[i, j] / (d[j] - d[i])
        for i in range(j + 1, k):
            product *= offsets[i, j] / (d[j] - d[i])
        exact[j] = np.copysign(np.sqrt(abs(product)), z[j])
    for i in range(k):
        norm2 = 0.0
        for j in range(k):
            entry = exact[j] / offsets[i, j]
            vectors[i, j] = entry
            norm2 += entry * entry
        inverse = 1.0 / np.sqrt(norm2)
        for j in range(k):
            vectors[i, j] *= inverse
    return eigenvalues, vectors
