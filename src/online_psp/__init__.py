"""Streaming principal subspace projection and online PCA.

The public names are imported on first use, so that ``import online_psp`` costs almost nothing.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # as in typing, which takes longer to load than all of this
if TYPE_CHECKING:
    from typing import Any

    from online_psp.algorithms import ALGORITHMS, CCIPCA, FSM, IPCA, SM
    from online_psp.pca import OnlinePCA

__version__ = "0.3.0"

_HOME = {
    "ALGORITHMS": "algorithms",
    "CCIPCA": "algorithms",
    "FSM": "algorithms",
    "IPCA": "algorithms",
    "OnlinePCA": "pca",
    "SM": "algorithms",
}

__all__ = ["ALGORITHMS", "CCIPCA", "FSM", "IPCA", "SM", "OnlinePCA", "__version__"]


_MODULES = {
    "datasets": "datasets",
    "distributed": "distributed",
    "metrics": "metrics",
    "monitoring": "monitoring",
    "river": "integrations.river",
    "watch": "watch",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{_MODULES[name]}")
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
