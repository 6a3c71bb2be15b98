"""A run over a source: block after block into a model, with the model and the position in the source always in step.

A run moves in *steps*: a block of rows, or, with a shuffle buffer, that many rows, mixed, and then fed block by block. Between two steps
the model has learned exactly the rows before the position, and a checkpoint holds both in one file, together with what the source is
known by. Steps are cut at fixed rows, and what is mixed depends on the seed and the place alone, so a run that was stopped anywhere and
resumed gives, bit for bit, the model of one that was not. Only a pipe is cut by the clock as well: what has arrived is learned within a
second, and saved when that is due.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from online_psp.io.alarms import AlarmFile, Written
from online_psp.io.files import claimed
from online_psp.io.model_file import Fields, ModelFileError, kind_of
from online_psp.io.names import order_of, ordered
from online_psp.io.pacing import Stop, Timer, unbroken
from online_psp.io.sources import Block, Source, SourceError, different, open_source
from online_psp.monitoring import Monitor, Update
from online_psp.monitoring import files as monitor_state
from online_psp.pca import OnlinePCA
from online_psp.pca import files as pca_state
from online_psp.pca.forgetting import check_half_life

_NAMED = 20  # bad rows that a run remembers by number
_REMEMBERED = 100  # earlier sources that a run remembers
_LOOK_UP = 1.0  # seconds after which rows that wait in a pipe are learned


class DifferentSourceError(SourceError):
    """A source that is not the one that a checkpoint was made from."""


class Stopped(KeyboardInterrupt):
    """A run that was asked to stop by a signal, and did; a KeyboardInterrupt for those who do not know better."""


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
    identity: dict[str, Any] = field(default_factory=dict)
    """What the source is known by."""
    reading: dict[str, Any] = field(default_factory=dict)
    """Options of `open_source` that were given."""
    before: list[dict[str, Any]] = field(default_factory=list)
    """Names and rows of the sources that the model has learned earlier."""
    written: Written | None = None
    """How far the table of scores and alarms had come at the checkpoint, where there is one."""
    passed: int = 0
    """Rows that went by in this process, whatever the epoch; not stored."""
    monitor: Monitor | None = None
    """What scores rows before the model learns them; `model` is its model. The checkpoint is then a monitor's model file."""
    alarms: AlarmFile | None = None
    """Table that the scores go to."""

    def header(self) -> dict[str, Any]:
        """What is stored beside the model, as JSON."""
        found = {name: value for name, value in vars(self).items() if name not in ("model", "passed", "monitor", "alarms")}
        return {**found, "written": None if self.written is None else self.written._asdict()}

    @property
    def done(self) -> int:
        """Rows done with, all epochs together, where the source's total is known; else those of this epoch."""
        return self.epoch * (self.source.get("total") or 0) + self.row

    @property
    def learned(self) -> bool:
        """Whether the model has seen any rows."""
        return hasattr(self.model, "n_features_in_")


class RunOptions(TypedDict, total=False):
    """How a source is fed to a model: the options of ``psp fit``."""

    block: int | None
    """Rows read at a time."""
    epochs: int
    """Passes over the source."""
    shuffle_buffer: int
    """Shuffle rows within windows of this many."""
    seed: int
    """For shuffling."""


# Beginning


def start(source: Source, model: OnlinePCA, *, block: int | None = None, epochs: int = 1, shuffle_buffer: int = 0, seed: int = 0) -> Run:
    """A run that has not begun."""
    for name, value, least in (("block", block, 1), ("epochs", epochs, 1), ("shuffle_buffer", shuffle_buffer, 0), ("seed", seed, 0)):
        if value is not None and value < least:
            raise ValueError(f"{name} must be at least {least}; got {value}.")
    if source.once and epochs > 1:
        raise ValueError(f"{source.name} can be read only once, so there cannot be {epochs} epochs.")
    run = Run(model, describe(source), block or source.block_rows(), epochs, shuffle_buffer, seed, identity=source.identity())
    names = take_names(model)
    if names is not None:  # the model is the one who knows the order of its features
        order_of(names, source.feature_names, source.name)
        run.source["feature_names"] = names
    if run.learned and source.features != model.n_features_in_:
        raise SourceError(f"{source.name} has {source.features} features, and the model was trained on {model.n_features_in_}.")
    return run


