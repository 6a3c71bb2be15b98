"""The charts that a monitor looks for drift on: log SPE, log T², and the overlap of two subspaces."""

from __future__ import annotations

import copy
import math
from typing import Any, NamedTuple, Self

from online_psp.engine.types import Floats
from online_psp.monitoring.detectors import Cusum, check_detector, fresh, rows_since

SPE, T2, SUBSPACE = "spe", "t2", "subspace"
CHARTS = (SPE, T2, SUBSPACE)
_LOOKS = 30  # comparisons of the two subspaces before one can be an alarm


class Found(NamedTuple):
    """A change that a chart has found."""

    chart: str
    since: int
    """How many of the last rows are thought to come after it."""


class Charts:
    """A detector on each chart.

    Parameters
    ----------
    detector : detector, "cusum" or None
        Copied for the charts of log SPE and log T²; None looks for nothing.
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
        """Begin all charts anew."""
        if self.detector is not None:
            self.on = {SPE: fresh(self.detector), T2: fresh(self.detector)}
            # Neighbouring looks share rows; an allowance of a whole standard deviation is beyond what that does.
            self.on[SUBSPACE] = Cusum(12.0, allowance=1.0, warmup=_LOOKS, clip=4.0, correlated=False, upward=True)

    def copied(self) -> Self:
        """As they stand, to come back to."""
        other = copy.copy(self)
        other.on = {name: copy.copy(chart) if isinstance(chart, Cusum) else copy.deepcopy(chart) for name, chart in self.on.items()}
        return other

    def look(self, spe: Floats, t2: Floats) -> tuple[Found | None, int]:
        """Take in values of the first two charts up to the first alarm: the alarm, and how many rows that took."""
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
        """Take in the overlap of two subspaces, `rows` rows after the one before."""
        chart = self.on[SUBSPACE]
        chart.update(math.log(max(1.0 - overlap, 1e-12)))
        return Found(SUBSPACE, chart.since * rows) if chart.drift_detected else None
