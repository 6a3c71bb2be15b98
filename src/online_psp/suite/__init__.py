"""The paper's test suite, and all measuring: data, methods, measures, records → rows → tables, pictures, verdicts, pages."""

from __future__ import annotations

from online_psp.suite.data import Data, Track
from online_psp.suite.evaluation import Evaluation, Plan, evaluate
from online_psp.suite.measure import Trial
from online_psp.suite.methods import Method
from online_psp.suite.paper import Reproduction, Scope, reproduce
from online_psp.suite.rows import Row, read_rows
from online_psp.suite.runner import How, run

__all__ = ["Data", "Evaluation", "How", "Method", "Plan", "Reproduction", "Row", "Scope", "Track", "Trial"]
__all__ += ["evaluate", "read_rows", "reproduce", "run"]
