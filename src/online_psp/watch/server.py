"""The server of the page: for this machine only, or behind a token; it is read-only."""

from __future__ import annotations

import datetime
import errno
import functools
import logging
import socket
import threading
import time
from typing import Any

from bokeh.application import Application
from bokeh.application.handlers.function import FunctionHandler
from bokeh.document import Document
from bokeh.server.server import Server
from bokeh.settings import settings as bokeh_settings
from tornado.web import HTTPError, RequestHandler

from online_psp.watch.page import Page, saved_html
from online_psp.watch.settings import PageSettings, is_loopback
from online_psp.watch.story import Story

_PORTS = 100  # number of ports to try, one after the other
_LAST = 3.0  # seconds for browsers to draw the last numbers
_EVERY = 0.25
_NAMES = ("127.0.0.1", "localhost")  # names of this machine


class PageServer:
    """Serves the page of a story.

    Parameters
    ----------
    story : Story
    settings : PageSettings

    Attributes
    ----------
    port : int
        Port that it listens at: the requested one, or the next free one.
    url : str
        Address of the page, also for other machines if they can reach it.
    near : str
        Address of the page on this machine.
    """

    def __init__(self, story: Story, settings: PageSettings) -> None:
        self.story, self.settings = story, settings
        self._pages: dict[str, Page] = {}
        self._told_at, self._later = 0.0, False
        bokeh_settings.log_level = "error"  # below that, it warns about logarithmic axes that have no data yet
        for name in ("bokeh", "tornado"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self._server = self._listen()
        self.loop: Any = self._server.io_loop
        self.port = int(self._server.port or 0)
        path = f":{self.port}/{settings.token + '/' if settings.token else ''}"
        self.url, self.near = (f"http://{_visible(settings.host, all_of)}{path}" for all_of in (socket.gethostname(), "127.0.0.1"))

    def _listen(self) -> Server:
        """A server at the first port that is free."""
        prefix = f"/{self.settings.token}" if self.settings.token else ""
        first = self.settings.port
        for port in range(first, min(first + _PORTS, 65536)) if first else (0,):
            try:
                server = self._bound(port, prefix)
            except OSError as error:
                if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                    raise
                continue
            server.start()
            return server
        raise OSError(errno.EADDRINUSE, f"Ports {first} to {first + _PORTS - 1} are all busy; choose another with --port.")

    def _bound(self, port: int, prefix: str) -> Server:
        with socket.socket(socket.AF_INET6 if ":" in self.settings.host else socket.AF_INET) as probe:  # the origins contain the port
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((self.settings.host, port))
            port = int(probe.getsockname()[1])
        local = is_loopback(self.settings.host)
        origins = [f"{name}:{port}" for name in _NAMES] if local else ["*"]  # with a token, no list is needed
        pages = Application(FunctionHandler(self._open))
        return Server(
            {"/": pages},
            address=self.settings.host,
            port=port,
            prefix=prefix,
            allow_websocket_origin=origins,
            extra_patterns=[("/save", _Save, {"owner": self})],  # behind the prefix, like everything else
            unused_session_lifetime_milliseconds=30_000,
            check_unused_sessions_milliseconds=5_000,
            stats_log_frequency_milliseconds=3_600_000,
        )

    def _open(self, document: Document) -> None:
        """Lay out the page of a new browser; it stays empty if the browser calls this machine by a foreign name."""
        context = document.session_context
        request = None if context is None else context.request
        if request is not None and not self.knows(str(request.headers.get("Host", ""))):
            return
        page = Page(document, self.story)
        key = str(context.id) if context is not None else ""
        self._pages[key] = page
        document.on_session_destroyed(functools.partial(self._forget, key))

    def knows(self, host: str) -> bool:
        """Whether a browser may use this host name: without a token, a foreign name that points at this machine is refused."""
        return bool(self.settings.token) or host.rpartition(":")[0] in _NAMES

    def _forget(self, key: str, _: Any) -> None:
        self._pages.pop(key, None)

    def tell(self) -> None:
        """Announce, from any thread, that the story has changed."""
        self.loop.add_callback(self._tell)

    def _tell(self) -> None:
        """Let every page push, at most four times a second."""
        if self._later:
            return
        left = self._told_at + _EVERY - time.monotonic()
        if left > 0:
            self._later = True
            self.loop.call_later(left, self._tell_now)
        else:
            self._tell_now()

    def _tell_now(self) -> None:
        self._later, self._told_at = False, time.monotonic()
        for page in list(self._pages.values()):
            page.document.add_next_tick_callback(page.push)

    def run(self) -> None:
        """Serve until `stop`."""
        self.loop.start()
        self._server.stop()

    def stop(self) -> None:
        """End the server, from any thread, once browsers have drawn the last numbers or had time to."""
        self.story.closing = True
        self.story.refresh()
        self.tell()
        deadline = time.monotonic() + _LAST
        while time.monotonic() < deadline:
            time.sleep(0.05)
            pages = list(self._pages.values())
            if all(page.paused or page.acknowledged >= self.story.version for page in pages):
                break
        self.loop.add_callback(self.loop.stop)

    def session_document(self, session: str | None) -> Document:
        """The document of a browser's session, or a new document."""
        page = self._pages.get(session or "")
        if page is not None:
            return page.document
        document = Document()
        Page(document, self.story)
        return document


class _Save(RequestHandler):
    """Serves the page as one file to download."""

    def initialize(self, owner: PageServer) -> None:
        self.owner = owner

    def get(self) -> None:
        if not self.owner.knows(self.request.host):
            raise HTTPError(403)
        now = datetime.datetime.now(datetime.UTC)
        document = self.owner.session_document(self.get_argument("session", None))
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.set_header("Content-Disposition", f'attachment; filename="psp-{now:%Y%m%d-%H%M%S}.html"')
        self.set_header("X-Content-Type-Options", "nosniff")
        self.write(saved_html(document, f"{now:%Y-%m-%d %H:%M} UTC"))


def _visible(host: str, all_of: str) -> str:
    """A host as it is written in a URL; `all_of` replaces a host that means all addresses of this machine."""
    if host in ("0.0.0.0", "::", ""):
        host = all_of
    return f"[{host}]" if ":" in host else host


def in_background(work: Any, name: str) -> threading.Thread:
    """Start a thread that does not keep the process alive."""
    thread = threading.Thread(target=work, daemon=True, name=name)
    thread.start()
    return thread
