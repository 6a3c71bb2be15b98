"""Checkpoints: the model and the position of a run in one file; and reading of model files of every kind."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from online_psp.algorithms import files as algorithm_state
from online_psp.io.alarms import Written
from online_psp.io.model_file import ModelFileError, kind_of, refusing
from online_psp.io.runs._run import REMEMBERED, Learner, Run, give_names, take_names
from online_psp.io.sources import Position
from online_psp.monitoring import Monitor
from online_psp.monitoring import files as monitor_state
from online_psp.pca import OnlinePCA
from online_psp.pca import files as pca_state


class Stored(NamedTuple):
    """What a model file holds."""

    model: OnlinePCA
    header: dict[str, Any]
    """The header: about a run, or about what was merged."""
    monitor: Monitor | None = None
    """The monitor of the model, if it was fitted with one."""


def read_stored(path: str | os.PathLike[str]) -> Stored:
    """An OnlinePCA, with its monitor if it has one, from a model file."""
    monitor = None
    if not os.fspath(path).endswith(".mat") and kind_of(path) == "Monitor":
        monitor, header = monitor_state.load_run(path, Monitor)
        model = monitor.model
    else:
        model, header = pca_state.load(path)
    return Stored(model, header, monitor)


def write_model(model: Learner, path: str | os.PathLike[str], header: dict[str, Any]) -> None:
    """Write a model and its header to one file."""
    if isinstance(model, OnlinePCA):
        pca_state.save(model, path, header)
    else:
        algorithm_state.save(model, path, header)


def _read_learner(path: str | os.PathLike[str]) -> tuple[Learner, dict[str, Any], Monitor | None]:
    """As `read_stored`, and the paper's algorithms too."""
    if not os.fspath(path).endswith(".mat") and kind_of(path) == algorithm_state.KIND:
        return *algorithm_state.load(path, {}), None
    return read_stored(path)


def checkpoint(run: Run, path: str | os.PathLike[str]) -> None:
    """Write the model and the position to one file, after the table of alarms is complete up to there."""
    if run.alarms is not None:
        run.written = run.alarms.write(sync=True)
    give_names(run.model, run.source.get("feature_names"))
    try:
        if run.monitor is None:
            write_model(run.model, path, run.header())
        else:
            del run.monitor.alarms[:-REMEMBERED]  # so that checkpoints do not grow with the stream
            monitor_state.save(run.monitor, path, run.header())
    finally:
        take_names(run.model)


def reopen(path: str | os.PathLike[str], *, update: bool = False) -> Run:
    """The run that a checkpoint holds; to `update`, also one without a source, for a model that was saved by itself or merged."""
    model, header, monitor = _read_learner(path)
    if "source" in header:
        with refusing(path):
            return from_header(model, header, monitor)
    if not update:
        raise ModelFileError(f"{os.fspath(path)} holds no run that can be resumed: it is a model without the position in a source.")
    if not hasattr(model, "n_features_in_"):
        raise ModelFileError(f"{os.fspath(path)} has learned nothing yet.")
    source = {"name": "", "features": int(model.n_features_in_), "image_shape": header.get("image_shape")}
    return Run(model, {**source, "feature_names": take_names(model)}, 1, finished=True, monitor=monitor)


def from_header(model: Learner, header: dict[str, Any], monitor: Monitor | None = None) -> Run:
    """The run of a model, from the header of its file."""
    take_names(model)
    position = None if header["position"] is None else Position.of(header["position"])
    written = None if header["written"] is None else Written(**header["written"])
    return Run(model, monitor=monitor, **header | {"position": position, "written": written})
