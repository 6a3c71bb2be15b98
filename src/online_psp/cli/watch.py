"""``psp watch``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from online_psp.cli._errors import DATA, fail, say
from online_psp.cli._options import SERVING, grouped
from online_psp.cli._page import check_image, check_page, page_settings


@grouped(serving=SERVING)
def watch(
    model: Annotated[Path, typer.Argument(help="Model file; it is only read.")],
    serving: dict[str, Any],
    monitor: Annotated[
        Path | None,
        typer.Option("--monitor", help="Table written by psp fit --monitor, to show all scores instead of the newest."),
    ] = None,
) -> None:
    """Show a model file on a live page, as another process rewrites it, until Ctrl-C."""
    import signal
    import threading

    check_page()
    from online_psp.watch.follow import Follower
    from online_psp.watch.server import PageServer, in_background
    from online_psp.watch.story import Story

    settings = page_settings(serving, title=str(model).encode("utf-8", "replace").decode())
    story = Story(settings)
    follower = Follower(model, story, monitor)
    follower.look()
    assert story.model is not None
    check_image(serving.get("image"), int(story.model.n_features_in_))
    try:
        server = PageServer(story, settings)
    except OSError as error:
        raise fail(f"The page cannot be served at {settings.host}: {error.strerror or error}.", DATA) from None
    if settings.port not in (0, server.port):
        say(f"Port {settings.port} is busy; the page is at port {server.port}.")
    say(f"The page is at {server.url}")
    if serving.get("open"):
        import webbrowser

        if not webbrowser.open(server.url):
            say("No browser could be opened.")
    stop = threading.Event()
    in_background(lambda: follower.run(server.tell, stop), "psp-watch-follow")
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda *_: in_background(server.stop, "psp-watch-stop") and None)
    try:
        server.run()
    finally:
        stop.set()
