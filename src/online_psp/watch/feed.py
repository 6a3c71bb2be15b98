"""The learner's side of a page: which rows are copied, when the model is, and how little time that may take.

A hand-over is a copy of the model's state, of a few rows, and of what the monitor said. Nothing is read out, projected or drawn here. The
model is copied at most four times a second, and as long as that is not more than a two-hundredth of the learner's processor time. A learner
that waits for its rows, or for a busy machine, has little of that: it may hand over once a second all the same, within a two-hundredth of
the clock's time. So a model whose copy takes long is copied seldom.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from online_psp.engine.libraries import to_host
from online_psp.engine.rows import AnyRows
from online_psp.monitoring import Alarm, Update
from online_psp.monitoring.scores import Snapshot, contributions_by
from online_psp.pca import OnlinePCA
from online_psp.pca.files import pca_state
from online_psp.watch.frames import Facts, Frame, Piece, Scored, Witness, packed

EVERY = 0.25
"""Seconds between two hand-overs, at least."""
_SHARE = 200  # a hand-over may take one part in so many of the time
_SELDOM = 1.0  # seconds after which it is the clock's time that counts
_SLOT = 0.05  # seconds in which so many rows, and bytes of rows, are copied at most:
_SLOT_ROWS, _SLOT_BYTES = 64, 1 << 17
_SLOT_SHARE = 400  # copying rows may take one part in so many of the processor time
_PIECE_ROWS, _PIECE_BYTES = 512, 1 << 20  # rows of one hand-over
_SCORED_ROWS = 1 << 18  # scores of one hand-over
_WITNESSES = 16


class Feed:
    """Collects copies for a page, and hands them over when it is time.

    Parameters
    ----------
    offer : callable
        Takes the bytes of a frame, and says whether it did: False while the one before is still on its way.
    facts : callable, optional
        Gives the `Facts` of a run.
    """

    def __init__(self, offer: Callable[[Callable[[], bytes]], bool], facts: Callable[[], Facts] | None = None) -> None:
        self._offer, self._facts = offer, facts or Facts
        self.row = 0
        """Number of the newest row."""
        self.spent = 0.0
        """Seconds of processor time that the learner has given to the page so far."""
        self.handed_over = 0
        """How many frames."""
        self._last_cost = self._slot_ends = 0.0
        self._last = self._last_work = -math.inf  # clock's and processor's time of the last hand-over
        self._slot_rows = 0
        self._slot_work = -math.inf  # processor's time from which on rows are copied again
        self._pieces: deque[Piece] = deque()
        self._scores: deque[Scored] = deque()
        self._witnesses: deque[Witness] = deque(maxlen=_WITNESSES)
        self._unplaced: list[tuple[Alarm, AnyRows, Snapshot, tuple[float, float]]] = []
        self._waiting_rows = self._waiting_scores = self.uncharted = 0
        self._outliers: int | None = None
        self._alarms = 0
        self._told: dict[str, Any] | None = None

    def tell(self, **told: Any) -> None:
        """Say what has become known of the source."""
        self._told = {**(self._told or {}), **told}

    def witness(self, alarm: Alarm, row: AnyRows, seen: Snapshot, limits: tuple[float, float]) -> None:
        """Keep the row that raised an alarm, and the model by which it was judged; the monitor calls this."""
        self._alarms += 1
        if len(self._unplaced) < _WITNESSES:
            self._unplaced.append((alarm, row, seen, limits))

    def take(
        self,
        model: OnlinePCA,
        rows: Any,
        *,
        numbers: NDArray[np.int64] | None = None,
        ids: Any = None,
        found: Update | None = None,
    ) -> None:
        """Copy what the page needs of a block that was just learned, and hand it over if it is time to.

        Parameters
        ----------
        model : OnlinePCA
        rows : (n, D)
        numbers : (n,), optional
            Of the rows in their stream, ascending; by default they follow those before.
        ids : (n, number of ID columns), optional
        found : Update, optional
            What the monitor said of them.
        """
        now = time.monotonic()
        began = time.thread_time()
        count = rows.shape[0]
        if numbers is None:
            numbers = np.arange(self.row + 1, self.row + count + 1)
        if count:
            self.row = int(numbers[-1])
            if now >= self._slot_ends + EVERY or began >= self._slot_work:
                self._sample(rows, numbers, ids, now)
                self._slot_work = began + _SLOT_SHARE * (time.thread_time() - began)
            self._keep_scores(numbers, found)
        if self._is_due(now, began):
            self._hand_over(model, now)
        self.spent += time.thread_time() - began

    def finish(self, model: OnlinePCA) -> bytes:
        """The last frame, whatever the time."""
        return self._frame(model, time.monotonic())

    def _sample(self, rows: Any, numbers: NDArray[np.int64], ids: Any, now: float) -> None:
        """Copy some rows, evenly spaced, as many as this slot of time has room for."""
        if now >= self._slot_ends:
            self._slot_ends, self._slot_rows = now + _SLOT, int(np.clip(_SLOT_BYTES // (8 * max(1, rows.shape[1])), 1, _SLOT_ROWS))
        count = min(self._slot_rows, len(numbers))
        if not count:
            return
        self._slot_rows -= count
        chosen = len(numbers) - 1 - (np.arange(count)[::-1] * len(numbers)) // count  # the newest is always among them
        self._pieces.append(Piece(numbers[chosen], _copied(rows, chosen), _texts(ids, chosen)))
        self._waiting_rows += count
        most = min(_PIECE_ROWS, _PIECE_BYTES // (8 * max(1, rows.shape[1])))
        while self._waiting_rows > most and len(self._pieces) > 1:
            self._waiting_rows -= len(self._pieces.popleft().numbers)

    def _keep_scores(self, numbers: NDArray[np.int64], found: Update | None) -> None:
        for at, (alarm, row, seen, limits) in enumerate(self._unplaced):
            places: Any = [] if found is None else np.flatnonzero(found.drift != "")
            number = int(numbers[places[at]]) if at < len(places) else alarm.row + 1
            self._witnesses.append(witnessed(alarm, number, row, seen, limits))
        self._unplaced.clear()
        if found is None:
            return
        self._outliers = (self._outliers or 0) + int(np.count_nonzero(found.outlier))
        self._scores.append(Scored(numbers, found))
        self._waiting_scores += len(numbers)
        while self._waiting_scores > _SCORED_ROWS and len(self._scores) > 1:
            dropped = len(self._scores.popleft().numbers)
            self._waiting_scores -= dropped
            self.uncharted += dropped

    def _is_due(self, now: float, work: float) -> bool:
        passed, least = now - self._last, _SHARE * self._last_cost
        return passed >= EVERY and (work - self._last_work >= least or (passed >= _SELDOM and passed >= least))

    def _hand_over(self, model: OnlinePCA, now: float) -> None:
        began = time.thread_time()
        if self._offer(lambda: self._frame(model, now)):
            self.handed_over += 1
        self._last, self._last_work = now, time.thread_time()
        self._last_cost = self._last_work - began

    def _frame(self, model: OnlinePCA, now: float) -> bytes:
        arrays, state = pca_state(model) if model.__sklearn_is_fitted__() else ({}, None)
        facts = self._facts()._replace(
            monitored=self._outliers is not None, outliers=self._outliers, alarms=self._alarms, uncharted=self.uncharted
        )
        frame = Frame(now, self.row, facts, arrays, state, list(self._pieces), list(self._scores), list(self._witnesses), self._told)
        data = packed(frame)
        for kept in (self._pieces, self._scores, self._witnesses):
            kept.clear()
        self._waiting_rows = self._waiting_scores = 0
        self._told = None
        return data


def witnessed(alarm: Alarm, number: int, row: AnyRows, seen: Snapshot, limits: tuple[float, float]) -> Witness:
    """An alarm with its row, judged by a model."""
    parts = contributions_by(seen, row)
    return Witness(alarm, number, row.dense(np.dtype(np.float64))[0], parts.t2[0], parts.spe[0], *limits)


def _copied(rows: Any, chosen: NDArray[np.int64]) -> Any:
    """Some rows, as an array or a CSR array of their own."""
    if hasattr(rows, "columns"):  # a data frame
        rows = rows.iloc[chosen] if hasattr(rows, "iloc") else rows[chosen.tolist()]
        return np.asarray(rows, dtype=np.float64)
    if issparse(rows) or isinstance(rows, np.ndarray):
        return rows[chosen]  # by numbers, and so a copy
    return np.array(to_host(rows[chosen]))


def _texts(ids: Any, chosen: NDArray[np.int64]) -> list[list[str]] | None:
    """What the ID columns have in some rows."""
    if ids is None:
        return None
    rows: Sequence[Any] = np.asarray(ids)[chosen].tolist()
    return [[str(cell) for cell in row] if isinstance(row, list) else [str(row)] for row in rows]
