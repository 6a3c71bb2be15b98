"""Dashboard: a live page beside a loop that learns."""

from __future__ import annotations

import contextlib
import datetime
import html
import math
import os
import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np

from online_psp.engine.rows import AnyRows, as_rows
from online_psp.engine.types import Floats
from online_psp.monitoring import Alarm, Monitor, Update
from online_psp.monitoring.scores import contributions_by
from online_psp.pca import OnlinePCA
from online_psp.watch.contents import Contents, Sample, Witness
from online_psp.watch.memory import resident
from online_psp.watch.server import PORT, Server

_SHARE = 0.01  # of the time: what the page's thread may work
_EVERY = 0.5  # shortest time between two readings of the model, in seconds
_SLOT, _SLOT_ROWS, _SLOT_BYTES = 0.1, 50, 1 << 19  # seconds, and most rows and bytes of rows to copy in that time
_OPEN: weakref.WeakValueDictionary[int, Dashboard] = weakref.WeakValueDictionary()  # what follows each model or monitor


class _Event(NamedTuple):
    """What the learner leaves for the page's thread."""

    numbers: Floats
    times: Floats
    found: Update | None
    sample: Sample | None
    alarms: list[tuple[Alarm, AnyRows, Any, Any]]


class Dashboard:
    """Show a model, or a monitor, on a live page while it learns.

    The learner only leaves scores and copies of a few rows. A thread reads snapshots of the model, within a hundredth of the time, and
    serves the page to the browsers of this machine.

    Parameters
    ----------
    watched : OnlinePCA or Monitor
        With a monitor, the page shows its scores, limits and alarms. Without one it scores a sample of the rows, each before the shown
        model has learned it, and does not look for drift.
    title : str
        Heading of the page.
    port : int
        Port to serve the page at; if it is busy, the next free one. 0 takes any.
    image : (height, width) or (height, width, channels), optional
        Shape of the pictures, if rows are pictures.
    feature_names : list of str, optional
        By default those of the model.
    id_names : list of str
        Names of the ID columns given to `update`.
    follow : bool
        Show all rows when the watched model, or monitor, learns them. With False, rows are shown that `update` is given, with their IDs.
    facts : callable, optional
        Returns more about the run: ``total`` (number of rows), ``saved`` (seconds since the last checkpoint).

    Attributes
    ----------
    url : str
        Address of the page.
    port : int
    row : int
        Number of the newest row.

    Examples
    --------
    >>> from online_psp import OnlinePCA
    >>> from online_psp.watch import Dashboard
    >>> model = OnlinePCA(16)
    >>> with Dashboard(model) as page:  # doctest: +SKIP
    ...     print(page.url)
    ...     for block in stream:
    ...         model.partial_fit(block)
    """

    def __init__(
        self,
        watched: OnlinePCA | Monitor,
        *,
        title: str = "OnlinePCA",
        port: int = PORT,
        image: tuple[int, ...] | None = None,
        feature_names: Sequence[str] | None = None,
        id_names: Sequence[str] = (),
        follow: bool = True,
        facts: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        if not isinstance(watched, OnlinePCA | Monitor):
            raise TypeError(f"Dashboard takes an OnlinePCA or a Monitor; got {type(watched).__name__}.")
        check_image(image)
        monitor = watched if isinstance(watched, Monitor) else None
        self._model: OnlinePCA = watched.model if isinstance(watched, Monitor) else watched
        if feature_names is None and hasattr(self._model, "feature_names_in_"):
            feature_names = [str(name) for name in self._model.feature_names_in_]
        if monitor is not None:
            self.row = monitor.n_rows
        else:
            self.row = self._model.n_samples_seen_ if self._model.__sklearn_is_fitted__() else 0
        self._watched, self._monitor, self._facts = watched, monitor, facts
        self._contents = Contents(title, image, feature_names, id_names, None if monitor is None else monitor.alpha)
        self._status, self._began = {"status": "running", "note": ""}, time.time()
        self._inbox: deque[_Event] = deque()
        self._alarms: list[tuple[Alarm, AnyRows, Any, Any]] = []
        self._slot_ends, self._room = -math.inf, 0
        self._lock, self._ended, self._closed = threading.Lock(), threading.Event(), False
        self._shown: Any = None  # what the newest document was made from
        self._pause = _EVERY
        self._server = Server(port)
        self.url, self.port = self._server.url, self._server.port
        self._follows = follow
        if follow:
            earlier = _OPEN.get(id(watched))
            if earlier is not None:
                earlier.close("finished", "Another page has taken over.")
            _OPEN[id(watched)] = self
            self._set_onlooker(self._look)
        if monitor is not None:
            monitor.witness = self._witness
        self._refresh()
        threading.Thread(target=self._work, daemon=True, name="psp-watch-read").start()

    # In the thread that learns

    def update(self, rows: Any, found: Update | None = None, ids: Any = None, times: Any = None, numbers: Any = None) -> None:
        """Show a block that was just learned, where the page does not follow by itself (``follow=False``).

        Parameters
        ----------
        rows : (n, D) or (D,)
            The rows as they were learned.
        found : Update, optional
            The result of the monitor's `update` or `update_one`.
        ids : (n,) or (n, number of ID columns), optional
            Text to colour and label rows by.
        times : (n,), optional
            Times of the rows: datetime64, or seconds.
        numbers : (n,), optional
            Numbers of the rows in their source, from 1 and ascending.
        """
        if self._follows:
            raise ValueError("The page shows rows when they are learned; pass follow=False to Dashboard to hand them over by `update`.")
        rows = rows if hasattr(rows, "shape") else np.asarray(rows)
        single = getattr(rows, "dtype", None) == np.float32
        checked = as_rows(rows[np.newaxis] if len(rows.shape) == 1 else rows, np.dtype(np.float32 if single else np.float64))
        if found is None and self._monitor is not None and len(checked):
            raise TypeError("The page of a Monitor shows what the monitor says: page.update(rows, monitor.update(rows)).")
        for name, given in (("ids", ids), ("times", times), ("numbers", numbers)):
            if given is not None and len(given) != len(checked):
                raise ValueError(f"{name} must have one entry a row: there are {len(checked)} rows, and {len(given)} entries.")
        if found is not None:
            found = Update(*(np.atleast_1d(field) for field in found))
        self._take(checked, found, None if ids is None else np.asarray(ids), times, numbers)

    def _look(self, rows: AnyRows, found: Update | None = None) -> None:
        """Show rows that were just learned."""
        try:
            self._take(rows, found)
        except Exception as error:  # the rows have been learned: what goes wrong here must not look as if that had
            self._set_onlooker(None)
            warnings.warn(f"The page is told no more ({type(error).__name__}: {error}). Learning goes on.", RuntimeWarning, stacklevel=2)

    def _take(self, rows: AnyRows, found: Update | None, ids: Any = None, times: Any = None, numbers: Any = None) -> None:
        n, now = len(rows), time.monotonic()
        first, self.row = self.row + 1, self.row + n if numbers is None or not n else int(numbers[-1])
        if now >= self._slot_ends:
            self._slot_ends, self._room = now + _SLOT, max(1, min(_SLOT_ROWS, _SLOT_BYTES // (8 * max(1, rows.D))))
        count = min(self._room, n)
        if not count and (found is None or not n):
            return
        numbers = np.arange(first, first + n, dtype=np.float64) if numbers is None else np.asarray(numbers, dtype=np.float64)
        seconds, sample = self._seconds(times, n), None
        if count:
            self._room -= count
            chosen = n - 1 - (np.arange(count)[::-1] * n) // count  # the newest is always among them
            taken = rows.take(chosen)
            plain = taken.matrix() if hasattr(taken, "matrix") else np.array(taken.dense(np.dtype(np.float64)))
            texts = [] if ids is None else [[str(cell)[:80] for cell in np.atleast_1d(ids[i])] for i in chosen]
            sample = Sample(plain, numbers[chosen], seconds[chosen], texts, None if found is None else found.spe[chosen])
        alarms, self._alarms = self._alarms, []
        self._inbox.append(_Event(numbers, seconds, found, sample, alarms))

    def _seconds(self, times: Any, n: int) -> Floats:
        if times is None:
            return np.full(n, math.nan)
        times = np.asarray(times)
        if times.dtype.kind != "M":
            self._contents.clock = "seconds"
            return np.asarray(times, dtype=np.float64)
        self._contents.clock = "date"
        found: Floats = np.where(np.isnat(times), math.nan, times.astype("datetime64[us]").astype(np.float64) / 1e6)
        return found

    def _witness(self, alarm: Alarm, row: AnyRows, seen: Any, limits: Any) -> None:
        """Keep the row that raised an alarm, and the model by which it was judged; the monitor calls this."""
        self._alarms.append((alarm, row, seen, limits))

    def _set_onlooker(self, onlooker: Callable[..., None] | None) -> None:
        if self._monitor is None:
            self._model._be_watched(onlooker)
        else:
            self._monitor.onlooker = onlooker

    # In the page's thread

    def _work(self) -> None:
        """Read the model and publish what there is, again and again, for a hundredth of the time at most."""
        while not self._ended.wait(self._pause):
            began = time.thread_time()
            try:
                self._refresh()
            except Exception as error:
                note = f"The newest numbers cannot be shown ({type(error).__name__}: {error})."
                with contextlib.suppress(Exception):
                    self._publish(note=note)
            self._pause = max(_EVERY, (time.thread_time() - began) / _SHARE)

    def _refresh(self) -> None:
        """Publish what there is, if anything has changed."""
        with self._lock:
            fitted = self._model.__sklearn_is_fitted__()
            state = (self._model.n_samples_seen_ if fitted else 0, self.row, self._status)
            if self._closed or (state == self._shown and not self._inbox):
                return
            seen = self._model.snapshot() if fitted else None  # before the events are taken, so that it has not learned the next ones
            events = [self._inbox.popleft() for _ in range(len(self._inbox))]
            self._handle(events)
            if seen is not None:
                self._contents.read(seen, self.row, events[-1].times[-1] if events else math.nan)
            self._publish()
            self._shown = state

    def _publish(self, **more: Any) -> None:
        facts = {"seconds": time.time() - self._began, "pause": self._pause, "memory": resident(), "total": None, "saved": None}
        self._server.publish(self._contents.document(self.row, **(facts | self._facts() | self._status | more)))

    def _handle(self, events: list[_Event]) -> None:
        contents = self._contents
        judged = [event for event in events if event.found is not None]
        if judged:
            numbers, times = (np.concatenate([event[i] for event in judged]) for i in (0, 1))
            fields: Any = zip(*(event.found for event in judged if event.found is not None), strict=True)
            contents.judge(numbers, times, Update(*map(np.concatenate, fields)))
        contents.add(*(event.sample for event in events if event.sample is not None))
        for event in judged:
            places = np.flatnonzero(event.found.drift != "")  # type: ignore[union-attr]
            for (alarm, row, seen, _), place in zip(event.alarms, places, strict=False):
                parts = contributions_by(seen, row)
                witness = Witness(row.dense(np.dtype(np.float64))[0], parts.t2[0], parts.spe[0])
                contents.alarm(alarm, float(event.numbers[place]), float(event.times[place]), witness)

    # For the user

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page, as it is now, to one HTML file that needs no server."""
        from online_psp.io.files import replacing

        self._refresh()
        with replacing(path) as file:
            file.write(self._server.page(saved=f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC"))

    def _repr_html_(self) -> str:
        """The page inside a notebook."""
        return f'<iframe src="{html.escape(self.url)}" title="online-psp" style="width: 100%; height: 900px; border: 0"></iframe>'

    def finish(self, status: str = "finished", note: str = "") -> None:
        """Show the final model and how the run ended; the page stays until `close`."""
        self._status = {"status": status, "note": note}
        self._refresh()

    def close(self, status: str = "finished", note: str = "") -> None:
        """Show how the run ended, and end the page. It can still be saved."""
        if self._ended.is_set():
            return
        self._ended.set()
        if self._follows:
            self._set_onlooker(None)
        if self._monitor is not None and self._monitor.witness == self._witness:
            self._monitor.witness = None
        self.finish(status, note)
        self._closed = True
        self._server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.close()
        elif issubclass(kind, KeyboardInterrupt):
            self.close("stopped")
        else:
            self.close("failed", f"{kind.__name__}: {error}")


def check_image(image: tuple[int, ...] | None) -> None:
    """Raise a ValueError if this is no shape of a picture."""
    if image is not None and not (len(image) in (2, 3) and min(image) > 0 and (*image, 1)[2] in (1, 3)):
        raise ValueError(f"image must be (height, width) or (height, width, 1 or 3 channels); got {image!r}.")
