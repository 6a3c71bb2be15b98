"""A run over a source: block after block into a model, with the model and the position in the source always in step.

A run moves in *steps*: a block of rows, or, with a shuffle buffer, that many rows, mixed, and then fed block by block. Between two steps
the model has learned exactly the rows before the position, and a checkpoint holds both in one file. Steps are cut at fixed rows, and what
is mixed depends on the seed and the place alone, so a run that was stopped anywhere and resumed gives, bit for bit, the model of one that
was not.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from online_psp.io.model_file import Fields, ModelFileError
from online_psp.io.sources import Source, SourceError, open_source
from online_psp.pca import OnlinePCA
from online_psp.pca import files as pca_state

_NAMED = 20  # bad rows that a run remembers by number


@dataclass
class Run:
    """A model, how it is fed, and how far it has come."""

    model: OnlinePCA
    source: dict[str, Any]
    """Name, features, total, image shape, feature names: for `psp info`."""
    block: int
    epochs: int = 1
    shuffle_buffer: int = 0
    seed: int = 0
    epoch: int = 0
    row: int = 0
    """Rows of this epoch that are done with, bad ones included."""
    skipped: int = 0
    skipped_rows: list[int] = field(default_factory=list)
    """The numbers of the first of them."""
    finished: bool = False

    def header(self) -> dict[str, Any]:
        """All but the model, as JSON."""
        return {name: value for name, value in vars(self).items() if name != "model"}

    @property
    def done(self) -> int:
        """Rows done with, all epochs together, where the source's total is known; else those of this epoch."""
        return self.epoch * (self.source.get("total") or 0) + self.row


def start(source: Source, model: OnlinePCA, *, block: int | None = None, epochs: int = 1, shuffle_buffer: int = 0, seed: int = 0) -> Run:
    """A run that has not begun."""
    for name, value, least in (("block", block, 1), ("epochs", epochs, 1), ("shuffle_buffer", shuffle_buffer, 0), ("seed", seed, 0)):
        if value is not None and value < least:
            raise ValueError(f"{name} must be at least {least}; got {value}.")
    if source.once and epochs > 1:
        raise ValueError(f"{source.name} can be read only once, so there cannot be {epochs} epochs.")
    return Run(model, describe(source), block or source.block_rows(), epochs, shuffle_buffer, seed)


def describe(source: Source) -> dict[str, Any]:
    return {
        "name": source.name,
        "features": source.features,
        "total": source.total,
        "image_shape": None if source.image_shape is None else list(source.image_shape),
        "feature_names": source.feature_names,
    }


def reopen(path: str | os.PathLike[str]) -> Run:
    """The run that a checkpoint holds."""
    model, header = pca_state.load(path)
    try:
        return from_header(model, header)
    except ModelFileError as error:
        raise ModelFileError(f"{os.fspath(path)} holds no run that can be resumed: {error}.") from None


def from_header(model: OnlinePCA, header: dict[str, Any]) -> Run:
    if not header:
        raise ModelFileError("it is a model without the position in a source")
    fields = Fields({}, header)
    source = Fields({}, fields.value("source", dict))
    source.value("name", str)
    source.count("features", 1)
    for name in ("image_shape", "feature_names"):
        source.optional(name, list)
    if source.optional("total", int) is not None:
        source.count("total")
    shape = source.values.get("image_shape")
    if shape is not None and not all(type(length) is int and length > 0 for length in shape):
        raise ModelFileError("its picture shape is impossible")
    rows = fields.value("skipped_rows", list)
    if not all(type(row) is int for row in rows):
        raise ModelFileError("its bad rows are not numbers")
    return Run(
        model,
        dict(source.values),
        fields.count("block", 1),
        fields.count("epochs", 1),
        fields.count("shuffle_buffer"),
        fields.count("seed"),
        fields.count("epoch"),
        fields.count("row"),
        fields.count("skipped"),
        rows,
        fields.value("finished", bool),
    )


def checkpoint(run: Run, path: str | os.PathLike[str]) -> None:
    """Write the model and the position, as one file."""
    pca_state.save(run.model, path, run.header())


