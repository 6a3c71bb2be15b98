"""Serves a page to the browsers of this machine, from a thread."""

from __future__ import annotations

import errno
import functools
import http.server
import json
import threading
import time
import urllib.parse
from importlib.resources import files
from typing import Any

PORT = 5006
"""Default port of a page."""
_PORTS = 100  # number of ports to try, one after the other
_HELD = 20.0  # longest time to hold a request for news, in seconds
_LAST = 2.0  # longest time to wait until the browsers have the last document, in seconds
_NAMES = ("127.0.0.1", "localhost")


class PageError(RuntimeError):
    """The page cannot be served."""


class Server:
    """Serves the newest document of a page; read only.

    Parameters
    ----------
    port : int
        Port to listen at; if it is busy, the next free one. 0 takes any.

    Attributes
    ----------
    url : str
    """

    def __init__(self, port: int) -> None:
        if not 0 <= port <= 65535:
            raise ValueError(f"port must be between 0 and 65535; got {port}.")
        self._news = threading.Condition()
        self._document, self._version, self._sent, self._asked = b"null", 0, -1, -1e9
        self._http = _listening(port, functools.partial(_Handler, self))
        self.port = int(self._http.server_address[1])
        self.url = f"http://127.0.0.1:{self.port}/"
        threading.Thread(target=self._http.serve_forever, args=(0.1,), daemon=True, name="psp-watch-serve").start()

    def publish(self, document: bytes) -> None:
        """Replace the document, and tell the browsers."""
        with self._news:
            self._document, self._version = document, self._version + 1
            self._news.notify_all()

    def page(self, saved: str = "") -> bytes:
        """The page with its newest document: one HTML file. If `saved` says when it was saved, it needs no server."""
        with self._news:
            return _page(self._document, self._version, saved)

    def after(self, version: int) -> tuple[bytes, int]:
        """The newest document and its version, as soon as it is newer than this one, or after a while."""
        with self._news:
            self._asked = time.monotonic()
            self._news.wait_for(lambda: self._version != version, _HELD)
            return self._document, self._version

    def was_sent(self, version: int) -> None:
        with self._news:
            self._sent = max(self._sent, version)
            self._news.notify_all()

    def close(self) -> None:
        """End, once a browser that looks has the last document."""
        with self._news:
            if time.monotonic() - self._asked < _HELD + _LAST:
                self._news.wait_for(lambda: self._sent == self._version, _LAST)
            self._version += 1  # lets go of the requests that are held
            self._news.notify_all()
        self._http.shutdown()
        self._http.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    timeout = 10.0  # of a browser that does not read

    def __init__(self, owner: Server, *more: Any) -> None:
        self.owner = owner
        super().__init__(*more)

    def do_GET(self) -> None:
        address = urllib.parse.urlsplit(self.path)
        if self.headers.get("Host", "").rpartition(":")[0] not in _NAMES:  # a foreign name that points at this machine
            self.send_error(403)
        elif address.path == "/":
            self._send(self.owner.page(), "text/html")
        elif address.path == "/data" and address.query.isdecimal():
            document, version = self.owner.after(int(address.query))
            self._send(b'{"version": %d, "data": %b}' % (version, document), "application/json")
            self.owner.was_sent(version)
        else:
            self.send_error(404)

    def _send(self, data: bytes, kind: str) -> None:
        self.send_response(200)
        for name, value in (
            ("Content-Type", f"{kind}; charset=utf-8"),
            ("Content-Length", str(len(data))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Say nothing on the terminal of the learner."""


class _Threaded(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, *_: Any) -> None:
        """A browser has gone."""


def _listening(port: int, handler: Any) -> _Threaded:
    """A server at the first port that is free."""
    for each in range(port, min(port + _PORTS, 65536)) if port else (0,):
        try:
            return _Threaded(("127.0.0.1", each), handler)
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise PageError(f"The page cannot be served: {error.strerror or error}.") from None
    raise PageError(f"The page cannot be served: ports {port} to {min(port + _PORTS, 65536) - 1} are all busy; choose another.")


def _page(document: bytes, version: int, saved: str) -> bytes:
    folder = files("online_psp.watch") / "page"
    html, css, *js = (folder.joinpath(name).read_text("utf-8") for name in ("page.html", "page.css", "charts.js", "page.js"))
    before, _, after = html.replace("/*css*/", css).replace("/*js*/", "".join(js)).partition("/*data*/")
    data = b'{"version": %d, "saved": %b, "data": %b}' % (version, json.dumps(saved).encode(), document)
    return before.encode() + data.replace(b"<", b"\\u003c") + after.encode()
