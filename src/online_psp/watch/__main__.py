"""The process that serves the page of a learner: frames come in on standard input, the address goes out on standard output."""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
from typing import Any

_NOTHING = object()


def main() -> int:
    """Serve until the learner closes the pipe or ends."""
    from online_psp.watch import frames
    from online_psp.watch.memory import resident
    from online_psp.watch.settings import PageSettings

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(os, "nice"):
        os.nice(5)  # if cores are few, the learner comes first
    learner = os.getppid()
    told = frames.read(sys.stdin.buffer)
    if told is None:
        return 1
    settings = PageSettings(**told)
    from online_psp.watch.server import PageServer, in_background
    from online_psp.watch.story import Story

    story = Story(settings)
    try:
        server = PageServer(story, settings)
    except OSError as error:
        _say({"error": f"The page cannot be served at {settings.host}: {error.strerror or error}."})
        return 1
    _say({"url": server.url, "near": server.near, "port": server.port, "wanted": settings.port, "process": os.getpid()})

    arrived: queue.Queue[Any] = queue.Queue(maxsize=1)

    def read() -> None:
        frame = told
        while frame is not None:
            frame = frames.read(sys.stdin.buffer)
            arrived.put(frame)

    def listen() -> None:
        try:
            while (frame := _next(arrived, story.late())) is not None:
                if frame is _NOTHING:  # the stream has paused: draw what was left out to save time
                    story.refresh()
                else:
                    _take(story, frame._replace(facts=frame.facts._replace(memory=resident(learner))))
                server.tell()
        finally:
            server.stop()

    in_background(read, "psp-watch-read")
    in_background(listen, "psp-watch-listen")
    server.run()
    return 0


def _next(arrived: queue.Queue[Any], seconds: float | None) -> Any:
    """The next frame, or `_NOTHING` if none arrives within this many seconds."""
    try:
        return arrived.get(timeout=seconds)
    except queue.Empty:
        return _NOTHING


def _take(story: Any, frame: Any) -> None:
    """Show a hand-over; if it cannot be shown, the page says so and continues."""
    try:
        story.take(frame)
    except Exception as error:
        story.fail(f"The newest numbers cannot be shown ({type(error).__name__}: {error}).")


def _say(told: dict[str, Any]) -> None:
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # the reader thread may still be waiting for the pipe
