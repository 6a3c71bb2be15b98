"""``psp watch``."""

from __future__ import annotations

import contextlib
import signal
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from online_psp.cli._options import SERVING, grouped
from online_psp.cli._page import announce, check_image, served

_EVERY = 0.5  # seconds between two looks at the file


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
    from online_psp.watch.file import ModelFile
    from online_psp.watch.server import Server

    file = ModelFile(model, monitor, serving.get("image"))
    file.look()
    check_image(serving.get("image"), file.features)
    server = served(Server, serving)
    server.publish(file.document())
    announce(server.url, server.port, serving)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            time.sleep(_EVERY)
            if file.look():
                server.publish(file.document())
    server.close()
