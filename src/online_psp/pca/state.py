"""The state of an OnlinePCA: its settings, the model of the closed blocks, and the rows since."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from online_psp.engine.rows import DenseRows
from online_psp.pca.buffer import Buffer
from online_psp.pca.forgetting import decays_of
from online_psp.pca.merge import merge, weighing
from online_psp.pca.model import Model
from online_psp.pca.principal import with_signals
from online_psp.pca.settings import Settings
from online_psp.pca.window import learn, rows_left, whole


class State(NamedTuple):
    """All that an OnlinePCA has learned."""

    settings: Settings
    model: Model
    """After the last closed block."""
    buffer: Buffer
    """The rows since."""
    last_time: float | None = None
    """Of the last row, where age is time."""

    @property
    def seen(self) -> int:
        return self.model.seen + self.buffer.n

    def closed(self) -> State:
        """The state with the rows of the open block learned, however few they are."""
        if not self.buffer.n:
            return self
        return opened(self.settings, learn(self.model, self.buffer.block(), self.settings), self.last_time)

    def now(self) -> Model:
        """The model of all rows."""
        return whole(self.closed().model, self.settings)

    def merged(self, other: State) -> State:
        """The state after the rows of both streams; rows are put together while they fit into the first block."""
        _check_alike(self.settings, other.settings)
        settings, (mine, theirs, last) = self.settings, _faded(self, other)
        if not self.model.seen and not other.model.seen and self.seen + other.seen < self.buffer.room and not settings.few:
            parts = [(state.buffer.block(), left) for state, left in ((self, mine), (other, theirs))]
            rows = np.concatenate([block.rows.dense(settings.working) for block, _ in parts])
            weights = np.concatenate([left * block.left for block, left in parts])
            both = opened(settings, self.model._replace(unit=self.model.unit or other.model.unit), last)
            both.buffer.add(DenseRows(rows), weights, np.ones(len(rows)))
            return both
        model = merge(weighing(self.closed().model, mine), weighing(other.closed().model, theirs), settings)
        return opened(settings, with_signals(model, settings), last)


def opened(settings: Settings, model: Model, last_time: float | None = None) -> State:
    """The state of a model, with an empty buffer for the next block."""
    kept = settings.rank if settings.share is None else len(model.variances)
    room = settings.block_rows(kept, not model.seen, rows_left(model, settings))
    decay = float(decays_of(settings.half_life, None, None)[0])
    return State(settings, model, Buffer(room, settings.D, settings.working, decay), last_time)


def _check_alike(mine: Settings, theirs: Settings) -> None:
    """Raise a ValueError if models with these settings cannot be merged."""
    if mine.center != theirs.center:
        raise ValueError("A model that centres and one that does not cannot be merged.")
    if mine.standardize != theirs.standardize:
        raise ValueError("A model that standardises and one that does not cannot be merged.")
    if mine.window is not None or theirs.window is not None:
        raise ValueError("Models with a window cannot be merged: whose rows are older is not known.")
    if mine.half_life != theirs.half_life:
        raise ValueError("Models with different half-lives cannot be merged.")
    if mine.robust != theirs.robust:
        raise ValueError("A robust model and one that is not cannot be merged.")
    if mine.missing != theirs.missing and mine.missing == "error":
        raise ValueError("A model that refuses missing values cannot be merged with one that takes them.")


def _faded(mine: State, theirs: State) -> tuple[float, float, float | None]:
    """What is left of the weights of each stream when the later one stops, and the time of that."""
    half_life = mine.settings.half_life
    if half_life is None:
        return 1.0, 1.0, None
    if not half_life.in_time or mine.last_time is None or theirs.last_time is None:
        raise ValueError(
            "Models that forget by rows cannot be merged: whose rows are older is not known. Give rows times, and half_life as a time."
        )
    last = max(mine.last_time, theirs.last_time)
    return 2.0 ** ((mine.last_time - last) / half_life.length), 2.0 ** ((theirs.last_time - last) / half_life.length), last
