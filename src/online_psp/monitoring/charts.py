"""The charts on which a monitor looks for drift: log SPE, log T², and the overlap of two subspaces."""

from __future__ import annotations

import copy
import math
from typing import Any, NamedTuple, Self

from online_psp.engine.types import Floats
from online_psp.monitoring.detectors import Cusum, check_detector, fresh, rows_since

SPE, T2, SUBSPACE = "spe", "t2", "subspace"
CHARTS = (SPE, T2, SUBSPACE)
_LOOKS = 30  # comparisons of the two subspaces before there can be an alarm


class Found(NamedTuple):
    """A change that a chart has found."""

    chart: str
    since: int
    """Estimated number of rows since the change."""


class Charts:
    """A detector on each chart.

    Parameters
    ----------
    detector : detector, "cusum" or None
        Copied for the charts of log SPE and log T². With None, drift is not looked for.
    """

    def __init__(self, detector: Any) -> None:
        if isinstance(detector, str) and detector != "cusum":
            raise ValueError(f"detector must be 'cusum', None, or an object such as those of river.drift; got {detector!r}.")
        self.detector = Cusum() if isinstance(detector, str) else detector
        if self.detector is not None:
            check_detector(self.detector)
        self.on: dict[str, Any] = {}
        self.start()

    def __bool__(self) -> bool:
        return self.detector is not None

    def start(self) -> None:
        """Start all charts anew."""
        if self.detector is not None:
            self.on = {SPE: fresh(self.detector), T2: fresh(self.detector)}
            # Neighbouring comparisons share rows; an allowance of a whole standard deviation more than makes up for it.
            self.on[SUBSPACE] = Cusum(12.0, allowance=1.0, warmup=_LOOKS, clip=4.0, correlated=False, upward=True)

    def copied(self) -> Self:
        """A copy of the charts in their present state, to go back to after an error."""
        other = copy.copy(self)
        other.on = {name: copy.copy(chart) if isinstance(chart, Cusum) else copy.deepcopy(chart) for name, chart in self.on.items()}
        return other

    def look(self, spe: Floats, t2: Floats) -> tuple[Found | None, int]:
        """Add values to the first two charts up to the first alarm; returns the alarm, and the number of rows up to it."""
        if self.detector is None:
            return None, len(spe)
        outside, inside = self.on[SPE], self.on[T2]
        for i, (one, two) in enumerate(zip(spe.tolist(), t2.tolist(), strict=True)):
            outside.update(one)
            inside.update(two)
            if outside.drift_detected or inside.drift_detected:
                return Found(SPE if outside.drift_detected else T2, rows_since(outside, inside)), i + 1
        return None, len(spe)

    def compare(self, overlap: float, rows: int) -> Found | None:
        """Add an overlap of the two subspaces, measured `rows` rows after the last one; returns the alarm, if there is one."""
        chart = self.on[SUBSPACE]
        chart.update(math.log(max(1.0 - overlap, 1e-12)))
        return Found(SUBSPACE, chart.since * rows) if chart.drift_detected else None
