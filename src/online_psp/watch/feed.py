"""The learner's side of a page: decides which rows are copied, and when the model is, within a small budget of time.

Nothing is read out, projected, pickled or drawn here: a thread sends copies away, and the page's process does the rest. There are three
kinds of work, each with a budget of its own. A few rows are copied, up to twenty times a second. A *hand-over* sends them, with the
monitor's scores, at most four times a second. The model goes with it whenever its budget allows: a model whose copy takes long is copied
seldom. The time of the sending thread is charged as well. All other calls only look at the clock and count their rows, and single rows
are counted when they are learned, many at a time.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
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
from online_psp.watch.budget import Budget
from online_psp.watch.frames import Facts, Frame, Piece, Witness
from online_psp.watch.waiting import WaitingScores

EVERY = 0.25
"""Shortest time between two hand-overs, in seconds."""
_SLOT = 0.05  # length of a slot of time, in seconds; most rows, and bytes of rows, to copy in one slot:
_SLOT_ROWS, _SLOT_BYTES = 64, 1 << 17
_SLOT_CALLS = 8  # most calls that copy rows in one slot, since a call takes more time than is charged
_MODEL_SHARE, _FRAME_SHARE, _ROWS_SHARE = 0.004, 0.002, 0.002  # shares of the learner's processor time; less than 1 % together
_PIECE_ROWS, _PIECE_BYTES = 512, 1 << 20  # most rows, and bytes of rows, in one hand-over
_SCORED_ROWS = 1 << 18  # most scores in one hand-over
_WITNESSES = 16


class Feed:
    """Collects copies for a page, and hands them over when it is time. Several threads may give it rows.

    Parameters
    ----------
    offer : callable
        Takes a function that builds a frame, and returns whether it was called: False while the frame before is still on its way.
    facts : callable, optional
        Returns the `Facts` of a run.
    monitored : bool
        Whether a monitor scores every row.
    row : int
        Number of the newest row so far.
    """

    def __init__(
        self,
        offer: Callable[[Callable[[], Frame]], bool],
        facts: Callable[[], Facts] | None = None,
        monitored: bool = False,
        row: int = 0,
    ) -> None:
        self._offer, self._facts, self._monitored = offer, facts or Facts, monitored
        self._lock = threading.RLock()
        self.passed: deque[int] = deque()
        """Numbers of rows in the calls that had nothing else to do."""
        self.wakes = -math.inf
        """Time on the monotonic clock from which `take` has to be called; before it, an entry in `passed` is enough."""
        self.handed_over = 0
        """Number of frames handed over."""
        self.models = 0
        """Number of frames with a model."""
        self._row = row
        self._copies, self._frames, self._rows = Budget(_MODEL_SHARE, EVERY), Budget(_FRAME_SHARE, EVERY), Budget(_ROWS_SHARE, _SLOT)
        self._look_next = -math.inf  # time on the clock before which nothing is due
        self._slot_rows = self._slot_calls = 0  # rows that may still be copied in this slot, and calls that may copy them
        self._slot_ends = -math.inf  # time on the clock at which this slot ends
        self._pieces: deque[Piece] = deque()
        self._scores = WaitingScores(_SCORED_ROWS)
        self._witnesses: deque[Witness] = deque(maxlen=_WITNESSES)
        self._unplaced: list[tuple[Alarm, AnyRows, Snapshot, tuple[float, float]]] = []
        self._waiting_rows = self._alarms = self._outliers = 0
        self._told: dict[str, Any] | None = None
        self._shown = self._copied = self._noticed = row  # newest row in the last frame, in the last model, and when `late` last looked
        self._ahead: int | None = None  # rows learned by the model less rows counted here, when it was last copied

    @property
    def row(self) -> int:
        """Number of the newest row."""
        with self._lock:
            self._count_passed()
            return self._row

    @property
    def uncharted(self) -> int:
        """Number of scored rows that the charts leave out, because the page did not keep up."""
        return self._scores.dropped

    @property
    def spent(self) -> float:
        """Processor time that copies, and the thread that sends them, have taken so far, in seconds."""
        return self._copies.spent + self._frames.spent + self._rows.spent

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
            What the monitor said about the rows.
        """
        with self._lock:
            now, count = time.monotonic(), rows.shape[0]
            self._count_passed()
            if count and found is not None:
                self._keep_scores(count, numbers, found)
            first = self._row + 1
            if count:
                self._row = self._row + count if numbers is None else int(numbers[-1])
            early = now < self._look_next
            if early and not self._slot_is_open(now):
                return
            if numbers is None:
                numbers = np.arange(first, first + count)
            self._work(model, rows, numbers, ids, now, early)
            self.wakes = -math.inf if self._monitored or self._slot_is_open(now) else self._look_next

    def _work(self, model: OnlinePCA, rows: Any, numbers: NDArray[np.int64], ids: Any, now: float, early: bool) -> None:
        """Copy rows, and hand over, where the budgets allow it."""
        work = time.thread_time()
        if not early and self._rows.is_due(now, work):
            self._rows.begin(now, work)
            self._slot_ends, self._slot_calls = now + _SLOT, _SLOT_CALLS
            self._slot_rows = max(1, min(_SLOT_ROWS, _SLOT_BYTES // (8 * max(1, rows.shape[1]))))
        if self._slot_is_open(now):
            self._sample(rows, numbers, ids)
        copied = time.thread_time()
        self._rows.charge(copied - work)
        if not early:
            if self._frames.is_due(now, copied):
                self._hand_over(model, now, copied, self._copies.is_due(now, copied))
            self._look_next = now + max(_SLOT, min(self._rows.wait(now, copied), self._frames.wait(now, copied)))

    def sent(self, frame: Frame, cost: float) -> None:
        """Charge the processor time that sending a frame has taken, in seconds."""
        with self._lock:
            (self._frames if frame.state is None else self._copies).charge(cost)

    def begin(self, model: OnlinePCA) -> None:
        """Hand over a model that has learned something before it is watched."""
        with _at_rest(model), self._lock:
            self._hand_over(model, time.monotonic(), time.thread_time(), model.__sklearn_is_fitted__())

    def late(self, model: OnlinePCA) -> None:
        """Hand over what is left when a stream pauses. The sending thread calls this now and then; most calls find nothing to do.

        Nothing is done while the model learns. The model is not copied if it has learned rows that `take` has not been given yet, because
        those must be scored by a model that does not know them.
        """
        stream = model._stream if model.__sklearn_is_fitted__() else None
        if stream is None or not stream.lock.acquire(blocking=False):
            return
        try:
            stream.settle(warn=False)  # rows of `fit_next` that wait are to be seen; warnings are for the thread that learns
            with self._lock:
                now, row = time.monotonic(), self.row
                paused, self._noticed = row == self._noticed, row
                if not paused or row == self._copied or not self._frames.is_due(now, math.inf):
                    return
                whole = self._copies.is_due_in_pause(now) and learned_by(model) - row == self._ahead
                if whole or row > self._shown:
                    self._hand_over(model, now, time.thread_time(), whole)
        finally:
            stream.lock.release()

    def finish(self, model: OnlinePCA) -> Frame:
        """The last frame, built even if it is not due."""
        with _at_rest(model), self._lock:
            self._count_passed()
            return self._frame(model, time.monotonic(), True)

    def _count_passed(self) -> None:
        """Count the rows of calls that did nothing else."""
        while self.passed:
            self._row += self.passed.popleft()

    def _slot_is_open(self, now: float) -> bool:
        return self._slot_rows > 0 and self._slot_calls > 0 and now < self._slot_ends

    def _sample(self, rows: Any, numbers: NDArray[np.int64], ids: Any) -> None:
        """Copy some rows, evenly spaced, as many as this slot of time has room for."""
        count = min(self._slot_rows, len(numbers))
        if not count:
            return
        self._slot_rows -= count
        self._slot_calls -= 1
        chosen = len(numbers) - 1 - (np.arange(count)[::-1] * len(numbers)) // count  # the newest is always among them
        self._pieces.append(Piece(numbers[chosen], _copied(rows, chosen), _texts(ids, chosen)))
        self._waiting_rows += count
        most = min(_PIECE_ROWS, _PIECE_BYTES // (8 * max(1, rows.shape[1])))
        while self._waiting_rows > most and len(self._pieces) > 1:
            self._waiting_rows -= len(self._pieces.popleft().numbers)

    def _keep_scores(self, count: int, numbers: NDArray[np.int64] | None, found: Update) -> None:
        """Keep what a monitor said about the next rows; by default their numbers continue from the last."""
        self._monitored = True
        if count == 1 and not self._unplaced:
            self._outliers += bool(found.outlier)
            self._scores.add_one(self._row + 1 if numbers is None else int(numbers[0]), found)
            return
        if numbers is None:
            numbers = np.arange(self._row + 1, self._row + count + 1)
        found = Update(*(np.atleast_1d(field) for field in found))
        places = np.flatnonzero(found.drift != "") if self._unplaced else ()
        for at, (alarm, row, seen, limits) in enumerate(self._unplaced):
            number = int(numbers[places[at]]) if at < len(places) else alarm.row + 1
            self._witnesses.append(witnessed(alarm, number, row, seen, limits))
        self._unplaced.clear()
        self._outliers += int(np.count_nonzero(found.outlier))
        self._scores.add(numbers, found)

    def _hand_over(self, model: OnlinePCA, now: float, work: float, whole: bool) -> None:
        """Offer a frame, with the model or without; if the page is not ready for one, none is made."""
        made = self._offer(lambda: self._frame(model, now, whole))
        self._frames.begin(now, work)
        if made and whole:
            self._copies.begin(now, work)
        self.handed_over += made
        self.models += made and whole
        (self._copies if made and whole else self._frames).charge(max(0.0, time.thread_time() - work))

    def _frame(self, model: OnlinePCA, now: float, whole: bool) -> Frame:
        """A frame with copies of everything. Nothing else is done here, because the learner waits."""
        begun = model.__sklearn_is_fitted__()
        arrays, state = pca_state(model) if begun and whole else ({}, None)
        facts = self._facts()._replace(
            samples=learned_by(model) if begun else None,
            every=self._copies.interval,
            monitored=self._monitored,
            outliers=self._outliers if self._monitored else None,
            alarms=self._alarms,
            uncharted=self.uncharted,
        )
        frame = Frame(now, self._row, facts, arrays, state, list(self._pieces), self._scores.take(), list(self._witnesses), self._told)
        self._shown = self._row
        if state is not None:
            self._copied, self._ahead = self._row, learned_by(model) - self._row
        self._pieces.clear()
        self._witnesses.clear()
        self._waiting_rows = 0
        self._told = None
        return frame


@contextlib.contextmanager
def _at_rest(model: OnlinePCA) -> Iterator[None]:
    """Hold the lock of a model that has learned all that it was given. It is taken before that of a feed: a model that learns holds it."""
    with contextlib.ExitStack() as held:
        while model.__sklearn_is_fitted__():
            stream = model._fitted()
            with contextlib.ExitStack() as trying:
                trying.enter_context(stream.lock)
                if model._stream is stream:  # or another thread has merged, or begun anew, in the meantime
                    stream.settle()
                    held.push(trying.pop_all())
                    break
        yield


def learned_by(model: OnlinePCA) -> int:
    """Number of rows that a model has learned, without reading it out."""
    return int(model._fitted().moments.count) if model.__sklearn_is_fitted__() else 0


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
        return rows[chosen]  # indexing by numbers makes a copy
    return np.array(to_host(rows[chosen]))


def _texts(ids: Any, chosen: NDArray[np.int64]) -> list[list[str]] | None:
    """The texts of the ID columns in some rows."""
    if ids is None:
        return None
    rows: Sequence[Any] = np.asarray(ids)[chosen].tolist()
    return [[str(cell) for cell in row] if isinstance(row, list) else [str(row)] for row in rows]
