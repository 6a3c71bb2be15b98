"""The state of a run: a model, its source and the position; how runs begin; and whether a source is still the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from online_psp.algorithms import StreamingAlgorithm
from online_psp.io.alarms import AlarmFile, Written
from online_psp.io.sources import DifferentSourceError, Position, Source, SourceError, different, identity
from online_psp.io.sources.names import order_of
from online_psp.monitoring import Monitor, Update
from online_psp.pca import OnlinePCA

Learner: TypeAlias = OnlinePCA | StreamingAlgorithm
"""What a source is fitted with; the paper's algorithms take rows as they are given."""
NAMED = 20
"""Bad rows that a run remembers by number."""
REMEMBERED = 100
"""Earlier sources, and alarms, that a checkpoint holds."""


class Learned(NamedTuple):
    """A block that was learned, for observers."""

    rows: Any
    """(n, D): the good rows."""
    numbers: NDArray[np.int64]
    """(n,): their numbers in this epoch, from 1."""
    ids: Any
    """(n, number of ID columns), or None."""
    found: Update | None
    """What the monitor said about them, if there is one."""
    times: Any = None
    """(n,), or None."""


@dataclass
class Run:
    """A model, how it is fed, and the position in its source."""

    model: Any
    """An OnlinePCA, or one of the paper's algorithms."""
    source: dict[str, Any]
    """Name, features, total, image shape, feature names: for `psp info`."""
    block: int
    epochs: int = 1
    epoch: int = 0
    row: int = 0
    """Rows of this epoch that have been processed, including bad ones."""
    position: Position | None = None
    """The place in the source after these rows."""
    skipped: int = 0
    skipped_rows: list[int] = field(default_factory=list)
    """The numbers of the first bad rows."""
    finished: bool = False
    identity: dict[str, Any] = field(default_factory=dict)
    """The identity of the source."""
    reading: dict[str, Any] = field(default_factory=dict)
    """The options given to `open_source`."""
    before: list[dict[str, Any]] = field(default_factory=list)
    """Names and numbers of rows of the sources that the model learned earlier."""
    written: Written | None = None
    """What had been written of the table of scores and alarms at the checkpoint, if there is one."""
    passed: int = 0
    """Rows processed by this process, over all epochs; not stored."""
    monitor: Monitor | None = None
    """Scores rows before the model, which is `model`, learns them. The checkpoint is then a monitor's model file."""
    alarms: AlarmFile | None = None
    """The table for the scores."""
    onlooker: Callable[[Learned], None] | None = None
    """Called after each step, and while a pipe is silent; it must not raise, wait, or keep the rows."""

    def header(self) -> dict[str, Any]:
        """The header that is stored beside the model, as JSON."""
        found = {name: value for name, value in vars(self).items() if name not in ("model", "passed", "monitor", "alarms", "onlooker")}
        found["position"] = None if self.position is None else self.position.to_json()
        return {**found, "written": None if self.written is None else self.written._asdict()}

    @property
    def done(self) -> int:
        """Rows processed over all epochs, if the source's total is known; otherwise those of this epoch."""
        return self.epoch * (self.source.get("total") or 0) + self.row

    @property
    def learned(self) -> bool:
        """Whether the model has seen any rows."""
        return hasattr(self.model, "n_features_in_")


# Beginning


def start(source: Source, model: Learner, block: int | None = None, epochs: int | None = None) -> Run:
    """A run that has not begun."""
    for name, value in (("block", block), ("epochs", epochs)):
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1; got {value}.")
    run = Run(model, describe(source), block or source.block_rows(), epochs or 1, identity=identity(source))
    if source.once and run.epochs > 1:
        raise ValueError(f"{source.name} can be read only once, so there cannot be {epochs} epochs.")
    names = take_names(model)
    if names is not None:  # the model's own order of features decides
        order_of(names, source.feature_names, source.name)
        run.source["feature_names"] = names
    if run.learned and source.features != model.n_features_in_:
        raise SourceError(f"{source.name} has {source.features} features, and the model was trained on {model.n_features_in_}.")
    return run


def describe(source: Source) -> dict[str, Any]:
    """A description of the source, for people, to store in the checkpoint."""
    return {
        "name": source.name.encode("utf-8", "replace").decode(),  # a file name need not be valid text
        "features": source.features,
        "total": source.total,
        "image_shape": None if source.image_shape is None else list(source.image_shape),
        "feature_names": source.feature_names,
    }


def take_names(model: Learner) -> list[str] | None:
    """Remove and return the names of a model's features, so that plain arrays can be fed to it; `give_names` undoes it."""
    names = model.__dict__.pop("feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def give_names(model: Learner, names: Sequence[str] | None) -> None:
    """Set the names of a fitted model's features."""
    if names is not None and hasattr(model, "n_features_in_"):
        model.__dict__["feature_names_in_"] = np.array(list(names), dtype=object)


def updating(run: Run, source: Source, block: int | None = None, epochs: int | None = None) -> Run:
    """A run that learns another source on top of the model of an earlier one.

    A run over the same file that was stopped half-way is continued: its first rows would otherwise count twice.
    """
    if not run.finished and run.row and not source.once:
        if different(run.identity, source, run.row) is None:
            return run
        if run.identity.get("grows", True):
            raise SourceError(
                f"The model has learned {run.source['name']} only up to row {run.row}: that run was stopped, and can be resumed; "
                "to learn something else on top of it all the same, use force (--force)."
            )
    return anew(run, source, block, epochs)


def anew(run: Run, source: Source, block: int | None = None, epochs: int | None = None) -> Run:
    """A run over another source from its beginning, with the model of this one."""
    give_names(run.model, run.source.get("feature_names"))
    fresh = start(source, run.model, block, epochs)
    fresh.monitor = run.monitor
    learned = [{"name": run.source["name"], "rows": run.row, "epochs": run.epoch + 1}] if run.row or run.epoch else []
    fresh.before = [*run.before, *learned][-REMEMBERED:]
    return fresh


# Resuming


def check_same(run: Run, source: Source, said: str = "") -> None:
    """Raise a DifferentSourceError, which begins with what is `said`, if a source is not that of the run."""
    found = different(run.identity, source, run.row)
    if found is not None:
        raise DifferentSourceError(said + found)
