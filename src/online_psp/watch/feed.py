"""The learner's side of a page: which rows are copied, when the model is, and how little time that may take.

A hand-over is a copy of the model's state, of a few rows, and of what the monitor said. Nothing is read out, projected, pickled or drawn
here: a thread sends the copies away, and the page's process does the rest. The model is copied at most four times a second, and as long as
that is not more than a two-hundredth of the learner's processor time. A learner that waits for its rows, or for a busy machine, has little
of that: it may hand over once a second all the same, within a thousandth of the clock's time. So a model whose copy takes long is copied
seldom. Most calls only count their rows and look at the clock.
"""

from __future__ import annotations

import math
import threading
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
from online_psp.watch.frames import Facts, Frame, Piece, Witness
from online_psp.watch.waiting import WaitingScores

EVERY = 0.25
"""Least seconds between two hand-overs."""
_SHARE = 200  # a hand-over may take one part in so many of the time
_SELDOM = 1.0  # seconds after which the clock's time counts too,
_SELDOM_SHARE = 1000  # and a hand-over may take one part in so many of that: on a busy machine little of it is the learner's
_SLOT = 0.05  # seconds in which so many rows, and bytes of rows, are copied at most:
_SLOT_ROWS, _SLOT_BYTES = 64, 1 << 17
_SLOT_SHARE = 400  # copying rows may take one part in so many of the processor time, or happens four times a second
_PIECE_ROWS, _PIECE_BYTES = 512, 1 << 20  # rows of one hand-over
_SCORED_ROWS = 1 << 18  # scores of one hand-over
_WITNESSES = 16


