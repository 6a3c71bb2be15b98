"""The paper's experiments on synthetic and real data, and on yours."""

from __future__ import annotations

from online_psp.experiments.evaluation import Evaluation, evaluate
from online_psp.experiments.records import Curve, Experiment, RealData, SpikedData, Timing
from online_psp.experiments.reproduction import Reproduction, reproduce
from online_psp.experiments.rows import Row, read_rows
from online_psp.experiments.runner import run

__all__ = [
    "Curve",
    "Evaluation",
    "Experiment",
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