def describe(source: Source) -> dict[str, Any]:
    """What a checkpoint says of its source, for people."""
    return {
        "name": source.name.encode("utf-8", "replace").decode(),  # a name on disk need not be text
        "features": source.features,
        "total": source.total,
        "image_shape": None if source.image_shape is None else list(source.image_shape),
        "feature_names": source.feature_names,
    }


def take_names(model: OnlinePCA) -> list[str] | None:
    """The names of a model's features, which it gives up while plain arrays are fed to it; `give_names` returns them."""
    names = model.__dict__.pop("feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def give_names(model: OnlinePCA, names: Sequence[str] | None) -> None:
    """Let a fitted model know its features by name."""
    if names is not None and hasattr(model, "n_features_in_"):
        model.feature_names_in_ = np.array(list(names), dtype=object)


def updating(run: Run, source: Source, options: RunOptions) -> Run:
    """A run that learns another source on top of the model of an earlier one.

    A run over the same file that was stopped half-way is continued: its first rows would otherwise count twice.
    """
    if not run.finished and run.row and not source.once:
        if difference(run, source) is None:
            return run
        if run.identity.get("grows", True):
            raise SourceError(
                f"The model has learned {run.source['name']} only up to row {run.row}: that run was stopped, and can be resumed; "
                "to learn something else on top of it all the same, use force (--force)."
            )
    return anew(run, source, options)


def anew(run: Run, source: Source, options: RunOptions) -> Run:
    """A run over another source from its beginning, with the model of this one."""
    give_names(run.model, run.source.get("feature_names"))
    fresh = start(source, run.model, **options)
    fresh.monitor = run.monitor
    if run.learned and (run.row or run.epoch):
        entry = {"name": run.source["name"], "rows": run.row, "epochs": run.epoch + 1}
        fresh.before = [*run.before, entry][-_REMEMBERED:]
    return fresh


# Files


class Stored(NamedTuple):
    """What a model file holds."""

    model: OnlinePCA
    header: dict[str, Any]
    """What else the file says: of a run, or of what was merged."""
    monitor: Monitor | None = None
    """That of the model, where it was fitted with one."""


def read_model(path: str | os.PathLike[str]) -> tuple[OnlinePCA, dict[str, Any]]:
    """A model from a file, that of a monitor included, and what else the file says: of a run, or of what was merged."""
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


def write_model(model: OnlinePCA, path: str | os.PathLike[str], header: dict[str, Any]) -> None:
    """Write a model and what is to be said with it, as one file."""
    pca_state.save(model, path, header)


def checkpoint(run: Run, path: str | os.PathLike[str]) -> None:
    """Write the model and the position, as one file; the table of alarms is complete up to there before."""
    if run.alarms is not None:
        run.written = run.alarms.settle()
    give_names(run.model, run.source.get("feature_names"))
    try:
        if run.monitor is None:
            write_model(run.model, path, run.header())
        else:
            del run.monitor.alarms[:-_REMEMBERED]  # a header has only so much room
            monitor_state.save(run.monitor, path, run.header())
    finally:
        take_names(run.model)


def reopen(path: str | os.PathLike[str]) -> Run:
    """The run that a checkpoint holds."""
    found = read_stored(path)
    try:
        run = from_header(found.model, found.header)
        run.monitor = found.monitor
        return run
    except ModelFileError as error:
        raise ModelFileError(f"{os.fspath(path)} holds no run that can be resumed: {error}.") from None


def reopen_any(path: str | os.PathLike[str]) -> Run:
    """A run to learn more on top of: that of a checkpoint, or, of a model that was saved by itself or merged, one without a source."""
    model, header, monitor = read_stored(path)
    if "source" in header:
        return reopen(path)
    if not hasattr(model, "n_features_in_"):
        raise ModelFileError(f"{os.fspath(path)} has learned nothing yet.")
    source = {"name": "", "features": int(model.n_features_in_), "image_shape": header.get("image_shape")}
    return Run(model, {**source, "feature_names": take_names(model)}, 1, finished=True, monitor=monitor)


def from_header(model: OnlinePCA, header: dict[str, Any]) -> Run:
    """The run that belongs to a model, from what its file says."""
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
    if not all(type(row) is int for row in rows) or len(rows) > _NAMED:
        raise ModelFileError("its bad rows are not numbers")
    before = fields.value("before", list)
    if not all(isinstance(entry, dict) and isinstance(entry.get("name"), str) for entry in before):
        raise ModelFileError("its earlier sources have no names")
    if hasattr(model, "n_features_in_") and model.n_features_in_ != features:
        raise ModelFileError(f"its model has {model.n_features_in_} features, and its source {features}")
    take_names(model)
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
        fields.value("identity", dict),
        fields.value("reading", dict),
        before,
        Written.of(fields),
    )


