"""The paper's algorithms. A new one is a file beside these and a line in `ALGORITHMS`."""

from __future__ import annotations

from typing import Any

from online_psp.algorithms.base import StreamingAlgorithm
from online_psp.algorithms.ccipca import CCIPCA
from online_psp.algorithms.fsm import FSM
from online_psp.algorithms.ipca import IPCA
from online_psp.algorithms.sm import SM

ALGORITHMS: dict[str, Any] = {"fsm": FSM, "sm": SM, "ipca": IPCA, "ccipca": CCIPCA}

__all__ = ["ALGORITHMS", "CCIPCA", "FSM", "IPCA", "SM", "StreamingAlgorithm"]
