"""The paper's test suite, and all measuring: data, methods, measures, records → rows → tables, pictures, verdicts, pages.

The public names are imported on first use, so that the command line starts quickly.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from online_psp.suite.data import Data, Track
    from online_psp.suite.evaluation import Evaluation, Plan, evaluate
    from online_psp.suite.measure import Trial
    from online_psp.suite.methods import Method
    from online_psp.suite.paper import Reproduction, Scope, reproduce
    from online_psp.suite.rows import Row, read_rows
    from online_psp.suite.runner import How, run

_HOME = {
    "Data": "data",
    "Evaluation": "evaluation",
    "How": "runner",
    "Method": "methods",
    "Plan": "evaluation",
    "Reproduction": "paper",
    "Row": "rows",
    "Scope": "paper",
    "Track": "data",
    "Trial": "measure",
    "evaluate": "evaluation",
    "read_rows": "rows",
    "reproduce": "paper",
    "run": "runner",
}

__all__ = [
    "Data",
    "Evaluation",
    "How",
    "Method",
    "Plan",
    "Reproduction",
    "Row",
    "Scope",
    "Track",
    "Trial",
    "evaluate",
    "read_rows",
    "reproduce",
    "run",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
