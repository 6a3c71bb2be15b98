"""``--watch``: the live page beside `psp fit` and `psp update`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from online_psp.cli._errors import USAGE, fail, say, usage
from online_psp.cli._options import WATCHING

if TYPE_CHECKING:
    from online_psp.cli.fit import Task


def check_watching(watching: dict[str, Any]) -> None:
    """Refuse options that would have no effect, and a missing package, before anything is read."""
    if not watching.get("watch"):
        for name in watching:
            if name not in ("watch", "image"):
                usage(f"{WATCHING[name].flags[0]} is an option of the live page: it needs --watch.")
        return
    check_page()


def check_page() -> None:
    """Fail with a sentence if a package is not installed."""
    from online_psp.watch.settings import MissingServerError, check_installed

    try:
        check_installed()
    except MissingServerError as error:
        raise fail(str(error), USAGE) from None


def page_settings(watching: dict[str, Any], **known: Any) -> Any:
    """Settings of a page, from the options and what is known about the source."""
    from online_psp.watch import PageSettings

    try:
        return PageSettings(**{**known, **{name: value for name, value in watching.items() if name in ("host", "port", "image")}})
    except ValueError as error:
        raise fail(str(error), USAGE) from None


def check_image(shape: Any, features: int) -> None:
    """Refuse an image size that does not fit the rows."""
    import math

    if shape is not None and math.prod(shape) != features:
        size = "x".join(str(length) for length in shape)
        usage(f"--image {size} is {math.prod(shape)} values a row, and rows have {features}.")


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

        self.run, self.saving, self.open = run, saving, bool(task.watching.get("open"))
        settings = page_settings(
            task.watching,
            title=f"{run.source['name']} → {task.output}",
            image=_image(run.source),
            feature_names=run.source.get("feature_names"),
            id_names=[str(name) for name in run.reading.get("ids") or []],
        )
        watched = run.model if run.monitor is None else run.monitor
        self._offset = self._last = 0
        self.page = Dashboard(watched, settings, follow=False, facts=self._facts, on_served=self._served)
        run.onlooker = self._look

    def _served(self, address: dict[str, Any]) -> None:
        """Print where the page is; called from a thread of the page."""
        if "url" not in address:
            say(f"{address.get('error', 'The page is not served.')} The fit goes on without it.")
            return
        if address["wanted"] not in (0, address["port"]):
            say(f"Port {address['wanted']} is busy; the page is at port {address['port']}.")
        say(f"The page is at {address['url']}")
        if self.open:
            import webbrowser

            if not webbrowser.open(address["url"]):
                say("No browser could be opened.")

    def _facts(self) -> Any:
        from online_psp.watch.frames import Facts

        total = self.run.source.get("total")
        return Facts(
            saved=None if self.saving.last is None else time.monotonic() - self.saving.last,
            total=None if total is None else int(total) * int(self.run.epochs),
        )

    def _look(self, learned: Any) -> None:
        """Hand a block over to the page; if that fails, the fit continues without it."""
        try:
            numbers = learned.numbers
            if len(numbers):
                if numbers[0] + self._offset <= self._last:  # another epoch
                    self._offset = self._last
                numbers = numbers + self._offset
                self._last = int(numbers[-1])
            self.page.update(learned.rows, learned.found, ids=learned.ids, numbers=numbers)
        except Exception as error:
            self.run.onlooker = None
            say(f"The page is told no more ({type(error).__name__}: {error}). The fit goes on without it.")

    def stay(self) -> None:
        """Keep the page after the fit until Ctrl-C."""
        from online_psp.watch.dashboard import PageError

        self.page.finish()
        try:
            say(f"The page stays at {self.page.wait()} until Ctrl-C.")
            while self.page.alive:
                time.sleep(0.2)
        except PageError as error:
            say(error)
        except KeyboardInterrupt:
            pass
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


def _image(source: dict[str, Any]) -> Any:
    from online_psp.watch.settings import suited_image

    return suited_image(source.get("image_shape"), source["features"])
