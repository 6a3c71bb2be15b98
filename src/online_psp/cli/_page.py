"""Serving a live page: its port, its address, how long it stays."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any, TypeVar

from online_psp.cli._errors import DATA, USAGE, CommandError, say

_Page = TypeVar("_Page")


def served(serve: Callable[[int], _Page], serving: dict[str, Any]) -> _Page:
    """A page served at the port that was asked for, or the next free one."""
    from online_psp.watch.server import PORT, PageError

    try:
        return serve(serving.get("port", PORT))
    except ValueError as error:
        raise CommandError(str(error), USAGE) from None
    except PageError as error:
        raise CommandError(str(error), DATA) from None


def announce(url: str, port: int, serving: dict[str, Any]) -> None:
    """Say where the page is, and open it in a browser if that was asked for."""
    if serving.get("port", port) not in (0, port):
        say(f"Port {serving['port']} is busy; the page is at port {port}.")
    say(f"The page is at {url}")
    if serving.get("open"):
        import webbrowser

        if not webbrowser.open(url):
            say("No browser could be opened.")


def until_interrupted(every: float, act: Callable[[], None] = lambda: None) -> None:
    """Do something again and again until Ctrl-C."""
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            time.sleep(every)
            act()
