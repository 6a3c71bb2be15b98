"""Scores rows by the model as of the last place, and keeps the statistics of ordinary scores."""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from online_psp.engine.libraries import to_host
from online_psp.engine.rows import AnyRows
from online_psp.engine.types import Floats
from online_psp.monitoring.limits import SpeMoments, spe_limit_of, t2_limit_of
from online_psp.monitoring.memory import Memory, rows_needed
from online_psp.monitoring.scores import Scores, Snapshot, score, snapshot
from online_psp.pca import OnlinePCA


class JudgeState(NamedTuple):
    """The state of a `Judge`."""

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


class Judge:
    """Scores rows by their distance from a model, and tells which exceed a limit.

    Parameters
    ----------
    alpha : float
        Share of ordinary rows that exceed each limit.
    memory : Memory
    """

    def __init__(self, alpha: float, memory: Memory) -> None:
        self.alpha, self._memory = alpha, memory
        self.state = JudgeState()
        self.limits = math.nan, math.nan
        """Limits of T² and of the SPE."""

    @property
    def seen(self) -> Snapshot | None:
        """The model as of the last place."""
        return self.state.seen

    @property
    def moments(self) -> SpeMoments:
        """Mean and variance of the SPE of all rows so far."""
        return self.state.moments.take(self.state.pending, self.state.fading)

    def set_alpha(self, alpha: float) -> None:
        """Change the level of the limits."""
        self.alpha = alpha
        self._set_limits()

    def start(self) -> None:
        """Forget the statistics of ordinary scores."""
        self.restore(JudgeState())

    def restore(self, state: JudgeState) -> None:
        """Restore a state; the limits follow from it."""
        self.state = state
        self._set_limits()

    def scored(self, rows: AnyRows) -> tuple[Scores, NDArray[np.bool_]]:
        """T² and SPE of rows, (n,) each, and which exceed a limit; NaN while the model has learned too little."""
        if self.seen is None:
            unknown = np.full(len(rows), math.nan)
            return Scores(unknown, unknown), np.zeros(len(rows), dtype=bool)
        scores = Scores(*(np.asarray(to_host(each), dtype=np.float64) for each in score(self.seen, rows)))
        return scores, (scores.t2 > self.limits[0]) | (scores.spe > self.limits[1])

    def add(self, spe: Floats, seconds: Floats | None) -> None:
        """Add the SPE of ordinary rows, with their times if the model forgets by time; NaN is ignored."""
        known = np.isfinite(spe)
        if not known.any():
            return
        spe, seconds = spe[known], None if seconds is None else seconds[known]
        state = self.state
        decays = self._memory.decays(seconds, state.last_time, len(spe))
        self.state = state._replace(
            pending=np.concatenate([state.pending, spe]),
            fading=np.concatenate([state.fading, decays]),
            last_time=None if seconds is None else float(seconds[-1]),
        )

    def read(self, model: OnlinePCA) -> None:
        """Judge by the present model from now on, and by all scores added so far."""
        self.state = self.state._replace(moments=self.moments, pending=np.zeros(0), fading=np.zeros(0))
        if not model.__sklearn_is_fitted__():
            return
        seen = snapshot(model)
        K = len(seen.variances)
        # Rows only add to what is known. But if the model forgets by time, a pause takes some of it away.
        begun = self.seen is not None and not self._memory.in_time
        self.state = self.state._replace(seen=seen if K and (begun or seen.samples >= rows_needed(K)) else None)
        self._set_limits()

    def _set_limits(self) -> None:
        seen = self.seen
        if seen is None:
            self.limits = math.nan, math.nan
        else:
            self.limits = t2_limit_of(seen, self.alpha), spe_limit_of(seen, self.state.moments, self.alpha)
