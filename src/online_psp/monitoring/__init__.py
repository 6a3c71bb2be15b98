"""Monitoring a stream: how unusual rows are, which are outliers, and when the stream has changed."""

from __future__ import annotations

from online_psp.monitoring.limits import SpeMoments, spe_limit, t2_limit
from online_psp.monitoring.monitor import Monitor
from online_psp.monitoring.outliers import SubspaceOutlierDetector
from online_psp.monitoring.results import Alarm, Update
from online_psp.monitoring.scores import Contributions, contributions, spe, t2

__all__ = [
    "Alarm",
    "Contributions",
    "Monitor",
    "SpeMoments",
    "SubspaceOutlierDetector",
    "Update",
    "contributions",
    "spe",
    "spe_limit",
    "t2",
    "t2_limit",
]