class Feed:
    """Collects copies for a page, and hands them over when it is time. Several threads may give it rows.

    Parameters
    ----------
    offer : callable
        Takes what makes a frame, and says whether it made one: False while the one before is still on its way.
    facts : callable, optional
        Returns the `Facts` of a run.
    monitored : bool
        Whether a monitor scores every row.
    """

    def __init__(
        self, offer: Callable[[Callable[[], Frame]], bool], facts: Callable[[], Facts] | None = None, monitored: bool = False
    ) -> None:
        self._offer, self._facts, self._monitored = offer, facts or Facts, monitored
        self._lock = threading.RLock()
        self.row = 0
        """Number of the newest row."""
        self.handed_over = 0
        """Number of frames."""
        self._look_next = -math.inf  # clock's time from which on it may be time to copy something
        self._last_cost = 0.0
        self._last = self._last_work = -math.inf  # clock's and processor's time of the last hand-over
        self._slot_rows = 0
        self._slot_ends = self._slot_work = -math.inf  # clock's time up to which, processor's time from which on rows are copied
        self._slot_cost = 0.0
        self._pieces: deque[Piece] = deque()
        self._scores = WaitingScores(_SCORED_ROWS)
        self._witnesses: deque[Witness] = deque(maxlen=_WITNESSES)
        self._unplaced: list[tuple[Alarm, AnyRows, Snapshot, tuple[float, float]]] = []
        self._waiting_rows = self._alarms = self._outliers = 0
        self._told: dict[str, Any] | None = None

    @property
    def uncharted(self) -> int:
        """Scored rows that the charts leave out, because the page did not keep up."""
        return self._scores.dropped

    def tell(self, **told: Any) -> None:
        """Tell the page more about the source."""
        with self._lock:
            self._told = {**(self._told or {}), **told}

    def witness(self, alarm: Alarm, row: AnyRows, seen: Snapshot, limits: tuple[float, float]) -> None:
        """Keep the row that raised an alarm, and the model by which it was judged; the monitor calls this."""
        with self._lock:
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
            Numbers of the rows in their stream, ascending; by default they continue from the last.
        ids : (n, number of ID columns), optional
        found : Update, optional
            What the monitor said about them.
        """
        with self._lock:
            now, count = time.monotonic(), rows.shape[0]
            if count and found is not None:
                self._keep_scores(count, numbers, found)
            first = self.row + 1
            if count:
                self.row = self.row + count if numbers is None else int(numbers[-1])
            early = now < self._look_next
            if early and not (self._slot_rows and now < self._slot_ends):
                return
            if numbers is None:
                numbers = np.arange(first, first + count)
            if early:
                self._sample(rows, numbers, ids)
                return
            self._look_next = now + _SLOT
            work = time.thread_time()
            if work >= self._slot_work + _SLOT_SHARE * self._slot_cost or now >= self._slot_ends + EVERY:
                self._slot_ends, self._slot_work, self._slot_cost = now + _SLOT, work, 0.0
                self._slot_rows = max(1, min(_SLOT_ROWS, _SLOT_BYTES // (8 * max(1, rows.shape[1]))))
                self._sample(rows, numbers, ids)
            if self._is_due(now, work):
                self._hand_over(model, now)

    def passes(self, rows: Any) -> bool:
        """Count rows of which nothing is to be copied now, and say so. Of a plain loop most calls are of this kind: it is kept short."""
        with self._lock:
            now = time.monotonic()
            if now >= self._look_next or (self._slot_rows and now < self._slot_ends):
                return False
            self.row += len(rows)
            return True

    def finish(self, model: OnlinePCA) -> Frame:
        """The last frame, whatever the time."""
        with self._lock:
            return self._frame(model, time.monotonic())

    def _sample(self, rows: Any, numbers: NDArray[np.int64], ids: Any) -> None:
        """Copy some rows, evenly spaced, as many as this slot of time has room for."""
        count = min(self._slot_rows, len(numbers))
        if not count:
            return
        began = time.perf_counter()
        self._slot_rows -= count
        chosen = len(numbers) - 1 - (np.arange(count)[::-1] * len(numbers)) // count  # the newest is always among them
        self._pieces.append(Piece(numbers[chosen], _copied(rows, chosen), _texts(ids, chosen)))
        self._waiting_rows += count
        most = min(_PIECE_ROWS, _PIECE_BYTES // (8 * max(1, rows.shape[1])))
        while self._waiting_rows > most and len(self._pieces) > 1:
            self._waiting_rows -= len(self._pieces.popleft().numbers)
        self._slot_cost += time.perf_counter() - began

    def _keep_scores(self, count: int, numbers: NDArray[np.int64] | None, found: Update) -> None:
        """Keep what a monitor said about the next rows; by default their numbers continue from the last."""
        self._monitored = True
        if count == 1 and not self._unplaced:
            self._outliers += bool(found.outlier)
            self._scores.add_one(self.row + 1 if numbers is None else int(numbers[0]), found)
            return
        if numbers is None:
            numbers = np.arange(self.row + 1, self.row + count + 1)
        found = Update(*(np.atleast_1d(field) for field in found))
        places = np.flatnonzero(found.drift != "") if self._unplaced else ()
        for at, (alarm, row, seen, limits) in enumerate(self._unplaced):
            number = int(numbers[places[at]]) if at < len(places) else alarm.row + 1
            self._witnesses.append(witnessed(alarm, number, row, seen, limits))
        self._unplaced.clear()
        self._outliers += int(np.count_nonzero(found.outlier))
        self._scores.add(numbers, found)

    def _is_due(self, now: float, work: float) -> bool:
        passed, cost = now - self._last, self._last_cost
        return passed >= EVERY and (work - self._last_work >= _SHARE * cost or passed >= max(_SELDOM, _SELDOM_SHARE * cost))

    def _hand_over(self, model: OnlinePCA, now: float) -> None:
        began = time.thread_time()
        if self._offer(lambda: self._frame(model, now)):
            self.handed_over += 1
        self._last, self._last_work = now, time.thread_time()
        self._last_cost = self._last_work - began

    def _frame(self, model: OnlinePCA, now: float) -> Frame:
        """Copies of everything; no more than that is done here, since the learner waits."""
        arrays, state = pca_state(model) if model.__sklearn_is_fitted__() else ({}, None)
        facts = self._facts()._replace(
            monitored=self._monitored, outliers=self._outliers if self._monitored else None, alarms=self._alarms, uncharted=self.uncharted
        )
        frame = Frame(now, self.row, facts, arrays, state, list(self._pieces), self._scores.take(), list(self._witnesses), self._told)
        self._pieces.clear()
        self._witnesses.clear()
        self._waiting_rows = 0
        self._told = None
        return frame


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