# Resuming


def difference(run: Run, source: Source) -> str | None:
    """One sentence that says how a source differs from the one of the run; None where it is the same."""
    found = different(run.identity, source.identity(since=run.identity), run.row)
    if found is None and source.features != run.source["features"]:
        found = f"The source had {run.source['features']} features, and {source.name} has {source.features}."
    return found


def check_same(run: Run, source: Source) -> None:
    """Raise a DifferentSourceError where a source is not the one of the run."""
    found = difference(run, source)
    if found is not None:
        raise DifferentSourceError(found)


def _check_features(run: Run, source: Source) -> None:
    """A pipe that continues where it was interrupted has the same columns; its header may come again or not."""
    order_of(run.source.get("feature_names"), source.feature_names, source.name)
    if source.features != run.source["features"]:
        raise DifferentSourceError(f"The source had {run.source['features']} features, and {source.name} has {source.features}.")


# Going on


def steps(
    run: Run, source: Source, *, on_bad_row: str = "stop", at_end: bool = False, deadline: Callable[[], bool] | None = None
) -> Iterator[Run]:
    """Continue to the end of the last epoch; gives the run after each step, and while a pipe is silent.

    Signals are put off until a step is complete.

    Parameters
    ----------
    on_bad_row : {"stop", "skip"}
        "stop" raises a SourceError before anything of that step is learned (of a pipe, whose rows do not come again, what comes before the
        bad row is learned); "skip" counts bad rows and leaves them out.
    at_end : bool
        The source begins where the position is, and not at row 0.
    deadline : callable, optional
        Asks a slow source to hand over what it has; see `Source.blocks`.
    """
    if on_bad_row not in ("stop", "skip"):
        raise ValueError(f"on_bad_row must be 'stop' or 'skip'; got {on_bad_row!r}.")
    order = order_of(run.source.get("feature_names"), source.feature_names, source.name)
    base, size = run.row if at_end else 0, run.shuffle_buffer or run.block
    unsure = source.once and run.row > 0 and not at_end
    while run.epoch < run.epochs:
        for block in _blocks(source, size, run.row - base, deadline):
            if unsure and block.length:
                check_same(run, source)  # a pipe is known by its first megabyte, which has passed now
                unsure = False
            if block.bad and on_bad_row == "stop":
                first = block.bad[0]
                if source.once and first.row - 1 > block.start:
                    good = first.row - 1 - block.start
                    _take(run, Block(block.start, good, block.rows[:good], []), base, order)
                    yield run
                raise SourceError(f"{source.where(first.row)}: it {first.problem}.")
            _take(run, block, base, order)
            yield run
        if run.epoch + 1 == run.epochs:
            break
        run.epoch, run.row = run.epoch + 1, 0
    if not run.learned:
        raise SourceError(f"{source.name} has no rows that can be used.")
    run.finished = True


