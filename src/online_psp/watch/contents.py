"""What a page shows: gathered in histories of fixed size, handed out as one JSON document."""

from __future__ import annotations

import base64
import itertools
import json
import math
import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse, vstack

from online_psp.engine.rows import as_rows
from online_psp.engine.types import Floats
from online_psp.monitoring import Alarm, SpeMoments, Update
from online_psp.monitoring.limits import enough, limits_of
from online_psp.monitoring.results import moved, unknown
from online_psp.monitoring.scores import Snapshot, score, snapshot
from online_psp.pca import OnlinePCA
from online_psp.watch.history import Stretches, Trace

_READINGS, _STRETCHES, _NEWEST, _ALARMS = 400, 400, 2000, 100
_ROWS, _BYTES = 2000, 16 << 20  # most rows to show in the plane, and bytes of rows to keep for that
_AXES, _VARIANCES, _SCREE = 10, 8, 64
_PICTURES, _LISTED, _LOADINGS, _FEATURES = 24, 12, 8, 12
_PIXELS = 96  # longest side of a picture
_RATE = 10.0  # seconds over which the rate is measured
_ROUNDING = 1e-15  # of the largest variance
ALPHA = 0.01


class Sample(NamedTuple):
    """Some of the rows that were learned."""

    rows: Any
    """(n, D): a NumPy or CSR array of their own."""
    numbers: Floats
    """(n,): numbers of the rows in their stream, from 1."""
    times: Floats
    """(n,): seconds; NaN if rows have no times."""
    ids: list[list[str]]
    """(n, number of ID columns)."""
    spe: Floats | None = None
    """(n,): SPE by the monitor, if there is one."""


class Witness(NamedTuple):
    """What is known of the row that has raised an alarm."""

    row: Floats
    t2: Floats
    """What each feature adds to T²."""
    spe: Floats


