"""``--watch``: the live page beside `psp fit` and `psp update`."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from online_psp.cli._errors import DATA, USAGE, fail, say, usage
from online_psp.cli._options import WATCHING

if TYPE_CHECKING:
    from online_psp.cli.fit import Task

_Page = TypeVar("_Page")


def check_watching(watching: dict[str, Any]) -> None:
    """Refuse options that would have no effect, before anything is read."""
    for name in watching:
        if not watching.get("watch") and name not in ("watch", "image"):
            usage(f"{WATCHING[name].flags[0]} is an option of the live page: it needs --watch.")


def check_image(shape: Any, features: int) -> None:
    """Refuse an image size that does not fit the rows."""
    if shape is not None and math.prod(shape) != features:
        size = "x".join(str(length) for length in shape)
        usage(f"--image {size} is {math.prod(shape)} values a row, and rows have {features}.")


def served(serve: Callable[[int], _Page], serving: dict[str, Any]) -> _Page:
    """A page served at the port that was asked for, or the next free one."""
    from online_psp.watch.server import PORT, PageError

    try:
        return serve(serving.get("port", PORT))
    except ValueError as error:
        raise fail(str(error), USAGE) from None
    except PageError as error:
        raise fail(str(error), DATA) from None


def announce(url: str, port: int, serving: dict[str, Any]) -> None:
    """Say where the page is, and open it in a browser if that was asked for."""
    if serving.get("port", port) not in (0, port):
        say(f"Port {serving['port']} is busy; the page is at port {port}.")
    say(f"The page is at {url}")
    if serving.get("open"):
        import webbrowser

        if not webbrowser.open(url):
            say("No browser could be opened.")


class Shown:
    """A page beside a run.

    Parameters
    ----------
    task : Task
    run : runs.Run
    saving : runs.Saving
    """

    def __init__(self, task: Task, run: Any, saving: Any) -> None:
        from online_psp.watch import Dashboard

        serving, source = task.watching, run.source
        image = tuple(source.get("image_shape") or ())
        about = {
            "title": f"{source['name']} → {task.output}",
            "image": image if len(image) in (2, 3) else None,
            "feature_names": source.get("feature_names"),
            "id_names": [str(name) for name in run.reading.get("ids") or []],
        }
        watched = run.model if run.monitor is None else run.monitor
        self.run, self.saving, self._offset, self._last = run, saving, 0, 0
        self.page = served(lambda port: Dashboard(watched, port=port, follow=False, facts=self._facts, **about), serving)
        announce(self.page.url, self.page.port, serving)
        run.onlooker = self._look

    def _facts(self) -> dict[str, Any]:
        total = self.run.source.get("total")
        return {
            "saved": None if self.saving.last is None else time.monotonic() - self.saving.last,
            "total": None if total is None else int(total) * int(self.run.epochs),
        }

    def _look(self, learned: Any) -> None:
        """Show a block; if that fails, the fit continues without it."""
        try:
            numbers, first = learned.numbers, self.run.epochs == 1
            if len(numbers) and numbers[0] + self._offset <= self._last:  # another epoch
                self._offset = self._last
            self.page.update(learned.rows, learned.found, learned.ids, learned.times if first else None, numbers + self._offset)
            self._last = self.page.row
        except Exception as error:
            self.run.onlooker = None
            say(f"The page is told no more ({type(error).__name__}: {error}). The fit goes on without it.")

    def stay(self) -> None:
        """Keep the page after the fit until Ctrl-C."""
        self.page.finish()
        say(f"The page stays at {self.page.url} until Ctrl-C.")
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                time.sleep(1.0)
        self.page.close()


@contextlib.contextmanager
def shown(task: Task, run: Any, saving: Any) -> Iterator[Shown | None]:
    """Serve a page during a run, if asked for; if the run ends early, the page says so and ends."""
    if not task.watching.get("watch"):
        yield None
        return
    found = Shown(task, run, saving)
    try:
        yield found
    except BaseException as error:
        stopped = isinstance(error, KeyboardInterrupt)
        found.page.close("stopped" if stopped else "failed", "" if stopped else str(error))
        raise
    finally:
        run.onlooker = None