def steps(run: Run, source: Source, *, on_bad_row: str = "stop", at_end: bool = False) -> Iterator[Run]:
    """Go on to the end of the last epoch; gives the run after each step.

    Ctrl-C (or whatever else comes by a signal) is put off until a step is complete.

    Parameters
    ----------
    on_bad_row : {"stop", "skip"}
        "stop" raises a SourceError before anything of that step is learned; "skip" counts bad rows and leaves them out.
    at_end : bool
        The source begins where the position is, and not at row 0.
    """
    if source.features != run.source["features"]:
        raise SourceError(f"{source.name} has {source.features} features, and the model was trained on {run.source['features']}.")
    if source.total is not None and source.total < run.row and not at_end:
        raise SourceError(f"{source.name} has {source.total} rows, and the run had come to row {run.row}: it is not the same data.")
    run.source = describe(source)
    base, size = run.row if at_end else 0, run.shuffle_buffer or run.block
    while run.epoch < run.epochs:
        for block in source.blocks(size, run.row - base):
            if block.bad and on_bad_row == "stop":
                first = block.bad[0]
                raise SourceError(f"{source.where(first.row)}: it {first.problem}.")
            with unbroken():
                _learn(run, block.rows)
                run.row = base + block.start + block.length
                run.skipped += len(block.bad)
                run.skipped_rows += [base + bad.row for bad in block.bad][: _NAMED - len(run.skipped_rows)]
                run.finished = False
            yield run
        if run.epoch + 1 == run.epochs:
            break
        run.epoch, run.row = run.epoch + 1, 0
    if not hasattr(run.model, "_stream"):
        raise SourceError(f"{source.name} has no rows that can be used.")
    run.finished = True


def _learn(run: Run, rows: Any) -> None:
    count = rows.shape[0]  # a sparse matrix has no length
    if run.shuffle_buffer:
        rows = rows[np.random.default_rng([run.seed, run.epoch, run.row]).permutation(count)]
    for at in range(0, count, run.block):
        run.model.partial_fit(rows[at : at + run.block])


@contextlib.contextmanager
def unbroken() -> Iterator[None]:
    """Put off SIGINT and SIGTERM until the end, where they take their usual effect."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {each: signal.signal(each, lambda number, _: came.append(number)) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    for number in came[:1]:
        signal.raise_signal(number)


class Timer:
    """Tells when a checkpoint is due.

    Parameters
    ----------
    every : str or int
        ``"30s"``, ``"5m"`` or ``"1h"`` of time, or a number of samples.
    """

    def __init__(self, every: str | int) -> None:
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|h)?", str(every).strip().lower())
        if not found or float(found[1]) <= 0 or (found[2] is None and "." in found[1]):
            raise ValueError(f"Checkpoints come every so many samples (50000) or so much time (30s, 5m, 1h); got {every!r}.")
        self.seconds = None if found[2] is None else float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]]
        self.samples = int(found[1]) if found[2] is None else None
        self.last_time, self.last_rows = time.monotonic(), 0
        self.rows = 0

    def due(self, rows: int) -> bool:
        """Whether it is, with `rows` more done with than at the last call."""
        self.rows += rows
        if self.seconds is not None:
            if time.monotonic() - self.last_time < self.seconds:
                return False
        elif self.samples is not None and self.rows - self.last_rows < self.samples:
            return False
        self.last_time, self.last_rows = time.monotonic(), self.rows
        return True


def fit_stream(
    source: Any,
    path: str | os.PathLike[str],
    model: OnlinePCA | None = None,
    *,
    block: int | None = None,
    epochs: int = 1,
    shuffle_buffer: int = 0,
    seed: int = 0,
    on_bad_row: str = "stop",
    checkpoint_every: str | int = "60s",
    resume: bool = False,
    at_end: bool = False,
    report: Callable[[Run], None] | None = None,
) -> OnlinePCA:
    """Fit a model to a source, with checkpoints: what ``psp fit`` does.

    Parameters
    ----------
    source : whatever `open_source` takes
    path : path
        The model file; checkpoints go there too.
    model : OnlinePCA
        To start with; where a checkpoint is resumed, the model is the one in it.
    block, epochs, shuffle_buffer, seed, on_bad_row, checkpoint_every
        As the options of ``psp fit``.
    resume : bool
        Go on from `path`, if it is there. Rows that were done with are skipped, also those of an iterable,
    at_end : bool
        unless it goes on from there by itself.
    report : callable, optional
        Called with the run after each step.
    """
    rows = open_source(source)
    if resume and os.path.exists(path):
        run = reopen(path)
    else:
        run = start(rows, OnlinePCA() if model is None else model, block=block, epochs=epochs, shuffle_buffer=shuffle_buffer, seed=seed)
        at_end = False
    timer, before = Timer(checkpoint_every), run.row
    for _ in steps(run, rows, on_bad_row=on_bad_row, at_end=at_end):
        if timer.due(abs(run.row - before)):
            checkpoint(run, path)
        before = run.row
        if report is not None:
            report(run)
    checkpoint(run, path)
    return run.model
