"""The published algorithms. A new one is a file beside these and a line in `ALGORITHMS`."""

from __future__ import annotations

from online_psp.algorithms._base import StreamingAlgorithm
from online_psp.algorithms.ccipca import CCIPCA
from online_psp.algorithms.fsm import FSM
from online_psp.algorithms.ipca import IPCA
from online_psp.algorithms.sm import SM

ALGORITHMS = {"fsm": FSM, "sm": SM, "ipca": IPCA, "ccipca": CCIPCA}

__all__ = ["ALGORITHMS", "CCIPCA", "FSM", "IPCA", "SM", "StreamingAlgorithm"]