def _blocks(source: Source, size: int, position: int, deadline: Callable[[], bool] | None) -> Iterator[Block]:
    """Blocks from the position on; what passes only once is read up to there, and must get there."""
    if not (source.once and position):
        yield from source.blocks(size, position, deadline=deadline)
        return
    end = 0
    for block in source.blocks(size, 0, deadline=deadline):
        end = block.start + block.length
        if end <= position:
            yield Block(position, 0, block.rows[:0], [])
        elif block.start >= position:
            yield block
        else:
            skip = position - block.start
            good = skip - sum(bad.row <= position for bad in block.bad)
            ids, times = (None if each is None else each[skip:] for each in (block.ids, block.times))
            yield Block(position, block.length - skip, block.rows[good:], [bad for bad in block.bad if bad.row > position], ids, times)
    if end < position:
        raise DifferentSourceError(f"{source.name} ended after {end} rows, and the run had come to row {position}: these are other data.")


def _take(run: Run, block: Block, base: int, order: Any) -> None:
    """Learn a block, and move the position behind it."""
    with unbroken():
        found = _learn(run, ordered(block.rows, order), _times(run, block)) if block.rows.shape[0] else None
        if run.alarms is not None:
            run.alarms.add(base + block.start, _kept(block), found)
        run.row = base + block.start + block.length
        run.passed += block.length
        run.skipped += len(block.bad)
        run.skipped_rows += [base + bad.row for bad in block.bad][: _NAMED - len(run.skipped_rows)]
        run.finished = False


def _times(run: Run, block: Block) -> Any:
    """Times of the good rows of a block, where the model forgets by time."""
    half_life = check_half_life(run.model.half_life)
    if half_life is None or not half_life.in_time:
        return None
    if block.times is None:
        raise SourceError("A half-life in time needs the time of each row: name its column with --time-column (time_column=).")
    if run.shuffle_buffer:
        raise SourceError("Rows whose age is time cannot be shuffled; leave --shuffle-buffer out.")
    return block.times[_kept(block)]


def _kept(block: Block) -> NDArray[np.bool_]:
    """Which rows of a block are good."""
    good = np.ones(block.length, dtype=bool)
    good[[bad.row - block.start - 1 for bad in block.bad]] = False
    return good


def _learn(run: Run, rows: Any, times: Any) -> Update | None:
    """Learn rows; what the monitor says of them, where there is one."""
    if run.monitor is not None:
        return run.monitor.update(rows)
    count = rows.shape[0]  # a sparse matrix has no length
    if run.shuffle_buffer:
        rows = rows[np.random.default_rng([run.seed, run.epoch, run.row]).permutation(count)]
    for at in range(0, count, run.block):
        run.model.partial_fit(rows[at : at + run.block], times=None if times is None else times[at : at + run.block])
    return None


class Saving:
    """Where and when a run is saved.

    Parameters
    ----------
    path : path
        The model file; whoever makes this holds it (`files.claimed`).
    every : str or int
        See `Timer`.
    """

    def __init__(self, path: str | os.PathLike[str], every: str | int = "60s") -> None:
        self.path, self.timer = path, Timer(every)
        self.last: float | None = None
        """When this run last wrote a checkpoint, by the monotonic clock; None before it has."""

    def save(self, run: Run) -> None:
        """Write a checkpoint, whatever signals come."""
        with unbroken():
            checkpoint(run, self.path)
        self.last = time.monotonic()
        self.timer.reset()


