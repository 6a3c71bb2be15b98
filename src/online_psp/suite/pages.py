"""One self-contained HTML file from sections, verdicts and facts, by `page.html.j2`."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from online_psp.suite.rows import machine
from online_psp.suite.tables import Table
from online_psp.suite.verdicts import Verdict


@dataclass(frozen=True)
class Section:
    """A part of a page: its text, a picture, and the tables behind it."""

    title: str
    text: str = ""
    picture: Path | None = None  # a .png file
    tables: tuple[Table, ...] = ()

    @property
    def source(self) -> str:
        """The picture itself, as an address."""
        if self.picture is None:
            return ""
        return f"data:image/png;base64,{base64.b64encode(self.picture.read_bytes()).decode()}"


def write_page(
    path: Path,
    title: str,
    sections: Sequence[Section],
    *,
    introduction: str = "",
    verdicts: Sequence[Verdict] = (),
    facts: dict[str, str] | None = None,
    command: str = "",
) -> Path:
    """Write a page.

    Parameters
    ----------
    path : Path
        The HTML file.
    facts : dict
        Facts about the run beside those about the machine.
    command : str
        Command that repeats this.
    """
    from jinja2 import Environment, PackageLoader

    template = Environment(loader=PackageLoader("online_psp.suite", "."), autoescape=True, trim_blocks=True).get_template("page.html.j2")
    about = {**machine(), **(facts or {})}
    page = template.render(title=title, introduction=introduction, sections=sections, verdicts=verdicts, about=about, command=command)
    path.write_text(page, encoding="utf-8")
    return path
