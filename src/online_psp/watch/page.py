"""The page: one document per browser, filled from the story at the browser's own pace."""

from __future__ import annotations

import time
from importlib.resources import files
from typing import Any

from bokeh.document import Document
from bokeh.embed import file_html
from bokeh.events import DocumentReady
from bokeh.models import ColumnDataSource, CustomJS
from bokeh.resources import Resources
from jinja2 import Environment

from online_psp.watch import charts
from online_psp.watch.story import Story

_PARTS = ("explained", "scree", "variances", "whole", "newest", "marks", "rows", "components", "alarms", "facts")
_PATIENCE = 15.0  # seconds after which a browser that has not answered is sent more; twice as many each time


def _asset(name: str) -> str:
    return files("online_psp.watch").joinpath("assets", name).read_text(encoding="utf-8")


def _template() -> Any:
    """The template of the page. It escapes everything that comes from outside; only our own and Bokeh's scripts and styles are safe."""
    return Environment(autoescape=True).from_string(_asset("page.html"))


class Page:
    """The page in one browser.

    Parameters
    ----------
    document : Document
        The document of this browser.
    story : Story
    """

    def __init__(self, document: Document, story: Story) -> None:
        self.document, self.story = document, story
        self.sources = {name: ColumnDataSource(data=dict(story.parts[name].columns), name=f"data-{name}") for name in _PARTS}
        self.versions = {name: story.parts[name].version for name in _PARTS}
        self.acknowledged = self.sent = story.version
        self.sent_at, self._patience = time.monotonic(), _PATIENCE
        self.sources["facts"].data = story.told()  # with the time since the last hand-over
        self.paused = False
        self._answers = ColumnDataSource(data={"version": [story.version], "paused": [0]}, name="answers")
        self._answers.on_change("data", self._heard)
        self._lay_out()

    def _lay_out(self) -> None:
        document, sources = self.document, self.sources
        t2, spe = charts.scores(sources)
        plane, points, mappers = charts.plane(sources, self.story.settings.id_names)
        roots = [t2, spe, plane, charts.explained(sources), charts.scree(sources), charts.variances(sources)]
        t2.tags = [*sources.values(), self._answers]  # so that they belong to the document
        for root in roots:
            document.add_root(root)
        document.title = self.story.settings.title
        document.config.notify_connection_status = False
        handed = {**sources, "answers": self._answers, "t2": t2, "spe": spe, "plane": plane, "points": points}
        handed["session_id"] = "" if document.session_context is None else str(document.session_context.id)
        handed |= {"by_row": mappers["row"], "by_spe": mappers["spe"]}
        document.js_on_event(DocumentReady, CustomJS(args=handed, code=_asset("page.js")))
        document.template = _template()
        document.template_variables.update(style=_asset("page.css"), saved="", heading=self.story.settings.title)

    def _heard(self, _: str, __: Any, new: Any) -> None:
        """Handle an answer of the browser: it has drawn a version, or was paused or resumed."""
        try:
            version, paused = int(new["version"][0]), bool(new["paused"][0])
        except (KeyError, IndexError, TypeError, ValueError):
            return
        self.acknowledged, self.paused, self._patience = version, paused, _PATIENCE
        if not paused and self.story.version > self.sent:
            self.push()

    @property
    def behind(self) -> bool:
        """Whether the browser has not yet drawn what it was sent."""
        return self.acknowledged < self.sent and time.monotonic() - self.sent_at < self._patience

    def push(self) -> None:
        """Send what has changed, unless the browser is paused or still busy with what came before."""
        if self.paused or self.behind:
            return
        if self.acknowledged < self.sent:  # the browser does not answer: what it is sent piles up
            self._patience *= 2
        parts = self.story.parts
        for name in _PARTS:  # the facts come last: the browser answers when it has them
            part = parts[name]
            if part.version > self.versions[name]:
                self.versions[name] = part.version
                if name == "facts":
                    self.sent, self.sent_at = part.version, time.monotonic()
                self.sources[name].data = dict(part.columns)


def saved_html(document: Document, moment: str) -> str:
    """A document as one HTML file that needs no server and shows what its browser shows."""
    variables = {"style": _asset("page.css"), "saved": moment, "heading": document.title}
    resources = Resources(mode="inline", log_level="error")
    found: str = file_html(
        document, resources, title=document.title, template=_template(), template_variables=variables, suppress_callback_warning=True
    )
    return found
