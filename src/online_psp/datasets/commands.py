"""``psp datasets``: what is known, what is here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def datasets(
    data_home: Annotated[Path | None, typer.Option(help="Folder to look in before ONLINE_PSP_DATA and the user's cache.")] = None,
) -> None:
    """List the data sets known by name: what is present (and whether its checksum is right), N × D, licence and source."""
    from rich.console import Console
    from rich.table import Table

    from online_psp.datasets.registry import KNOWN, search_path

    table = Table("name", "what", "N × D", "present", "SHA-256", "licence", "source")
    for name, known in KNOWN.items():
        place, digest = presence(name, data_home)
        table.add_row(name, known.title, f"{known.N} × {known.D}", place, digest, known.licence, known.home)
    console = Console()
    console.print(table)
    console.print("Looked for in: " + ", ".join(str(folder) for folder in search_path(data_home)))


def presence(name: str, data_home: Path | None = None) -> tuple[str, str]:
    """Where a known set is, and its checksum with a word on whether it is the known one."""
    from online_psp.datasets.registry import KNOWN, checksum, locate

    known = KNOWN[name]
    if not known.names:
        return "with scikit-learn", ""
    path = locate(name, data_home)
    if path is None:
        return "no", ""
    if path.is_dir():
        return str(path), "(a folder)"
    digest = checksum(path)
    return str(path), f"{digest[:12]}… {'ok' if digest in known.checksums else 'NOT the known one'}"
