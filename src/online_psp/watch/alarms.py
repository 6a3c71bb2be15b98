"""Alarms as the page shows them: what changed, the row that raised the alarm, and the features that contributed most."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from online_psp.engine.types import Floats
from online_psp.monitoring import Alarm
from online_psp.monitoring.results import shares
from online_psp.watch.frames import Witness
from online_psp.watch.pictures import component_picture, feature_name, row_picture

_FEATURES = 12
_WORDS = {
    "mean": "the mean has moved",
    "spread": "the spread has changed",
    "direction": "the directions have changed",
}
_CHARTS = {"spe": "on the SPE", "t2": "on T²", "subspace": "by comparing with a model that forgets faster"}


def described(alarm: Alarm, number: int, names: Sequence[str] | None) -> dict[str, Any]:
    """An alarm in words."""
    return {
        "label": alarm.label,
        "shares": shares(alarm, names),
        "number": number,
        "kind": alarm.kind,
        "title": f"Row {number:,}: {_WORDS.get(alarm.kind, alarm.kind)}",
        "found": f"Found {_CHARTS.get(alarm.chart, alarm.chart)}, {alarm.since:,} rows after the change.",
    }


def opened(witness: Witness, names: Sequence[str] | None, shape: tuple[int, ...] | None) -> dict[str, Any]:
    """An alarm with its row: scores, limits, the features that add most to either score, and pictures if rows are pictures."""
    found = described(witness.alarm, witness.number, names)
    found["scores"] = {
        "t2": _number(float(witness.t2.sum())),
        "t2_limit": _number(witness.t2_limit),
        "spe": _number(float(witness.spe.sum())),
        "spe_limit": _number(witness.spe_limit),
    }
    found["features"] = [
        {
            "name": feature_name(names, int(i), shape),
            "value": _number(float(witness.row[i])),
            "t2": _number(float(witness.t2[i])),
            "spe": _number(float(witness.spe[i])),
        }
        for i in _leading(witness)
    ]
    if shape is not None:
        found["pictures"] = [
            {"name": "the row", "image": row_picture(witness.row, shape)},
            {"name": "its SPE", "image": component_picture(np.sqrt(np.maximum(witness.spe, 0.0)), shape)},
            {"name": "its T²", "image": component_picture(witness.t2, shape)},
        ]
    return found


def _leading(witness: Witness) -> list[int]:
    """Features that add most to the scores, each in units of the score's limit."""
    sizes = _in_units(witness.spe, witness.spe_limit) + _in_units(witness.t2, witness.t2_limit)
    return [int(i) for i in np.argsort(-sizes, kind="stable")[:_FEATURES]]


def _in_units(parts: Floats, limit: float) -> Floats:
    unit = limit if math.isfinite(limit) and limit > 0 else float(np.abs(parts).sum()) or 1.0
    return np.asarray(np.abs(parts) / unit)


def _number(value: float) -> float | None:
    """A number that JSON can hold: None if it is not finite."""
    return value if math.isfinite(value) else None
