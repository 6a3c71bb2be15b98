"""The contents of a page, gathered from hand-overs: numbers, histories, the newest rows, components, alarms."""

from __future__ import annotations

import json
import math
import time
from collections import deque
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from online_psp.io.model_file import Fields
from online_psp.monitoring import Alarm
from online_psp.pca import OnlinePCA
from online_psp.pca.files import pca_from_state
from online_psp.watch.alarms import described, opened
from online_psp.watch.cloud import Cloud
from online_psp.watch.frames import Facts, Frame, Piece, Scored, Witness
from online_psp.watch.history import Newest, ScoreTable, Stretches, Trace
from online_psp.watch.pictures import component_picture, largest
from online_psp.watch.scoring import Sampler, spe_at
from online_psp.watch.settings import PageSettings, suited_image

VARIANCES = 8
"""Components whose variances are drawn over time."""
_POINTS, _STRETCHES, _NEWEST = 600, 400, 2000
_FLOOR = 1e-4  # share of a limit at which smaller scores are drawn, so that one row near the mean does not stretch the axis
_SCREE = 64
_PICTURES, _LISTED, _LOADINGS = 24, 12, 8
_ALARMS = 100
_SLOW = 1.0  # shortest time between two drawings of components and rows, in seconds
_RATE = 10.0  # seconds over which the rate is measured

Columns = dict[str, Any]


class Part(NamedTuple):
    """Data of one part of the page."""

    version: int
    columns: Columns