def drive(
    run: Run,
    source: Source,
    saving: Saving,
    *,
    on_bad_row: str = "stop",
    at_end: bool = False,
    signals: Sequence[int] = (signal.SIGINT,),
    report: Callable[[Run], None] | None = None,
) -> None:
    """Take a run to its end, with checkpoints on the way: the one loop behind ``psp fit`` and `fit_stream`.

    Whatever ends it early, what was learned is saved first.

    Raises
    ------
    Stopped
        After one of `signals` came, within a second or at the end of the block in hand.
    """
    if at_end:
        _check_features(run, source)
    elif run.row or run.epoch:
        check_same(run, source)
    run.source = {**describe(source), "feature_names": run.source.get("feature_names") or source.feature_names}
    timer, looked = saving.timer, time.monotonic()
    with Stop(signals) as stop:

        def deadline() -> bool:
            return stop.asked is not None or timer.ripe() or (not run.shuffle_buffer and time.monotonic() - looked > _LOOK_UP)

        try:
            before = run.passed
            for _ in steps(run, source, on_bad_row=on_bad_row, at_end=at_end, deadline=deadline):
                timer.passed(run.passed - before)
                before, looked = run.passed, time.monotonic()
                if run.alarms is not None:
                    run.alarms.write()
                if run.learned and (timer.due() or (run.alarms is not None and run.written is None)):  # no table without a checkpoint
                    _know(run, source, at_end)
                    saving.save(run)
                if report is not None:
                    report(run)
                if stop.asked is not None and not run.finished:
                    raise Stopped
        except DifferentSourceError:
            raise
        except BaseException as error:
            if isinstance(error, SourceError):
                _check_unchanged(run, source, at_end)
            if run.learned and timer.rows and not run.finished:
                _know(run, source, at_end)
                with contextlib.suppress(OSError):  # a disk that is full is said by the error that came first
                    saving.save(run)
            raise
        _check_unchanged(run, source, at_end)
        run.identity = run.identity if at_end else source.identity()
        saving.save(run)


def _know(run: Run, source: Source, at_end: bool) -> None:
    """A pipe is known by what has passed; a file by what it was when the run began."""
    if source.once and not at_end:
        run.identity = source.identity()


def _check_unchanged(run: Run, source: Source, at_end: bool) -> None:
    """What is wrong with a file may be that another was written in its place."""
    changed = None if at_end else different(run.identity, source.identity(since=run.identity), run.row)
    if changed is not None:
        raise DifferentSourceError(f"{source.name} was changed while it was read. {changed}")


def fit_stream(
    source: Any,
    path: str | os.PathLike[str],
    model: OnlinePCA | None = None,
    *,
    resume: bool = False,
    update: bool = False,
    at_end: bool = False,
    on_bad_row: str = "stop",
    checkpoint_every: str | int = "60s",
    report: Callable[[Run], None] | None = None,
    **options: Unpack[RunOptions],
) -> OnlinePCA:
    """Fit a model to a source, with checkpoints: what ``psp fit`` does.

    Parameters
    ----------
    source : whatever `open_source` takes
    path : path
        The model file; checkpoints go there too. No other run may be writing it.
    model : OnlinePCA
        To start with; where a checkpoint is resumed or updated, the model is the one in it.
    resume : bool
        Continue from `path`, if it is there. Rows that were done with are skipped, also those of an iterable,
    at_end : bool
        unless it continues from there by itself.
    update : bool
        Learn the source on top of the model in `path`, whatever that came from.
    on_bad_row, checkpoint_every
        As the options of ``psp fit``.
    report : callable, optional
        Called with the run after each step.
    **options
        `block`, `epochs`, `shuffle_buffer`, `seed`: see `RunOptions`.

    Raises
    ------
    DifferentSourceError
        Where a resumed source is not the one that the checkpoint was made from.
    """
    saving = Saving(path, checkpoint_every)
    with claimed(path):
        rows = open_source(source)
        if update:
            run = updating(reopen_any(path), rows, options)
        elif resume and os.path.exists(path):
            run = reopen(path)
        else:
            run, at_end = start(rows, OnlinePCA() if model is None else model, **options), False
        try:
            drive(run, rows, saving, on_bad_row=on_bad_row, at_end=at_end, report=report)
        finally:
            give_names(run.model, run.source.get("feature_names"))
    return run.model
