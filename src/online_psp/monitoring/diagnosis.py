"""Diagnosis of a change that the charts have found: its kind, its beginning, what has moved and by how much."""

from __future__ import annotations

import math

import numpy as np

from online_psp.engine.rows import AnyRows
from online_psp.engine.types import Floats
from online_psp.io.alarms import KINDS
from online_psp.monitoring.charts import ChartState, Found
from online_psp.monitoring.results import Alarm

MEAN, SPREAD, DIRECTION = KINDS
_LEADING = 3  # features that an alarm names
_MANY = 64  # rows since the change that are looked at
_CLEAR = 2.0  # deviations: features that have moved less have no share


def diagnose(state: ChartState, found: Found, rows: AnyRows, row: int, label: str) -> Alarm:
    """Describe a change.

    Parameters
    ----------
    state : ChartState
        The charts at the alarm.
    found : Found
    rows : rows
        The last rows up to the alarm.
    row : int
        Number of the row that raised it.
    label : str
        What this row is known by.
    """
    frame, limits, parts = state.frame, state.limits, state.frame.parts
    assert limits is not None
    since = _onset(np.concatenate([_evidence(state, found, rows[i : i + _MANY]) for i in range(0, len(rows), _MANY)]))
    newest = frame.channels(rows[max(len(rows) - min(since, _MANY), 0) :])
    if found.part == "turn":
        sine = float(np.linalg.norm(found.cross[found.number])) / math.sqrt(frame.seen.variances[found.number])
        angle = math.degrees(math.asin(min(sine, 1.0)))
        features, moved = _shares((found.cross**2).sum(axis=0)), ("component", found.number)
        return Alarm(row, DIRECTION, "subspace", since, features, label, moved, _rounded(angle))
    inside = found.part in ("y", "y2", "t2")
    mean, squares, total = ("y", "y2", "t2") if inside else ("r", "r2", "spe")
    kind = MEAN if found.only_mean else _kind(state, found, newest)
    if kind == MEAN:
        part, index = mean, found.number if found.part == mean else int(np.argmax(np.abs(found.moved[parts[mean]])))
    else:
        part, index = (found.part, found.number) if found.part in (squares, "z2") else (total, 0)
    at, now = parts[part].start + index, newest.mean(axis=0)
    change = None
    if kind == MEAN:
        change = float((now - limits.center)[at] / limits.spread[at])
    elif kind == SPREAD:
        change = math.sqrt(max(float(now[at]), 0.0) / max(float(limits.center[at]), np.finfo(np.float64).tiny))
    moved = ("all" if part == total else "component" if inside else "feature"), index
    # What is no clearer than noise has no share.
    clear = np.where(np.abs(found.moved) > _CLEAR * found.noise, found.moved, 0.0)
    C, variances = frame.seen.components, frame.seen.variances
    y, r = clear[parts["y"]] * np.sqrt(variances), clear[parts["r"]] * frame.around
    if kind == MEAN:  # contributions to T² or SPE of the shift, as of a row
        weights = ((y / variances) @ C if inside else r) * (y @ C + r)
    elif inside:
        weights = np.abs(clear[parts["y2"]]) @ C**2
    else:
        weights = np.abs(clear[parts["z2"]] if part == "z2" else clear[parts["r2"]] * frame.around**2)
    by = None if change is None else _rounded(change)
    return Alarm(row, kind, "t2" if inside else "spe", since, _shares(weights), label, moved, by)


def _evidence(state: ChartState, found: Found, rows: AnyRows) -> Floats:
    """How far rows are from the reference along what has moved, (n,)."""
    frame, limits, parts = state.frame, state.limits, state.frame.parts
    assert limits is not None
    far = 5.0 * limits.spread
    values = np.clip(frame.channels(rows), limits.center - far, limits.center + far)
    if found.part == "turn":
        return np.asarray(np.einsum("ik,kj,ij->i", values[:, parts["y"]], found.cross, values[:, parts["r"]] * frame.around))
    apart, within = values - limits.center, parts[found.part]
    if not found.together:
        return np.asarray(apart[:, within.start + found.number])
    moved = found.moved[within]
    return np.asarray(apart[:, within] @ (limits.whitening @ moved if found.part == "y" else moved * frame.around**2))


def _onset(series: Floats) -> int:
    """Number of rows since a change, at least 2: where the last values differ most from zero, as they would after a step."""
    steps = np.abs(np.cumsum(series[::-1])) / np.sqrt(np.arange(1.0, len(series) + 1.0))
    return max(2, int(np.argmax(steps)) + 1)


def _kind(state: ChartState, found: Found, newest: Floats) -> str:
    """The kind of change that explains rows (n, P) after it.

    If rows have moved together, their products are positive on average: the mean over pairs is an unbiased estimate of the squared length
    of the move. If it is more than a third of their excess over ordinary rows, the *mean* has changed. If not, and what they have outside
    the subspace lies along half as many directions as before (the squared cosines between rows are twice as large), the *directions* have.
    Everything else is *spread*. A single component or feature that moved is looked at first; then all, within the subspace or outside it,
    wherever the rows differ more from ordinary ones.
    """
    frame, limits, parts, n = state.frame, state.limits, state.frame.parts, len(newest)
    assert limits is not None
    totals = np.abs(newest.mean(axis=0) - limits.center)[-2:] / limits.spread[-2:]
    outside = found.part in ("r", "r2", "z2") or bool(totals[1] > totals[0])
    mean, scale = ("r", frame.around) if outside else ("y", np.ones(len(frame.seen.variances)))
    a, ordinary = newest[:, parts[mean]] * scale, limits.center[parts[mean + "2"]] * scale**2
    one = slice(found.number, found.number + 1)
    alone = not found.together and found.part not in ("t2", "spe") and outside == (found.part in ("r", "r2", "z2"))
    if alone and _together(a[:, one], float(ordinary[one].sum())):
        return MEAN
    if _together(a, float(ordinary.sum())):
        return MEAN
    sizes = np.sqrt(np.maximum((a * a).sum(axis=1), np.finfo(np.float64).tiny))[:, np.newaxis]
    cosines = (a / sizes @ (a / sizes).T) ** 2
    alignment, directions = (float(cosines.sum()) - n) / (n * (n - 1)), 2.0 * limits.center[-1] ** 2 / limits.spread[-1] ** 2
    return DIRECTION if outside and totals[1] > 0 and alignment > 2.0 / directions else SPREAD


def _together(a: Floats, ordinary: float) -> bool:
    """Whether rows (n, m) have moved together, if ordinary ones have this squared length."""
    n, lengths = len(a), float((a * a).sum())
    pairs = float((a.sum(axis=0) ** 2).sum()) - lengths
    return pairs / (n * (n - 1)) > (lengths / n - ordinary) / 3 > 0


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")


def _shares(weights: Floats) -> tuple[tuple[int, float], ...]:
    """The largest weights, and the share of each in the sum."""
    weights = np.maximum(weights, 0.0)
    total = float(weights.sum())
    if not 0.0 < total < np.inf:
        return ()
    return tuple((int(i), round(float(weights[i] / total), 3)) for i in np.argsort(-weights, kind="stable")[:_LEADING] if weights[i] > 0)
