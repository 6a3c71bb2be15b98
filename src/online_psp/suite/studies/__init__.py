"""Benchmarks of our own on the suite: each module has ``tables(quick, out)``, which yields tables and may write pictures into a folder."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from threadpoolctl import threadpool_limits

from online_psp.suite.rows import machine
from online_psp.suite.tables import Table


def run_study(name: str, out: Path, command: str, **options: object) -> Iterator[Table]:
    """The tables of a study as they come; at the end they are in ``NAME.md`` in the folder, with the machine and the command."""
    out.mkdir(parents=True, exist_ok=True)
    found: list[Table] = []
    facts = "\n".join(f"- {what}: {value}" for what, value in {**machine(), "command": f"`{command}`"}.items())  # files may change later
    with threadpool_limits(1):
        for table in import_module(f"{__name__}.{name}").tables(out=out, **options):
            found.append(table)
            yield table
    (out / f"{name}.md").write_text("\n\n".join([facts, *(table.to_markdown() for table in found)]), encoding="utf-8")
