"""``psp merge``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from online_psp.cli._common import USAGE, check_output, fail, one_sentence, print_json


def merge(
    models: Annotated[list[Path], typer.Argument(help="Model files, of different rows of the same features.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The merged model.")],
    force: Annotated[bool, typer.Option("--force", help="Overwrite the output.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """One model of what several have learned from different rows."""
    if len(models) < 2:
        raise fail("There must be at least two models to merge.", USAGE)
    check_output(output, force)
    with one_sentence():
        from online_psp.io.sources import SourceError
        from online_psp.pca import files as pca_state

        merged, header = pca_state.load(models[0])
        for path in models[1:]:
            other = pca_state.load(path)[0]
            try:
                merged.merge(other)
            except ValueError as error:
                raise SourceError(f"{path} cannot be merged with {models[0]}: {error}") from None
        source = header.get("source")
        shape = source.get("image_shape") if isinstance(source, dict) else None
        pca_state.save(merged, output, {"merged": [str(path) for path in models], "image_shape": shape})
    if as_json:
        print_json({"model": str(output), "samples": merged.n_samples_seen_, "merged": [str(path) for path in models]})
    elif not quiet:
        typer.echo(f"{output}: {merged.n_samples_seen_} samples of {len(models)} models")
