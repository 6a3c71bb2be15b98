"""A verdict, and the words for its outcome."""

from __future__ import annotations

from dataclasses import dataclass

HOLDS, PARTLY, FAILS, OPEN = "holds", "holds in part", "does not hold", "not tested"
BY_MORE, BY_LESS = "by more", "by less"
UNDECIDED = "not decided"
"""Trials enough for a test, and it tells neither way, in no panel."""


@dataclass(frozen=True)
class Verdict:
    """A statement with what the rows say of it.

    Attributes
    ----------
    rule : str
        How the outcome follows from the rows.
    widened : str
        What of the rule was changed after rows had been seen, and why; empty where nothing was.
    """

    statement: str
    outcome: str
    evidence: str
    rule: str
    widened: str = ""


def share(hits: int, of: int) -> str:
    """All: holds. More than half: in part."""
    return HOLDS if hits == of else PARTLY if 2 * hits > of else FAILS
