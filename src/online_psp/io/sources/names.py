"""Matching columns by name: puts the rows of a source in the column order of a model, or of another source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from online_psp.io.sources.source import SourceError

_SHOWN = 8


def order_of(known: Sequence[str] | None, found: Sequence[str] | None, source: str, model: str = "the model") -> Any:
    """The column of the source for each feature of the model, (D,); None if the order is right already, or there are no names.

    Parameters
    ----------
    known, found : names of the model's features, and of the source's columns; None if there are none

    Raises
    ------
    SourceError
        If columns are missing, or unknown to the model; the message names them.
    """
    if known is None or found is None or list(known) == list(found):
        return None
    if len(set(found)) < len(found) or len(set(known)) < len(known):
        raise SourceError(f"The columns of {source} are not those of {model}, and cannot be matched, because some names come twice.")
    places = {name: place for place, name in enumerate(found)}
    missing, unknown = [name for name in known if name not in places], sorted(set(found) - set(known), key=places.__getitem__)
    if missing or unknown:
        parts = [f"{_listed(missing)} {_verb(missing)} missing"] if missing else []
        parts += [f"{_listed(unknown)} {_verb(unknown)} unknown to {model}"] if unknown else []
        hint = "; choose with --columns or --exclude" if unknown and not missing else ""
        raise SourceError(f"The columns of {source} are not those of {model}: {', and '.join(parts)}{hint}.")
    return np.array([places[name] for name in known], dtype=np.intp)


def ordered(rows: Any, order: Any) -> Any:
    """Rows, dense or CSR, with their columns in the given order."""
    return rows if order is None else rows[:, order]


def _verb(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _listed(names: list[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:_SHOWN])
    return f"{shown} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else shown
