"""``psp watch``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from online_psp.cli._options import SERVING, grouped
from online_psp.cli._page import announce, served, until_interrupted

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
    """Show a model file on a live page, as another process rewrites it."""
    from online_psp.io.runs import check_image
    from online_psp.watch.file import ModelFile
    from online_psp.watch.server import Server

    image = serving.get("image")
    file = ModelFile(model, monitor, image)
    file.look()
    if image is not None:
        check_image(image, file.features)
    server = served(Server, serving)
    server.publish(file.document())
    announce(server.url, server.port, serving)
    until_interrupted(_EVERY, lambda: server.publish(file.document()) if file.look() else None)
    server.close()
