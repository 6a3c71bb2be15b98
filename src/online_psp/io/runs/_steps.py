"""The steps of a run: read a block, learn it, advance the position."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from online_psp.io.pacing import unbroken
from online_psp.io.runs._run import NAMED, Learned, Run, check_same
from online_psp.io.sources import Block, Position, Source, SourceError
from online_psp.io.sources.names import order_of, ordered
from online_psp.monitoring import Update
from online_psp.monitoring.results import moved, shares
from online_psp.pca.forgetting import check_half_life


def steps(run: Run, source: Source, *, on_bad_row: str = "stop", deadline: Callable[[], bool] | None = None) -> Iterator[Run]:
    """Continue to the end of the last epoch; yields the run after each step, and while a pipe is silent.

    Signals are deferred until a step is complete.

    Parameters
    ----------
    on_bad_row : {"stop", "skip"}
        "stop" raises a SourceError before anything of that step is learned (except for a pipe, whose rows do not come again: there, the
        rows before the bad one are learned); "skip" counts bad rows and leaves them out.
    deadline : callable, optional
        Asks a slow source to hand over what it has; see `Source.blocks`.
    """
    if on_bad_row not in ("stop", "skip"):
        raise ValueError(f"on_bad_row must be 'stop' or 'skip'; got {on_bad_row!r}.")
    order = order_of(run.source.get("feature_names"), source.feature_names, source.name)
    unsure = source.once and run.row > 0
    while run.epoch < run.epochs:
        for block in source.blocks(run.block, run.position or run.row, deadline=deadline):
            if unsure and block.length:
                check_same(run, source)  # a pipe is known by its first rows, which have passed now
                unsure = False
            if block.bad and on_bad_row == "stop":
                first = block.bad[0]
                if source.once and first.row - 1 > block.start:
                    good = first.row - 1 - block.start
                    _take(run, Block(block.start, good, block.rows[:good], [], position=Position.of_pipe(block.start + good)), order)
                    yield run
                raise source.refused(first, fitting=True)
            _take(run, block, order)
            yield run
        if run.epoch + 1 == run.epochs:
            break
        run.epoch, run.row, run.position = run.epoch + 1, 0, None
    if not run.learned:
        raise SourceError(f"{source.name} has no rows that can be used.")
    run.finished = True


def _take(run: Run, block: Block, order: Any) -> None:
    """Learn a block, and advance the position."""
    rows, good = ordered(block.rows, order), np.flatnonzero(_kept(block))
    with unbroken():
        known = 0 if run.monitor is None else len(run.monitor.alarms)
        found = _learn(run, rows, _times(run, block), lambda i: _label(run, block, int(good[i]))) if rows.shape[0] else None
        if run.alarms is not None and run.monitor is not None:
            names = run.source.get("feature_names")
            changed = [(moved(alarm, names), shares(alarm, names)) for alarm in run.monitor.alarms[known:]]
            about = [_about(block, i) for i in range(block.length)]
            run.alarms.add(_kept(block), found, about, _holes(rows), changed)
        run.row, run.position = block.start + block.length, block.position or run.position
        run.passed += block.length
        run.skipped += len(block.bad)
        run.skipped_rows += [bad.row for bad in block.bad][: NAMED - len(run.skipped_rows)]
        run.finished = False
    if run.onlooker is not None:
        ids, times = (None if each is None else each[good] for each in (block.ids, block.times))
        run.onlooker(Learned(rows, block.start + 1 + good, ids, found, times))


def _about(block: Block, i: int) -> list[str]:
    """Time and IDs of row i of a block, as far as it has them."""
    times = [] if block.times is None else [_time(block.times[i])]
    return times if block.ids is None else [*times, *map(str, block.ids[i])]


def _time(time: Any) -> str:
    if np.isnat(time) if isinstance(time, np.datetime64) else np.isnan(time):
        return ""
    return str(time.item().isoformat()) if isinstance(time, np.datetime64) else repr(float(time))


def _label(run: Run, block: Block, i: int) -> str:
    """What row i of a block is known by: source and row, time, IDs."""
    own = [each for each in _about(block, i) if each]
    return f"{run.source['name']}, row {block.start + i + 1}" + (f" ({', '.join(own)})" if own else "")


def _holes(rows: Any) -> list[int]:
    """Number of missing values in each row."""
    if not issparse(rows):
        return [int(count) for count in np.isnan(rows).sum(axis=1)]
    return [int(np.isnan(rows.data[start:stop]).sum()) for start, stop in itertools.pairwise(rows.indptr)]


def _times(run: Run, block: Block) -> Any:
    """Times of the good rows of a block, if the model forgets by time."""
    half_life = check_half_life(getattr(run.model, "half_life", None))
    if half_life is None or not half_life.in_time:
        return None
    if block.times is None:
        raise SourceError("A half-life in time needs the time of each row: name its column with --time-column (time_column=).")
    return block.times[_kept(block)]


def _kept(block: Block) -> NDArray[np.bool_]:
    """Which rows of a block are good."""
    good = np.ones(block.length, dtype=bool)
    good[[bad.row - block.start - 1 for bad in block.bad]] = False
    return good


def _learn(run: Run, rows: Any, times: Any, label: Callable[[int], str]) -> Update | None:
    """Learn rows; returns what the monitor says about them, if there is one."""
    if run.monitor is not None:
        return run.monitor.update(rows, times, label)
    run.model.partial_fit(rows, times=times)
    return None