class Story:
    """Everything that a page shows. One thread updates it; others read `parts`, which is replaced as a whole.

    Parameters
    ----------
    settings : PageSettings
    """

    def __init__(self, settings: PageSettings) -> None:
        self.settings = settings
        self.parts: dict[str, Part] = {}
        self.version = 0
        self.facts = Facts()
        self.closing = False
        """Whether the server is about to end."""
        self.begin()

    def begin(self) -> None:
        """Forget everything: another stream begins."""
        self.model: OnlinePCA | None = None
        self.row = 0
        self._explained, self._variances = Trace(_POINTS, 1), Trace(_POINTS, VARIANCES + 1)
        self._screes = Trace(64, _SCREE)
        self._whole, self._newest = Stretches(_STRETCHES), Newest(_NEWEST)
        self._cloud, self._sampler = Cloud(self.settings.id_names), Sampler()
        self._alarms: deque[dict[str, Any]] = deque(maxlen=_ALARMS)
        self._n_alarms, self._holes, self.monitored = 0, 0, False
        self._times: deque[tuple[float, int]] = deque()
        self._began: tuple[float, int] | None = None
        self._slow_next, self._behind = 0.0, False
        self._heard = time.monotonic()
        self._build(everything=True)

    # Hand-overs come in

    def take(self, frame: Frame) -> None:
        """Update the story with a hand-over."""
        if frame.told:
            self.settings = replace(self.settings, **frame.told)
            self._cloud.id_names = self.settings.id_names
        self._heard = time.monotonic()
        self.row, self.facts = frame.row, frame.facts
        self._pace(frame)
        if frame.state is not None:
            self.model = pca_from_state(Fields(frame.arrays, frame.state), OnlinePCA)
            self.model.whiten = False  # coordinates in the units of the rows
            self.model.__dict__.pop("feature_names_in_", None)  # rows come as plain arrays
        self.monitored = self.monitored or frame.facts.monitored
        for scored in frame.scores:
            self.take_scores(scored)
        self._take_rows(frame)
        for witness in frame.witnesses:
            self.witness(witness)
        if self.model is not None and frame.state is not None:
            self._read(self.model)
        self.refresh()

    def take_scores(self, scored: Scored) -> None:
        """Chart the scores of rows."""
        self._whole.add(*scored)
        self._newest.add(*scored)

    def witness(self, witness: Witness) -> None:
        """List an alarm that can be opened."""
        shape = suited_image(self.settings.image, len(witness.row))
        self._alarms.append(opened(witness, self.settings.feature_names, shape))
        self._n_alarms += 1

    def note_alarm(self, alarm: Alarm, number: int) -> None:
        """List an alarm whose row is no longer kept."""
        self._alarms.append(described(alarm, number, self.settings.feature_names))
        self._n_alarms += 1

    def refresh(self) -> None:
        """Rebuild the parts of the page; the slow ones at most once a second, except at the end."""
        now = time.monotonic()
        ended = self.facts.status not in ("running", "watching")
        everything = ended or now >= self._slow_next
        began = time.monotonic()
        self._build(everything)
        self._behind = not everything
        if everything:
            self._slow_next = now + max(_SLOW, 4 * (time.monotonic() - began))

    def late(self) -> float | None:
        """Seconds until `refresh` should be called even without news, because rows and components are out of date; None if they are not."""
        return max(0.0, self._slow_next - time.monotonic()) if self._behind else None

    def fail(self, note: str) -> None:
        """Show what is wrong, beside the last numbers."""
        self.facts = self.facts._replace(note=note)
        self._build(everything=False)

    def _pace(self, frame: Frame) -> None:
        self._times.append((frame.time, frame.row))
        self._began = self._began or self._times[0]
        while len(self._times) > 2 and frame.time - self._times[0][0] > _RATE:
            self._times.popleft()

    def _take_rows(self, frame: Frame) -> None:
        if self.model is None:
            return
        scored = [(each.numbers, each.found.spe) for each in frame.scores]
        for piece in frame.pieces:
            whole = _complete(piece.rows)
            spe = spe_at(piece.numbers, scored) if self.monitored else self._sampled(piece, whole)
            self._holes += int(len(whole) - whole.sum())
            shown = whole | (self.model.missing == "impute")
            if shown.any():
                self._cloud.add(piece.of(shown), spe[shown])

    def _sampled(self, piece: Piece, whole: Any) -> Any:
        """Chart the rows without missing values; returns their SPE, and NaN for the others."""
        spe = np.full(len(whole), math.nan)
        if whole.any():
            scored = Scored(piece.numbers[whole], self._sampler.score(piece.rows[whole]))
            self.take_scores(scored)
            spe[whole] = scored.found.spe
        return spe

    def _read(self, model: OnlinePCA) -> None:
        """Record the present state of the model."""
        ratios, variances = model.explained_variance_ratio_, np.asarray(model.explained_variance_, dtype=np.float64)
        self._explained.add(self.row, np.array([round(100.0 * float(ratios.sum()), 4)]))
        shown = np.full(VARIANCES + 1, math.nan)
        shown[0] = model.noise_variance_
        shown[1 : 1 + min(VARIANCES, len(variances))] = variances[:VARIANCES]
        self._variances.add(self.row, shown)
        self._screes.add(self.row, variances)
        if not self.monitored:
            self._sampler.look(model)

    # Parts of the page go out

    def _build(self, everything: bool) -> None:
        self.version += 1
        parts = dict(self.parts)

        def put(name: str, columns: Columns) -> None:
            parts[name] = Part(self.version, columns)

        explained, variances = self._explained.table(), self._variances.table()
        put("explained", {"row": explained[:, 0], "share": explained[:, 1]})
        put("variances", {"row": variances[:, 0], "noise": _positive(variances[:, 1])}
            | {f"v{k + 1}": _positive(variances[:, 2 + k]) for k in range(VARIANCES)})  # fmt: skip
        put("scree", self._scree())
        put("whole", _drawn(self._whole.table()))
        put("newest", _drawn(self._newest.table()))
        put("marks", {"row": np.array([alarm["number"] for alarm in self._alarms], dtype=np.float64),
                      "kind": [alarm["kind"] for alarm in self._alarms]})  # fmt: skip
        if "alarms" not in parts or self._n_alarms != parts["alarms"].columns["count"][0]:
            put("alarms", {"json": [json.dumps(list(self._alarms))], "count": [self._n_alarms]})
        if everything or "rows" not in parts:
            columns, legends = ({}, {}) if self.model is None else self._cloud.table(self.model)
            put("rows", columns or Cloud(self.settings.id_names).table(OnlinePCA())[0])
            put("components", {"json": [json.dumps({"components": self._components(), "legends": legends})]})
        put("facts", self.told())
        self.parts = parts

    def told(self) -> Columns:
        """The present numbers."""
        return {"json": [json.dumps(self._facts())]}

    def _scree(self) -> Columns:
        table, half = self._screes.table(), self._screes.before(self.row / 2)
        now = table[-1, 1:] if len(table) else np.zeros(0)
        count = int(np.isfinite(now).sum())
        earlier = np.full(count, math.nan) if half is None else half[1 : 1 + count]
        noise = math.nan if self.model is None else self.model.noise_variance_
        numbers = np.arange(1.0, count + 1.0)
        return {
            "component": numbers,
            "now": _positive(now[:count]),
            "earlier": _positive(earlier),
            "noise": _positive(np.full(count, noise)),
        }

    def _components(self) -> list[dict[str, Any]]:
        """The components, as pictures or by their largest loadings."""
        model = self.model
        if model is None:
            return []
        components, ratios = model.components_, model.explained_variance_ratio_
        shape = suited_image(self.settings.image, components.shape[1])
        found = []
        for k, component in enumerate(components[: _PICTURES if shape else _LISTED]):
            values = np.asarray(component, dtype=np.float64)
            entry: dict[str, Any] = {"number": k + 1, "share": _json(100.0 * float(ratios[k]))}
            if shape:
                entry["image"] = component_picture(values, shape)
            else:
                entry["loadings"] = largest(values, self.settings.feature_names, _LOADINGS)
            found.append(entry)
        return found

    def _facts(self) -> dict[str, Any]:
        model, facts = self.model, self.facts
        told: dict[str, Any] = {
            "title": self.settings.title,
            "status": facts.status,
            "note": facts.note,
            "row": self.row,
            "total": facts.total,
            "memory": facts.memory,
            "saved": facts.saved,
            "rate": self._rate(),
            "mean_rate": None if self._began is None else _pace(self._began, self._times[-1]),
            "seconds": None if self._began is None else self._times[-1][0] - self._began[0],
            "age": time.monotonic() - self._heard,
            "newest": self._newest.last(),
            "holes": self._holes,
            "afterwards": facts.afterwards,
            "uncharted": facts.uncharted,
            "monitored": self.monitored,
            "outliers": facts.outliers if self.monitored else self._sampler.outliers,
            "judged": None if self.monitored else self._sampler.scored,
            "alarms": self._n_alarms if facts.alarms is None else facts.alarms,
            "listed": len(self._alarms),
            "ids": self.settings.id_names,
            "closing": self.closing,
            "version": self.version,
        }
        if model is not None:
            ratios = model.explained_variance_ratio_
            told |= {
                "samples": model.n_samples_seen_ if facts.samples is None else facts.samples,
                "every": facts.every,
                "features": int(model.n_features_in_),
                "components": int(model.n_components_),
                "explained": _json(float(ratios.sum())),
                "noise": _json(model.noise_variance_),
                "exact": bool(model.exact_),
                "axes": model.axes,
                "half_life": None if model.half_life is None else str(model.half_life),
                "ratios": [_json(float(each)) for each in ratios[:_SCREE]],
                "half": None if (half := self._explained.before(self.row / 2)) is None else _json(half[1]),
            }
        return told

    def _rate(self) -> float | None:
        if len(self._times) < 2:
            return None
        return _pace(self._times[0], self._times[-1])


def _pace(then: tuple[float, int], now: tuple[float, int]) -> float | None:
    """Rows per second between two moments."""
    return (now[1] - then[1]) / (now[0] - then[0]) if now[0] > then[0] else None


def _complete(rows: Any) -> Any:
    """(n,): whether each row has all its values."""
    return np.isfinite(rows).all(axis=1) if isinstance(rows, np.ndarray) else np.ones(rows.shape[0], dtype=bool)


def _positive(values: Any) -> Any:
    """Values for a logarithmic axis: NaN where they are not positive."""
    values = np.asarray(values, dtype=np.float64)
    return np.where(values > 0, values, math.nan)


def _drawn(table: ScoreTable) -> Columns:
    """Columns of scores for logarithmic axes."""
    floor = {name: _FLOOR * np.nan_to_num(getattr(table, f"{name}_limit")) for name in ("t2", "spe")}
    return {
        name: values if name == "row" else _positive(np.maximum(values, floor[name.partition("_")[0]]))
        for name, values in table._asdict().items()
    }


def _json(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
