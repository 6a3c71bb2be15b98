"""The paper's experiments, on synthetic data, real data and your own.

The public names are imported on first use, so that the command line starts quickly.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from online_psp.experiments.evaluation import Evaluation, Plan, evaluate
    from online_psp.experiments.records import Curve, Experiment, RealData, SpikedData, Timing
    from online_psp.experiments.reproduction import Reproduction, reproduce
    from online_psp.experiments.rows import Row, read_rows
    from online_psp.experiments.runner import run

_HOME = {
    "Curve": "records",
    "Evaluation": "evaluation",
    "Experiment": "records",
    "Plan": "evaluation",
    "RealData": "records",
    "Reproduction": "reproduction",
    "Row": "rows",
    "SpikedData": "records",
    "Timing": "records",
    "evaluate": "evaluation",
    "read_rows": "rows",
    "reproduce": "reproduction",
    "run": "runner",
}

__all__ = [
    "Curve",
    "Evaluation",
    "Experiment",
    "Plan",
    "RealData",
    "Reproduction",
    "Row",
    "SpikedData",
    "Timing",
    "evaluate",
    "read_rows",
    "reproduce",
    "run",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
