"""Checkpoints: the model and the position of a run in one file; and reading of model files of every kind."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from online_psp.algorithms import files as algorithm_state
from online_psp.io.alarms import Written
from online_psp.io.model_file import Fields, ModelFileError, kind_of
from online_psp.io.runs._run import NAMED, REMEMBERED, Learner, Run, give_names, take_names
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


def read_model(path: str | os.PathLike[str]) -> tuple[OnlinePCA, dict[str, Any]]:
    """The model in a file, or in the monitor of a file, and the header: about a run, or about what was merged."""
    return read_stored(path)[:2]


def read_stored(path: str | os.PathLike[str]) -> Stored:
    """Everything that a model file holds."""
    monitor = None
    if not os.fspath(path).endswith(".mat") and kind_of(path) == "Monitor":
        monitor, header = monitor_state.load_run(path, Monitor)
        model = monitor.model
    else:
        model, header = pca_state.load(path)
    if not hasattr(model, "feature_names_in_"):
        source = header.get("source")
        names = source.get("feature_names") if isinstance(source, dict) else None
        width = getattr(model, "n_features_in_", None)
        if isinstance(names, list) and len(names) == width and all(isinstance(name, str) for name in names):
            give_names(model, names)
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
        run.written = run.alarms.settle()
    give_names(run.model, run.source.get("feature_names"))
    try:
        if run.monitor is None:
            write_model(run.model, path, run.header())
        else:
            del run.monitor.alarms[:-REMEMBERED]  # a header has limited room
            monitor_state.save(run.monitor, path, run.header())
    finally:
        take_names(run.model)


def reopen(path: str | os.PathLike[str]) -> Run:
    """The run that a checkpoint holds."""
    model, header, monitor = _read_learner(path)
    try:
        run = from_header(model, header)
        run.monitor = monitor
        return run
    except ModelFileError as error:
        raise ModelFileError(f"{os.fspath(path)} holds no run that can be resumed: {error}.") from None


def reopen_any(path: str | os.PathLike[str]) -> Run:
    """A run to build on: that of a checkpoint, or one without a source for a model that was saved by itself or merged."""
    model, header, monitor = _read_learner(path)
    if "source" in header:
        return reopen(path)
    if not hasattr(model, "n_features_in_"):
        raise ModelFileError(f"{os.fspath(path)} has learned nothing yet.")
    source = {"name": "", "features": int(model.n_features_in_), "image_shape": header.get("image_shape")}
    return Run(model, {**source, "feature_names": take_names(model)}, 1, finished=True, monitor=monitor)


def from_header(model: Learner, header: dict[str, Any]) -> Run:
    """The run of a model, from the header of its file."""
    if "source" not in header:
        raise ModelFileError("it is a model without the position in a source")
    fields = Fields({}, header)
    source = Fields({}, fields.value("source", dict))
    source.value("name", str)
    features = source.count("features", 1)
    source.texts("feature_names", features)
    if source.optional("total", int) is not None:
        source.count("total")
    shape = source.optional("image_shape", list)
    if shape is not None and not all(type(length) is int and length > 0 for length in shape):
        raise ModelFileError("its picture shape is impossible")
    rows = fields.value("skipped_rows", list)
    if not all(type(row) is int for row in rows) or len(rows) > NAMED:
        raise ModelFileError("its bad rows are not numbers")
    before = fields.value("before", list)
    if not all(isinstance(entry, dict) and isinstance(entry.get("name"), str) for entry in before):
        raise ModelFileError("its earlier sources have no names")
    if hasattr(model, "n_features_in_") and model.n_features_in_ != features:
        raise ModelFileError(f"its model has {model.n_features_in_} features, and its source {features}")
    _check_identity(Fields({}, fields.value("identity", dict)))
    take_names(model)
    row, stored = fields.count("row"), header.get("position")
    position = Position.of(stored)
    if (position is None and (row or stored is not None)) or (position is not None and position.end.row != row):
        raise ModelFileError("its position in the source is none")
    return Run(
        model,
        dict(source.values),
        fields.count("block", 1),
        fields.count("epochs", 1),
        fields.count("shuffle_buffer"),
        fields.count("seed"),
        fields.count("epoch"),
        row,
        position,
        fields.count("skipped"),
        rows,
        fields.value("finished", bool),
        fields.value("identity", dict),
        fields.value("reading", dict),
        before,
        Written.of(fields),
    )


def _check_identity(identity: Fields) -> None:
    """Raise a ModelFileError if what a source is known by is not of the types and sizes that a later source is compared with."""
    identity.texts("names")
    sizes = identity.optional("sizes", list) or []
    if not all(size is None or (type(size) is int and size >= 0) for size in sizes):
        raise ModelFileError("the sizes of its files are none")
    if identity.optional("files", int) is not None:
        identity.count("files")
    if identity.optional("schema", dict) is not None:
        Fields({}, identity.value("schema", dict)).texts("feature_names")
