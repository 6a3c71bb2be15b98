"""The report: one self-contained HTML file."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from online_psp.experiments.provenance import machine
from online_psp.experiments.tables import Table
from online_psp.experiments.verdict import BY_LESS, BY_MORE, FAILS, HOLDS, OPEN, PARTLY, UNDECIDED, Verdict

_BADGES = {HOLDS: "yes", PARTLY: "partly", BY_MORE: "partly", BY_LESS: "partly", FAILS: "no", OPEN: "open", UNDECIDED: "open"}
_MIME = {".svg": "image/svg+xml", ".png": "image/png"}
_STYLE = """
:root { color-scheme: light; --ink: #1d2733; --soft: #5b6875; --line: #dde3ea; --paper: #ffffff; --wash: #f5f7fa; --link: #0b62a4; }
@media (prefers-color-scheme: dark) {
  :root { color-scheme: dark; --ink: #e2e7ed; --soft: #9ba7b3; --line: #343e49; --paper: #1c232a; --wash: #13181d; --link: #74b6f0; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--wash); color: var(--ink); font: 16px/1.55 system-ui, "Segoe UI", Roboto, sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 2.5rem 1.5rem 4rem; }
h1 { font-size: 2rem; line-height: 1.2; margin: 0 0 .3rem; text-wrap: balance; } h2 { font-size: 1.35rem; margin: 0 0 .6rem; }
p { max-width: 75ch; } .soft { color: var(--soft); }
section { background: var(--paper); border: 1px solid var(--line); border-radius: 10px; padding: 1.4rem 1.6rem; margin: 1.4rem 0; }
img { width: 100%; min-width: 40rem; height: auto; display: block; margin: .8rem 0; padding: .4rem; background: #fff; border-radius: 6px; }
.scroll { overflow-x: auto; } details { margin-top: .8rem; } summary { cursor: pointer; color: var(--link); }
table { border-collapse: collapse; font-size: .86rem; margin: .9rem 0; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding: .3rem 0; }
th, td { padding: .32rem .7rem; border-bottom: 1px solid var(--line); text-align: right; }
th { background: var(--wash); } .text, th:first-child, td:first-child { text-align: left; }
table.verdicts { width: 100%; font-size: .92rem; } .verdicts th, .verdicts td { text-align: left; vertical-align: top; }
.badge { display: inline-block; white-space: nowrap; border-radius: 99px; padding: .1rem .7rem; font-weight: 600; font-size: .82rem; }
.yes { background: #d9f2e3; color: #0d6b36; } .partly { background: #fdeecb; color: #855a00; }
.no { background: #fbdcd9; color: #a1231a; } .open { background: #e8ebef; color: #55606c; }
code, pre { font: .86rem/1.5 ui-monospace, Consolas, monospace; }
pre { background: var(--wash); padding: .8rem 1rem; border-radius: 6px; overflow-x: auto; }
@media (max-width: 640px) {
  main { padding: 1.5rem .8rem 3rem; } section { padding: 1rem; } h1 { font-size: 1.5rem; }
  .verdicts thead { display: none; } .verdicts td { display: block; border: 0; padding: .15rem 0; }
  .verdicts tr { display: block; border-bottom: 1px solid var(--line); padding: .6rem 0; } .verdicts td:first-child { font-weight: 600; }
}
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1.2rem; margin: 0; } dt { color: var(--soft); } dd { margin: 0; }
"""


@dataclass(frozen=True)
class Section:
    """A figure, with its text and the tables behind it."""

    title: str
    text: str
    picture: Path | None
    tables: tuple[Table, ...] = ()


def _image(path: Path, title: str) -> str:
    data = base64.b64encode(path.read_bytes()).decode()
    return f'<div class="scroll"><img alt="{html.escape(title)}" src="data:{_MIME[path.suffix]};base64,{data}"></div>'


def _section(section: Section) -> str:
    picture = "" if section.picture is None else _image(section.picture, section.title)
    tables = "".join(f'<div class="scroll">{table.to_html()}</div>' for table in section.tables)
    behind = f"<details{'' if picture else ' open'}><summary>The numbers</summary>{tables}</details>" if tables else ""
    return f"<section><h2>{html.escape(section.title)}</h2><p>{html.escape(section.text)}</p>{picture}{behind}</section>"


def _verdicts(verdicts: Sequence[Verdict]) -> str:
    if not verdicts:
        return ""
    lines = "".join(
        f"<tr><td>{html.escape(verdict.statement)}</td><td><span class='badge {_BADGES[verdict.outcome]}'>{verdict.outcome}</span></td>"
        f"<td>{html.escape(verdict.evidence)}<br>"
        f"<span class='soft'>Rule: {html.escape(verdict.rule)}. {html.escape(verdict.widened)}</span></td></tr>"
        for verdict in verdicts
    )
    head = "<thead><tr><th>statement</th><th>verdict</th><th>evidence</th></tr></thead>"
    intro = "<h2>Verdicts</h2><p>Each is computed from the rows of this run by the rule under it.</p>"
    return f"<section>{intro}<table class='verdicts'>{head}<tbody>{lines}</tbody></table></section>"


def write_report(
    path: Path, title: str, introduction: str, sections: Sequence[Section], verdicts: Sequence[Verdict], facts: dict[str, str], command: str
) -> Path:
    """Write a report to an HTML file.

    Parameters
    ----------
    path : Path
        The HTML file.
    facts : dict
        Further facts about the run: seeds, trials, times.
    command : str
        Command that repeats this.
    """
    about = "".join(f"<dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd>" for name, value in {**machine(), **facts}.items())
    body = (
        f"<h1>{html.escape(title)}</h1><p class='soft'>{html.escape(introduction)}</p>"
        + _verdicts(verdicts)
        + "".join(map(_section, sections))
        + f"<section><h2>How this was made</h2><pre>{html.escape(command)}</pre><dl>{about}</dl></section>"
    )
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head><body><main>{body}</main></body></html>\n"
    )
    path.write_text(page, encoding="utf-8")
    return path
