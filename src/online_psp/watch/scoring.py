"""Scores of a sample of the rows, for a learner that has no monitor."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from online_psp.engine.rows import as_rows
from online_psp.monitoring import SpeMoments, Update
from online_psp.monitoring.limits import enough, limits_of
from online_psp.monitoring.results import unknown
from online_psp.monitoring.scores import Snapshot, score, snapshot
from online_psp.pca import OnlinePCA

ALPHA = 0.01


class Sampler:
    """Scores rows by the last model that was handed over before they were learned."""

    def __init__(self) -> None:
        self._seen: Snapshot | None = None
        self._moments = SpeMoments()
        self.scored = self.outliers = 0

    def score(self, rows: Any) -> Update:
        """Score rows (n, D) by the model of the last `look`, which has not learned them."""
        found, seen = unknown(rows.shape[0]), self._seen
        if seen is None or seen.mean.shape[0] != rows.shape[1]:
            return found
        with np.errstate(over="ignore", invalid="ignore"):
            scores = score(seen, as_rows(rows, np.dtype(np.float64)))
        t2, spe = (np.asarray(each, dtype=np.float64) for each in scores)
        limits = limits_of(seen, self._moments, ALPHA)
        outlier = (t2 > limits[0]) | (spe > limits[1])
        self._moments = self._moments.take(spe[np.isfinite(spe)])
        self.scored += len(t2)
        self.outliers += int(outlier.sum())
        found.t2_limit[:], found.spe_limit[:] = limits
        return found._replace(t2=t2, spe=spe, outlier=outlier)

    def look(self, model: OnlinePCA) -> None:
        """Score rows by this model from now on."""
        seen = snapshot(model)
        self._seen = seen if enough(seen) else None
        if self._seen is None:
            self._moments = SpeMoments()


def spe_at(numbers: Any, scored: list[tuple[Any, Any]]) -> Any:
    """Look up the SPE of rows by their numbers; NaN for rows that were not scored."""
    if not scored:
        return np.full(len(numbers), math.nan)
    known, values = (np.concatenate(each) for each in zip(*scored, strict=True))
    at = np.minimum(np.searchsorted(known, numbers), len(known) - 1)
    return np.where(known[at] == numbers, values[at], math.nan)
