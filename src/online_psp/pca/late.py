"""Features that appear late: a model is extended to them as if earlier rows had been filled by a regression.

Earlier rows could not be filled in such a feature, and count as zero there. So it is regressed on the coordinates of the rows in which it
first appears, and the directions are extended to it.
"""

from __future__ import annotations

import numpy as np

from online_psp.engine.blas import matmul
from online_psp.engine.types import Floats
from online_psp.pca.directions import leading_of_rows
from online_psp.pca.fill import Mask, expect, gaussian, typical_share


def carried_over(
    B: Floats, d: Floats, covariance: Floats | None, variance: Floats, rows: Floats, observed: Mask, weights: Floats, fresh: Mask
) -> tuple[Floats, Floats, Floats | None]:
    """Directions, variances along them and, where it is kept, the covariance, extended to features that appear for the first time.

    Parameters
    ----------
    B, d : (k, D), (k,)
        Directions so far, zero in those features, and variances.
    covariance : (D, D), optional
    variance : (D,)
        Of each feature.
    rows, observed : (n, D)
        Centred, 0 where nothing is observed.
    weights : (n,)
    fresh : (D,)
        Which features appear.
    """
    old = observed & ~fresh
    model = gaussian(B, d, float(variance[~fresh].sum()), typical_share(old))
    along = expect(model, np.where(old, rows, 0.0), old).along
    k, components = along.shape[1], B.copy()
    for feature in np.flatnonzero(fresh):
        counted = weights * observed[:, feature]
        inner = matmul((along * counted[:, np.newaxis]).T, along)
        inner.flat[:: k + 1] += float(inner.trace()) / max(int((counted > 0).sum()), 1) + float(np.finfo(np.float64).tiny)
        components[:k, feature] = np.linalg.solve(inner, (along * counted[:, np.newaxis]).T @ rows[:, feature])
    extended = np.sqrt(d)[:, np.newaxis] * components
    if covariance is not None:
        whole = matmul(extended.T, extended)
        covariance = np.where(fresh | fresh[:, np.newaxis], whole, covariance)
    return *leading_of_rows(extended, len(B)), covariance
