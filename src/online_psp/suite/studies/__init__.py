"""Benchmarks of our own on the suite: each module has ``tables(out, quick)``, which yields tables and may write pictures into a folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path

from threadpoolctl import threadpool_limits

from online_psp.suite.rows import Row, machine
from online_psp.suite.runner import How, Record, run
from online_psp.suite.tables import Table, to_markdown


def run_study(name: str, out: Path, command: str, **options: object) -> Iterator[Table]:
    """The machine, and the tables of a study as they come; at the end they are in ``NAME.md`` in the folder, with the command."""
    out.mkdir(parents=True, exist_ok=True)
    facts = {**machine(), "command": f"`{command}`"}  # files may change later
    yield Table("Where", ("what", "this run"), tuple((what, facts[what]) for what in ("machine", "BLAS", "code")))
    found: list[Table] = []
    with threadpool_limits(1):
        for table in import_module(f"{__name__}.{name}").tables(out=out, **options):
            found.append(table)
            yield table
    head = "\n".join(f"- {what}: {value}" for what, value in facts.items())
    (out / f"{name}.md").write_text(f"{head}\n\n{to_markdown(found)}", encoding="utf-8")


def measured(records: Sequence[Record], path: Path) -> list[Row]:
    """The rows of records, one after the other, all of them measured now."""
    path.unlink(missing_ok=True)
    return run(records, path, How(1, apart=True, progress=True))