class Contents:
    """Everything that a page shows.

    Parameters
    ----------
    title : str
    image : (height, width) or (height, width, channels), optional
        Shape of the pictures, if rows are pictures.
    feature_names : list of str, optional
    id_names : list of str
    alpha : float, optional
        Share of ordinary rows above each limit, by the monitor that scores the rows. Without one, rows given to `add` are scored here.
    """

    def __init__(
        self,
        title: str,
        image: tuple[int, ...] | None = None,
        feature_names: Sequence[str] | None = None,
        id_names: Sequence[str] = (),
        alpha: float | None = None,
    ) -> None:
        self.title, self.image, self.feature_names, self.id_names, self.alpha = title, image, feature_names, list(id_names), alpha
        self.clock = ""
        """"date" if times are seconds since 1970, "seconds" if they are other numbers; empty if rows have no times."""
        self.outliers = self.scored = self.alarms = 0
        self._readings = Trace(_READINGS)  # row, time, share explained, noise, variances
        self._stretches, self._newest = Stretches(_STRETCHES), np.zeros((6, 0))  # row, time, T², SPE, their limits
        self._samples: deque[Sample] = deque()
        self._alarms: deque[dict[str, Any]] = deque(maxlen=_ALARMS)
        self._paces: deque[tuple[float, int]] = deque()
        self._model: OnlinePCA | None = None  # as of the last reading
        self._axes: Floats | None = None
        self._seen: Snapshot | None = None
        self._moments = SpeMoments()

    # What comes in

    def judge(self, numbers: Floats, times: Floats, found: Update) -> None:
        """Chart the scores of rows."""
        self._stretches.add(numbers, times, found)
        new = np.stack([numbers, times, *(np.asarray(each, dtype=np.float64) for each in found[:4])])
        self._newest = np.concatenate([self._newest, new[:, -_NEWEST:]], axis=1)[:, -_NEWEST:]
        self.outliers += int(np.count_nonzero(found.outlier))
        self.scored += int(np.count_nonzero(np.isfinite(found.t2)))

    def add(self, *samples: Sample) -> None:
        """Show rows in the plane; without a monitor, they are scored by the model as of the last reading, which has not learned them."""
        if not samples:
            return
        sample = _joined(samples)
        if sample.spe is None:
            found = self._scores(sample.rows)
            self.judge(sample.numbers, sample.times, found)
            sample = sample._replace(spe=found.spe)
        if self._samples and self._samples[-1].rows.shape[1] != sample.rows.shape[1]:  # the model has begun anew, with other rows
            self._samples.clear()
        self._samples.append(sample)
        most = min(_ROWS, max(100, _BYTES // (8 * max(1, sample.rows.shape[1]))))
        while sum(len(each.numbers) for each in self._samples) - len(self._samples[0].numbers) >= most:
            self._samples.popleft()

    def _scores(self, rows: Any) -> Update:
        found, seen = unknown(rows.shape[0]), self._seen
        if seen is None or len(seen.mean) != rows.shape[1] or not enough(seen):
            return found
        t2, spe = (np.asarray(each) for each in score(seen, as_rows(rows, np.dtype(np.float64))))
        found.t2_limit[:], found.spe_limit[:] = limits_of(seen, self._moments, ALPHA)
        self._moments = self._moments.take(spe[np.isfinite(spe)])
        return found._replace(t2=t2, spe=spe, outlier=(t2 > found.t2_limit) | (spe > found.spe_limit))

    def alarm(self, alarm: Alarm, number: float, when: float = math.nan, witness: Witness | None = None) -> None:
        """List an alarm; it opens to its row if that is known."""
        entry: dict[str, Any] = {"number": number, "time": _finite(when), "kind": alarm.kind, "chart": alarm.chart, "since": alarm.since}
        entry["moved"] = moved(alarm, None).replace(f"feature {alarm.moved[1]}", self._name(alarm.moved[1]))
        entry |= {"label": alarm.label, "shares": [[self._name(i), share] for i, share in alarm.features]}
        if witness is not None:
            sizes = [np.abs(each) / (float(np.abs(each).sum()) or 1.0) for each in witness[1:]]
            entry["features"] = [[self._name(i), *(_finite(each[i]) for each in witness)] for i in _leading(sizes[0] + sizes[1], _FEATURES)]
            entry["t2"], entry["spe"] = _finite(witness.t2.sum()), _finite(witness.spe.sum())
            if (shape := self._shape(len(witness.row))) is not None:
                entry["pictures"] = [_picture(witness.row, shape, signed=False), *(_picture(each, shape) for each in witness[1:])]
        self._alarms.append(entry)
        self.alarms += 1

    def read(self, model: OnlinePCA, row: int, when: float = math.nan) -> None:
        """Record a fitted model as it is now, which must not change afterwards."""
        model.__dict__.pop("feature_names_in_", None)  # rows are plain arrays here
        model.whiten = False  # coordinates in the units of the rows
        components = np.asarray(model.components_, dtype=np.float64)
        if self._axes is None or self._axes.shape != components.shape:
            self._axes = components
        signs = np.where(np.einsum("kd,kd->k", self._axes, components) < 0.0, -1.0, 1.0)
        self._model, self._axes, self._seen = model, components * signs[:, np.newaxis], snapshot(model)
        point = np.full(4 + _VARIANCES, math.nan)
        variances = model.explained_variance_[:_VARIANCES]
        point[:4] = row, when, 100.0 * model.explained_variance_ratio_.sum(), model.noise_variance_
        point[4 : 4 + len(variances)] = variances
        point[3:][point[3:] <= _ROUNDING * variances.max(initial=0.0)] = math.nan  # nothing to show on a logarithmic axis
        self._readings.add(point)

    # What goes out

    def document(self, row: int, **facts: Any) -> bytes:
        """The page's data as JSON; arrays of numbers are in base64.

        Parameters
        ----------
        row : int
            Number of the newest row.
        facts
            Of the run: status, note, total, saved, …
        """
        now = time.monotonic()
        self._paces.append((now, row))
        while len(self._paces) > 2 and now - self._paces[1][0] > _RATE:
            self._paces.popleft()
        began, first = self._paces[0]
        found: dict[str, Any] = {
            "title": self.title,
            "row": row,
            "rate": (row - first) / (now - began) if now > began else None,
            "clock": self.clock,
            "ids": self.id_names,
            "alpha": ALPHA if self.alpha is None else self.alpha,
            "monitored": self.alpha is not None,
            "outliers": self.outliers,
            "scored": self.scored,
            "alarms": list(self._alarms),
            "alarmed": self.alarms,
            "whole": [_packed(each) for each in self._stretches.table()],
            "newest": [_packed(each) for each in self._newest[[0, 1, 2, 3, 2, 3, 4, 5]]],
            "readings": [_packed(each) for each in self._readings.table().T],
            "model": None if self._model is None else self._about(self._model),
            "rows": self._plane(),
        }
        return json.dumps(found | facts, allow_nan=False).encode()

    def _about(self, model: OnlinePCA) -> dict[str, Any]:
        assert self._axes is not None
        ratios = model.explained_variance_ratio_
        shape = self._shape(self._axes.shape[1])
        shown = self._axes[: _PICTURES if shape else _LISTED]
        return {
            "samples": int(model.n_samples_seen_),
            "features": int(model.n_features_in_),
            "components": int(model.n_components_),
            "explained": _finite(ratios.sum()),
            "noise": _finite(model.noise_variance_),
            "exact": bool(model.exact_),
            "holes": model.missing == "impute",
            "ratios": [_finite(each) for each in ratios[:_SCREE]],
            "variances": _packed(model.explained_variance_[:_SCREE]),
            "errors": _packed(model.explained_variance_error_[:_SCREE]),
            "span_error": model.subspace_error_,
            "alike": [[first + 1, last + 1] for first, last in model.not_told_apart_],
            "effective": model.kish_samples_,
            "pictures": None if shape is None else [_picture(each, shape) for each in shown],
            "loadings": None if shape is not None else [self._largest(each) for each in shown],
        }

    def _plane(self) -> dict[str, Any] | None:
        """The newest rows along the first components."""
        if self._model is None or self._axes is None or not self._samples:
            return None
        if self._samples[-1].rows.shape[1] != self._model.n_features_in_:
            return None
        shown = _joined(self._samples)
        signs = np.sign(np.einsum("kd,kd->k", self._axes, self._model.components_))
        places = (np.asarray(self._model.transform(shown.rows)) * signs)[:, :_AXES].T
        found: dict[str, Any] = {name: _packed(getattr(shown, name)) for name in ("numbers", "times", "spe")}
        return found | {"places": [_packed(each) for each in places], "ids": shown.ids}

    def _shape(self, features: int) -> tuple[int, ...] | None:
        return self.image if self.image is not None and math.prod(self.image) == features else None

    def _name(self, number: int) -> str:
        """The name of a feature, its place in a picture, or its number from 0."""
        if self.feature_names is not None and number < len(self.feature_names) and self.feature_names[number].strip():
            return str(self.feature_names[number])
        if self.image is None:
            return f"feature {number}"
        return "pixel " + ", ".join(str(int(place)) for place in np.unravel_index(number, self.image))

    def _largest(self, values: Floats) -> list[list[Any]]:
        """The features of largest loadings."""
        return [[self._name(i), float(values[i])] for i in _leading(np.abs(values), _LOADINGS)]


def _joined(samples: Iterable[Sample]) -> Sample:
    rows, numbers, times, ids, spe = zip(*samples, strict=True)
    whole: Any = vstack(rows).tocsr() if any(map(issparse, rows)) else np.concatenate(rows)
    known = None if any(each is None for each in spe) else np.concatenate(spe)
    return Sample(whole, np.concatenate(numbers), np.concatenate(times), list(itertools.chain(*ids)), known)


def _leading(sizes: Floats, count: int) -> list[int]:
    """Places of the largest sizes, largest first."""
    some = np.argpartition(-sizes, min(count, len(sizes)) - 1)[:count]
    return [int(i) for i in some[np.argsort(-sizes[some], kind="stable")]]


def _finite(value: Any) -> float | None:
    """A number that JSON can hold: None if it is not finite."""
    return float(value) if math.isfinite(value) else None


def _packed(values: Any) -> dict[str, str]:
    return {"f64": base64.b64encode(np.ascontiguousarray(values, dtype="<f8").tobytes()).decode()}


def _picture(values: Floats, shape: tuple[int, ...], signed: bool = True) -> dict[str, Any]:
    """A picture in bytes: from smallest to largest value or, if signed, with zero in the middle."""
    pixels = np.nan_to_num(values).reshape(*shape[:2], -1)
    step = -(-max(shape[:2]) // _PIXELS)
    height, width = (max(1, length // step) for length in shape[:2])
    if step > 1 and min(shape[:2]) >= step:
        pixels = pixels[: height * step, : width * step].reshape(height, step, width, step, -1).mean(axis=(1, 3))
    size = float(np.abs(pixels).max()) or 1.0
    low, high = (-size, size) if signed else (float(pixels.min()), float(pixels.max()))
    found = np.round(255.0 * (pixels - low) / ((high - low) or 1.0)).astype(np.uint8)
    return {"shape": list(found.shape), "signed": signed, "bytes": base64.b64encode(found.tobytes()).decode()}
