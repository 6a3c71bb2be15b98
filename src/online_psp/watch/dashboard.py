"""Dashboard: a live page beside a loop that learns."""

from __future__ import annotations

import contextlib
import html
import json
import os
import queue
import subprocess
import sys
import threading
import time
import urllib.request
import warnings
import weakref
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from online_psp.engine.rows import AnyRows
from online_psp.monitoring import Monitor, Update
from online_psp.monitoring.recent import native
from online_psp.pca import OnlinePCA
from online_psp.watch import frames
from online_psp.watch.feed import Feed, learned_by
from online_psp.watch.frames import Facts, Frame
from online_psp.watch.settings import PageSettings, check_installed

_START = 60.0  # longest time to wait until the page is served, in seconds
_PAUSE = 1.0  # seconds without a frame after which to check whether the stream has paused
_END = 5.0  # longest time to wait until the last frame has arrived, in seconds


class PageError(RuntimeError):
    """The page cannot be served."""


class Dashboard:
    """Show a model, or a monitor, on a live page while it learns.

    A separate process serves the page. Learning continues whatever happens to that process or a browser: the learner hands over copies, at
    most four times a second, within a budget of 0.8 % of its time, and never waits.

    Parameters
    ----------
    watched : OnlinePCA or Monitor
        The model or monitor to show. With a monitor, the page shows its scores, limits and alarms; without one, it scores a sample of the
        rows, each before the shown model has learned it, and does not look for drift.
    settings : PageSettings, optional
        Title, host and port, shape of pictures, names of features and IDs.
    facts : callable, optional
        Returns the `Facts` of the run; the page measures the memory by itself.
    follow : bool
        Show all rows when the watched model, or monitor, learns them. With False, rows are shown that `update` is given, with their IDs.
    on_served : callable, optional
        Called from another thread with `address`, as soon as the page is served, or cannot be served.

    Attributes
    ----------
    url : str
        Address of the page; waits until it is served.

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
        settings: PageSettings | None = None,
        *,
        follow: bool = True,
        facts: Callable[[], Facts] | None = None,
        on_served: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        if not isinstance(watched, OnlinePCA | Monitor):
            raise TypeError(f"Dashboard takes an OnlinePCA or a Monitor; got {type(watched).__name__}.")
        check_installed()
        if follow and (watched.onlooker if isinstance(watched, Monitor) else watched._onlooker) is not None:
            raise ValueError(
                f"This {type(watched).__name__} is shown on another page: close that one, or pass follow=False to one of them."
            )
        self.settings = settings or PageSettings()
        self._monitor = watched if isinstance(watched, Monitor) else None
        self._model = watched.model if isinstance(watched, Monitor) else watched
        if self.settings.feature_names is None and hasattr(self._model, "feature_names_in_"):
            self.settings = replace(self.settings, feature_names=[str(name) for name in self._model.feature_names_in_])
        self._facts, self._on_served = facts or Facts, on_served
        self._status = "running", ""
        self.feed = Feed(self._offer, self._now, self._monitor is not None, seen_by(watched))
        if self._monitor is not None:
            self._monitor.witness = self.feed.witness
        self._frames: queue.Queue[Frame | None] = queue.Queue(maxsize=1)
        self._served = threading.Event()
        self.address: dict[str, Any] = {}
        """What the serving process has reported: url and port, or an error; empty until then."""
        self._told, self._closing = self.settings, False
        self._process = _start()
        self._end = weakref.finalize(self, _terminate, self._process)
        for work in (self._write, self._listen):
            threading.Thread(target=work, daemon=True, name=f"psp-watch-{work.__name__}").start()
        self._follows = follow
        if follow:
            self.feed.begin(self._model)
            self._set_onlooker(self._look)

    # While learning

    def update(self, rows: Any, found: Update | None = None, ids: Any = None, numbers: NDArray[np.int64] | None = None) -> None:
        """Show a block that was just learned, where the page does not follow by itself (``follow=False``).

        Parameters
        ----------
        rows : (n, D) or (D,)
            The rows as they were learned.
        found : Update, optional
            The result of the monitor's `update` or `update_one`.
        ids : (n, number of ID columns), optional
            Text to colour and label rows by.
        numbers : (n,), optional
            Numbers of the rows in their source, from 1 and ascending.
        """
        if self._follows:
            raise ValueError("The page shows rows when they are learned; pass follow=False to Dashboard to hand them over by `update`.")
        if not hasattr(rows, "shape"):
            rows = np.asarray(rows)
        if len(rows.shape) == 1:
            rows = rows[np.newaxis]
        if found is None and self._monitor is not None and rows.shape[0]:
            raise TypeError("The page of a Monitor shows what the monitor says: page.update(rows, monitor.update(rows)).")
        if ids is not None:
            self._name_ids(ids, rows.shape[0])
        self.feed.take(self._model, rows, numbers=numbers, ids=ids, found=found)

    def _set_onlooker(self, onlooker: Callable[..., None] | None) -> None:
        if self._monitor is None:
            self._model._be_watched(onlooker)
        else:
            self._monitor.onlooker = onlooker

    def _look(self, rows: AnyRows, found: Update | None = None) -> None:
        """Show rows that were just learned. Most calls only count them, which takes a microsecond."""
        feed = self.feed
        if time.monotonic() < feed.wakes:
            feed.passed.append(len(rows))
            return
        try:
            feed.take(self._model, native(rows), found=found)
        except Exception as error:  # the rows have been learned: what goes wrong here must not look as if that had
            self._follows = False
            self._set_onlooker(None)
            said = f"The page is told no more ({type(error).__name__}: {error}). Learning goes on without it."
            warnings.warn(said, RuntimeWarning, stacklevel=2)

    def _name_ids(self, ids: Any, rows: int) -> None:
        """Name ID columns that have no names."""
        if len(ids) != rows:
            raise ValueError(f"ids must have one entry a row: there are {rows} rows, and {len(ids)} entries.")
        count = np.size(ids[0]) if rows else len(self.settings.id_names)
        if len(self.settings.id_names) != count:
            self.settings = replace(self.settings, id_names=[f"ID {i + 1}" for i in range(count)])
            self.tell(id_names=self.settings.id_names)

    def tell(self, **told: Any) -> None:
        """Tell the page more about the source: ``feature_names``, ``image``, ``title``."""
        self.feed.tell(**told)

    @property
    def alive(self) -> bool:
        """Whether the page is still served."""
        return self._process.poll() is None

    @property
    def url(self) -> str:
        return self.wait()

    def wait(self, seconds: float = _START) -> str:
        """The address of the page, as soon as it is served.

        Raises
        ------
        PageError
            If it is not served in time.
        """
        self._served.wait(seconds)
        if "url" not in self.address:
            raise PageError(self.address.get("error") or f"The page was not served within {seconds:.0f} s.")
        return str(self.address["url"])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page, as it is now, to one HTML file that needs no server."""
        from online_psp.io.files import replacing

        self.wait()
        url = self.address["near"] + "save"
        straight = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # never through a proxy
        try:
            with straight.open(url, timeout=_START) as answer:
                data = answer.read()
        except OSError as error:
            raise PageError(f"The page cannot be saved: it does not answer at {url} ({error}).") from None
        with replacing(path) as file:
            file.write(data)

    def _repr_html_(self) -> str:
        """The page inside a notebook."""
        try:
            url = html.escape(self.url, quote=True)
        except PageError as error:
            return f"<p>{html.escape(str(error))}</p>"
        return f'<iframe src="{url}" title="online-psp" style="width: 100%; height: 900px; border: 0"></iframe>'

    # Ending

    def finish(self, status: str = "finished", note: str = "") -> None:
        """Hand over the final model; the page stays until `close`."""
        self._status = status, note
        with contextlib.suppress(queue.Full):
            self._frames.put(self.feed.finish(self._model), timeout=_END if self.alive else 0)

    def close(self, status: str = "finished", note: str = "") -> None:
        """Show how the run ended, and end the page."""
        self._closing = True
        if self._process.poll() is None and self._served.is_set():
            self.finish(status, note)
            with contextlib.suppress(queue.Full):
                self._frames.put(None, timeout=_END)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_END)
        if self._monitor is not None and self._monitor.witness == self.feed.witness:
            self._monitor.witness = None
        self._end()
        if self._follows:
            self._follows = False
            self._set_onlooker(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.close()
        elif issubclass(kind, KeyboardInterrupt):
            self.close("stopped")
        else:
            self.close("failed", f"{kind.__name__}: {error}")

    # Inside

    def _offer(self, frame: Callable[[], Frame]) -> bool:
        """Send a frame, unless the one before is still on its way; then the frame is not even built."""
        if self._frames.full() or not self.alive:
            return False
        with contextlib.suppress(queue.Full):  # another frame came in between
            self._frames.put_nowait(frame())
        return True

    def _now(self) -> Facts:
        status, note = self._status
        return self._facts()._replace(status=status, note=note)

    def _write(self) -> None:
        """Write the settings, and then frames, to the serving process, for as long as it accepts them."""
        file: Any = self._process.stdin
        with contextlib.suppress(OSError, ValueError):
            frames.write(file, asdict(self._told))
            while (frame := self._next()) is not None:
                began = time.thread_time()
                frames.write(file, frame)
                self.feed.sent(frame, time.thread_time() - began)
        with contextlib.suppress(OSError, ValueError):
            file.close()

    def _next(self) -> Frame | None:
        """The next frame to send, or None at the end; while there is none, see whether the stream has paused."""
        while True:
            try:
                return self._frames.get(timeout=_PAUSE)
            except queue.Empty:
                if not self.alive:
                    return None
                self.feed.late(self._model)

    def _listen(self) -> None:
        """Listen to the serving process, which says where the page is and when it ends."""
        file: Any = self._process.stdout
        with contextlib.suppress(OSError, ValueError):
            for line in file:
                with contextlib.suppress(ValueError):
                    self._hear(json.loads(line))
        if not self._closing and "error" not in self.address:
            self._hear({"error": "The process that serves the page has ended."})

    def _hear(self, address: dict[str, Any]) -> None:
        self.address = address
        if self._on_served is not None:
            self._on_served(address)
        self._served.set()


def seen_by(watched: OnlinePCA | Monitor) -> int:
    """Number of rows seen so far, without reading out the model."""
    return watched.n_rows if isinstance(watched, Monitor) else learned_by(watched)


def _start() -> subprocess.Popen[bytes]:
    """Start the serving process, in a session of its own, so that Ctrl-C goes to the learner only; it ends with the pipe."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}  # the learner needs the cores
    home = Path(__file__).resolve().parents[2]
    if home.name not in ("site-packages", "dist-packages"):  # Python does not look there by itself
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(home))))
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "online_psp.watch"],  # -P: a file in the working folder must not replace a module
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=None if os.environ.get("ONLINE_PSP_WATCH_DEBUG") else subprocess.DEVNULL,
        start_new_session=True,
        env=environment,
    )


def _terminate(process: subprocess.Popen[bytes]) -> None:
    """End the serving process, and leave no pipe open."""
    if process.poll() is None:
        process.terminate()
        deadline = time.monotonic() + 2.0
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        if process.poll() is None:
            process.kill()
            process.wait()
    for file in (process.stdin, process.stdout):
        if file is not None:
            with contextlib.suppress(OSError, ValueError):
                file.close()
