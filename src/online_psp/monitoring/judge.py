"""Scores rows by the model as of the last place, and keeps the statistics of ordinary scores."""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from online_psp.engine.libraries import to_host
from online_psp.engine.rows import AnyRows
from online_psp.engine.types import Floats
from online_psp.monitoring.limits import SpeMoments, enough, limits_of
from online_psp.monitoring.memory import Memory
from online_psp.monitoring.scores import Scores, Snapshot, score, snapshot
from online_psp.pca import OnlinePCA


class Judge(NamedTuple):
    """Scores rows by their distance from a model, and knows what ordinary rows have."""

    seen: Snapshot | None = None
    """The model as of the last place; None before it has learned enough."""
    moments: SpeMoments = SpeMoments()
    """Moments of the SPE, up to the last place."""
    pending: Annotated[Floats, "pending"] = np.zeros(0)
    """SPE of the rows since then."""
    fading: Annotated[Floats, "pending"] = np.zeros(0)
    """For each of these rows, the share of all earlier weight that is left when it arrives."""
    last_time: float | None = None
    """Time of the last of these rows, if the model forgets by time."""

    def limits(self, alpha: float) -> tuple[float, float]:
        """Limits of T² and of the SPE; NaN while they are not known."""
        return (math.nan, math.nan) if self.seen is None else limits_of(self.seen, self.moments, alpha)

    def scored(self, rows: AnyRows, limits: tuple[float, float]) -> tuple[Scores, NDArray[np.bool_]]:
        """T² and SPE of rows, (n,) each, and which exceed a limit; NaN while the model has learned too little."""
        if self.seen is None:
            unknown = np.full(len(rows), math.nan)
            return Scores(unknown, unknown), np.zeros(len(rows), dtype=bool)
        scores = Scores(*(np.asarray(to_host(each), dtype=np.float64) for each in score(self.seen, rows)))
        return scores, (scores.t2 > limits[0]) | (scores.spe > limits[1])

    def add(self, spe: Floats, seconds: Floats | None, memory: Memory) -> Judge:
        """With the SPE of ordinary rows, and their times if the model forgets by time; NaN is ignored."""
        known = np.isfinite(spe)
        if not known.any():
            return self
        spe, seconds = spe[known], None if seconds is None else seconds[known]
        fading = np.concatenate([self.fading, memory.decays(seconds, self.last_time, len(spe))])
        last = None if seconds is None else float(seconds[-1])
        return self._replace(pending=np.concatenate([self.pending, spe]), fading=fading, last_time=last)

    def total(self) -> SpeMoments:
        """Moments of the SPE of all rows so far."""
        return self.moments.take(self.pending, self.fading)

    def read(self, model: OnlinePCA, memory: Memory) -> Judge:
        """By the present model, and by all scores added so far."""
        seen = snapshot(model) if model.__sklearn_is_fitted__() else None
        # Rows only add to what is known. But if the model forgets by time, a pause takes some of it away.
        begun = self.seen is not None and not memory.in_time
        known = seen is not None and (enough(seen) or (begun and len(seen.variances) > 0))
        return self._replace(seen=seen if known else None, moments=self.total(), pending=np.zeros(0), fading=np.zeros(0))
