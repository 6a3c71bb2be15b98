"""The published algorithms. A new one is a file beside these and a line in `ALGORITHMS`."""

from __future__ import annotations

from typing import Any

from online_psp.algorithms._base import StreamingAlgorithm
from online_psp.algorithms.adaoja import AdaOja
from online_psp.algorithms.block import BlockPCA
from online_psp.algorithms.ccipca import CCIPCA
from online_psp.algorithms.fd import FrequentDirections
from online_psp.algorithms.fsm import FSM
from online_psp.algorithms.gha import GHA
from online_psp.algorithms.grouse import GROUSE
from online_psp.algorithms.history import HistoryPCA
from online_psp.algorithms.ipca import IPCA
from online_psp.algorithms.isvd import IncrementalSVD
from online_psp.algorithms.oja import Oja
from online_psp.algorithms.petrels import PETRELS
from online_psp.algorithms.sga import SGA
from online_psp.algorithms.sm import SM

ALGORITHMS: dict[str, Any] = {
    "fsm": FSM,
    "sm": SM,
    "ipca": IPCA,
    "ccipca": CCIPCA,
    "block": BlockPCA,
    "oja": Oja,
    "sga": SGA,
    "gha": GHA,
    "adaoja": AdaOja,
    "history": HistoryPCA,
    "isvd": IncrementalSVD,
    "fd": FrequentDirections,
    "grouse": GROUSE,
    "petrels": PETRELS,
}

__all__ = [
    "ALGORITHMS",
    "CCIPCA",
    "FSM",
    "GHA",
    "GROUSE",
    "IPCA",
    "PETRELS",
    "SGA",
    "SM",
    "AdaOja",
    "BlockPCA",
    "FrequentDirections",
    "HistoryPCA",
    "IncrementalSVD",
    "Oja",
    "StreamingAlgorithm",
]
