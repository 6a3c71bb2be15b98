"""Algorithms of other papers, to compare with: plain NumPy, as published. A new one is a file beside these and a line in `_FILES`."""

from __future__ import annotations

from importlib import import_module

from online_psp.suite.rivals.rival import Held, Rival, RivalModel

_FILES = (
    "oja",
    "krasulina",
    "sga",
    "gha",
    "adaoja",
    "history_pca",
    "isvd",
    "frequent_directions",
    "grouse",
    "petrels",
)

RIVALS: dict[str, Rival] = {name: import_module(f"{__name__}.{name}").RIVAL for name in _FILES}

__all__ = ["RIVALS", "Held", "Rival", "RivalModel"]
