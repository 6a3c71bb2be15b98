"""Write a page of all commands of ``psp`` with their arguments and options, from the commands themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer.main

from online_psp.cli import _options
from online_psp.cli.main import app

_TABLES = ("SETTINGS", "READING", "FEEDING", "MONITORING", "SERVING")


def _cell(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")


def _names(option: Any) -> str:
    return ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))


def _command(command: Any, name: str) -> list[str]:
    lines = [f"## psp {name}", "", (command.help or "").replace("\b", "").strip(), ""]
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option" and not each.hidden]
    lines += ["| argument or option | what it does |", "|---|---|"]
    lines += [f"| `{each.name.upper()}` | {_cell(each.help)} |" for each in arguments]
    lines += [f"| {_names(each)} | {_cell(each.help)} |" for each in options]
    return [*lines, ""]


def page() -> str:
    """The page, as Markdown."""
    lines = ["# All commands and options", "", "Written from the commands themselves; `psp COMMAND --help` says the same.", ""]
    root: Any = typer.main.get_command(app)
    for name, command in sorted(root.commands.items()):
        if not command.hidden:
            lines += _command(command, name)
    settings: dict[str, Any] = {}
    for table in _TABLES:
        settings |= {key: option for key, option in getattr(_options, table).items() if not option.flags}
    lines += [
        "## Settings",
        "",
        "What has no option of its own is `--set name=value`. The help of each command lists the names that it takes.",
        "",
    ]
    lines += ["| name | what it does |", "|---|---|"]
    lines += [f"| `{key}` | {_cell(option.help)} |" for key, option in sorted(settings.items())]
    return "\n".join(lines) + "\n"


def write(folder: Path) -> None:
    """Write the page into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "commands.md").write_text(page(), encoding="utf-8")
