"""A verdict, and the names of its outcomes."""

from __future__ import annotations

from dataclasses import dataclass

HOLDS, PARTLY, FAILS, OPEN = "holds", "holds in part", "does not hold", "not tested"
BY_MORE, BY_LESS = "by more", "by less"
UNDECIDED = "not decided"
"""There are enough trials for a test, but it decides no panel either way."""


@dataclass(frozen=True)
class Verdict:
    """A statement, and what the rows say about it.

    Attributes
    ----------
    rule : str
        How the outcome follows from the rows.
    widened : str
        What was changed in the rule after rows had been seen, and why; empty if nothing was.
    """

    statement: str
    outcome: str
    evidence: str
    rule: str
    widened: str = ""


def share(hits: int, of: int) -> str:
    """The outcome for a share of cases: all of them holds, more than half holds in part."""
    return HOLDS if hits == of else PARTLY if 2 * hits > of else FAILS
