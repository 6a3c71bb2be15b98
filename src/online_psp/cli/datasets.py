"""``psp datasets``: the registered data sets, and which of them are present."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def datasets(
    data_home: Annotated[
        Path | None, typer.Option(help="Folder with the data sets, searched before ONLINE_PSP_DATA and the user's cache.")
    ] = None,
) -> None:
    """List the registered data sets: whether they are present and their checksums match, N × D, licence and source."""
    from rich.console import Console

    from online_psp.datasets.registry import KNOWN, search_path

    console = Console(soft_wrap=True, highlight=False)
    for name, known in KNOWN.items():
        place, digest = presence(name, data_home)
        console.print(f"[bold]{name:8}[/bold]{known.title}, {known.N} × {known.D}")
        console.print(f"{'':8}present: {place} {digest}".rstrip())
        console.print(f"{'':8}licence: {known.licence}")
        console.print(f"{'':8}source:  {known.home}")
    console.print("Looked for in: " + ", ".join(str(folder) for folder in search_path(data_home)))


def presence(name: str, data_home: Path | None = None) -> tuple[str, str]:
    """Where a known set is, and its checksum, with a word on whether it is right."""
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
